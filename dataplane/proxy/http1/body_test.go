package http1

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func post(framing, body string) string {
	return "POST / HTTP/1.1\r\nHost: h\r\n" + framing + "\r\n\r\n" + body
}

// TestBodiesPassAsTheyCame sends bodies at once, and with a pause that the node
// confirms, so that each way through the engine is taken; a second request
// behind each shows that both sides agree on where the body ended.
func TestBodiesPassAsTheyCame(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20<<10) // 320 KiB
	chunks := fmt.Sprintf("%x\r\n%s\r\n", len(long), long)
	for name, c := range map[string]struct{ framing, body, want string }{
		"length":             {"Content-Length: 5", "hello", "hello"},
		"length 0":           {"Content-Length: 0", "", ""},
		"long length":        {fmt.Sprintf("Content-Length: %d", len(long)), long, long},
		"chunked":            {"Transfer-Encoding: chunked", "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"},
		"chunked, upper":     {"transfer-encoding:\tCHUNKED", "A;x=\"y\"\r\n0123456789\r\n000\r\n\r\n", "A;x=\"y\"\r\n0123456789\r\n000\r\n\r\n"},
		"long chunked":       {"Transfer-Encoding: chunked", chunks + "1\r\nx\r\n0\r\n\r\n", chunks + "1\r\nx\r\n0\r\n\r\n"},
		"trailers":           {"Transfer-Encoding: chunked", "1\r\nx\r\n0\r\nA: b\r\ncOntent-Length: 9\r\nDomicile-Client: z\r\nB:c\r\n\r\n", "1\r\nx\r\n0\r\nA: b\r\nB:c\r\n\r\n"},
		"empty chunked body": {"Transfer-Encoding: chunked", "0\r\n\r\n", "0\r\n\r\n"},
	} {
		for _, cut := range []int{-1, 0, 1, 4} {
			t.Run(fmt.Sprintf("%s cut %d", name, cut), func(t *testing.T) {
				p, n := proxyTo(t, answering(okAnswer))
				conn := dial(t, p.addr)
				if cut < 0 {
					conn.send(post(c.framing, c.body) + get("/next"))
				} else {
					cut := min(cut, len(c.body))
					conn.send(post(c.framing, c.body[:cut]))
					eventually(t, "the head is at the node", func() bool { return n.requests() == 1 })
					conn.send(c.body[cut:] + get("/next"))
				}
				for range 2 {
					if status, head, _ := conn.answer(); status != 200 {
						t.Fatalf("got %q", head)
					}
				}
				n.mu.Lock()
				defer n.mu.Unlock()
				if n.body[0] != c.want {
					t.Errorf("node got %.200q, want %.200q", n.body[0], c.want)
				}
				if len(n.heads) != 2 || !strings.HasPrefix(n.heads[1], "GET /next ") {
					t.Errorf("heads %q", n.heads)
				}
			})
		}
	}
}

// TestLongBodiesBothWays sends 64 MiB each way, by length and chunked, with the
// same sum at the other end and no memory that grows with it.
func TestLongBodiesBothWays(t *testing.T) {
	const count = 64
	sum := func() (want [32]byte) {
		h := sha256.New()
		for range count {
			h.Write(big)
		}
		return [32]byte(h.Sum(nil))
	}()
	for _, chunked := range []bool{false, true} {
		write := func(w io.Writer) {
			for range count {
				if chunked {
					fmt.Fprintf(w, "%x\r\n", len(big))
				}
				w.Write(big)
				if chunked {
					io.WriteString(w, "\r\n")
				}
			}
			if chunked {
				io.WriteString(w, "0\r\n\r\n")
			}
		}
		framing := fmt.Sprintf("Content-Length: %d", count*len(big))
		if chunked {
			framing = "Transfer-Encoding: chunked"
		}
		read := func(r io.Reader) [32]byte {
			h := sha256.New()
			for range count {
				if chunked {
					skip := make([]byte, len(fmt.Sprintf("%x\r\n", len(big))))
					io.ReadFull(r, skip)
				}
				io.CopyN(h, r, int64(len(big)))
				if chunked {
					io.ReadFull(r, make([]byte, 2))
				}
			}
			if chunked {
				io.ReadFull(r, make([]byte, 5))
			}
			return [32]byte(h.Sum(nil))
		}
		t.Run(framing, func(t *testing.T) {
			got := make(chan [32]byte, 1)
			p, _ := proxyTo(t, func(c *nodeConn) {
				if _, ok := c.head(); !ok {
					return
				}
				got <- read(c.r)
				io.WriteString(c, "HTTP/1.1 200 OK\r\n"+framing+"\r\n\r\n")
				write(c)
			})
			conn := dial(t, p.addr)
			conn.SetDeadline(time.Now().Add(3 * patience))
			io.WriteString(conn, "PUT / HTTP/1.1\r\nHost: h\r\n"+framing+"\r\n\r\n")
			write(conn)
			if <-got != sum {
				t.Error("the node got another body")
			}
			if status, _ := conn.head(); status != 200 || read(conn.r) != sum {
				t.Error("the client got another body")
			}
		})
	}
}

// TestCloseDelimitedAnswer ends where the node ends it, and the client sees a
// reset where the node's connection broke.
func TestCloseDelimitedAnswer(t *testing.T) {
	for _, broken := range []bool{false, true} {
		goOn := make(chan struct{})
		p, _ := proxyTo(t, func(c *nodeConn) {
			if _, _, ok := c.request(); !ok {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nto the")
			<-goOn
			if broken {
				c.Conn.(*net.TCPConn).SetLinger(0)
				return
			}
			io.WriteString(c, " end")
		})
		c := dial(t, p.addr).send(get("/"))
		status, head := c.head()
		if status != 200 || headValue(head, "Connection") != "close" {
			t.Errorf("got %q", head)
		}
		first := make([]byte, 6)
		io.ReadFull(c.r, first)
		close(goOn)
		rest, err := io.ReadAll(c.r)
		if got := string(first) + string(rest); !broken && (got != "to the end" || err != nil) {
			t.Errorf("got %q, %v", got, err)
		}
		if broken && err == nil {
			t.Error("an answer that broke off looks complete")
		}
	}
}

// TestTruncatedAnswer never looks complete.
func TestTruncatedAnswer(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
	} {
		p, _ := proxyTo(t, func(c *nodeConn) {
			if _, _, ok := c.request(); ok {
				io.WriteString(c, answer)
			}
		})
		c := dial(t, p.addr).send(get("/"))
		if status, _ := c.head(); status != 200 && status != 502 {
			t.Errorf("status %d", status)
		} else if status == 502 {
			continue // the bad chunk came with the head
		}
		b, _ := io.ReadAll(c.r)
		if bytes.HasSuffix(b, []byte("0\r\n\r\n")) || len(b) > 12 {
			t.Errorf("got %q", b)
		}
		eventually(t, "it is counted", func() bool { return p.Stats().Truncated.Load() == 1 })
	}
}

// TestEventsAreFlushed shows that each piece of an answer reaches the client
// before the node writes the next.
func TestEventsAreFlushed(t *testing.T) {
	for _, framing := range []string{"Transfer-Encoding: chunked", "X: y", "Content-Length: 100"} {
		seen := make(chan struct{})
		p, _ := proxyTo(t, func(c *nodeConn) {
			if _, _, ok := c.request(); !ok {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+framing+"\r\n\r\n")
			for range 5 {
				<-seen
				io.WriteString(c, "4\r\na: b\r\n")
			}
			<-seen
		})
		c := dial(t, p.addr).send(get("/"))
		c.head() // before any of the body
		for range 5 {
			seen <- struct{}{}
			b := make([]byte, 9)
			if _, err := io.ReadFull(c.r, b); err != nil || string(b) != "4\r\na: b\r\n" {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		close(seen)
	}
}

// TestContinueComesFromTheNode: the head goes to the node at once, the node's
// 100 comes back, and a node that refuses is spared the body.
func TestContinueComesFromTheNode(t *testing.T) {
	const head = "Expect: 100-continue\r\nContent-Length: 5"
	p, n := proxyTo(t, func(c *nodeConn) {
		h, ok := c.head()
		if !ok {
			return
		}
		if strings.Contains(h, "X-No: ") {
			io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
			io.Copy(io.Discard, c.r)
			return
		}
		io.WriteString(c, "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
		readBody(c.r, h)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	})
	c := dial(t, p.addr).send(post(head, ""))
	if status, h := c.head(); status != 100 || h != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("got %q", h)
	}
	if h, _ := n.last(t); !strings.Contains(h, "Expect: 100-continue\r\n") {
		t.Errorf("node got %q", h)
	}
	c.send("hello")
	if status, h, _ := c.answer(); status != 200 || headValue(h, "Connection") != "" {
		t.Fatalf("got %q", h)
	}
	c = dial(t, p.addr).send(post(head+"\r\nX-No: 1", ""))
	if status, h, body := c.answer(); status != 401 || body != "no" || headValue(h, "Connection") != "close" {
		t.Fatalf("got %q", h)
	}
	c.closed()
}

// TestEarlyAnswer: the node answers and closes while the client uploads; the
// client gets the answer, not a reset.
func TestEarlyAnswer(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		p, _ := proxyTo(t, func(c *nodeConn) {
			if _, ok := c.head(); !ok {
				return
			}
			io.ReadFull(c.r, make([]byte, 100<<10))
			io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
			if keeps {
				io.Copy(io.Discard, c.r)
			}
		})
		c := dial(t, p.addr).send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 50<<20))
		for range 50 { // all of it, before reading
			if _, err := c.Write(big); err != nil {
				t.Fatalf("the client could not go on sending: %v", err)
			}
		}
		status, head, body := c.answer()
		if status != 401 || body != "no" || headValue(head, "Connection") != "close" {
			t.Errorf("got %q %q", head, body)
		}
		c.closed()
	}
}

// TestBodyLimit answers 413, before the node for a length, and for chunks as
// soon as they are too many.
func TestBodyLimit(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), func(c *Config) { c.MaxBody = 10 })
	for i, request := range []string{
		post("Content-Length: 11", "hello world"),
		post("Expect: 100-continue\r\nContent-Length: 11", ""),
		post("Transfer-Encoding: chunked", "6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n"),
	} {
		c := dial(t, p.addr).send(request)
		if status, head, body := c.answer(); status != 413 || !strings.Contains(body, "body_too_large") {
			t.Errorf("%d: got %q %q", i, head, body)
		}
	}
	if n.requests() != 0 {
		t.Errorf("the node got %q", n.heads)
	}
	c := dial(t, p.addr).send(post("Transfer-Encoding: chunked", "6\r\nhello \r\n"))
	eventually(t, "the head is at the node", func() bool { return n.requests() == 1 })
	c.send("5\r\nworld\r\n0\r\n\r\n")
	if status, head, _ := c.answer(); status != 413 {
		t.Errorf("got %q", head)
	}
	c.closed()
	if status, head, _ := dial(t, p.addr).send(post("Content-Length: 10", "0123456789")).answer(); status != 200 {
		t.Errorf("got %q", head)
	}
}

// TestPipelining: answers come in order, one request at a time at the node.
func TestPipelining(t *testing.T) {
	p, n := proxyTo(t, func(c *nodeConn) {
		for {
			h, _, ok := c.request()
			if !ok {
				return
			}
			path := strings.Fields(h)[1]
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
		}
	})
	var all strings.Builder
	for i := range 50 {
		if i%5 == 4 {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", i)
			continue
		}
		all.WriteString(get(fmt.Sprintf("/%d", i)))
	}
	c := dial(t, p.addr)
	go io.WriteString(c, all.String())
	for i := range 50 {
		if _, _, body := c.answer(); body != fmt.Sprintf("/%d", i) {
			t.Fatalf("answer %d is %q", i, body)
		}
	}
	if got := n.conns.Load(); got != 1 {
		t.Errorf("%d connections to the node", got)
	}
}
