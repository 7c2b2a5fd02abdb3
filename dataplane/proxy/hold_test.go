package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/fsm"
)

func refusing(code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if code == "misdirected" {
			misdirected(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"error":"not now","code":%q}`, code)
	}
}

// echo answers who it is and how much it got.
func echo(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", name, n)
	}
}

func copied(unit, node string, copies ...string) fsm.Event {
	e := placed(unit, node)
	for _, c := range copies {
		e.Unit.Copies = append(e.Unit.Copies, fsm.Copy{Node: fsm.NodeName(c), State: fsm.CopyInSync})
	}
	return e
}

func down(t *testing.T, name string) fsm.Event {
	return fsm.Event{Node: &fsm.NodeInfo{Name: fsm.NodeName(name), Addr: unusedAddr(t)}}
}

// holding runs a proxy that holds requests for up to hold.
func holding(t *testing.T, control *controlFake, hold time.Duration) *running {
	return start(t, []string{control.URL}, func(c *Config) { c.Hold = hold })
}

// long is a time for which no request waits unless the test goes wrong.
const long = 20 * time.Second

// later sends a request and gives its answer when there is one.
func (p *running) later(method, target string, header http.Header, body string) chan answer {
	done := make(chan answer, 1)
	go func() {
		a, err := p.do(method, target, header, body)
		if err != nil {
			p.t.Errorf("%s %s: %v", method, target, err)
		}
		done <- a
	}()
	return done
}

// held waits until n requests wait, on their way to a trial included.
func (p *running) held(n int64) {
	p.t.Helper()
	eventually(p.t, func() error {
		p.holds.mu.Lock()
		defer p.holds.mu.Unlock()
		have := p.holds.now.Load()
		for _, q := range p.holds.queues {
			if q.trial != nil {
				have++
			}
		}
		if have != n {
			return fmt.Errorf("%d requests are held, want %d", have, n)
		}
		return nil
	})
}

// counts checks outcomes; those that are not named must be 0.
func (p *running) counts(want map[outcome]uint64) {
	p.t.Helper()
	eventually(p.t, func() error {
		for o := range outcomes {
			if n := p.holds.counts[o].Load(); n != want[o] {
				return fmt.Errorf("outcome %s counted %d times, want %d", outcomeNames[o], n, want[o])
			}
		}
		if n, b, q := p.holds.now.Load(), p.holds.bytes.Load(), p.holds.open.Load(); n != 0 || b != 0 || q != 0 {
			return fmt.Errorf("%d requests of %d bytes in %d queues are left", n, b, q)
		}
		return nil
	})
}

func TestM3RefusedRequestIsHeldAndAnsweredByTheNewNode(t *testing.T) {
	for _, code := range []string{"misdirected", "no_lease", "lease_lapsed", "not_named", "transfer_in_progress"} {
		control := newControlFake(t)
		n1, n2 := newNode(t, "n1", refusing(code)), newNode(t, "n2", echo("n2"))
		p := holding(t, control, long)
		p.await(control.change(n1.info(), n2.info(), placed("acme", "n1"), placed("beta", "n2")))
		a := p.later("POST", "/t/acme/query", nil, strings.Repeat("x", 60000))
		p.held(1)
		if b := p.get("/t/beta/query"); b.body != "n2 0" { // nobody waits for another unit
			t.Errorf("%s: beta got %d %q", code, b.StatusCode, b.body)
		}
		p.await(control.change(placed("acme", "n2")))
		if a := <-a; a.body != "n2 60000" {
			t.Errorf("%s: got %d %q", code, a.StatusCode, a.body)
		}
		p.counts(map[outcome]uint64{outcomeAnswered: 1})
	}
}

func TestM3NodeThatRefusesForAWhileIsAskedByOneAtATime(t *testing.T) {
	control := newControlFake(t)
	var open atomic.Bool
	var refused, under, most atomic.Int64
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		if open.Load() {
			echo("n1")(w, r)
			return
		}
		most.Store(max(most.Load(), under.Add(1)))
		refused.Add(1)
		refusing("no_lease")(w, r)
		under.Add(-1)
	})
	p := holding(t, control, long)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	var all []chan answer
	for i := range 30 {
		all = append(all, p.later("POST", "/t/acme/query", nil, "x"))
		p.held(int64(i + 1))
	}
	before := refused.Load()
	eventually(t, func() error {
		if refused.Load() < before+3 {
			return errNotYet
		}
		return nil
	})
	open.Store(true)
	for _, a := range all {
		if a := <-a; a.body != "n1 1" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	if most.Load() > 2 { // a newcomer and a trial
		t.Errorf("%d requests were refused at the same time", most.Load())
	}
	p.counts(map[outcome]uint64{outcomeAnswered: 30})
}

func TestR5DeadNodeWithCopiesHoldsAndIsNotConnectedToByEach(t *testing.T) {
	control := newControlFake(t)
	n2 := newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	syncing, unleased := copied("gamma", "n1", "n2"), down(t, "n3")
	syncing.Unit.Copies[0].State, unleased.Node.Unleased = fsm.CopySyncing, true
	p.await(control.change(down(t, "n1"), n2.info(), unleased, copied("acme", "n1", "n2"), placed("beta", "n1"),
		syncing, copied("delta", "n3", "n2"))) // gamma and delta do not fail over by themselves
	var all []chan answer
	for i := range 20 {
		all = append(all, p.later("GET", "/t/acme/query", nil, ""))
		p.held(int64(i + 1))
	}
	p.get("/t/beta/query").wants(t, 502, "node_unreachable") // nothing else can serve it
	p.get("/t/gamma/query").wants(t, 502, "node_unreachable")
	p.get("/t/delta/query").wants(t, 502, "node_unreachable")
	t1 := p.dir.table()
	if dials := t1.nodes[t1.places["n1"]].up.Stats().Dials.Load(); dials > 10 {
		t.Errorf("%d connects to a node that is down", dials)
	}
	e := copied("acme", "n2")
	e.Unit.Epoch = 7
	p.await(control.change(e))
	for _, a := range all {
		if a := <-a; a.body != "n2 0" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	p.counts(map[outcome]uint64{outcomeAnswered: 20})
}

func TestR5NodeThatComesBackGetsWhatWasHeldForIt(t *testing.T) {
	control := newControlFake(t)
	addr := unusedAddr(t)
	p := holding(t, control, long)
	p.await(control.change(fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: addr}}, down(t, "n2"), copied("acme", "n1", "n2")))
	a := p.later("POST", "/t/acme/query", nil, "x")
	p.held(1)
	ln, err := net.Listen("tcp", strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: echo("n1")}
	go srv.Serve(ln)
	defer srv.Close()
	if a := <-a; a.body != "n1 1" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	p.counts(map[outcome]uint64{outcomeAnswered: 1})
}

func TestHoldThatEndsGivesTheRefusalsAnswer(t *testing.T) {
	control := newControlFake(t)
	lapsed, gone := newNode(t, "n1", refusing("lease_lapsed")), newNode(t, "n2", misdirected)
	p := holding(t, control, 30*time.Millisecond)
	p.await(control.change(lapsed.info(), gone.info(), down(t, "n3"),
		placed("a", "n1"), placed("b", "n2"), copied("c", "n3", "n1")))
	for unit, want := range map[string]struct {
		status int
		code   string
	}{"a": {503, "lease_lapsed"}, "b": {503, "misdirected"}, "c": {502, "node_unreachable"}} {
		var all []chan answer
		for range 3 { // those that were sent, and those that waited before
			all = append(all, p.later("POST", "/t/"+unit+"/query", nil, "x"))
		}
		for _, a := range all {
			a := <-a
			a.wants(t, want.status, want.code)
		}
	}
	p.counts(map[outcome]uint64{outcomeExpired: 9})
}

func TestHoldingCanBeTurnedOff(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", refusing("transfer_in_progress"))
	never, held := holding(t, control, 0), holding(t, control, long)
	rev := control.change(n1.info(), down(t, "n2"), placed("acme", "n1"), copied("beta", "n2", "n1"))
	never.await(rev)
	held.await(rev)
	no := http.Header{headerHold: {"0"}}
	never.send("POST", "/t/acme/query", nil, "x").wants(t, 503, "transfer_in_progress")
	never.get("/t/beta/query").wants(t, 502, "node_unreachable")
	held.send("POST", "/t/acme/query", no, "x").wants(t, 503, "transfer_in_progress")
	held.send("GET", "/t/beta/query", no, "").wants(t, 502, "node_unreachable")
	waits := held.later("POST", "/t/acme/query", nil, "x")
	held.held(1) // with a queue there it does not wait either
	held.send("POST", "/t/acme/query", no, strings.Repeat("x", 100_000)).wants(t, 503, "transfer_in_progress")
	held.await(control.change(fsm.Event{UnitGone: "acme"}))
	a := <-waits
	a.wants(t, 404, codeUnknownTenant)
	held.counts(map[outcome]uint64{outcomeRefused: 2, outcomeUnplaced: 1})
}

func TestOnlyRefusalsWithoutEffectAreHeld(t *testing.T) {
	control := newControlFake(t)
	p := holding(t, control, long)
	for _, code := range []string{"replica_unreachable", "outcome_unknown", "too_many_open", "shutting_down"} {
		n1 := newNode(t, "n1", refusing(code))
		p.await(control.change(n1.info(), copied("acme", "n1", "n2")))
		p.send("POST", "/t/acme/query", nil, "x").wants(t, 503, code)
		if n := len(n1.requests()); n != 1 {
			t.Errorf("%s: sent %d times", code, n)
		}
	}
	p.counts(nil)
}

func TestHeldClientThatGoesAwayFreesItsPlace(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", misdirected)
	p := holding(t, control, long)
	p.await(control.change(n1.info(), placed("acme", "n1")))
	for _, head := range []string{"Content-Length: 1\r\n\r\nx", "Content-Length: 1000000\r\n\r\n"} {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /t/acme/query HTTP/1.1\r\nHost: h\r\n%s", head)
		defer c.Close()
		p.held(1)
		first := p.later("POST", "/t/acme/query", http.Header{headerHold: {"50"}}, "x")
		a := <-first
		a.wants(t, 503, codeMisdirected)
		c.Close()
		p.held(0)
	}
	p.counts(map[outcome]uint64{outcomeExpired: 2, outcomeGone: 2})
}

func TestHoldIsBounded(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", misdirected), newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	p.holds.limits = holdLimits{perUnit: 3, all: 4, bytesPerUnit: 1 << 20, bytesAll: 1 << 20}
	p.await(control.change(n1.info(), n2.info(), placed("a", "n1"), placed("b", "n1")))
	var all []chan answer
	more := func(unit string) {
		all = append(all, p.later("GET", "/t/"+unit+"/query", nil, ""))
		p.held(int64(len(all)))
	}
	for range 3 {
		more("a")
	}
	full := func(unit string) {
		t.Helper()
		eventually(t, func() error { // a trial that is under way leaves its place
			before := p.holds.counts[outcomeFull].Load()
			a := p.send("GET", "/t/"+unit+"/query", http.Header{headerHold: {"1"}}, "")
			a.wants(t, 503, codeMisdirected)
			if p.holds.counts[outcomeFull].Load() == before {
				return errNotYet
			}
			return nil
		})
	}
	full("a")
	more("b")
	full("b")
	p.await(control.change(placed("a", "n2"), placed("b", "n2")))
	for _, a := range all {
		if a := <-a; a.body != "n2 0" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
}

func TestM3LongBodyWaitsBeforeItIsRead(t *testing.T) {
	control := newControlFake(t)
	for _, code := range []string{"misdirected", "transfer_in_progress"} {
		n1, n2 := newNode(t, "n1", refusing(code)), newNode(t, "n2", echo("n2"))
		p := holding(t, control, long)
		p.await(control.change(n1.info(), n2.info(), placed("acme", "n1")))
		all := []chan answer{p.later("POST", "/t/acme/query", nil, "")}
		p.held(1)
		sent := len(n1.requests())
		body := strings.Repeat("x", 3_000_000)
		all = append(all, p.later("POST", "/t/acme/query", nil, body),
			p.later("POST", "/t/acme/query", http.Header{"Expect": {"100-continue"}}, body))
		p.held(3)
		p.await(control.change(placed("acme", "n2")))
		for i, a := range all {
			if a, want := <-a, fmt.Sprint("n2 ", min(i, 1)*len(body)); a.body != want {
				t.Errorf("%s: got %d %q, want %s", code, a.StatusCode, a.body, want)
			}
		}
		for _, r := range n1.requests()[sent:] {
			if r.ContentLength != 0 {
				t.Errorf("%s: a long body was sent to the node that refuses", code)
			}
		}
	}
}

func TestLongBodiesThatWereRefusedWarnThoseBehind(t *testing.T) {
	control := newControlFake(t)
	var refused atomic.Int64
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		refused.Add(1)
		misdirected(w, r)
	})
	n2 := newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), placed("acme", "n1")))
	body := strings.Repeat("x", 200_000)
	var all []chan answer
	eventually(t, func() error { // the warning does not last: the first few may all be refused
		a := p.later("POST", "/t/acme/query", nil, body)
		before := refused.Load()
		eventually(t, func() error {
			if p.holds.now.Load() == 0 && refused.Load() == before {
				return errNotYet
			}
			return nil
		})
		if p.holds.now.Load() == 0 {
			(<-a).wants(t, 503, codeMisdirected)
			return errNotYet
		}
		all = append(all, a)
		return nil
	})
	p.await(control.change(placed("acme", "n2")))
	if a := <-all[0]; a.body != "n2 200000" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
}

func TestL2ReadsGoOnWhileWritesAreHeld(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "write") {
			refusing("no_lease")(w, r)
			return
		}
		echo("n1")(w, r)
	})
	n2 := newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), placed("acme", "n1")))
	var writes []chan answer
	for i := range 5 {
		writes = append(writes, p.later("POST", "/t/acme/write", nil, "x"))
		p.held(int64(i + 1))
		if a := p.send("POST", "/t/acme/read", nil, "xy"); a.body != "n1 2" {
			t.Errorf("a read got %d %q", a.StatusCode, a.body)
		}
	}
	p.await(control.change(placed("acme", "n2")))
	for _, a := range writes {
		if a := <-a; a.body != "n2 1" {
			t.Errorf("a write got %d %q", a.StatusCode, a.body)
		}
	}
}

func TestHeldRequestsAreCounted(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", misdirected), newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), placed("acme", "n1")))
	a := p.later("GET", "/t/acme/", nil, "")
	p.held(1)
	eventually(t, func() error { // not while the trial is under way
		if m := p.get("/_metrics").body; !strings.Contains(m, "\ndomicile_held_requests 1\n") || !strings.Contains(m, "\ndomicile_held_units 1\n") {
			return errNotYet
		}
		return nil
	})
	p.await(control.change(placed("acme", "n2")))
	<-a
	p.counts(map[outcome]uint64{outcomeAnswered: 1})
	if m := p.get("/_metrics").body; !strings.Contains(m, `domicile_held_requests_total{outcome="answered"} 1`) ||
		!strings.Contains(m, "\ndomicile_held_requests 0\n") || !strings.Contains(m, "\ndomicile_held_bytes 0\n") {
		t.Errorf("got %s", m)
	}
}

func TestManyUnitsOfADeadNodeFailOverAtOnce(t *testing.T) {
	control := newControlFake(t)
	n2 := newNode(t, "n2", echo("n2"))
	p := holding(t, control, long)
	before, after := []fsm.Event{down(t, "n1"), n2.info()}, []fsm.Event(nil)
	for i := range 40 {
		before, after = append(before, copied(fmt.Sprint("t", i), "n1", "n2")), append(after, copied(fmt.Sprint("t", i), "n2"))
	}
	p.await(control.change(before...))
	var wg sync.WaitGroup
	for i := range 120 {
		wg.Go(func() {
			a, err := p.do("POST", fmt.Sprintf("/t/t%d/query", i%40), nil, "x")
			if err != nil || a.body != "n2 1" {
				t.Errorf("got %v %q", err, a.body)
			}
		})
	}
	p.held(120)
	p.await(control.change(after...))
	wg.Wait()
	p.counts(map[outcome]uint64{outcomeAnswered: 120})
}
