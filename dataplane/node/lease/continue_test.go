package lease

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

// world is Peers whose parts a test breaks.
type world struct {
	mu        sync.Mutex
	ready     bool
	promises  map[string]*Promises // by address; nil: not reached
	followers map[string][]string
	released  map[string]bool
	asked     int
}

func (w *world) Ready(ctx context.Context, _ string) bool {
	w.mu.Lock()
	ready := w.ready
	w.mu.Unlock()
	if !ready {
		<-ctx.Done() // as a server that is cut off
	}
	return ready
}

func (w *world) Promise(ctx context.Context, addr string, units []string, d time.Duration) ([]string, error) {
	w.mu.Lock()
	w.asked++
	p := w.promises[addr]
	w.mu.Unlock()
	if p == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.Promise(units, d)
}

func (w *world) FollowedSince(unit string, _ time.Duration) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.followers[unit]
}

func (w *world) Writes(unit string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.released[unit]
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// memMark is a Mark in memory.
type memMark struct {
	kept time.Duration
	err  error
}

func (m *memMark) Longest() (time.Duration, error) { return m.kept, nil }
func (m *memMark) Keep(d time.Duration) error {
	if m.err == nil {
		m.kept = d
	}
	return m.err
}

// cutOff runs f in fake time with a node that has a confirmed lease for the units a
// (copies x and y) and alone (no copies), and that reaches no control server.
func cutOff(t *testing.T, f func(t *testing.T, l *Lease, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		clock := boottime.NewRuntime()
		l := New(clock, "boot-a")
		w := &world{promises: map[string]*Promises{}, followers: map[string][]string{}, released: map[string]bool{}}
		for _, addr := range []string{"x", "y"} {
			w.promises[addr], _ = NewPromises(clock, &memMark{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { l.Run(ctx, w) })
		defer run.Wait()
		defer cancel()
		g := naming(grant(1, 0), "a", "alone")
		g.Copies = map[fsm.UnitName][]string{"a": {"x", "y"}}
		g.Servers = []string{"http://control"}
		for _, g := range []proto.Grant{g, servers(grant(2, 1))} {
			if _, err := l.Take(&g, clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
		f(t, l, w)
	})
}

func servers(g proto.Grant) proto.Grant {
	g.Servers = []string{"http://control"}
	return g
}

func expect(t *testing.T, l *Lease, unit string, want error) {
	t.Helper()
	synctest.Wait()
	if err := l.MayWrite(unit, 7); !errors.Is(err, want) {
		t.Errorf("unit %s: %v, want %v", unit, err, want)
	}
}

// Clause 10: with no control plane and every copy's promise, writes go on, for as long
// as the promises are renewed and without a moment between lease and promise.
func TestL10WritesGoOnWhileCopiesPromise(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		for range 1000 {
			time.Sleep(ms / 20)
			expect(t, l, "a", nil)
			expect(t, l, "alone", nil)
		}
		w.set(func() { w.promises["y"] = nil })
		time.Sleep(ms)
		expect(t, l, "a", ErrLapsed)
		expect(t, l, "alone", nil)
	})
}

// The source stops before the copy's promise has run out: nine tenths, from sending.
func TestL10TheSourceStopsBeforeThePromiseEnds(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		time.Sleep(3 * ms)
		expect(t, l, "a", nil)
		y := w.promises["y"]
		w.set(func() { w.promises["x"], w.promises["y"] = nil, nil })
		for l.MayWrite("a", 7) == nil {
			if y.Promoting("a", true) < ms/20 {
				t.Fatal("the copy could be promoted while the source writes")
			}
			time.Sleep(ms / 100)
		}
	})
}

// A copy that was asked to be promoted promises nothing more, and is promoted once what
// it promised has run out; the source has stopped by then.
func TestL10APromotionEndsThePromises(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		time.Sleep(3 * ms)
		left := w.promises["x"].Promoting("a", true)
		if left <= 0 || left > ms {
			t.Fatalf("left: %v", left)
		}
		expect(t, l, "a", nil)
		time.Sleep(left)
		if left := w.promises["x"].Promoting("a", true); left != 0 {
			t.Errorf("promised for another %v", left)
		}
		expect(t, l, "a", ErrLapsed)
		w.promises["x"].Followed("a")
		time.Sleep(ms)
		expect(t, l, "a", nil)
	})
}

// A server that is ready ends it: the group can fail the node over.
func TestL10AReadyServerEndsIt(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		w.set(func() { w.ready = true })
		time.Sleep(ms)
		expect(t, l, "a", ErrLapsed)
		expect(t, l, "alone", ErrLapsed)
		if w.asked != 0 {
			t.Errorf("%d promises were asked with a control plane there", w.asked)
		}
	})
}

// A node that has followed since the last grant could be promoted too.
func TestL10EveryFollowerSinceMustPromise(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		time.Sleep(2 * ms)
		expect(t, l, "a", nil)
		w.set(func() { w.followers["a"] = []string{"z"} })
		expect(t, l, "a", ErrLapsed)
		w.set(func() { w.promises["z"], _ = NewPromises(l.clock, &memMark{}) })
		time.Sleep(ms)
		expect(t, l, "a", nil)
	})
}

// Promises only continue a right that was held: not that of a unit promoted or named
// after the lease lapsed, not after a restart, not without servers.
func TestL10PromisesCreateNoRight(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		time.Sleep(2 * ms)
		l.Promoted([]string{"a"}, 0)
		expect(t, l, "a", ErrLapsed)
		g := naming(servers(grant(3, 0)), "a", "alone", "late")
		if _, err := l.Take(&g, l.clock.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ms)
		expect(t, l, "late", ErrLapsed)
		expect(t, l, "a", ErrLapsed)
		expect(t, l, "alone", nil)
		g = grant(4, 0)
		if _, err := l.Take(&g, l.clock.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ms)
		expect(t, l, "alone", ErrLapsed)
	})
}

func TestL10NoPromiseIsAskedForAReleasedUnit(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		w.set(func() { w.released["a"] = true })
		time.Sleep(2 * ms)
		expect(t, l, "a", ErrLapsed)
		if left := w.promises["x"].Promoting("a", true); left != 0 {
			t.Errorf("its destination has promised for %v", left)
		}
	})
}

func TestPromisesOutliveARestart(t *testing.T) {
	clock, mark := &boottime.Manual{}, &memMark{}
	p, err := NewPromises(clock, mark)
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := p.Promise([]string{"a"}, ms); err != nil || len(refused) != 0 {
		t.Fatal(refused, err)
	}
	if mark.kept != ms {
		t.Fatalf("answered with %v kept", mark.kept)
	}
	clock.Advance(ms / 2)
	p, err = NewPromises(clock, mark) // the process begins again
	if err != nil {
		t.Fatal(err)
	}
	if left := p.Promoting("b", true); left != ms {
		t.Errorf("a unit that is followed is promised for %v, want a whole %v", left, ms)
	}
	if left := p.Promoting("c", false); left != 0 {
		t.Errorf("a primary's unit is promised for %v", left)
	}
	if wait, err := p.Settle(); wait != ms || err != nil || mark.kept != ms {
		t.Errorf("settled early: %v, %v", wait, err)
	}
	clock.Advance(ms)
	if wait, err := p.Settle(); wait != 0 || err != nil || mark.kept != 0 {
		t.Errorf("not settled: %v, %v, %v kept", wait, err, mark.kept)
	}
	if left := p.Promoting("b", true); left != 0 {
		t.Errorf("left %v", left)
	}
}

func TestAPromiseThatCannotBeKeptIsNotGiven(t *testing.T) {
	clock, mark := &boottime.Manual{}, &memMark{err: errors.New("disk")}
	p, err := NewPromises(clock, mark)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Promise([]string{"a"}, ms); err == nil {
		t.Error("promised without a record")
	}
	if left := p.Promoting("a", true); left != 0 {
		t.Errorf("left %v", left)
	}
}

// TestO6ANodeThatHeardOfARecoveryDoesNotGoOn: its lease runs out as it would have
// (clause 6), and no promise continues the right under the older history, not even one
// that was given before; a grant of the new one gives it anew.
func TestO6ANodeThatHeardOfARecoveryDoesNotGoOn(t *testing.T) {
	cutOff(t, func(t *testing.T, l *Lease, w *world) {
		l.Supersede(proto.Holder{Authority: "c9/global", History: 2, Term: 1}) // another group's
		l.Supersede(proto.Holder{Authority: holder(1).Authority, History: holder(1).History, Term: 9})
		time.Sleep(3 * ms)
		expect(t, l, "a", nil) // it goes on, as every copy promises
		next := proto.Holder{Authority: holder(1).Authority, History: holder(1).History + 1, Term: 1}
		l.Supersede(next)
		expect(t, l, "a", ErrLapsed)
		expect(t, l, "alone", ErrLapsed)
		time.Sleep(3 * ms)
		expect(t, l, "alone", ErrLapsed)
		g := servers(naming(grant(1, 0), "alone"))
		g.Holder = next
		second := servers(grant(2, 1))
		second.Holder = next
		for _, g := range []proto.Grant{g, second} {
			if _, err := l.Take(&g, l.clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, l, "alone", nil)
		time.Sleep(3 * ms)
		expect(t, l, "alone", nil) // nobody else could be promoted for it
	})
}

// TestO6TheLeaseThatIsLeftRunsOut although its history is over.
func TestO6TheLeaseThatIsLeftRunsOut(t *testing.T) {
	n := newNode(t)
	n.take(naming(grant(1, 0), "a"))
	n.take(grant(2, 1))
	next := holder(1)
	next.History++
	n.Supersede(next)
	if err := n.MayWrite("a", 7); err != nil {
		t.Errorf("while the lease runs: %v", err)
	}
}
