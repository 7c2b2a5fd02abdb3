package store

import (
	"context"
	"fmt"
	"sync"
)

// Mode is the kind of an interactive transaction.
type Mode int

// The modes of Unit.Begin.
const (
	// ReadTx is a read transaction on a reader connection.
	ReadTx Mode = iota
	// WriteTx is BEGIN IMMEDIATE on the writer.
	WriteTx
	// Manual is the writer outside any transaction: each statement commits by
	// itself, unless SQL says BEGIN, SAVEPOINT, COMMIT … itself (scripts,
	// VACUUM, PRAGMA foreign_keys, transactions that a client drives by SQL).
	Manual
)

// Tx holds a connection over several calls: an interactive transaction. Its
// methods may be called by several goroutines; Do runs one at a time. Whoever
// begins one ends it, by Commit, Rollback or Kill (for example by a timer).
type Tx struct {
	u    *Unit
	mode Mode
	c    *Conn
	turn chan struct{} // holds one token while Do, Commit or Rollback runs

	mu     sync.Mutex
	killed error
	over   bool
	inTx   bool
	pos    Position
}

// Begin waits its turn until ctx ends. ctx is not kept: each Do has its own.
func (u *Unit) Begin(ctx context.Context, mode Mode) (*Tx, error) {
	t := &Tx{u: u, mode: mode, turn: make(chan struct{}, 1), pos: u.Position()}
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	lend := u.lendWriter
	if mode == ReadTx {
		lend = u.lendReader
	}
	c, err := lend(ctx, t)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.c = c
	t.mu.Unlock()
	switch mode {
	case ReadTx:
		err = t.c.own("BEGIN", nil, nil)
	case WriteTx:
		err = t.c.own("BEGIN IMMEDIATE", nil, nil)
	}
	if err != nil {
		t.release()
		return nil, err
	}
	t.c.ctx = context.Background()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inTx = !t.c.Autocommit(); t.killed != nil {
		t.releaseLocked()
		return nil, t.killed
	}
	return t, nil
}

// take waits for the transaction to be free, and fails if it is over.
func (t *Tx) take(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return t.u.s.waitedInVain("the transaction", ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ended(); err != nil {
		<-t.turn
		return err
	}
	return nil
}

func (t *Tx) ended() error {
	switch {
	case t.killed != nil:
		return t.killed
	case t.over:
		return fmt.Errorf("transaction of unit %s: %w", t.u.name, ErrClosed)
	}
	return nil
}

// Do runs f with the connection, under ctx. It returns after commits that f's
// statements made are durable. In Manual mode the connection is given back
// when no SQL transaction is open at the end of f: the Tx is over then.
func (t *Tx) Do(ctx context.Context, f func(*Conn) error) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	before := t.u.commitsSeen(t)
	t.c.ctx = ctx
	ferr := f(t.c)
	t.c.ctx = context.Background()
	pos := t.u.commitsSeen(t)
	t.mu.Lock()
	t.inTx = !t.c.Autocommit()
	if pos != before {
		t.pos = pos
	}
	if t.killed != nil || (t.mode == Manual && !t.inTx) {
		t.releaseLocked()
	}
	killed := t.killed
	t.mu.Unlock()
	<-t.turn
	if pos != before {
		if err := t.u.commits.wait(pos); err != nil {
			return err
		}
	}
	if ferr == nil && killed != nil {
		return killed
	}
	return ferr
}

// commitsSeen is the unit's newest captured position, for the holder of the writer.
func (u *Unit) commitsSeen(t *Tx) Position {
	if t.mode == ReadTx {
		return Position{}
	}
	return u.commits.pos
}

// InTransaction reports whether a transaction is open: whether Do can be
// called again.
func (t *Tx) InTransaction() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inTx && !t.over && t.killed == nil
}

// Commit ends the transaction; it returns when it is durable, with its
// position. A COMMIT that SQLite refuses (a deferred constraint) leaves it
// open. ErrKilled where it was killed before.
func (t *Tx) Commit(ctx context.Context) (Position, error) {
	if err := t.take(ctx); err != nil {
		return Position{}, err
	}
	err := t.c.own("COMMIT", nil, nil)
	t.mu.Lock()
	if t.inTx = !t.c.Autocommit(); err == nil && t.mode != ReadTx {
		t.pos = t.u.commits.pos
	}
	pos := t.pos
	if err == nil || !t.inTx || t.killed != nil {
		t.releaseLocked()
	}
	t.mu.Unlock()
	<-t.turn
	if err == nil && t.mode != ReadTx {
		err = t.u.commits.wait(pos)
	}
	return pos, err
}

// Rollback undoes what is open and gives the connection back. Where Do runs it
// waits for that. A second call does nothing.
func (t *Tx) Rollback() {
	if t.take(context.Background()) != nil {
		return
	}
	t.release()
	<-t.turn
}

// Kill ends the transaction without waiting: a running Do is interrupted and
// rolls back, otherwise it is rolled back now. Later calls fail with ErrKilled,
// which wraps cause.
func (t *Tx) Kill(cause error) {
	t.mu.Lock()
	if t.over || t.killed != nil {
		t.mu.Unlock()
		return
	}
	t.killed = fmt.Errorf("%w: %w", ErrKilled, cause)
	if t.c != nil {
		t.c.interrupt(t.killed)
	}
	t.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		t.release()
		<-t.turn
	default: // Do, Commit or Rollback runs and sees killed when it ends
	}
}

// Killed gives the error of Kill, or nil.
func (t *Tx) Killed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.killed
}

// Position is that of the last commit made through t, or the unit's at Begin.
func (t *Tx) Position() Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pos
}

func (t *Tx) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked()
}

func (t *Tx) releaseLocked() {
	if t.over {
		return
	}
	t.over, t.inTx = true, false
	if t.mode == ReadTx {
		t.u.giveBackReader(t.c)
	} else {
		t.u.giveBackWriter()
	}
}
