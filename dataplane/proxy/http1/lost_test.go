package http1

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// lostNode is a proxy in front of a node that is lost, and never answers unless
// answer is closed, and of the one that takes its place once elsewhere is set.
type lostNode struct {
	*testProxy
	old, next *rawNode
	elsewhere atomic.Bool
	asked     atomic.Int64
	answer    chan struct{}
}

func startLost(t *testing.T) *lostNode {
	l := &lostNode{answer: make(chan struct{})}
	l.old = startNode(t, func(c *nodeConn) {
		for {
			if _, _, ok := c.request(); !ok {
				return
			}
			<-l.answer
			io.WriteString(c, okAnswer)
		}
	})
	end := sync.OnceFunc(func() { close(l.answer) })
	t.Cleanup(end)
	l.next = startNode(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"))
	old, next := newTestUpstream(t, l.old.addr(), nil), newTestUpstream(t, l.next.addr(), nil)
	old.SetLost(true)
	h := to(old)
	h.lost = func(_ *Request, u *Upstream, d *Decision) bool {
		l.asked.Add(1)
		if u != old || !l.elsewhere.Load() {
			return false
		}
		d.Forward(next)
		return true
	}
	l.testProxy = startProxy(t, h, nil)
	return l
}

// TestR2LostNodesRequestIsGivenUp: a request that a node may have, which was lost
// without a word on the connection, is not waited for once another node has its
// place; and it is sent there where R2 allows that.
func TestR2LostNodesRequestIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		again   bool
	}{
		"GET":               {get("/x"), true},
		"POST":              {post("Content-Length: 2", "hi"), false},
		"POST with a key":   {post("Idempotency-Key: k\r\nContent-Length: 2", "hi"), true},
		"POST, key, chunks": {post("Idempotency-Key: k\r\nTransfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n"), true},
		"POST, a long body": {post("Idempotency-Key: k\r\nContent-Length: 65537", string(big[:65537])), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLost(t)
			client := dial(t, l.addr).send(c.request)
			eventually(t, "the proxy has asked, and waits on", func() bool { return l.asked.Load() >= 2 })
			l.elsewhere.Store(true)
			status, _, body := client.answer()
			switch {
			case c.again && (status != 200 || body != "next" || l.next.requests() != 1):
				t.Errorf("got %d %q, and the next node %d requests", status, body, l.next.requests())
			case !c.again && (status != 502 || !strings.Contains(body, "outcome_unknown") || l.next.requests() != 0):
				t.Errorf("got %d %q, and the next node %d requests", status, body, l.next.requests())
			}
			if l.old.requests() != 1 {
				t.Errorf("the lost node got it %d times", l.old.requests())
			}
			if status, _, _ := client.send(get("/next")).answer(); status != 200 {
				t.Errorf("the client's connection: then %d", status)
			}
		})
	}
}

// TestLostNodeMayAnswer: what the lost node is asked and still has is waited for,
// and its connection is used again.
func TestLostNodeMayAnswer(t *testing.T) {
	l := startLost(t)
	client := dial(t, l.addr).send(post("Content-Length: 2", "hi"))
	eventually(t, "the proxy has asked, and waits on", func() bool { return l.asked.Load() >= 2 })
	l.answer <- struct{}{}
	if status, _, body := client.answer(); status != 200 || body != "ok" {
		t.Fatalf("got %d %q", status, body)
	}
	client.send(post("Content-Length: 2", "hi"))
	before := l.asked.Load()
	eventually(t, "the proxy asks again", func() bool { return l.asked.Load() > before })
	l.answer <- struct{}{}
	if status, _, body := client.answer(); status != 200 || body != "ok" {
		t.Errorf("then %d %q", status, body)
	}
	if n := l.old.conns.Load(); n != 1 {
		t.Errorf("%d connections to the node", n)
	}
}

// TestLostNodesRequestEndsWithTheServer: being asked about keeps nothing from ending.
func TestLostNodesRequestEndsWithTheServer(t *testing.T) {
	l := startLost(t)
	client := dial(t, l.addr).send(get("/x"))
	eventually(t, "the proxy has asked", func() bool { return l.asked.Load() > 0 })
	l.Close()
	if status, _, body := client.answer(); status != 503 || !strings.Contains(body, "shutting_down") {
		t.Errorf("got %d %q", status, body)
	}
}
