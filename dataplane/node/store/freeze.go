package store

import (
	"context"
	"errors"
	"time"
)

// gate is what a freeze closes; under Unit.mu.
type gate struct {
	until time.Time // frozen before it; zero: open
	pos   Position  // the final position, once it is known
}

// errFrozenTx is why a transaction that a freeze does not wait for is killed.
var errFrozenTx = errors.New("the unit is being handed over; begin the transaction again")

// mayWrite says whether a write may begin.
func (u *Unit) mayWrite() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone != nil {
		return u.gone
	}
	if left := time.Until(u.gate.until); left > 0 {
		return &FrozenError{Unit: u.name, Left: left}
	}
	return nil
}

// Freeze stops writes for d, after which the unit thaws by itself. New writes
// fail with ErrFrozen from now on. Running ones are waited for: until ctx ends
// or half of d has passed, when transactions that are still open are killed
// and running writes interrupted. It returns the final position, which is
// durable. Freezing a frozen unit sets the time anew. Where it fails, the unit
// is not frozen.
func (u *Unit) Freeze(ctx context.Context, d time.Duration) (Position, error) {
	u.mu.Lock()
	if u.gone != nil {
		defer u.mu.Unlock()
		return Position{}, u.gone
	}
	until := time.Now().Add(d)
	u.gate = gate{until: until}
	u.mu.Unlock()

	pos, err := u.drain(ctx, d/2)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil && time.Until(until) <= 0 {
		err = &UnitError{Unit: u.name, Op: "freeze", Err: context.DeadlineExceeded, Hint: "give the freeze more time"}
	}
	if !u.gate.until.Equal(until) {
		return pos, err // another freeze or a thaw came meanwhile
	}
	if err != nil {
		u.gate = gate{}
		return Position{}, err
	}
	u.gate.pos = pos
	return pos, nil
}

// drain waits until no write runs and all are durable.
func (u *Unit) drain(ctx context.Context, patience time.Duration) (Position, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	err := u.takeWriter(patient)
	cancel()
	if err != nil {
		u.stopWriter(errFrozenTx)
		// What was interrupted rolls back at once; patience once more for that.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := u.takeWriter(last); err != nil {
			return Position{}, err
		}
	}
	pos := u.commits.pos
	<-u.writer
	return pos, u.commits.waitDurable(pos)
}

// stopWriter interrupts whoever holds the writer connection.
func (u *Unit) stopWriter(cause error) {
	u.stopUses(cause, func(c *Conn, _ *use) bool { return c.capture != nil })
}

// stopUses kills the transactions and interrupts the calls that match.
func (u *Unit) stopUses(cause error, match func(*Conn, *use) bool) {
	var txs []*Tx
	u.mu.Lock()
	for c, use := range u.active {
		if !match(c, use) {
			continue
		}
		if use.tx != nil {
			txs = append(txs, use.tx)
		} else {
			c.interrupt(cause)
		}
	}
	u.mu.Unlock()
	for _, t := range txs {
		t.Kill(cause)
	}
}

// Thaw ends a freeze. It reports whether the unit was frozen.
func (u *Unit) Thaw() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := time.Until(u.gate.until) > 0
	u.gate = gate{}
	return was
}

// Frozen gives the time left of a freeze and its final position (zero while
// running writes are waited for); 0 where the unit is not frozen.
func (u *Unit) Frozen() (time.Duration, Position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	left := time.Until(u.gate.until)
	if left <= 0 {
		return 0, Position{}
	}
	return left, u.gate.pos
}

// Frozen reports whether a unit is frozen now; one that is not open is not.
func (s *Store) Frozen(unit string) bool {
	s.slots.mu.Lock()
	var u *Unit
	if sl := s.slots.m[unit]; sl != nil {
		u = sl.unit
	}
	s.slots.mu.Unlock()
	if u == nil {
		return false
	}
	left, _ := u.Frozen()
	return left > 0
}

// SetEpoch begins a new branch, of an epoch which must be higher than the
// present one: the next commit's position is in it. Subscribers go on.
func (u *Unit) SetEpoch(ctx context.Context, epoch uint64) error {
	if err := u.takeWriter(ctx); err != nil {
		return err
	}
	defer func() { <-u.writer }()
	c := &u.commits
	if u.following.Load() {
		return &UnitError{Unit: u.name, Op: "set epoch", Err: ErrFollowing, Hint: "promote it"}
	}
	if err := c.ready(); err != nil {
		return err
	}
	if epoch <= c.pos.Epoch {
		return &UnitError{Unit: u.name, Op: "set epoch", Err: ErrConflict, Hint: "the unit is at " + c.pos.String()}
	}
	if err := c.waitDurable(c.pos); err != nil {
		return err
	}
	at := c.base(c.tail.frames == 0)
	if _, err := u.s.change(u.name, func(r *stored) error { r.beginBranch(epoch, at); return nil }); err != nil {
		return err
	}
	c.beginBranch(epoch)
	return nil
}
