package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
)

func TestRequestGoesToTheNodeOfItsTenant(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", nil), newNode(t, "n2", nil)
	rev := control.change(n1.info(), n2.info(), placed("acme", "n1"), placed("beta", "n2"), placed("big.7", "n2"))
	p := start(t, []string{control.URL}, func(c *Config) { c.Secrets.SharedSecret = "secret" })
	p.await(rev)
	for target, want := range map[string]string{
		"/t/acme": "n1", "/t/acme/": "n1", "/t/acme/db/v2/pipeline?x=%2f": "n1", "/t/beta/query": "n2", "/t/big/b/7/query": "n2",
		"/t/acme//x/../y": "n1",
	} {
		if a := p.get(target); a.StatusCode != 200 || a.body != want {
			t.Errorf("%s: got %d %q, want %q", target, a.StatusCode, a.body, want)
		}
	}
	p.send("POST", "/t/acme/query?a=b", http.Header{
		"Authorization": {"Bearer tenant"}, "Host": {"my.host"}, "X-Request-Id": {"mine"},
		headerClient: {"9.9.9.9 1.0.x"}, headerRoute: {"evil 1"},
	}, "body")
	all := n1.requests()
	r := all[len(all)-1]
	if r.RequestURI != "/t/acme/query?a=b" || r.Host != "my.host" || r.Header.Get("Authorization") != "Bearer tenant" || r.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the node got %s of %s: %v", r.RequestURI, r.Host, r.Header)
	}
	if got, want := r.Header.Values(headerRoute), []string{fmt.Sprintf("acme %d", rev)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %q, want %q", headerRoute, got, want)
	}
	marks := r.Header.Values(headerClient)
	if len(marks) != 1 {
		t.Fatalf("%s: got %q", headerClient, marks)
	}
	if c, err := p.marks.verify([]byte(marks[0]), requestOf(r), time.Now()); err != nil || c != (client{"127.0.0.1", 1}) {
		t.Errorf("%s %q: got %+v, %v", headerClient, marks[0], c, err)
	}
}

func TestT4NoDirectoryIs503NotUnknown(t *testing.T) {
	p := start(t, []string{unusedAddr(t)}, nil)
	p.get("/t/acme/query").wants(t, 503, codeUnavailable)
	p.get("/_ready").wants(t, 503, codeUnavailable)
	if a := p.get("/_health"); a.StatusCode != 200 {
		t.Errorf("/_health: got %d", a.StatusCode)
	}
}

func TestT4UnknownTenantIsAskedAboutOnceThen404(t *testing.T) {
	control := newControlFake(t)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(placed("acme", "n1")))
	a := p.get("/t/nobody/query")
	a.wants(t, 404, codeUnknownTenant)
	if !strings.Contains(a.body, "nobody") {
		t.Errorf("the answer %q does not name the tenant", a.body)
	}
	if n := control.questions("nobody"); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
	p.get("/t/nobody%2f/query").wants(t, 400, codeBadRequest)
	p.get("/t/Acme/query").wants(t, 400, codeBadRequest)
	p.get("/t//acme/query").wants(t, 404, codeUnknownTenant)
	p.get("//t/acme/query").wants(t, 404, codeUnknownRoute)
	p.get("/t").wants(t, 404, codeUnknownRoute)
	if n := control.questions("acme") + control.questions(""); n != 0 {
		t.Errorf("%d questions about names that no tenant has", n)
	}
	control.stop()
	p.get("/t/nobody/query").wants(t, 503, codeUnavailable)
}

func TestT4TenantMadeAMomentAgoIsFound(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	p := start(t, []string{unusedAddr(t), control.URL}, nil)
	p.await(control.change(n1.info()))
	p.get("/t/acme/query").wants(t, 404, codeUnknownTenant)
	control.hold(true)
	rev := control.change(placed("acme", "n1"))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			a, err := p.do("POST", "/t/acme/query", nil, strings.Repeat("b", 100_000))
			if err != nil || a.StatusCode != 200 || a.body != "n1" {
				t.Errorf("got %v %v %q, want n1", err, a.Response, a.body)
			}
		})
	}
	eventually(t, func() error {
		if control.questions("acme") < 2 {
			return errNotYet
		}
		return nil
	})
	control.hold(false)
	wg.Wait()
	p.await(rev)
}

func TestUnknownTenantsCostTheControlPlaneAtMostABoundedNumberOfQuestions(t *testing.T) {
	release := make(chan struct{})
	var mu sync.Mutex
	under, most := 0, 0
	a := newAsking(t.Context(), func(_ context.Context, _, _ string) (known, error) {
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		<-release
		mu.Lock()
		under--
		mu.Unlock()
		return known{revision: 7}, nil
	})
	var wg sync.WaitGroup
	busy := make(chan error, 300)
	for i := range 300 {
		wg.Go(func() {
			_, err := a.about(nil, fmt.Sprint("t", i), revisions{own: 5}, "")
			busy <- err
		})
	}
	eventually(t, func() error {
		if len(busy) != 300-maxAsking {
			return fmt.Errorf("%d were turned away, want %d", len(busy), 300-maxAsking)
		}
		return nil
	})
	close(release)
	wg.Wait()
	a.wait()
	if most > maxAsking {
		t.Errorf("%d questions at the same time", most)
	}
	// Crowded, what is remembered answers; once the table is past it, not.
	for i := range crowded {
		a.calls[fmt.Sprint("other", i)] = &question{done: make(chan struct{})}
	}
	a.ask = func(context.Context, string, string) (known, error) { return known{revision: 9, found: true}, nil }
	for k := range a.absent {
		if got, err := a.about(nil, k, revisions{own: 7}, ""); err != nil || got.found {
			t.Errorf("got %+v, %v, want the absence remembered", got, err)
		}
		if got, err := a.about(nil, k, revisions{own: 8}, ""); err != nil || !got.found {
			t.Errorf("got %+v, %v: an absence older than the table answered", got, err)
		}
		break
	}
	a.wait()
}

func TestAQuestionPutBeforeATenantWasMadeDoesNotAnswerForAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan known)
		a := newAsking(t.Context(), func(context.Context, string, string) (known, error) { return <-answers, nil })
		var found [2]bool
		var wg sync.WaitGroup
		for i := range found {
			wg.Go(func() {
				k, err := a.about(nil, "acme", revisions{own: 1}, "")
				if err != nil {
					t.Error(err)
				}
				found[i] = k.found
			})
			synctest.Wait() // the first has put the question before the second comes
		}
		answers <- known{revision: 1} // of before the tenant was made
		answers <- known{revision: 2, found: true}
		wg.Wait()
		a.wait()
		if found[0] || !found[1] {
			t.Errorf("got %v: want the first told what was so when it asked, the second what is so since", found)
		}
	})
}

func TestTenantsWithBucketsNeedABucket(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info(), placed("acme", "n1"), placed("big.1", "n1"),
		fsm.Event{Tenant: &fsm.TenantInfo{Name: "big", Buckets: 2, Hash: fsm.HashStrCRC32}},
		fsm.Event{Tenant: &fsm.TenantInfo{Name: "far", Home: "us", HasHome: true}}))
	p.get("/t/big/query").wants(t, 400, codeBucketRequired)
	p.get("/t/big/b/3/query").wants(t, 404, codeUnknownBucket)
	p.get("/t/acme/b/1/query").wants(t, 404, codeUnknownBucket)
	p.get("/t/big/b/01/query").wants(t, 400, codeBadRequest)
	p.get("/t/far/query").wants(t, 502, codeRegion)
	if a := p.get("/t/big/b/1/query"); a.body != "n1" {
		t.Errorf("got %q", a.body)
	}
}

func TestX2TenantByHostName(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	p := start(t, []string{control.URL}, func(c *Config) { c.Domain = "Example.com." })
	p.await(control.change(n1.info(), placed("acme", "n1")))
	for host, targets := range map[string]map[string]string{
		"acme.example.com":    {"/": "/t/acme/", "/v2/pipeline?a=%2f&b": "/t/acme/v2/pipeline?a=%2f&b", "/_health": "/t/acme/_health", "/t/acme/q": "/t/acme/t/acme/q"},
		"ACME.example.com:80": {"/db//x": "/t/acme/db//x"},
		"proxy.test":          {"/t/acme/query": "/t/acme/query"},
	} {
		for target, want := range targets {
			a := p.send("POST", target, http.Header{"Host": {host}}, "x")
			all := n1.requests()
			if a.StatusCode != 200 || all[len(all)-1].RequestURI != want {
				t.Errorf("%s%s: got %d, the node %s, want %s", host, target, a.StatusCode, all[len(all)-1].RequestURI, want)
			}
			if got := all[len(all)-1].Host; got != host {
				t.Errorf("the node got Host %q, want %q", got, host)
			}
		}
	}
	p.send("GET", "/", http.Header{"Host": {"nobody.example.com"}}, "").wants(t, 404, codeUnknownTenant)
	p.send("GET", "/", http.Header{"Host": {"a.b.example.com"}}, "").wants(t, 404, codeUnknownRoute)
}
