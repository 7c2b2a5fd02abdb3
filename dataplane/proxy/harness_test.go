package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controlFake is a control server as a proxy sees it: the stream, GET of a
// tenant, and whatever else a test serves.
type controlFake struct {
	*httptest.Server
	t *testing.T

	mu        sync.Mutex
	authority string
	global    *controlFake // of a region's server: whose directory it has a copy of
	history   uint64
	deltas    []proto.Delta // from revision 1, at which it is empty
	held      bool          // deltas are not sent
	changed   chan struct{}
	streams   context.Context
	end       context.CancelFunc
	asked     map[string]int // questions about tenants
	age       time.Duration  // of the copy that it says it has
	admin     http.HandlerFunc
}

func newControlFake(t *testing.T) *controlFake {
	c := &controlFake{t: t, authority: "test/global", history: 1, changed: make(chan struct{}), asked: map[string]int{}}
	c.streams, c.end = context.WithCancel(t.Context())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_shard/subscribe", c.subscribe)
	mux.HandleFunc("GET /_shard/tenants/{tenant}", c.tenant)
	mux.HandleFunc("/_shard/", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		admin := c.admin
		c.mu.Unlock()
		admin(w, r)
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.stop)
	return c
}

func (c *controlFake) stop() {
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	end()
	c.CloseClientConnections()
	c.Close()
}

// cut ends the streams that are open.
func (c *controlFake) cut() {
	c.mu.Lock()
	end := c.end
	c.streams, c.end = context.WithCancel(c.t.Context())
	c.mu.Unlock()
	end()
}

// change commits events as one entry, and gives its revision.
func (c *controlFake) change(events ...fsm.Event) fsm.Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	prev := c.revisionLocked()
	rev := prev + 3 // revisions are sparse
	c.deltas = append(c.deltas, proto.Delta{Prev: prev, Revision: rev, Events: events})
	close(c.changed)
	c.changed = make(chan struct{})
	return rev
}

func (c *controlFake) revisionLocked() fsm.Revision {
	if len(c.deltas) == 0 {
		return 1
	}
	return c.deltas[len(c.deltas)-1].Revision
}

// hold keeps deltas back, or lets them go.
func (c *controlFake) hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = on
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *controlFake) serveAdmin(fn http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admin = fn
}

func (c *controlFake) questions(tenant string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[tenant]
}

func (c *controlFake) subscribe(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get(proto.DirectoryParam) == proto.GlobalScope && !strings.HasSuffix(c.authority, "/global") {
		c.mu.Lock()
		global := c.global
		c.mu.Unlock()
		if global == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		global.stream(w, r)
		return
	}
	c.stream(w, r)
}

func (c *controlFake) stream(w http.ResponseWriter, r *http.Request) {
	at := fsm.Revision(0)
	since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	c.mu.Lock()
	streams := c.streams
	hello := &proto.Hello{Version: proto.StreamVersion, Authority: c.authority, History: c.history, Age: c.age}
	if c.revisionLocked() >= fsm.Revision(since) {
		at = fsm.Revision(since)
	}
	c.mu.Unlock()
	frames := []proto.Frame{hello}
	if at == 0 {
		frames = append(frames, &proto.Begin{Revision: 1}, &proto.End{Revision: 1})
		at = 1
	}
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		for _, f := range frames {
			b, err := proto.EncodeFrame(f)
			if err == nil {
				_, err = w.Write(b)
			}
			if err != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		frames = nil
		c.mu.Lock()
		changed := c.changed
		for i := range c.deltas {
			if d := &c.deltas[i]; d.Revision > at && !c.held {
				frames, at = append(frames, d), d.Revision
			}
		}
		c.mu.Unlock()
		if len(frames) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			frames = []proto.Frame{&proto.Heartbeat{Revision: at, Age: hello.Age}}
		case <-r.Context().Done():
			return
		case <-streams.Done():
			return
		}
	}
}

func (c *controlFake) tenant(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("tenant")
	c.mu.Lock()
	c.asked[name]++
	found := false
	for _, d := range c.deltas {
		if r.URL.Query().Get("consistent") != "1" {
			break // by itself it may lag behind all of them
		}
		for _, e := range d.Events {
			if e.Unit != nil && e.Unit.Unit == fsm.UnitName(name) {
				found = true
			} else if e.UnitGone == fsm.UnitName(name) {
				found = false
			}
		}
	}
	w.Header().Set(proto.HeaderRevision, fmt.Sprint(c.revisionLocked()))
	c.mu.Unlock()
	if !found {
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(map[string]string{"error": "no such tenant", "code": string(fsm.CodeTenantUnknown)})
		return
	}
	json.NewEncoder(w).Encode(proto.Tenant{Name: fsm.TenantName(name), State: "active"})
}

// nodeFake is a node: it keeps the requests that it got.
type nodeFake struct {
	*httptest.Server
	name  string
	asked atomic.Int64 // whether it is well

	mu   sync.Mutex
	seen []*http.Request
}

// newNode starts a node. handler nil: it answers its name. It is well, and does not count
// who asks for that.
func newNode(t *testing.T, name string, handler http.HandlerFunc) *nodeFake {
	n := &nodeFake{name: name}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_health" {
			n.asked.Add(1)
			return
		}
		n.mu.Lock()
		n.seen = append(n.seen, r)
		n.mu.Unlock()
		if handler != nil {
			handler(w, r)
			return
		}
		io.WriteString(w, name)
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *nodeFake) info() fsm.Event {
	return fsm.Event{Node: &fsm.NodeInfo{Name: fsm.NodeName(n.name), Addr: n.URL}}
}

func (n *nodeFake) requests() []*http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

func placed(unit, node string) fsm.Event {
	return fsm.Event{Unit: &fsm.UnitInfo{Unit: fsm.UnitName(unit), ID: 1, Node: fsm.NodeName(node), State: fsm.UnitActive}}
}

// running is a proxy under test.
type running struct {
	*Proxy
	t    *testing.T
	stop func() error // ends it and waits; again: nothing
}

// start runs a proxy that follows control; change adapts its configuration.
func start(t *testing.T, control []string, change func(*Config)) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Listener: ln, Control: control, Logger: hclog.NewNullLogger(), DrainTimeout: time.Second}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	r := &running{Proxy: p, t: t}
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	return r
}

// await waits until the proxy's table stands at rev.
func (p *running) await(rev fsm.Revision) {
	p.t.Helper()
	if !p.dir.await(nil, 30*time.Second, reached(rev)) {
		p.t.Fatalf("the table did not reach revision %d", rev)
	}
}

type answer struct {
	*http.Response
	body string
}

func (a answer) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &e) // "" for what is no error
	return e.Code
}

// do sends a request on a connection of its own.
func (p *running) do(method, target string, header http.Header, body string) (answer, error) {
	req, err := http.NewRequest(method, "http://"+p.Addr().String()+target, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	maps.Copy(req.Header, header)
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	req.Close = true
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp, string(text)}, err
}

func (p *running) send(method, target string, header http.Header, body string) answer {
	p.t.Helper()
	a, err := p.do(method, target, header, body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

func (p *running) get(target string) answer {
	p.t.Helper()
	return p.send(http.MethodGet, target, nil, "")
}

// wants checks status and code of an answer.
func (a answer) wants(t *testing.T, status int, code string) {
	t.Helper()
	if a.StatusCode != status || a.code() != code {
		t.Errorf("got %d %q (%s), want %d %q", a.StatusCode, a.code(), a.body, status, code)
	}
	if status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "1" {
		t.Errorf("got Retry-After %q, want 1", a.Header.Get("Retry-After"))
	}
}

// eventually waits until ok gives nil.
func eventually(t *testing.T, ok func() error) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	limit := time.After(30 * time.Second)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-limit:
			t.Fatal(err)
		}
	}
}

// unusedAddr is an address at which nobody listens: its port is bound, so that
// nobody else can take it while the test runs.
func unusedAddr(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", addr.(*syscall.SockaddrInet4).Port)
}

var errNotYet = errors.New("not yet")
