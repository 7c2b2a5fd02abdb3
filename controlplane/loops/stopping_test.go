package loops

import (
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
