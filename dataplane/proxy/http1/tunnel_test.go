package http1

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const upgradeHead = "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n"
const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\n"

// echoing upgrades and sends back what comes, until the other side ends; then a
// last word.
func echoing(c *nodeConn) {
	h, _, ok := c.request()
	if !ok {
		return
	}
	if headValue(h, "Upgrade") != "websocket" || headValue(h, "Connection") != "Upgrade" {
		io.WriteString(c, okAnswer)
		answering(okAnswer)(c)
		return
	}
	io.WriteString(c, switching+"first")
	io.Copy(c, c.r)
	io.WriteString(c, "last")
}

// TestUpgradeThroughTwoProxies: bytes both ways, also those right behind the
// heads; an end of one direction passes on and leaves the other open.
func TestUpgradeThroughTwoProxies(t *testing.T) {
	inner, n := proxyTo(t, echoing)
	outer := startProxy(t, to(newTestUpstream(t, inner.addr, nil)), nil)
	c := dial(t, outer.addr).send(upgradeHead + "early")
	status, head := c.head()
	if status != 101 || headValue(head, "Upgrade") != "websocket" || headValue(head, "Connection") != "Upgrade" {
		t.Fatalf("got %q", head)
	}
	expect := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(c.r, b); err != nil || string(b) != want {
			t.Fatalf("got %q, %v, want %q", b, err, want)
		}
	}
	expect("firstearly")
	for range 3 {
		c.send("ping")
		expect("ping")
	}
	go c.Write(big)
	expect(string(big))
	if inner.Stats().Tunnels.Load() != 1 {
		t.Error("the tunnel is not counted")
	}
	c.Conn.(*net.TCPConn).CloseWrite()
	expect("last")
	c.closed()
	eventually(t, "the tunnels have ended", func() bool {
		return inner.Stats().Tunnels.Load()+outer.Stats().Tunnels.Load() == 0
	})
	// Its connection is never used again.
	before := n.conns.Load()
	if status, _, _ := dial(t, outer.addr).send(get("/")).answer(); status != 200 || n.conns.Load() != before+1 {
		t.Errorf("got %d on connection %d", status, n.conns.Load())
	}
}

// TestUpgradeRefused: an ordinary answer is relayed as one, and the client's
// connection goes on.
func TestUpgradeRefused(t *testing.T) {
	p, n := proxyTo(t, answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"))
	c := dial(t, p.addr)
	for i := range 2 {
		if status, _, body := c.send(upgradeHead).answer(); status != 403 || body != "no" {
			t.Fatalf("got %d %q", status, body)
		}
		if got := int(n.conns.Load()); got != i+1 {
			t.Errorf("%d connections to the node after %d upgrades", got, i+1)
		}
	}
	if h, _ := n.last(t); headValue(h, "Upgrade") != "websocket" || headValue(h, "Connection") != "Upgrade" {
		t.Errorf("the node got %q", h)
	}
}

// TestH2cIsNotTunnelled: the request is served as a plain one.
func TestH2cIsNotTunnelled(t *testing.T) {
	p, n := proxyTo(t, answering(okAnswer))
	for _, proto := range []string{"h2c", "H2C", "websocket, h2c"} {
		c := dial(t, p.addr).send(strings.Replace(upgradeHead, "websocket", proto, 1))
		if status, _, _ := c.answer(); status != 200 {
			t.Errorf("got %d", status)
		}
		if h, _ := n.last(t); headValue(h, "Upgrade") != "" {
			t.Errorf("the node got %q", h)
		}
	}
}

// TestTunnelEndsWithEitherSide: a side that breaks takes the other with it.
func TestTunnelEndsWithEitherSide(t *testing.T) {
	ended := make(chan struct{})
	p, _ := proxyTo(t, func(c *nodeConn) {
		if h, _, ok := c.request(); ok && strings.Contains(h, "/ws") {
			io.WriteString(c, switching)
			io.Copy(io.Discard, c.r)
			close(ended)
		}
	})
	c := dial(t, p.addr).send(upgradeHead)
	c.head()
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
	await(t, "ended", ended)
	eventually(t, "the tunnel has ended", func() bool { return p.Stats().Tunnels.Load() == 0 })
}

// TestTunnelIsIdleTooLong: both sides are closed.
func TestTunnelIsIdleTooLong(t *testing.T) {
	n := startNode(t, echoing)
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), func(c *Config) { c.TunnelIdle = tick })
	c := dial(t, p.addr).send(upgradeHead)
	c.head()
	if b, _ := io.ReadAll(c.r); string(b) != "first" {
		t.Errorf("got %q", b)
	}
}

// TestShutdownEndsTunnelsLast: an upgraded connection works until all requests
// have ended, and does not keep the server from ending.
func TestShutdownEndsTunnelsLast(t *testing.T) {
	goOn := make(chan struct{})
	n := startNode(t, func(c *nodeConn) {
		h, _, ok := c.request()
		if !ok {
			return
		}
		if strings.Contains(h, "/ws") {
			io.WriteString(c, switching)
			io.Copy(c, c.r)
			return
		}
		<-goOn
		io.WriteString(c, okAnswer)
	})
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), nil)
	ws := dial(t, p.addr).send(upgradeHead)
	ws.head()
	slow := dial(t, p.addr).send(get("/slow"))
	eventually(t, "both are at the node", func() bool { return n.requests() == 2 })
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() { done <- p.Shutdown(ctx) }()
	eventually(t, "the server is shutting down", p.draining.Load)
	b := make([]byte, 4)
	if _, err := io.ReadFull(ws.send("ping").r, b); err != nil || string(b) != "ping" {
		t.Errorf("the tunnel ended first: %q, %v", b, err)
	}
	close(goOn)
	if status, head, _ := slow.answer(); status != 200 || headValue(head, "Connection") != "close" {
		t.Errorf("got %q", head)
	}
	slow.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	ws.SetDeadline(time.Now().Add(patience))
	if _, err := ws.r.ReadByte(); err == nil {
		t.Error("the tunnel outlived the server")
	}
}

// TestARefusedUpgradeKeepsItsUpgradeField: 426 says by it what to use instead, and the
// connection goes on.
func TestARefusedUpgradeKeepsItsUpgradeField(t *testing.T) {
	p, _ := proxyTo(t, answering("HTTP/1.1 426 Upgrade Required\r\nUpgrade: HTTP/1.1\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno"))
	c := dial(t, p.addr)
	for range 2 {
		status, head, body := c.send(upgradeHead).answer()
		if status != 426 || headValue(head, "Upgrade") != "HTTP/1.1" || headValue(head, "Connection") != "Upgrade" || body != "no" {
			t.Fatalf("got %q %q", head, body)
		}
	}
}
