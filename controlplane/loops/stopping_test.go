package loops

import (
	"fmt"
	"testing"

	"domicile/fsm"
)

// TestL11AStoppingNodeIsNobodysCopy: writes would wait for it once it is gone, and
// proxies would send it reads while it closes. Found by a clean stop under load.
func TestL11AStoppingNodeIsNobodysCopy(t *testing.T) {
	s := newCopySim(t, 1)
	settings := s.state.Settings()
	settings.Replicas = 1
	s.apply(0, &fsm.SetSettings{Settings: settings})
	home := fsm.NodeName("n1")
	job := s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home}).Job
	s.apply(s.term, &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	u, _ := s.state.Placed("a")
	at := u.Copies[0].Node
	for _, to := range []fsm.CopyState{fsm.CopyJoining, fsm.CopyInSync} {
		u, _ = s.state.Placed("a")
		s.apply(s.term, &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: ref(u), Epoch: u.Epoch, Node: at, From: u.Copies[0].State, To: to}}})
	}
	if u, _ = s.state.Placed("a"); u.Copies[0].State != fsm.CopyInSync {
		t.Fatalf("%+v", u)
	}
	for _, stopping := range []bool{false, true} {
		news := &News{Fresh: true, Nodes: map[fsm.NodeName]*NodeNews{
			home: {Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision(home)},
			at:   {Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision(at), Stopping: stopping},
		}}
		taken := false
		for _, p := range Next(s.state.Snapshot(), s.m, news, s.now).Proposals {
			if c, ok := p.Cmd.(*fsm.ChangeCopies); ok && c.Changes[0].Node == at && c.Changes[0].To == fsm.CopySyncing {
				taken = true
			}
		}
		if taken != stopping {
			t.Errorf("stopping: %v, taken out: %v", stopping, taken)
		}
	}
}

// TestL11AStoppingNodeHandsOverAFewAtATime: each unit is frozen only while those of its
// own turn are released, and all of them go.
func TestL11AStoppingNodeHandsOverAFewAtATime(t *testing.T) {
	s := newCopySim(t, 1)
	settings := s.state.Settings()
	settings.Replicas = 1
	s.apply(0, &fsm.SetSettings{Settings: settings})
	home, units := fsm.NodeName("n1"), 2*UnitsPerHandover+1
	for i := range units {
		job := s.apply(0, &fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("t%d", i)), Node: &home}).Job
		s.apply(s.term, &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
		for _, to := range []fsm.CopyState{fsm.CopyJoining, fsm.CopyInSync} {
			u, _ := s.state.Placed(fsm.UnitName(fmt.Sprintf("t%d", i)))
			s.apply(s.term, &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: ref(u), Epoch: u.Epoch, Node: u.Copies[0].Node, From: u.Copies[0].State, To: to}}})
		}
	}
	var turns []int
	for range 20 {
		news := map[fsm.NodeName]*NodeNews{}
		for _, n := range simNames {
			news[n] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision(n), Stopping: n == home}
		}
		if begun := s.plan(news); begun != nil {
			turns = append(turns, len(begun.Units))
		}
		for _, f := range s.calls {
			s.m.End(f.Call, Answer{Outcome: Done}, s.now)
		}
		s.calls = nil
	}
	if fmt.Sprint(turns) != fmt.Sprint([]int{UnitsPerHandover, UnitsPerHandover, 1}) {
		t.Errorf("units of each turn: %v", turns)
	}
	for u := range s.state.HeldBy(home) {
		if u.Node == home {
			t.Errorf("%s stayed: %+v", u.Unit, u)
		}
	}
}
