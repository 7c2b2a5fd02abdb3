package proto_test

import (
	"reflect"
	"testing"

	"domicile/fsm"
)

// commandsV3 holds each command that came with version 3, with every field set, in a
// history in which each has an effect. It ends with a move that is given up and thaws, one
// that copies, a rebalance, a drain and a read replica.
func commandsV3() []fsm.Command {
	put := func(n fsm.NodeName, region fsm.RegionName, zone fsm.ZoneName) fsm.Command {
		return &fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:8081"), Token: ptr("secret"), Region: &region, Zone: &zone}
	}
	on := func(n fsm.NodeName) *fsm.NodeName { return &n }
	acme, hooli := fsm.UnitRef{Unit: "acme", ID: 9}, fsm.UnitRef{Unit: "hooli", ID: 11}
	step := func(id fsm.JobID, from, to fsm.JobStep) fsm.Command {
		return &fsm.AdvanceJob{ID: id, From: from, To: to}
	}
	sync := func(from, to fsm.CopyState) fsm.Command {
		return &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: acme, Epoch: 1, Node: "n2", From: from, To: to}}}
	}
	return []fsm.Command{
		/* 1 */ &fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: 3}},
		/* 2 */ &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c0ffee", History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000, MovesPerNode: 3}},
		/* 3 */ put("n1", "eu", "a") /* 4 */, put("n2", "eu", "b") /* 5 */, put("n3", "eu", "c") /* 6 */, put("n4", "us", "a") /* 7 */, put("n5", "us", "b"),
		/* 8 */ &fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseTaken},
		/* 9 */ &fsm.CreateTenant{Name: "acme", Node: on("n1")} /* 10 */, step(9, fsm.StepMake, fsm.StepDone),
		/* 11 */ &fsm.CreateTenant{Name: "hooli", Node: on("n1")} /* 12 */, step(11, fsm.StepMake, fsm.StepDone),
		/* 13 */ &fsm.CreateTenant{Name: "stark", Node: on("n3"), Pinned: true} /* 14 */, step(13, fsm.StepMake, fsm.StepDone),
		/* 15 */ sync(fsm.CopySyncing, fsm.CopyJoining) /* 16 */, sync(fsm.CopyJoining, fsm.CopyInSync),
		/* 17 */ &fsm.SetReader{Tenant: "hooli", Region: "us", Wanted: true, Silent: []fsm.NodeName{"n5"}},
		/* 18 */ &fsm.BeginMove{Unit: "acme", To: "n4", Region: ptr(fsm.RegionName("us")), Cause: fsm.CauseMove, Silent: []fsm.NodeName{"n9"}},
		/* 19 */ step(18, fsm.StepQueue, fsm.StepCopy),
		/* 20 */ &fsm.NoteJob{ID: 18, Problem: "node n4: the disk is slow", Bytes: 1 << 30},
		/* 21 */ step(18, fsm.StepCopy, fsm.StepRelease),
		/* 22 */ &fsm.EndRelease{ID: 18, Released: []fsm.UnitRef{acme}},
		/* 23 */ &fsm.ConfirmPromotion{Node: "n4", Epoch: 22, Units: []fsm.UnitRef{acme}},
		/* 24 */ &fsm.NoteJob{ID: 18, Pause: 12, Bytes: 1<<30 + 1},
		/* 25 */ step(18, fsm.StepClean, fsm.StepDone),
		/* 26 */ &fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "stark", ID: 13, Node: "n1"}, {Unit: "hooli", ID: 11, Node: "n2"}}},
		/* 27 */ &fsm.BeginMove{Unit: "hooli", To: "n2", Cause: fsm.CauseRebalance, Group: 26},
		/* 28 */ &fsm.BeginMove{Unit: "stark", To: "n1", Cause: fsm.CauseRebalance, Group: 26},
		/* 29 */ step(27, fsm.StepQueue, fsm.StepCopy) /* 30 */, step(27, fsm.StepCopy, fsm.StepRelease),
		/* 31 */ &fsm.EndRelease{ID: 27},
		/* 32 */ &fsm.CancelMove{ID: 27, Reason: "not today"},
		/* 33 */ &fsm.SetDrain{Node: "n5", Drain: true, Forced: true} /* 34 */, &fsm.SetDrain{Node: "n5"},
		/* 35 */ &fsm.SetDrain{Node: "n3", Drain: true, Forced: true},
		/* 36 */ &fsm.BeginMove{Unit: "stark", Cause: fsm.CauseDrain, Forced: true},
		/* 37 */ step(36, fsm.StepQueue, fsm.StepCopy),
		/* 38 */ &fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "hooli", ID: 11, Node: "n2"}}},
		/* 39 */ &fsm.PlaceReaders{Units: []fsm.UnitRef{hooli}, Silent: []fsm.NodeName{"n9"}},
	}
}

func TestCommandsOfVersion3AreInAGoldenLog(t *testing.T) {
	s, kinds := fsm.New(), make(map[reflect.Type]bool)
	for _, e := range logOf(commandsV3()) {
		kinds[reflect.TypeOf(e.Cmd)] = true
		if r, _ := s.Apply(e); r.Refusal != nil {
			t.Errorf("%d, %T: %v", e.Revision, e.Cmd, r.Refusal)
		}
	}
	if moved, ok := s.Job(18); !ok || moved.Ended == 0 || moved.Pause != 12 || moved.Bytes != 1<<30+1 || moved.Release != 21 {
		t.Errorf("the move that is done: %+v", moved)
	}
	if thawing, ok := s.Job(27); !ok || thawing.Step != fsm.StepThaw || thawing.Refusal == nil || thawing.Group != 26 {
		t.Errorf("the move that is given up: %+v", thawing)
	}
	if copying, ok := s.Move("stark"); !ok || copying.Step != fsm.StepCopy || !copying.Forced {
		t.Errorf("the move that copies: %+v", copying)
	}
	if group, _ := s.Job(26); group.Ended == 0 || group.Attempts != 1 || s.Rebalance() == nil {
		t.Errorf("the rebalance that has ended: %+v, another runs: %v", group, s.Rebalance() != nil)
	}
	states := make(map[fsm.CopyState]bool)
	for _, p := range s.Placements() {
		for _, c := range p.Copies {
			states[c.State] = true
		}
	}
	n3, _ := s.Node("n3")
	if n3.Drain == nil || !n3.Drain.Forced || !states[fsm.CopyTarget] || !states[fsm.CopyReader] || len(kinds) != 16 {
		t.Errorf("drain %+v, states of copies %v, %d kinds of commands", n3.Drain, states, len(kinds))
	}
}
