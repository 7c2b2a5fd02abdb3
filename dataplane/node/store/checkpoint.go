package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Checkpoints are PASSIVE only: the other kinds wait for readers while they
// hold up writers. Most of the work is done beside the writer, the rest under
// it. SQLite starts the WAL over at the next write once all of it is in the
// database file; by then the position must be on disk (saveRecord).

// startCheckpoint begins a checkpoint unless one is under way.
func (u *Unit) startCheckpoint() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.checking != nil || u.gone != nil || u.images > 0 {
		return
	}
	u.checking = make(chan struct{})
	u.tasks.Go(func() {
		err := u.checkpoint()
		u.mu.Lock()
		close(u.checking)
		u.checking = nil
		u.mu.Unlock()
		if err != nil && u.goneErr() == nil {
			u.s.log.Warn("checkpoint failed", "unit", u.name, "err", err)
		}
	})
}

func (u *Unit) checkpoint() error {
	if err := u.s.fault(OpCheckpoint, u.name); err != nil {
		return err
	}
	unpin := u.checkpointBeside()
	defer unpin()
	if err := u.takeWriter(context.Background()); err != nil {
		return err
	}
	defer func() { <-u.writer }()
	if u.goneErr() != nil || u.writing() == nil || u.commits.broken != nil {
		return nil
	}
	complete, err := u.checkpointUnder(unpin)
	if err == nil && !complete && u.walBytes.Load() > u.s.cfg.MaxWALBytes {
		u.stopOldReaders()
	}
	return err
}

func (u *Unit) goneErr() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.gone
}

// checkpointBeside copies what it can while writes go on. A reader's snapshot
// is held meanwhile (until unpin): it keeps SQLite from starting the WAL over
// before the position was recorded.
func (u *Unit) checkpointBeside() (unpin func()) {
	held := 0
	for held < 2 && u.tryReaderSlot() {
		held++
	}
	if held < 2 {
		for range held {
			<-u.readers
		}
		return func() {}
	}
	pin, err1 := u.spareReader()
	work, err2 := u.spareReader()
	done := false
	unpin = func() {
		if done {
			return
		}
		done = true
		for _, c := range []*Conn{pin, work} {
			if c != nil {
				c.unlend()
				u.mu.Lock()
				u.idle = append(u.idle, c)
				u.mu.Unlock()
			}
			<-u.readers
		}
	}
	if err1 != nil || err2 != nil {
		return unpin
	}
	err := pin.own("BEGIN", nil, nil)
	if err == nil {
		err = pin.own("SELECT 1 FROM sqlite_schema LIMIT 1", nil, nil)
	}
	if err == nil {
		_, _, err = u.fold(work.raw.checkpoint)
	}
	if err != nil {
		u.s.log.Debug("checkpoint beside the writer", "unit", u.name, "err", err)
	}
	return unpin
}

func (u *Unit) tryReaderSlot() bool {
	select {
	case u.readers <- struct{}{}:
		return true
	default:
		return false
	}
}

// spareReader takes an idle reader, or opens one, for the node's own use.
func (u *Unit) spareReader() (*Conn, error) {
	u.mu.Lock()
	if n := len(u.idle); n > 0 {
		c := u.idle[n-1]
		u.idle = u.idle[:n-1]
		u.mu.Unlock()
		return c, nil
	}
	u.mu.Unlock()
	return openConn(u.path, u.name, false, &u.s.stats)
}

// checkpointUnder checkpoints on the writer's connection, under the writer. It
// reports whether the whole WAL is in the database file now.
func (u *Unit) checkpointUnder(unpin func()) (complete bool, err error) {
	c := &u.commits
	if c.tail.frames == 0 {
		return true, nil
	}
	// A failed sync is mended first: a checkpoint would hide it.
	if err := c.waitDurable(c.pos); err != nil {
		return false, err
	}
	if err := c.saveRecord(false); err != nil {
		return false, err
	}
	unpin()
	c.checkpointed = c.tail.frames
	frames, done, err := u.fold(u.writing().checkpoint)
	if err != nil {
		return false, u.openError(err)
	}
	u.s.stats.checkpoints.Add(1)
	u.measure()
	return frames == done, nil
}

// openWriting opens the connection that writes: the writer, or on a copy the
// injector; under the writer.
func (u *Unit) openWriting() error {
	if u.following.Load() {
		return u.openInjector()
	}
	return u.openWriter()
}

// writing is the connection that openWriting opened, or nil.
func (u *Unit) writing() *raw {
	switch {
	case !u.following.Load() && u.w != nil:
		return u.w.raw
	case u.following.Load() && u.copy.inj != nil:
		return u.copy.inj.r
	}
	return nil
}

// stopOldReaders interrupts readers that keep the WAL from being started over.
func (u *Unit) stopOldReaders() {
	limit := time.Now().Add(-u.s.cfg.MaxReader)
	u.stopUses(errOldReader, func(c *Conn, use *use) bool { return c.capture == nil && use.since.Before(limit) })
}

var errOldReader = errors.New("read for so long that the unit's write-ahead log could not be checkpointed; read in smaller parts")

// measure takes the sizes of the unit's files.
func (u *Unit) measure() {
	if st, err := os.Stat(u.path); err == nil {
		u.dbBytes.Store(st.Size())
	}
	switch st, err := os.Stat(u.path + "-wal"); {
	case err == nil:
		u.walBytes.Store(st.Size())
	case errors.Is(err, fs.ErrNotExist):
		u.walBytes.Store(0)
	}
}

// shutdown closes the unit for good. Running calls are interrupted, open
// transactions killed, subscriptions ended with cause; what was committed is
// made durable. With clean the WAL is emptied and removed, so that the next
// opening finds none.
func (u *Unit) shutdown(cause error, clean bool) {
	u.mu.Lock()
	u.gone = &UnitError{Unit: u.name, Op: "use", Err: cause}
	gone := u.gone
	close(u.closed)
	u.mu.Unlock()
	u.stopUses(gone, func(*Conn, *use) bool { return true })
	u.GiveUp(gone)
	u.feedEndAfterSync(gone)
	u.tasks.Wait()
	for range cap(u.readers) {
		u.readers <- struct{}{}
	}
	for _, c := range u.idle[:max(len(u.idle)-1, 0)] {
		c.close(false)
	}
	cleanUp := clean && u.settle()
	if n := len(u.idle); n > 0 {
		u.idle[n-1].close(cleanUp && u.w == nil && u.copy.inj == nil)
	}
	if u.copy.inj != nil {
		u.copy.inj.close(cleanUp && u.w == nil)
	}
	if u.w != nil {
		u.w.close(cleanUp)
	}
	u.noteRest(cleanUp)
	u.closeFiles()
	u.measure()
}

// noteRest keeps where a unit that closes is, if it is sure.
func (u *Unit) noteRest(clean bool) {
	c := &u.commits
	if c.broken != nil || c.record || c.failed || u.s.cfg.Sync != SyncFull {
		return
	}
	rest := c.base(clean || c.tail.frames == 0)
	u.rest = &rest
}

// feedEndAfterSync waits for the writer for good, and for what it committed.
func (u *Unit) feedEndAfterSync(gone error) {
	u.writer <- struct{}{}
	if err := u.commits.waitDurable(u.commits.pos); err != nil {
		u.s.log.Error("commits could not be made durable", "unit", u.name, "err", err)
	}
	u.feed.end(gone)
}

// settle puts all of the WAL into the database file and records the position,
// so that the WAL can be removed. It reports whether that was done.
func (u *Unit) settle() bool {
	c := &u.commits
	if c.tail.frames == 0 && !c.record {
		return c.broken == nil
	}
	err := c.broken
	if err == nil {
		err = u.s.fault(OpCheckpoint, u.name)
	}
	if err == nil {
		err = u.openWriting()
	}
	complete := false
	if err == nil {
		complete, err = u.checkpointUnder(func() {})
	}
	if err == nil && complete {
		err = c.saveRecord(true)
	}
	if err != nil {
		u.s.log.Warn("unit closed with its WAL kept", "unit", u.name, "err", err)
	}
	return err == nil && complete
}
