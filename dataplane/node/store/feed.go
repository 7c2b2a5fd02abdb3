package store

import (
	"context"
	"iter"
	"sort"
	"sync"
)

// Change is one committed transaction.
type Change struct {
	Position Position
	Bytes    int64 // of the pages that it changed
}

// feed tells subscribers of a unit's commits once they are acknowledged.
type feed struct {
	mu        sync.Mutex
	ring      []Change // captured commits, a circular buffer
	next      int      // where the next one goes
	published Position
	begun     Position      // what the unit had when it was opened
	wake      chan struct{} // closed at the next publication; nil: nobody waits
	err       error         // why it ended
}

func newFeed(size int, published, begun Position) *feed {
	return &feed{ring: make([]Change, 0, min(size, 16)), published: published, begun: begun}
}

// add keeps a captured commit; size bounds the ring.
func (f *feed) add(c Change, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ring) < size {
		f.ring = append(f.ring, c)
		return
	}
	f.ring[f.next] = c
	f.next = (f.next + 1) % len(f.ring)
}

// publish lets subscribers see everything up to p.
func (f *feed) publish(p Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Compare(f.published) <= 0 {
		return
	}
	f.published = p
	f.wakeUp()
}

func (f *feed) wakeUp() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		f.wakeUp()
	}
}

func (f *feed) position() Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.published
}

// waiting gives the channel that the next publication closes.
func (f *feed) waiting() <-chan struct{} {
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// wait returns when p is published.
func (f *feed) wait(ctx context.Context, p Position) error {
	for {
		f.mu.Lock()
		if p.Compare(f.published) <= 0 {
			f.mu.Unlock()
			return nil
		}
		if f.err != nil {
			defer f.mu.Unlock()
			return f.err
		}
		wake := f.waiting()
		f.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// after gives the published changes after p, at most len(buf), or what to
// wait for where there are none yet.
func (f *feed) after(p Position, buf []Change) (n int, wake <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Numbers go on from branch to branch: (1, 7) and (2, 7) are one point of a history
	// whose branch 2 began there.
	if p.Seq >= f.published.Seq {
		if f.err != nil {
			return 0, nil, f.err
		}
		return 0, f.waiting(), nil
	}
	at := func(i int) Change { return f.ring[(f.next+i)%len(f.ring)] }
	first := sort.Search(len(f.ring), func(i int) bool { return at(i).Position.Seq > p.Seq })
	for i := first; i < len(f.ring) && n < len(buf); i++ {
		c := at(i)
		if c.Position.Compare(f.published) > 0 {
			break
		}
		if n == 0 && c.Position.Seq != p.Seq+1 {
			break // a gap: what came between is no longer kept
		}
		buf[n] = c
		n++
	}
	if n == 0 {
		return 0, nil, &BehindError{Current: f.published}
	}
	return n, nil, nil
}

// changes iterates from p on.
func (f *feed) changes(ctx context.Context, p Position) iter.Seq2[Change, error] {
	if p.IsZero() {
		if p = f.position(); p.IsZero() {
			p = f.begun // nothing of it is acknowledged yet
		}
	}
	return func(yield func(Change, error) bool) {
		var buf [64]Change
		for {
			n, wake, err := f.after(p, buf[:])
			if err != nil {
				yield(Change{}, err)
				return
			}
			for _, c := range buf[:n] {
				p = c.Position
				if !yield(c, nil) {
					return
				}
			}
			if wake == nil {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				yield(Change{}, context.Cause(ctx))
				return
			}
		}
	}
}
