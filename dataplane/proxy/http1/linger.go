package http1

import "time"

const (
	lingerTime = 2 * time.Second  // without a byte from the client
	lingerMost = 30 * time.Second // altogether
)

// part ends a connection after an answer. Where the client may still be
// sending, closing at once could make the kernel reset the connection and take
// the answer from the client before it has read it.
func (c *conn) part(m *message) {
	x := c.x
	asked := m.close || (m.minor == 0 && !m.keepAlive)
	if x.status == 0 || (asked && x.body.done && c.in.len() == 0 && x.body.buf.len() == 0) {
		return
	}
	c.linger()
}

// linger ends the output and reads what still comes, until the client closes,
// is silent, or takes too long.
func (c *conn) linger() {
	if c.x != nil {
		c.x.body.buf.release()
	}
	if c.enter(phaseLinger) == causeStop {
		return
	}
	c.ended = causeNone
	c.revive()
	if c.sock.closeWrite() != nil {
		return
	}
	end := c.srv.nanos() + lingerMost
	c.rest()
	for c.srv.nanos() < end {
		c.in.r, c.in.w = 0, 0
		c.in.release()
		if c.sock.fill(&c.in) != nil {
			return
		}
		c.progress(phaseLinger)
	}
}
