package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/internal/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test; nothing is asserted about it.
const patience = 30 * time.Second

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	wait.For(t, what, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not so")

// rawNode is an upstream that records the bytes of each connection.
type rawNode struct {
	ln    net.Listener
	mu    sync.Mutex
	heads []string // in the order in which they came, over all connections
	body  []string // raw, of the same requests
	conns atomic.Int64
	open  map[net.Conn]bool
	done  sync.WaitGroup
}

// nodeConn is one connection of a rawNode.
type nodeConn struct {
	net.Conn
	r    *bufio.Reader
	node *rawNode
	n    int // which connection of the node, from 1
}

// startNode serves each connection by behave, which reads by request.
func startNode(t testing.TB, behave func(c *nodeConn)) *rawNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startNodeOn(t, ln, behave)
}

func startNodeOn(t testing.TB, ln net.Listener, behave func(c *nodeConn)) *rawNode {
	n := &rawNode{ln: ln, open: map[net.Conn]bool{}}
	n.done.Add(1)
	go func() {
		defer n.done.Done()
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			n.open[nc] = true
			n.mu.Unlock()
			c := &nodeConn{Conn: nc, r: bufio.NewReader(nc), node: n, n: int(n.conns.Add(1))}
			n.done.Add(1)
			go func() {
				defer n.done.Done()
				defer func() {
					nc.Close()
					n.mu.Lock()
					delete(n.open, nc)
					n.mu.Unlock()
				}()
				behave(c)
			}()
		}
	}()
	t.Cleanup(n.stop)
	return n
}

func (n *rawNode) stop() {
	n.ln.Close()
	n.mu.Lock()
	for c := range n.open {
		c.Close()
	}
	n.mu.Unlock()
	n.done.Wait()
}

func (n *rawNode) addr() string { return n.ln.Addr().String() }

func (n *rawNode) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.heads)
}

func (n *rawNode) last(t testing.TB) (head, body string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.heads) == 0 {
		t.Fatal("nothing reached the node")
	}
	return n.heads[len(n.heads)-1], n.body[len(n.body)-1]
}

// head reads a head and records it.
func (c *nodeConn) head() (string, bool) {
	h, ok := readHead(c.r)
	if ok {
		c.node.mu.Lock()
		c.node.heads = append(c.node.heads, h)
		c.node.body = append(c.node.body, "")
		c.node.mu.Unlock()
	}
	return h, ok
}

// request reads a whole request and records it.
func (c *nodeConn) request() (head, body string, ok bool) {
	head, ok = c.head()
	if !ok {
		return
	}
	body, ok = readBody(c.r, head)
	c.node.mu.Lock()
	c.node.body[len(c.node.body)-1] = body
	c.node.mu.Unlock()
	return head, body, ok
}

func readHead(r *bufio.Reader) (string, bool) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return b.String(), false
		}
		if line == "\r\n" {
			return b.String(), true
		}
	}
}

func headValue(head, name string) string {
	for _, line := range strings.Split(head, "\r\n")[1:] {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// readBody reads a body as its head frames it, raw.
func readBody(r *bufio.Reader, head string) (string, bool) {
	if n := headValue(head, "Content-Length"); n != "" {
		length, _ := strconv.Atoi(n)
		b := make([]byte, length)
		got, err := io.ReadFull(r, b)
		return string(b[:got]), err == nil
	}
	if headValue(head, "Transfer-Encoding") == "" {
		return "", true
	}
	var b strings.Builder
	for last := false; ; {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return b.String(), false
		}
		if last {
			if line == "\r\n" {
				return b.String(), true
			}
			continue
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, _ := strconv.ParseInt(size, 16, 64)
		if n == 0 {
			last = true
			continue
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return b.String(), false
		}
		b.Write(data)
	}
}

// answering is a node that gives every request the same raw answer.
func answering(answer string) func(*nodeConn) {
	return func(c *nodeConn) {
		for {
			if _, _, ok := c.request(); !ok {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// testHandler is a Handler made of functions; what is nil does the usual.
type testHandler struct {
	route    func(r *Request, d *Decision)
	refused  func(r *Request, f Refusal, d *Decision) bool
	lost     func(r *Request, u *Upstream, d *Decision) bool
	answered func(r *Request, a *Answer) time.Duration
}

func (h *testHandler) Route(r *Request, d *Decision) { h.route(r, d) }
func (h *testHandler) Refused(r *Request, f Refusal, d *Decision) bool {
	return h.refused != nil && h.refused(r, f, d)
}
func (h *testHandler) Lost(r *Request, u *Upstream, d *Decision) bool {
	return h.lost != nil && h.lost(r, u, d)
}
func (h *testHandler) Answered(r *Request, a *Answer) time.Duration {
	if h.answered == nil {
		return 0
	}
	return h.answered(r, a)
}

// testProxy is a Server on a port of its own.
type testProxy struct {
	*Server
	addr string
}

func startProxy(t testing.TB, h Handler, change func(*Config)) *testProxy {
	t.Helper()
	cfg := Config{Handler: h, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return &testProxy{Server: s, addr: ln.Addr().String()}
}

func newTestUpstream(t testing.TB, addr string, change func(*UpstreamConfig)) *Upstream {
	t.Helper()
	cfg := UpstreamConfig{Name: "n1", Addr: addr, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&cfg)
	}
	u, err := NewUpstream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// to forwards everything to u, with the marks of a proxy.
func to(u *Upstream) *testHandler {
	return &testHandler{route: func(r *Request, d *Decision) {
		d.Lines = append(d.Lines[:0], "Domicile-Route: acme 7\r\n"...)
		d.Forward(u)
	}}
}

// proxyTo is a proxy in front of one node.
func proxyTo(t testing.TB, behave func(*nodeConn)) (*testProxy, *rawNode) {
	n := startNode(t, behave)
	return startProxy(t, to(newTestUpstream(t, n.addr(), nil)), nil), n
}

// client is a raw connection to a proxy.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return &client{nc, t, bufio.NewReader(nc)}
}

func (c *client) send(s string) *client {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	return c
}

// head reads an answer's head and gives its status.
func (c *client) head() (status int, head string) {
	c.t.Helper()
	h, ok := readHead(c.r)
	if !ok {
		c.t.Fatalf("no whole head came: %q", h)
	}
	fmt.Sscanf(h, "HTTP/1.1 %d", &status)
	return status, h
}

// answer reads a whole answer; its body raw.
func (c *client) answer() (status int, head, body string) {
	c.t.Helper()
	status, head = c.head()
	if status == 204 || status == 304 {
		return
	}
	if headValue(head, "Content-Length") == "" && headValue(head, "Transfer-Encoding") == "" {
		b, err := io.ReadAll(c.r)
		if err != nil {
			c.t.Fatalf("read to the end: %v", err)
		}
		return status, head, string(b)
	}
	body, ok := readBody(c.r, head)
	if !ok {
		c.t.Fatalf("body cut short: %q", body)
	}
	return status, head, body
}

// closed waits for the proxy to end the connection without a reset.
func (c *client) closed() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); err != nil || len(b) > 0 {
		c.t.Fatalf("want the connection closed, got %q, %v", b, err)
	}
}

func shutdown(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }

var big = bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB

// waitPastPeek lets a pooled connection become old enough to be looked at
// before reuse. It waits for the clock, not for an outcome.
func waitPastPeek() {
	t := time.NewTimer(time.Millisecond + peekAfter)
	<-t.C
}

// await waits for a channel to be closed or sent to.
func await(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not so within %v: %s", patience, what)
	}
}
