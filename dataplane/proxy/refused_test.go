package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"domicile/fsm"
)

func misdirected(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusMisdirectedRequest)
	io.WriteString(w, `{"error":"not here","code":"misdirected","unit":"acme"}`)
}

func TestM8StaleTableIsCorrectedAndLosesNothing(t *testing.T) {
	control := newControlFake(t)
	old, next := newNode(t, "n1", misdirected), newNode(t, "n2", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "n2 got %d", len(b))
	})
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(old.info(), next.info(), placed("acme", "n1")))
	control.hold(true) // the proxy does not hear of the move
	control.change(placed("acme", "n2"))
	done := make(chan answer)
	go func() {
		a, err := p.do("POST", "/t/acme/query", nil, strings.Repeat("x", 5000))
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	eventually(t, func() error {
		if control.questions("acme") == 0 {
			return errNotYet
		}
		return nil
	})
	control.hold(false)
	if a := <-done; a.body != "n2 got 5000" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	if n := p.holds.counts[outcomeSentOn].Load(); n != 1 {
		t.Errorf("%d sent on, want 1", n)
	}
}

func TestM8ClientNeverSees421(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", misdirected)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	p.get("/t/acme/query").wants(t, 503, codeMisdirected)
	if n := len(n1.requests()); n != 1 {
		t.Errorf("the node was asked %d times", n)
	}
	// Two nodes that each say that the other has it: bounded.
	n2 := newNode(t, "n2", misdirected)
	flip := newNode(t, "n3", nil)
	var turn atomic.Int32
	n1.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := []string{"n1", "n2"}[turn.Add(1)%2]
		p.await(control.change(n2.info(), flip.info(), placed("acme", node)))
		misdirected(w, r)
	})
	n2.Config.Handler = n1.Config.Handler
	p.get("/t/acme/query").wants(t, 503, codeMisdirected)
	if turn.Load() != maxAttempts {
		t.Errorf("sent %d times, want %d", turn.Load(), maxAttempts)
	}
	n1.Config.Handler, n2.Config.Handler = http.HandlerFunc(misdirected), http.HandlerFunc(misdirected)
	control.stop()
	p.get("/t/acme/query").wants(t, 503, codeMisdirected)
}

func TestTenantDeletedBehindTheProxysBackIs404(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", misdirected)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	n1.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.await(control.change(fsm.Event{UnitGone: "acme"}))
		misdirected(w, r)
	})
	p.get("/t/acme/query").wants(t, 404, codeUnknownTenant)
}

func TestNodesOwnRefusalsArePassedOn(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":"x","code":%q}`, r.URL.Query().Get("code"))
	})
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	for code, status := range map[string]int{
		"no_lease": 503, "transfer_in_progress": 503, "unknown_tenant": 404, "quota": 429, "position_lost": 409,
	} {
		p.get(fmt.Sprintf("/t/acme/query?status=%d&code=%s", status, code)).wants(t, status, code)
	}
}

func TestR5NodeThatIsDownIs502AtOnce(t *testing.T) {
	control := newControlFake(t)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(
		fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: unusedAddr(t)}}, placed("acme", "n1"),
		fsm.Event{Node: &fsm.NodeInfo{Name: "n2", Addr: "no address"}}, placed("beta", "n2"), placed("lost", "n3"),
	))
	for range 3 {
		a := p.send("POST", "/t/acme/query", nil, "x")
		a.wants(t, 502, "node_unreachable")
		if !strings.Contains(a.body, `{"error":"node n1 cannot be reached`) || strings.Contains(a.body, "127.0.0.1") {
			t.Errorf("got %q, want the node's name and no address", a.body)
		}
	}
	if n := p.dir.nodes.errors()["n1"]; n != 3 {
		t.Errorf("counted %d errors of n1, want 3", n)
	}
	p.get("/t/beta/query").wants(t, 503, codeUnavailable)
	p.get("/t/lost/query").wants(t, 503, codeUnavailable)
}

func TestR2WriteWhoseOutcomeIsUnknownIsNotSentAgain(t *testing.T) {
	control := newControlFake(t)
	var sent atomic.Int32
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		io.Copy(io.Discard, r.Body)
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	})
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	p.send("POST", "/t/acme/query", nil, "x").wants(t, 502, "outcome_unknown")
	if sent.Load() != 1 {
		t.Errorf("sent %d times", sent.Load())
	}
}

func TestG4RequestThatGoesInACircleEnds(t *testing.T) {
	control := newControlFake(t)
	p := start(t, []string{control.URL}, func(c *Config) { c.Secrets.SharedSecret = "secret" })
	p.await(control.change(fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: p.Addr().String()}}, placed("acme", "n1")))
	p.get("/t/acme/query").wants(t, 508, codeLoop)
}

func TestG8TwoProxiesTellTheNodeTheClient(t *testing.T) {
	near, far := newControlFake(t), newControlFake(t)
	n1 := newNode(t, "n1", nil)
	secret := func(c *Config) { c.Secrets.SharedSecret = "secret" }
	second := start(t, []string{far.URL}, secret)
	first := start(t, []string{near.URL}, secret)
	second.await(far.change(n1.info(), placed("acme", "n1")))
	first.await(near.change(fsm.Event{Node: &fsm.NodeInfo{Name: "proxy", Addr: second.Addr().String()}}, placed("acme", "proxy")))
	if a := first.get("/t/acme/query"); a.body != "n1" {
		t.Fatalf("got %d %q", a.StatusCode, a.body)
	}
	value := n1.requests()[0].Header.Get(headerClient)
	if _, text, _ := strings.Cut(value, " "); !strings.Contains(text, ".1.") {
		t.Errorf("the node got %q, want a mark of one hop before", value)
	}
	if host, _, _ := net.SplitHostPort(first.Addr().String()); !strings.HasPrefix(value, host+" ") {
		t.Errorf("the node got %q, want the client's address", value)
	}
}

func TestManyClientsWhileTenantsMove(t *testing.T) {
	control := newControlFake(t)
	var mu sync.Mutex
	home := map[string]string{}
	serve := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			tenant := strings.Split(r.URL.Path, "/")[2]
			mu.Lock()
			here := home[tenant] == name
			mu.Unlock()
			if !here {
				misdirected(w, r)
				return
			}
			io.WriteString(w, tenant)
		}
	}
	a, b := newNode(t, "a", serve("a")), newNode(t, "b", serve("b"))
	move := func(tenant, node string) fsm.Revision {
		mu.Lock()
		defer mu.Unlock()
		home[tenant] = node
		return control.change(placed(tenant, node))
	}
	control.change(a.info(), b.info())
	p := start(t, []string{control.URL}, nil)
	for i := range 10 {
		p.await(move(fmt.Sprint("t", i), "a"))
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				tenant := fmt.Sprint("t", i%10)
				got, err := p.do("POST", "/t/"+tenant+"/query", nil, "x")
				if err != nil || got.StatusCode == 421 || (got.StatusCode == 200 && got.body != tenant) ||
					(got.StatusCode != 200 && got.StatusCode != 503) {
					t.Errorf("%s: got %v %v %q", tenant, err, got.Response, got.body)
					return
				}
			}
		})
	}
	for i := range 60 {
		rev := move(fmt.Sprint("t", i%10), []string{"b", "a"}[i/10%2])
		p.await(rev)
	}
	close(stop)
	wg.Wait()
}
