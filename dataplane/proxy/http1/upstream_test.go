package http1

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fullListener gives an address that takes no connection any more: its backlog
// is full, so that a connect gets no answer, as behind a cut link.
func fullListener(t *testing.T) (addr string, open func() net.Listener) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, _ := syscall.Getsockname(fd)
	addr = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	closed := false
	var fillers []net.Conn
	end := func() {
		if !closed {
			closed = true
			syscall.Close(fd)
			for _, c := range fillers {
				c.Close()
			}
		}
	}
	t.Cleanup(end)
	for {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			break
		}
		fillers = append(fillers, c)
	}
	return addr, func() net.Listener {
		end()
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
}

// TestR5SilentNodeCostsOneConnect: the first request waits for one connect, the
// ones beside a probe fail at once, and when the node is back it is found by itself.
func TestR5SilentNodeCostsOneConnect(t *testing.T) {
	addr, open := fullListener(t)
	u := newTestUpstream(t, addr, func(c *UpstreamConfig) {
		c.ConnectTimeout = 150 * time.Millisecond
		c.ProbeEvery = 20 * time.Millisecond
	})
	p := startProxy(t, to(u), nil)
	c, probe := dial(t, p.addr), dial(t, p.addr)
	if status, _, body := c.send(get("/")).answer(); status != 502 || !strings.Contains(body, "node_unreachable") || u.Up() {
		t.Fatalf("got %d %q, up %v", status, body, u.Up())
	}
	for i := 0; u.Stats().RefusedDown.Load() == 0; i++ {
		probe.send(get("/")) // may be the probe
		if status, _, body := c.send(get("/")).answer(); status != 502 || !strings.Contains(body, "node_unreachable") {
			t.Fatalf("got %d %q", status, body)
		}
		probe.answer()
		if i == 20 {
			t.Fatal("no request was refused at once")
		}
	}
	startNodeOn(t, open(), answering(okAnswer))
	eventually(t, "the node is known to be up, without a request", u.Up)
	if status, head, _ := c.send(post("Content-Length: 2", "hi")).answer(); status != 200 {
		t.Errorf("got %q", head)
	}
	if got := u.Stats().Downs.Load(); got != 1 {
		t.Errorf("went down %d times", got)
	}
}

// TestR5OneProbeAtATime: of many requests to a node that is silent one has it probed, and
// none waits for that (G9).
func TestR5OneProbeAtATime(t *testing.T) {
	addr, _ := fullListener(t)
	u := newTestUpstream(t, addr, func(c *UpstreamConfig) { c.ConnectTimeout = 200 * time.Millisecond; c.ProbeEvery = time.Hour })
	if _, err := u.get(false, 0); err == nil {
		t.Fatal("connected")
	}
	u.probeWait = time.Hour
	dials, failed := u.Stats().Dials.Load(), u.Stats().DialErrors.Load()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := u.get(false, 0); !errors.Is(err, ErrDown) {
				t.Errorf("got %v", err)
			}
			if _, err := u.getApart(); !errors.Is(err, ErrDown) {
				t.Errorf("an upgrade: got %v", err)
			}
		})
	}
	all.Wait()
	if u.Stats().DialErrors.Load() != failed {
		t.Error("a probe has ended before its requests were answered")
	}
	eventually(t, "the probe has ended", func() bool { return u.Stats().DialErrors.Load() > failed })
	if n := u.Stats().Dials.Load() - dials; n != 1 {
		t.Errorf("%d probes", n)
	}
	eventually(t, "nothing is open", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.stats.Open.Load() == 0 && u.open == 0
	})
}

// TestRequestIsTheProbe: with no probe under way a request finds the node itself.
func TestRequestIsTheProbe(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	addr := n.addr()
	n.stop()
	u := newTestUpstream(t, addr, func(c *UpstreamConfig) { c.ProbeEvery = time.Hour })
	u.probeWait = time.Hour
	p := startProxy(t, to(u), nil)
	c := dial(t, p.addr)
	if status, _, _ := c.send(get("/")).answer(); status != 502 || u.Up() {
		t.Fatalf("got %d, up %v", status, u.Up())
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	startNodeOn(t, ln, answering(okAnswer))
	if status, _, _ := c.send(get("/")).answer(); status != 200 || !u.Up() {
		t.Errorf("got %d, up %v", status, u.Up())
	}
}

// TestConnectionsAreBounded: beyond MaxConns requests wait a little, get a
// connection that comes back, or 503.
func TestConnectionsAreBounded(t *testing.T) {
	goOn := make(chan struct{})
	n := startNode(t, func(c *nodeConn) {
		for {
			h, _, ok := c.request()
			if !ok {
				return
			}
			if strings.HasPrefix(h, "GET /slow ") {
				<-goOn
			}
			io.WriteString(c, okAnswer)
		}
	})
	u := newTestUpstream(t, n.addr(), func(c *UpstreamConfig) { c.MaxConns = 2; c.Wait = 20 * time.Millisecond })
	p := startProxy(t, to(u), nil)
	a, b, c := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	a.send(get("/slow"))
	b.send(get("/slow"))
	eventually(t, "two requests are at the node", func() bool { return n.requests() == 2 })
	status, head, body := c.send(get("/")).answer()
	if status != 503 || headValue(head, "Retry-After") != "1" || !strings.Contains(body, "upstream_busy") {
		t.Errorf("got %q %q", head, body)
	}
	close(goOn)
	a.answer()
	b.answer()
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		conn := dial(t, p.addr)
		go func() {
			defer all.Done()
			for range 20 {
				if status, _, _ := conn.send(get("/")).answer(); status != 200 && status != 503 {
					t.Errorf("got %d", status)
				}
			}
		}()
	}
	all.Wait()
	if got := n.conns.Load(); got > 2 {
		t.Errorf("%d connections to the node", got)
	}
}

// TestUnusedConnectionsAreClosed: by age, by CloseIdle, by Close.
func TestUnusedConnectionsAreClosed(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	u := newTestUpstream(t, n.addr(), func(c *UpstreamConfig) { c.IdleTimeout = 40 * time.Millisecond })
	p := startProxy(t, to(u), nil)
	c := dial(t, p.addr)
	c.send(get("/")).answer()
	eventually(t, "closed by age", func() bool { return u.Stats().Open.Load() == 0 })
	c.send(get("/")).answer()
	u.CloseIdle()
	if u.Stats().Open.Load() != 0 || u.Stats().Idle.Load() != 0 {
		t.Error("CloseIdle left connections")
	}
	u.Close()
	if status, _, body := c.send(get("/")).answer(); status != 502 || !strings.Contains(body, "node_unreachable") {
		t.Errorf("after Close: got %d %q", status, body)
	}
}

// TestIPv6Upstream: addresses of both kinds.
func TestIPv6Upstream(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 on this machine")
	}
	n := startNodeOn(t, ln, answering(okAnswer))
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), nil)
	if status, _, _ := dial(t, p.addr).send(get("/")).answer(); status != 200 {
		t.Errorf("got %d", status)
	}
}

// TestUpstreamConfigIsChecked: bad input makes no Upstream.
func TestUpstreamConfigIsChecked(t *testing.T) {
	if _, err := NewUpstream(UpstreamConfig{Name: "n", Addr: "nowhere"}); err == nil {
		t.Error("an address without a port was taken")
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a server without a handler was made")
	}
}
