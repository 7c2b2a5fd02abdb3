package store

// Stmt is a compiled statement.
type Stmt struct {
	c        *Conn
	raw      *rawStmt
	key      stmtKey
	kind     Kind
	readOnly bool
	tx       bool // begins or ends a transaction
	vacuum   bool
	keep     bool // may go to the cache

	bound   bool // since it was prepared or taken from the cache
	run     bool
	cols    []Column
	colsFor int32 // rawStmt.recompiled when cols was made
	row     Row
}

// ReadOnly reports that it changes nothing in the database itself. BEGIN,
// COMMIT and such are read-only too.
func (s *Stmt) ReadOnly() bool { return s.readOnly }

// IsExplain reports EXPLAIN and EXPLAIN QUERY PLAN.
func (s *Stmt) IsExplain() bool { return s.raw.explain() }

// Kind is the statement's class: that of Classify, but KindWrite exactly for
// what SQLite says writes.
func (s *Stmt) Kind() Kind {
	switch {
	case s.kind == KindRead && !s.readOnly:
		return KindWrite
	case s.kind == KindWrite && s.readOnly && !s.vacuum:
		return KindRead
	}
	return s.kind
}

// Params gives the parameters' names with their prefix, "" for "?"; index 0
// is parameter 1.
func (s *Stmt) Params() []string { return s.raw.params() }

// Columns describes the result; empty for a statement that gives none. The
// schema may change between Prepare and Run: what Columns gives from within
// the row callback, or after Run, is what the rows have.
func (s *Stmt) Columns() []Column {
	if !s.run && !s.bound {
		s.refresh()
	}
	if n := s.raw.recompiled(); s.cols == nil || s.colsFor != n {
		s.cols, s.colsFor = s.raw.columns(), n
	}
	return s.cols
}

// refresh compiles the statement again under the newest schema: SQLite looks
// whether it changed only when a statement runs.
func (s *Stmt) refresh() {
	if s.kind == KindPragma {
		return
	}
	s.c.own("SELECT 1 FROM sqlite_schema LIMIT 1", nil, nil)
	h, _, err := s.c.raw.prepare(skipEmpty(s.key.sql), true)
	if err != nil || h == nil {
		s.c.denied = ""
		return
	}
	s.raw.finalize()
	s.raw, s.cols = h, nil
	s.row.s = h
}

// Bind sets parameter i, counted from 1. Parameters not set are NULL.
func (s *Stmt) Bind(i int, v Value) error {
	s.bound = true
	return s.raw.bind(i, v)
}

// Run steps to the end, giving each row to row (nil: rows are dropped). An
// error of row stops it and is returned as it is. A statement may be run
// again, with other arguments.
func (s *Stmt) Run(row func(*Row) error) (Result, error) {
	c := s.c
	if c.mustStop() {
		return Result{}, c.stopped()
	}
	s.run = true
	before := c.raw.totalChanges()
	c.vacuuming = s.vacuum
	rows, err := s.steps(row)
	c.vacuuming = false
	r := Result{Rows: rows}
	// SQLite's count is that of the last statement that changes rows: not this one's
	// where nothing was counted since.
	if !s.readOnly && c.raw.totalChanges() != before {
		r.Changes = c.raw.changes()
	}
	r.LastInsertID = c.raw.lastInsert()
	if c.frames != 0 {
		if cerr := c.captured(); cerr != nil && err == nil {
			err = cerr
		}
	}
	if c.committing {
		c.committing = false
		c.committed()
	}
	return r, err
}

func (s *Stmt) steps(row func(*Row) error) (rows int64, err error) {
	for {
		more, err := s.raw.step()
		if err != nil {
			err = s.c.explain(err)
			s.raw.reset()
			return rows, err
		}
		if !more {
			break
		}
		rows++
		if row != nil {
			if err := row(&s.row); err != nil {
				s.raw.reset()
				return rows, err
			}
		}
	}
	if err := s.raw.reset(); err != nil {
		return rows, s.c.explain(err)
	}
	return rows, nil
}

// captured hands a commit that the statement has made to the unit.
func (c *Conn) captured() error {
	frames := c.frames
	c.frames = 0
	if c.capture == nil {
		return nil
	}
	return c.capture(frames)
}

// Close gives the statement back to the connection's cache.
func (s *Stmt) Close() {
	if s.raw == nil || s.raw.h == 0 {
		return
	}
	if s.bound {
		s.raw.clearBindings()
	}
	s.bound, s.run = false, false
	s.c.recache(s)
}

// Row is the current row of a statement. It, and the bytes that it gives, are
// valid during the callback only. Columns are counted from 0.
type Row struct{ s *rawStmt }

// Len is the number of columns.
func (r *Row) Len() int { return r.s.columnCount() }

// Type of a column's value.
func (r *Row) Type(i int) Type { return r.s.columnType(i) }

// Int64 of an Integer; other types are converted as SQLite does.
func (r *Row) Int64(i int) int64 { return r.s.int64(i) }

// Float64 of a Float; other types are converted as SQLite does.
func (r *Row) Float64(i int) float64 { return r.s.float64(i) }

// Bytes of a Text or Blob, in SQLite's own memory: not to be changed.
func (r *Row) Bytes(i int) []byte { return r.s.bytes(i) }

// Value copies a column.
func (r *Row) Value(i int) Value {
	switch r.s.columnType(i) {
	case Integer:
		return IntValue(r.s.int64(i))
	case Float:
		return FloatValue(r.s.float64(i))
	case Text:
		return TextValue(string(r.s.bytes(i)))
	case Blob:
		return BlobValue(append([]byte{}, r.s.bytes(i)...))
	}
	return Value{}
}
