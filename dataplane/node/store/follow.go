package store

import (
	"context"
	"errors"
	"fmt"

	"domicile/internal/durable"
)

// Follow makes the unit a copy of the one at from (the source's address, kept
// in Record.From), durably: one that is not there is made and holds nothing
// (zero Mark, Record.Empty), another one keeps what it has; its users get
// ErrGone where it was not a copy before. It takes no writes from then on, but
// entries (Apply) and images (Install), and cannot be promoted while it holds
// nothing. It gives the mark of what it has. A copy becomes one of another kind
// so, and keeps what it has.
//
// ErrWrongID: the unit here has another id (0 is not compared). An error that
// Is ErrNeedsImage or ErrDamaged: it follows, but what it has cannot be built on.
func (s *Store) Follow(ctx context.Context, unit string, id uint64, from string, kind CopyKind) (Mark, error) {
	if err := checkName(unit); err != nil {
		return Mark{}, err
	}
	sl, err := s.lockSlot(ctx, unit)
	if err != nil {
		return Mark{}, err
	}
	defer s.unlockSlot(sl)
	rec, err := s.loadFinished(unit)
	if err != nil {
		return Mark{}, err
	}
	if rec == nil {
		made := stored{Record: Record{Name: unit, ID: id, From: from, Empty: true}}
		made.become(kind)
		_, err := s.create(made)
		return Mark{}, err
	}
	if id != 0 && rec.ID != id {
		return Mark{}, &UnitError{Unit: unit, Op: "follow", Err: ErrWrongID, Hint: fmt.Sprintf("the one here has id %d", rec.ID)}
	}
	if rec.State.IsCopy() {
		if rec.From != from || rec.Kind() != kind {
			if _, err := s.change(unit, func(r *stored) error { r.From = from; r.become(kind); return nil }); err != nil {
				return Mark{}, err
			}
		}
		return s.mark(sl, rec)
	}
	return s.turn(sl, rec, from, kind)
}

// Heard tells that the unit's source has heard of which kind the copy is.
func (s *Store) Heard(unit string) error {
	rec, err := s.load(unit)
	if err != nil || rec == nil || !rec.Unheard {
		return err
	}
	_, err = s.change(unit, func(r *stored) error { r.Unheard = false; return nil })
	return err
}

// turn makes a primary a copy. Its position is recorded first: commits of its
// own are not counted any more then.
func (s *Store) turn(sl *slot, rec *stored, from string, kind CopyKind) (Mark, error) {
	s.detach(sl, fmt.Errorf("%w: it became a copy", ErrGone))
	p, rerr := s.look(rec)
	if rerr == nil { // what it says may be remembered, from when the file was intact
		rerr = checkFile(s.unitPath(rec.Name))
	}
	if rerr == nil {
		rerr = s.Damage(rec.Name)
	}
	if rerr != nil {
		if !errors.Is(rerr, ErrDamaged) {
			return Mark{}, rerr
		}
		// An image will take its place: what it was goes aside, as it is (L7).
		if _, err := s.keepDamaged(rec); err != nil {
			return Mark{}, err
		}
	}
	if rerr == nil {
		err := s.fault(OpPosition, rec.Name)
		if err == nil {
			err = durable.ReplaceText(posPath(s.unitPath(rec.Name)), p.encode())
		}
		if err != nil {
			return Mark{}, &UnitError{Unit: rec.Name, Op: "record the position", Err: diskError(err), Hint: "check the node's disk"}
		}
	}
	_, err := s.change(rec.Name, func(r *stored) error {
		r.Lineage = r.lineage()
		r.become(kind)
		r.From, r.Job, r.Destination, r.Base = from, "", "", nil
		return nil
	})
	if err == nil {
		err = rerr
	}
	return Mark{p.Position, p.Chain}, err
}

// mark gives a unit's mark; the caller has its slot. What a copy has that is known to be
// damaged cannot be built on.
func (s *Store) mark(sl *slot, rec *stored) (Mark, error) {
	s.slots.mu.Lock()
	u, bad := sl.unit, s.slots.damaged[rec.Name]
	s.slots.mu.Unlock()
	if bad.err != nil && rec.State.IsCopy() {
		return Mark{}, bad.err
	}
	if u != nil {
		return u.Mark(), nil
	}
	p, err := s.look(rec)
	return Mark{p.Position, p.Chain}, err
}

// Adopt gives a copy its source's lineage, durably, and gives its mark: where a
// branch began at the copy's position without a commit so far, the position is
// in that branch now. ErrForked, and no effect: the copy's position is not on
// that lineage. ErrWrongState: it is no copy. A copy that holds nothing stays
// as it is.
func (s *Store) Adopt(ctx context.Context, unit string, lineage Lineage) (Mark, error) {
	bad := func(err error) (Mark, error) {
		return Mark{}, &UnitError{Unit: unit, Op: "adopt a lineage", Err: err}
	}
	if len(lineage) == 0 || !lineage.valid() {
		return bad(fmt.Errorf("%w: a lineage whose branches go back", ErrBadEntry))
	}
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
	if !u.following.Load() {
		return bad(fmt.Errorf("%w: it is no copy", ErrWrongState))
	}
	c := &u.commits
	if u.copy.empty {
		return Mark{}, nil
	}
	if err := c.ready(); err != nil {
		return Mark{}, err
	}
	if !lineage.Has(c.pos) {
		return bad(fmt.Errorf("%w: the copy is at %s, the source's branches are %v", ErrForked, c.pos, lineage))
	}
	if err := u.recordLineage(append(Lineage(nil), lineage...)); err != nil {
		return Mark{}, err
	}
	c.pos = lineage.place(c.pos)
	c.mu.Lock()
	c.captured.pos, c.durable.pos = c.pos, c.pos
	c.mu.Unlock()
	u.feed.publish(c.pos)
	return Mark{c.pos, c.chain}, nil
}

// recordLineage records a copy's lineage durably; the copy holds something
// then. Under the writer.
func (u *Unit) recordLineage(l Lineage) error {
	_, err := u.s.change(u.name, func(r *stored) error {
		r.Lineage, r.Epoch, r.Empty = l, l[len(l)-1].Epoch, false
		return nil
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.lineage = l
	u.mu.Unlock()
	u.copy.empty = false
	return nil
}

// Mark gives the mark of a unit's last captured (on a copy: applied) commit,
// without opening the unit; what it says is on disk where the unit is not
// open. The zero Mark: a copy that holds nothing. ErrUnknownUnit,
// ErrNeedsImage, ErrDamaged.
func (s *Store) Mark(ctx context.Context, unit string) (Mark, error) {
	s.slots.mu.Lock()
	if sl := s.slots.m[unit]; sl != nil && sl.unit != nil {
		defer s.slots.mu.Unlock()
		if bad := s.slots.damaged[unit]; bad.err != nil && sl.unit.following.Load() {
			return Mark{}, bad.err
		}
		return sl.unit.Mark(), nil
	}
	s.slots.mu.Unlock()
	if err := checkName(unit); err != nil {
		return Mark{}, err
	}
	sl, err := s.lockSlot(ctx, unit)
	if err != nil {
		return Mark{}, err
	}
	defer s.unlockSlot(sl)
	rec, err := s.loadFinished(unit)
	if err != nil {
		return Mark{}, err
	}
	if rec == nil {
		return Mark{}, &UnitError{Unit: unit, Op: "find", Err: ErrUnknownUnit}
	}
	return s.mark(sl, rec)
}

// Lineage gives the branches of a unit's history, as they are recorded: on a
// copy perhaps more than it has reached.
func (s *Store) Lineage(unit string) (Lineage, error) {
	rec, err := s.load(unit)
	if err != nil {
		return nil, err
	}
	if rec == nil || !rec.visible() {
		return nil, &UnitError{Unit: unit, Op: "find", Err: ErrUnknownUnit}
	}
	return rec.lineage(), nil
}
