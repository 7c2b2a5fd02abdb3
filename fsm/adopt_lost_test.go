package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// givenParts are the parts of what a directory has given, as it keeps it.
func (d *dir) givenParts(job fsm.JobID, r fsm.RegionName, try uint64) (parts []*fsm.StageRegion) {
	add := func() *fsm.StageRegion {
		p := &fsm.StageRegion{Giver: d.giver(job), Region: r, Try: try, Part: uint64(len(parts)) + 1, Longest: d.Settings().LongestLease, Given: true}
		parts = append(parts, p)
		return p
	}
	for n := range d.StagedNodes() {
		add().Node = n
	}
	for t, p := range d.StagedTenants() {
		part := add()
		part.Tenants = append(part.Tenants, fsm.GivenTenant{Tenant: *t, Unit: *p})
	}
	return parts
}

// TestG2WhatWasGivenIsKeptUntilTheJobHasEnded, and nothing of it afterwards.
func TestG2WhatWasGivenIsKeptUntilTheJobHasEnded(t *testing.T) {
	global, us := handing(t)
	n1, _ := global.Node("n1")
	job, sum := given(t, global, us, "us")
	if kept := slices.Collect(global.StagedNodes()); len(kept) != 3 || kept[0] != n1 {
		t.Errorf("the nodes %v are kept", kept)
	}
	addr, region := n1.Addr, fsm.RegionName("eu")
	global.refused(fsm.CodeHandingOver, &fsm.PutNode{Name: "e2", Addr: &addr, Token: ptr("t"), Region: &region}, "us")
	us.ok(&fsm.ArriveRegion{Giver: global.giver(job), Digest: sum})
	global.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepPromote, To: fsm.StepClean})
	if len(global.givenParts(job, "us", 1)) != 5 {
		t.Errorf("%d records are kept while nodes are told", len(global.givenParts(job, "us", 1)))
	}
	global.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepClean, To: fsm.StepDone})
	if left := global.givenParts(job, "us", 1); len(left) > 0 {
		t.Errorf("%d records are kept of a job that has ended", len(left))
	}
}

// TestG2I1WhatARecoveryLostIsTakenOverInARecovery: the region's group does not know what it
// was given any more, or as it was before it was given, or as it had arrived. It is told of it
// anew, and reads every node before it grants anything.
func TestG2I1WhatARecoveryLostIsTakenOverInARecovery(t *testing.T) {
	global, before := handing(t)
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	told := before.clone(t)
	all := global.parts(job, "us", 1)
	for _, p := range all {
		told.ok(p)
	}
	sum := global.Digest("us")
	global.ok(&fsm.GiveRegion{ID: job, Digest: sum})
	arrive := &fsm.ArriveRegion{Giver: global.giver(job), Digest: sum}
	parts := global.givenParts(job, "us", 2)
	for _, us := range []*dir{before, told} {
		us.refused(fsm.CodeRegionNotReady, parts[0], "recover")
		id := us.recover()
		if r := us.do(arrive).Refusal; r == nil || r.Code != fsm.CodeTaskUnknown && r.Code != fsm.CodeStale {
			t.Fatalf("what it was told of before has arrived: %v", r)
		}
		us.refused(fsm.CodeRecovering, all[0]) // as if it were to be given yet
		us.ok(&fsm.TakeOver{Recovery: id})
		for _, p := range parts {
			us.ok(p)
		}
		late := us.clone(t)
		us.ok(arrive)
		us.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id}, "taken over")
		us.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: us.nodeRefs("n1", "n2", "n3")}, "taken over")
		a, b := fsm.UnitRef{Unit: "a", ID: idOf(us, "a")}, fsm.UnitRef{Unit: "b", ID: idOf(us, "b")}
		us.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n2", "n1"), taken(b, "n2", "n3")}})
		us.ok(&fsm.EndRecovery{Recovery: id, Nodes: us.nodeRefs("n1", "n2", "n3")})
		if p, _ := us.Placed("a"); p.Node != "n2" || p.Promoted() {
			t.Errorf("a is %+v", p)
		}
		us.ok(arrive) // its answer was lost
		us.ok(&fsm.CloseIntake{Giver: global.giver(job)})

		late.ok(&fsm.EndRecovery{Recovery: id})
		late.refused(fsm.CodeRegionNotReady, arrive, "recover")
	}
}

// TestG2AGiverThatWasRecoveredTellsAnew: its leader's terms may begin anew.
func TestG2AGiverThatWasRecoveredTellsAnew(t *testing.T) {
	global, us := handing(t)
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	us.ok(global.parts(job, "us", 7)[0])
	id := global.recover()
	nodes := global.nodeRefs("n1", "n2", "n3", "e1")
	us.refused(fsm.CodeStale, &fsm.StageRegion{Giver: global.giver(job), Region: "us", Try: 7, Part: 2}, "next")
	for _, p := range global.parts(job, "us", 1) {
		us.ok(p)
	}
	var units []fsm.TakenUnit
	for t := range global.Tenants("", "") {
		p, _ := global.Placed(fsm.UnitName(t.Name))
		units = append(units, taken(fsm.UnitRef{Unit: p.Unit, ID: p.ID}, p.Node))
	}
	global.ok(&fsm.TakeOver{Recovery: id, Units: units})
	global.ok(&fsm.EndRecovery{Recovery: id, Nodes: nodes, Regions: []fsm.RegionName{"us"}})
	i, _ := us.Intake(global.giver(0).Authority)
	if i.Try != 1 || i.History != 2 {
		t.Errorf("the region was told %+v", i)
	}
}

// TestG2AGiverThatLostThatItGaveDropsTheRegionInItsRecovery, where the other directory has it,
// and at no other time.
func TestG2AGiverThatLostThatItGaveDropsTheRegionInItsRecovery(t *testing.T) {
	global, us := handing(t)
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	lost := global.clone(t)
	for _, p := range global.parts(job, "us", 1) {
		us.ok(p)
	}
	sum := global.Digest("us")
	global.ok(&fsm.GiveRegion{ID: job, Digest: sum})
	us.ok(&fsm.ArriveRegion{Giver: global.giver(job), Digest: sum})
	arrived := us.shown()

	lost.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}) // it may have been about to
	lost.refused(fsm.CodeStale, &fsm.GiveRegion{ID: job, Arrived: true})
	id := lost.recover()
	us.ok(&fsm.CloseIntake{Giver: lost.giver(job), Undone: true})
	if i := us.OpenIntake(); i == nil || us.shown() != arrived {
		t.Fatalf("a region that has arrived was closed: %s", us.shown())
	}
	lost.refused(fsm.CodeRecovering, &fsm.GiveRegion{ID: job, Digest: lost.Digest("us")})
	lost.ok(&fsm.GiveRegion{ID: job, Arrived: true})
	if got, want := lost.shown(), global.shown(); got != want {
		t.Errorf("the directory has %s, and should have %s", got, want)
	}
	c, _ := lost.Placed("c")
	take := &fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(fsm.UnitRef{Unit: "c", ID: c.ID}, "e1")}}
	for t := range lost.Tenants("", "") {
		if t.HasHome {
			take.Homes = append(take.Homes, at(t.Name, t.Home, t.Claim))
		}
	}
	lost.ok(take)
	lost.ok(&fsm.EndRecovery{Recovery: id, Nodes: lost.nodeRefs("e1"), Regions: []fsm.RegionName{"us"}})
	us.ok(&fsm.ArriveRegion{Giver: lost.giver(job), Digest: lost.Digest("us")})
	lost.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepPromote, To: fsm.StepClean})
	us.ok(&fsm.CloseIntake{Giver: lost.giver(job)})
	lost.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepClean, To: fsm.StepDone})
}

// TestG2TheNamesOfARegionThatIsGivenAgainFollowIt: the global directory was restored as it was
// before tenants of the region were made, deleted, made anew, or came there.
func TestG2TheNamesOfARegionThatIsGivenAgainFollowIt(t *testing.T) {
	global, us := handing(t)
	handed(t, global, us, "us") // a and b
	moved := idOf(global, "c")
	old := global.clone(t)
	b := idOf(us, "b")
	us.ok(&fsm.BeginTask{Origin: fsm.Origin{Authority: global.giver(0).Authority, History: 1, Floor: 300}, Job: 300, Kind: fsm.TaskDelete, Tenant: "b", ID: b})
	task, _ := us.Task(300)
	us.ok(&fsm.AdvanceJob{ID: task.Local, From: fsm.StepRemove, To: fsm.StepDone})
	job := us.ok(&fsm.BeginGive{Region: "us"}).Job
	us.ok(&fsm.GiveRegion{ID: job, Digest: us.Digest("us")})
	parts := us.givenParts(job, "us", 2)
	a := parts[len(parts)-1].Tenants[0]
	for name, id := range map[fsm.TenantName]fsm.UnitID{"c": moved, "d": moved + 1} { // gone there, made there
		more := a
		more.Tenant.Name, more.Unit.Unit, more.Unit.ID, more.Unit.Epoch = name, fsm.UnitName(name), id, 1<<51
		parts[len(parts)-1].Tenants = append(parts[len(parts)-1].Tenants, more)
	}
	id := old.recover()
	for _, p := range parts {
		old.ok(p)
	}
	i, _ := old.Intake(us.giver(0).Authority)
	late := old.clone(t)
	old.ok(&fsm.ArriveRegion{Giver: us.giver(job), Digest: i.Digest})
	if got := old.shown(); strings.Contains(got, "b:") || strings.Contains(got, "b→") || !strings.Contains(got, "a:n1#") || !strings.Contains(got, "c:n1#") || !strings.Contains(got, "d:n1#") {
		t.Errorf("the global directory has %s", got)
	}
	old.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id}, "taken over")

	newer := *parts[len(parts)-1]
	newer.Part++
	newer.Tenants = []fsm.GivenTenant{newer.Tenants[0]}
	newer.Tenants[0].Unit.ID -= 1
	late.ok(&newer)
	i, _ = late.Intake(us.giver(0).Authority)
	late.refused(fsm.CodeRegionNotReady, &fsm.ArriveRegion{Giver: us.giver(job), Digest: i.Digest}, "older")
}
