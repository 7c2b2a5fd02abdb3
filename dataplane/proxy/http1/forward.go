package http1

import (
	"errors"
)

const (
	maxAttempts = 10_000 // of one request, whatever the Handler says: it bounds them by time
	maxInterim  = 16     // 1xx answers before the final one
)

var (
	errBusyNode     = &reject{503, "upstream_busy", "all connections to the node are in use; try again"}
	errUnknown      = &reject{502, "outcome_unknown", "the connection to the node broke after the request was sent: it may have been executed; send an Idempotency-Key to have it sent again safely"}
	errLost         = &reject{502, "outcome_unknown", "the server that this was sent to answers no more, and another has taken over: the request may have been executed; send an Idempotency-Key to have it sent again safely"}
	errCutOff       = &reject{502, "outcome_unknown", "the tenant's region could not be reached any more before it answered: the request may have been executed; send an Idempotency-Key to have it sent again safely"}
	errTimeout      = &reject{504, "upstream_timeout", "the node did not answer in time; the request may have been executed"}
	errBadAnswer    = &reject{502, "bad_gateway", "the node's answer is not valid HTTP/1.1"}
	errMisdirected  = &reject{503, "misdirected", "the node does not hold this any more and where it went is not known yet; try again"}
	errUndecided    = &reject{503, "overloaded", "the proxy cannot say yet where this is; try again"}
	errShuttingDown = &reject{503, "shutting_down", "the proxy is shutting down; try again"}
)

// verdict is what became of one attempt.
type verdict uint8

const (
	answered verdict = iota // the client has its answer, or has gone
	again                   // send the request once more
)

// forward sends the request to its upstream and relays the answer.
func (c *conn) forward() {
	x := c.x
	if err := x.body.start(c); err != nil {
		c.respond(err, nil)
		return
	}
	for c.attempt() == again {
		c.node.release()
	}
}

// attempt is one sending of the request.
func (c *conn) attempt() verdict {
	x := c.x
	if x.decision.Action == ActionDefer {
		return c.undecided()
	}
	x.attempt++
	u := x.decision.Upstream
	uc, err := c.connect(u)
	if err != nil {
		return c.unreachable(u, err)
	}
	if spare := x.decision.Spare; spare != c.spare.Load() {
		c.spare.Store(spare)
	}
	c.up.Store(uc)
	if state(c.state.Load()).ended() {
		return c.noAnswer(uc, ErrClosed) // ended while it had no connection that could be woken
	}
	began := c.srv.nanos()
	out, err, rerr := c.send(uc)
	if err != nil && !out && !x.sent && x.attempt < maxAttempts {
		c.drop(uc) // closed while it was unused: nothing has gone out
		return again
	}
	// Where the connection broke later, an answer may have come before.
	x.sent = true
	switch nudged := c.nudged(); {
	case rerr != nil && !nudged:
		return c.noAnswer(uc, rerr)
	case err != nil && !out && nudged:
		return c.noAnswer(uc, err) // woken before it could be sent
	}
	if v, ok := c.awaitHead(uc); !ok {
		return v
	}
	x.headAt = c.srv.nanos()
	if x.decision.Spare {
		uc.up.spareAnswered()
	}
	c.srv.stats.UpstreamDuration.observe(x.headAt - began)
	return c.finalAnswer(uc)
}

func (c *conn) connect(u *Upstream) (*upConn, error) {
	if c.x.req.msg.upgrade {
		return u.getApart()
	}
	return u.get(c.x.resent, c.x.start)
}

// undecided has the Handler decide, where it may block.
func (c *conn) undecided() verdict {
	v, ok := c.refused(&Refusal{Kind: Undecided, Attempt: c.x.attempt})
	if !ok {
		c.respond(errUndecided, nil)
	}
	return v
}

// unreachable asks the Handler what to do where no connection could be had.
func (c *conn) unreachable(u *Upstream, err error) verdict {
	x := c.x
	if c.ended == causeNone && x.body.replayable() {
		f := Refusal{Kind: Unreachable, Attempt: x.attempt, Upstream: u, Err: err}
		if v, ok := c.refused(&f); ok {
			return v
		}
	}
	answer := u.unreachable()
	switch {
	case errors.Is(err, ErrBusy):
		answer = errBusyNode
	case x.resent && !safe(x.req.msg.method):
		answer = errUnknown
		c.srv.stats.Unknown.Add(1)
	}
	c.respond(answer, nil)
	return answered
}

// refused asks the Handler about an attempt without effect. Not ok: it has
// nothing better than the answer that the refusal has.
func (c *conn) refused(f *Refusal) (verdict, bool) {
	x := c.x
	if f.Kind != Undecided {
		c.srv.stats.Refused.Add(1)
	}
	if x.attempt >= maxAttempts {
		return answered, false
	}
	c.enter(phaseHold)
	more := c.srv.cfg.Handler.Refused(&x.req, *f, &x.decision)
	switch k := c.enter(phaseWait); {
	case k == causeGone:
		x.keep = false
		return answered, true
	case k != causeNone || !more || f.Final:
		return answered, false
	case x.decision.Action == ActionForward || x.decision.Action == ActionDefer:
		x.sent = false
		return again, true
	}
	c.respondDecision()
	return answered, true
}

// send writes the head and what is there of the body, and starts the upload of
// the rest. out tells whether anything may have gone out; rerr is from reading
// the answer, which it begins where that can be had in the same go.
func (c *conn) send(uc *upConn) (out bool, err, rerr error) {
	x := c.x
	b := &x.body
	mem := c.srv.pools.small.Get().(*[smallBuffer]byte)
	head := x.appendRequest(mem[:0], uc.up.cfg.Addr)
	first := b.first
	if len(head)+len(first) <= cap(head) {
		head, first = append(head, first...), nil
	}
	if alone := len(first)+len(b.later) == 0 && b.done; alone {
		err, rerr = uc.ask(head, &c.node)
	} else {
		err = uc.write(head)
	}
	out = uc.written > 0
	c.srv.pools.small.Put(mem)
	for _, piece := range [...][]byte{first, b.later} {
		if err == nil && len(piece) > 0 {
			err = uc.write(piece)
		}
	}
	if err == nil && !b.done {
		x.up.start(c, b, uc)
	}
	return out, err, rerr
}

// awaitHead reads until the final answer's head is there and parsed. Not ok:
// the attempt has ended with the verdict.
func (c *conn) awaitHead(uc *upConn) (verdict, bool) {
	x := c.x
	scanned, interim := 0, 0
	for {
		if c.node.len() > 0 {
			end, next, err := headEnd(c.node.bytes(), scanned)
			if err != nil || end > maxHead || (end == 0 && c.node.len() > maxHead) {
				return c.badAnswer(uc), false
			}
			scanned = next
			if end > 0 {
				head := c.node.data[c.node.r : c.node.r+end : c.node.r+end]
				c.node.r += end
				if err := x.answer.parseAnswer(head, string(x.req.msg.method) == "HEAD"); err != nil {
					return c.badAnswer(uc), false
				}
				if x.answer.status >= 200 {
					return answered, true
				}
				if x.answer.status == 101 && x.req.msg.upgrade {
					return answered, true
				}
				if interim++; interim > maxInterim || x.answer.status == 101 || !c.interim() {
					return c.badAnswer(uc), false
				}
				scanned = 0
				continue
			}
		}
		c.node.room()
		if err := c.fillAnswer(uc); err != nil {
			return c.noAnswer(uc, err), false
		}
	}
}

// errGivenUp says that the Handler gave a node up.
var errGivenUp = errors.New("http1: the node was given up")

// fillAnswer reads more of an answer's head. Where the node was lost, or has taken long
// for a Spare's, it has the Handler say whether to wait on.
func (c *conn) fillAnswer(uc *upConn) error {
	for {
		err := uc.fill(&c.node)
		if err == nil || !c.nudged() {
			return err
		}
		if c.srv.cfg.Handler.Lost(&c.x.req, uc.up, &c.x.decision) {
			return errGivenUp
		}
		c.goOn(uc)
	}
}

// interim relays 100 to a client that waits for it and drops other 1xx answers.
// False: the client cannot be written to.
func (c *conn) interim() bool {
	x := c.x
	if x.answer.status != 100 || !x.req.msg.expect100 {
		return true
	}
	c.uploading.Store(x.up.running)
	return c.sock.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) == nil
}

// drop ends the use of an upstream connection that cannot be used again.
func (c *conn) drop(uc *upConn) {
	c.x.up.stop(c)
	c.up.Store(nil)
	uc.up.discard(uc)
}

// badAnswer gives up a node's answer that cannot be relayed.
func (c *conn) badAnswer(uc *upConn) verdict {
	c.srv.stats.BadAnswers.Add(1)
	uc.up.stats.Errors.Add(1)
	c.drop(uc)
	c.respond(errBadAnswer, nil)
	return answered
}

// noAnswer decides what follows where no head of an answer came.
func (c *conn) noAnswer(uc *upConn, err error) verdict {
	x := c.x
	k := c.enter(phaseWait)
	body := x.up.failed()
	c.drop(uc)
	switch {
	case k == causeUpstream:
		uc.up.stats.Errors.Add(1)
		c.respondLast(errTimeout)
		return answered
	case k == causeSlowBody:
		c.respondLast(errSlowBody)
		return answered
	case k == causeStop:
		c.respondLast(errShuttingDown)
		return answered
	case k != causeNone: // the client is gone
		x.keep = false
		return answered
	case body != nil:
		x.keep = false
		if r := brokenBody(body); r != nil {
			c.respond(r, nil)
		}
		return answered
	}
	if c.spare.Load() && x.body.replayable() && (err == errGivenUp || c.srv.cfg.Handler.Lost(&x.req, uc.up, &x.decision)) {
		uc.up.failSpare(err)
		x.sent = false // without effect
		return again
	}
	uc.up.broken(err)
	m := &x.req.msg
	if !x.resent && (safe(m.method) || m.once) && x.body.replayable() {
		x.resent = true
		c.srv.stats.Resent.Add(1)
		return again
	}
	c.srv.stats.Unknown.Add(1)
	switch {
	case err == errGivenUp && uc.up.cfg.Region != "":
		c.respond(errCutOff, nil)
	case err == errGivenUp:
		c.respond(errLost, nil)
	default:
		c.respond(errUnknown, nil)
	}
	return answered
}

// safe tells whether executing a request twice is as executing it once, by R2.
func safe(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS":
		return true
	}
	return false
}
