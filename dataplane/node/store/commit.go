package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"domicile/internal/durable"

	"golang.org/x/sys/unix"
)

// The commit path: capture, under the writer, and group commit.

// Sink receives a unit's commits, in order, and acknowledges them by
// Unit.Acknowledge. Its methods must not call back into the unit otherwise.
type Sink interface {
	// Captured is called under the writer, before the commit is durable. read
	// gives the content of c.Pages[i] and may be called until Captured returns.
	// c is reused afterwards.
	Captured(c *Commit, read func(i int, page []byte) error)
	// Durable is called when everything up to p is on disk; first, with the
	// position that the unit then has, when it is opened or promoted: what it
	// has may not be acknowledged yet. Within it, or later, the sink calls
	// Unit.Acknowledge.
	Durable(p Position)
}

// mark is a point in a unit's WAL.
type mark struct {
	pos        Position
	chain      uint64
	generation uint64 // counts the WAL's restarts while the unit is open
	frames     int
}

// commits is the part of a unit that follows its WAL. What is not under mu
// belongs to whoever holds the writer.
type commits struct {
	u    *Unit
	wal  *os.File // own descriptor, for capture and sync
	tail walTail
	acks acks

	pos        Position
	chain      uint64
	generation uint64
	// frames in the WAL at the last checkpoint of this generation
	checkpointed int
	broken       error // a capture failed: the WAL must be read anew
	record       bool  // the .pos file must be written before the next write

	mu       sync.Mutex
	done     sync.Cond // a sync has ended, something was acknowledged or given up, a commit was captured
	sink     Sink      // changed under mu and the writer
	captured mark
	durable  mark
	syncing  bool
	failed   bool // the last sync failed: its frames must be written again
	dirSync  bool // the WAL's name is not durable yet
}

// openWAL opens the descriptor that capture and sync use. Opening and closing
// a WAL, unlike a database file, takes no lock away from SQLite.
func (c *commits) openWAL() error {
	if c.wal != nil {
		return nil
	}
	f, err := os.OpenFile(c.u.path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	c.wal, c.dirSync = f, true
	return nil
}

// capture reads the commit that SQLite has just put at the end of the WAL,
// which holds the given number of frames now.
func (c *commits) capture(frames int) (err error) {
	defer func() {
		if err != nil {
			c.broken = err
			err = &UnitError{Unit: c.u.name, Op: "read back a commit", Err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, err),
				Hint: "read the data before writing again"}
		}
	}()
	if err := c.openWAL(); err != nil {
		return err
	}
	buf := c.u.s.chunks.Get().(*[]byte)
	defer c.u.s.chunks.Put(buf)
	if err := c.readTo(frames, *buf, c.took); err != nil {
		return err
	}
	c.settled()
	if c.u.s.cfg.Sync == SyncNormal {
		c.publish(c.pos, c.sink)
	}
	return nil
}

// settled notes that everything up to the tail was captured.
func (c *commits) settled() {
	c.u.walBytes.Store(max(c.u.walBytes.Load(), c.tail.offset(c.tail.frames+1)))
	c.mu.Lock()
	c.captured = c.here()
	c.mu.Unlock()
}

// here is the point that the tail is at; under the writer.
func (c *commits) here() mark { return mark{c.pos, c.chain, c.generation, c.tail.frames} }

// readTo reads the frames after the tail, or all where SQLite has started the
// WAL over.
func (c *commits) readTo(frames int, buf []byte, took func(*Commit) error) error {
	if c.tail.known && frames > c.tail.frames {
		at := c.tail.frames
		err := c.tail.read(c.wal, frames, buf, took)
		if err == nil || c.tail.frames != at || !errors.Is(err, errWALBroken) {
			return err
		}
		// Not one frame verifies: of another generation, if the header is.
		if h, ok, _ := readWALHeader(c.wal); ok && h == c.tail.header {
			return err
		}
	}
	if ok, err := c.tail.restart(c.wal); err != nil || !ok {
		return fmt.Errorf("%w: no valid header (%v)", errWALBroken, err)
	}
	c.generation, c.checkpointed = c.generation+1, 0
	return c.tail.read(c.wal, frames, buf, took)
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// took is called for each commit that was read back.
func (c *commits) took(k *Commit) error {
	k.Prev = Mark{c.pos, c.chain}
	c.pos.Seq++
	k.Position = c.pos
	c.chain = chainAfter(c.chain, k)
	k.Chain = c.chain
	c.u.dbBytes.Store(int64(k.DBPages) * int64(k.PageSize))
	c.u.s.stats.commits.Add(1)
	c.u.feed.add(Change{Position: c.pos, Bytes: k.Bytes()}, c.u.s.cfg.Ring)
	if c.sink != nil {
		c.sink.Captured(k, func(i int, page []byte) error {
			_, err := c.wal.ReadAt(page[:k.PageSize], c.tail.offset(int(k.Pages[i].Frame))+frameHeaderSize)
			return err
		})
	}
	return nil
}

// wait returns when everything up to p is durable and acknowledged, or could
// not be made so.
func (c *commits) wait(p Position) error {
	if err := c.waitDurable(p); err != nil {
		return err
	}
	return c.waitAcknowledged(p)
}

// waitDurable: whoever finds no sync under way syncs for all that are waiting.
func (c *commits) waitDurable(p Position) error {
	if c.u.s.cfg.Sync == SyncNormal {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for waited := false; p.Compare(c.durable.pos) > 0; waited = true {
		if waited && c.failed && !c.syncing {
			return c.notDurable(errLastSync)
		}
		if c.syncing {
			c.done.Wait()
			continue
		}
		if err := c.syncOnce(); err != nil {
			return c.notDurable(err)
		}
	}
	return nil
}

var errLastSync = fmt.Errorf("%w: syncing the WAL failed", ErrIO)

func (c *commits) notDurable(err error) error {
	return &UnitError{Unit: c.u.name, Op: "make a commit durable",
		Err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, diskError(err)), Hint: "check the node's disk, then read the data before writing again"}
}

// syncOnce makes what is captured durable; called and returns with mu held.
func (c *commits) syncOnce() error {
	target, from, again, dirSync, sink := c.captured, c.durable, c.failed, c.dirSync, c.sink
	c.syncing = true
	c.mu.Unlock()
	err := c.syncTo(from, target, again, dirSync)
	if err == nil {
		c.publish(target.pos, sink)
	}
	c.mu.Lock()
	c.syncing, c.failed = false, err != nil
	if err == nil {
		c.durable, c.dirSync = target, false
	}
	c.done.Broadcast()
	return err
}

func (c *commits) syncTo(from, target mark, again, dirSync bool) error {
	if err := c.u.s.fault(OpSync, c.u.name); err != nil {
		return err
	}
	if again {
		if err := c.writeAgain(from, target); err != nil {
			return err
		}
	}
	if dirSync {
		if err := durable.SyncDir(filepath.Dir(c.u.path)); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := unix.Fdatasync(int(c.wal.Fd())); err != nil {
		return &os.PathError{Op: "fdatasync", Path: c.wal.Name(), Err: err}
	}
	c.u.s.stats.syncs.Add(1)
	if observe := c.u.s.cfg.ObserveSync; observe != nil {
		observe(time.Since(start))
	}
	return nil
}

// writeAgain puts the frames of a failed sync into the WAL once more, as they
// are: after an error the kernel takes them for written, so that a second sync
// alone would succeed without having done anything.
func (c *commits) writeAgain(from, target mark) error {
	h, ok, err := readWALHeader(c.wal)
	if err != nil || !ok {
		return fmt.Errorf("%w: no valid header (%v)", errWALBroken, err)
	}
	start, size := int64(0), int64(frameHeaderSize+h.pageSize)
	if from.generation == target.generation {
		start = walHeaderSize + int64(from.frames)*size
	}
	end := walHeaderSize + int64(target.frames)*size
	_, err = io.Copy(io.NewOffsetWriter(c.wal, start), io.NewSectionReader(c.wal, start, end-start))
	return err
}

func (c *commits) publish(p Position, sink Sink) {
	if sink != nil {
		sink.Durable(p)
		return
	}
	c.u.Acknowledge(p)
}

// base is the record of where the WAL is now; under the writer.
func (c *commits) base(clean bool) posRecord {
	return posRecord{Position: c.pos, Chain: c.chain, Clean: clean,
		Salt1: c.tail.header.salt1, Salt2: c.tail.header.salt2, Frames: uint32(c.tail.frames)}
}

// saveRecord writes the .pos file for where the WAL is now; under the writer.
func (c *commits) saveRecord(clean bool) error {
	err := c.u.s.fault(OpPosition, c.u.name)
	if err == nil {
		rec := c.base(clean)
		err = durable.ReplaceText(c.u.posPath(), rec.encode())
	}
	if err != nil {
		c.record = true
		return &UnitError{Unit: c.u.name, Op: "record the position", Err: diskError(err), Hint: "check the node's disk"}
	}
	c.record = false
	return nil
}

// ready mends what an earlier failure left; under the writer, before a write.
func (c *commits) ready() error {
	if c.broken != nil {
		mend := c.reread
		if c.u.following.Load() {
			mend = c.u.reload
		}
		if err := mend(); err != nil {
			return &UnitError{Unit: c.u.name, Op: "read the WAL", Err: diskError(err), Hint: "check the node's disk"}
		}
	}
	if c.record {
		return c.saveRecord(c.tail.frames == 0)
	}
	return nil
}

// reread takes up the WAL after a capture that failed, from the last commit
// that was captured, or from the start of the file's present generation.
func (c *commits) reread() error {
	if err := c.openWAL(); err != nil {
		return err
	}
	h, ok, err := readWALHeader(c.wal)
	if err != nil || !ok {
		return fmt.Errorf("%w: no valid header (%v)", errWALBroken, err)
	}
	if !c.tail.known || h.salt1 != c.tail.header.salt1 || h.salt2 != c.tail.header.salt2 {
		if _, err := c.tail.restart(c.wal); err != nil {
			return err
		}
		c.generation, c.checkpointed = c.generation+1, 0
	}
	if err := c.tail.read(c.wal, -1, make([]byte, walChunk), c.took); err != nil {
		return err
	}
	c.broken = nil
	c.settled()
	return c.waitDurable(c.pos)
}
