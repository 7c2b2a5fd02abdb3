package store

import (
	"context"
	"sync/atomic"
)

// calls counts the writes of a unit from before they begin until they are answered, so
// that the unit is given up only once nobody waits for an answer that could not be
// given any more.
type calls struct {
	under atomic.Int64
	idle  atomic.Pointer[chan struct{}] // closed when none is under way; nil: nobody waits
}

// BeginCall counts a write in, and EndCall out: it was acknowledged, and whether it
// may be answered was asked, or it has failed.
func (u *Unit) BeginCall() { u.calls.under.Add(1) }

// EndCall counts a write out that BeginCall has counted in.
func (u *Unit) EndCall() {
	if u.calls.under.Add(-1) > 0 {
		return
	}
	if idle := u.calls.idle.Swap(nil); idle != nil {
		close(*idle)
	}
}

// AwaitCalls returns when no write is under way, or with ctx's cause. It is for a unit
// that is frozen: else others may begin. One waits at a time.
func (u *Unit) AwaitCalls(ctx context.Context) error {
	for u.calls.under.Load() > 0 {
		idle := make(chan struct{})
		u.calls.idle.Store(&idle)
		if u.calls.under.Load() <= 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return &UnitError{Unit: u.name, Op: "wait until its writes are answered", Err: context.Cause(ctx), Hint: "a copy does not acknowledge them; try again"}
		}
	}
	return nil
}
