package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

// scene is a keeper with nodes, all in fake time, without a random network.
type scene struct {
	*testLog
	m     *member
	net   *network
	k     *Keeper
	clock boottime.Clock
	stop  func()
}

// stage starts a keeper over nodes n1, n2 …, and runs f in fake time.
func stage(t *testing.T, lease fsm.Millis, count int, f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{clock: boottime.NewRuntime()}
		var nodes []*fsm.Node
		ends := make(map[string]*testNode)
		for i := range count {
			n := leased(fsm.NodeName(fmt.Sprint("n", i+1)))
			n.ID = fsm.NodeID(i + 1)
			nodes = append(nodes, n)
			ends[n.Addr] = newTestNode(s.clock)
		}
		s.testLog = newTestLog(t, lease, nodes...)
		s.m = &member{testLog: s.testLog, term: 1}
		s.net = newNetwork(ends)
		s.k = New(Config{Group: s.m, Clock: s.clock, Logger: quiet(), lines: s.net.line})
		s.stop = run(s.k, 1)
		f(t, s)
		s.stop()
		s.net.work.Wait()
	})
}

func (s *scene) node(i int) *testNode { return s.net.nodes[fmt.Sprintf("n%d:1", i)] }

func (s *scene) know(t *testing.T, n fsm.NodeName) Status {
	t.Helper()
	status, ok := s.k.Node(n)
	if !ok {
		t.Fatalf("%s is not known", n)
	}
	return status
}

// place records units of n1.
func (s *scene) place(units ...*fsm.Placed) fsm.Revision {
	return s.change(func(r *records, _ fsm.Revision) {
		for _, p := range units {
			s.ids++
			p.ID = s.ids
			r.units[p.Unit] = p
		}
	}, units[0].Node)
}

// TestFirstGrantsComeInTwos shows clause 2: a node's process writes after two
// grants, which come at once, and again after a restart.
func TestFirstGrantsComeInTwos(t *testing.T) {
	stage(t, 900, 1, func(t *testing.T, s *scene) {
		s.place(unit("u", 0, "n1"))
		n := s.node(1)
		synctest.Wait()
		if !n.writes("u") {
			t.Error("the node does not write at the moment of the first grants")
		}
		if st := s.know(t, "n1"); st.Lease != fsm.LeaseTaken || !st.Answered || st.Boot != n.boot() || st.LeftMS != 900 {
			t.Errorf("status %+v", st)
		}
		time.Sleep(300 * time.Millisecond)
		n.restart()
		time.Sleep(151 * time.Millisecond)
		synctest.Wait()
		if !n.writes("u") {
			t.Errorf("the node does not write a renewal after its restart: %+v, calls %v, %+v", s.know(t, "n1"), n.calls, n.taken)
		}
	})
}

// TestRenewalsAreSixInALease shows clause 8, and that renewals are small.
func TestRenewalsAreSixInALease(t *testing.T) {
	stage(t, 600, 1, func(t *testing.T, s *scene) {
		s.place(unit("u", 0, "n1"))
		time.Sleep(time.Second)
		synctest.Wait()
		n := s.node(1)
		n.mu.Lock()
		before := len(n.calls)
		n.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if calls := len(n.calls) - before; calls < 59 || calls > 61 {
			t.Errorf("%d renewals in ten leases", calls)
		}
		for _, g := range n.taken[len(n.taken)-10:] {
			if g.Primaries != nil || g.Base != "" || g.Acked+1 != g.Grant {
				t.Errorf("a renewal is %+v", g)
			}
		}
	})
}

// TestNodeWithALaggingCopyIsAskedMoreOften shows that a copy that has caught up is
// heard of within a fraction of a second, however long leases are.
func TestNodeWithALaggingCopyIsAskedMoreOften(t *testing.T) {
	stage(t, 60_000, 1, func(t *testing.T, s *scene) {
		n := s.node(1)
		n.mu.Lock()
		n.report = proto.CopyReport{Lagging: map[fsm.UnitName][]string{"u": {"n2:1"}}}
		n.mu.Unlock()
		s.place(unit("u", 0, "n1"))
		synctest.Wait()
		if len(s.know(t, "n1").Report.Lagging) == 0 {
			t.Fatal("the first answer does not tell of the copy")
		}
		n.mu.Lock()
		n.report = proto.CopyReport{}
		n.mu.Unlock()
		time.Sleep(catchUpEvery)
		synctest.Wait()
		if l := s.know(t, "n1").Report.Lagging; len(l) > 0 {
			t.Errorf("%v still lags, to the leader", l)
		}
		n.mu.Lock()
		before := len(n.calls)
		n.mu.Unlock()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if calls := len(n.calls) - before; calls > int(9*time.Second/renewEvery)+1 {
			t.Errorf("%d calls in 9 s, with nothing to catch up", calls)
		}
	})
}

// TestLapseIsFoundAtItsTime shows clause 3: to the millisecond, and that nothing
// is sent until Resume.
func TestLapseIsFoundAtItsTime(t *testing.T) {
	for _, how := range []string{"refuses", "black hole"} {
		stage(t, 1000, 2, func(t *testing.T, s *scene) {
			s.place(unit("u", 0, "n1"))
			time.Sleep(5 * time.Second)
			n := s.node(1)
			n.mu.Lock()
			last := n.calls[len(n.calls)-1]
			n.down = true
			n.mu.Unlock()
			time.Sleep(last + 1100*time.Millisecond - 1 - s.clock.Now())
			synctest.Wait()
			if s.know(t, "n1").Lapsed {
				t.Errorf("%s: lapsed before its time", how)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if st := s.know(t, "n1"); !st.Lapsed || !st.Expired || !st.Silent || n.writes("u") {
				t.Errorf("%s: at its time: %+v", how, st)
			}
			n.mu.Lock()
			n.down = false
			calls := len(n.calls)
			n.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			n.mu.Lock()
			if len(n.calls) != calls {
				t.Errorf("%s: grants went on before the entry", how)
			}
			n.mu.Unlock()
			s.k.Resume("n1", s.know(t, "n1").Lapse)
			synctest.Wait()
			if st := s.know(t, "n1"); st.Lapsed || st.Silent || !n.writes("u") {
				t.Errorf("%s: after Resume: %+v", how, st)
			}
			if st := s.know(t, "n2"); st.Lapsed || st.Silent || st.AgeMS > 167 {
				t.Errorf("%s: the other node: %+v", how, st)
			}
		})
	}
}

// TestSilentNodeIsTakenForLapsedAgain: what could not be failed over at first is
// offered again.
func TestSilentNodeIsTakenForLapsedAgain(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		s.node(1).fall()
		for range 3 {
			time.Sleep(1100*time.Millisecond - 1)
			synctest.Wait()
			if s.know(t, "n1").Lapsed {
				t.Error("lapsed before its time")
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if !s.know(t, "n1").Lapsed {
				t.Error("not lapsed at its time")
			}
			s.k.Resume("n1", s.know(t, "n1").Lapse)
			synctest.Wait()
		}
	})
}

// TestALateResumeIsOfItsOwnLapse: word about a lapse that is over, held up on its way,
// must not let grants go while a later one is being decided (clause 3).
func TestALateResumeIsOfItsOwnLapse(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		s.node(1).fall()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		first := s.know(t, "n1").Lapse
		s.k.Resume("n1", first)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if st := s.know(t, "n1"); !st.Lapsed || st.Lapse == first {
			t.Fatalf("it was not taken for lapsed again: %+v", st)
		}
		s.k.Resume("n1", first)
		synctest.Wait()
		if !s.know(t, "n1").Lapsed {
			t.Error("a late word about the first lapse ended the second")
		}
	})
}

// TestL1NoNodeDelaysAnother: black-holed, slow and large nodes cost the others
// nothing; each is renewed at its exact times.
func TestL1NoNodeDelaysAnother(t *testing.T) {
	stage(t, 600, 6, func(t *testing.T, s *scene) {
		var units []*fsm.Placed
		for i := range 10_000 {
			units = append(units, unit(fmt.Sprintf("big%05d", i), 0, "n2"))
		}
		s.place(units...)
		s.net.mu.Lock()
		s.net.hole["n1:1"], s.net.hole["n3:1"] = true, true
		s.net.slow["n5:1"], s.net.slow["n6:1"] = 40*time.Millisecond, 5*time.Second
		s.net.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		n := s.node(4)
		n.mu.Lock()
		from := len(n.calls)
		n.mu.Unlock()
		for i := range 20 { // the large list changes all the time
			s.change(func(r *records, _ fsm.Revision) { delete(r.units, units[i].Unit) }, "n2")
			time.Sleep(150 * time.Millisecond)
		}
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		for i := from + 1; i < len(n.calls); i++ {
			if gap := n.calls[i] - n.calls[i-1]; gap != 100*time.Millisecond {
				t.Errorf("a renewal came after %v", gap)
			}
		}
		if len(n.calls)-from < 29 {
			t.Errorf("%d renewals in five leases", len(n.calls)-from)
		}
		if got := len(s.node(2).list); got != 9_980 {
			t.Errorf("the large node holds %d units", got)
		}
	})
}

// TestL5NodeWithoutLease is asked for its copies each second and for a lease each
// ten, and never lapses (L5).
func TestL5NodeWithoutLease(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		n := s.node(1)
		n.mu.Lock()
		n.noLease = true
		n.report.Lagging = map[fsm.UnitName][]string{"u": {"http://n2:1"}}
		n.mu.Unlock()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		st := s.know(t, "n1")
		if st.Lease != fsm.LeaseNone || !st.Answered || st.Silent || st.Lapsed || len(st.Report.Lagging["u"]) != 1 {
			t.Errorf("status %+v", st)
		}
		if err := s.k.AwaitNamed(t.Context(), "n1", 1); err != nil {
			t.Error(err)
		}
		n.mu.Lock()
		if got := len(n.calls); got < 34 || got > 37 {
			t.Errorf("%d calls in 31 s", got)
		}
		n.down = true
		n.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := s.know(t, "n1"); !st.Silent || st.Lapsed || st.Expired {
			t.Errorf("silent: %+v", st)
		}
		n.mu.Lock()
		n.down, n.noLease = false, false
		n.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := s.know(t, "n1"); st.Lease != fsm.LeaseTaken || st.Silent {
			t.Errorf("restarted with a lease: %+v", st)
		}
	})
}

// TestAwaitNamed returns when the node may write what it was given, and not
// before.
func TestAwaitNamed(t *testing.T) {
	stage(t, 1000, 2, func(t *testing.T, s *scene) {
		time.Sleep(time.Second)
		rev := s.place(unit("u", 0, "n1"))
		began := s.clock.Now()
		if err := s.k.AwaitNamed(t.Context(), "n1", rev); err != nil || !s.node(1).writes("u") || s.clock.Now() != began {
			t.Errorf("AwaitNamed: %v after %v", err, s.clock.Now()-began)
		}
		s.node(1).fall()
		rev = s.place(unit("v", 0, "n1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.k.AwaitNamed(ctx, "n1", rev); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent node: %v", err)
		}
		if err := s.k.AwaitNamed(t.Context(), "gone", rev); err != nil {
			t.Errorf("a node that is not recorded: %v", err)
		}
		ended := make(chan error)
		go func() { ended <- s.k.AwaitNamed(t.Context(), "n1", rev) }()
		synctest.Wait()
		s.stop()
		if err := <-ended; !errors.Is(err, ErrNotLeading) {
			t.Errorf("the term ended: %v", err)
		}
	})
}

// TestNodesComeAndGo follows the directory.
func TestNodesComeAndGo(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		synctest.Wait()
		s.net.mu.Lock()
		s.net.nodes["n9:1"] = newTestNode(s.clock)
		s.net.mu.Unlock()
		s.change(func(r *records, rev fsm.Revision) {
			n := leased("n9")
			n.ID = fsm.NodeID(rev)
			r.nodes["n9"] = n
		}, "n9")
		synctest.Wait()
		if st := s.know(t, "n9"); st.Lease != fsm.LeaseTaken {
			t.Errorf("a new node: %+v", st)
		}
		s.change(func(r *records, _ fsm.Revision) { delete(r.nodes, "n9") })
		synctest.Wait()
		if _, ok := s.k.Node("n9"); ok {
			t.Error("a deleted node is still known")
		}
		s.change(func(r *records, _ fsm.Revision) { r.settings.AutoFailover = 0 })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if st := s.know(t, "n1"); st.Lapsed || st.Silent || s.node(1).writes("u") {
			t.Errorf("leases are off: %+v", st)
		}
		s.change(func(r *records, _ fsm.Revision) { r.settings.AutoFailover = 500 })
		time.Sleep(time.Second)
		synctest.Wait()
		if st := s.know(t, "n1"); st.Lapsed || st.Silent || st.LeftMS < 400 {
			t.Errorf("leases are on again: %+v", st)
		}
	})
}

// TestMaySettle waits out every longer lease (clause 5).
func TestMaySettle(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		time.Sleep(5 * time.Second)
		s.change(func(r *records, _ fsm.Revision) { r.settings.AutoFailover, r.settings.LongestLease = 5000, 5000 })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		n := s.node(1)
		n.mu.Lock()
		last := n.calls[len(n.calls)-1]
		n.mu.Unlock()
		s.change(func(r *records, _ fsm.Revision) { r.settings.AutoFailover = 300 })
		synctest.Wait()
		time.Sleep(last + 5500*time.Millisecond - 331*time.Millisecond - s.clock.Now())
		if s.k.MaySettle() {
			t.Error("a lease of 5 s may still run")
		}
		time.Sleep(2 * time.Millisecond)
		if !s.k.MaySettle() {
			t.Error("no longer lease can run")
		}
	})
}

// TestChangedTellsPlanners of what they read, and not of renewals.
func TestChangedTellsPlanners(t *testing.T) {
	stage(t, 600, 1, func(t *testing.T, s *scene) {
		time.Sleep(time.Second)
		synctest.Wait()
		changed := s.k.Changed()
		time.Sleep(time.Second)
		select {
		case <-changed:
			t.Error("renewals are told")
		default:
		}
		n := s.node(1)
		n.mu.Lock()
		n.report = proto.CopyReport{Behind: map[fsm.UnitName][]string{"u": {"http://n2:1"}}}
		n.stopping = true
		n.mu.Unlock()
		<-changed
		if st := s.know(t, "n1"); !st.Stopping || !slices.Equal(st.Report.Behind["u"], []string{"http://n2:1"}) {
			t.Errorf("status %+v", st)
		}
	})
}

// TestAnotherProcessAtANewAddress is granted only once the lease of the one at
// the old address has ended; the same process is renewed as before.
func TestAnotherProcessAtANewAddress(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		s.place(unit("u", 0, "n1"))
		time.Sleep(time.Second)
		old, other := s.node(1), newTestNode(s.clock)
		other.restart() // so that its boot is another
		s.net.mu.Lock()
		s.net.nodes["same:1"], s.net.nodes["other:1"] = old, other
		s.net.mu.Unlock()
		move := func(addr string) {
			s.change(func(r *records, _ fsm.Revision) {
				n := *r.nodes["n1"]
				n.Addr = addr
				r.nodes["n1"] = &n
			})
			synctest.Wait()
		}
		move("same:1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := s.know(t, "n1"); st.Silent || st.Lapsed || !old.writes("u") {
			t.Errorf("the same process: %+v", st)
		}
		move("other:1")
		for range 2000 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if old.writes("u") && other.writes("u") {
				t.Fatal("two processes write")
			}
			if st := s.know(t, "n1"); st.Lapsed {
				s.k.Resume("n1", st.Lapse)
			}
		}
		if !other.writes("u") {
			t.Errorf("the other process: %+v", s.know(t, "n1"))
		}
	})
}
