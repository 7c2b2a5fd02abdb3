package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// How a unit's position is found after a stop of any kind. A primary counts
// the commits in its WAL on from a record of where it was (.pos, or Base in
// its record). A copy applies several commits as one of its own, so there is
// nothing to count: each of its transactions is announced by a side record
// (.apply, see applyfile.go), and the last one that is in the WAL must be an
// announced one.

// recoverUnit finds a unit's position from its files; wal is nil where there
// is none. It changes nothing.
func (s *Store) recoverUnit(rec *stored, wal io.ReaderAt) (recovered, error) {
	path := s.unitPath(rec.Name)
	base, err := readPos(posPath(path))
	switch {
	case err != nil && rec.State.IsCopy():
		return recovered{}, needsImage(rec.Name, "its position record cannot be read: "+err.Error())
	case err != nil:
		s.log.Warn("position record cannot be read", "unit", rec.Name, "err", err)
		base = &posRecord{Position: Position{Epoch: rec.Epoch}, Frames: 1} // matches no WAL: taken as foreign
		if rec.Base != nil {
			base.Position = rec.Base.Position
		}
	case rec.Base != nil && (base == nil || base.Position.Compare(rec.Base.Position) < 0):
		base = rec.Base
	}
	r, err := recoverPosition(base, rec.lineage().At(0), wal)
	if err != nil {
		return r, &UnitError{Unit: rec.Name, Op: "open", Err: diskError(err), Hint: "check the node's disk"}
	}
	if st, ok := wal.(*os.File); ok && !r.tail.known {
		if info, err := st.Stat(); err == nil && info.Size() > walHeaderSize {
			// The header is on disk before the first frame.
			return r, &UnitError{Unit: rec.Name, Op: "open", Err: fmt.Errorf("%w: its WAL has no valid header", ErrDamaged), Hint: damagedHint}
		}
	}
	if rec.State.IsCopy() {
		err = s.recoverCopy(rec, base, &r)
	} else if r.foreign {
		s.log.Warn("unit was changed by another program", "unit", rec.Name, "position", r.pos.String())
	}
	r.pos = rec.lineage().place(r.pos)
	return r, err
}

// recoverCopy corrects what counting gave.
func (s *Store) recoverCopy(rec *stored, base *posRecord, r *recovered) error {
	from := Mark{}
	if base != nil {
		from = Mark{base.Position, base.Chain}
	}
	switch {
	case rec.Empty && r.tail.frames > 0, r.foreign:
		return needsImage(rec.Name, "its files were changed by another program")
	case r.counted == 0:
		r.pos, r.chain = from.Position, from.Chain
		return nil
	}
	applied, err := readApplied(applyPath(s.unitPath(rec.Name)))
	if err != nil {
		return &UnitError{Unit: rec.Name, Op: "open", Err: diskError(err), Hint: "check the node's disk"}
	}
	for _, a := range applied { // newest first
		h := &r.tail.header
		here := a.Salt1 == h.salt1 && a.Salt2 == h.salt2 && int(a.Frames) == r.begin
		restarted := r.begin == 0 && r.counted == 1 && a.Before.Chain == from.Chain && a.Before.Position.Seq == from.Position.Seq
		if here || restarted {
			r.pos, r.chain = a.After.Position, a.After.Chain
			return nil
		}
	}
	return needsImage(rec.Name, "the record of what was last applied is lost")
}

func needsImage(unit, why string) error {
	return &UnitError{Unit: unit, Op: "find its position", Err: fmt.Errorf("%w: %s", ErrNeedsImage, why), Hint: "follow again: an image is sent"}
}

// look gives where a unit that is not open is, without opening it: durably, as
// what it finds in the WAL is synced. The caller has the unit's slot.
func (s *Store) look(rec *stored) (posRecord, error) {
	if p, ok := s.closed.get(rec.Name); ok {
		return p, nil
	}
	path := s.unitPath(rec.Name)
	if err := checkFile(path); err != nil {
		err = &UnitError{Unit: rec.Name, Op: "open", Err: err, Hint: damagedHint}
		s.damaged(rec.Name, err, false)
		return posRecord{}, err
	}
	var wal io.ReaderAt
	f, err := os.OpenFile(path+"-wal", os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Size() > 0 {
			wal = f
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return posRecord{}, &UnitError{Unit: rec.Name, Op: "open", Err: diskError(err), Hint: "check the node's disk"}
	}
	r, err := s.recoverUnit(rec, wal)
	if err != nil {
		s.damaged(rec.Name, err, false)
		return posRecord{}, err
	}
	if r.tail.frames > 0 && s.cfg.Sync == SyncFull {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return posRecord{}, &UnitError{Unit: rec.Name, Op: "sync its WAL", Err: diskError(err), Hint: "check the node's disk"}
		}
	}
	p := posRecord{Position: r.pos, Chain: r.chain, Salt1: r.tail.header.salt1, Salt2: r.tail.header.salt2,
		Frames: uint32(r.tail.frames), Clean: r.tail.frames == 0}
	s.closed.set(rec.Name, p)
	return p, nil
}

// closedUnits remembers where units that are closed are: that cannot change.
type closedUnits struct {
	mu sync.Mutex
	m  map[string]posRecord
}

func (z *closedUnits) set(name string, p posRecord) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.m == nil {
		z.m = map[string]posRecord{}
	}
	z.m[name] = p
}

func (z *closedUnits) get(name string) (posRecord, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	p, ok := z.m[name]
	return p, ok
}

func (z *closedUnits) drop(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.m, name)
}
