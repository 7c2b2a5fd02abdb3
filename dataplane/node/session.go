package node

import (
	"context"
	"errors"
	"slices"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
)

// session is a Hrana stream's way to its unit: hrana.Session. Between requests it
// exists only where a transaction is open; it then keeps the unit open by itself.
type session struct {
	access
	store   *store.Store
	release func()    // of the unit, while tx is open
	tx      *store.Tx // an open transaction
	reading bool      // tx is a read transaction
	dead    bool      // the node ended the transaction
	streams bool      // rows are on their way before the statement ends: a cursor's

	// What a connection of its own would keep from statement to statement, carried from
	// loan to loan.
	lastID   int64     // last_insert_rowid()
	settings []setting // PRAGMAs that last as long as a connection
	fresh    bool      // the connection does not have them yet

	stmt statement
	// The statement's body for the engine, bound once; a closure for each call would
	// be an allocation for each.
	readFn, writeFn func(*store.Conn) error
}

type setting struct{ name, sql string }

func (s *session) Autocommit() bool { return s.tx == nil }

func (s *session) Close() { s.end() }

// end gives the connection back, rolling back what is open.
func (s *session) end() {
	if s.tx != nil {
		s.tx.Rollback()
		s.tx = nil
		s.reading = false
	}
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

func (s *session) onRead(c *store.Conn) error {
	if err := s.carry(c); err != nil {
		return err
	}
	return s.stmt.run(c, true)
}

func (s *session) onWrite(c *store.Conn) error {
	if err := s.carry(c); err != nil {
		return err
	}
	return s.stmt.run(c, false)
}

// carry makes a connection that was just lent look as if it had always been the
// stream's.
func (s *session) carry(c *store.Conn) error {
	if !s.fresh {
		return nil
	}
	s.fresh = false
	for _, set := range s.settings {
		if _, _, err := c.Exec(set.sql, nil, nil); err != nil {
			return err
		}
	}
	if s.lastID != 0 {
		c.SetLastInsertID(s.lastID)
	}
	return nil
}

// Execute runs one statement where it belongs.
func (s *session) Execute(ctx context.Context, st *hrana.Stmt, w hrana.RowWriter) (hrana.Outcome, error) {
	s.stmt.sql, s.stmt.args, s.stmt.named, s.stmt.w = st.SQL, st.Args, st.Named, w
	s.stmt.result = store.Result{}
	committed, err := s.execute(ctx)
	s.stmt.args, s.stmt.named, s.stmt.w = nil, nil, nil
	r := &s.stmt.result
	if r.LastInsertID != 0 {
		s.lastID = r.LastInsertID
	}
	out := hrana.Outcome{Affected: r.Changes, LastRowID: r.LastInsertID, Committed: committed}
	out.Inserted = s.stmt.kind == store.KindWrite && r.LastInsertID != 0
	return out, hranaError(err)
}

func (s *session) execute(ctx context.Context) (committed bool, err error) {
	if s.readFn == nil {
		s.readFn, s.writeFn = s.onRead, s.onWrite
	}
	if s.streams {
		s.stmt.before = func() error { return s.seen(ctx) }
	}
	if s.dead {
		return false, store.ErrKilled
	}
	if err := s.stmt.classify(); err != nil {
		return false, err
	}
	if s.tx != nil {
		return s.inTx(ctx)
	}
	s.fresh = true
	set := len(s.settings) > 0
	switch {
	case s.stmt.onReader() && !(set && s.stmt.kind == store.KindPragma):
		err := s.read(ctx, s.readFn)
		if !isReadOnly(err) {
			return false, err
		}
		s.fresh = true // it writes after all
	case s.stmt.kind == store.KindBeginRead:
		return false, s.hold(ctx, store.ReadTx)
	case s.stmt.kind == store.KindCommit:
		return false, &hrana.Error{Message: "cannot commit - no transaction is active", Code: "SQLITE_ERROR"}
	case s.stmt.kind == store.KindRollback:
		return false, &hrana.Error{Message: "cannot rollback - no transaction is active", Code: "SQLITE_ERROR"}
	case set || s.stmt.controls() || s.stmt.needsManual():
		if err := s.hold(ctx, store.Manual); err != nil {
			return false, err
		}
		return s.inTx(ctx)
	}
	_, err = s.write(ctx, s.writeFn)
	return err == nil, err
}

func isReadOnly(err error) bool { return err != nil && errors.Is(err, store.ErrReadOnly) }

// hold takes a connection for more than one statement, and the unit with it.
func (s *session) hold(ctx context.Context, mode store.Mode) error {
	_, release, err := s.store.Acquire(ctx, s.unit.Name())
	if err != nil {
		return err
	}
	tx, err := s.begin(ctx, mode)
	if err != nil {
		release()
		return err
	}
	s.tx, s.release, s.reading, s.fresh = tx, release, mode == store.ReadTx, true
	return nil
}

// inTx runs the statement on the connection that the session holds, and gives it back
// where no transaction is open behind it.
func (s *session) inTx(ctx context.Context) (committed bool, err error) {
	if s.reading {
		return false, s.inReadTx(ctx)
	}
	s.unit.BeginCall()
	defer s.unit.EndCall()
	if s.stmt.kind != store.KindRollback && !s.stmt.onReader() {
		if err := s.admit(writes); err != nil {
			return false, err
		}
	}
	was := s.tx.InTransaction()
	err = s.tx.Do(ctx, s.writeFn)
	open := s.after(err)
	if err == nil && s.stmt.onReader() {
		err = s.seen(ctx)
	}
	if err != nil {
		return false, err
	}
	isSetting := s.remember()
	wrote := !s.stmt.onReader() && !isSetting && (was || !s.stmt.controls())
	if !open && wrote && s.stmt.kind != store.KindRollback {
		return true, s.fence.committed(s.unit)
	}
	return false, nil
}

// after sees to a transaction that has ended, and tells whether one is open.
func (s *session) after(err error) bool {
	if errors.Is(err, store.ErrKilled) {
		s.dead = true
	}
	if !s.dead && s.tx.InTransaction() {
		return true
	}
	s.end()
	return false
}

// remember keeps a PRAGMA that set the connection up, for the next loan.
func (s *session) remember() bool {
	if s.stmt.kind != store.KindPragma {
		return false
	}
	name := settingPragma(s.stmt.sql)
	if name == "" {
		return false
	}
	s.settings = slices.DeleteFunc(s.settings, func(set setting) bool { return set.name == name })
	s.settings = append(s.settings, setting{name, s.stmt.sql})
	return true
}

// inReadTx is for what @libsql/client calls a read transaction.
func (s *session) inReadTx(ctx context.Context) error {
	switch s.stmt.kind {
	case store.KindCommit, store.KindRollback:
		s.end()
		return nil
	case store.KindBegin, store.KindBeginRead:
		return &hrana.Error{Message: "cannot start a transaction within a transaction", Code: "SQLITE_ERROR"}
	case store.KindEmpty, store.KindRead, store.KindWrite, store.KindPragma, store.KindSavepoint:
	}
	err := s.tx.Do(ctx, s.readFn)
	s.after(err)
	if isReadOnly(err) {
		return &hrana.Error{Message: "attempt to write in a read transaction", Code: "SQLITE_READONLY"}
	}
	if err == nil {
		err = s.seen(ctx)
	}
	return err
}

// Sequence runs the statements of a text one after another, each committing by itself
// unless the text says BEGIN, on the writer: only SQLite knows where a statement ends,
// and what one makes the next may need.
func (s *session) Sequence(ctx context.Context, sql string) (hrana.Outcome, error) {
	var out hrana.Outcome
	if s.dead {
		return out, hranaError(store.ErrKilled)
	}
	s.unit.BeginCall()
	defer s.unit.EndCall()
	if s.tx == nil {
		if err := s.hold(ctx, store.Manual); err != nil {
			return out, hranaError(err)
		}
	} else if !s.reading {
		if err := s.admit(writes); err != nil {
			return out, hranaError(err)
		}
	}
	err := s.tx.Do(ctx, func(c *store.Conn) error {
		if err := s.carry(c); err != nil {
			return err
		}
		for sql != "" {
			r, tail, err := c.Exec(sql, nil, nil)
			if isNoStatement(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if r.LastInsertID != 0 {
				s.lastID = r.LastInsertID
			}
			out.Committed = out.Committed || !s.reading && c.Autocommit()
			sql = tail
		}
		return nil
	})
	s.after(err)
	if err == nil && out.Committed {
		err = s.fence.committed(s.unit)
	}
	return out, hranaError(err)
}

// Describe compiles a statement without running it.
func (s *session) Describe(ctx context.Context, sql string) (d hrana.Description, err error) {
	run := func(c *store.Conn) error {
		d, err = describe(c, sql)
		return err
	}
	switch {
	case s.dead:
		err = store.ErrKilled
	case s.tx != nil:
		err = s.tx.Do(ctx, run) // it may be about a table made in the transaction
		s.after(err)
	default:
		err = s.read(ctx, run)
	}
	return d, hranaError(err)
}

func describe(c *store.Conn, sql string) (d hrana.Description, err error) {
	st, tail, err := c.Prepare(sql)
	if err != nil {
		return d, err
	}
	defer st.Close()
	if tail != "" {
		return d, errManyStatements
	}
	for _, p := range st.Params() {
		d.Params = append(d.Params, hrana.Param{Name: p})
	}
	for _, c := range st.Columns() {
		d.Columns = append(d.Columns, hrana.Column{Name: c.Name, DeclType: c.DeclType})
	}
	d.Explain, d.Readonly = st.IsExplain(), st.ReadOnly()
	return d, nil
}

func isNoStatement(err error) bool { return err != nil && errors.Is(err, store.ErrNoStatement) }
