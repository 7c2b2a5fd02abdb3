package http1

import "io"

// tunnel relays the 101 and then carries bytes both ways until both sides have
// ended their output, one fails, or the server closes. A side that ends its
// output has that passed on, and still gets what the other sends.
func (c *conn) tunnel(uc *upConn) {
	c.x.keep = false
	early := c.node.bytes()
	if c.enter(phaseWrite) != causeNone || !c.hooks(uc) || !c.writeAnswer(early) {
		c.endEarly(uc)
		return
	}
	c.node.skip(len(early))
	if c.enter(phaseTunnel) != causeNone {
		c.endEarly(uc)
		return
	}
	c.srv.stats.Tunnels.Add(1)
	defer c.srv.stats.Tunnels.Add(-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.carry(&c.node, &uc.sock, &c.sock)
	}()
	c.in.skip(0)
	if c.in.len() == 0 {
		c.in.release()
	}
	c.carry(&c.in, &c.sock, &uc.sock)
	<-done
	_ = c.sock.nc.Close()
	c.endEarly(uc)
}

// carry copies from one side to the other. When it cannot write, it ends both:
// nobody would read what is still sent.
func (c *conn) carry(b *buffer, from, to *sock) {
	for {
		if b.len() > 0 {
			if to.write(b.bytes()) != nil {
				break
			}
			b.long = b.w == len(b.data)
			b.r, b.w = 0, 0
			c.progress(phaseTunnel)
		}
		if b.long && b.data != nil {
			b.needBig()
		}
		if err := from.fill(b); err == io.EOF {
			_ = to.closeWrite()
			return
		} else if err != nil {
			break
		}
	}
	_ = from.nc.SetDeadline(past)
	_ = to.nc.SetDeadline(past)
}
