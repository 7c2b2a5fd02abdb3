package http1

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// impatient is a proxy whose timeouts are as short as they can be.
func impatient(t *testing.T, behave func(*nodeConn), change func(*Config)) (*testProxy, *rawNode) {
	n := startNode(t, behave)
	return startProxy(t, to(newTestUpstream(t, n.addr(), nil)), change), n
}

// TestSlowHead: a head that does not become complete gets 408 and the end,
// however it trickles.
func TestSlowHead(t *testing.T) {
	p, n := impatient(t, answering(okAnswer), func(c *Config) { c.HeadTimeout = 2 * tick })
	c := dial(t, p.addr).send("GET / HTTP/1.1\r\nHost: h\r\n")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		trickle := time.NewTicker(time.Millisecond)
		defer trickle.Stop()
		for range trickle.C {
			if _, err := io.WriteString(c.Conn, "a: b\r\n"); err != nil || p.Stats().TimedOut.Load() > 0 {
				return
			}
		}
	}()
	if status, _, body := c.answer(); status != 408 || !strings.Contains(body, "head_timeout") {
		t.Errorf("got %d %q", status, body)
	}
	await(t, "ended", ended)
	if n.requests() > 0 {
		t.Error("the node got it")
	}
}

// TestIdleConnectionEnds: without a byte, after an answer or before any request.
func TestIdleConnectionEnds(t *testing.T) {
	p, _ := impatient(t, answering(okAnswer), func(c *Config) { c.IdleTimeout = tick })
	dial(t, p.addr).closed()
	c := dial(t, p.addr).send(get("/"))
	c.answer()
	c.closed()
}

// TestNodeThatDoesNotAnswer: 504, once, and its connection is closed.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	gone := make(chan struct{}, 10)
	p, n := impatient(t, func(c *nodeConn) {
		if _, _, ok := c.request(); ok {
			c.r.ReadByte()
			gone <- struct{}{}
		}
	}, func(c *Config) { c.UpstreamTimeout = 2 * tick })
	for i, request := range []string{get("/"), post("Idempotency-Key: k\r\nContent-Length: 2", "hi")} {
		c := dial(t, p.addr).send(request)
		status, head, body := c.answer()
		if status != 504 || !strings.Contains(body, "upstream_timeout") || headValue(head, "Connection") != "close" {
			t.Errorf("got %q %q", head, body)
		}
		c.closed()
		await(t, "gone", gone)
		if n.requests() != i+1 {
			t.Errorf("sent %d times", n.requests())
		}
	}
}

// TestSlowBody: a body below the rate gets 408; one that the node holds up does not.
func TestSlowBody(t *testing.T) {
	goOn := make(chan struct{})
	p, n := impatient(t, func(c *nodeConn) {
		h, ok := c.head()
		if !ok {
			return
		}
		if strings.Contains(h, "X-Wait") {
			<-goOn
		}
		readBody(c.r, h)
		io.WriteString(c, okAnswer)
	}, nil)
	c := dial(t, p.addr).send(post("Content-Length: 100000", "a"))
	eventually(t, "the head is at the node", func() bool { return n.requests() == 1 })
	hurry := func(done func() bool) {
		// The clock of the timeouts is the reaper's; it is turned by hand.
		eventually(t, "the reaper has judged", func() bool { p.sweep(); return done() })
	}
	hurry(func() bool { return p.Stats().TimedOut.Load() == 1 })
	if status, _, body := c.answer(); status != 408 || !strings.Contains(body, "body_timeout") {
		t.Errorf("got %d %q", status, body)
	}
	close(goOn)
}

// TestClientThatDoesNotRead is let go, and the node's connection with it.
func TestClientThatDoesNotRead(t *testing.T) {
	ended := make(chan struct{})
	p, _ := impatient(t, func(c *nodeConn) {
		if _, _, ok := c.request(); !ok {
			return
		}
		defer close(ended)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nX: y\r\n\r\n")
		for {
			if _, err := c.Write(big); err != nil {
				return
			}
		}
	}, func(c *Config) { c.WriteTimeout = 2 * tick })
	dial(t, p.addr).send(get("/"))
	await(t, "ended", ended)
	eventually(t, "it is counted", func() bool { return p.Stats().TimedOut.Load() == 1 })
}

// TestClientThatGoesAwayEndsItsRequest: while it waits for the node, whether
// before the head or between pieces of the answer, and with bytes behind the request.
func TestClientThatGoesAwayEndsItsRequest(t *testing.T) {
	for _, started := range []bool{false, true} {
		for _, behind := range []string{"", get("/next")} {
			t.Run(fmt.Sprint(started, len(behind)), func(t *testing.T) {
				there, gone := make(chan struct{}), make(chan struct{})
				p, _ := proxyTo(t, func(c *nodeConn) {
					if _, _, ok := c.request(); !ok {
						return
					}
					if started {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
					}
					close(there)
					c.r.ReadByte()
					close(gone)
				})
				c := dial(t, p.addr).send(post("Content-Length: 2", "hi") + behind)
				await(t, "there", there)
				c.Close()
				await(t, "gone", gone)
				eventually(t, "it is counted", func() bool { return p.Stats().Aborted.Load() > 0 })
			})
		}
	}
}

// TestClientThatGoesAwayWhileUploading: the node sees its connection end.
func TestClientThatGoesAwayWhileUploading(t *testing.T) {
	gone := make(chan bool, 1)
	p, n := proxyTo(t, func(c *nodeConn) {
		if h, ok := c.head(); ok {
			_, whole := readBody(c.r, h)
			gone <- whole
		}
	})
	c := dial(t, p.addr).send(post("Content-Length: 100", "hi"))
	eventually(t, "the head is at the node", func() bool { return n.requests() == 1 })
	c.Close()
	if <-gone {
		t.Error("the body looks complete")
	}
}
