package node

import "testing"

func TestPanicIsAnsweredAndCounted(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	g := n.s.guard.Swap(nil) // the next request stumbles over it
	a, closed := rawHTTP(t, n, "GET /t/acme/ HTTP/1.1\r\nHost: h\r\n\r\n")
	n.s.guard.Store(g)
	if a.status != 500 || a.code() != "internal" || !closed {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	n.want(200, "GET", "/t/acme/", "")
}
