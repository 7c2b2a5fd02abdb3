package loops

import (
	"slices"
	"testing"

	"domicile/fsm"
)

// moving is a simulation in which nothing goes wrong, with a tenant on n1 that is to have
// no copies, and a move of it to n2.
func moving(t *testing.T) (s *copySim, move fsm.JobID) {
	s = newMoveSim(t, 1)
	s.quiet = true
	s.now += 1_000_000
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	n1 := fsm.NodeName("n1")
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &n1})
	s.m.ChangedAll()
	s.settleFar(20)
	move = s.apply(0, &fsm.BeginMove{Unit: "a", To: "n2", Cause: fsm.CauseMove}).Job
	s.m.ChangedAll()
	return s, move
}

// TestM9WhatTheSourceHoldsIsKeptThroughTheGraceAndGoes (architecture §3.6.6).
func TestM9WhatTheSourceHoldsIsKeptThroughTheGraceAndGoes(t *testing.T) {
	s, move := moving(t)
	for range 200 {
		if s.step(move) == fsm.StepClean.String() {
			break
		}
		s.settleFar(1)
	}
	left := s.now
	for s.step(move) == fsm.StepClean.String() && s.now < left+2*simRemove {
		if _, held := s.nodes["n1"].units["a"]; !held && s.now < left+simRemove {
			t.Fatalf("it went from its source %d ms after the flip", s.now-left)
		}
		s.steps(100)
	}
	if u, _ := s.state.Placed("a"); s.step(move) != fsm.StepDone.String() || u.Node != "n2" || len(u.Copies) > 0 || len(s.nodes["n1"].units) > 0 {
		t.Errorf("%s: %+v; n1 holds %v", s.step(move), u, s.nodes["n1"].units)
	}
}

// TestM6AMoveThatIsUndoneStaysOpenUntilItsSourceHasAnsweredTheThaw: in the present term,
// as a release of a former one may still reach it before that (architecture §3.6.5).
func TestM6AMoveThatIsUndoneStaysOpenUntilItsSourceHasAnsweredTheThaw(t *testing.T) {
	s, move := moving(t)
	for _, to := range []fsm.JobStep{fsm.StepCopy, fsm.StepRelease} {
		j, _ := s.state.Job(move)
		if r := s.apply(0, &fsm.AdvanceJob{ID: move, From: j.Step, To: to}); r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
	}
	s.apply(0, &fsm.EndRelease{ID: move})
	if r := s.apply(0, &fsm.CancelMove{ID: move}); r.Refusal != nil {
		t.Fatal(r.Refusal)
	}
	for range 3 {
		s.lead()
		s.calls = nil // those of the former leader are late
		s.planned(func() bool { return s.thaws() })
		if s.step(move) != fsm.StepThaw.String() {
			t.Fatalf("it is %s before its source has answered", s.step(move))
		}
	}
	s.steps(1000)
	if j, _ := s.state.Job(move); j.Ended == 0 || j.Refusal == nil || !s.may("n1", "a") {
		t.Errorf("%+v", j)
	}
}

// thaws reports whether the source is being asked to take a unit back.
func (s *copySim) thaws() bool {
	return slices.ContainsFunc(s.calls, func(f flight) bool { return f.Verb == ThawUnits })
}

// planned plans until something holds, and has no node do anything.
func (s *copySim) planned(holds func() bool) {
	s.t.Helper()
	for range 100 {
		for name := range s.nodes {
			s.renew(name)
		}
		if s.round(); holds() {
			return
		}
		s.now += 100
	}
	s.t.Fatal("it is not planned")
}
