package http1

import (
	"sync"
	"time"
)

// tick is the reaper's period and the unit of the coarse clock.
const tick = 50 * time.Millisecond

// phase is what a client connection is doing, as the reaper sees it.
type phase uint64

const (
	phaseIdle   phase = iota // between requests
	phaseHead                // a head has begun
	phaseWait                // the request is on its way, its answer's head is not there
	phaseRelay               // waiting for more of the answer, or its end
	phaseWrite               // writing to the client
	phaseHold                // in Refused, Settle, or waiting out a delay
	phaseServe               // in a ServeFunc
	phaseTunnel              // upgraded
	phaseLinger              // answered; reading what the client still sends
)

// cause is why the reaper or Shutdown ended what a connection was doing.
type cause uint64

const (
	causeNone     cause = iota
	causeIdle           // idle for too long
	causeHead           // the head took too long
	causeUpstream       // the node took too long
	causeSlowBody       // the client sends its body too slowly
	causeStalled        // the client does not read
	causeGone           // the client has closed
	causeDrain          // Shutdown, while idle
	causeStop           // the server ends at once
	causeLost           // the node was lost: not an end, the goroutine is to look whether to wait on
)

// A connection's state is one word, written by its goroutine when it goes from
// one phase to the next and read by the reaper:
//
//	tick at which the phase began or last made progress <<16 | cause <<8 | phase
//
// The reaper ends a phase by putting a cause into the word it has judged, with
// a compare-and-swap: where the connection has gone on meanwhile, that fails and
// nothing happens. Only then does it wake the goroutine, by deadlines in the
// past on the client's connection and on the upstream connection in use. The
// goroutine finds the cause when it leaves the phase, at the latest; it never
// pools an upstream connection after that. causeLost ends nothing: it wakes the
// reading of an answer alone.
type state uint64

const causeBits = 0xff << 8

func makeState(now uint64, p phase) state { return state(now<<16 | uint64(p)) }
func (s state) phase() phase              { return phase(s & 0xff) }
func (s state) cause() cause              { return cause(s >> 8 & 0xff) }
func (s state) since() uint64             { return uint64(s >> 16) }

// ended tells whether the phase was ended.
func (s state) ended() bool { return s.cause() != causeNone && s.cause() != causeLost }

// enter goes to the next phase and gives the cause by which the last one was
// ended. A cause stays: the connection is to be closed.
func (c *conn) enter(p phase) cause {
	old := state(c.state.Swap(uint64(makeState(c.srv.now.Load(), p))))
	if k := old.cause(); k != causeNone {
		c.kick.Lock() // the reaper has done all it does
		if u := c.up.Load(); k == causeLost && u != nil {
			_ = u.nc.SetReadDeadline(time.Time{})
		} else if k != causeLost {
			c.ended = k
		}
		c.kick.Unlock()
	}
	return c.ended
}

// progress says that the phase is getting on. Called by the uploader too.
func (c *conn) progress(p phase) {
	old := state(c.state.Load())
	if now := c.srv.now.Load(); old.phase() == p && old.cause() == causeNone && old.since() != now {
		c.state.CompareAndSwap(uint64(old), uint64(makeState(now, p)))
	}
}

// end ends the phase that the connection was seen in; false if it has left it.
func (c *conn) end(seen state, k cause) bool {
	c.kick.Lock()
	defer c.kick.Unlock()
	if !c.state.CompareAndSwap(uint64(seen), uint64(seen)&^causeBits|uint64(k)<<8) {
		return false
	}
	_ = c.sock.nc.SetDeadline(past)
	if u := c.up.Load(); u != nil {
		_ = u.nc.SetDeadline(past)
	}
	c.gone.close()
	return true
}

// nudge has the goroutine look whether to go on waiting for the answer of a node
// that was lost. The client's connection, and what is being written, stay as they are.
func (c *conn) nudge(seen state) {
	c.kick.Lock()
	defer c.kick.Unlock()
	if !c.state.CompareAndSwap(uint64(seen), uint64(seen)|uint64(causeLost)<<8) {
		return
	}
	if u := c.up.Load(); u != nil {
		_ = u.nc.SetReadDeadline(past)
	}
}

// nudged tells whether nudge has asked since the phase began, or goOn was called.
func (c *conn) nudged() bool { return state(c.state.Load()).cause() == causeLost }

// goOn goes on after a nudge. The phase is as old as it was.
func (c *conn) goOn(uc *upConn) {
	c.kick.Lock()
	defer c.kick.Unlock()
	if seen := c.state.Load(); state(seen).cause() == causeLost {
		c.state.Store(seen &^ causeBits) // nobody else changes a state with a cause, but with kick held
		_ = uc.nc.SetReadDeadline(time.Time{})
	}
}

// revive lets the connection be used again after it was ended, to say so to the client.
func (c *conn) revive() {
	c.kick.Lock()
	defer c.kick.Unlock()
	_ = c.sock.nc.SetDeadline(time.Time{})
	if c.ended == causeNone {
		c.gone.reset()
	}
}

// goneSignal is a channel that is made when somebody asks for it.
type goneSignal struct {
	mu     sync.Mutex
	ch     chan struct{}
	closed bool
}

func (g *goneSignal) channel() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
		if g.closed {
			close(g.ch)
		}
	}
	return g.ch
}

func (g *goneSignal) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.ch != nil {
		close(g.ch)
	}
	g.closed = true
}

func (g *goneSignal) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.ch, g.closed = nil, false
	}
}

func (c *conn) goneChan() <-chan struct{} { return c.gone.channel() }
