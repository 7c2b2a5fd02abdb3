package loops

import (
	"testing"

	"domicile/fsm"
)

// plannedFor gives the steps and refusals that are planned for a job in one round.
func (s *copySim) plannedFor(id fsm.JobID) (steps []fsm.JobStep, why fsm.Code) {
	news := &News{Nodes: map[fsm.NodeName]*NodeNews{}, Fresh: true}
	for name, n := range s.nodes {
		told := n.news
		news.Nodes[name] = &told
	}
	for _, p := range Next(s.state.Snapshot(), s.m, news, s.now).Proposals {
		if a, ok := p.Cmd.(*fsm.AdvanceJob); ok && a.ID == id {
			steps = append(steps, a.To)
			if a.Refusal != nil {
				why = a.Refusal.Code
			}
		}
	}
	return steps, why
}

// at takes the move of stepped as far as a step.
func (s *copySim) at(id fsm.JobID, step fsm.JobStep) {
	s.t.Helper()
	for range stepRounds {
		if j, _ := s.state.Job(id); j.Step == step {
			return
		}
		s.small(func() {})
	}
	s.t.Fatalf("the move does not come to %s", step)
}

// TestM5AMoveThatIsGivenUpEnds: its target was written off.
func TestM5AMoveThatIsGivenUpEnds(t *testing.T) {
	s, id := stepped(t, 1, "n3")
	s.at(id, fsm.StepCopy)
	if r := s.apply(0, &fsm.DeleteNode{Name: "n3", Force: true}); r.Refusal != nil {
		t.Fatal(r.Refusal)
	}
	addr, token, region := "127.0.0.1:9", "t", fsm.RegionName("eu")
	s.apply(0, &fsm.PutNode{Name: "n3", Addr: &addr, Token: &token, Region: &region})
	if steps, why := s.plannedFor(id); len(steps) != 1 || steps[0] != fsm.StepDone || why != fsm.CodeMoveUndone {
		t.Errorf("planned %v, %q: another node of that name is not the target", steps, why)
	}
}

// TestM5ATargetThatIsNoCopyIsMadeOneAgain: a failover made it the primary for a while.
func TestM5ATargetThatIsNoCopyIsMadeOneAgain(t *testing.T) {
	s, id := stepped(t, 1, "n2")
	u, _ := s.state.Placed("t0")
	s.apply(0, &fsm.AdvanceJob{ID: id, From: fsm.StepQueue, To: fsm.StepCopy})
	s.apply(0, &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	s.apply(0, &fsm.NodeBack{Node: "n1"})
	s.apply(0, &fsm.FailOver{Node: "n2", Cause: fsm.CauseUnpromoted, Choices: []fsm.Flip{{UnitRef: ref(u), From: "n2", To: "n1"}}})
	u, _ = s.state.Placed("t0")
	s.apply(0, &fsm.ConfirmPromotion{Node: "n1", Epoch: u.Epoch, Units: []fsm.UnitRef{ref(u)}})
	if steps, _ := s.plannedFor(id); len(steps) != 1 || steps[0] != fsm.StepCopy {
		t.Errorf("planned %v", steps)
	}
}

// TestI10AUnitThatItsSourceLostIsNotMoved: the target had all but what was under way, and
// what that was, a source that has lost the unit cannot tell. An in-sync copy has it.
func TestI10AUnitThatItsSourceLostIsNotMoved(t *testing.T) {
	s, id := stepped(t, 1, "n3")
	s.at(id, fsm.StepRelease)
	s.write() // what the target does not have yet
	delete(s.nodes["n1"].units, "t0")
	s.small(func() {})
	s.small(func() {})
	if u, _ := s.state.Placed("t0"); u.Node == "n3" {
		t.Errorf("%+v", u)
	}
}

// TestM4ATargetDoesNotWaitForEverForTheReplicaBesideIt: one that never catches up is
// placed anew by repair.
func TestM4ATargetDoesNotWaitForEverForTheReplicaBesideIt(t *testing.T) {
	s, id := stepped(t, 1, "m1")
	s.quiet = false
	s.nodes["m2"].stuck, s.nodes["m3"].stuck = true, true
	s.at(id, fsm.StepCopy)
	for range 5 {
		s.small(func() {})
	}
	if j, _ := s.state.Job(id); j.Step != fsm.StepCopy {
		t.Fatalf("%+v: it does not wait for its replica at all", *j)
	}
	for until := s.now + BesideFor; s.now < until; s.now += 400 {
		s.small(func() {})
	}
	for range 60 { // a source may refuse, and a target promote later
		s.small(func() {})
	}
	if u, _ := s.state.Placed("t0"); u.Node != "m1" {
		j, _ := s.state.Job(id)
		t.Errorf("%+v, %+v", *u, *j)
	}
}

// TestN7AStoppedDrainMovesNothingMore: what waits for its turn is undone.
func TestN7AStoppedDrainMovesNothingMore(t *testing.T) {
	s, id := stepped(t, 0, "n3")
	s.apply(0, &fsm.CancelMove{ID: id})
	s.apply(0, &fsm.SetDrain{Node: "n1", Drain: true})
	id = s.apply(0, &fsm.BeginMove{Unit: "t0", Cause: fsm.CauseDrain}).Job
	s.apply(0, &fsm.SetDrain{Node: "n1"})
	if steps, why := s.plannedFor(id); len(steps) != 1 || steps[0] != fsm.StepDone || why != fsm.CodeCancelled {
		t.Errorf("planned %v, %q", steps, why)
	}
}

// TestN7ADrainBeginsFewMovesAtATime: as many as may copy from its node, those included that
// wait for their turn.
func TestN7ADrainBeginsFewMovesAtATime(t *testing.T) {
	s, id := stepped(t, 0, "n3")
	s.apply(0, &fsm.CancelMove{ID: id})
	// Two moves copy to the one node that takes units, so that those of the drain wait.
	home, none := fsm.NodeName("n2"), uint32(0)
	for _, name := range []fsm.TenantName{"h1", "h2"} {
		r := s.apply(0, &fsm.CreateTenant{Name: name, Node: &home})
		s.apply(0, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
		r = s.apply(0, &fsm.BeginMove{Unit: fsm.UnitName(name), To: "n3", Cause: fsm.CauseMove})
		s.apply(0, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepQueue, To: fsm.StepCopy})
	}
	for _, n := range []fsm.NodeName{"n2", "n4"} {
		s.apply(0, &fsm.PutNode{Name: n, Weight: &none})
	}
	home = "n1"
	for _, name := range []fsm.TenantName{"t1", "t2", "t3", "t4", "t5"} {
		r := s.apply(0, &fsm.CreateTenant{Name: name, Node: &home})
		s.apply(0, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	}
	s.apply(0, &fsm.SetDrain{Node: "n1", Drain: true})
	began := 0
	for range 20 { // no call is answered
		s.round()
		s.now += 100
		moves := 0
		for j := range s.state.RunningJobs() {
			if j.Kind == fsm.JobMove && j.Cause == fsm.CauseDrain {
				moves++
			}
		}
		if moves > simMovesPerNode {
			t.Fatalf("%d moves were begun", moves)
		}
		began = max(began, moves)
	}
	if began == 0 {
		t.Error("no move was begun")
	}
}

// TestM7WhatAMoveCopiedIsToldHoweverShortItWas: it was over before its target was asked a
// second time, and had nothing when it was asked first. Where nothing is copied none is told.
func TestM7WhatAMoveCopiedIsToldHoweverShortItWas(t *testing.T) {
	for to, copied := range map[fsm.NodeName]bool{"n2": false, "n3": true} {
		s, id := stepped(t, 1, to)
		for range stepRounds {
			s.small(func() {})
			if j, ok := s.state.Job(id); !ok || j.Ended != 0 || j.Pause != 0 {
				break
			}
		}
		j, ok := s.state.Job(id)
		if !ok || j.Pause == 0 {
			t.Fatalf("%+v: its pause is not known", j)
		}
		if want := uint64(s.nodes[to].units["t0"].pos); copied != (j.Bytes >= want) || !copied && j.Bytes != 0 {
			t.Errorf("to %s: %d bytes, and the target has %d", to, j.Bytes, want)
		}
	}
}
