package proxy

import (
	"net/http"
	"testing"
)

// TestHoldOfNothingIsKeptOverARelay: a request that is not to be held waits at neither
// proxy, not even for what the control plane would say of its tenant.
func TestHoldOfNothingIsKeptOverARelay(t *testing.T) {
	none := http.Header{headerHold: {"0"}}
	g := newControlFake(t)
	near := inRegion(t, g, nil)
	router := newNode(t, "router", misdirected)
	near.await(g.change(home("acme", "us"), routers("us", router.URL)))
	g.hold(true)
	g.change(placed("acme", "n1")) // which the proxy would wait for
	near.send("POST", "/t/acme/query", none, "x").wants(t, 503, codeMisdirected)
	near.counts(map[outcome]uint64{outcomeRefused: 1})
	if n := g.questions("acme"); n != 0 {
		t.Errorf("the first proxy has asked %d times", n)
	}

	x := newPair(t, nil)
	x.nodeUS.Config.Handler = http.HandlerFunc(misdirected)
	x.us.hold(true)
	x.us.change(placed("acme", "n2"))
	x.inEU.send("POST", "/t/acme/query", none, "x").wants(t, 503, codeMisdirected)
	never := inRegion(t, x.global, func(c *Config) { c.Hold = 0 })
	never.await(x.global.change(routers("us", x.inUS.url())))
	never.send("POST", "/t/acme/query", nil, "x").wants(t, 503, codeMisdirected)
	if n := x.us.questions("acme"); n != 0 {
		t.Errorf("the second proxy has asked %d times", n)
	}
}
