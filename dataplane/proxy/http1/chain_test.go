package http1

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// chain is two proxies in a row in front of a node.
func chain(t *testing.T, behave func(*nodeConn)) (*testProxy, *rawNode) {
	inner, n := proxyTo(t, behave)
	return startProxy(t, to(newTestUpstream(t, inner.addr, nil)), nil), n
}

// TestR1ThroughTwoProxies: one id, trailers both ways, 100 from the node,
// events as they come.
func TestR1ThroughTwoProxies(t *testing.T) {
	t.Run("chunked with trailers both ways", func(t *testing.T) {
		const body = "5;e=1\r\nhello\r\n0\r\nSum: 9\r\n\r\n"
		p, n := chain(t, answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n"+body))
		c := dial(t, p.addr)
		for range 3 {
			status, head, got := c.send(post("Transfer-Encoding: chunked\r\nTrailer: Sum", body)).answer()
			if status != 200 || got != body || headValue(head, "Trailer") != "Sum" {
				t.Errorf("got %q %q", head, got)
			}
			h, b := n.last(t)
			if b != body || strings.Count(h, "X-Request-Id") != 1 || headValue(h, "X-Request-Id") != headValue(head, "X-Request-Id") {
				t.Errorf("node got %q %q", h, b)
			}
			if strings.Count(h, "Domicile-Route") != 1 {
				t.Errorf("node got %q", h)
			}
		}
	})
	t.Run("expect 100", func(t *testing.T) {
		p, _ := chain(t, func(c *nodeConn) {
			if h, ok := c.head(); ok {
				io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
				readBody(c.r, h)
				io.WriteString(c, okAnswer)
			}
		})
		c := dial(t, p.addr).send(post("Expect: 100-continue\r\nContent-Length: 5", ""))
		if status, h := c.head(); status != 100 {
			t.Fatalf("got %q", h)
		}
		if status, h, _ := c.send("hello").answer(); status != 200 {
			t.Errorf("got %q", h)
		}
	})
	t.Run("events", func(t *testing.T) {
		seen := make(chan struct{})
		p, _ := chain(t, func(c *nodeConn) {
			if _, _, ok := c.request(); !ok {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			for i := range 5 {
				fmt.Fprintf(c, "9\r\ndata: %d\n\n\r\n", i)
				<-seen
			}
		})
		c := dial(t, p.addr).send(get("/"))
		c.head()
		for range 5 {
			if _, err := io.ReadFull(c.r, make([]byte, 14)); err != nil {
				t.Error(err)
			}
			seen <- struct{}{}
		}
	})
	t.Run("a node that fails", func(t *testing.T) {
		p, n := chain(t, func(c *nodeConn) { c.request() })
		status, _, body := dial(t, p.addr).send(post("Content-Length: 2", "hi")).answer()
		if status != 502 || !strings.Contains(body, "outcome_unknown") || n.requests() != 1 {
			t.Errorf("got %d %q, %d times at the node", status, body, n.requests())
		}
	})
}
