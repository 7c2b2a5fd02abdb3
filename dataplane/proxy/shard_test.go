package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/internal/netfault"
	"domicile/proto"
)

// adminServer is a control server that serves fn alone.
func adminServer(t *testing.T, fn http.HandlerFunc) *nodeFake { return newNode(t, "control", fn) }

func TestShardIsRelayedUntouched(t *testing.T) {
	control := newControlFake(t)
	var got *http.Request
	var body string
	control.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		w.Header().Set(proto.HeaderRevision, "1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"node":"n1"}`)
	})
	p := start(t, []string{control.URL}, func(c *Config) { c.Secrets = Secrets{Token: "own", SharedSecret: "secret"} })
	a := p.send("PUT", "/_shard/nodes/n1?region=eu", http.Header{"Authorization": {"Bearer operator"}, "X-Request-Id": {"mine"}}, `{"addr":"x"}`)
	if a.StatusCode != 201 || a.body != `{"node":"n1"}` || a.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("got %d %q, id %q", a.StatusCode, a.body, a.Header.Get("X-Request-Id"))
	}
	if got.RequestURI != "/_shard/nodes/n1?region=eu" || body != `{"addr":"x"}` || got.Header.Get("Authorization") != "Bearer operator" ||
		got.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the server got %s %q %v", got.RequestURI, body, got.Header)
	}
	if c, err := p.marks.verify([]byte(got.Header.Get(headerClient)), requestOf(got), time.Now()); err != nil || c.addr != "127.0.0.1" {
		t.Errorf("mark: %+v, %v", c, err)
	}
}

func TestChangeIsAnsweredOnceTheOwnTableHasIt(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(n1.info()))
	control.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
		control.hold(true)
		rev := control.change(placed("acme", "n1"))
		w.Header().Set(proto.HeaderRevision, fmt.Sprint(rev))
		io.WriteString(w, "{}")
		time.AfterFunc(20*time.Millisecond, func() { control.hold(false) })
	})
	a := p.send("PUT", "/_shard/tenants/acme", nil, "{}")
	if p.dir.table().seat([]byte("acme")) == nil {
		t.Error("the change was answered before the proxy's table had it")
	}
	if a.StatusCode != 200 || a.Header.Get(headerBehind) != "" {
		t.Errorf("got %d, %s %q", a.StatusCode, headerBehind, a.Header.Get(headerBehind))
	}
	if a := p.get("/t/acme/query"); a.body != "n1" || control.questions("acme") != 0 {
		t.Errorf("got %q after %d questions", a.body, control.questions("acme"))
	}
}

func TestChangeThatTheTableDoesNotReachSaysSo(t *testing.T) {
	t.Parallel() // it waits awaitChange
	control := newControlFake(t)
	p := start(t, []string{control.URL}, nil)
	p.await(1)
	control.serveAdmin(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(proto.HeaderRevision, "1000")
		io.WriteString(w, "{}")
	})
	if a := p.send("PUT", "/_shard/tenants/acme", nil, "{}"); a.StatusCode != 200 || a.Header.Get(headerBehind) != "1" {
		t.Errorf("got %d, %s %q, want the table's revision", a.StatusCode, headerBehind, a.Header.Get(headerBehind))
	}
	if a := p.get("/_shard/group"); a.Header.Get(headerBehind) != "" {
		t.Error("a read waited for the table")
	}
}

func TestRelayGoesToTheServerThatAnsweredLast(t *testing.T) {
	var counts [3]atomic.Int32
	var urls []string
	for i := range 3 {
		s := adminServer(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/_shard/group") {
				counts[i].Add(1)
				if i == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			} else {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		urls = append(urls, s.URL)
	}
	p := start(t, append([]string{unusedAddr(t)}, urls...), nil)
	for range 5 {
		if a := p.get("/_shard/group"); a.StatusCode != 200 {
			t.Errorf("got %d", a.StatusCode)
		}
	}
	if a, b, c := counts[0].Load(), counts[1].Load(), counts[2].Load(); a != 5 || b != 0 || c != 0 {
		t.Errorf("got %d, %d, %d requests: want all at the one that answered first", a, b, c)
	}
	p.control.first.Store(2) // the one that knows no leader
	if a := p.get("/_shard/group"); a.StatusCode != 503 {
		t.Errorf("got %d", a.StatusCode)
	}
	if a := p.get("/_shard/group"); a.StatusCode != 200 || counts[2].Load() != 1 {
		t.Errorf("got %d: want the next request at the next server", a.StatusCode)
	}
}

// TestASilentControlServerIsLeftForOneThatAnswers: it takes connections and says nothing, as
// a process that is paused does.
func TestASilentControlServerIsLeftForOneThatAnswers(t *testing.T) {
	group := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/_shard/group") {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	silent, well := adminServer(t, group), adminServer(t, group)
	link, err := netfault.New(strings.TrimPrefix(silent.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p := start(t, []string{"http://" + link.Addr(), well.URL}, func(c *Config) { c.ConnectTimeout = 200 * time.Millisecond })
	p.control.first.Store(0)
	link.Cut()
	p.send("PUT", "/_shard/group", nil, "{}").wants(t, 502, "outcome_unknown")
	for range 5 {
		p.control.first.Store(0)
		if a := p.get("/_shard/group"); a.StatusCode != 200 {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	before := p.control.ups[0].Stats().Reused.Load()
	p.control.first.Store(0)
	if a := p.send("PUT", "/_shard/group", nil, "{}"); a.StatusCode != 200 || p.control.ups[0].Stats().Reused.Load() != before {
		t.Errorf("a change: got %d %q", a.StatusCode, a.body)
	}
}

func TestNoControlServerIs503(t *testing.T) {
	p := start(t, []string{unusedAddr(t), unusedAddr(t)}, nil)
	p.send("PUT", "/_shard/tenants/acme", nil, "{}").wants(t, 503, codeUnavailable)
	none := start(t, nil, nil)
	none.get("/_shard/group").wants(t, 503, codeUnavailable)
}

func TestR2ChangeIsNotSentTwiceWithoutAKey(t *testing.T) {
	var first, second atomic.Int32
	cut := adminServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/_shard/tenants/") {
			first.Add(1)
			io.Copy(io.Discard, r.Body)
		}
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	})
	other := adminServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/_shard/tenants/") {
			second.Add(1)
		}
	})
	p := start(t, []string{cut.URL, other.URL}, nil)
	p.control.first.Store(0)
	p.send("PUT", "/_shard/tenants/acme", nil, "{}").wants(t, 502, "outcome_unknown")
	if first.Load() != 1 || second.Load() != 0 {
		t.Errorf("sent %d and %d times", first.Load(), second.Load())
	}
	alone := start(t, []string{cut.URL}, nil)
	alone.send("PUT", "/_shard/tenants/acme", http.Header{"Idempotency-Key": {"k"}}, "{}")
	if first.Load() != 3 {
		t.Errorf("with a key: sent %d times in all, want 3", first.Load())
	}
}

func TestEventsStreamThroughTheProxy(t *testing.T) {
	control := newControlFake(t)
	next := make(chan string)
	control.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for line := range next {
			io.WriteString(w, line)
			w.(http.Flusher).Flush()
		}
	})
	p := start(t, []string{control.URL}, nil)
	resp, err := http.Get("http://" + p.Addr().String() + "/_shard/events")
	if err == nil {
		defer resp.Body.Close()
		next <- "data: one\n"
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: one\n" {
			t.Errorf("got %q, %v", line, err)
		}
	} else {
		t.Error(err)
	}
	close(next)
}

func TestAuditTellsOfRefusedTokensAndChanges(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	control.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"PUT": 201, "POST": 401, "GET": 200}[r.Method])
	})
	var mu sync.Mutex
	var lines []string
	p := start(t, []string{control.URL}, func(c *Config) {
		c.Secrets.Token = "own"
		c.Audit = func(a Audit) {
			mu.Lock()
			defer mu.Unlock()
			if a.Peer == "" || a.RequestID == "" || a.At.IsZero() {
				t.Errorf("a line without %+v", a)
			}
			lines = append(lines, fmt.Sprint(a.Event, " ", a.Method, " ", a.Path, " ", a.Status, " ", a.Client))
		}
	})
	p.await(control.change(n1.info(), placed("acme", "n1")))
	p.send("PUT", "/_shard/nodes/n1?a=b", nil, "{}")
	p.send("POST", "/_shard/replicas", nil, "{}")
	p.get("/_shard/nodes")
	p.get("/t/acme/query?secret=1")
	p.get("/_metrics")
	want := []string{
		"change PUT /_shard/nodes/n1 201 127.0.0.1",
		"refused_token POST /_shard/replicas 401 127.0.0.1",
		"refused_token GET /t/acme/query 401 127.0.0.1",
		"refused_token GET /_metrics 401 127.0.0.1",
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestR6RefusedTokensWaitAtTheFirstProxyAlone(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	const base = 20 * time.Millisecond
	p := start(t, []string{control.URL}, func(c *Config) {
		c.AuthDelay = base
		c.Secrets.SharedSecret = "secret"
	})
	p.await(control.change(n1.info(), placed("acme", "n1")))
	forged, good := http.Header{"Authorization": {"Bearer forged"}}, http.Header{"Authorization": {"Bearer good"}}
	counted := func() int {
		p.refusals.mu.Lock()
		defer p.refusals.mu.Unlock()
		for _, e := range p.refusals.byAddr {
			return e.Value.(*refusedAddr).count
		}
		return 0
	}
	for i := range 4 {
		began := time.Now()
		if a := p.send("GET", "/t/acme/query", forged, ""); a.StatusCode != 401 {
			t.Errorf("got %d", a.StatusCode)
		}
		if waited := time.Since(began); waited < base<<i || counted() != i+1 {
			t.Errorf("refusal %d waited %v and counts %d", i+1, waited, counted())
		}
	}
	forged.Set("X-Request-Id", string(acmes.id))
	forged.Set(headerClient, line(t, p.marks, client{addr: "192.0.2.1"}, time.Now()))
	p.send("GET", "/t/acme/query", forged, "")
	if counted() != 4 {
		t.Error("a refusal that came through another proxy was counted")
	}
	forged.Set(headerClient, "192.0.2.1 1700000000.0.guessed")
	p.send("GET", "/t/acme/query", forged, "")
	if counted() != 5 {
		t.Error("a refusal with a guessed mark was not counted for the connection's address")
	}
	if a := p.send("GET", "/t/acme/query", good, ""); a.StatusCode != 200 || counted() != 0 {
		t.Errorf("got %d, counts %d after a success", a.StatusCode, counted())
	}
	if n := p.refusals.total.Load(); n != 6 {
		t.Errorf("domicile_refused_tokens_total is %d, want 6", n)
	}
}

func TestReloadPutsSecretsInForce(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	p := start(t, []string{control.URL}, func(c *Config) { c.Secrets = Secrets{Token: "old", SharedSecret: "old"} })
	p.await(control.change(n1.info(), placed("acme", "n1")))
	p.Reload(Secrets{Token: "new", SharedSecret: "new"})
	p.get("/t/acme/query")
	r := n1.requests()[0]
	value := r.Header.Get(headerClient)
	if _, err := newMarks("new").verify([]byte(value), requestOf(r), time.Now()); err != nil {
		t.Errorf("mark %q is not of the new secret", value)
	}
	if a := p.send("GET", "/_metrics", http.Header{"Authorization": {"Bearer old"}}, ""); a.StatusCode != 401 {
		t.Errorf("the old token: got %d", a.StatusCode)
	}
	if a := p.send("GET", "/_metrics", http.Header{"Authorization": {"Bearer new"}}, ""); a.StatusCode != 200 {
		t.Errorf("the new token: got %d", a.StatusCode)
	}
}

// TestRelayLeavesAServerThatBreaksConnections: what stands before a server that is gone
// may take connections and break them. It does not stay the first to be asked.
func TestRelayLeavesAServerThatBreaksConnections(t *testing.T) {
	cut := adminServer(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	})
	other := adminServer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	p := start(t, []string{cut.URL, other.URL}, nil)
	p.control.first.Store(0)
	p.get("/_shard/group") // of this one it is only known that it was not answered
	if a := p.get("/_shard/group"); a.StatusCode != 200 {
		t.Errorf("got %d %s: want the next request at the next server", a.StatusCode, a.body)
	}
}

// TestWhatIsBehindASilentServerIsLookedAtToo: of three control servers one is silent, and what
// stands before the next takes connections and breaks them. Only the third answers.
func TestWhatIsBehindASilentServerIsLookedAtToo(t *testing.T) {
	well := adminServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/_shard/group") {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	gone, err := netfault.New(unusedAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gone.Close)
	p := start(t, []string{unusedAddr(t), "http://" + gone.Addr(), well.URL}, nil)
	p.control.ups[0].SetLost(true)
	p.control.first.Store(0)
	p.get("/_shard/group") // finds out about the second
	for range 3 {
		if a := p.get("/_shard/group"); a.StatusCode != 200 {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
}
