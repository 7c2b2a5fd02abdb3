package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Unit is an open unit: one writer connection, taken in turn, and a few reader
// connections, all opened when they are first needed. It stays open while it
// is acquired.
type Unit struct {
	s    *Store
	name string
	rec  Record // as it was at opening
	path string // of the database file

	writer   chan struct{} // holds one token while the writer is taken; waiters are served in order
	readers  chan struct{} // one token per reader in use
	w        *Conn         // belongs to whoever holds writer; nil until the first write
	commits  commits
	calls    calls
	feed     *feed
	dbBytes  atomic.Int64
	walBytes atomic.Int64
	closed   chan struct{}
	dbFile   *os.File // for images; under writer. Closed last: see closeFiles

	following atomic.Bool // it is a copy; changed under the writer
	copy      copyState   // belongs to whoever holds writer
	tasks     sync.WaitGroup
	folding   sync.RWMutex // a checkpoint writes; see fold

	mu       sync.Mutex
	lineage  Lineage
	idle     []*Conn
	active   map[*Conn]*use
	gate     gate
	gone     error
	rest     *posRecord    // where it was when it closed, once that is sure
	checking chan struct{} // closed when the checkpoint under way has ended; nil: none
	images   int           // images being read: no checkpoints meanwhile
	moving   map[*Image]bool
	unused   chan struct{} // closed when active is empty; nil: nobody waits
	trimmed  bool          // memory was given back since the last use
	// examining: SQLite looks at the whole file, as a statement met damage.
	examining bool
}

// use is a connection that is lent out.
type use struct {
	since time.Time
	tx    *Tx // nil for Read and Write
}

// openUnit reads the unit's position, looks at its file, and opens a reader.
func openUnit(s *Store, rec *stored) (*Unit, error) {
	u := &Unit{s: s, name: rec.Name, rec: rec.Record, lineage: rec.lineage(), path: s.unitPath(rec.Name),
		writer: make(chan struct{}, 1), readers: make(chan struct{}, s.cfg.Readers), active: map[*Conn]*use{}, closed: make(chan struct{})}
	u.commits.u = u
	u.commits.done.L = &u.commits.mu
	u.following.Store(rec.State.IsCopy())
	if err := u.checkHeader(); err != nil {
		return nil, err
	}
	if err := u.recover(rec); err != nil {
		return nil, err
	}
	c, err := openConn(u.path, u.name, false, &s.stats)
	if err == nil {
		// The first read makes SQLite look at the file, and recover the WAL.
		_, err = c.raw.queryText("SELECT 1 FROM sqlite_schema LIMIT 1")
		if err != nil {
			c.close(false)
		}
	}
	if err != nil {
		u.closeFiles()
		return nil, u.openError(err)
	}
	u.idle = append(u.idle, c)
	if !u.following.Load() {
		u.commits.setSink()
	}
	return u, nil
}

func (u *Unit) openError(err error) error {
	var e *SQLError
	switch {
	case errors.Is(err, ErrDamaged) && !errors.As(err, &e):
		return &UnitError{Unit: u.name, Op: "open", Err: err, Hint: damagedHint}
	case errors.As(err, &e) && e.Is(ErrDamaged):
		return u.damaged(e.Message)
	case errors.As(err, &e) && e.Code&0xff == codeCantOpen:
		if gone := checkFile(u.path); gone != nil {
			return u.openError(gone)
		}
	}
	return &UnitError{Unit: u.name, Op: "open", Err: diskError(err), Hint: "check the node's disk and its limit on open files"}
}

// openAgainError is openError for one more connection of a unit that is open.
func (u *Unit) openAgainError(err error) error {
	err = u.openError(err)
	if errors.Is(err, ErrDamaged) {
		u.suspect()
	}
	return err
}

func (u *Unit) damaged(why string) error {
	return &UnitError{Unit: u.name, Op: "open", Err: fmt.Errorf("%w: %s", ErrDamaged, why), Hint: damagedHint}
}

// checkHeader refuses what SQLite would take for a new, empty database.
func (u *Unit) checkHeader() error {
	if err := checkFile(u.path); err != nil {
		return u.openError(err)
	}
	if st, err := os.Stat(u.path); err == nil {
		u.dbBytes.Store(st.Size())
	}
	return nil
}

// recover finds the unit's position from its files.
func (u *Unit) recover(rec *stored) error {
	if err := u.restore(rec, false); err != nil {
		u.closeFiles()
		return err
	}
	c := &u.commits
	at := c.pos
	if s := u.s.cfg.Sink; s == nil || u.following.Load() {
		c.acks.seq.Store(at.Seq)
		u.feed = newFeed(u.s.cfg.Ring, at, at)
	} else {
		u.feed = newFeed(u.s.cfg.Ring, Position{}, at)
	}
	return nil
}

// restore reads the unit's position, and takes up its WAL; under the writer
// where the unit is in use. again: a sync may have failed.
func (u *Unit) restore(rec *stored, again bool) error {
	c := &u.commits
	st, err := os.Stat(u.path + "-wal")
	var wal io.ReaderAt
	if err == nil && st.Size() > 0 {
		if err := c.openWAL(); err != nil {
			return u.openError(err)
		}
		wal = c.wal
		u.walBytes.Store(st.Size())
	}
	r, err := u.s.recoverUnit(rec, wal)
	if err != nil {
		return err
	}
	c.pos, c.chain, c.tail, c.record = r.pos, r.chain, r.tail, r.rewrite
	c.generation++
	c.mu.Lock()
	c.captured = c.here()
	c.durable = c.captured
	c.mu.Unlock()
	u.copy.restored(rec, &r)
	if r.tail.frames > 0 && u.s.cfg.Sync == SyncFull {
		// A process that was killed may not have synced what it had committed.
		if err := c.syncTo(mark{generation: c.generation}, c.captured, again, true); err != nil {
			return u.openError(err)
		}
	}
	return nil
}

func (u *Unit) posPath() string { return posPath(u.path) }

// posPath is where the position of the unit at path is kept.
func posPath(path string) string { return strings.TrimSuffix(path, ".db") + ".pos" }

// Name of the unit.
func (u *Unit) Name() string { return u.name }

// Record gives the unit's record as it is now; as it was at opening where it
// cannot be read any more.
func (u *Unit) Record() Record {
	if r, err := u.s.Get(u.name); err == nil {
		return r
	}
	return u.rec
}

// Position is that of the last acknowledged commit.
func (u *Unit) Position() Position { return u.feed.position() }

// WaitPosition returns when the unit has p; with ctx's cause or ErrGone otherwise.
func (u *Unit) WaitPosition(ctx context.Context, p Position) error { return u.feed.wait(ctx, p) }

// Bytes on disk: database and WAL.
func (u *Unit) Bytes() int64 { return u.dbBytes.Load() + u.walBytes.Load() }

// lendReader waits for a reader connection.
func (u *Unit) lendReader(ctx context.Context, tx *Tx) (*Conn, error) {
	select {
	case u.readers <- struct{}{}:
	default:
		select {
		case u.readers <- struct{}{}:
		case <-u.closed:
			return nil, u.goneErr()
		case <-ctx.Done():
			return nil, u.s.waitedInVain("a reader", ctx)
		}
	}
	u.mu.Lock()
	if u.gone != nil {
		defer u.mu.Unlock()
		<-u.readers
		return nil, u.gone
	}
	var c *Conn
	if n := len(u.idle); n > 0 {
		c, u.idle = u.idle[n-1], u.idle[:n-1]
		u.active[c] = &use{time.Now(), tx}
	}
	u.trimmed = false
	u.mu.Unlock()
	if c == nil {
		var err error
		if c, err = openConn(u.path, u.name, false, &u.s.stats); err != nil {
			<-u.readers
			return nil, u.openAgainError(err)
		}
		u.activate(c, tx)
	}
	c.lend(ctx, false)
	return c, nil
}

// activate notes that c is in use; one that starts as the unit goes is stopped at once.
func (u *Unit) activate(c *Conn, tx *Tx) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.active[c] = &use{time.Now(), tx}
	u.trimmed = false
	if u.gone != nil {
		c.interrupt(u.gone)
	}
}

// deactivate ends a loan: after it nobody interrupts c any more.
func (u *Unit) deactivate(c *Conn) {
	u.mu.Lock()
	delete(u.active, c)
	if len(u.active) == 0 && u.unused != nil {
		close(u.unused)
		u.unused = nil
	}
	u.mu.Unlock()
	if c.metDamage {
		c.metDamage = false
		u.suspect()
	}
	c.unlend()
}

func (u *Unit) giveBackReader(c *Conn) {
	u.deactivate(c)
	u.mu.Lock()
	u.idle = append(u.idle, c)
	u.mu.Unlock()
	<-u.readers
}

// takeWriter waits its turn for the writer, without looking at the gate.
func (u *Unit) takeWriter(ctx context.Context) error {
	select {
	case u.writer <- struct{}{}:
		return nil
	default:
	}
	select {
	case u.writer <- struct{}{}:
		return nil
	case <-u.closed:
		return u.goneErr()
	case <-ctx.Done():
		return u.s.waitedInVain("the writer", ctx)
	}
}

// lendWriter waits its turn for the writer connection, ready to write.
func (u *Unit) lendWriter(ctx context.Context, tx *Tx) (*Conn, error) {
	if err := u.mayWrite(); err != nil {
		return nil, err
	}
	if err := u.takeWriter(ctx); err != nil {
		return nil, err
	}
	err := u.mayWrite() // it may have been closed while this one waited
	if err == nil && u.following.Load() {
		err = &UnitError{Unit: u.name, Op: "write", Err: ErrFollowing, Hint: "write to its primary"}
	}
	if err == nil {
		err = u.openWriter()
	}
	if err == nil {
		err = u.commits.ready()
	}
	if err != nil {
		<-u.writer
		return nil, err
	}
	u.activate(u.w, tx)
	u.w.lend(ctx, tx != nil && tx.mode == Manual)
	return u.w, nil
}

// openWriter opens the writer connection if need be; under writer.
func (u *Unit) openWriter() error {
	if u.w != nil {
		return nil
	}
	c, err := openConn(u.path, u.name, true, &u.s.stats)
	if err != nil {
		return u.openAgainError(err)
	}
	c.capture, c.committed = u.commits.capture, u.commits.commitEnds
	c.raw.installCommitStart(func() { c.committing = true; u.commits.commitBegins() })
	u.w = c
	return nil
}

// giveBackWriter lets the next one in.
func (u *Unit) giveBackWriter() {
	u.deactivate(u.w)
	u.endTurn()
}

// endTurn gives the writer back, and has the WAL checkpointed where it is long.
func (u *Unit) endTurn() {
	long := int64(u.commits.tail.frames-u.commits.checkpointed)*u.commits.tail.frameSize() > u.s.cfg.CheckpointBytes
	<-u.writer
	if long {
		u.startCheckpoint()
	}
}

// Read runs f on a reader connection, in a read transaction: all its
// statements see one state of the unit. Statements that write fail with
// ErrReadOnly. The whole of it is interrupted when ctx ends.
func (u *Unit) Read(ctx context.Context, f func(*Conn) error) error {
	c, err := u.lendReader(ctx, nil)
	if err != nil {
		return err
	}
	defer u.giveBackReader(c)
	if err := c.own("BEGIN", nil, nil); err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	return c.own("COMMIT", nil, nil)
}

// Write runs f on the writer in BEGIN IMMEDIATE … COMMIT, rolled back where f
// fails. It returns when the commit is durable (by Config.Sync) and
// acknowledged, with its position; where nothing was changed, with the current position. f must not
// run BEGIN, COMMIT or ROLLBACK (savepoints are fine). It waits its turn until
// ctx ends; a commit that was made is not taken back by ctx.
//
// ErrFrozen, ErrFollowing, ErrInterrupted, ErrDiskFull, ErrIO: no effect, unless
// ErrOutcomeUnknown matches too. ErrUnreplicated: the commit is there, and was
// not acknowledged; its position is given.
func (u *Unit) Write(ctx context.Context, f func(*Conn) error) (Position, error) {
	pos, err := u.commit(ctx, f)
	if err != nil {
		return Position{}, err
	}
	return pos, u.commits.wait(pos)
}

// commit runs a write up to its commit, not yet durable.
func (u *Unit) commit(ctx context.Context, f func(*Conn) error) (Position, error) {
	c, err := u.lendWriter(ctx, nil)
	if err != nil {
		return Position{}, err
	}
	defer u.giveBackWriter()
	if c.mustStop() {
		return Position{}, c.stopped()
	}
	if err := c.own("BEGIN IMMEDIATE", nil, nil); err != nil {
		return Position{}, err
	}
	if err := f(c); err != nil {
		return Position{}, err
	}
	if c.mustStop() {
		return Position{}, c.stopped()
	}
	if err := c.own("COMMIT", nil, nil); err != nil {
		return Position{}, err
	}
	return u.commits.pos, nil
}

// closeFiles closes the node's own descriptors. The one on the database file
// must be closed after SQLite's: closing it drops SQLite's locks on the file,
// which keep other programs out.
func (u *Unit) closeFiles() {
	if u.commits.wal != nil {
		u.commits.wal.Close()
	}
	u.copy.close()
	if u.dbFile != nil {
		u.dbFile.Close()
	}
}
