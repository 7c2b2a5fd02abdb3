package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Entry is one commit of a unit, as it is sent to copies.
type Entry struct {
	Position Position
	Prev     Mark   // what it follows
	Chain    uint64 // that of Position
	PageSize int
	DBPages  uint32      // pages of the database after it
	Pages    []EntryPage // what it changed, numbers rising
	// Read gives the content of Pages[i] into page, for entries too large to
	// be held in memory; it is asked where Data is nil, each page perhaps more
	// than once.
	Read func(i int, page []byte) error
}

// EntryPage is a page's new content.
type EntryPage struct {
	Number uint32
	Data   []byte // PageSize bytes, or nil: Entry.Read gives them
}

// content gives page i into page.
func (e *Entry) content(i int, page []byte) error {
	if d := e.Pages[i].Data; d != nil {
		copy(page, d)
		return nil
	}
	return e.Read(i, page)
}

// Apply puts entries, in order, into a copy, as one transaction that is durable
// when Apply returns: readers see all of them or none. It gives the copy's new
// mark. Each entry must follow the one before, the first one what the copy has,
// and all of it is verified before anything is changed. One Apply at a time
// runs per unit. An entry of a new branch is recorded in the lineage.
//
// Without effect: ErrGap (the first entry is not the next one), ErrForked (it
// is, but of another history), ErrBadEntry (malformed, or altered on the way),
// ErrNeedsImage (the copy has nothing that entries could be put on),
// ErrWrongState (it is no copy), ErrUnknownUnit, ErrDiskFull, ErrIO. Entries
// that the copy has already are passed over where they are of its history. With
// ErrOutcomeUnknown the transaction may have been made, or may not be durable.
func (s *Store) Apply(ctx context.Context, unit string, entries []Entry) (Mark, error) {
	u, release, err := s.Acquire(ctx, unit)
	if err != nil {
		return Mark{}, err
	}
	defer release()
	if err := u.takeWriter(ctx); err != nil {
		return Mark{}, err
	}
	defer u.endTurn()
	if err := u.goneErr(); err != nil {
		return Mark{}, err
	}
	if err := u.mayApply(); err != nil {
		return Mark{}, err
	}
	due, err := u.verify(entries)
	if err != nil {
		return Mark{}, &UnitError{Unit: u.name, Op: "apply", Err: err}
	}
	if len(due) > 0 {
		err = u.apply(due)
	}
	return Mark{u.commits.pos, u.commits.chain}, err
}

// mayApply makes the copy ready to apply.
func (u *Unit) mayApply() error {
	if !u.following.Load() {
		return &UnitError{Unit: u.name, Op: "apply", Err: fmt.Errorf("%w: it is no copy", ErrWrongState)}
	}
	if err := u.commits.ready(); err != nil {
		return err
	}
	if err := u.openInjector(); err != nil {
		return err
	}
	if err := u.openApplied(); err != nil {
		return &UnitError{Unit: u.name, Op: "apply", Err: diskError(err), Hint: "check the node's disk"}
	}
	return nil
}

// verify gives the entries that are to be applied.
func (u *Unit) verify(entries []Entry) ([]Entry, error) {
	c := &u.commits
	at := Mark{c.pos, c.chain}
	u.mu.Lock()
	lineage := u.lineage
	u.mu.Unlock()
	first := 0
	for ; first < len(entries) && entries[first].Position.Seq <= at.Position.Seq; first++ {
		e := &entries[first]
		if !lineage.Has(e.Position) || (e.Position.Seq == at.Position.Seq && e.Chain != at.Chain) {
			return nil, fmt.Errorf("%w: entry %s, the copy is at %s", ErrForked, e.Position, at.Position)
		}
	}
	due := entries[first:]
	j := u.copy.inj
	buf := make([]byte, j.pageSize)
	for i := range due {
		e := &due[i]
		if err := u.follows(e, at); err != nil {
			return nil, err
		}
		if err := e.intact(j.pageSize, &j.autoVacuum, buf); err != nil {
			return nil, err
		}
		at = Mark{e.Position, e.Chain}
	}
	return due, nil
}

// follows reports whether e is the next entry after at.
func (u *Unit) follows(e *Entry, at Mark) error {
	prev := e.Prev.Position
	switch {
	case prev.Seq+1 != e.Position.Seq, prev.Epoch > e.Position.Epoch, prev.Epoch == 0:
		return fmt.Errorf("%w: %s after %s", ErrBadEntry, e.Position, prev)
	case u.copy.empty && at.Position.IsZero() && (prev.Seq != 0 || e.Prev.Chain != 0):
		return fmt.Errorf("%w: it holds nothing, entry %s is not the first one", ErrNeedsImage, e.Position)
	case prev.Seq != at.Position.Seq:
		return fmt.Errorf("%w: entry %s, the copy is at %s", ErrGap, e.Position, at.Position)
	case e.Prev.Chain != at.Chain, prev.Epoch < at.Position.Epoch:
		return fmt.Errorf("%w: entry %s follows %s (%x), the copy is at %s (%x)", ErrForked, e.Position, prev, e.Prev.Chain, at.Position, at.Chain)
	}
	return nil
}

// intact checks an entry's form and computes its chain anew. Whether the database has
// auto_vacuum is not compared where it is not known.
func (e *Entry) intact(pageSize int, autoVacuum *bool, buf []byte) error {
	bad := func(why string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrBadEntry, e.Position, fmt.Sprintf(why, args...))
	}
	if e.PageSize != pageSize {
		return bad("pages of %d bytes, the copy's have %d", e.PageSize, pageSize)
	}
	if len(e.Pages) == 0 || e.DBPages == 0 {
		return bad("no pages")
	}
	k := Commit{Position: e.Position, PageSize: e.PageSize, DBPages: e.DBPages, Pages: make([]Page, len(e.Pages))}
	last, lock := uint32(0), lockPage(e.PageSize)
	for i, p := range e.Pages {
		if p.Number <= last || p.Number > e.DBPages || p.Number == lock {
			return bad("page %d after %d of %d", p.Number, last, e.DBPages)
		}
		last = p.Number
		data := p.Data
		switch {
		case data == nil && e.Read == nil, data != nil && len(data) != e.PageSize:
			return bad("page %d has %d bytes", p.Number, len(data))
		case data == nil:
			if err := e.Read(i, buf); err != nil {
				return err
			}
			data = buf
		}
		if p.Number == 1 {
			if h, err := parseDBHeader(data); err != nil || h.pageSize != e.PageSize || !h.wal || autoVacuum != nil && (binary.BigEndian.Uint32(data[52:]) != 0) != *autoVacuum {
				return bad("its first page is not this database's")
			}
		}
		k.Pages[i] = Page{Number: p.Number, CRC: crc32.Checksum(data, castagnoli)}
	}
	if got := chainAfter(e.Prev.Chain, &k); got != e.Chain {
		return bad("its chain is %x, by its content %x", e.Chain, got)
	}
	return nil
}

// apply applies verified entries; under the writer.
func (u *Unit) apply(due []Entry) error {
	c, j := &u.commits, u.copy.inj
	patches, size, err := merge(due, j.pages)
	if err != nil {
		return &UnitError{Unit: u.name, Op: "apply", Err: err}
	}
	if err := u.recordBranches(due); err != nil {
		return err
	}
	last := &due[len(due)-1]
	after := Mark{last.Position, last.Chain}
	a := appliedRecord{Before: Mark{c.pos, c.chain}, After: after,
		Salt1: c.tail.header.salt1, Salt2: c.tail.header.salt2, Frames: uint32(c.tail.frames)}
	if err = u.s.fault(OpApply, u.name); err == nil {
		err = u.copy.applied.write(&a)
	}
	if err != nil {
		return &UnitError{Unit: u.name, Op: "apply", Err: diskError(err), Hint: "check the node's disk"}
	}
	frames, made, err := j.put(patches, size, func() error { return u.s.fault(OpCommit, u.name) })
	if err == nil {
		err = c.captureApplied(frames, after, size)
	}
	if err != nil {
		return u.notApplied(made, err)
	}
	u.copy.applied.next++
	u.s.stats.applied.Add(uint64(len(due)))
	for i := range due {
		e := &due[i]
		u.feed.add(Change{Position: e.Position, Bytes: int64(len(e.Pages)) * int64(e.PageSize)}, u.s.cfg.Ring)
	}
	return u.waitApplied(a.Before, after.Position)
}

// notApplied tells what a failed transaction means. Where it may have been
// made, the files say so, and are read anew before the next one.
func (u *Unit) notApplied(made bool, err error) error {
	u.copy.inj.close(false)
	u.copy.inj = nil
	if made {
		u.commits.broken = err
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return &UnitError{Unit: u.name, Op: "apply", Err: diskError(err), Hint: "check the node's disk"}
}

// captureApplied follows the WAL over the transaction that has just been made.
func (c *commits) captureApplied(frames int, after Mark, size uint32) error {
	if err := c.openWAL(); err != nil {
		return err
	}
	buf := c.u.s.chunks.Get().(*[]byte)
	defer c.u.s.chunks.Put(buf)
	n := 0
	err := c.readTo(frames, *buf, func(k *Commit) error {
		if n++; n > 1 || k.DBPages != size {
			return fmt.Errorf("%w: commit %d of one, %d pages of %d", errWALBroken, n, k.DBPages, size)
		}
		return nil
	})
	if err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%w: %d commits for one transaction", errWALBroken, n))
	}
	c.pos, c.chain = after.Position, after.Chain
	c.u.dbBytes.Store(int64(size) * int64(c.tail.header.pageSize))
	c.settled()
	return nil
}

// waitApplied makes transaction and side record durable, side by side. Where
// that fails the copy says that it is where it was before, until its files are
// read anew.
func (u *Unit) waitApplied(before Mark, p Position) error {
	c := &u.commits
	if u.s.cfg.Sync == SyncNormal {
		u.Acknowledge(p)
		return nil
	}
	side := make(chan error, 1)
	go func() { side <- u.syncApplied() }()
	werr := c.waitDurable(p)
	if err := errors.Join(werr, <-side); err != nil {
		c.broken = err
		c.pos, c.chain = before.Position, before.Chain
		c.mu.Lock()
		c.captured = c.here()
		c.durable = c.captured
		c.mu.Unlock()
		return c.notDurable(err)
	}
	return nil
}

// reload reads a copy's position anew after a failure, and makes what it finds
// durable.
func (u *Unit) reload() error {
	rec, err := u.s.load(u.name)
	if err != nil || rec == nil {
		return errors.Join(err, u.goneErr())
	}
	if a := u.copy.applied; a != nil {
		if err := a.again(); err != nil {
			return err
		}
	}
	if err := u.restore(rec, true); err != nil {
		return err
	}
	u.commits.broken = nil
	u.Acknowledge(u.commits.pos)
	return nil
}

// recordBranches puts branches that the entries begin into the unit's record,
// before anything of them is there.
func (u *Unit) recordBranches(due []Entry) error {
	u.mu.Lock()
	old := u.lineage
	u.mu.Unlock()
	l := old.upTo(u.commits.pos.Seq)
	if len(l) == 0 {
		l = Lineage{{due[0].Prev.Position.Epoch, 0}}
	}
	for i := range due {
		if e := &due[i]; l[len(l)-1].Epoch != e.Position.Epoch {
			l = l.branch(e.Position.Epoch, e.Prev.Position.Seq)
		}
	}
	if !u.copy.empty && len(l) <= len(old) && l[len(l)-1] == old[len(l)-1] {
		return nil
	}
	return u.recordLineage(l)
}
