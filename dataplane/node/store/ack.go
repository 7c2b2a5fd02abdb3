package store

import (
	"context"
	"fmt"
	"sync/atomic"
)

// acks is what is acknowledged of a unit's commits. Numbers of commits alone
// are compared: while a unit is open they only rise, whatever the branch.
type acks struct {
	seq     atomic.Uint64 // everything up to it is acknowledged
	waiting atomic.Int32  // callers that wait for seq, or for a capture
	// commit counts twice per commit: odd while a reader may see one that is
	// not captured yet.
	commit atomic.Uint64

	// Under commits.mu: waits up to gaveUp end with why.
	gaveUp uint64
	why    error
}

// Acknowledge says that everything up to p is where it has to be: writes that
// wait for it return, and subscribers, WaitPosition and reads go by it. With a
// Sink nothing else acknowledges a unit's commits. It may be called from any
// goroutine, within Sink.Durable too, for no position above what Durable was
// told; one that is not above the acknowledged one changes nothing.
func (u *Unit) Acknowledge(p Position) {
	a := &u.commits.acks
	for {
		old := a.seq.Load()
		if old >= p.Seq || a.seq.CompareAndSwap(old, p.Seq) {
			break
		}
	}
	u.feed.publish(p)
	u.commits.wakeWaiting()
}

// wakeWaiting wakes those that wait for what acks say. Whoever waits counts
// itself before it looks, so nobody is missed.
func (c *commits) wakeWaiting() {
	if c.acks.waiting.Load() == 0 {
		return
	}
	c.mu.Lock()
	c.done.Broadcast()
	c.mu.Unlock()
}

// GiveUp ends, with ErrUnreplicated and err, the waits for everything that was
// captured so far and is not acknowledged: writes return although their
// commits stay here. Later commits are waited for again. An Acknowledge that
// comes later counts all the same.
func (u *Unit) GiveUp(err error) {
	c := &u.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks.gaveUp, c.acks.why = c.captured.pos.Seq, err
	c.done.Broadcast()
}

// waitAcknowledged returns when p is acknowledged or was given up.
func (c *commits) waitAcknowledged(p Position) error {
	if c.acks.seq.Load() >= p.Seq {
		return nil
	}
	c.acks.waiting.Add(1)
	defer c.acks.waiting.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.acks.seq.Load() < p.Seq {
		if c.acks.why != nil && p.Seq <= c.acks.gaveUp {
			return c.unreplicated()
		}
		c.done.Wait()
	}
	return nil
}

func (c *commits) unreplicated() error {
	return &UnitError{Unit: c.u.name, Op: "have a commit acknowledged", Err: fmt.Errorf("%w: %w", ErrUnreplicated, c.acks.why),
		Hint: "read the data before writing again"}
}

// Seen gives a position that no snapshot taken before the call is beyond: what
// a read has seen, at most. It waits while a commit is being made.
func (u *Unit) Seen() Position {
	c := &u.commits
	if n := c.acks.commit.Load(); n&1 == 1 {
		// Readers see a commit a moment before it is captured.
		c.acks.waiting.Add(1)
		c.mu.Lock()
		for c.acks.commit.Load() == n {
			c.done.Wait()
		}
		c.mu.Unlock()
		c.acks.waiting.Add(-1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.captured.pos
}

// commitBegins is called when the writer is about to make a commit visible.
func (c *commits) commitBegins() {
	if n := c.acks.commit.Load(); n&1 == 0 {
		c.acks.commit.Store(n + 1)
	}
}

// commitEnds is called when it was captured, or was not made.
func (c *commits) commitEnds() {
	if n := c.acks.commit.Load(); n&1 == 1 {
		c.acks.commit.Store(n + 1)
		c.wakeWaiting()
	}
}

// AwaitAcknowledged returns when p, a position of this opening of the unit
// (from Seen, for a read), is acknowledged. Where it is already that is one
// atomic comparison. After a sync that failed it syncs itself, as nobody else might.
// ctx's cause, ErrUnreplicated after a GiveUp, ErrGone, ErrDiskFull, ErrIO.
func (u *Unit) AwaitAcknowledged(ctx context.Context, p Position) error {
	c := &u.commits
	if c.acks.seq.Load() >= p.Seq {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done.Broadcast()
	})
	defer stop()
	c.acks.waiting.Add(1)
	defer c.acks.waiting.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.acks.seq.Load() < p.Seq {
		switch {
		case c.acks.why != nil && p.Seq <= c.acks.gaveUp:
			return c.unreplicated()
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.failed && !c.syncing && p.Compare(c.durable.pos) > 0:
			if err := c.syncOnce(); err != nil {
				return &UnitError{Unit: c.u.name, Op: "make what was read durable", Err: diskError(err), Hint: "check the node's disk"}
			}
			continue
		}
		c.done.Wait()
	}
	return nil
}

// setSink makes the sink decide what is acknowledged from now on, beginning
// with what the unit has; under the writer.
func (c *commits) setSink() {
	if c.u.s.cfg.Sink == nil {
		return
	}
	c.acks.seq.Store(0)
	sink := c.u.s.cfg.Sink(c.u)
	c.mu.Lock()
	c.sink = sink
	c.mu.Unlock()
	if sink == nil {
		c.u.Acknowledge(c.pos)
		return
	}
	sink.Durable(c.pos)
}

// Mark is that of the last captured commit; on a copy, of the last applied one.
func (u *Unit) Mark() Mark {
	c := &u.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	return Mark{c.captured.pos, c.captured.chain}
}

// Lineage gives the branches of the unit's history, up to its position; empty
// on a copy that holds nothing.
func (u *Unit) Lineage() Lineage {
	m := u.Mark()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lineage.upTo(m.Position.Seq)
}

// Following reports whether the unit is a copy.
func (u *Unit) Following() bool { return u.following.Load() }
