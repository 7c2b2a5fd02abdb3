package http1

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

var (
	// ErrDown: the upstream is known to be down; a probe is under way.
	ErrDown = errors.New("http1: the node is known to be down")
	// ErrBusy: all connections of the upstream are in use.
	ErrBusy = errors.New("http1: all connections to the node are in use")
	// ErrClosed: the upstream or the server was closed.
	ErrClosed = errors.New("http1: closed")
)

// Upstream is one node: its pool of connections and what is known of its being
// there. Safe for use by many goroutines.
//
// Connections are reused newest first, and looked at before: one on which
// anything arrived, or that was closed, is thrown away. After a failed connect
// the node is down: its unused connections are closed, and requests fail at once
// with ErrDown until a probe finds it back. One that finds no probe under way
// starts one.
type Upstream struct {
	cfg UpstreamConfig
	log hclog.Logger
	// askAfter is cfg.AskAfter in ticks.
	askAfter  int64
	made      time.Time
	probeWait time.Duration
	stats     UpstreamStats
	up        atomic.Bool // as !down, for readers without the lock
	lost      atomic.Bool
	late      atomic.Int64 // until when it gets no Spare's request, in ns since 1970; 0: it does

	watched atomic.Bool  // the watcher is there, which is the prober, too
	well    atomic.Int64 // when the watcher had an answer last, in ns since made; 0: never

	mu      sync.Mutex
	idle    []*upConn // by the time they were put, the oldest first
	waiting []chan *upConn
	open    int // in use, idle, and being made; upgraded ones left out
	down    bool
	refuses bool          // the last connect that failed was refused, not left without an answer
	probing bool          // a probe is under way, or asked for
	probed  chan struct{} // closed at the end of the probe that a request waits for; nil: none does
	prober  bool          // the goroutine is there
	asked   *upConn       // the watcher's own connection
	closed  bool
	sweeper *time.Timer

	wake    chan struct{} // has the prober, or the watcher, look at once
	stop    chan struct{} // closed by Close
	probers sync.WaitGroup
}

// upConn is a connection to an upstream, owned by one request at a time.
type upConn struct {
	sock
	up     *Upstream
	parked time.Duration // when it was put, by the clock of put's caller
	since  time.Time     // a sweep first saw it unused; zero while in use
	reused bool
	apart  bool // for an upgrade: not counted in open, never put back
}

// NewUpstream makes an Upstream; no connection is made before the first
// request. Close it when the last Decision that names it has been made.
func NewUpstream(cfg UpstreamConfig) (*Upstream, error) {
	if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
		return nil, fmt.Errorf("http1: upstream %q: address %q is not host:port: %w", cfg.Name, cfg.Addr, err)
	}
	if cfg.Logger == nil {
		return nil, errors.New("http1: an upstream needs a logger")
	}
	setDefault(&cfg.ConnectTimeout, time.Second)
	setDefault(&cfg.IdleTimeout, 30*time.Second)
	setDefault(&cfg.MaxConns, 1024)
	setDefault(&cfg.MaxIdle, 256)
	setDefault(&cfg.Wait, 50*time.Millisecond)
	setDefault(&cfg.ProbeEvery, 500*time.Millisecond)
	u := &Upstream{cfg: cfg, log: cfg.Logger, made: time.Now(), probeWait: probeWait, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	if cfg.AskAfter > 0 {
		u.askAfter = ticks(cfg.AskAfter)
	}
	u.up.Store(true)
	u.sweeper = time.AfterFunc(cfg.IdleTimeout/4, u.sweep)
	return u, nil
}

func setDefault[T time.Duration | int](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Name gives the name it was made with.
func (u *Upstream) Name() string { return u.cfg.Name }

// unreachable is the answer where no connection could be had. It names the node as
// the directory does; its address is no concern of clients.
func (u *Upstream) unreachable() *reject {
	if r := u.cfg.Region; r != "" {
		return &reject{502, "region_unreachable", "region " + r + ", where this is, cannot be reached from here and nothing was sent to it; try again, or ask a proxy of that region"}
	}
	who := "node " + u.cfg.Name
	if u.cfg.Name == "" || u.cfg.Name[0] == '@' { // no node is called so
		who = "the server"
	}
	return &reject{502, "node_unreachable", who + " cannot be reached and nothing was sent to it; try again"}
}

// Region gives the region whose router it is, "" for a node.
func (u *Upstream) Region() string { return u.cfg.Region }

// Addr gives the address it was made with.
func (u *Upstream) Addr() string { return u.cfg.Addr }

// Up tells whether the last connect succeeded, or none has been tried.
func (u *Upstream) Up() bool { return u.up.Load() }

// SetLost says whether the node is lost: whoever knows it has given up that it
// answers, though connections to it may not show that. Requests that wait for its answer
// are asked about then (Handler.Lost). It tells whether that is news.
func (u *Upstream) SetLost(lost bool) (changed bool) { return u.lost.Swap(lost) != lost }

// Lost tells what SetLost said last, or the watcher has found out (Doubt).
func (u *Upstream) Lost() bool { return u.lost.Load() }

// Stats gives its counters.
func (u *Upstream) Stats() *UpstreamStats { return &u.stats }

// CloseIdle closes the unused connections.
func (u *Upstream) CloseIdle() {
	u.mu.Lock()
	idle := u.takeIdleLocked()
	u.mu.Unlock()
	closeAll(idle)
}

// Close closes the unused connections and ends the probes. Requests under way
// end as they would; new ones fail with ErrClosed.
func (u *Upstream) Close() {
	u.mu.Lock()
	first := !u.closed
	u.closed = true
	idle := u.takeIdleLocked()
	for _, w := range u.waiting {
		close(w)
	}
	u.waiting = nil
	if u.asked != nil {
		_ = u.asked.nc.Close() // the watcher is woken, and ends
	}
	u.mu.Unlock()
	if first {
		close(u.stop)
		u.sweeper.Stop()
	}
	closeAll(idle)
	u.probers.Wait()
}

func (u *Upstream) takeIdleLocked() []*upConn {
	idle := u.idle
	u.idle = nil
	u.open -= len(idle)
	u.stats.Idle.Add(-int64(len(idle)))
	u.stats.Open.Add(-int64(len(idle)))
	return idle
}

func closeAll(conns []*upConn) {
	for _, c := range conns {
		_ = c.nc.Close()
	}
}

// peekAfter is how long a connection must have been unused to be looked at
// before reuse. Sooner than that the look tells next to nothing, as what it looks
// for would still be on its way, and under load it is one system call in five.
const peekAfter = 30 * time.Microsecond

// get gives a connection to send a request on: an unused one, unless fresh is
// asked for, or a new one. now is of the clock that put is given, and may be
// a little old.
func (u *Upstream) get(fresh bool, now time.Duration) (*upConn, error) {
	u.mu.Lock()
	for !fresh && len(u.idle) > 0 {
		c := u.popLocked()
		u.mu.Unlock()
		if now-c.parked < peekAfter || c.peek() == peekQuiet {
			c.reused = true
			u.stats.Reused.Add(1)
			return c, nil
		}
		u.stats.Stale.Add(1)
		u.discard(c)
		u.mu.Lock()
	}
	if u.closed {
		u.mu.Unlock()
		return nil, ErrClosed
	}
	if u.down {
		if u.probedLocked() {
			return u.get(fresh, now)
		}
		return nil, ErrDown
	}
	if u.open >= u.cfg.MaxConns {
		return u.waitLocked()
	}
	u.open++
	u.mu.Unlock()
	return u.connect(false)
}

func (u *Upstream) popLocked() *upConn {
	last := len(u.idle) - 1
	c := u.idle[last]
	u.idle[last] = nil
	u.idle = u.idle[:last]
	u.stats.Idle.Add(-1)
	if !c.since.IsZero() {
		c.since = time.Time{}
	}
	return c
}

// waitLocked waits for a connection to come back. It unlocks.
func (u *Upstream) waitLocked() (*upConn, error) {
	w := make(chan *upConn, 1)
	u.waiting = append(u.waiting, w)
	u.mu.Unlock()
	t := time.NewTimer(u.cfg.Wait)
	defer t.Stop()
	select {
	case c, ok := <-w:
		return u.waited(c, ok)
	case <-t.C:
	}
	u.mu.Lock()
	for i, x := range u.waiting {
		if x == w {
			u.waiting = append(u.waiting[:i], u.waiting[i+1:]...)
			u.mu.Unlock()
			u.stats.Busy.Add(1)
			return nil, ErrBusy
		}
	}
	u.mu.Unlock()
	c, ok := <-w // handed over at the last moment
	return u.waited(c, ok)
}

// waited takes what a waiter was handed: a connection, or the right to make one.
func (u *Upstream) waited(c *upConn, ok bool) (*upConn, error) {
	switch {
	case !ok:
		return nil, ErrDown
	case c == nil:
		return u.connect(false)
	}
	c.reused = true
	u.stats.Reused.Add(1)
	return c, nil
}

// put gives a connection back that is at the start of a request.
func (u *Upstream) put(c *upConn, now time.Duration) {
	c.parked = now
	if c.apart {
		u.discard(c)
		return
	}
	u.mu.Lock()
	if u.closed || u.down || len(u.idle) >= u.cfg.MaxIdle {
		u.mu.Unlock()
		u.discard(c)
		return
	}
	if len(u.waiting) > 0 {
		w := u.waiting[0]
		u.waiting = u.waiting[1:]
		u.mu.Unlock()
		w <- c
		return
	}
	u.idle = append(u.idle, c)
	u.stats.Idle.Add(1)
	u.mu.Unlock()
}

// discard closes a connection.
func (u *Upstream) discard(c *upConn) {
	_ = c.nc.Close()
	u.stats.Open.Add(-1)
	if !c.apart {
		u.leave()
	}
}

// leave gives up a place in open; whoever waits may make a connection.
func (u *Upstream) leave() {
	u.mu.Lock()
	if len(u.waiting) > 0 && !u.down {
		w := u.waiting[0]
		u.waiting = u.waiting[1:]
		u.mu.Unlock()
		w <- nil
		return
	}
	u.open--
	u.mu.Unlock()
}

// sweep closes connections that were unused for too long, or that their peer
// has closed.
func (u *Upstream) sweep() {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	now := time.Now()
	limit := now.Add(-u.cfg.IdleTimeout / 2) // seen first, and again, up to a quarter late
	var old []*upConn
	kept := u.idle[:0]
	for _, c := range u.idle {
		if c.since.IsZero() {
			c.since = now
		}
		if c.since.Before(limit) || c.peek() != peekQuiet {
			old = append(old, c)
		} else {
			kept = append(kept, c)
		}
	}
	clear(u.idle[len(kept):])
	u.idle = kept
	u.open -= len(old)
	u.stats.Idle.Add(-int64(len(old)))
	u.stats.Open.Add(-int64(len(old)))
	u.sweeper.Reset(u.cfg.IdleTimeout / 4)
	u.mu.Unlock()
	closeAll(old)
}
