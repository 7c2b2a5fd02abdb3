package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/proto/follow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(time.Millisecond) // poll
	}
}

// directory is a log that is applied once and published by several servers,
// each cutting it into stretches of its own.
type directory struct {
	t     testing.TB
	mu    sync.Mutex
	state *fsm.State
	rev   fsm.Revision
	at    map[fsm.Revision]*fsm.State // every revision that there was
	log   []change
}

type change struct {
	prev   fsm.Revision
	events []fsm.Event
	state  *fsm.State
}

func newDirectory(t testing.TB, cluster string) *directory {
	d := &directory{t: t, state: fsm.New(), at: make(map[fsm.Revision]*fsm.State)}
	d.apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: cluster, History: 1}})
	return d
}

func (d *directory) apply(cmd fsm.Command) {
	d.mu.Lock()
	defer d.mu.Unlock()
	prev := d.state.Revision()
	d.rev += 1 + fsm.Revision(rand.N(3)) // revisions are sparse
	r, events := d.state.Apply(fsm.Entry{Revision: d.rev, Term: 1, At: 1, Cmd: cmd})
	if r.Refusal != nil {
		d.t.Errorf("apply %T: %v", cmd, r.Refusal)
	}
	s := d.state.Snapshot()
	d.at[s.Revision()] = s
	d.log = append(d.log, change{prev, events, s})
}

// random changes one of few regions, so that the same record changes often.
func (d *directory) random() {
	d.apply(&fsm.PutRegion{Region: fsm.Region{
		Name: fsm.RegionName(fmt.Sprintf("r%d", rand.N(20))), Routers: []string{fmt.Sprintf("http://h%d", rand.N(1000))},
	}})
}

// server publishes the log from where it stands, several changes at once.
type server struct {
	d    *directory
	hub  *Hub
	http *httptest.Server
	next int
}

func newServer(t testing.TB, d *directory, cfg Config) *server {
	s := &server{d: d, hub: New(cfg)}
	s.http = httptest.NewServer(s.hub)
	t.Cleanup(func() {
		s.hub.Close()
		s.http.Close()
	})
	return s
}

// publish catches up by at most n changes, as one stretch.
func (s *server) publish(n int) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	part := s.d.log[s.next:min(s.next+n, len(s.d.log))]
	if len(part) == 0 {
		return
	}
	var events []fsm.Event
	for _, c := range part {
		events = append(events, c.events...)
	}
	s.hub.Publish(part[0].prev, events, Own(part[len(part)-1].state))
	s.next += len(part)
}

func (s *server) publishAll() {
	for range len(s.d.log) {
		s.publish(1)
	}
}

// watcher is a follower that checks every step against the log.
type watcher struct {
	t      testing.TB
	d      *directory
	client *follow.Client
	mu     sync.Mutex
	view   *fsm.View
	loads  int
	steps  int
	slow   bool
	errs   []error
}

func (w *watcher) fail(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	w.errs = append(w.errs, err)
	return err
}

// check compares the copy with the directory as it was at that revision.
func (w *watcher) check(at follow.Position) error {
	w.d.mu.Lock()
	s := w.d.at[at.Revision]
	w.d.mu.Unlock()
	if s == nil {
		return w.fail("revision %d never was", at.Revision)
	}
	want := fsm.NewView()
	for e := range fsm.Project(s) {
		if err := want.Load([]fsm.Event{e}); err != nil {
			return w.fail("project: %v", err)
		}
	}
	if err := want.Apply(0, at.Revision, nil); err != nil {
		return w.fail("project: %v", err)
	}
	if !w.view.Equal(want) {
		return w.fail("the copy at revision %d is not what the directory was", at.Revision)
	}
	return nil
}

func (w *watcher) Begin(at follow.Position) (follow.Loader, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view != nil && at.Revision < w.view.Revision() {
		return nil, w.fail("a whole directory at revision %d after %d", at.Revision, w.view.Revision())
	}
	return &loading{w: w, at: at, view: fsm.NewView()}, nil
}

func (w *watcher) Apply(prev fsm.Revision, at follow.Position, events []fsm.Event) error {
	if w.slow {
		<-time.After(time.Millisecond) // a slow reader is what is tested
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps++
	if err := w.view.Apply(prev, at.Revision, events); err != nil {
		return w.fail("%w", err)
	}
	return w.check(at)
}

func (w *watcher) revision() fsm.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view == nil {
		return 0
	}
	return w.view.Revision()
}

type loading struct {
	w    *watcher
	at   follow.Position
	view *fsm.View
}

func (l *loading) Add(events []fsm.Event) error { return l.view.Load(events) }
func (l *loading) Abort()                       {}
func (l *loading) Commit() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.view.Apply(0, l.at.Revision, nil); err != nil {
		return l.w.fail("%w", err)
	}
	l.w.view = l.view
	l.w.loads++
	return l.w.check(l.at)
}

func newWatcher(t testing.TB, d *directory, servers ...*server) *watcher {
	t.Helper()
	w := &watcher{t: t, d: d}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.http.URL)
	}
	transport := &http.Transport{}
	var err error
	w.client, err = follow.New(follow.Config{
		URLs: urls, Sink: w, Logger: hclog.NewNullLogger(), HTTP: &http.Client{Transport: transport},
		PauseLeast: time.Millisecond, PauseMost: 20 * time.Millisecond, Silence: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		transport.CloseIdleConnections()
		for _, err := range w.errs {
			t.Error(err)
		}
	})
	return w
}

func (w *watcher) awaits(rev fsm.Revision) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the follower is at revision %d", rev), func() bool { return w.revision() >= rev })
}

// Every follower sees every revision that its server publishes, in order, none
// from the future, and holds at each what the directory was: across slow
// readers, rings that overflow, broken connections, and servers that cut the
// log differently and lag behind each other.
func TestFollowersAgreeWithTheDirectoryAtEachRevision(t *testing.T) {
	d := newDirectory(t, "c1")
	servers := []*server{
		newServer(t, d, Config{Deltas: 8, Heartbeat: 5 * time.Millisecond}),
		newServer(t, d, Config{Deltas: 1000, Heartbeat: 5 * time.Millisecond}),
		newServer(t, d, Config{DeltaBytes: 2000, Heartbeat: 5 * time.Millisecond}),
	}
	for _, s := range servers {
		s.publishAll()
	}
	var watchers []*watcher
	for i := range 12 {
		w := newWatcher(t, d, servers[i%3], servers[(i+1)%3])
		w.slow = i%4 == 0
		watchers = append(watchers, w)
	}
	for i := range 400 {
		d.random()
		for _, s := range servers {
			if rand.N(3) > 0 {
				s.publish(1 + rand.N(5))
			}
		}
		if i%40 == 0 {
			servers[rand.N(3)].http.CloseClientConnections()
			<-time.After(5 * time.Millisecond) // let some come back meanwhile
		}
		if i%150 == 149 { // a server restores a snapshot
			s := servers[rand.N(3)]
			s.hub.Reset(Own(d.state.Snapshot()))
			s.next = len(d.log)
		}
	}
	for _, s := range servers {
		for s.next < len(d.log) {
			s.publish(3)
		}
	}
	loads, steps := 0, 0
	for _, w := range watchers {
		w.awaits(d.state.Revision())
		w.mu.Lock()
		loads, steps = loads+w.loads, steps+w.steps
		w.mu.Unlock()
	}
	if loads < len(watchers) || steps < 100 {
		t.Errorf("%d whole directories and %d changes: the test tests nothing", loads, steps)
	}
}

// A follower that comes back gets the changes, not everything, also from a
// server whose stretches do not end where it stands.
func TestResumingNeedsNoWholeDirectory(t *testing.T) {
	d := newDirectory(t, "c1")
	a, b := newServer(t, d, Config{}), newServer(t, d, Config{})
	for range 10 {
		d.random()
	}
	a.publish(7)
	b.publish(100)
	w := newWatcher(t, d, a)
	w.awaits(d.log[6].state.Revision())
	has := w.client.Position()
	resumed := &watcher{t: t, d: d, view: w.view}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := follow.New(follow.Config{URLs: []string{b.http.URL}, From: has, Sink: resumed,
		Logger: hclog.NewNullLogger(), HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	resumed.awaits(d.state.Revision())
	cancel()
	<-done
	if resumed.loads != 0 || resumed.steps == 0 || len(resumed.errs) > 0 {
		t.Errorf("%d whole directories, %d changes, %v: want changes alone", resumed.loads, resumed.steps, resumed.errs)
	}
}

func TestManyAtOnceCostOneEncoding(t *testing.T) {
	d := newDirectory(t, "c1")
	for range 50 {
		d.random()
	}
	s := newServer(t, d, Config{})
	s.publishAll()
	var seen []*whole
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 100 {
		wg.Go(func() {
			w, _ := s.hub.wholeFor()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(seen, w) {
				seen = append(seen, w)
			}
		})
	}
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("%d encodings for 100 subscribers, want 1", len(seen))
	}
	// It serves also after later changes, as long as the ring goes on from it.
	d.random()
	s.publish(1)
	if w, c := s.hub.wholeFor(); w != seen[0] || c.rev != w.state.Revision() {
		t.Error("a change made the encoding useless")
	}
}

func TestASubscriberThatDoesNotReadIsCutOff(t *testing.T) {
	d := newDirectory(t, "c1")
	s := newServer(t, d, Config{WriteWait: 50 * time.Millisecond, Heartbeat: time.Millisecond, Deltas: 64})
	s.publishAll()
	resp, err := http.Get(s.http.URL + "/_shard/subscribe")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w := newWatcher(t, d, s)
	big := make([]string, 64)
	for i := range big {
		big[i] = fmt.Sprintf("http://%0200d", i)
	}
	active := func() bool { return s.hub.Subscribers() > 1 }
	eventually(t, "both subscribe", active)
	for i := 0; active(); i++ {
		d.apply(&fsm.PutRegion{Region: fsm.Region{Name: fsm.RegionName(fmt.Sprintf("r%d", i%9)), Routers: append(big[1:], fmt.Sprintf("http://%d", i))}})
		s.publish(1)
		w.awaits(d.state.Revision()) // the other one is not held up
		if i > 5000 {
			t.Fatal("it is still subscribed")
		}
	}
}

func TestNoDirectoryIs503(t *testing.T) {
	h := New(Config{})
	defer h.Close()
	get := func(query string) *httptest.ResponseRecorder {
		r := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		h.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodGet, "/_shard/subscribe"+query, nil))
		return r
	}
	if r := get(""); r.Code != http.StatusServiceUnavailable || r.Header().Get("Retry-After") == "" {
		t.Errorf("nothing yet: %d", r.Code)
	}
	h.Reset(Own(fsm.New().Snapshot())) // a directory that nobody has named
	if r := get(""); r.Code != http.StatusServiceUnavailable {
		t.Errorf("no scope: %d", r.Code)
	}
	d := newDirectory(t, "c1")
	h.Reset(Own(d.state.Snapshot()))
	if r := get("?since=x"); r.Code != http.StatusBadRequest {
		t.Errorf("bad number: %d", r.Code)
	}
	if r := get("?since=999&history=1&authority=c1/global"); r.Code != http.StatusServiceUnavailable {
		t.Errorf("a subscriber from the future: %d", r.Code)
	}
	if r := get("?since=999&history=1&authority=other/global"); r.Code != http.StatusOK {
		t.Errorf("a subscriber of another directory: %d, want the whole of this one", r.Code)
	}
}
