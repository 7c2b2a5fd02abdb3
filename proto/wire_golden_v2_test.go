package proto_test

import (
	"testing"

	"domicile/fsm"
)

// commandsV2 holds each command that came with version 2, with every field set,
// in a history in which each has an effect.
func commandsV2() []fsm.Command {
	put := func(n fsm.NodeName, zone fsm.ZoneName) fsm.Command {
		return &fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:8081"), Token: ptr("secret"), Region: ptr(fsm.RegionName("eu")), Zone: &zone}
	}
	ref := func(u fsm.UnitName, id fsm.UnitID) fsm.UnitRef { return fsm.UnitRef{Unit: u, ID: id} }
	change := func(u fsm.UnitRef, epoch uint64, n fsm.NodeName, from, to fsm.CopyState) fsm.CopyChange {
		return fsm.CopyChange{UnitRef: u, Epoch: epoch, Node: n, From: from, To: to}
	}
	acme, hooli, initech := ref("acme", 10), ref("hooli", 12), ref("initech", 14)
	on := func(n fsm.NodeName) *fsm.NodeName { return &n }
	return []fsm.Command{
		/* 1 */ &fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: 2}},
		/* 2 */ &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c0ffee", History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000, LongestLease: 5000}},
		/* 3 */ put("n1", "a") /* 4 */, put("n2", "b") /* 5 */, put("n3", "c") /* 6 */, put("n4", "d"),
		/* 7 */ &fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseTaken},
		/* 8 */ &fsm.SetNodeLease{Node: "n4", Lease: fsm.LeaseNone},
		/* 9 */ &fsm.PutNode{Name: "n3", Standby: ptr(fsm.NodeName("n4"))},
		/* 10 */ &fsm.CreateTenant{Name: "acme", Node: on("n1")},
		/* 11 */ &fsm.AdvanceJob{ID: 10, From: fsm.StepMake, To: fsm.StepDone},
		/* 12 */ &fsm.CreateTenant{Name: "hooli", Node: on("n3")},
		/* 13 */ &fsm.AdvanceJob{ID: 12, From: fsm.StepMake, To: fsm.StepDone},
		/* 14 */ &fsm.CreateTenant{Name: "initech", Node: on("n1"), Silent: []fsm.NodeName{"n2"}},
		/* 15 */ &fsm.AdvanceJob{ID: 14, From: fsm.StepMake, To: fsm.StepDone},
		/* 16 */ &fsm.ChangeCopies{Changes: []fsm.CopyChange{
			change(acme, 1, "n2", fsm.CopySyncing, fsm.CopyJoining), change(hooli, 1, "n4", fsm.CopySyncing, fsm.CopyJoining),
			change(initech, 1, "n3", fsm.CopySyncing, fsm.CopyJoining),
		}},
		/* 17 */ &fsm.ChangeCopies{Changes: []fsm.CopyChange{
			change(acme, 1, "n2", fsm.CopyJoining, fsm.CopyInSync), change(hooli, 1, "n4", fsm.CopyJoining, fsm.CopyInSync),
			change(initech, 1, "n3", fsm.CopyJoining, fsm.CopyInSync),
		}},
		/* 18 */ &fsm.SettleLease{LongestLease: 3000},
		/* 19 */ &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed, Silent: true, Choices: []fsm.Flip{{UnitRef: acme, From: "n1", To: "n2"}}},
		/* 20 */ &fsm.ConfirmPromotion{Node: "n2", Epoch: 19, Units: []fsm.UnitRef{acme}},
		/* 21 */ &fsm.NodeBack{Node: "n1"},
		/* 22 */ &fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: acme, Node: "n1"}, {UnitRef: initech}}, Silent: []fsm.NodeName{"n9"}},
		/* 23 */ &fsm.BeginHandover{Node: "n3", Cause: fsm.CauseStopped, Units: []fsm.UnitRef{hooli}, Silent: []fsm.NodeName{"n1"}},
		/* 24 */ &fsm.EndRelease{ID: 23, Released: []fsm.UnitRef{hooli}},
		/* 25 */ &fsm.ConfirmPromotion{Node: "n3", Epoch: 19, Units: []fsm.UnitRef{initech}},
		/* 26 */ &fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: initech}}},
		/* 27 */ &fsm.ChangeCopies{Changes: []fsm.CopyChange{change(acme, 19, "n1", fsm.CopySyncing, fsm.CopyJoining)}},
		/* 28 */ &fsm.ChangeCopies{Changes: []fsm.CopyChange{change(acme, 19, "n1", fsm.CopyJoining, fsm.CopyInSync)}},
		/* 29 */ &fsm.SetSettings{Settings: fsm.Settings{AutoFailover: 1000, LongestLease: 4000}},
		/* 30 */ &fsm.ChangeCopies{Changes: []fsm.CopyChange{change(acme, 19, "n1", fsm.CopyInSync, fsm.CopyLeaving)}},
		/* 31 */ &fsm.DropCopies{Copies: []fsm.CopyRef{{UnitRef: acme, Node: "n1"}}},
		/* 32 */ &fsm.SetSettings{Settings: fsm.Settings{Replicas: 2, AutoFailover: 1000}},
		/* 33 */ &fsm.FailOver{Node: "n4", Cause: fsm.CauseHand, Choices: []fsm.Flip{{UnitRef: hooli, From: "n4", To: "n3"}}},
		/* 34 */ &fsm.CreateTenant{Name: "umbrella", Node: on("n2")},
		/* 35 */ &fsm.DeleteTenant{Name: "umbrella"},
		/* 36 */ &fsm.DeleteNode{Name: "n1", Force: true},
		/* 37 */ &fsm.CreateTenant{Name: "stark", Node: on("n2")},
		/* 38 */ &fsm.AdvanceJob{ID: 37, From: fsm.StepMake, To: fsm.StepDone},
		/* 39 */ &fsm.SetNodeLease{Node: "n2", Lease: fsm.LeaseTaken},
		/* 40 */ &fsm.FailOver{Node: "n2", Cause: fsm.CauseLapsed},
		/* 41 */ &fsm.BeginHandover{Node: "n9", Cause: fsm.CauseHand},
	}
}

// commandsV2Choices holds what was added to version 2: a handover that names copies, one
// of a unit that has none in sync, and the job of that, which runs at the end.
func commandsV2Choices() []fsm.Command {
	put := func(n fsm.NodeName, zone fsm.ZoneName) fsm.Command {
		return &fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:8081"), Token: ptr("secret"), Zone: &zone}
	}
	on := fsm.NodeName("n1")
	acme := fsm.UnitRef{Unit: "acme", ID: 6}
	sync := func(from, to fsm.CopyState) fsm.Command {
		return &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: acme, Epoch: 1, Node: "n2", From: from, To: to}, {UnitRef: acme, Epoch: 1, Node: "n3", From: from, To: to}}}
	}
	to := func(n fsm.NodeName) []fsm.Flip { return []fsm.Flip{{UnitRef: acme, From: "n1", To: n}} }
	return []fsm.Command{
		/* 1 */ &fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: 2}},
		/* 2 */ &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c0ffee", History: 1}, Settings: fsm.Settings{Replicas: 2, AutoFailover: 3000}},
		/* 3 */ put("n1", "a") /* 4 */, put("n2", "b") /* 5 */, put("n3", "c"),
		/* 6 */ &fsm.CreateTenant{Name: "acme", Node: &on},
		/* 7 */ &fsm.AdvanceJob{ID: 6, From: fsm.StepMake, To: fsm.StepDone},
		/* 8 */ sync(fsm.CopySyncing, fsm.CopyJoining),
		/* 9 */ sync(fsm.CopyJoining, fsm.CopyInSync),
		/* 10 */ &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseBehind, Units: []fsm.UnitRef{acme}, Silent: []fsm.NodeName{"n9"}, Choices: to("n3")},
		/* 11 */ &fsm.EndRelease{ID: 10},
		/* 12 */ &fsm.AdvanceJob{ID: 10, From: fsm.StepThaw, To: fsm.StepDone},
		/* 13 */ sync(fsm.CopyInSync, fsm.CopySyncing),
		/* 14 */ &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand, Units: []fsm.UnitRef{acme}, Choices: to("n3")},
	}
}

// TestChoicesOfAHandoverAreInAGoldenLog: its last entry begins a job that is forced.
func TestChoicesOfAHandoverAreInAGoldenLog(t *testing.T) {
	s := fsm.New()
	for _, e := range goldenLogs["v2-choices"]() {
		if r, _ := s.Apply(e); r.Refusal != nil {
			t.Errorf("%d, %T: %v", e.Revision, e.Cmd, r.Refusal)
		}
	}
	if j, ok := s.Job(14); !ok || !j.Forced || j.Ended != 0 {
		t.Errorf("%+v", j)
	}
}
