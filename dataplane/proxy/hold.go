package proxy

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// holdSlots is the number of counters by which a request finds out that nothing of
// its unit is held.
const holdSlots = 1024

// holdLimits bound what waits: requests, and the bytes of memory that they keep.
type holdLimits struct {
	perUnit, all           int64
	bytesPerUnit, bytesAll int64
}

var defaultHoldLimits = holdLimits{perUnit: 10_000, all: 32_768, bytesPerUnit: 256 << 20, bytesAll: 512 << 20}

// spot is where the table places a unit.
type spot struct {
	placed bool
	up     *http1.Upstream // of its node; nil: that has no usable address, or there is none
	home   *region         // that keeps it in a directory of its own, instead of a node
	epoch  uint64
	// between says that it is between two homes: nobody is asked for it before there is
	// news.
	between bool
	// mayMove says that the unit can come to another node by itself: its node is leased
	// and it has a copy that is in sync, or it is on its way already.
	mayMove bool
	// promoting says that its node was not told to be promoted yet: it is asked in vain,
	// and there will be news.
	promoting bool
}

// holds keeps requests that had no effect until their unit's node can be asked
// again: a queue per unit, each for itself (hold_queue.go).
type holds struct {
	look   func(unit []byte) spot
	isUp   func(*http1.Upstream) bool
	limits holdLimits
	seed   maphash.Seed
	// released, if set, sees each request that is let go, under mu.
	released func(*queue, *ticket)

	open   atomic.Int64 // queues
	slots  [holdSlots]atomic.Int32
	now    atomic.Int64 // requests that wait; changed under mu, as bytes
	bytes  atomic.Int64 // that they keep
	counts [outcomes]atomic.Uint64

	mu      sync.Mutex
	queues  map[string]*queue
	buckets int // queues of buckets
	seq     uint64
}

func newHolds(look func([]byte) spot, limits holdLimits) *holds {
	return &holds{look: look, isUp: (*http1.Upstream).Up, limits: limits, seed: maphash.MakeSeed(), queues: map[string]*queue{}}
}

// outcome is what became of a request that was refused without effect, or had to
// wait for others that were.
type outcome uint8

// The outcomes: each request that meets one counts once for it.
const (
	outcomeSentOn   outcome = iota // not held: a newer table had another place
	outcomeRefused                 // not held: holding is off for it, or its body is too long to be kept
	outcomeFull                    // not held: too many are
	outcomeAnswered                // held, sent, and answered by a node
	outcomeExpired                 // held, and no node took it
	outcomeGone                    // held, and the client went away, or the proxy had to stop
	outcomeUnplaced                // held, and the unit was deleted
	outcomeBroken                  // held, sent, and no answer came
	outcomes
)

var outcomeNames = [outcomes]string{"sent_on", "refused", "full", "answered", "expired", "gone", "unplaced", "broken"}

func (h *holds) count(o outcome) { h.counts[o].Add(1) }

// any tells whether there may be a queue for unit: the cost that holding has for a
// request of a unit without one, an atomic load or two.
func (h *holds) any(unit []byte) bool { return h.open.Load() != 0 && h.slot(unit).Load() != 0 }

func (h *holds) slot(unit []byte) *atomic.Int32 {
	return &h.slots[maphash.Bytes(h.seed, unit)%holdSlots]
}

// gates tells whether a request for unit has to wait before it is sent.
func (h *holds) gates(unit []byte, resendable bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[string(unit)]
	return q != nil && q.gates(resendable)
}

// entry is what became of an attempt to wait.
type entry uint8

const (
	entered  entry = iota
	needless       // there is nothing to wait for: to be sent to where the table says
	full           // no more may wait
)

// join has a request wait that was not sent yet.
func (h *holds) join(t *ticket) entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[t.unit]
	if q == nil {
		return needless
	}
	q.lookAgain()
	switch {
	case !q.at.placed || q.at.between || !q.gates(t.resendable):
		q.settle()
		return needless
	case !q.admits(t):
		t.why = q.why
		return full
	}
	t.seq = h.nextSeq()
	q.put(t)
	q.settle()
	return entered
}

// between has a request wait, sent before or not, until its unit has a home again.
func (h *holds) between(t *ticket) entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[t.unit]
	if q == nil {
		q = h.newQueue(t.unit)
	}
	q.lookAgain()
	if !q.at.between {
		q.settle()
		return needless
	}
	t.why = reason{between: true}
	if t.seq == 0 {
		if !q.admits(t) {
			q.settle()
			return full
		}
		t.seq = h.nextSeq()
	}
	if t.queue != nil {
		t.queue.land(t)
	}
	q.put(t)
	q.halt()
	q.settle()
	return entered
}

// giveUp takes in that nobody who answers for a unit can be reached and that its requests
// are not to wait for that, t where one was held before: all are let go.
func (h *holds) giveUp(t *ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	h.count(outcomeExpired)
	q := t.queue
	q.land(t)
	q.open()
	q.settle()
}

func (h *holds) nextSeq() uint64 {
	h.seq++
	return h.seq
}

// refusal is a refusal as a queue sees it.
type refusal struct {
	kind   http1.RefusalKind
	up     *http1.Upstream // who refused
	region string          // whose router that is, "" for a node
	why    reason
}

// by tells whether the one who refused is the one who answers for the unit.
func (s spot) by(r refusal) bool {
	if s.home != nil {
		return string(s.home.name) == r.region
	}
	return s.up == r.up
}

// enter has a request wait that was refused; one that was held before goes back to
// its place. mustWait: also where the table places its unit elsewhere by now.
func (h *holds) enter(t *ticket, r refusal, mustWait bool) entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[t.unit]
	if q == nil {
		q = h.newQueue(t.unit) // before the table is read: what changes it later finds the queue
	}
	q.lookAgain()
	if !q.at.placed {
		if t.seq != 0 {
			t.queue.land(t)
			t.over = true
			h.count(outcomeUnplaced)
		}
		q.settle()
		return needless
	}
	stale := !q.at.by(r)
	if t.seq == 0 {
		switch {
		case stale && !mustWait && q.idle():
			q.settle()
			return needless
		case !q.admits(t):
			t.why = r.why
			q.settle()
			return full
		}
		t.seq = h.nextSeq()
	}
	q.refused(t, r, stale)
	q.settle()
	return entered
}

// warn takes in a refusal of a request that does not wait, t where it was held before.
func (h *holds) warn(unit string, t *ticket, r refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[unit]
	if q == nil {
		q = h.newQueue(unit)
	}
	q.lookAgain()
	trial := false
	if t != nil && !t.over {
		trial = t.queue.land(t) && t.queue == q
		t.over = true
		h.count(outcomeExpired)
	}
	switch {
	case q.at.placed && q.at.by(r):
		q.warned = true
		q.shutBy(r, trial)
	case trial:
		q.news()
	}
	q.settle()
}

// wait waits until t may be sent, at most until its deadline and until gone is
// closed: outcomeSentOn (go on), outcomeUnplaced (the same), outcomeExpired or
// outcomeGone.
func (h *holds) wait(t *ticket, gone <-chan struct{}) outcome {
	timer := time.NewTimer(time.Until(t.deadline))
	defer timer.Stop()
	o := outcomeExpired
	select {
	case <-t.ready:
		return t.left()
	case <-timer.C:
	case <-gone:
		o = outcomeGone
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.list == nil { // released at the last moment
		<-t.ready
		return t.left()
	}
	q := t.queue
	q.take(t)
	t.over, t.why = true, q.why
	h.count(o)
	q.settle()
	return o
}

// answered takes in that a node has answered a request that was held.
func (h *holds) answered(t *ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	h.count(outcomeAnswered)
	t.queue.answered(t)
	t.queue.settle()
}

// ended takes in that a request that was held has ended.
func (h *holds) ended(t *ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	h.count(outcomeBroken)
	if q := t.queue; q.land(t) {
		q.retry()
	}
	t.queue.settle()
}

// changed takes in that the table has changed by events, or altogether where whole
// is set. It is called after the table is what requests read.
func (h *holds) changed(events []fsm.Event, whole bool) {
	if h.open.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if whole {
		for _, q := range h.queues {
			q.lookAgain()
			q.settle()
		}
		return
	}
	for i := range events {
		e := &events[i]
		switch {
		case e.Unit != nil:
			h.lookAgainLocked(e.Unit.Unit)
		case e.UnitGone != "":
			h.lookAgainLocked(e.UnitGone)
		case e.Tenant != nil:
			h.lookAtTenantLocked(e.Tenant.Name)
		case e.TenantGone != "":
			h.lookAtTenantLocked(e.TenantGone)
		}
	}
}

func (h *holds) lookAgainLocked(unit fsm.UnitName) {
	if q := h.queues[string(unit)]; q != nil {
		q.lookAgain()
		q.settle()
	}
}

// lookAtTenantLocked looks at what is held of a tenant: that itself, or its buckets.
func (h *holds) lookAtTenantLocked(tenant fsm.TenantName) {
	h.lookAgainLocked(fsm.UnitName(tenant))
	if h.buckets == 0 {
		return
	}
	for unit, q := range h.queues {
		if strings.HasPrefix(unit, string(tenant)+".") {
			q.lookAgain()
			q.settle()
		}
	}
}

// nodeUp takes in that a node which was down can be reached.
func (h *holds) nodeUp(up *http1.Upstream) {
	if h.open.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		if q.at.up == up && q.shut == shutAll {
			q.news()
			q.settle()
		}
	}
}
