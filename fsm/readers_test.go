package fsm_test

import (
	"strings"
	"testing"

	"domicile/fsm"
)

// across gives a directory of two nodes of region eu, two of us and one of ap, with the
// tenant acme on e1, in sync on e2.
func across(t *testing.T) (*dir, fsm.UnitRef) {
	d := leased(t, "e1", "e2")
	for _, n := range []fsm.NodeName{"u1", "u2"} {
		d.at(n, "us", fsm.ZoneName("z-"+n))
		d.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	d.at("p1", "ap", "z")
	return d, d.replicated("acme", "e1", "e2")
}

func (d *dir) readers(t fsm.TenantName) string {
	d.t.Helper()
	tenant, ok := d.Tenant(t)
	if !ok {
		d.t.Fatalf("no tenant %s", t)
	}
	var all []string
	for _, r := range tenant.Readers {
		all = append(all, string(r))
	}
	return strings.Join(all, " ")
}

func (d *dir) read(region fsm.RegionName, silent ...fsm.NodeName) fsm.Result {
	d.t.Helper()
	return d.ok(&fsm.SetReader{Tenant: "acme", Region: region, Wanted: true, Silent: silent})
}

// mend proposes what a leader does where the readers of acme lack something.
func (d *dir) mend(want fsm.ReadersLack, silent ...fsm.NodeName) {
	d.t.Helper()
	p, _ := d.Placed("acme")
	if got := d.ReadersLack(p, silent); got != want {
		d.t.Fatalf("lack %d, want %d, of %s", got, want, d.copies("acme"))
	}
	d.ok(&fsm.PlaceReaders{Units: []fsm.UnitRef{{Unit: p.Unit, ID: p.ID}}, Silent: silent})
	if want == fsm.ReadersWhole && len(d.events) > 0 {
		d.t.Fatalf("nothing was to be done, and %+v", d.events)
	}
	if p, _ = d.Placed("acme"); d.ReadersLack(p, silent) != fsm.ReadersWhole {
		d.t.Fatalf("not mended: %s", d.copies("acme"))
	}
}

func TestC8AReadReplicaIsWhereItWasAskedForAlone(t *testing.T) {
	d, _ := across(t)
	r := d.read("us")
	if !r.Created || r.Placed == nil || len(d.events) != 1 || len(d.events[0].Unit.Copies) != 2 || d.events[0].Unit.Copies[1].State != fsm.CopyReader {
		t.Errorf("%+v, events %+v", r, d.events)
	}
	d.wantCopies("acme", "e2 in_sync, u1 reader")
	if r := d.read("us"); r.Created || len(d.events) > 0 {
		t.Errorf("asked for again: %+v", r)
	}
	d.mend(fsm.ReadersWhole)
	if p, _ := d.Placed("acme"); p.Lacks != 0 || d.Unreplicated(p) != "" {
		t.Errorf("lacks copies since %d", p.Lacks)
	}
	d.read("ap")
	d.wantCopies("acme", "e2 in_sync, p1 reader, u1 reader")
	if got := d.readers("acme"); got != "ap us" {
		t.Error(got)
	}
	d.ok(&fsm.SetReader{Tenant: "acme", Region: "us"})
	d.wantCopies("acme", "e2 in_sync, p1 reader, u1 leaving")
	d.read("us") // it is used again: it holds the data
	d.wantCopies("acme", "e2 in_sync, p1 reader, u1 reader")
	d.ok(&fsm.SetReader{Tenant: "acme", Region: "us"})
	p, _ := d.Placed("acme")
	d.ok(&fsm.DropCopies{Copies: []fsm.CopyRef{{UnitRef: fsm.UnitRef{Unit: "acme", ID: p.ID}, Node: "u1"}}})
	d.wantCopies("acme", "e2 in_sync, p1 reader")
	if got := d.readers("acme"); got != "ap" {
		t.Error(got)
	}
}

func TestC8WhatIsRefused(t *testing.T) {
	d, _ := across(t)
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "own", Routers: []string{"http://r:1"}}})
	ask := func(tenant fsm.TenantName, region fsm.RegionName) *fsm.SetReader {
		return &fsm.SetReader{Tenant: tenant, Region: region, Wanted: true}
	}
	d.refused(fsm.CodeTenantUnknown, ask("none", "us"), "none")
	d.refused(fsm.CodeBadRequest, ask("No Name", "us"))
	d.refused(fsm.CodeRegionUnknown, ask("acme", "xx"), "xx")
	d.refused(fsm.CodeRegionUnknown, ask("acme", ""))
	d.refused(fsm.CodeBadRequest, ask("acme", "global"), "global")
	d.refused(fsm.CodeAlreadyThere, ask("acme", "eu"), "acme", "eu")
	d.refused(fsm.CodeRegionElsewhere, ask("acme", "own"), "own")
	d.refused(fsm.CodeReaderUnknown, &fsm.SetReader{Tenant: "acme", Region: "us"}, "acme", "us")
	d.read("us")
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "u1"}, "u1", "acme")                                 // N6
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "u1", Region: ptr(fsm.RegionName("eu"))}, "u1", "acme") // N3
	d.ok(&fsm.DeleteTenant{Name: "acme"})
	d.refused(fsm.CodeBusy, ask("acme", "ap"), "acme")
	d.refused(fsm.CodeBusy, &fsm.SetReader{Tenant: "acme", Region: "us"}, "acme")
}

func TestC8AReaderGoesElsewhereWhereItsNodeIsLostOrDrained(t *testing.T) {
	d, _ := across(t)
	d.read("us")
	d.ok(&fsm.FailOver{Node: "u1", Cause: fsm.CauseLapsed})
	d.mend(fsm.ReadersWhole, "u2") // nowhere to go: it may come back
	d.wantCopies("acme", "e2 in_sync, u1 reader")
	d.mend(fsm.ReadersLost)
	d.wantCopies("acme", "e2 in_sync, u1 leaving, u2 reader")
	d.ok(&fsm.SetDrain{Node: "u2", Drain: true, Forced: true})
	d.mend(fsm.ReadersWrong) // it leaves though no other node may have it
	d.wantCopies("acme", "e2 in_sync, u1 leaving, u2 leaving")
	d.ok(&fsm.NodeBack{Node: "u1"})
	d.mend(fsm.ReadersWrong)
	d.wantCopies("acme", "e2 in_sync, u1 reader, u2 leaving")
	d.ok(&fsm.DeleteNode{Name: "u1", Force: true})
	d.mend(fsm.ReadersWhole)
	d.ok(&fsm.SetDrain{Node: "u2"})
	d.mend(fsm.ReadersWrong)
	d.wantCopies("acme", "e2 in_sync, u2 reader")
}

func TestC8PlacedOnceANodeMayHaveIt(t *testing.T) {
	d, _ := across(t)
	d.ok(&fsm.PutNode{Name: "p1", Weight: ptr(uint32(0))})
	d.read("ap")
	d.read("us", "u1", "u2")
	d.wantCopies("acme", "e2 in_sync")
	d.mend(fsm.ReadersWhole, "u1", "u2")
	d.ok(&fsm.PutNode{Name: "u2", Standby: ptr(fsm.NodeName("u1"))})
	d.mend(fsm.ReadersWrong) // not on the standby
	d.wantCopies("acme", "e2 in_sync, u2 reader")
	// While it is made nothing follows; it is placed as soon as it is served.
	job := d.ok(&fsm.CreateTenant{Name: "new", Node: ptr(fsm.NodeName("e1"))}).Job
	d.ok(&fsm.SetReader{Tenant: "new", Region: "us", Wanted: true})
	d.wantCopies("new", "e2 syncing")
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	p, _ := d.Placed("new")
	d.ok(&fsm.PlaceReaders{Units: []fsm.UnitRef{{Unit: "new", ID: p.ID + 1}}})
	d.wantCopies("new", "e2 syncing")
	d.ok(&fsm.PlaceReaders{Units: []fsm.UnitRef{{Unit: "new", ID: p.ID}}})
	d.wantCopies("new", "e2 syncing, u2 reader")
}

// L8: whatever fails at home, a reader stays one.
func TestC8NoFlipGoesToAReader(t *testing.T) {
	d, a := across(t)
	d.read("us")
	d.refused(fsm.CodeNodeUnleased, &fsm.FailOver{Node: "p1", Cause: fsm.CauseLapsed})
	d.change(a, "e2", fsm.CopyInSync, fsm.CopySyncing)
	d.change(a, "e2", fsm.CopySyncing, fsm.CopyLeaving)
	d.change(a, "u1", fsm.CopyReader, fsm.CopySyncing)
	d.change(a, "u1", fsm.CopyReader, fsm.CopyJoining)
	d.change(a, "u1", fsm.CopyReader, fsm.CopyInSync)
	d.wantCopies("acme", "e2 syncing, u1 reader")
	choice := []fsm.Flip{{UnitRef: a, From: "e1", To: "u1"}}
	d.refused(fsm.CodeNoCopy, &fsm.BeginHandover{Node: "e1", Cause: fsm.CauseHand, Choices: choice})
	if r := d.ok(&fsm.FailOver{Node: "e1", Cause: fsm.CauseLapsed, Choices: choice}); flips(r) != " left [acme]" {
		t.Error(flips(r))
	}
	d.refused(fsm.CodeNoCopy, &fsm.FailOver{Node: "e1", Cause: fsm.CauseHand, Silent: true, Choices: choice})
	d.want("acme", "acme e1 active")
	// In its region the unit goes where it may, and the reader follows there.
	if r := d.ok(&fsm.FailOver{Node: "e1", Cause: fsm.CauseHand, Choices: []fsm.Flip{{UnitRef: a, From: "e1", To: "e2"}}}); flips(r) != "acme e1-e2 left []" {
		t.Error(flips(r))
	}
	d.read("ap") // placed once the unit is promoted; what is not wanted leaves before
	d.wantCopies("acme", "e1 former, u1 reader")
	d.ok(&fsm.SetReader{Tenant: "acme", Region: "us"})
	d.wantCopies("acme", "e1 former, u1 leaving")
	d.confirm("acme")
	d.mend(fsm.ReadersWrong)
	d.wantCopies("acme", "e1 former, p1 reader, u1 leaving")
}

// moveTo takes acme to a node of another region up to the flip.
func (d *dir) moveTo(to fsm.NodeName, region fsm.RegionName) {
	d.t.Helper()
	p, _ := d.Placed("acme")
	id := d.ok(&fsm.BeginMove{Unit: "acme", To: to, Region: &region, Cause: fsm.CauseMove}).Job
	d.ok(&fsm.AdvanceJob{ID: id, From: fsm.StepQueue, To: fsm.StepCopy})
	d.mend(fsm.ReadersWhole) // the copy that is made there is none too few
	d.ok(&fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: fsm.StepRelease})
	d.ok(&fsm.EndRelease{ID: id, Released: []fsm.UnitRef{{Unit: p.Unit, ID: p.ID}}})
	d.confirm("acme")
}

func TestC8M4AReaderIsAnOrdinaryCopyWhereItsTenantComes(t *testing.T) {
	d, a := across(t)
	d.read("us")
	d.moveTo("u2", "us")
	d.want("acme", "acme u2 active")
	d.wantCopies("acme", "e1 former, e2 leaving, u1 syncing")
	d.mend(fsm.ReadersWhole)
	if got := d.readers("acme"); got != "us" {
		t.Error(got)
	}
	d.sync(a, "u1")
	d.refused(fsm.CodeAlreadyThere, &fsm.SetReader{Tenant: "acme", Region: "us", Wanted: true}) // it is asked for, and lives there
	d.read("eu")
	d.wantCopies("acme", "e1 reader, e2 leaving, u1 in_sync") // what holds the data is read
	// Back home: the region that was asked for is read again.
	d.moveTo("e2", "eu")
	d.want("acme", "acme e2 active")
	d.wantCopies("acme", "e1 syncing, u1 leaving, u2 former")
	d.mend(fsm.ReadersWrong)
	d.wantCopies("acme", "e1 syncing, u1 reader, u2 former")
	d.ok(&fsm.SetReader{Tenant: "acme", Region: "eu"})
	d.wantCopies("acme", "e1 syncing, u1 reader, u2 former")
}

func TestC8AMoveThatIsCancelledLeavesAReader(t *testing.T) {
	d, _ := across(t)
	d.read("us")
	us := fsm.RegionName("us")
	id := d.ok(&fsm.BeginMove{Unit: "acme", To: "u1", Region: &us, Cause: fsm.CauseMove}).Job
	d.ok(&fsm.AdvanceJob{ID: id, From: fsm.StepQueue, To: fsm.StepCopy})
	d.wantCopies("acme", "e2 in_sync, u1 target, u2 target")
	d.mend(fsm.ReadersWhole)
	d.ok(&fsm.CancelMove{ID: id})
	d.wantCopies("acme", "e2 in_sync, u1 leaving, u2 leaving")
	d.mend(fsm.ReadersWrong)
	d.wantCopies("acme", "e2 in_sync, u1 reader, u2 leaving")
}

func TestC8AReaderStaysOneInARecovery(t *testing.T) {
	d, a := across(t)
	d.read("us")
	d.read("ap")
	id := d.recover()
	d.refused(fsm.CodeRecovering, &fsm.SetReader{Tenant: "acme", Region: "us"})
	d.refused(fsm.CodeRecovering, &fsm.PlaceReaders{Units: []fsm.UnitRef{a}})
	// The directory is behind: the tenant has gone to us, where its reader was.
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{{UnitRef: a, Node: "u2", Others: []fsm.NodeName{"e1", "p1", "u1"}}}})
	d.wantCopies("acme", "e1 former, p1 reader, u1 syncing")
}
