package store

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

// This is the only file that knows the SQLite driver: a thin binding to the
// engine's C interface. It is used in place of a ready-made wrapper because
// the callers need what those leave out: declared types, read-only and
// explain flags, duplicate column names, rows without copies, the WAL hook,
// checkpoints, and interrupts without a goroutine per call.

// raw is one connection. One goroutine at a time may use it.
type raw struct {
	tls *libc.TLS
	db  uintptr
	out uintptr // scratch for two pointers that SQLite fills in

	// Callbacks, set before their install function is called. The C side
	// holds pointers to the closures in fns, which keeps them alive.
	authorize func(op int, a1, a2, db string) int
	progress  func() bool // true: stop
	committed func(frames int)
	fns       []any
}

// rawStmt is a compiled statement of a raw.
type rawStmt struct {
	r *raw
	h uintptr
}

// Authorizer answers.
const (
	authOK     = lib.SQLITE_OK
	authDeny   = lib.SQLITE_DENY
	authIgnore = lib.SQLITE_IGNORE
)

// Authorizer actions.
const (
	actCreateIndex   = lib.SQLITE_CREATE_INDEX
	actCreateTable   = lib.SQLITE_CREATE_TABLE
	actCreateTrigger = lib.SQLITE_CREATE_TRIGGER
	actCreateView    = lib.SQLITE_CREATE_VIEW
	actDelete        = lib.SQLITE_DELETE
	actDropIndex     = lib.SQLITE_DROP_INDEX
	actDropTable     = lib.SQLITE_DROP_TABLE
	actDropTrigger   = lib.SQLITE_DROP_TRIGGER
	actDropView      = lib.SQLITE_DROP_VIEW
	actInsert        = lib.SQLITE_INSERT
	actPragma        = lib.SQLITE_PRAGMA
	actRead          = lib.SQLITE_READ
	actSelect        = lib.SQLITE_SELECT
	actTransaction   = lib.SQLITE_TRANSACTION
	actUpdate        = lib.SQLITE_UPDATE
	actAttach        = lib.SQLITE_ATTACH
	actDetach        = lib.SQLITE_DETACH
	actAlterTable    = lib.SQLITE_ALTER_TABLE
	actReindex       = lib.SQLITE_REINDEX
	actAnalyze       = lib.SQLITE_ANALYZE
	actCreateVTable  = lib.SQLITE_CREATE_VTABLE
	actDropVTable    = lib.SQLITE_DROP_VTABLE
	actFunction      = lib.SQLITE_FUNCTION
	actSavepoint     = lib.SQLITE_SAVEPOINT
	actRecursive     = lib.SQLITE_RECURSIVE
	actCreateTempIdx = lib.SQLITE_CREATE_TEMP_INDEX
	actCreateTempTbl = lib.SQLITE_CREATE_TEMP_TABLE
	actCreateTempTrg = lib.SQLITE_CREATE_TEMP_TRIGGER
	actCreateTempVw  = lib.SQLITE_CREATE_TEMP_VIEW
)

// Connection settings of raw.config.
const (
	cfgForeignKeys   = lib.SQLITE_DBCONFIG_ENABLE_FKEY
	cfgDefensive     = lib.SQLITE_DBCONFIG_DEFENSIVE
	cfgNoCkptOnClose = lib.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE
	cfgTrustedSchema = lib.SQLITE_DBCONFIG_TRUSTED_SCHEMA
	cfgLoadExtension = lib.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION
)

// sandboxLimits lowers SQLite's compile-time limits. ATTACHED stays: plain
// VACUUM attaches a database of its own.
var sandboxLimits = [...]struct{ id, value int32 }{
	{lib.SQLITE_LIMIT_LENGTH, 64 << 20},
	{lib.SQLITE_LIMIT_SQL_LENGTH, maxSQL},
	{lib.SQLITE_LIMIT_EXPR_DEPTH, 250},
	{lib.SQLITE_LIMIT_COMPOUND_SELECT, 500},
	{lib.SQLITE_LIMIT_VDBE_OP, 5_000_000},
	{lib.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 2_000},
	{lib.SQLITE_LIMIT_TRIGGER_DEPTH, 100},
	{lib.SQLITE_LIMIT_WORKER_THREADS, 0},
}

const ptrSize = types.Size_t(8)

// openRaw opens an existing database file, or with create a new one.
func openRaw(path string, create bool) (*raw, error) {
	tls := libc.NewTLS()
	r := &raw{tls: tls, out: libc.Xcalloc(tls, 2, ptrSize)}
	cpath, err := libc.CString(path)
	if err != nil || r.out == 0 {
		tls.Close()
		return nil, fmt.Errorf("open database: out of memory")
	}
	defer libc.Xfree(tls, cpath)
	flags := int32(lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_EXRESCODE)
	if create {
		flags |= lib.SQLITE_OPEN_CREATE
	}
	rc := lib.Xsqlite3_open_v2(tls, cpath, r.out, flags, 0)
	r.db = r.ptr(0)
	if rc != lib.SQLITE_OK {
		err := r.error(rc)
		r.close()
		return nil, err
	}
	lib.Xsqlite3_busy_timeout(tls, r.db, 2000)
	return r, nil
}

// close closes the connection; its statements must be finalized before.
func (r *raw) close() {
	if r.db != 0 {
		lib.Xsqlite3_close_v2(r.tls, r.db)
	}
	libc.Xfree(r.tls, r.out)
	r.tls.Close()
	r.db, r.fns = 0, nil
}

// ptr reads the i-th word of the scratch.
func (r *raw) ptr(i int) uintptr {
	return uintptr(binary.NativeEndian.Uint64(libc.GoBytes(r.out+uintptr(i)*8, 8)))
}

func (r *raw) config(op, value int32) error {
	va := libc.NewVaList(value, uintptr(0))
	defer libc.Xfree(r.tls, va)
	return r.check(lib.Xsqlite3_db_config(r.tls, r.db, op, va))
}

func (r *raw) applyLimits() {
	for _, l := range sandboxLimits {
		lib.Xsqlite3_limit(r.tls, r.db, l.id, l.value)
	}
}

// The engine calls back through the address of a Go function value. A closure
// is such a value too; it stays where it is while raw.fns refers to it.
func fnPointer[F any](r *raw, f F) uintptr {
	p := &f
	r.fns = append(r.fns, p)
	return *(*uintptr)(unsafe.Pointer(p))
}

func (r *raw) installAuthorizer() error {
	f := func(_ *libc.TLS, _ uintptr, op int32, a1, a2, db, _ uintptr) int32 {
		return int32(r.authorize(int(op), libc.GoString(a1), libc.GoString(a2), libc.GoString(db)))
	}
	return r.check(lib.Xsqlite3_set_authorizer(r.tls, r.db, fnPointer(r, f), 0))
}

func (r *raw) installProgress(ops int32) {
	f := func(*libc.TLS, uintptr) int32 {
		if r.progress() {
			return 1
		}
		return 0
	}
	lib.Xsqlite3_progress_handler(r.tls, r.db, ops, fnPointer(r, f), 0)
}

// installCommitHook also takes the place of SQLite's own automatic checkpoint.
func (r *raw) installCommitHook() {
	f := func(_ *libc.TLS, _, _, _ uintptr, frames int32) int32 {
		r.committed(int(frames))
		return lib.SQLITE_OK
	}
	lib.Xsqlite3_wal_hook(r.tls, r.db, fnPointer(r, f), 0)
}

// installCommitStart has f called before each commit; readers see it a moment later.
func (r *raw) installCommitStart(f func()) {
	hook := func(*libc.TLS, uintptr) int32 {
		f()
		return 0
	}
	lib.Xsqlite3_commit_hook(r.tls, r.db, fnPointer(r, hook), 0)
}

// prepare compiles the first statement of sql. A nil statement without an
// error: there was none before the tail.
func (r *raw) prepare(sql string, keep bool) (s *rawStmt, tail int, err error) {
	csql, err := libc.CString(sql)
	if err != nil {
		return nil, 0, fmt.Errorf("prepare: out of memory")
	}
	defer libc.Xfree(r.tls, csql)
	var flags uint32
	if keep {
		flags = lib.SQLITE_PREPARE_PERSISTENT
	}
	rc := lib.Xsqlite3_prepare_v3(r.tls, r.db, csql, int32(len(sql)+1), flags, r.out, r.out+8)
	if err := r.check(rc); err != nil {
		return nil, 0, err
	}
	tail = int(r.ptr(1) - csql)
	if h := r.ptr(0); h != 0 {
		s = &rawStmt{r: r, h: h}
	}
	return s, tail, nil
}

// exec runs a script of the node's own, without results.
func (r *raw) exec(sql string) error {
	for sql != "" {
		s, tail, err := r.prepare(sql, false)
		if err != nil {
			return err
		}
		if s != nil {
			err = s.drain()
			s.finalize()
			if err != nil {
				return err
			}
		}
		sql = sql[tail:]
	}
	return nil
}

// queryText runs a statement of the node's own and gives the first column of its first row.
func (r *raw) queryText(sql string) (string, error) {
	s, _, err := r.prepare(sql, false)
	if err != nil {
		return "", err
	}
	defer s.finalize()
	row, err := s.step()
	if err != nil || !row {
		return "", err
	}
	return string(s.bytes(0)), nil
}

// checkpoint runs a PASSIVE checkpoint: frames in the WAL, and how many of
// them are in the database file now.
func (r *raw) checkpoint() (frames, done int, err error) {
	rc := lib.Xsqlite3_wal_checkpoint_v2(r.tls, r.db, 0, lib.SQLITE_CHECKPOINT_PASSIVE, r.out, r.out+8)
	if err := r.check(rc); err != nil {
		return 0, 0, err
	}
	b := libc.GoBytes(r.out, 16)
	return int(int32(binary.NativeEndian.Uint32(b))), int(int32(binary.NativeEndian.Uint32(b[8:]))), nil
}

func (r *raw) autocommit() bool    { return lib.Xsqlite3_get_autocommit(r.tls, r.db) != 0 }
func (r *raw) changes() int64      { return int64(lib.Xsqlite3_changes64(r.tls, r.db)) }
func (r *raw) totalChanges() int64 { return int64(lib.Xsqlite3_total_changes64(r.tls, r.db)) }
func (r *raw) lastInsert() int64   { return int64(lib.Xsqlite3_last_insert_rowid(r.tls, r.db)) }
func (r *raw) setLastInsert(id int64) {
	lib.Xsqlite3_set_last_insert_rowid(r.tls, r.db, lib.Tsqlite3_int64(id))
}
func (r *raw) releaseMemory() { lib.Xsqlite3_db_release_memory(r.tls, r.db) }

func (r *raw) check(rc int32) error {
	if rc == lib.SQLITE_OK {
		return nil
	}
	return r.error(rc)
}

func (r *raw) error(rc int32) *SQLError {
	e := &SQLError{Code: int(rc), Offset: -1, Name: codeName(int(rc))}
	if r.db == 0 {
		e.Message = "out of memory"
		return e
	}
	e.Message = libc.GoString(lib.Xsqlite3_errmsg(r.tls, r.db))
	if rc&0xff == lib.SQLITE_ERROR {
		e.Offset = int(lib.Xsqlite3_error_offset(r.tls, r.db))
	}
	return e
}

func (s *rawStmt) finalize() {
	lib.Xsqlite3_finalize(s.r.tls, s.h)
	s.h = 0
}

// step reports whether there is a row.
func (s *rawStmt) step() (bool, error) {
	switch rc := lib.Xsqlite3_step(s.r.tls, s.h); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, s.r.error(rc)
	}
}

// drain steps to the end and resets.
func (s *rawStmt) drain() error {
	for {
		row, err := s.step()
		if err != nil || !row {
			s.reset()
			return err
		}
	}
}

// reset ends the statement's run. Its error repeats that of step.
func (s *rawStmt) reset() error { return s.r.check(lib.Xsqlite3_reset(s.r.tls, s.h)) }

func (s *rawStmt) clearBindings() { lib.Xsqlite3_clear_bindings(s.r.tls, s.h) }
func (s *rawStmt) readOnly() bool { return lib.Xsqlite3_stmt_readonly(s.r.tls, s.h) != 0 }
func (s *rawStmt) explain() bool  { return lib.Xsqlite3_stmt_isexplain(s.r.tls, s.h) != 0 }

// recompiled counts how often SQLite compiled the statement anew because the
// schema had changed.
func (s *rawStmt) recompiled() int32 {
	return lib.Xsqlite3_stmt_status(s.r.tls, s.h, lib.SQLITE_STMTSTATUS_REPREPARE, 0)
}

func (s *rawStmt) columns() []Column {
	n := int(lib.Xsqlite3_column_count(s.r.tls, s.h))
	cols := make([]Column, n)
	for i := range cols {
		cols[i].Name = libc.GoString(lib.Xsqlite3_column_name(s.r.tls, s.h, int32(i)))
		cols[i].DeclType = libc.GoString(lib.Xsqlite3_column_decltype(s.r.tls, s.h, int32(i)))
	}
	return cols
}

func (s *rawStmt) columnCount() int { return int(lib.Xsqlite3_column_count(s.r.tls, s.h)) }

func (s *rawStmt) params() []string {
	names := make([]string, lib.Xsqlite3_bind_parameter_count(s.r.tls, s.h))
	for i := range names {
		names[i] = libc.GoString(lib.Xsqlite3_bind_parameter_name(s.r.tls, s.h, int32(i+1)))
	}
	return names
}

func (s *rawStmt) columnType(i int) Type {
	switch lib.Xsqlite3_column_type(s.r.tls, s.h, int32(i)) {
	case lib.SQLITE_INTEGER:
		return Integer
	case lib.SQLITE_FLOAT:
		return Float
	case lib.SQLITE_TEXT:
		return Text
	case lib.SQLITE_BLOB:
		return Blob
	}
	return Null
}

func (s *rawStmt) int64(i int) int64 {
	return int64(lib.Xsqlite3_column_int64(s.r.tls, s.h, int32(i)))
}

func (s *rawStmt) float64(i int) float64 {
	return lib.Xsqlite3_column_double(s.r.tls, s.h, int32(i))
}

// bytes gives SQLite's own memory, valid until the next step. The pointer is
// asked for before the length: a text may be converted to UTF-8 by that.
func (s *rawStmt) bytes(i int) []byte {
	var p uintptr
	if s.columnType(i) == Blob {
		p = lib.Xsqlite3_column_blob(s.r.tls, s.h, int32(i))
	} else {
		p = lib.Xsqlite3_column_text(s.r.tls, s.h, int32(i))
	}
	n := int(lib.Xsqlite3_column_bytes(s.r.tls, s.h, int32(i)))
	if p == 0 || n == 0 {
		return nil
	}
	return libc.GoBytes(p, n)
}

func (s *rawStmt) bind(i int, v Value) error {
	var rc int32
	switch p := int32(i); v.Type {
	case Integer:
		rc = lib.Xsqlite3_bind_int64(s.r.tls, s.h, p, lib.Tsqlite_int64(v.Int))
	case Float:
		rc = lib.Xsqlite3_bind_double(s.r.tls, s.h, p, v.Float)
	case Text:
		mem, err := s.r.copyIn(len(v.Text))
		if err != nil {
			return err
		}
		copy(libc.GoBytes(mem, len(v.Text)), v.Text)
		rc = lib.Xsqlite3_bind_text64(s.r.tls, s.h, p, mem, lib.Tsqlite3_uint64(len(v.Text)), freeFn, lib.SQLITE_UTF8)
	case Blob:
		mem, err := s.r.copyIn(len(v.Blob))
		if err != nil {
			return err
		}
		copy(libc.GoBytes(mem, len(v.Blob)), v.Blob)
		rc = lib.Xsqlite3_bind_blob64(s.r.tls, s.h, p, mem, lib.Tsqlite3_uint64(len(v.Blob)), freeFn)
	default:
		rc = lib.Xsqlite3_bind_null(s.r.tls, s.h, p)
	}
	return s.r.check(rc)
}

// installFeed makes the SQL functions feed_number(i) and feed_page(i): a number,
// and n bytes at mem, which are valid until the next call, or NULL where n is 0.
func (r *raw) installFeed(number func(i int64) int64, page func(i int64) (mem uintptr, n int, err error)) error {
	arg := func(argv uintptr) int64 {
		return int64(lib.Xsqlite3_value_int64(r.tls, uintptr(binary.NativeEndian.Uint64(libc.GoBytes(argv, 8)))))
	}
	fns := map[string]func(*libc.TLS, uintptr, int32, uintptr){
		"feed_number": func(tls *libc.TLS, ctx uintptr, _ int32, argv uintptr) {
			lib.Xsqlite3_result_int64(tls, ctx, lib.Tsqlite_int64(number(arg(argv))))
		},
		"feed_page": func(tls *libc.TLS, ctx uintptr, _ int32, argv uintptr) {
			switch mem, n, err := page(arg(argv)); {
			case err != nil:
				lib.Xsqlite3_result_error_code(tls, ctx, lib.SQLITE_ABORT)
			case n == 0:
				lib.Xsqlite3_result_null(tls, ctx)
			default:
				lib.Xsqlite3_result_blob(tls, ctx, mem, int32(n), 0)
			}
		},
	}
	for name, f := range fns {
		cname, err := libc.CString(name)
		if err != nil {
			return fmt.Errorf("name a function: out of memory")
		}
		rc := lib.Xsqlite3_create_function(r.tls, r.db, cname, 1, lib.SQLITE_UTF8|lib.SQLITE_DIRECTONLY, 0, fnPointer(r, f), 0, 0)
		libc.Xfree(r.tls, cname)
		if err := r.check(rc); err != nil {
			return err
		}
	}
	return nil
}

// free frees what copyIn gave and SQLite was not given.
func (r *raw) free(mem uintptr) { libc.Xfree(r.tls, mem) }

// memory is n bytes at mem.
func memory(mem uintptr, n int) []byte { return libc.GoBytes(mem, n) }

// copyIn gives memory that SQLite frees, one byte at least: a null pointer
// would bind NULL.
func (r *raw) copyIn(n int) (uintptr, error) {
	p := libc.Xmalloc(r.tls, types.Size_t(max(n, 1)))
	if p == 0 {
		return 0, fmt.Errorf("bind: out of memory for %d bytes", n)
	}
	return p, nil
}

var freeFn = func() uintptr {
	f := libc.Xfree
	return *(*uintptr)(unsafe.Pointer(&f))
}()
