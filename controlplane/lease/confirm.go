package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// confirmer runs leadership checks, one at a time, for all nodes of a term
// (architecture §3.5.4): at once while a node waits for its first confirmed
// grant, else at most ten in the length of a lease, and none while no answer
// waits for one.
type confirmer struct {
	// check returns nil when a leadership check that began after the call has
	// succeeded in the term.
	check func(ctx context.Context) error
	pace  func() time.Duration // between the starts of two checks

	begun     atomic.Uint64 // checks that have begun
	succeeded atomic.Uint64 // number of the newest one that succeeded
	wanted    chan struct{} // holds a word while an answer may wait for a check
	urgent    chan struct{} // the same, and it waits for nothing else

	mu   sync.Mutex
	next chan struct{} // closed at the next success
}

func newConfirmer(check func(context.Context) error, pace func() time.Duration) *confirmer {
	return &confirmer{check: check, pace: pace, next: make(chan struct{}),
		wanted: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// stamp is what an answer that was just seen is noted with.
func (c *confirmer) stamp() uint64 { return c.begun.Load() }

// want asks for a check that begins after now.
func (c *confirmer) want(atOnce bool) {
	word := c.wanted
	if atOnce {
		word = c.urgent
	}
	select {
	case word <- struct{}{}:
	default: // it is asked for already
	}
}

// success is closed when a check has succeeded after the call.
func (c *confirmer) success() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// run checks until ctx ends.
func (c *confirmer) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-c.urgent:
		case <-c.wanted:
			select { // others' answers come meanwhile, and share the check
			case <-pause.C:
			case <-c.urgent:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
		began := time.Now()
		n := c.begun.Add(1)
		err := c.check(ctx)
		if ctx.Err() != nil {
			return
		}
		pause.Reset(max(0, c.pace()-time.Since(began)))
		if err == nil {
			c.succeed(n)
			continue
		}
		// It leads no more, or is about to hand over. What waited goes on to.
		c.want(false)
	}
}

func (c *confirmer) succeed(n uint64) {
	c.succeeded.Store(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.next)
	c.next = make(chan struct{})
}
