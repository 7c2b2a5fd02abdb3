package node

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// listener wraps the connections that it accepts in *conn.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn gives each write a deadline of its own, which fasthttp's one deadline for a
// whole answer is not: a stream may take hours, a client that stops reading may not.
// One goroutine writes at a time.
type conn struct {
	net.Conn
	deadline time.Time // that is set for writes
	// linger: what the client still sends is read before closing. Atomic, because a
	// shutdown closes connections from outside.
	linger atomic.Bool
}

func (c *conn) Write(p []byte) (int, error) {
	// Renewed only when a good part of it has passed: setting it costs more than looking.
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout-time.Second {
		c.deadline = now.Add(writeTimeout)
		if err := c.SetWriteDeadline(c.deadline); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// connState ends the lingering of a connection that goes on: what its client sent was
// read, and a shutdown that closes it must not wait for more.
func connState(c net.Conn, state fasthttp.ConnState) {
	if own, ok := c.(*conn); ok && state == fasthttp.StateIdle {
		own.linger.Store(false)
	}
}

// Close lingers where the request was answered before its body was read: closing a
// socket with unread bytes resets it, and the client would lose the answer.
func (c *conn) Close() error {
	if c.linger.CompareAndSwap(true, false) {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			// Errors end the lingering, which is all they could do.
			_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
			_, _ = io.CopyN(io.Discard, c.Conn, maxLinger)
		}
	}
	return c.Conn.Close()
}
