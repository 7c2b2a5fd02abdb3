package proxy

import (
	"container/list"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRefusalDelay  = 5 * time.Second
	refusalsForgot   = 60 * time.Second // after which an address's refusals are forgotten
	maxRefusedAddrs  = 10_000
	maxRefusalsCount = 16 // doublings beyond it change nothing
)

// refusals slows refused tokens by client address (R6): the answer of the n-th
// refusal waits base × 2^(n-1), 5 s at most. Addresses of IPv6 count by their
// /64, which is what one client has.
//
// It holds 10,000 addresses at most. Where it is full, the one with the fewest
// refusals that has been silent longest makes room, and only for one with as
// many: so whoever has many addresses cannot use them to have an address with
// more refusals forgotten.
type refusals struct {
	base time.Duration // 0: refused tokens are counted, not slowed

	total atomic.Uint64 // 401s answered
	held  atomic.Int64  // addresses held; a look without the lock

	mu     sync.Mutex
	byAddr map[netip.Addr]*list.Element
	levels [maxRefusalsCount + 1]*list.List // of *refusedAddr by count; oldest first
}

type refusedAddr struct {
	addr  netip.Addr
	count int
	last  time.Time
	by    string // the upstream that refused last
}

func newRefusals(base time.Duration) *refusals {
	f := &refusals{base: base, byAddr: make(map[netip.Addr]*list.Element)}
	for i := range f.levels {
		f.levels[i] = list.New()
	}
	return f
}

// refused counts a 401 that upstream by gave to addr, and tells how long its
// answer waits.
func (f *refusals) refused(addr, by string, now time.Time) time.Duration {
	f.total.Add(1)
	key, ok := refusalKey(addr)
	if !ok || f.base <= 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delay(f.countLocked(key, by, now))
}

// accepted forgets the refusals of addr after by took a token of it. A success
// elsewhere proves nothing: it may be a place that asks for no token.
func (f *refusals) accepted(addr, by string) {
	if f.held.Load() == 0 {
		return
	}
	key, ok := refusalKey(addr)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.byAddr[key]; ok && e.Value.(*refusedAddr).by == by {
		f.dropLocked(e)
	}
}

func (f *refusals) delay(count int) time.Duration {
	return min(f.base<<(count-1), maxRefusalDelay)
}

func (f *refusals) countLocked(key netip.Addr, by string, now time.Time) int {
	count := 1
	if e, ok := f.byAddr[key]; ok {
		old := e.Value.(*refusedAddr)
		if now.Sub(old.last) < refusalsForgot {
			count = min(old.count+1, maxRefusalsCount)
		}
		f.dropLocked(e)
	} else if len(f.byAddr) >= maxRefusedAddrs && !f.makeRoomLocked(now) {
		return count
	}
	f.byAddr[key] = f.levels[count].PushBack(&refusedAddr{addr: key, count: count, last: now, by: by})
	f.held.Add(1)
	return count
}

// makeRoomLocked drops an address that is forgotten anyway, or one with a single
// refusal, the oldest; false when there is none.
func (f *refusals) makeRoomLocked(now time.Time) bool {
	for _, l := range f.levels {
		if e := l.Front(); e != nil && now.Sub(e.Value.(*refusedAddr).last) >= refusalsForgot {
			f.dropLocked(e)
			return true
		}
	}
	if e := f.levels[1].Front(); e != nil {
		f.dropLocked(e)
		return true
	}
	return false
}

func (f *refusals) dropLocked(e *list.Element) {
	r := e.Value.(*refusedAddr)
	f.levels[r.count].Remove(e)
	delete(f.byAddr, r.addr)
	f.held.Add(-1)
}

func refusalKey(addr string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return a, false
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, err := a.Prefix(64)
		return p.Addr(), err == nil
	}
	return a, true
}
