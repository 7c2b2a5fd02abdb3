package http1

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

// maxRefusal is how much of a refusal's body is read.
const maxRefusal = 4 << 10

// finalAnswer relays the answer whose head is there, or has the request sent on.
func (c *conn) finalAnswer(uc *upConn) verdict {
	x := c.x
	if x.answer.status == 101 {
		c.tunnel(uc)
		return answered
	}
	if s := x.answer.status; s == 421 || s == 503 || s == 504 && x.decision.Spare {
		if f, ok := c.readRefusal(uc); ok {
			if v, done := c.refusal(uc, f); done {
				return v
			}
			uc = c.up.Load() // nil: all of the answer is here
		}
	}
	c.relay(uc)
	return answered
}

// readRefusal tells whether the answer is a refusal without effect.
func (c *conn) readRefusal(uc *upConn) (*Refusal, bool) {
	x := c.x
	a := &x.answer
	f := &Refusal{Kind: Misdirected, Attempt: x.attempt, Upstream: uc.up}
	if a.status != 421 {
		f.Kind = Unavailable
	}
	if a.body == BodyLength && a.length <= maxRefusal {
		if int64(c.node.len()) < a.length {
			a.buf = bytes.Clone(a.buf) // reading on may give up, or move, what it is in
		}
		for int64(c.node.len()) < a.length {
			c.node.room()
			if c.fillAnswer(uc) != nil {
				break
			}
		}
		f.Body = c.node.bytes()[:min(c.node.len(), int(a.length))]
		var body struct {
			Code string `json:"code"`
		}
		if json.Unmarshal(f.Body, &body) == nil {
			f.Code = body.Code
		}
	}
	switch f.Code {
	case "no_lease", "lease_lapsed", "not_named", "transfer_in_progress":
		return f, true
	}
	return f, f.Kind == Misdirected || x.decision.Spare && x.body.replayable()
}

// refusal asks the Handler to send the request on. Not done: the node's answer
// is to be relayed.
func (c *conn) refusal(uc *upConn, f *Refusal) (verdict, bool) {
	x := c.x
	a := &x.answer
	if !x.up.complete() {
		x.up.stop(c)
		c.drop(uc)
	} else if rest := int64(c.node.len()); a.reusable() && (a.body == BodyNone && rest == 0 || a.body == BodyLength && rest == a.length) {
		x.up.stop(c)
		c.giveBack(uc)
	} else {
		c.drop(uc)
	}
	f.Final = !x.body.replayable()
	c.slim(f)
	if v, ok := c.refused(f); ok {
		return v, true
	}
	if k := c.ended; k != causeNone && k != causeStop {
		x.keep = false
		return answered, true
	}
	whole := a.body == BodyNone || int64(c.node.len()) >= a.length && a.body == BodyLength
	if f.Kind == Misdirected || !whole {
		c.respond(errMisdirected, nil)
		return answered, true
	}
	return answered, false
}

// slim keeps of a refusal what is relayed if the request is not sent on, in as
// little memory as that takes: the request may be held for long.
func (c *conn) slim(f *Refusal) {
	a, b := &c.x.answer, &c.node
	if a.body == BodyChunked || a.body == bodyClose {
		return // an answer of the proxy's own is given in its place
	}
	a.buf = bytes.Clone(a.buf)
	rest := append([]byte(nil), b.bytes()...)
	b.release()
	b.data, b.w = rest, len(rest)
	f.Body = rest[:min(len(rest), len(f.Body))]
}

// giveBack returns an upstream connection that is at the start of a request.
func (c *conn) giveBack(uc *upConn) {
	c.up.Store(nil)
	nudged := c.nudged() // then uc may not be read from any more
	if c.enter(phaseWrite) == causeNone && !nudged {
		uc.up.put(uc, c.x.headAt)
	} else {
		uc.up.discard(uc)
	}
}

// relay sends the answer to the client, as it comes. uc is nil where the
// connection is not needed any more: all of the answer is in c.node.
func (c *conn) relay(uc *upConn) {
	x := c.x
	a := &x.answer
	http10 := x.req.msg.minor == 0
	early := !x.up.complete()
	if early || a.body == bodyClose || (http10 && a.body == BodyChunked) || c.srv.draining.Load() {
		x.keep = false
	}
	if http10 && a.body == BodyChunked {
		a.dropFraming()
	}
	src := answerSource{kind: a.body, left: a.length, chunk: chunkScanner{strip: http10}}
	src.done = a.body == BodyNone
	piece, err := src.take(&c.node)
	if err != nil {
		c.badAnswer(uc)
		return
	}
	if uc != nil && src.done && !early {
		c.release(uc)
		uc = nil
	} else {
		c.enter(phaseWrite)
	}
	if c.ended == causeUpstream {
		c.endEarly(uc)
		c.respondLast(errTimeout)
		return
	}
	if c.ended != causeNone || !c.hooks(uc) || !c.writeAnswer(piece) {
		c.endEarly(uc)
		return
	}
	if !src.done && !c.stream(uc, &src) {
		return
	}
	if uc != nil {
		if early && x.up.complete() {
			early = false
		}
		if early {
			c.drop(uc)
		} else {
			c.release(uc)
		}
	}
}

// release ends the use of an upstream connection whose answer is complete.
// Bytes behind the answer mean that the two sides do not agree on where it ends.
func (c *conn) release(uc *upConn) {
	c.x.up.stop(c)
	if !c.x.answer.reusable() || c.node.len() > 0 {
		c.drop(uc)
		c.enter(phaseWrite)
		return
	}
	c.giveBack(uc)
}

// hooks lets the Handler see the answer and waits as long as it asks for. False
// ends the request.
func (c *conn) hooks(uc *upConn) bool {
	x := c.x
	x.view = Answer{Status: x.answer.status, Upstream: x.decision.Upstream, msg: &x.answer}
	if w := x.req.watcher; w != nil {
		w.Answered()
	}
	delay := c.srv.cfg.Handler.Answered(&x.req, &x.view)
	if delay <= 0 && x.decision.Settle == nil {
		return true
	}
	if c.enter(phaseHold) == causeNone {
		if delay > 0 {
			t := time.NewTimer(delay)
			select {
			case <-t.C:
			case <-c.goneChan():
			}
			t.Stop()
		}
		if x.decision.Settle != nil {
			x.decision.Settle(&x.req, &x.view)
		}
	}
	return c.enter(phaseWrite) == causeNone
}

// endEarly ends a request whose client is gone or does not read.
func (c *conn) endEarly(uc *upConn) {
	c.x.keep = false
	if uc != nil {
		c.drop(uc)
	}
}

// writeAnswer writes the head and the part of the body that came with it.
func (c *conn) writeAnswer(piece []byte) bool {
	x := c.x
	mem := c.srv.pools.small.Get().(*[smallBuffer]byte)
	out := x.appendAnswer(mem[:0])
	if len(out)+len(piece) <= cap(out) {
		out, piece = append(out, piece...), nil
	}
	x.began = true
	err := c.sock.write(out)
	c.srv.pools.small.Put(mem)
	if err == nil && len(piece) > 0 {
		err = c.sock.write(piece)
	}
	if err != nil {
		x.keep = false
		c.srv.stats.Aborted.Add(1)
		return false
	}
	x.status = x.answer.status
	return true
}

// stream relays the rest of the body, each piece as soon as it is there. False:
// it could not be relayed to its end, and both connections are done with.
func (c *conn) stream(uc *upConn, src *answerSource) bool {
	b := &c.node
	for !src.done {
		c.enter(phaseRelay)
		src.prepare(b)
		if err := uc.fill(b); err != nil {
			if err == io.EOF && src.kind == bodyClose {
				return true
			}
			return c.truncated(uc, src)
		}
		src.full = b.w == len(b.data)
		piece, bad := src.take(b)
		if bad != nil {
			return c.truncated(uc, src)
		}
		c.enter(phaseWrite)
		if len(piece) > 0 && c.sock.write(piece) != nil {
			c.srv.stats.Aborted.Add(1)
			c.endEarly(uc)
			return false
		}
	}
	return true
}

// truncated ends an answer that the node cut short: the client must not take it
// for complete.
func (c *conn) truncated(uc *upConn, src *answerSource) bool {
	x := c.x
	if c.enter(phaseRelay) == causeNone {
		c.srv.stats.Truncated.Add(1)
		uc.up.stats.Errors.Add(1)
	} else {
		c.srv.stats.Aborted.Add(1)
	}
	c.drop(uc)
	x.keep = false
	if src.kind == bodyClose || src.chunk.strip {
		c.sock.reset() // an end would look like the answer's
	}
	return false
}

// answerSource gives a node's body piece by piece, out of what was read.
type answerSource struct {
	kind  BodyKind
	left  int64
	chunk chunkScanner
	done  bool
	full  bool // the last read filled the buffer
}

// take gives what b holds of the body.
func (s *answerSource) take(b *buffer) ([]byte, *reject) {
	have := b.bytes()
	switch s.kind {
	case BodyNone:
		return nil, nil
	case BodyLength:
		n := int(min(int64(len(have)), s.left))
		s.left -= int64(n)
		s.done = s.left == 0
		b.r += n
		return have[:n], nil
	case bodyClose:
		b.r = b.w
		return have, nil
	}
	in, out, err := s.chunk.scan(have)
	if err != nil {
		return nil, err
	}
	b.r += in
	s.done = s.chunk.done
	return have[:out], nil
}

// prepare gets b ready for reading more; what was given from it is used up.
func (s *answerSource) prepare(b *buffer) {
	b.skip(0)
	b.long = s.full || s.left > smallBuffer
	if b.long && b.data != nil {
		b.needBig()
	}
	b.room()
}
