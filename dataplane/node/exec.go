package node

import (
	"context"
	"errors"
	"strings"
	"unsafe"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// statement is one statement with its arguments, on its way through the engine. It is
// the hrana.Rows of its own result.
type statement struct {
	sql   string
	args  []hrana.Value
	named []hrana.NamedValue
	kind  store.Kind

	st      *store.Stmt // while it runs
	stream  bool
	begun   bool
	before  func() error // where set: called before the first row is given, once
	columns []store.Column
	row     *store.Row
	w       hrana.RowWriter
	result  store.Result

	rowFn func(*store.Row) error // takeRow, bound once
}

// The methods of hrana.Rows.

func (s *statement) Columns() int          { return len(s.columns) }
func (s *statement) Name(i int) string     { return s.columns[i].Name }
func (s *statement) DeclType(i int) string { return s.columns[i].DeclType }
func (s *statement) Kind(i int) hrana.Kind { return hrana.Kind(s.row.Type(i)) } // both in SQLite's order
func (s *statement) Int64(i int) int64     { return s.row.Int64(i) }
func (s *statement) Float64(i int) float64 { return s.row.Float64(i) }
func (s *statement) Bytes(i int) []byte    { return s.row.Bytes(i) }

func (s *statement) takeRow(row *store.Row) error {
	s.row = row
	if !s.begun && s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	s.begin()
	return s.w.Row(s)
}

// begin tells the columns, once. Only inside the run, or after it, are they those of
// the rows: the schema may have changed since the statement was compiled.
func (s *statement) begin() {
	if s.begun {
		return
	}
	s.begun = true
	if s.columns = s.st.Columns(); len(s.columns) > 0 {
		s.w.Begin(s, s.stream && s.st.ReadOnly())
	}
}

// classify checks what can be seen without a connection.
func (s *statement) classify() error {
	if strings.IndexByte(s.sql, 0) >= 0 {
		return errNUL // SQLite would stop reading there
	}
	if s.kind = store.Classify(s.sql); s.kind == store.KindEmpty {
		return errNoStatement
	}
	return nil
}

// run compiles, binds and steps the statement on a connection. stream is for Begin.
func (s *statement) run(c *store.Conn, stream bool) error {
	st, tail, err := c.Prepare(s.sql)
	if err != nil {
		return err
	}
	defer st.Close()
	if tail != "" {
		return errManyStatements
	}
	if err := bind(st, s.args, s.named); err != nil {
		return err
	}
	if s.rowFn == nil {
		s.rowFn = s.takeRow
	}
	s.st, s.stream, s.begun = st, stream, false
	if s.result, err = st.Run(s.rowFn); err == nil {
		s.begin()
	}
	if r := &s.result; (r.Changes|r.LastInsertID) != 0 && !s.changesRows() {
		r.Changes, r.LastInsertID = 0, 0
	}
	s.st, s.row = nil, nil
	return err
}

// bind gives each parameter its value. One that has none, and a value too many, are
// errors: SQLite would take NULL and silence.
func bind(st *store.Stmt, args []hrana.Value, named []hrana.NamedValue) error {
	params := st.Params()
	if len(args) > len(params) {
		return argsInvalid("too many arguments for the statement's parameters")
	}
	for i, name := range params {
		v, ok := valueFor(i, name, args, named)
		if !ok {
			if name == "" {
				name = "?"
			}
			return argsInvalid("no value was given for the parameter " + name)
		}
		if err := st.Bind(i+1, storeValue(v)); err != nil {
			return err
		}
	}
	for i := range named {
		if !names(params, named[i].Name) {
			return argsInvalid("the statement has no parameter named " + named[i].Name)
		}
	}
	return nil
}

func argsInvalid(text string) error { return &hrana.Error{Message: text, Code: "ARGS_INVALID"} }

func valueFor(i int, name string, args []hrana.Value, named []hrana.NamedValue) (*hrana.Value, bool) {
	if i < len(args) {
		return &args[i], true
	}
	if name == "" || name[0] == '?' {
		return nil, false
	}
	for j := range named {
		if sameParam(name, named[j].Name) {
			return &named[j].Value, true
		}
	}
	return nil, false
}

// sameParam compares a parameter (with its prefix) with an argument's name, which may
// have one.
func sameParam(param, arg string) bool {
	return param == arg || param != "" && param[1:] == arg
}

func names(params []string, arg string) bool {
	for _, p := range params {
		if sameParam(p, arg) {
			return true
		}
	}
	return false
}

// storeValue converts without copying: the engine copies what it binds, and the body
// that the bytes belong to outlives the statement.
func storeValue(v *hrana.Value) store.Value {
	switch v.Kind {
	case hrana.Integer:
		return store.Value{Type: store.Integer, Int: v.Int}
	case hrana.Float:
		return store.Value{Type: store.Float, Float: v.Float}
	case hrana.Text:
		return store.Value{Type: store.Text, Text: unsafe.String(unsafe.SliceData(v.Bytes), len(v.Bytes))}
	case hrana.Blob:
		return store.Value{Type: store.Blob, Blob: v.Bytes}
	case hrana.Null:
	}
	return store.Value{}
}

// access is how one request, or one stream, uses a unit.
type access struct {
	fence *fence
	unit  *store.Unit
	copy  bool // Domicile-Mode: read: a replica will do
	// readOnly: a proxy asks this node as a copy, and may ask another, too
	readOnly bool
	stale    bool // the request's answer says that what it read may be old
}

func (a *access) record() store.Record { return a.fence.records.of(a.unit) }

// admit asks the fence.
func (a *access) admit(u use) error {
	if u == reads && a.copy {
		u = readsCopy
	}
	rec := a.record()
	if u == writes && a.readOnly {
		return misdirected(&rec, "", "it was sent here to be read from a copy, and writes")
	}
	return a.fence.admit(&rec, u)
}

// read runs f on a reader connection.
func (a *access) read(ctx context.Context, f func(*store.Conn) error) error {
	if err := a.admit(reads); err != nil {
		return err
	}
	if err := a.unit.Read(ctx, f); err != nil {
		return err
	}
	return a.seen(ctx)
}

// seen returns when what was read up to now is acknowledged: else a failover could
// take back what a client has seen (architecture §3.7.3). An answer that says that it
// may be old does not wait.
func (a *access) seen(ctx context.Context) error {
	if a.stale {
		if rec := a.record(); a.fence.stale(&rec) {
			return nil
		}
	}
	err := a.unit.AwaitAcknowledged(ctx, a.unit.Seen())
	// The lease may have ended meanwhile, in a pause: what was read then may hold
	// commits that no copy has, and lack others.
	if rec := a.record(); (err == nil || errors.Is(err, store.ErrUnreplicated)) && a.fence.stale(&rec) {
		a.stale = true
		return nil
	}
	if errors.Is(err, store.ErrUnreplicated) {
		return &httpserve.Error{Status: 503, Code: codeUnreplicated, Cause: err,
			Text: "what was read is not on the tenant's copies yet, one of which is not reached; try again"}
	}
	return err
}

// write runs f in a write transaction, admitted before, under the writer, and after.
func (a *access) write(ctx context.Context, f func(*store.Conn) error) (store.Position, error) {
	a.unit.BeginCall()
	defer a.unit.EndCall()
	if err := a.admit(writes); err != nil {
		return store.Position{}, err
	}
	p, err := a.unit.Write(ctx, func(c *store.Conn) error {
		if err := a.admit(writes); err != nil {
			return err
		}
		return f(c)
	})
	if err != nil {
		return p, err
	}
	return p, a.fence.committed(a.unit)
}

// manual runs f on the writer outside a transaction of ours, for what SQLite refuses
// inside one.
func (a *access) manual(ctx context.Context, f func(*store.Conn) error) (store.Position, error) {
	a.unit.BeginCall()
	defer a.unit.EndCall()
	tx, err := a.begin(ctx, store.Manual)
	if err != nil {
		return store.Position{}, err
	}
	defer tx.Rollback()
	if err := tx.Do(ctx, f); err != nil {
		return tx.Position(), err
	}
	return tx.Position(), a.fence.committed(a.unit)
}

// begin takes a connection for several calls. The writer is admitted before and after
// the wait for it.
func (a *access) begin(ctx context.Context, mode store.Mode) (*store.Tx, error) {
	u := writes
	if mode == store.ReadTx {
		u = reads
	}
	if err := a.admit(u); err != nil {
		return nil, err
	}
	tx, err := a.unit.Begin(ctx, mode)
	if err != nil {
		return nil, err
	}
	if err := a.admit(u); err != nil {
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// changesRows tells whether a statement is one that changes rows of its own. Others
// move SQLite's counts too, by what they do inside: CREATE, VACUUM, a virtual table.
func (s *statement) changesRows() bool {
	switch strings.ToUpper(firstWord(s.sql)) {
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH":
		return true
	}
	return false
}

// needsManual tells whether a statement has to run outside any transaction.
func (s *statement) needsManual() bool {
	return s.kind == store.KindPragma && !readPragma(s.sql) ||
		s.kind == store.KindWrite && strings.EqualFold(firstWord(s.sql), "VACUUM")
}

// onReader tells whether a reader connection will do.
func (s *statement) onReader() bool {
	return s.kind == store.KindRead || s.kind == store.KindPragma && readPragma(s.sql)
}

// controls tells whether the statement is about a transaction.
func (s *statement) controls() bool {
	switch s.kind {
	case store.KindBegin, store.KindBeginRead, store.KindCommit, store.KindRollback, store.KindSavepoint:
		return true
	case store.KindEmpty, store.KindRead, store.KindWrite, store.KindPragma:
	}
	return false
}
