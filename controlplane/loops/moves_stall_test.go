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

// TestM5AMoveThatStandsInLineIsNotUndone: its target gets nothing while another move from
// the same node goes on; and what an earlier move had got is no measure for a new one.
func TestM5AMoveThatStandsInLineIsNotUndone(t *testing.T) {
	m := NewMemory(1)
	look := func(id fsm.JobID, got uint64, now fsm.Millis) {
		c := Call{Job: id, Step: fsm.StepCopy, Work: LookAtMove, Target: fsm.Target{Node: "n3"}, Source: "n1"}
		m.lookedAtMove(c, Answer{Outcome: Done, Image: &Image{Bytes: got}}, now)
	}
	way := [2]fsm.NodeName{"n1", "n3"}
	look(1, 0, 1000)
	look(2, 5, 2000)
	look(1, 0, 9000)
	if m.carried[way] != 2000 {
		t.Errorf("carried at %d: nothing came since 2000", m.carried[way])
	}
	look(2, 6, 10_000)
	look(1, 0, 11_000)
	if m.carried[way] != 10_000 {
		t.Errorf("carried at %d: the other move got more at 10000", m.carried[way])
	}
	look(3, 0, 900_000)
	if m.carried[way] != 900_000 {
		t.Errorf("carried at %d: a move that begins has all its time", m.carried[way])
	}
}
