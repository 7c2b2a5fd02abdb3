package http1

import (
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection. All is owned by its goroutine but for the
// groups that say otherwise.
type conn struct {
	srv      *Server
	sock     sock
	remote   netip.AddrPort // static
	remoteIP string         // static
	secure   bool           // static
	overflow bool           // static: over MaxConns

	in    buffer    // from the client: the head being served, what follows it
	node  buffer    // from the node in use
	x     *exchange // while a request is being served
	ended cause     // the first cause that enter has found

	// shared with the reaper and Shutdown
	state atomic.Uint64
	up    atomic.Pointer[upConn] // the upstream connection in use
	spare atomic.Bool            // the attempt is a Decision's that has a Spare
	kick  sync.Mutex             // held while end works
	gone  goneSignal

	// shared with the uploader and the reaper
	uploading    atomic.Bool
	uploaded     atomic.Int64 // bytes
	waitsForNode atomic.Bool  // the uploader is writing

	// owned by the reaper
	hungUp    bool
	watchID   int32
	sentSeen  int64
	rateSince uint64
	rateFrom  int64
}

// exchange is what a request in progress needs beside its buffers.
type exchange struct {
	req      Request
	decision Decision
	answer   message
	view     Answer // of answer, for the Handler
	body     bodySource
	up       upload
	start    time.Duration // since the server's epoch, as headAt
	headAt   time.Duration // the answer's head was there
	began    bool          // something of a final answer was written
	keep     bool          // the client's connection can serve another request
	status   int           // answered; 0: nothing
	sent     bool          // something of the request may have reached a node
	resent   bool
	attempt  int
}

// begin gets an exchange ready for a request.
func (c *conn) begin() *exchange {
	x := c.x
	if x == nil {
		x = c.srv.pools.exchanges.Get().(*exchange)
		c.x = x
		x.req.conn = c
	}
	x.began, x.keep, x.sent, x.resent = false, false, false, false
	x.req.watcher = nil
	x.status, x.attempt, x.view = 0, 0, Answer{}
	return x
}

// beginBad is begin where no request could be read.
func (c *conn) beginBad() {
	x := c.begin()
	x.start = c.srv.nanos()
	x.req.msg.reset(nil)
	x.decision = Decision{Lines: x.decision.Lines[:0]}
	c.identify(&x.req)
	x.body = bodySource{done: true}
	c.srv.stats.Malformed.Add(1)
}

// rest gives the exchange back before the connection waits for its next request.
func (c *conn) rest() {
	x := c.x
	if x == nil {
		return
	}
	c.x = nil
	x.req.conn, x.req.id, x.req.watcher = nil, nil, nil
	x.req.msg.reset(nil)
	x.answer.reset(nil)
	x.view = Answer{}
	x.decision = Decision{Lines: x.decision.Lines[:0]}
	x.body = bodySource{}
	if cap(x.req.msg.fields) <= 128 && cap(x.answer.fields) <= 128 && cap(x.decision.Lines) <= 4096 {
		c.srv.pools.exchanges.Put(x)
	}
}

// run serves the connection until it ends.
func (c *conn) run() {
	defer c.srv.forget(c)
	defer c.finish()
	defer c.recovered()
	if c.secure && !c.handshake() {
		return
	}
	if c.overflow {
		c.srv.stats.Overflowed.Add(1)
		c.beginBad()
		c.refuse(&reject{503, "too_many_connections", "the proxy has as many connections as it may have; try again"})
		return
	}
	for c.next() {
		if !c.serve() {
			return
		}
	}
}

// finish closes the connection and gives everything back.
func (c *conn) finish() {
	_ = c.sock.nc.Close()
	if u := c.up.Load(); u != nil {
		c.up.Store(nil)
		u.up.discard(u)
	}
	c.in.release()
	c.node.release()
	c.rest()
}

// recovered answers for a panic in the Handler. What the request had begun is in
// no known state, so both connections are closed.
func (c *conn) recovered() {
	p := recover()
	if p == nil {
		return
	}
	c.srv.stats.Panics.Add(1)
	c.srv.log.Error("panic while serving a request", "err", p, "stack", string(debug.Stack()))
	if x := c.x; x != nil {
		x.up.stop(c)
		if x.began {
			c.account(x)
			return
		}
		c.refuse(&reject{500, "internal", "the proxy failed on this request; its log says why"})
	}
}

func (c *conn) handshake() bool {
	t, ok := c.sock.nc.(interface{ Handshake() error })
	return !ok || t.Handshake() == nil
}

// next reads the next request's head into a new exchange. False ends the connection.
func (c *conn) next() bool {
	scanned := 0
	waiting := false // a head has begun and its time runs
	for {
		if c.in.len() > 0 {
			end, next, err := c.lookForHead(scanned)
			if err != nil {
				c.beginBad()
				c.refuse(err)
				return false
			}
			if end > 0 {
				return c.parse(end)
			}
			scanned = next
		}
		if c.in.len() > 0 && !waiting {
			waiting = true
			if c.enter(phaseHead) != causeNone {
				return false
			}
		}
		if c.in.len() == 0 {
			if !c.idle() {
				return false
			}
			if c.in.len() > 0 {
				continue
			}
		}
		c.in.room()
		if err := c.sock.fill(&c.in); err != nil {
			return c.lost(err)
		}
	}
}

// lookForHead skips an empty line before the request line, as RFC 9112 §2.2
// asks, and looks for the head's end.
func (c *conn) lookForHead(scanned int) (end, next int, err *reject) {
	b := c.in.bytes()
	if scanned == 0 && len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		c.in.skip(2)
		if b = c.in.bytes(); len(b) == 0 {
			return 0, 0, nil
		}
	}
	end, next, err = headEnd(b, scanned)
	if err == nil && (end > maxHead || (end == 0 && len(b) > maxHead)) {
		return 0, 0, errHeadTooLarge
	}
	return end, next, err
}

// idle gets the connection ready to wait for the first byte of a request.
func (c *conn) idle() bool {
	c.rest()
	return c.enter(phaseIdle) == causeNone
}

// lastRequest reads what has arrived already while the server shuts down, so
// that no request meets a reset. Without any it ends the connection.
func (c *conn) lastRequest() bool {
	c.in.room()
	if c.sock.tryFill(&c.in) == nil {
		return true
	}
	c.linger()
	return false
}

// lost ends a connection that can give no further head. While it was idle and
// Shutdown ended it, a request may have arrived in the same moment: it is served.
func (c *conn) lost(error) bool {
	empty := c.in.len() == 0
	switch c.enter(phaseLinger) {
	case causeDrain:
		c.ended = causeNone
		c.revive()
		return c.lastRequest() && c.next()
	case causeHead:
		c.revive()
		c.beginBad()
		c.refuse(&reject{408, "head_timeout", "the request's head took too long to arrive"})
	case causeNone:
		if !empty {
			c.srv.stats.Aborted.Add(1)
		}
	}
	return false
}

// parse takes the head, which is the first end bytes of in.
func (c *conn) parse(end int) bool {
	x := c.begin()
	x.start = c.srv.nanos()
	head := c.in.data[c.in.r : c.in.r+end : c.in.r+end]
	c.in.r += end // the bytes stay until the request has ended
	r := &x.req
	err := r.msg.parseRequest(head)
	c.identify(r)
	if k := c.enter(phaseWait); k == causeStop {
		return false
	} else if k != causeNone {
		// It was ended for being idle or slow, or by Shutdown, just as the head
		// became complete.
		c.ended = causeNone
		c.revive()
	}
	if err != nil {
		c.srv.stats.Malformed.Add(1)
		x.decision = Decision{Lines: x.decision.Lines[:0]}
		x.body = bodySource{done: true}
		c.refuse(err)
		return false
	}
	return true
}

// identify gives the request its id.
func (c *conn) identify(r *Request) {
	r.own = r.msg.id == nil
	if !r.own {
		r.id = r.msg.id
		return
	}
	c.srv.ids.id(&r.buf)
	r.id = r.buf[:]
}

// serve answers the request whose head is there. False ends the connection.
func (c *conn) serve() bool {
	x := c.x
	m := &x.req.msg
	d := &x.decision
	*d = Decision{Lines: d.Lines[:0]}
	x.keep = !m.close && (m.minor == 1 || m.keepAlive)
	x.body.init(c, m)
	c.srv.cfg.Handler.Route(&x.req, d)
	limit := c.srv.cfg.MaxBody
	if d.MaxBody > 0 {
		limit = d.MaxBody
	}
	x.body.limit = limit
	switch {
	case limit > 0 && m.body == BodyLength && m.length > limit:
		c.respond(errBodyTooLarge, nil)
	case d.Action == ActionForward || d.Action == ActionDefer:
		c.forward()
	case d.Action == ActionServe:
		c.serveLocal()
	default:
		c.respondDecision()
	}
	c.node.release()
	keep := x.keep && c.ended == causeNone
	c.account(x)
	if !keep {
		c.part(m)
		return false
	}
	x.body.finish(c)
	return true
}

// account counts the request once it has ended.
func (c *conn) account(x *exchange) {
	if w := x.req.watcher; w != nil {
		x.req.watcher = nil
		w.Ended()
	}
	st := &c.srv.stats
	route := x.decision.Route % MaxRoutes
	class := x.status / 100
	if class > 5 {
		class = 5
	}
	st.Requests[route][class].Add(1)
	if x.status != 0 {
		st.Duration[route].observe(c.srv.nanos() - x.start)
	}
	if x.status == 0 {
		st.Aborted.Add(1)
	}
}
