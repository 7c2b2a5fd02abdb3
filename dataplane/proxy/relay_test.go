package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/internal/netfault"
)

// viaRouter runs a proxy of the global directory, where acme lives in us, whose routers
// answer by handlers.
func viaRouter(t *testing.T, change func(*Config), handlers ...http.HandlerFunc) (*running, *controlFake, []*nodeFake) {
	g := newControlFake(t)
	p := inRegion(t, g, change)
	var all []*nodeFake
	var addrs []string
	for _, h := range handlers {
		r := newNode(t, "router", h)
		all, addrs = append(all, r), append(addrs, r.URL)
	}
	p.await(g.change(home("acme", "us"), routers("us", addrs...)))
	return p, g, all
}

// TestG7RouterThatAnsweredLastIsAskedFirst, and the next one where nothing was sent.
func TestG7RouterThatAnsweredLastIsAskedFirst(t *testing.T) {
	p, g, all := viaRouter(t, nil, echo("one"), echo("two"))
	p.await(g.change(routers("us", unusedAddr(t), all[0].URL, all[1].URL)))
	for range 5 {
		if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "one 1" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	all[0].Close()
	for range 5 {
		if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "two 1" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	// The list may change while its routers are used; who answered last stays first.
	p.await(g.change(routers("us", unusedAddr(t), all[1].URL, all[1].URL, "no address")))
	dials := func() uint64 { return p.regionNamed("us").routers.Load().ups[1].Stats().Dials.Load() }
	before := dials()
	if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "two 1" || dials() != before {
		t.Errorf("got %d %q, over %d new connections", a.StatusCode, a.body, dials()-before)
	}
	if n := len(p.regionNamed("us").routers.Load().ups); n != 2 {
		t.Errorf("%d routers, want the one named twice once", n)
	}
}

func TestG9SilentRegionIs502AtOnceAndFoundAgain(t *testing.T) {
	gone, back := unusedAddr(t), unusedAddr(t)
	p, g, _ := viaRouter(t, nil)
	p.await(g.change(routers("us", gone, back)))
	for range 20 {
		a := p.send("POST", "/t/acme/query", nil, "x")
		a.wants(t, 502, codeRegion)
		if strings.Contains(a.body, "127.0.0.1") || !strings.Contains(a.body, "region us") {
			t.Errorf("got %q, want the region's name and no address", a.body)
		}
	}
	p.counts(nil) // nobody waited
	ln, err := net.Listen("tcp", strings.TrimPrefix(back, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: echo("back")}
	go srv.Serve(ln)
	defer srv.Close()
	eventually(t, func() error {
		if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "back 1" {
			return fmt.Errorf("got %d %q", a.StatusCode, a.body)
		}
		return nil
	})
	if m := p.get("/_metrics").body; strings.Contains(m, `domicile_relays_total{outcome="unreachable",region="us"} 0`) {
		t.Error("requests that found no router are not counted")
	}
}

func TestR2RelayOfUnknownOutcomeIsNotRepeatedByAnotherRouter(t *testing.T) {
	var first, second atomic.Int32
	cut := func(w http.ResponseWriter, r *http.Request) {
		first.Add(1)
		io.Copy(io.Discard, r.Body)
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	}
	other := func(w http.ResponseWriter, r *http.Request) { second.Add(1); echo("other")(w, r) }
	p, _, _ := viaRouter(t, nil, cut, other)
	p.send("POST", "/t/acme/query", nil, "x").wants(t, 502, "outcome_unknown")
	if first.Load() != 1 || second.Load() != 0 {
		t.Errorf("sent %d and %d times", first.Load(), second.Load())
	}
	// It is not the first any more; and what a router says of its own node is passed on.
	if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "other 1" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	for code, status := range map[string]int{"outcome_unknown": 502, "node_unreachable": 502, "overloaded": 503, "directory_unavailable": 503} {
		p, _, all := viaRouter(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":"x","code":%q}`, code)
		})
		p.send("POST", "/t/acme/query", nil, "x").wants(t, status, code)
		if n := len(all[0].requests()); n != 1 {
			t.Errorf("%s: sent %d times", code, n)
		}
	}
}

// TestG4RelayedRequestIsNotRelayedAgain: a region that does not place a tenant says so to
// the proxy that relayed the request, without effect, and to nobody else; that one holds it
// until its table says otherwise.
func TestG4RelayedRequestIsNotRelayedAgain(t *testing.T) {
	x := newPair(t, nil)
	// eu's proxy hears late that acme has gone to ap: us has to send it back.
	x.inUS.await(x.us.change(fsm.Event{UnitGone: "acme"}))
	x.inAP.await(x.ap.change(placed("acme", "n1")))
	stale := newControlFake(t)
	stale.history = 2
	p := inRegion(t, stale, nil)
	p.await(stale.change(home("acme", "us"), home("beta", "us"), home("nobody", "us"), home("gamma", "us"), routers("us", x.inUS.url()), routers("ap", x.inAP.url())))
	x.tell(x.global.change(home("acme", "ap")))
	held := p.later("POST", "/t/acme/query", nil, "abc")
	p.held(1)
	p.await(stale.change(home("acme", "ap")))
	if a := <-held; a.body != "ap 3" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	p.counts(map[outcome]uint64{outcomeAnswered: 1})
	// Whatever us knows of a tenant that it does not hold, it serves, and asks, nobody.
	short := http.Header{headerHold: {"30"}}
	before := len(x.nodeEU.requests()) + len(x.nodeAP.requests())
	for _, tenant := range []string{"beta", "gamma", "nobody"} {
		p.send("POST", "/t/"+tenant+"/query", short, "x").wants(t, 503, codeMisdirected)
		p.send("POST", "/t/"+tenant+"/query", http.Header{headerHold: {"0"}}, "x").wants(t, 503, codeMisdirected)
	}
	if n := len(x.nodeEU.requests()) + len(x.nodeAP.requests()); n != before || x.us.questions("nobody") != 0 {
		t.Errorf("%d requests went on, %d questions", n-before, x.us.questions("nobody"))
	}
	if n := p.regionNamed("us").counts[relayRefused].Load(); n < 6 {
		t.Errorf("%d refusals of us were counted", n)
	}
}

// TestHoldOfTwoProxiesIsOne: what is left of the time goes along to the second proxy.
func TestHoldOfTwoProxiesIsOne(t *testing.T) {
	left := make(chan string, 1000)
	p, _, _ := viaRouter(t, nil, func(w http.ResponseWriter, r *http.Request) {
		left <- r.Header.Get(headerRoute)
		refusing("misdirected")(w, r)
	})
	p.send("POST", "/t/acme/query", http.Header{headerHold: {"80"}}, "x").wants(t, 503, codeMisdirected)
	p.send("POST", "/t/acme/query", http.Header{headerHold: {"0"}}, "x").wants(t, 503, codeMisdirected)
	close(left)
	last := 81
	for value := range left {
		_, ms, ok := strings.Cut(value, routeHold)
		n, err := strconv.Atoi(ms)
		if !ok || err != nil || n > last {
			t.Errorf("the router got %q after %d", value, last)
		}
		last = n
	}
	if last != 0 {
		t.Errorf("the last request came with %d ms, want none", last)
	}
	// The second proxy's own hold ends when the rest is over.
	x := newPair(t, nil)
	x.nodeUS.Config.Handler = refusing("lease_lapsed")
	x.inEU.send("POST", "/t/acme/query", http.Header{headerHold: {"50"}}, "x").wants(t, 503, "lease_lapsed")
	// So it does where the first proxy's own time is the shorter one.
	p = inRegion(t, x.global, func(c *Config) { c.Hold = 50 * time.Millisecond })
	p.await(x.global.change(routers("us", x.inUS.url())))
	a := p.later("POST", "/t/acme/query", nil, "x")
	eventually(t, func() error {
		select {
		case a := <-a:
			a.wants(t, 503, "lease_lapsed")
			return nil
		default:
			return errors.New("the second proxy holds the request for a time of its own")
		}
	})
}

func TestG6TenantBetweenHomesIsHeldUntilATableSaysWhereItIs(t *testing.T) {
	for name, settle := range map[string]func(x *pair){
		"it arrives here":    func(x *pair) { x.us.change(placed("delta", "n1")) },
		"it goes elsewhere":  func(x *pair) { x.ap.change(placed("delta", "n1")); x.global.change(home("delta", "ap")) },
		"to one without own": func(x *pair) { x.global.change(fsm.Event{TenantGone: "delta"}, placed("delta", "n1")) },
		"it is deleted":      func(x *pair) { x.global.change(fsm.Event{TenantGone: "delta"}) },
	} {
		x := newPair(t, nil)
		x.tell(x.global.change(home("delta", "us")))
		var all []chan answer
		for i := range 20 {
			all = append(all, x.inUS.later("POST", "/t/delta/query", nil, "abc"))
			x.inUS.held(int64(i + 1))
		}
		far := x.inEU.later("POST", "/t/delta/query", nil, "abc") // waits in us, too
		eventually(t, func() error {
			if n := x.inUS.holds.now.Load(); n != 21 {
				return fmt.Errorf("%d are held", n)
			}
			return nil
		})
		settle(x)
		for _, a := range append(all, far) {
			switch a := <-a; {
			case name == "it is deleted":
				a.wants(t, 404, codeUnknownTenant)
			case a.StatusCode != 200 || !strings.HasSuffix(a.body, " 3"):
				t.Errorf("%s: got %d %q", name, a.StatusCode, a.body)
			}
		}
	}
}

func TestG6TenantBetweenHomesIs503NotUnknown(t *testing.T) {
	x := newPair(t, nil)
	x.tell(x.global.change(home("delta", "us")))
	for _, hold := range []string{"0", "30"} {
		short := http.Header{headerHold: {hold}}
		a := x.inUS.send("POST", "/t/delta/query", short, "x")
		a.wants(t, 503, codeTransfer)
		a = x.inEU.send("POST", "/t/delta/query", short, "x")
		a.wants(t, 503, codeMisdirected)
	}
	// One that leaves: its node has given it up, and the region's directory does not place
	// it any more.
	x.nodeUS.Config.Handler = refusing("misdirected")
	held := x.inUS.later("POST", "/t/acme/query", nil, "abc")
	x.inUS.held(1)
	x.inUS.await(x.us.change(fsm.Event{UnitGone: "acme"}))
	x.inUS.held(1)
	x.inAP.await(x.ap.change(placed("acme", "n1")))
	x.tell(x.global.change(home("acme", "ap")))
	if a := <-held; a.body != "ap 3" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
}

// TestG9LinkThatFailsWhileRequestsWaitLetsThemGo: requests that a region refused wait for
// news; where it cannot be reached any more they wait no longer.
func TestG9LinkThatFailsWhileRequestsWaitLetsThemGo(t *testing.T) {
	p, _, all := viaRouter(t, nil, misdirected)
	var waiting []chan answer
	for i := range 20 {
		waiting = append(waiting, p.later("POST", "/t/acme/query", nil, "x"))
		p.held(int64(i + 1))
	}
	all[0].Close()
	unknown := uint64(0)
	for _, a := range waiting {
		a := <-a
		if a.code() == "outcome_unknown" && unknown == 0 { // the trial that was under way
			unknown++
			continue
		}
		a.wants(t, 502, codeRegion)
	}
	p.counts(map[outcome]uint64{outcomeExpired: 20 - unknown, outcomeBroken: unknown})
}

// cutRegion is a pair whose us is reached from eu over links to three routers.
type cutRegion struct {
	*pair
	links []*netfault.Link
	slow  chan struct{} // what a client asks for as "slow" is answered once it is closed
}

func newCutRegion(t *testing.T) *cutRegion {
	domain := "0.0.1" // within which 127.0.0.1 is: questions to routers are no tenant's requests
	x := &cutRegion{slow: make(chan struct{}), pair: newPair(t, func(c *Config) {
		c.ConnectTimeout = 200 * time.Millisecond
		c.Domain, domain = domain, "" // of us alone
	})}
	node := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "slow" {
			<-x.slow
		}
		echo("us")(w, r)
	})
	t.Cleanup(func() { close(x.slow) })
	x.nodeUS = node
	x.inUS.await(x.us.change(node.info()))
	var addrs []string
	for range 3 {
		link, err := netfault.New(x.inUS.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(link.Close)
		x.links, addrs = append(x.links, link), append(addrs, "http://"+link.Addr())
	}
	x.tell(x.global.change(routers("us", addrs...)))
	return x
}

func (x *cutRegion) cut() {
	for _, l := range x.links {
		l.Cut()
	}
}

func (x *cutRegion) routers() []*http1.Upstream { return x.inEU.regionNamed("us").routers.Load().ups }

// found waits until each router is known to be silent, or to answer, without a request.
func (x *cutRegion) found(t *testing.T, known func(*http1.Upstream) bool) {
	t.Helper()
	for _, up := range x.routers() {
		eventually(t, func() error {
			if !known(up) {
				return errNotYet
			}
			return nil
		})
	}
}

// TestG9SilentLinkIsFoundOut: a link takes connections and carries nothing. Nobody waits
// for its answer for long, nothing that may have been executed is repeated, and once that is
// known nobody waits at all.
func TestG9SilentLinkIsFoundOut(t *testing.T) {
	x := newCutRegion(t)
	plain := x.inEU.later("POST", "/t/acme/query?slow", nil, "x")
	keyed := x.inEU.later("POST", "/t/acme/query?slow", http.Header{"Idempotency-Key": {"k"}}, "x")
	read := x.inEU.later("GET", "/t/acme/query?slow", nil, "")
	eventually(t, func() error {
		if len(x.nodeUS.requests()) < 3 {
			return errNotYet
		}
		return nil
	})
	x.cut()
	(<-plain).wants(t, 502, "outcome_unknown")
	(<-keyed).wants(t, 502, "outcome_unknown")
	(<-read).wants(t, 502, codeRegion)
	x.found(t, (*http1.Upstream).Lost)
	for range 50 {
		x.inEU.send("POST", "/t/acme/query", nil, "x").wants(t, 502, codeRegion)
	}
	if n := len(x.nodeUS.requests()); n != 3 {
		t.Errorf("the node got %d requests, want 3", n)
	}
	for _, l := range x.links {
		l.Heal()
	}
	x.found(t, (*http1.Upstream).Well)
	if a := x.inEU.send("POST", "/t/acme/query", nil, "abc"); a.body != "us 3" {
		t.Errorf("healed: got %d %q", a.StatusCode, a.body)
	}
}

// TestG9ACutIsKnownBeforeARequestMeetsIt: the routers of other regions are watched, those of
// the own one are not; so even the first request after a cut is sent to nobody.
func TestG9ACutIsKnownBeforeARequestMeetsIt(t *testing.T) {
	x := newCutRegion(t)
	x.found(t, (*http1.Upstream).Well)
	x.cut()
	x.found(t, (*http1.Upstream).Lost)
	x.inEU.send("POST", "/t/acme/query", nil, "x").wants(t, 502, codeRegion)
	for _, up := range x.inUS.regionNamed("us").routers.Load().ups {
		if n := up.Stats().Dials.Load(); n != 0 {
			t.Errorf("a proxy of us has connected to a router of us %d times", n)
		}
	}
}

// TestG9SlowRouterIsNotTakenForSilent: it answers questions, however long a statement takes.
func TestG9SlowRouterIsNotTakenForSilent(t *testing.T) {
	wait := make(chan struct{})
	p, _, all := viaRouter(t, func(c *Config) { c.ConnectTimeout = 200 * time.Millisecond }, func(w http.ResponseWriter, r *http.Request) {
		<-wait
		echo("slow")(w, r)
	})
	a := p.later("POST", "/t/acme/query", nil, "abc")
	eventually(t, func() error {
		if len(all[0].requests()) == 0 {
			return errNotYet
		}
		return nil
	})
	asked := all[0].asked.Load()
	eventually(t, func() error {
		if all[0].asked.Load() < asked+4 {
			return errNotYet
		}
		return nil
	})
	close(wait)
	if a := <-a; a.body != "slow 3" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
}

func TestG8MarksThatMeanNothing(t *testing.T) {
	x := newPair(t, nil)
	old := line(t, newMarks("secret"), client{addr: "192.0.2.9"}, time.Now().Add(-2*markAge))
	for name, value := range map[string]string{
		"forged":       fmt.Sprintf("192.0.2.9 %d.0.AAAA", time.Now().Unix()),
		"expired":      old,
		"other secret": line(t, newMarks("other"), client{addr: "192.0.2.9"}, time.Now()),
	} {
		before := len(x.nodeUS.requests())
		if a := x.inEU.send("POST", "/t/acme/query", http.Header{headerClient: {value}}, "x"); a.body != "us 1" {
			t.Errorf("%s: got %d %q", name, a.StatusCode, a.body)
		}
		got := x.nodeUS.requests()[before].Header.Values(headerClient)
		if len(got) != 1 || !strings.HasPrefix(got[0], "127.0.0.1 ") || !strings.Contains(got[0], ".1.") {
			t.Errorf("%s: the node got %q", name, got)
		}
		// That a request says that it was relayed makes nobody answer it 421, nor relay it.
		a := x.inEU.send("POST", "/t/acme/query", http.Header{headerClient: {value}, headerRoute: {"acme 7" + routeHold + "100"}}, "x")
		a.wants(t, 508, codeLoop)
	}
	if a := x.inUS.send("POST", "/t/acme/query", http.Header{headerRoute: {"acme 7" + routeHold + "100"}}, "x"); a.body != "us 1" {
		t.Errorf("a request for the own region: got %d %q", a.StatusCode, a.body)
	}
	// Proxies that do not share a secret serve each other's requests, but do not relay them.
	p := start(t, []string{x.global.URL}, func(c *Config) { c.Secrets.SharedSecret = "different" })
	p.await(x.global.change(home("delta", "us")))
	if a := p.send("POST", "/t/acme/query", nil, "x"); a.body != "us 1" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
}

func TestG8R6RefusedTokenWaitsAtTheFirstProxyAlone(t *testing.T) {
	const base = 5 * time.Millisecond
	x := newPair(t, func(c *Config) { c.AuthDelay = base })
	x.nodeUS.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" && !strings.HasPrefix(r.URL.Path, "/t/open/") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	x.inUS.await(x.us.change(placed("open", "n1")))
	x.tell(x.global.change(home("open", "us")))
	count := func(p *running) (n int) {
		p.refusals.mu.Lock()
		defer p.refusals.mu.Unlock()
		for _, e := range p.refusals.byAddr {
			n += e.Value.(*refusedAddr).count
		}
		return n
	}
	forged, good := http.Header{"Authorization": {"Bearer forged"}}, http.Header{"Authorization": {"Bearer good"}}
	for i := range 3 {
		if a := x.inEU.send("GET", "/t/acme/query", forged, ""); a.StatusCode != 401 {
			t.Errorf("got %d", a.StatusCode)
		}
		if first, second := count(x.inEU), count(x.inUS); first != i+1 || second != 0 {
			t.Errorf("after %d refusals the first proxy counts %d, the second %d", i+1, first, second)
		}
	}
	x.inEU.send("GET", "/t/open/query", forged, "") // proves nothing
	if n := count(x.inEU); n != 3 {
		t.Errorf("a tenant that asks for no token had %d refusals of another forgotten", 3-n)
	}
	if a := x.inEU.send("GET", "/t/acme/query", good, ""); a.StatusCode != 200 || count(x.inEU) != 0 {
		t.Errorf("got %d, counts %d after a success", a.StatusCode, count(x.inEU))
	}
}

func TestRelayedHostAndReplicaReads(t *testing.T) {
	x := newPair(t, func(c *Config) { c.Domain = "example.com" })
	copyUS := newNode(t, "n2", echo("copy"))
	x.inUS.await(x.us.change(copyUS.info(), copied("acme", "n1", "n2")))
	host := http.Header{"Host": {"acme.example.com"}, "X-Request-Id": {"mine"}}
	if a := x.inEU.send("POST", "/query", host, "x"); a.body != "us 1" || a.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("got %d %q, id %q", a.StatusCode, a.body, a.Header.Get("X-Request-Id"))
	}
	r := x.nodeUS.requests()[0]
	if r.RequestURI != "/t/acme/query" || r.Host != "acme.example.com" || r.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the node got %s of %s, id %q", r.RequestURI, r.Host, r.Header.Get("X-Request-Id"))
	}
	if a := x.inEU.send("POST", "/t/acme/query", http.Header{headerMode: {"read"}, headerPrefer: {"replica"}}, "x"); a.body != "copy 1" {
		t.Errorf("a read that prefers a copy: got %d %q", a.StatusCode, a.body)
	}
}
