package lease

import (
	"fmt"
	"sync"
	"time"

	"domicile/internal/boottime"
)

// Mark keeps the longest time that this node has promised anyone, durably: after
// a restart it stands in for the promises, which are kept in memory.
type Mark interface {
	// Longest gives what is kept, 0 where nothing is.
	Longest() (time.Duration, error)
	// Keep keeps d in place of it; it returns when d is on disk. 0 forgets it.
	Keep(d time.Duration) error
}

// Promises are those that this node, as a copy, has made to the nodes that it
// follows: not to be promoted for a time (architecture §3.5.10). They last
// whatever becomes of the following meanwhile: the one they were made to counts
// on them. Safe for concurrent use.
type Promises struct {
	clock boottime.Clock
	mark  Mark
	began time.Duration // until when every unit that is followed counts as promised

	mu     sync.Mutex
	kept   time.Duration            // what Mark keeps
	until  map[string]time.Duration // by unit
	asked  map[string]bool          // was to be promoted: promises nothing more
	latest time.Duration            // the greatest until
}

// NewPromises takes up what a former process has promised: every unit that is
// followed counts as promised for the whole of the longest time from now on.
func NewPromises(clock boottime.Clock, mark Mark) (*Promises, error) {
	longest, err := mark.Longest()
	if err != nil {
		return nil, fmt.Errorf("read what was promised before the start: %w", err)
	}
	p := &Promises{clock: clock, mark: mark, kept: longest, until: map[string]time.Duration{}, asked: map[string]bool{}}
	if longest > 0 {
		p.began = clock.Now() + longest
		p.latest = p.began
	}
	return p, nil
}

// Promise promises not to promote the units for d from now on, and returns when
// that outlives a restart. It gives those that it does not promise, because they
// were to be promoted.
func (p *Promises) Promise(units []string, d time.Duration) (refused []string, err error) {
	if d <= 0 || d > MaxMS*time.Millisecond {
		return nil, fmt.Errorf("a promise for %v is not given: 1 ms to %d ms", d, MaxMS)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > p.kept {
		if err := p.mark.Keep(d); err != nil {
			return nil, fmt.Errorf("keep a promise: %w", err)
		}
		p.kept = d
	}
	now := p.clock.Now() // after the recording: the promise lasts longer, never shorter
	p.dropOld(now)
	for _, u := range units {
		if p.asked[u] {
			refused = append(refused, u)
			continue
		}
		p.until[u] = max(p.until[u], now+d)
		p.latest = max(p.latest, now+d)
	}
	return refused, nil
}

func (p *Promises) dropOld(now time.Duration) {
	for u, until := range p.until {
		if until <= now {
			delete(p.until, u)
		}
	}
}

// Promoting is called before a unit is promoted: nothing more is promised for it
// until Followed. It gives the time for which a promise still forbids the
// promotion; 0: it may go on. following says that the unit is a copy here.
func (p *Promises) Promoting(unit string, following bool) (left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	left = max(p.until[unit]-now, 0)
	if following {
		p.asked[unit] = true
		left = max(left, p.began-now)
	}
	return left
}

// Followed tells that the directory has the unit follow a node here: it may be
// promised again.
func (p *Promises) Followed(unit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, unit)
}

// Forget drops what is known of a unit that was promoted or deleted here.
func (p *Promises) Forget(unit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, unit)
	delete(p.until, unit)
}

// Settle forgets the durable mark where every promise has run out, so that the
// next start waits for none. It gives when to call it again: 0 if there is
// nothing to forget.
func (p *Promises) Settle() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == 0 {
		return 0, nil
	}
	if left := p.latest - p.clock.Now(); left > 0 {
		return left, nil
	}
	if err := p.mark.Keep(0); err != nil {
		return 0, fmt.Errorf("forget promises that have run out: %w", err)
	}
	p.kept = 0
	return 0, nil
}
