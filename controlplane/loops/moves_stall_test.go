package loops

import (
	"testing"

	"domicile/fsm"
)

// TestM5AMoveWhoseTargetGetsNothingIsUndone: a target says that it follows, without any
// trouble, and never gets more. Found by a node that lied.
func TestM5AMoveWhoseTargetGetsNothingIsUndone(t *testing.T) {
	s, id := stepped(t, 1, "n3")
	end := func() *fsm.Job { j, _ := s.state.Job(id); return j }
	for begin := s.now; end().Ended == 0 && s.now < begin+2*MoveStalled; {
		for _, n := range s.names {
			if n != "n3" { // it gets nothing
				s.sync(n)
			}
			s.renew(n)
		}
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
		s.now += 500
	}
	if j := end(); j.Ended == 0 || j.Refusal == nil || j.Refusal.Code != fsm.CodeMoveUndone {
		t.Fatalf("%+v", j)
	}
	if u, _ := s.state.Placed("t0"); u.Node != "n1" {
		t.Errorf("the tenant is on %s", u.Node)
	}
}

// TestN7WhatADrainHasTakenAwayGetsACopyAtOnce: the grace before a repair is for nodes that
// may come back, and a tenant without a copy does not wait for it. Found by a newcomer.
func TestN7WhatADrainHasTakenAwayGetsACopyAtOnce(t *testing.T) {
	s, id := stepped(t, 1, "n3")
	s.apply(0, &fsm.CancelMove{ID: id})
	settings := s.state.Settings()
	settings.RepairAfter = 3_600_000
	s.apply(0, &fsm.SetSettings{Settings: settings})
	s.apply(0, &fsm.SetDrain{Node: "n1", Drain: true})
	s.m.ChangedAll()
	for range stepRounds {
		s.small(func() {})
	}
	u, _ := s.state.Placed("t0")
	if u.Node == "n1" || len(inSync(u)) == 0 {
		t.Errorf("%+v", u)
	}
}
