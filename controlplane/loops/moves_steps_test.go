package loops

import (
	"fmt"
	"testing"

	"domicile/fsm"
)

// stepped is a simulation in which nothing fails, with tenant t0 on n1, and a copy on n2
// where there is one, about to be moved.
func stepped(t *testing.T, replicas uint32, to fsm.NodeName) (*copySim, fsm.JobID) {
	s := newMoveSim(t, 1)
	s.quiet, s.healing = true, 300
	settings := s.state.Settings()
	settings.Replicas = replicas
	s.apply(0, &fsm.SetSettings{Settings: settings})
	home, region := fsm.NodeName("n1"), simRegion(to)
	s.apply(0, &fsm.CreateTenant{Name: "t0", Node: &home})
	s.m.ChangedAll()
	s.rounds(20)
	r := s.apply(0, &fsm.BeginMove{Unit: "t0", To: to, Region: &region, Cause: fsm.CauseMove})
	if r.Refusal != nil {
		t.Fatal(r.Refusal)
	}
	s.m.ChangedAll()
	return s, r.Job
}

// small is a round in which every call is answered after meanwhile was done.
func (s *copySim) small(meanwhile func()) {
	for _, n := range s.names {
		s.sync(n)
		s.renew(n)
	}
	s.write()
	s.round()
	meanwhile()
	for len(s.calls) > 0 {
		s.turn()
	}
	s.now += 50
}

// TestM5WhateverHappensAtAnyStepOfAMove has something happen in each round of a move, from
// the queue to its end: then it is done or undone, and nothing is left of it.
func TestM5WhateverHappensAtAnyStepOfAMove(t *testing.T) {
	node := func(n fsm.NodeName) *fsm.NodeName { return &n }
	for what, do := range map[string]func(s *copySim, id fsm.JobID, to fsm.NodeName){
		"nothing":         func(*copySim, fsm.JobID, fsm.NodeName) {},
		"another leader":  func(s *copySim, _ fsm.JobID, _ fsm.NodeName) { s.lead() },
		"a cancel":        func(s *copySim, id fsm.JobID, _ fsm.NodeName) { s.apply(0, &fsm.CancelMove{ID: id}) },
		"a delete":        func(s *copySim, _ fsm.JobID, _ fsm.NodeName) { s.apply(0, &fsm.DeleteTenant{Name: "t0"}) },
		"the source dies": func(s *copySim, _ fsm.JobID, _ fsm.NodeName) { s.die("n1") },
		"the target dies": func(s *copySim, _ fsm.JobID, to fsm.NodeName) { s.die(to) },
		"both die":        func(s *copySim, _ fsm.JobID, to fsm.NodeName) { s.die("n1"); s.die(to) },
		"the target drains": func(s *copySim, _ fsm.JobID, to fsm.NodeName) {
			s.apply(0, &fsm.SetDrain{Node: to, Drain: true, Forced: true})
		},
		"the source drains": func(s *copySim, _ fsm.JobID, _ fsm.NodeName) { s.apply(0, &fsm.SetDrain{Node: "n1", Drain: true}) },
		"the source stops":  func(s *copySim, _ fsm.JobID, _ fsm.NodeName) { s.nodes["n1"].news.Stopping = true; s.round() },
		"a name again": func(s *copySim, _ fsm.JobID, to fsm.NodeName) {
			s.apply(0, &fsm.DeleteTenant{Name: "t0"})
			s.rounds(20)
			s.apply(0, &fsm.CreateTenant{Name: "t0", Node: node("n4")})
		},
	} {
		for _, move := range []struct {
			replicas uint32
			to       fsm.NodeName
		}{{1, "n3"}, {1, "n2"}, {0, "n3"}, {1, "m1"}} {
			for at := range stepRounds {
				disturb(t, fmt.Sprintf("%s in round %d of a move to %s, %d replicas", what, at, move.to, move.replicas),
					move.replicas, move.to, at, do)
			}
		}
	}
}

// stepRounds is more than a move takes in which nothing fails.
const stepRounds = 14

// disturb has something happen in one round of a move, at once after its calls were sent.
func disturb(t *testing.T, where string, replicas uint32, to fsm.NodeName, at int, do func(*copySim, fsm.JobID, fsm.NodeName)) {
	t.Helper()
	s, id := stepped(t, replicas, to)
	for i := range stepRounds {
		s.small(func() {
			if i == at {
				do(s, id, to)
				s.m.ChangedAll()
			}
		})
	}
	if j, _ := s.state.Job(id); at == stepRounds-1 && j.Step != fsm.StepDone && j.Step != fsm.StepClean {
		t.Errorf("after %d rounds in which nothing happened the move is at %s", stepRounds, j.Step)
	}
	for range 40 { // a lease, and more
		s.small(func() {})
	}
	s.heal()
	s.ended()
	if u, ok := s.state.Placed("t0"); ok && !s.may(u.Node, "t0") {
		t.Errorf("the tenant cannot be written on %s", u.Node)
	}
	j, _ := s.state.Job(id)
	u, _ := s.state.Placed("t0")
	if calm := where[:7] == "nothing"; calm && (j.Refusal != nil || u.Node != to || j.Pause == 0) {
		t.Errorf("the move ended as %+v the tenant is on %s", *j, u.Node)
	}
	if t.Failed() {
		t.Fatal(where)
	}
}

// die has a node answer nothing until all is healed.
func (s *copySim) die(n fsm.NodeName) { s.nodes[n].silent = true }
