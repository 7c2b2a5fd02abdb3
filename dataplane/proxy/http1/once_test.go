package http1

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// TestR2NothingIsSentTwice breaks the connection after the request arrived, on
// a new connection and on a used one.
func TestR2NothingIsSentTwice(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		sent    int // times
	}{
		"GET":                   {get("/x"), 2},
		"HEAD":                  {strings.Replace(get("/x"), "GET", "HEAD", 1), 2},
		"OPTIONS":               {strings.Replace(get("/x"), "GET", "OPTIONS", 1), 2},
		"POST":                  {post("Content-Length: 2", "hi"), 1},
		"PUT":                   {strings.Replace(post("Content-Length: 2", "hi"), "POST", "PUT", 1), 1},
		"DELETE":                {strings.Replace(get("/x"), "GET", "DELETE", 1), 1},
		"PATCH":                 {strings.Replace(get("/x"), "GET", "PATCH", 1), 1},
		"QUERY":                 {strings.Replace(get("/x"), "GET", "QUERY", 1), 1},
		"get":                   {strings.Replace(get("/x"), "GET", "get", 1), 1},
		"POST with a key":       {post("Idempotency-Key: k\r\nContent-Length: 2", "hi"), 2},
		"POST, key, chunked":    {post("Idempotency-Key: k\r\nTransfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n"), 2},
		"GET with a body":       {strings.Replace(post("Content-Length: 2", "hi"), "POST", "GET", 1), 2},
		"POST, key, 64 KiB":     {post("Idempotency-Key: k\r\nContent-Length: 65536", string(big[:65536])), 2},
		"POST, key, over that":  {post("Idempotency-Key: k\r\nContent-Length: 65537", string(big[:65537])), 1},
		"key named Connection":  {post("Idempotency-Key: k\r\nConnection: idempotency-key\r\nContent-Length: 2", "hi"), 2},
		"POST whose key is bad": {post("Idempotency_Key: k\r\nContent-Length: 2", "hi"), 1},
		"POST, an empty key":    {post("Idempotency-Key:\r\nContent-Length: 2", "hi"), 1}, // a node keeps nothing under it
		"POST, a blank key":     {post("Idempotency-Key: \t \r\nContent-Length: 2", "hi"), 1},
	} {
		for _, used := range []bool{false, true} {
			for _, always := range []bool{false, true} {
				var seen atomic.Int64
				p, n := proxyTo(t, func(c *nodeConn) {
					for {
						h, _, ok := c.request()
						if !ok {
							return
						}
						if !strings.HasPrefix(h, "GET /warm ") && (seen.Add(1) == 1 || always) {
							return // executed, perhaps; no answer
						}
						answer := okAnswer
						if strings.HasPrefix(h, "HEAD") {
							answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
						}
						io.WriteString(c, answer)
					}
				})
				conn := dial(t, p.addr)
				if used {
					conn.send(get("/warm")).answer()
				}
				conn.send(c.request)
				status, head := conn.head()
				want := 502
				if c.sent == 2 && !always {
					want = 200
				}
				if status != want {
					t.Errorf("%s, used %v, always %v: got %q", name, used, always, head)
				}
				if name != "HEAD" {
					if body, _ := readBody(conn.r, head); want == 502 && !strings.Contains(body, `"code":"outcome_unknown"`) {
						t.Errorf("%s: body %q", name, body)
					}
				}
				if got := int(seen.Load()); got != c.sent {
					t.Errorf("%s, used %v, always %v: sent %d times, want %d", name, used, always, got, c.sent)
				}
				n.mu.Lock()
				if k := len(n.body); n.body[k-1] != n.body[k-int(seen.Load())] {
					t.Errorf("%s: another body the second time", name)
				}
				n.mu.Unlock()
			}
		}
	}
}

// TestHeadStaysWhileItsBodyIsAwaited: the bytes of a head are the request's until
// it has ended, although its body comes later and others are served meanwhile.
func TestHeadStaysWhileItsBodyIsAwaited(t *testing.T) {
	headThere, served := make(chan struct{}), make(chan struct{})
	p, n := proxyTo(t, func(c *nodeConn) {
		for {
			h, ok := c.head()
			if !ok {
				return
			}
			first := strings.HasPrefix(h, "POST /first") && c.node.requests() == 1
			if first {
				close(headThere)
			}
			if _, ok := readBody(c.r, h); !ok {
				return
			}
			if first {
				<-served
				return // no answer: it is sent again
			}
			io.WriteString(c, okAnswer)
		}
	})
	request := strings.Replace(post("Idempotency-Key: k\r\nX-Whose: first\r\nContent-Length: 2", "hi"), "/", "/first", 1)
	head, body := strings.TrimSuffix(request, "hi"), "hi"
	c := dial(t, p.addr)
	c.send(head)
	await(t, "the head at the node", headThere)
	c.send(body)
	for range 64 {
		other := dial(t, p.addr)
		if status, _, _ := other.send(get("/" + strings.Repeat("x", 1000))).answer(); status != 200 {
			t.Fatalf("another's request: %d", status)
		}
	}
	close(served)
	if status, _, got := c.answer(); status != 200 {
		t.Errorf("got %d %q", status, got)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if again := n.heads[len(n.heads)-1]; again != n.heads[0] {
		t.Errorf("sent first\n%q\nand then\n%q", n.heads[0], again)
	}
}

// TestAnswersHeadStaysWhileARefusalsBodyIsAwaited is the same of an answer.
func TestAnswersHeadStaysWhileARefusalsBodyIsAwaited(t *testing.T) {
	headSent, served := make(chan struct{}), make(chan struct{})
	p, _ := proxyTo(t, func(c *nodeConn) {
		for {
			h, _, ok := c.request()
			if !ok {
				return
			}
			if !strings.HasPrefix(h, "GET /first") {
				io.WriteString(c, okAnswer)
				continue
			}
			io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nX-Whose: first\r\nContent-Length: 2\r\n\r\n")
			close(headSent)
			<-served
			io.WriteString(c, "{}")
		}
	})
	c := dial(t, p.addr)
	c.send(get("/first"))
	await(t, "the answer's head", headSent)
	for range 64 {
		other := dial(t, p.addr)
		if status, _, _ := other.send(get("/" + strings.Repeat("x", 1000))).answer(); status != 200 {
			t.Fatalf("another's request: %d", status)
		}
	}
	close(served)
	if status, head, body := c.answer(); status != 503 || headValue(head, "X-Whose") != "first" || body != "{}" {
		t.Errorf("got %q %q", head, body)
	}
}

// TestR2HeadCutShortIsNoAnswer: part of an answer's head changes nothing.
func TestR2HeadCutShortIsNoAnswer(t *testing.T) {
	p, n := proxyTo(t, func(c *nodeConn) {
		if _, _, ok := c.request(); ok {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nConte")
		}
	})
	c := dial(t, p.addr)
	if status, _, body := c.send(post("Content-Length: 2", "hi")).answer(); status != 502 || !strings.Contains(body, "outcome_unknown") {
		t.Errorf("got %d %q", status, body)
	}
	if n.requests() != 1 {
		t.Errorf("sent %d times", n.requests())
	}
}

// TestR2ConnectionClosedWhileUnused: a POST on a connection that the node has
// closed since goes out on another, and is executed once.
func TestR2ConnectionClosedWhileUnused(t *testing.T) {
	p, n := proxyTo(t, func(c *nodeConn) {
		if _, _, ok := c.request(); ok {
			io.WriteString(c, okAnswer)
		}
	})
	c := dial(t, p.addr)
	for i := range 5 {
		status, head, _ := c.send(post("Content-Length: 2", "hi")).answer()
		if status != 200 {
			t.Fatalf("got %q", head)
		}
		eventually(t, "the node has closed", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.open) == 0
		})
		waitPastPeek()
		if got := n.requests(); got != i+1 {
			t.Errorf("%d requests at the node after %d", got, i+1)
		}
	}
}

// TestUnsolicitedBytesEndAConnection: what a node sends without being asked is
// never taken for an answer.
func TestUnsolicitedBytesEndAConnection(t *testing.T) {
	p, n := proxyTo(t, func(c *nodeConn) {
		for {
			h, _, ok := c.request()
			if !ok {
				return
			}
			io.WriteString(c, okAnswer)
			if strings.HasPrefix(h, "GET /later ") {
				waitPastPeek()
			}
			if !strings.HasPrefix(h, "GET /good ") {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			}
		}
	})
	for _, first := range []string{"/at-once", "/later"} {
		c := dial(t, p.addr)
		c.send(get(first)).answer()
		waitPastPeek()
		waitPastPeek()
		before := n.conns.Load()
		if _, _, body := c.send(get("/good")).answer(); body != "ok" {
			t.Errorf("after %s: got %q", first, body)
		}
		if n.conns.Load() != before+1 {
			t.Errorf("after %s: the connection was used again", first)
		}
	}
}

// TestAnswerToHeadWithABody: the body that should not be there ends the connection.
func TestAnswerToHeadWithABody(t *testing.T) {
	p, n := proxyTo(t, answering(okAnswer))
	c := dial(t, p.addr)
	for i := range 3 {
		c.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
		if status, head := c.head(); status != 200 || headValue(head, "Content-Length") != "2" {
			t.Fatalf("got %q", head)
		}
		if got := int(n.conns.Load()); got != i+1 {
			t.Errorf("%d connections after %d requests", got, i+1)
		}
	}
}

// TestNodeUnreachable: nothing was sent, whatever the method.
func TestNodeUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	p := startProxy(t, to(newTestUpstream(t, addr, nil)), nil)
	c := dial(t, p.addr)
	for _, request := range []string{get("/"), post("Content-Length: 2", "hi"), post("Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n")} {
		status, head, body := c.send(request).answer()
		if status != 502 || !strings.Contains(body, `"code":"node_unreachable"`) || headValue(head, "Connection") != "" {
			t.Errorf("got %q %q", head, body)
		}
	}
}
