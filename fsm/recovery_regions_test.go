package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// newHomes is a global directory of the regions us, tr and (in it) eu, whose node is e1.
func newHomes(t *testing.T) *regionsDir {
	d := newRegionsOf(t, func(d *dir) {
		d.ok(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "g1", History: 1}, Settings: fsm.Settings{AutoFailover: 3000}})
	})
	d.node("e1", "eu")
	d.node("e2", "eu")
	return d
}

// homed makes a tenant of us.
func (d *regionsDir) homed(name fsm.TenantName) fsm.UnitID {
	d.t.Helper()
	us := fsm.RegionName("us")
	d.advance(d.ok(&fsm.CreateTenant{Name: name, Region: &us}).Job, fsm.StepDone)
	t, _ := d.Tenant(name)
	return t.Claim
}

// own makes a tenant of e1.
func (d *regionsDir) own(name fsm.TenantName) fsm.UnitRef {
	d.t.Helper()
	d.advance(d.ok(&fsm.CreateTenant{Name: name, Node: ptr(fsm.NodeName("e1"))}).Job, fsm.StepDone)
	p, _ := d.Placed(fsm.UnitName(name))
	return fsm.UnitRef{Unit: p.Unit, ID: p.ID}
}

// home tells where a tenant is.
func (d *regionsDir) home(name fsm.TenantName) string {
	t, ok := d.Tenant(name)
	p, _ := d.Placed(fsm.UnitName(name))
	text := "nobody"
	switch {
	case ok && t.HasHome:
		text = fmt.Sprintf("%s id %d", t.Home, t.Claim)
	case ok:
		text = "here"
	}
	if p != nil {
		text += fmt.Sprintf(", %s on %s id %d", p.State, p.Node, p.ID)
	}
	return text
}

func (d *regionsDir) wantHome(name fsm.TenantName, want string) {
	d.t.Helper()
	if got := d.home(name); got != want {
		d.t.Errorf("%s is of %s, want %s", name, got, want)
	}
}

func at(name fsm.TenantName, home fsm.RegionName, id fsm.UnitID) fsm.TakenHome {
	return fsm.TakenHome{Tenant: name, Home: home, ID: id}
}

// TestI1ARecoveredGlobalDirectoryGivesUpWhatARegionHas: tenants that moved since, were
// made, deleted, or made again under another id.
func TestI1ARecoveredGlobalDirectoryGivesUpWhatARegionHas(t *testing.T) {
	d := newHomes(t)
	moved, here := d.own("moved"), d.own("here")
	back, gone, again := d.homed("back"), d.homed("gone"), d.homed("again")
	acme, _ := d.Tenant("acme")
	id := d.recover()
	homes := []fsm.TakenHome{at("acme", "tr", acme.Claim), at("again", "tr", 900), {Tenant: "back", ID: back, Node: "e2", Others: []fsm.NodeName{"e1"}, Epoch: 3<<50 | 7},
		{Tenant: "gone"}, at("moved", "us", moved.ID), at("new", "us", 901)}
	for _, bad := range [][]fsm.TakenHome{
		{at("acme", "ap", 5)}, {at("acme", "tr", 0)}, {at("acme", "tr", fsm.UnitID(id)+1)}, {at("moved", "us", 5), at("acme", "tr", 5)},
		{{Tenant: "here"}}, {{Tenant: "here", ID: here.ID, Node: "e2"}}, {{Tenant: "back", ID: here.ID, Node: "e1"}}, {{Tenant: "none"}},
	} {
		if r := d.do(&fsm.TakeOver{Recovery: id, Homes: bad, Units: []fsm.TakenUnit{taken(here, "e1")}}); r.Refusal == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	d.refused(fsm.CodeNodeUnknown, &fsm.TakeOver{Recovery: id, Homes: []fsm.TakenHome{{Tenant: "back", ID: back, Node: "e9"}}}, "e9")
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id, Homes: homes[:2], Units: []fsm.TakenUnit{taken(here, "e1"), taken(moved, "e1")}}, "back")
	d.ok(&fsm.TakeOver{Recovery: id, Homes: homes, Units: []fsm.TakenUnit{taken(here, "e1")}})
	d.wantHome("acme", fmt.Sprintf("tr id %d", acme.Claim))
	d.wantHome("again", "tr id 900")
	d.wantHome("back", fmt.Sprintf("here, active on e2 id %d", back))
	d.wantHome("gone", d.home("gone"))
	d.wantHome("here", fmt.Sprintf("here, active on e1 id %d", here.ID))
	d.wantHome("moved", fmt.Sprintf("us id %d", moved.ID))
	d.wantHome("new", "us id 901")
	d.wantCopies("back", "e1 former")
	if p, _ := d.Placed("back"); p.Promoted() || fsm.Generation(p.Epoch) < 3 {
		t.Errorf("what came here since goes on as %+v", p)
	}
	if r := d.Recovery(); r.Rehomed != 5 || r.Lost != 1 || !slices.Equal(r.LostUnits, []fsm.UnitRef{{Unit: "gone", ID: gone}}) {
		t.Errorf("%d have another home, %v are lost", r.Rehomed, r.LostUnits)
	}
	if again == 900 || gone == 0 {
		t.Fatal("ids")
	}
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"us"}}, "tr")
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	d.refused(fsm.CodeTenantExists, &fsm.CreateTenant{Name: "new", Node: ptr(fsm.NodeName("e1"))})
	d.refused(fsm.CodeTenantExists, &fsm.CreateTenant{Name: "gone", Node: ptr(fsm.NodeName("e1"))})
}

// TestO6ABackupFromTheMiddleOfARecoveryHasNoWordsForTheNext: what was given up then may be
// back by now.
func TestO6ABackupFromTheMiddleOfARecoveryHasNoWordsForTheNext(t *testing.T) {
	d := newHomes(t)
	d.ok(&fsm.ForgoNode{Recovery: d.recover(), Region: "us"})
	d.ForgetRecovery()
	if err := d.Recover(fsm.RecoverRestored, 12, self, d.Now()); err != nil || d.Recovery().WithoutRegion("us") || d.Recovery().Raised != 0 {
		t.Errorf("%v, %+v", err, d.Recovery())
	}
}

// TestO6ARegionThatCannotBeReadBlocksUntilItIsWrittenOff: and then its tenants keep their
// names. One that is recorded meanwhile is read, too.
func TestO6ARegionThatCannotBeReadBlocksUntilItIsWrittenOff(t *testing.T) {
	d := newHomes(t)
	id := d.recover()
	all := d.nodeRefs("e1", "e2")
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id}, "acme", "us")
	d.refused(fsm.CodeRegionUnknown, &fsm.ForgoNode{Recovery: id, Region: "eu"}, "eu")
	d.refused(fsm.CodeRegionUnknown, &fsm.ForgoNode{Recovery: id, Region: fsm.GlobalGroup}, "global")
	d.ok(&fsm.ForgoNode{Recovery: id, Region: "us"})
	d.ok(&fsm.ForgoNode{Recovery: id, Region: "us"})
	d.ok(&fsm.TakeOver{Recovery: id})
	d.wantHome("acme", d.home("acme"))
	if r := d.Recovery(); !r.WithoutRegion("us") || r.WithoutRegion("tr") || !r.Settled {
		t.Errorf("%+v", r)
	}
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "ap", Routers: []string{"http://ap:8090"}}})
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: all, Regions: []fsm.RegionName{"ap", "tr"}})
	d.ok(&fsm.TakeOver{Recovery: id})
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: all, Regions: []fsm.RegionName{"tr"}}, "ap")
	if err := d.Recover(fsm.RecoverMajority, 9, self, d.Now()); err != nil || !d.Recovery().WithoutRegion("us") {
		t.Errorf("raised: %v, %+v", err, d.Recovery())
	}
	id = d.Recovery().ID
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:9999"}}})
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id}, "acme", "us")
	d.ok(&fsm.ForgoNode{Recovery: id, Region: "us"})
	d.ok(&fsm.TakeOver{Recovery: id})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: all, Regions: []fsm.RegionName{"ap", "tr"}})
	d.ForgetRecovery()
	d.wantHome("acme", d.home("acme"))
	if d.Recovery() == nil {
		t.Error("a recovery that has ended is forgotten")
	}
}

// TestG5I8JobsOfRegionsEndWithARecovery, whatever their step: where the tenant is decides.
func TestG5I8JobsOfRegionsEndWithARecovery(t *testing.T) {
	d := newHomes(t)
	us := ptr(fsm.RegionName("us"))
	deleted, moved := d.homed("deleted"), d.homed("moved")
	key := fsm.Entry{Cmd: &fsm.CreateTenant{Name: "made", Region: us}, Key: "k", Fingerprint: "f"}
	made := d.entry(key).Job
	d.ok(&fsm.CreateTenant{Name: "not", Region: us})
	d.ok(&fsm.DeleteTenant{Name: "deleted"})
	job := d.ok(&fsm.BeginRelocation{Tenant: "moved", Region: "tr"}).Job
	d.advance(job, fsm.StepRelease)
	id := d.recover()
	for j := range d.RunningJobs() {
		t.Errorf("job %d to %s runs", j.ID, j.Kind)
	}
	acme, _ := d.Tenant("acme")
	d.ok(&fsm.TakeOver{Recovery: id, Homes: []fsm.TakenHome{at("acme", "us", acme.Claim), at("deleted", "us", deleted), at("made", "us", fsm.UnitID(made)), at("moved", "tr", moved)}})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	d.wantHome("made", fmt.Sprintf("us id %d", made))
	d.wantHome("not", "nobody")
	d.wantHome("deleted", fmt.Sprintf("us id %d", deleted))
	d.wantHome("moved", fmt.Sprintf("tr id %d", moved))
	if r := d.entry(key); r.Refusal == nil || r.Refusal.Code != fsm.CodeTenantExists {
		t.Errorf("asked again: %+v", r)
	}
	d.ok(&fsm.BeginRelocation{Tenant: "moved", Region: "us"})
	d.ok(&fsm.DeleteTenant{Name: "deleted"})
}

// leaving takes a tenant of e1 to the point of its move to us where it was given up.
func (d *regionsDir) leaving(name fsm.TenantName) (job fsm.JobID, u fsm.UnitRef) {
	d.t.Helper()
	u = d.own(name)
	job = d.ok(&fsm.BeginRelocation{Tenant: name, Region: "us"}).Job
	o := d.origin()
	local := d.ok(&fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskDepart, Tenant: name, ID: u.ID}).Task.Local
	d.advance(job, fsm.StepRelease)
	d.ok(&fsm.TellTask{Origin: o, Job: job, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "us", Node: "u1", Addr: "http://10.0.0.1:1"}})
	d.ok(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{u}})
	return job, u
}

// coming takes a tenant of us to the point of its move to eu where it can arrive.
func (d *regionsDir) coming(name fsm.TenantName) (job fsm.JobID, id fsm.UnitID) {
	d.t.Helper()
	id = d.homed(name)
	job = d.ok(&fsm.BeginRelocation{Tenant: name, Region: "eu", To: ptr(fsm.NodeName("e1"))}).Job
	d.ok(&fsm.BeginTask{Origin: d.origin(), Job: job, Kind: fsm.TaskReceive, Tenant: name, ID: id, Region: ptr(fsm.RegionName("eu")), Node: ptr(fsm.NodeName("e1")),
		Source: &fsm.Foreign{Region: "us", Node: "u1", Addr: "http://10.0.0.1:1", Epoch: 5}})
	d.advance(job, fsm.StepRelease)
	return job, id
}

func (d *regionsDir) origin() fsm.Origin {
	scope, _ := d.Scope()
	return fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: 1}
}

// TestI1MovesUnderWayAreSettledByWhereTheTenantIs in the global directory's own part of
// them, before and after their flip.
func TestI1MovesUnderWayAreSettledByWhereTheTenantIs(t *testing.T) {
	d := newHomes(t)
	acme, _ := d.Tenant("acme")
	_, stays := d.leaving("a-stays")
	_, goes := d.leaving("b-goes")
	left, cleared := d.leaving("c-cleared")
	d.advance(left, fsm.StepPromote)
	_, notCome := d.coming("d-not-come")
	_, come := d.coming("e-come")
	landed, arrived := d.coming("f-arrived")
	d.advance(landed, fsm.StepPromote)
	id := d.recover()
	after := fsm.TenantName("")
	part := func(upto fsm.TenantName, homes []fsm.TakenHome, units ...fsm.TakenUnit) {
		t.Helper()
		d.ok(&fsm.TakeOver{Recovery: id, After: after, Upto: upto, Homes: homes, Units: units})
		if err := fsm.Check(d.State); err != nil {
			t.Fatal(upto, err)
		}
		after = upto
	}
	d.refused(fsm.CodeBadRequest, &fsm.TakeOver{Recovery: id, Upto: "b-goes", Homes: []fsm.TakenHome{at("acme", "us", acme.Claim), at("b-goes", "us", goes.ID)},
		Units: []fsm.TakenUnit{taken(stays, "e1")}}, "more than one job")
	part("a-stays", nil, taken(stays, "e1"))
	part("b-goes", []fsm.TakenHome{at("acme", "us", acme.Claim), at("b-goes", "us", goes.ID)})
	part("c-cleared", []fsm.TakenHome{at("c-cleared", "us", cleared.ID)})
	part("d-not-come", []fsm.TakenHome{{Tenant: "d-not-come", Home: "us", ID: notCome, Epoch: 5}})
	part("e-come", []fsm.TakenHome{{Tenant: "e-come", ID: come, Node: "e1", Epoch: 1<<50 | 9}})
	part("", nil, taken(fsm.UnitRef{Unit: "f-arrived", ID: arrived}, "e1"))
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	d.wantHome("a-stays", fmt.Sprintf("here, active on e1 id %d", stays.ID))
	d.wantHome("b-goes", fmt.Sprintf("us id %d", goes.ID))
	d.wantHome("c-cleared", fmt.Sprintf("us id %d, deleting on e1 id %d", cleared.ID, cleared.ID))
	d.wantHome("d-not-come", fmt.Sprintf("us id %d, deleting on e1 id %d", notCome, notCome))
	d.wantHome("e-come", fmt.Sprintf("here, active on e1 id %d", come))
	d.wantHome("f-arrived", fmt.Sprintf("here, active on e1 id %d", arrived))
	running := ""
	for j := range d.RunningJobs() {
		running += fmt.Sprintf("%s %s %s since %v; ", j.Tenant, j.Kind, j.Step, j.Since != 0)
	}
	if want := "c-cleared depart remove since false; d-not-come receive undo since false; f-arrived receive promote since false; "; running != want {
		t.Errorf("jobs %s, want %s", running, want)
	}
	d.wantUnsettled("c-cleared")
	d.refused(fsm.CodeStale, &fsm.SettleTask{Job: left, History: 1})
	d.refused(fsm.CodeStale, &fsm.SettleTask{Job: left, History: 2, Here: true})
	d.ok(&fsm.SettleTask{Job: left, History: 2})
	d.wantUnsettled("")
	p, _ := d.Placed("f-arrived")
	d.ok(&fsm.ConfirmPromotion{Node: "e1", Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "f-arrived", ID: arrived}}})
	for j := range d.RunningJobs() {
		if j.Kind == fsm.JobReceive && j.Step == fsm.StepPromote {
			t.Errorf("%s has not arrived", j.Tenant)
		}
	}
}

// TestG5WhatNobodyTellsOfIsDeleted with what is left of it: its name is busy only until that
// is gone, and it is kept where the region does not take the delete up.
func TestG5WhatNobodyTellsOfIsDeleted(t *testing.T) {
	d := newHomes(t)
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{AutoFailover: 3000, RemoveAfter: 600_000}})
	acme, _ := d.Tenant("acme")
	job, gone := d.leaving("gone")
	d.advance(job, fsm.StepPromote)
	id := d.recover()
	d.ok(&fsm.TakeOver{Recovery: id, Homes: []fsm.TakenHome{at("acme", "us", acme.Claim), {Tenant: "gone"}}})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	home := d.home("gone")
	del := d.ok(&fsm.DeleteTenant{Name: "gone"}).Job
	d.ok(&fsm.AdvanceJob{ID: del, From: fsm.StepRemove, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeRegionUnreachable}})
	d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: del, From: fsm.StepUndo, To: fsm.StepDone, Keep: gone.ID + 1})
	d.ok(&fsm.AdvanceJob{ID: del, From: fsm.StepUndo, To: fsm.StepDone, Keep: gone.ID})
	d.wantHome("gone", home)
	d.wantUnsettled("gone")
	d.advance(d.ok(&fsm.DeleteTenant{Name: "gone"}).Job, fsm.StepDone)
	d.wantHome("gone", fmt.Sprintf("here, deleting on e1 id %d", gone.ID))
	d.wantUnsettled("")
	d.refused(fsm.CodeBusy, &fsm.CreateTenant{Name: "gone", Node: ptr(fsm.NodeName("e1"))}, "is being removed")
	if err := fsm.Check(d.State); err != nil {
		t.Fatal(err)
	}
	var left fsm.JobID
	for j := range d.RunningJobs() {
		if left = j.ID; j.Kind != fsm.JobDepart || j.Since == 0 || j.Since > max(d.Now()-d.Settings().RemoveAfter, 1) {
			t.Errorf("it is removed by %+v", j)
		}
	}
	// Another recovery meanwhile leaves it at that.
	if err := d.Recover(fsm.RecoverMajority, 5, self, d.Now()); err != nil {
		t.Fatal(err)
	}
	id = d.Recovery().ID
	d.ok(&fsm.TakeOver{Recovery: id, Homes: []fsm.TakenHome{at("acme", "us", acme.Claim)}})
	if err := fsm.Check(d.State); err != nil {
		t.Fatal(err)
	}
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	d.ok(&fsm.AdvanceJob{ID: left, From: fsm.StepRemove, To: fsm.StepDone})
	d.wantHome("gone", "nobody")
	d.ok(&fsm.CreateTenant{Name: "gone", Node: ptr(fsm.NodeName("e1"))})
}

// wantUnsettled tells which tenants have departed, and are kept here until somebody says that
// they are promoted where they live.
func (d *dir) wantUnsettled(want string) {
	d.t.Helper()
	got := ""
	for j := range d.Unsettled() {
		got += string(j.Tenant) + " "
	}
	if got != strings.TrimLeft(want+" ", " ") {
		d.t.Errorf("unsettled are %q, want %q", got, want)
	}
}

// TestI10WhatWasReceivedOfAWrittenOffRegionIsKept: the region may be lost for good, and this
// may be all that there is of the tenant. An operator adopts it then.
func TestI10WhatWasReceivedOfAWrittenOffRegionIsKept(t *testing.T) {
	for name, home := range map[string]fsm.TakenHome{"nobody tells of it": {Tenant: "x"}, "another region does, of the one that has it": at("x", "us", 0)} {
		t.Run(name, func(t *testing.T) {
			d := newHomes(t)
			_, x := d.coming("x")
			id := d.recover()
			if home.Home != "" {
				home.ID = x
			}
			d.ok(&fsm.ForgoNode{Recovery: id, Region: "us"})
			d.ok(&fsm.TakeOver{Recovery: id, Homes: []fsm.TakenHome{home}})
			d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr"}})
			d.wantHome("x", fmt.Sprintf("us id %d", x))
			for j := range d.RunningJobs() {
				t.Errorf("a job to %s stands at %s", j.Kind, j.Step)
			}
			if err := fsm.Check(d.State); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestI1ATenantThatNobodyTellsOfKeepsItsNameAndWhatIsLeftOfIt: its region may know less than
// this directory. What is left of one that was made anew elsewhere is for an operator.
func TestI1ATenantThatNobodyTellsOfKeepsItsNameAndWhatIsLeftOfIt(t *testing.T) {
	d := newHomes(t)
	acme, _ := d.Tenant("acme")
	gone, _ := d.leaving("gone")
	d.advance(gone, fsm.StepPromote)
	home := d.home("gone")
	anew, _ := d.leaving("made-anew")
	d.advance(anew, fsm.StepPromote)
	id := d.recover()
	d.ok(&fsm.TakeOver{Recovery: id, Upto: "gone", Homes: []fsm.TakenHome{at("acme", "us", acme.Claim), {Tenant: "gone"}}})
	d.ok(&fsm.TakeOver{Recovery: id, After: "gone", Homes: []fsm.TakenHome{at("made-anew", "tr", 900)}})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("e1", "e2"), Regions: []fsm.RegionName{"tr", "us"}})
	d.wantHome("made-anew", "tr id 900")
	d.wantHome("gone", home)
	if r := d.Recovery(); r.Lost != 1 || r.LostUnits[0].Unit != "gone" {
		t.Errorf("lost are %v", r.LostUnits)
	}
	for j := range d.RunningJobs() {
		if j.Tenant != "gone" || j.Kind != fsm.JobDepart || j.Since != 0 {
			t.Errorf("job %+v", j)
		}
	}
	if err := fsm.Check(d.State); err != nil {
		t.Error(err)
	}
}

// TestI1ATaskThatOutlivedItsJobIsSettledByTheHome, and by nothing else.
func TestI1ATaskThatOutlivedItsJobIsSettledByTheHome(t *testing.T) {
	d, _ := regional(t)
	from := func(history uint64, floor fsm.JobID) fsm.Origin {
		return fsm.Origin{Authority: "g1/global", History: history, Floor: floor}
	}
	n := fsm.JobID(10)
	next := func() fsm.JobID { n++; return n }
	depart := func(name fsm.TenantName, sent bool) fsm.JobID {
		made := next()
		local := d.ok(&fsm.BeginTask{Origin: from(1, 1), Job: made, Kind: fsm.TaskCreate, Tenant: name, ID: fsm.UnitID(made), Node: ptr(fsm.NodeName("n1"))}).Task.Local
		d.step(local, fsm.StepDone)
		job := next()
		local = d.ok(begin(from(1, 1), job, fsm.TaskDepart, name, fsm.UnitID(made))).Task.Local
		if sent {
			d.ok(&fsm.TellTask{Origin: from(1, 1), Job: job, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "http://10.0.0.1:1"}})
			d.ok(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{{Unit: fsm.UnitName(name), ID: fsm.UnitID(made)}}})
		}
		return job
	}
	receive := func(name fsm.TenantName) fsm.JobID {
		job := next()
		d.ok(&fsm.BeginTask{Origin: from(1, 1), Job: job, Kind: fsm.TaskReceive, Tenant: name, ID: fsm.UnitID(job), Region: ptr(fsm.RegionName("us")),
			Source: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "http://10.0.0.1:1", Token: "t", Epoch: 5}})
		return job
	}
	stays, back, goes := depart("stays", false), depart("back", true), depart("goes", true)
	comes, not := receive("comes"), receive("not")
	told := depart("told", true)
	d.ok(&fsm.TellTask{Origin: from(1, 1), Job: told, Word: fsm.TaskDeparted})
	claims := ""
	for c := range d.Claims("back") {
		claims += fmt.Sprintf("%s %s %d %s; ", c.Tenant, c.How, c.Job, c.Other)
	}
	if want := fmt.Sprintf("comes receiving %d tr; goes sent %d tr; not receiving %d tr; stays own 0 ; told departed %d tr; ", comes, goes, not, told); claims != want {
		t.Errorf("claims %s, want %s", claims, want)
	}
	for _, job := range []fsm.JobID{stays, back, comes} {
		d.refused(fsm.CodeStale, &fsm.SettleTask{Job: job, History: 1, Here: true})
	}
	d.ok(&fsm.BindGlobal{Authority: "g1/global", History: 2})
	d.refused(fsm.CodeStale, &fsm.TellTask{Origin: from(1, 1), Job: comes, Word: fsm.TaskArrived})
	d.refused(fsm.CodeStale, &fsm.SettleTask{Job: stays, History: 1, Here: true})
	d.refused(fsm.CodeStale, &fsm.SettleTask{Job: told, History: 2, Here: true})
	for job, here := range map[fsm.JobID]bool{stays: true, back: true, goes: false, comes: true, not: false, told: false} {
		d.ok(&fsm.SettleTask{Job: job, History: 2, Here: here})
	}
	d.wantUnsettled("goes") // told was settled above
	d.want("stays back goes comes not told", "stays n1 active, back n1 active, goes n1 deleting, comes "+d.on("comes")+" active after "+d.on("comes")+", not "+d.on("not")+" deleting, told n1 deleting")
	d.ok(&fsm.SettleTask{Job: goes, History: 2, Here: false})
	d.wantUnsettled("")
	d.refused(fsm.CodeStale, &fsm.SettleTask{Job: goes, History: 2, Here: false})
}

func (d *dir) on(u fsm.UnitName) string { p, _ := d.Placed(u); return string(p.Node) }
