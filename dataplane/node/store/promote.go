package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// UnitID names a unit.
type UnitID struct {
	Name string
	ID   uint64 // 0 is not compared
}

// promotion is one unit on its way to being a primary.
type promotion struct {
	UnitID
	index int
	err   error
	sl    *slot // locked
	u     *Unit // its writer is held; nil where the unit is not open
	at    posRecord
	done  bool // it is Active in that epoch already
}

// Promote makes units primaries here, in a new branch of the given epoch that
// begins at what each has: state Active, taking writes, not frozen. One durable
// write makes it so for all of them; the result has one error, or nil, for each
// unit. A unit that is Active in that epoch already is left as it is.
//
// ErrUnknownUnit, ErrWrongID, ErrNeedsImage (a copy that holds nothing, or
// whose position is not known), ErrConflict (it is in that epoch as a copy, or
// in a higher one), ErrWrongState (a reader, Garbage), ErrDamaged.
func (s *Store) Promote(ctx context.Context, epoch uint64, units []UnitID) []error {
	all := make([]*promotion, len(units))
	for i, u := range units {
		all[i] = &promotion{UnitID: u, index: i}
	}
	// In one order: two calls do not wait for each other's units.
	slices.SortStableFunc(all, func(a, b *promotion) int { return cmp.Compare(a.Name, b.Name) })
	defer func() {
		for _, p := range all {
			p.release(s)
		}
	}()
	for i, p := range all {
		if i > 0 && p.Name == all[i-1].Name {
			p.err = &UnitError{Unit: p.Name, Op: "promote", Err: fmt.Errorf("%w: it is named twice", ErrConflict)}
		} else if p.err = s.preparePromotion(ctx, epoch, p); p.err == nil && p.u != nil && !p.done {
			p.err = p.ready()
		}
	}
	if err := s.recordPromotions(epoch, all); err != nil {
		for _, p := range all {
			if p.err == nil && !p.done {
				p.err = &UnitError{Unit: p.Name, Op: "promote", Err: diskError(err), Hint: "check the node's disk"}
			}
		}
	}
	errs := make([]error, len(units))
	for _, p := range all {
		if p.err == nil && !p.done {
			p.begin(s, epoch)
		}
		errs[p.index] = p.err
	}
	return errs
}

// preparePromotion takes the unit, so that nothing changes it, and finds where
// it is.
func (s *Store) preparePromotion(ctx context.Context, epoch uint64, p *promotion) error {
	if err := checkName(p.Name); err != nil {
		return err
	}
	sl, err := s.lockSlot(ctx, p.Name)
	if err != nil {
		return err
	}
	p.sl = sl
	rec, err := s.loadFinished(p.Name)
	if err != nil {
		return err
	}
	if p.done, err = promotable(rec, p.UnitID, epoch); err != nil || p.done {
		return err
	}
	s.slots.mu.Lock()
	u := sl.unit
	s.slots.mu.Unlock()
	if u == nil {
		p.at, err = s.look(rec)
		return err
	}
	if err := u.takeWriterSoon(ctx); err != nil {
		return err
	}
	p.u = u
	return u.goneErr()
}

var errPromoted = errors.New("the unit is being promoted; begin the transaction again")

// takeWriterSoon takes the writer from whoever keeps it.
func (u *Unit) takeWriterSoon(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := u.takeWriter(soon)
	if err != nil && ctx.Err() == nil {
		u.stopWriter(errPromoted)
		err = u.takeWriter(ctx)
	}
	return err
}

// promotable says whether a unit may begin a branch of that epoch; done: it has.
func promotable(rec *stored, id UnitID, epoch uint64) (done bool, err error) {
	refuse := func(err error, hint string) (bool, error) {
		return false, &UnitError{Unit: id.Name, Op: "promote", Err: err, Hint: hint}
	}
	switch {
	case rec == nil || !rec.visible():
		return refuse(ErrUnknownUnit, "")
	case id.ID != 0 && rec.ID != id.ID:
		return refuse(ErrWrongID, fmt.Sprintf("the one here has id %d", rec.ID))
	case rec.State == Garbage:
		return refuse(fmt.Errorf("%w: it is %s", ErrWrongState, rec.State), "")
	case rec.State.IsCopy() && rec.Reader:
		return refuse(fmt.Errorf("%w: it is a read replica, which is never promoted", ErrWrongState), "promote a copy, or have this one follow as a copy first")
	case rec.State.IsCopy() && rec.Unheard:
		return refuse(fmt.Errorf("%w: it was a read replica, and its source has not heard yet that it may be promoted", ErrWrongState), "try again once it follows")
	case rec.Empty:
		return refuse(fmt.Errorf("%w: it holds nothing", ErrNeedsImage), "promote another copy")
	case rec.State == Active && rec.Epoch == epoch:
		return true, nil
	case epoch <= rec.Epoch && !rec.State.IsCopy(), epoch == 0:
		return refuse(ErrConflict, fmt.Sprintf("it is in epoch %d", rec.Epoch))
	}
	return false, nil
}

// ready finds where an open unit is.
func (p *promotion) ready() error {
	c := &p.u.commits
	if err := c.ready(); err != nil {
		return err
	}
	if err := c.waitDurable(c.pos); err != nil {
		return err
	}
	p.at = c.base(c.tail.frames == 0)
	return nil
}

// recordPromotions records all of them in one transaction.
func (s *Store) recordPromotions(epoch uint64, all []*promotion) error {
	some := false
	for _, p := range all {
		if p.err == nil && !p.done && p.at.Position.Epoch >= epoch {
			p.err = &UnitError{Unit: p.Name, Op: "promote", Err: ErrConflict, Hint: "it is at " + p.at.Position.String()}
		}
		some = some || (p.err == nil && !p.done)
	}
	if !some {
		return nil
	}
	if err := s.fault(OpRecord, ""); err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(unitsBucket)
		for _, p := range all {
			if p.err != nil || p.done {
				continue
			}
			var r stored
			if err := json.Unmarshal(b.Get([]byte(p.Name)), &r); err != nil {
				return fmt.Errorf("read the record of unit %s: %w", p.Name, err)
			}
			r.beginBranch(epoch, p.at)
			r.State, r.From, r.Job, r.Destination, r.Unheard = Active, "", "", "", false
			if err := put(b, &r); err != nil {
				return err
			}
		}
		return nil
	})
}

// beginBranch begins a branch where the unit is.
func (r *stored) beginBranch(epoch uint64, at posRecord) {
	r.Lineage = r.lineage().branch(epoch, at.Position.Seq)
	at.Position.Epoch = epoch
	r.Epoch, r.Base = epoch, &at
}

// begin lets an open unit go on in the branch that was recorded.
func (p *promotion) begin(s *Store, epoch uint64) {
	u := p.u
	if u == nil {
		p.at.Position.Epoch = epoch
		s.closed.set(p.Name, p.at)
		return
	}
	u.rec.State, u.rec.Epoch, u.rec.From = Active, epoch, ""
	u.commits.beginBranch(epoch)
	if u.following.Load() {
		if u.copy.inj != nil {
			u.copy.inj.close(false)
			u.copy.inj = nil
		}
		u.copy.close()
		u.following.Store(false)
	}
	u.mu.Lock()
	u.gate = gate{}
	u.mu.Unlock()
	u.commits.setSink()
}

// beginBranch goes on in a branch that is recorded; under the writer.
func (c *commits) beginBranch(epoch uint64) {
	c.u.mu.Lock()
	c.u.lineage = c.u.lineage.branch(epoch, c.pos.Seq)
	c.u.mu.Unlock()
	c.pos.Epoch = epoch
	c.mu.Lock()
	c.captured.pos, c.durable.pos = c.pos, c.pos
	c.mu.Unlock()
	if c.acks.seq.Load() >= c.pos.Seq {
		c.u.feed.publish(c.pos)
	}
}

// release lets others at the unit again.
func (p *promotion) release(s *Store) {
	if p.u != nil {
		p.u.endTurn()
	}
	if p.sl != nil {
		s.unlockSlot(p.sl)
	}
}
