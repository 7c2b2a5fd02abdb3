package proxy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// world is nodes and units that fail, move and come back, as a proxy meets them.
type world struct {
	t     *testing.T
	holds *holds

	mu    sync.Mutex
	r     *rand.Rand
	nodes []*http1.Upstream
	isUp  map[*http1.Upstream]bool
	units map[string]*worldUnit

	executed map[int]int
	ends     map[string]int
	healed   time.Time
}

type worldUnit struct {
	at     spot
	serves *http1.Upstream // who has it; another one answers 421
	writes bool            // else 503 to writes
}

const worldUnits = 4 // and "steady", which nothing happens to

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), isUp: map[*http1.Upstream]bool{}, units: map[string]*worldUnit{},
		executed: map[int]int{}, ends: map[string]int{},
	}
	for range 3 {
		up := new(http1.Upstream) // a name for a node, no more
		w.nodes, w.isUp[up] = append(w.nodes, up), true
	}
	for i := range worldUnits {
		w.units[fmt.Sprint("u", i)] = &worldUnit{spot{placed: true, up: w.nodes[i%2], mayMove: true}, w.nodes[i%2], true}
	}
	w.units["steady"] = &worldUnit{spot{placed: true, up: w.nodes[2]}, w.nodes[2], true}
	w.holds = newHolds(w.look, holdLimits{perUnit: 60, all: 150, bytesPerUnit: 1000, bytesAll: 2000})
	w.holds.isUp = func(up *http1.Upstream) bool { return locked(&w.mu, func() bool { return w.isUp[up] }) }
	w.holds.released = w.checkRelease
	return w
}

func locked[T any](mu *sync.Mutex, fn func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return fn()
}

func (w *world) look(unit []byte) spot {
	return locked(&w.mu, func() spot { return w.units[string(unit)].at })
}

func (w *world) pick(n int) int { return locked(&w.mu, func() int { return w.r.IntN(n) }) }

// checkRelease: first in, first out, among those who are let go for the same reason.
func (w *world) checkRelease(q *queue, t *ticket) {
	bytes, resendable := int64(0), 0
	for _, l := range []*ticketList{&q.writes, &q.others} {
		n := 0
		for x := l.head; x != nil; x = x.next {
			if x.next != nil && x.next.seq <= x.seq || x.list != l || x.over || x.flying {
				w.t.Errorf("%s: the queue is out of order", q.unit)
			}
			older := x.seq < t.seq && (l == &q.writes) == (t.refusedWrite || !t.resendable)
			if older && (q.trial != t || x.resendable) {
				w.t.Errorf("%s: %d is let go and %d waits", q.unit, t.seq, x.seq)
			}
			bytes += x.bytes
			if x.resendable {
				resendable++
			}
			n++
		}
		if n != l.n {
			w.t.Errorf("%s: a list of %d says %d", q.unit, n, l.n)
		}
	}
	if bytes != q.bytes || resendable != q.resendable || q.flying > maxWindow || q.window < 1 {
		w.t.Errorf("%s: counts %d bytes and %d resendable, has %d and %d; %d flying", q.unit, q.bytes, q.resendable, bytes, resendable, q.flying)
	}
}

// send is one attempt: 0 served, or why not.
func (w *world) send(id int, unit string, to *http1.Upstream, write bool) http1.RefusalKind {
	took := time.Duration(w.pick(3000)) * time.Microsecond
	time.Sleep(took / 2)
	kind := locked(&w.mu, func() http1.RefusalKind {
		u := w.units[unit]
		switch {
		case !w.isUp[to]:
			return http1.Unreachable
		case u.serves != to:
			return http1.Misdirected
		case write && !u.writes:
			return http1.Unavailable
		}
		if w.r.IntN(50) == 0 {
			took = 700 * time.Millisecond // a slow statement
		}
		w.executed[id]++
		return 0
	})
	time.Sleep(took / 2)
	return kind
}

// request does what http1 and handler do for a request, and gives how it ended.
func (w *world) request(id int, unit string, write, resendable bool, hold time.Duration, gone chan struct{}) string {
	h := w.holds
	var t *ticket
	defer func() {
		if t != nil {
			t.Ended()
		}
	}()
	wait := func() string {
		switch o := h.wait(t, gone); o {
		case outcomeExpired, outcomeGone:
			if at := locked(&w.mu, func() time.Time { return w.healed }); o == outcomeExpired && !at.IsZero() && time.Since(at) > 3*time.Second {
				w.t.Errorf("%s: request %d still waited long after all was well", unit, id)
			}
			return outcomeNames[o]
		}
		return ""
	}
	for attempt := 1; ; attempt++ {
		at := w.look([]byte(unit))
		if !at.placed {
			return "unplaced"
		}
		if at.between {
			n := t
			if n == nil || n.over {
				n = h.newTicket(unit, resendable, 10, hold)
			}
			switch h.between(n) {
			case full:
				return "full"
			case entered:
				t = n
				if end := wait(); end != "" {
					return end
				}
			}
			continue
		}
		if attempt == 1 && h.any([]byte(unit)) && h.gates([]byte(unit), resendable) {
			n := h.newTicket(unit, resendable, 10, hold)
			switch h.join(n) {
			case full:
				return "full"
			case entered:
				t = n
				if end := wait(); end != "" {
					return end
				}
			}
			continue
		}
		kind := w.send(id, unit, at.up, write)
		switch {
		case kind == 0:
			if t != nil {
				t.Answered()
			}
			return "answered"
		case !resendable && kind != http1.Unreachable:
			h.warn(unit, t, refusal{kind: kind, up: at.up})
			return "not sent again"
		}
		held := t != nil
		if held && t.over {
			return "unplaced"
		}
		if !held {
			t = h.newTicket(unit, resendable, 10, hold)
		}
		switch h.enter(t, refusal{kind: kind, up: at.up}, held || attempt >= maxAttempts) {
		case needless:
			if !held {
				t = nil
			}
			continue
		case full:
			t = nil
			return "full"
		}
		if end := wait(); end != "" {
			return end
		}
	}
}

// trouble does something to the world.
func (w *world) trouble() {
	unit := fmt.Sprint("u", w.pick(worldUnits))
	up := w.nodes[w.pick(2)] // the steady unit's stays
	what := w.pick(7)
	told := locked(&w.mu, func() bool {
		u := w.units[unit]
		switch what {
		case 0, 1: // a flip; the new node may learn of it later
			u.at.placed, u.at.between, u.at.up = true, false, up
			u.at.epoch++
			if what == 0 {
				u.serves = up
			}
			return true
		case 2:
			u.serves = u.at.up
		case 3:
			u.writes = !u.writes
		case 4:
			w.isUp[up] = !w.isUp[up]
		case 5:
			u.at.placed = w.r.IntN(3) > 0
			return true
		case 6: // it leaves its home, or arrives at one
			u.at.between = !u.at.between
			return true
		}
		return false
	})
	time.Sleep(time.Duration(w.pick(3)) * time.Millisecond) // somebody may see it before it is told
	switch {
	case told:
		w.holds.changed([]fsm.Event{{Unit: &fsm.UnitInfo{Unit: fsm.UnitName(unit)}}}, false)
	case what == 4 && w.holds.isUp(up):
		w.holds.nodeUp(up)
	}
}

func (w *world) heal() {
	w.mu.Lock()
	for _, up := range w.nodes {
		w.isUp[up] = true
	}
	for _, u := range w.units {
		u.at.placed, u.at.between, u.serves, u.writes = true, false, u.at.up, true
	}
	w.healed = time.Now()
	w.mu.Unlock()
	for _, up := range w.nodes {
		w.holds.nodeUp(up)
	}
	w.holds.changed(nil, true)
}

// TestHoldingProperty: whatever happens, each request ends once and is executed at
// most once; a unit's requests are let go in the order in which they came; what
// happens to one unit is nothing to another; and once all is well nobody waits.
func TestHoldingProperty(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { holdingProperty(t, seed) }) })
	}
}

func holdingProperty(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	var wg sync.WaitGroup
	id := 0
	start := func(unit string) {
		id++
		id, write, resendable := id, w.pick(3) > 0, w.pick(6) > 0
		hold := time.Duration(1+w.pick(4000)) * time.Millisecond
		gone := make(chan struct{})
		if w.pick(5) == 0 {
			time.AfterFunc(time.Duration(w.pick(1000))*time.Millisecond, func() { close(gone) })
		}
		wg.Go(func() {
			end := w.request(id, unit, write, resendable, hold, gone)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ends[end]++
			if unit == "steady" && end != "answered" || w.executed[id] > 1 || w.executed[id] == 1 != (end == "answered") {
				t.Errorf("request %d of %s: executed %d times and ended as %s", id, unit, w.executed[id], end)
			}
		})
	}
	for range 1500 {
		switch n := w.pick(10); {
		case n == 0:
			w.trouble()
		case n == 1:
			start("steady")
		case n < 8:
			start(fmt.Sprint("u", w.pick(worldUnits)))
		default:
			time.Sleep(time.Duration(w.pick(15)) * time.Millisecond)
		}
	}
	w.heal()
	time.Sleep(3 * time.Second)
	for range 50 {
		start(fmt.Sprint("u", w.pick(worldUnits)))
	}
	wg.Wait()
	ends := 0
	for _, n := range w.ends {
		ends += n
	}
	h := w.holds
	if ends != id || h.now.Load() != 0 || h.bytes.Load() != 0 || h.open.Load() != 0 || len(h.queues) != 0 {
		t.Errorf("%d requests ended, %d began; left: %d waiting, %d queues", ends, id, h.now.Load(), len(h.queues))
	}
	for i := range h.slots {
		if h.slots[i].Load() != 0 {
			t.Errorf("slot %d is not empty", i)
		}
	}
	if w.ends["answered"] == 0 || h.counts[outcomeAnswered].Load() == 0 {
		t.Errorf("nothing was held: %v", w.ends)
	}
}

func TestHoldExpiresOnTimeAndReleasesGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		u := w.units["u0"]
		u.writes = false
		w.holds.limits = defaultHoldLimits
		const n = 1000
		var wg sync.WaitGroup
		began := time.Now()
		var most int
		w.holds.released = func(q *queue, _ *ticket) { most = max(most, q.flying) }
		for i := range n {
			wg.Go(func() {
				if end := w.request(i, "u0", true, true, time.Second, nil); end != "expired" || time.Since(began) < time.Second || time.Since(began) > time.Second+50*time.Millisecond {
					t.Errorf("ended as %s after %v", end, time.Since(began))
				}
			})
		}
		wg.Wait()
		for i := range n {
			wg.Go(func() {
				if end := w.request(n+i, "u0", true, true, 10*time.Second, nil); end != "answered" {
					t.Errorf("ended as %s", end)
				}
			})
		}
		time.Sleep(time.Second)
		w.heal()
		wg.Wait()
		if most > maxWindow || most < 100 {
			t.Errorf("%d were under way at the same time", most)
		}
	})
}
