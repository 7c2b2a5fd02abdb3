package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"domicile/fsm"
)

// Times of a loop. Those that hang on the length of a lease are a fraction of
// it.
const (
	renewals   = 6 // calls begun in the length of a lease (architecture §3.5.8 asks for five)
	minTimeout = 50 * time.Millisecond
	pollEvery  = time.Second      // of a node that takes no lease
	tryEvery   = 10 * time.Second // whether it takes one now
	maxAgain   = 3                // calls in a row where the node says what it lacks
	// renewEvery bounds the time between two renewals of a long lease: what a node
	// says of itself, above all that it is about to stop, is to be heard soon.
	renewEvery = 500 * time.Millisecond
	// catchUpEvery is how often a node is called, at least, while a copy of a unit
	// that it writes lags: the entries that make the copy count wait for its word.
	catchUpEvery = 100 * time.Millisecond
	// handedEvery is how often a node is called that was just taken over and has not been
	// told so by the group that gave it: its lease runs out meanwhile.
	handedEvery = 50 * time.Millisecond
)

// loop renews one node.
type loop struct {
	shift   *shift
	name    fsm.NodeName
	id      fsm.NodeID
	cancel  context.CancelFunc
	began   time.Duration            // when it was first seen in the directory in this term
	record  atomic.Pointer[fsm.Node] // as the watcher last saw it
	list    atomic.Uint64            // revision of the node's list, likewise
	resumed atomic.Uint64            // the newest lapse that Resume named
	wake    chan struct{}            // holds a word while there may be news

	mu     sync.Mutex
	ledger *ledger
	view   view
	flying time.Duration // length of the grant under way; else 0
	closed bool          // the node is recorded no more

	process string // the process that is this node; guarded by processes.mu

	// of the loop's own goroutine
	last    time.Duration // newest reading of the clock
	line    line
	at      *fsm.Node // what line was made for
	now     *list
	held    held
	next    time.Duration // when the next call is due
	tryAt   time.Duration // when a node without lease is next asked to take one
	sent    fsm.Revision  // revision of the list that was sent last
	hasty   bool          // a grant follows as soon as the last answer is confirmed
	lagging bool          // it last told of copies that lag
	off     bool          // nodes were not leased when it last looked
	started bool          // a call was made
	failed  int           // calls in a row
	retried bool          // a new connection was tried for the call under way
	// elsewhere is the other group that the node said last that it belongs to, "" for none.
	elsewhere string
	foreign   bool // the process at the node's address is another node
}

func newLoop(s *shift, n *fsm.Node, l *ledger, cancel context.CancelFunc) *loop {
	loop := &loop{shift: s, name: n.Name, id: n.ID, ledger: l, cancel: cancel, began: l.seen, wake: make(chan struct{}, 1)}
	loop.record.Store(n)
	return loop
}

// look wakes the loop.
func (l *loop) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close takes no answer any more, and tells until when those so far count.
func (l *loop) close() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.ledger.expiry
}

// settled reports whether no lease of the node that ends after end can run, or
// be confirmed by the call under way unless it is at most as long as lease.
func (l *loop) settled(end, lease time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.expiry <= end && l.flying <= lease
}

// hold has no grant sent until release is called, if it is certain that the node
// holds no lease now; else it tells after what time it may be asked again.
func (l *loop) hold() (release func(), left time.Duration) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.view.Lease != fsm.LeaseNone && now < l.ledger.expiry:
		return nil, l.ledger.expiry - now
	case l.flying > 0:
		return nil, minTimeout // its answer may begin one
	}
	l.ledger.held++
	return func() {
		l.mu.Lock()
		l.ledger.held--
		l.mu.Unlock()
		l.look()
	}, 0
}

func (l *loop) clock() time.Duration { return l.shift.k.config.Clock.Now() }

// tick reads the clock, which is a system call, for the loop's goroutine.
func (l *loop) tick() time.Duration {
	l.last = l.clock()
	return l.last
}

// run renews until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer func() {
		if l.line != nil {
			l.line.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.tick()
	for ctx.Err() == nil {
		success := l.shift.confirms.success()
		until := l.step(ctx, l.last)
		if !l.hasty {
			success = nil
		}
		if until <= l.last {
			continue
		}
		timer.Reset(until - l.last)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-success:
		case <-ctx.Done():
		}
		l.tick()
	}
}

// never is a time at which nothing is due.
const never = time.Duration(1<<63 - 1)

// step does what is due at now, which may have passed a little, and says when to
// look again.
func (l *loop) step(ctx context.Context, now time.Duration) (until time.Duration) {
	l.connect(ctx, now)
	ms := millis(l.shift.lease())
	l.mu.Lock()
	if l.ledger.lapsed && l.resumed.Load() == l.view.Lapse {
		l.ledger.resume(now, ms)
		l.next = now
		l.show(func(s *Status) { s.Lapsed = false })
	} else {
		l.mu.Unlock()
	}
	if ms <= 0 {
		l.off = true
		return l.poll(now, false)
	}
	if l.off {
		l.off = false
		l.mu.Lock()
		l.ledger.leasing(now, ms)
		l.mu.Unlock()
		l.next = now
	}
	switch l.lease() {
	case fsm.LeaseNone:
		return l.poll(now, true)
	case fsm.LeaseTaken:
		return l.renew(now, ms, true)
	}
	return l.renew(now, ms, false)
}

// connect makes a line to where the node is recorded now.
func (l *loop) connect(ctx context.Context, now time.Duration) {
	n := l.record.Load()
	if l.at != nil && l.at.Addr == n.Addr && l.at.Token == n.Token {
		l.at = n
		return
	}
	if l.line != nil {
		l.line.close()
	}
	if l.at != nil && l.at.Addr != n.Addr {
		l.mu.Lock()
		l.ledger.moved = true
		l.mu.Unlock()
	}
	l.line, l.at, l.next = l.shift.k.config.lines(ctx, n), n, now
}

// lease is whether the node takes one: its own word in this term, before that
// what is recorded.
func (l *loop) lease() fsm.NodeLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view.Lease != fsm.LeaseUnknown {
		return l.view.Lease
	}
	return l.at.Lease
}

// renew grants when that is due. taken: the node may hold a lease, and is taken
// for lapsed in time.
func (l *loop) renew(now, ms time.Duration, taken bool) (until time.Duration) {
	if taken && l.judge(now, ms) {
		return never
	}
	l.mu.Lock()
	if l.ledger.held > 0 {
		l.mu.Unlock()
		return never // release wakes it
	}
	l.ledger.confirm(l.shift.confirms.succeeded.Load())
	may, expiry, judge := l.ledger.mayGrant(now), l.ledger.expiry, l.ledger.judge
	confirmed := !l.ledger.unconfirmed()
	if !taken || l.ledger.lapsed {
		judge = never
	}
	l.mu.Unlock()
	if !may {
		return min(judge, expiry)
	}
	news := l.sent != l.shift.k.config.Group.State().ListRevision(l.name)
	if now < min(l.next, judge) && !(l.hasty && confirmed) && !news {
		return min(judge, l.next)
	}
	inTurn := now >= l.next && l.started
	l.started = true
	elsewhere := l.grant(now).foreign
	l.next = now + l.period(ms)
	if !inTurn { // nodes that change at once do not stay in step
		l.next = now + time.Duration((0.5+rand.Float64()/2)*float64(l.period(ms)))
	}
	if elsewhere && l.justTaken(now) {
		l.next = min(l.next, now+handedEvery) // it is being told that it is this group's now
	}
	return l.last
}

// justTaken reports whether the node came to this group a moment ago, and may still have to
// be told so by the one that gave it.
func (l *loop) justTaken(now time.Duration) bool { return now < l.began+2*millis(l.shift.lease()) }

// period is the time between two renewals of a lease of ms.
func (l *loop) period(ms time.Duration) time.Duration {
	if l.lagging {
		return min(ms/renewals, catchUpEvery)
	}
	return min(ms/renewals, renewEvery)
}

// judge takes the node for lapsed when that is certain, and reports whether it
// is.
func (l *loop) judge(now, ms time.Duration) bool {
	l.mu.Lock()
	fresh := l.ledger.lapse(now, ms/renewals)
	stays := l.ledger.lapsed && !l.ledger.rules.grantWhileTaken
	if !fresh {
		l.mu.Unlock()
		return stays
	}
	again := l.view.wasLapsed
	l.view.wasLapsed = true
	l.show(func(s *Status) { s.Lapsed, s.Lapse = true, s.Lapse+1 })
	if !again {
		l.shift.k.config.Logger.Warn("a node's lease has lapsed", "node", l.name, "term", l.shift.term, "err", l.status().Problem)
	}
	return stays
}
