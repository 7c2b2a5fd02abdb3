package store

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
)

const (
	maxSQL        = 1 << 20 // bytes of one statement's text
	cachedStmts   = 32      // compiled statements kept per connection
	progressSteps = 1000    // instructions of SQLite between looks at the deadline
)

// Conn is a connection lent to a callback; invalid after it. One goroutine at
// a time may use it.
type Conn struct {
	raw   *raw
	unit  string
	stats *counters

	// The loan: whose time runs, who may stop it, what SQL may do.
	ctx     context.Context
	stop    atomic.Pointer[stopCause]
	txSQL   bool // SQL may begin and end transactions
	touched int  // settings changed by PRAGMAs, undone after the loan

	// While a statement of the node's own is compiled (internal), or VACUUM
	// runs SQLite's own statements, the sandbox lets everything pass.
	internal  bool
	vacuuming bool
	denied    string // what the sandbox last refused, and why
	sawTx     bool   // the statement being compiled begins or ends a transaction

	cache map[stmtKey]*Stmt
	order []*Stmt // in the cache, least recently used first

	metDamage bool // a statement of this loan met damage in the file

	frames  int                    // frames in the WAL after a commit that is not captured yet, 0: none
	capture func(frames int) error // nil on readers

	committing bool   // a commit began whose end committed was not told
	committed  func() // nil on readers
}

// stmtKey keeps the node's own statements apart: they were compiled without
// the sandbox, so a tenant must not get one by sending the same text.
type stmtKey struct {
	sql string
	own bool
}

type stopCause struct{ err error }

// openConn opens one of a unit's connections, sandboxed.
func openConn(path, unit string, writer bool, stats *counters) (*Conn, error) {
	r, err := openRaw(path, false)
	if err != nil {
		return nil, err
	}
	c := &Conn{raw: r, unit: unit, stats: stats, ctx: context.Background(), cache: map[stmtKey]*Stmt{}}
	if err := c.setUp(writer); err != nil {
		r.close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) setUp(writer bool) error {
	r := c.raw
	for _, set := range [...][2]int32{
		{cfgNoCkptOnClose, 1}, {cfgForeignKeys, 1}, {cfgDefensive, 1}, {cfgTrustedSchema, 0}, {cfgLoadExtension, 0},
	} {
		if err := r.config(set[0], set[1]); err != nil {
			return err
		}
	}
	pragmas := "PRAGMA query_only=1"
	if writer { // the node makes commits durable itself; NORMAL still syncs around checkpoints
		pragmas = "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216"
	}
	if err := r.exec(pragmas); err != nil {
		return err
	}
	r.applyLimits()
	r.authorize = c.authorize
	r.progress = c.mustStop
	r.committed = func(frames int) { c.frames = frames }
	r.installProgress(progressSteps)
	r.installCommitHook()
	return r.installAuthorizer()
}

// close closes the connection. With cleanUp SQLite removes the WAL when this
// is the last one.
func (c *Conn) close(cleanUp bool) {
	c.dropCache()
	if cleanUp {
		c.raw.config(cfgNoCkptOnClose, 0)
	}
	c.raw.close()
}

func (c *Conn) dropCache() {
	for _, s := range c.order {
		s.raw.finalize()
	}
	clear(c.cache)
	c.order = nil
}

// lend prepares the connection for a new user, who must not see what an
// earlier one has left.
func (c *Conn) lend(ctx context.Context, txSQL bool) {
	c.ctx, c.txSQL = ctx, txSQL
	c.raw.setLastInsert(0)
}

// unlend undoes what the user has left: an open transaction, settings.
func (c *Conn) unlend() {
	c.ctx = context.Background()
	c.stop.Store(nil)
	if !c.raw.autocommit() {
		c.internally(func() error { return c.raw.exec("ROLLBACK") })
	}
	if c.touched != 0 {
		c.internally(func() error { return c.raw.exec(resetSQL(c.touched)) })
		c.touched = 0
	}
}

// internally lets the node's own statements pass the sandbox and the deadline.
func (c *Conn) internally(f func() error) error {
	ctx := c.ctx
	c.internal, c.ctx = true, context.Background()
	err := f()
	c.internal, c.ctx = false, ctx
	return err
}

// mustStop is asked by SQLite between instructions.
func (c *Conn) mustStop() bool {
	if c.stop.Load() != nil && !c.internal {
		return true
	}
	select {
	case <-c.ctx.Done():
		return true
	default:
		return false
	}
}

// interrupt stops what runs on the connection, until the loan ends. It may be
// called from any goroutine.
func (c *Conn) interrupt(cause error) { c.stop.CompareAndSwap(nil, &stopCause{cause}) }

// stopped gives the error of a statement that was stopped.
func (c *Conn) stopped() error {
	cause := context.Cause(c.ctx)
	if s := c.stop.Load(); s != nil {
		cause = s.err
	}
	c.stats.interrupts.Add(1)
	if cause == nil {
		return ErrInterrupted
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, cause)
}

// explain gives an error of SQLite its meaning here.
func (c *Conn) explain(err error) error {
	e, ok := err.(*SQLError)
	if !ok {
		return err
	}
	switch {
	case c.denied != "":
		err = &SQLError{Code: codeAuth, Name: codeName(codeAuth), Message: c.denied, Offset: -1}
		c.denied = ""
	case e.Code&0xff == codeInterrupt:
		err = c.stopped()
	case e.Is(ErrDiskFull):
		err = &UnitError{Unit: c.unit, Op: "write", Err: e, Hint: "free space on the node's disk"}
	case e.Is(ErrDamaged):
		c.metDamage = true
		err = &UnitError{Unit: c.unit, Op: "access", Err: e, Hint: damagedHint}
	case e.Is(ErrIO):
		err = &UnitError{Unit: c.unit, Op: "access", Err: e, Hint: "check the node's disk"}
	}
	return err
}

const damagedHint = "a copy of it that is in sync takes over by itself; else fail this node over by hand, with force, or check its disk"

// Autocommit reports whether no transaction is open.
func (c *Conn) Autocommit() bool { return c.raw.autocommit() }

// LastInsertID is the rowid of the last INSERT of this loan.
func (c *Conn) LastInsertID() int64 { return c.raw.lastInsert() }

// SetLastInsertID sets what LastInsertID and last_insert_rowid() give until
// the next INSERT: for a session that goes on after an earlier loan. A loan
// starts with 0.
func (c *Conn) SetLastInsertID(id int64) { c.raw.setLastInsert(id) }

// Prepare compiles the first statement of sql and gives the rest of the text,
// "" where nothing but blanks and comments is left. ErrNoStatement: the text
// holds no statement. A *SQLError says what is wrong with it; one that Is
// ErrNotAllowed was refused by the sandbox.
func (c *Conn) Prepare(sql string) (s *Stmt, tail string, err error) {
	if s := c.cache[stmtKey{sql, c.internal}]; s != nil {
		c.uncache(s)
		return s, "", nil
	}
	text := skipEmpty(sql)
	if text == "" {
		return nil, "", ErrNoStatement
	}
	kind := Classify(text)
	if kind == KindWrite && renamesToInternal(text) {
		return nil, "", notAllowed("names that begin with " + internalPrefix + " belong to the node")
	}
	c.sawTx, c.denied = false, ""
	h, n, err := c.raw.prepare(text, true)
	if err != nil {
		return nil, "", c.explain(err)
	}
	if h == nil {
		return nil, "", ErrNoStatement
	}
	tail = skipEmpty(text[n:])
	s = &Stmt{c: c, raw: h, key: stmtKey{sql, c.internal}, kind: kind, readOnly: h.readOnly(), tx: c.sawTx && !h.explain()}
	s.row.s = h
	s.vacuum = hasVerb(text, "VACUUM")
	// What a PRAGMA sets is noted when it is compiled, so it is compiled each time.
	s.keep = tail == "" && len(sql) <= 16<<10 && kind != KindPragma && !s.tx && !s.vacuum
	if s.tx && !c.txSQL && !c.internal {
		h.finalize()
		return nil, "", notAllowed("transactions cannot be begun or ended here: the node does it")
	}
	return s, tail, nil
}

func hasVerb(text, verb string) bool {
	word, _ := nextWord(text)
	return strings.EqualFold(word, verb)
}

// Exec prepares, binds, runs and closes the first statement of sql. row may
// be nil.
func (c *Conn) Exec(sql string, args []Value, row func(*Row) error) (r Result, tail string, err error) {
	s, tail, err := c.Prepare(sql)
	if err != nil {
		return Result{}, "", err
	}
	defer s.Close()
	for i, v := range args {
		if err := s.Bind(i+1, v); err != nil {
			return Result{}, tail, err
		}
	}
	r, err = s.Run(row)
	return r, tail, err
}

// own runs one of the node's own statements, compiled once.
func (c *Conn) own(sql string, args []Value, row func(*Row) error) error {
	return c.internally(func() error {
		s, _, err := c.Prepare(sql)
		if err != nil {
			return err
		}
		s.keep = true
		defer s.Close()
		for i, v := range args {
			if err := s.Bind(i+1, v); err != nil {
				return err
			}
		}
		_, err = s.Run(row)
		return err
	})
}

func (c *Conn) uncache(s *Stmt) {
	delete(c.cache, s.key)
	for i, o := range c.order {
		if o == s {
			c.order = append(c.order[:i], c.order[i+1:]...)
			return
		}
	}
}

// recache keeps a statement for its next use.
func (c *Conn) recache(s *Stmt) {
	if !s.keep || c.cache[s.key] != nil {
		s.raw.finalize()
		return
	}
	if len(c.order) >= cachedStmts {
		old := c.order[0]
		c.uncache(old)
		old.raw.finalize()
	}
	c.cache[s.key] = s
	c.order = append(c.order, s)
}
