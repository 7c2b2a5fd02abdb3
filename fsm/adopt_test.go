package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// handing is a global directory with n1 to n3 in us and e1 in eu, tenants a and b in us, c
// in eu, and us's own directory, which is empty.
func handing(t *testing.T) (global, us *dir) {
	global = ready(t, 1)
	for i, n := range []fsm.NodeName{"n1", "n2", "n3", "e1"} {
		region := fsm.RegionName("us")
		if n == "e1" {
			region = "eu"
		}
		global.ok(&fsm.PutNode{Name: n, Addr: ptr(fmt.Sprintf("10.0.0.%d:8081", i)), Token: ptr("t-" + string(n)), Region: &region, Zone: ptr(fsm.ZoneName("z" + n))})
		global.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	global.replicated("a", "n1", "n2")
	global.replicated("b", "n2", "n3")
	global.tenant(fsm.CreateTenant{Name: "c", Node: ptr(fsm.NodeName("e1"))})
	global.ok(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:8090"}}})
	return global, region(t, "us")
}

// region is an empty directory of a region, at the newest level.
func region(t *testing.T, name fsm.RegionName) *dir {
	d := newDir(t)
	d.ok(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "d1", Region: name, History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000}})
	d.ok(&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:1", Version: fsm.Version}})
	return d
}

// giver is how a directory names itself and a job of it.
func (d *dir) giver(job fsm.JobID) fsm.Giver {
	scope, _ := d.Scope()
	return fsm.Giver{Authority: scope.Authority(), History: scope.History, Job: job}
}

// parts are what a giver's leader tells of a region, one record in each.
func (d *dir) parts(job fsm.JobID, r fsm.RegionName, try uint64) (parts []*fsm.StageRegion) {
	add := func() *fsm.StageRegion {
		p := &fsm.StageRegion{Giver: d.giver(job), Region: r, Try: try, Part: uint64(len(parts)) + 1, Longest: d.Settings().LongestLease}
		parts = append(parts, p)
		return p
	}
	nodes, tenants := d.Given(r)
	for _, n := range nodes {
		add().Node = n
	}
	for t, p := range tenants {
		part := add()
		part.Tenants = append(part.Tenants, fsm.GivenTenant{Tenant: *t, Unit: *p})
	}
	return parts
}

// given takes a hand-over to the giver's flip.
func given(t *testing.T, from, to *dir, r fsm.RegionName) (fsm.JobID, uint64) {
	t.Helper()
	job := from.ok(&fsm.BeginGive{Region: r}).Job
	for _, p := range from.parts(job, r, 1) {
		to.ok(p)
	}
	if why := to.MayArrive(r); why != nil {
		t.Fatal(why)
	}
	sum := from.Digest(r)
	from.ok(&fsm.GiveRegion{ID: job, Digest: sum})
	return job, sum
}

// handed takes a hand-over to its end.
func handed(t *testing.T, from, to *dir, r fsm.RegionName) fsm.JobID {
	t.Helper()
	job, sum := given(t, from, to, r)
	to.ok(&fsm.ArriveRegion{Giver: from.giver(job), Digest: sum})
	from.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepPromote, To: fsm.StepClean})
	from.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepClean, To: fsm.StepDone})
	to.ok(&fsm.CloseIntake{Giver: from.giver(job)})
	return job
}

// shown tells of a directory: each tenant with where it is, then the nodes.
func (d *dir) shown() string {
	var all []string
	for n := range d.Tenants("", "") {
		if n.HasHome {
			all = append(all, fmt.Sprintf("%s→%s#%d", n.Name, n.Home, n.Claim))
			continue
		}
		p, _ := d.Placed(fsm.UnitName(n.Name))
		all = append(all, fmt.Sprintf("%s:%s#%d@%d[%s]", n.Name, p.Node, p.ID, p.Epoch, d.copies(p.Unit)))
	}
	for n := range d.Nodes() {
		all = append(all, string(n.Name))
	}
	return strings.Join(all, " ")
}

func TestG2ARegionLeavesTheGlobalDirectoryAndComesBack(t *testing.T) {
	global, us := handing(t)
	before := global.shown()
	b, _ := global.Placed("b")
	n1, _ := global.Node("n1")
	handed(t, global, us, "us")
	if got := global.shown(); !strings.HasPrefix(got, fmt.Sprintf("a→us#%d b→us#%d c:e1", idOf(us, "a"), b.ID)) || !strings.HasSuffix(got, "e1") {
		t.Errorf("the global directory has %s", got)
	}
	for _, part := range strings.Fields(us.shown()) {
		if !strings.Contains(before, part) || len(slices.Collect(us.Nodes())) != 3 {
			t.Errorf("the region has %s (%s), it was %s", us.shown(), part, before)
		}
	}
	if n, _ := us.Node("n1"); n.Token != n1.Token || n.Addr != n1.Addr || n.Zone != n1.Zone || n.Lease != fsm.LeaseTaken {
		t.Errorf("n1 is %+v there, and was %+v", n, n1)
	}

	us.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	p, _ := us.Placed("a")
	us.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "a", ID: p.ID}}})
	if was := idOf(us, "a"); p.Node != "n2" || p.ID != was || p.Epoch < 1 {
		t.Errorf("after a failover there a is %+v", p)
	}

	handed(t, us, global, "us")
	if us.shown() != "" {
		t.Errorf("the region's directory still has %s", us.shown())
	}
	if _, own := global.Region("us"); own || len(slices.Collect(global.Nodes())) != 4 {
		t.Errorf("the global directory has %s", global.shown())
	}
	if n, _ := global.Node("n1"); n.ID == n1.ID || n.Token != n1.Token {
		t.Errorf("n1 came back as %+v, it was %+v", n, n1)
	}
	if back, _ := global.Placed("a"); back.Node != "n2" || back.ID != p.ID || back.Epoch != p.Epoch {
		t.Errorf("a came back as %+v, it was %+v", back, p)
	}
	global.tenant(fsm.CreateTenant{Name: "d", Region: ptr(fsm.RegionName("us"))})
	handedAgain(t, global, us)
}

// handedAgain: names of jobs and the like of before are no hindrance.
func handedAgain(t *testing.T, global, us *dir) {
	t.Helper()
	global.ok(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:8090"}}})
	global.ok(&fsm.NodeBack{Node: "n1"})
	for _, u := range []fsm.UnitName{"a", "b", "d"} {
		p, ok := global.Placed(u)
		if !ok {
			t.Fatalf("%s is not there", u)
		}
		for _, c := range p.Copies {
			if c.State == fsm.CopySyncing {
				global.sync(fsm.UnitRef{Unit: u, ID: p.ID}, c.Node)
			}
		}
	}
	handed(t, global, us, "us")
}

func idOf(d *dir, u fsm.UnitName) fsm.UnitID {
	p, _ := d.Placed(u)
	return p.ID
}

func TestG2WhileARegionIsHandedOverNothingIsBegunThere(t *testing.T) {
	global, us := handing(t)
	region := ptr(fsm.RegionName("us"))
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	for _, c := range []fsm.Command{
		&fsm.PutNode{Name: "n1", Weight: ptr(uint32(3))}, &fsm.PutNode{Name: "n9", Addr: ptr("10.0.0.9:1"), Token: ptr("t"), Region: region},
		&fsm.DeleteNode{Name: "n3", Force: true}, &fsm.SetDrain{Node: "n1", Drain: true},
		&fsm.CreateTenant{Name: "x", Region: region}, &fsm.CreateTenant{Name: "x", Node: ptr(fsm.NodeName("n1"))},
		&fsm.DeleteTenant{Name: "a"}, &fsm.BeginMove{Unit: "a", To: "n3", Cause: fsm.CauseMove}, &fsm.BeginMove{Unit: "c", Region: region, Cause: fsm.CauseMove},
		&fsm.SetReader{Tenant: "c", Region: "us", Wanted: true}, &fsm.DeleteRegion{Name: "us"}, &fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: "y", ID: 1}, Node: "n1"},
	} {
		global.refused(fsm.CodeHandingOver, c, "us")
	}
	global.refused(fsm.CodeBusy, &fsm.BeginGive{Region: "us"})
	if got := global.tenant(fsm.CreateTenant{Name: "z"}); got != "e1" {
		t.Errorf("a tenant of no region was placed on %s", got)
	}
	parts := global.parts(job, "us", 1)
	us.ok(parts[0])
	for _, c := range []fsm.Command{
		&fsm.PutNode{Name: "n9", Addr: ptr("10.0.0.9:1"), Token: ptr("t")},
		&fsm.BeginTask{Origin: fsm.Origin{Authority: global.giver(0).Authority, History: 1}, Job: 9, Kind: fsm.TaskCreate, Tenant: "x", ID: 9},
	} {
		us.refused(fsm.CodeHandingOver, c, "us")
	}
	global.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepCopy, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "silent"}})
	global.ok(&fsm.PutNode{Name: "n1", Weight: ptr(uint32(3))})
	global.refused(fsm.CodeStale, &fsm.GiveRegion{ID: job, Digest: global.Digest("us")})
	us.ok(&fsm.CloseIntake{Giver: global.giver(job)})
	us.refused(fsm.CodeTaskOver, parts[1])
	us.ok(&fsm.PutNode{Name: "n9", Addr: ptr("10.0.0.9:1"), Token: ptr("t")})
	global.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepUndo, To: fsm.StepDone})
}

func TestG2OnlyWhatTheOtherGroupWasToldOfIsGiven(t *testing.T) {
	global, us := handing(t)
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	sum := global.Digest("us")
	global.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}) // goes on
	global.refused(fsm.CodeRegionNotReady, &fsm.GiveRegion{ID: job, Digest: global.Digest("us")}, "promoted")
	p, _ := global.Placed("a")
	global.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "a", ID: p.ID}}})
	global.refused(fsm.CodeStale, &fsm.GiveRegion{ID: job, Digest: sum}, "changed")

	parts := global.parts(job, "us", 2)
	us.refused(fsm.CodeStale, parts[1])
	for _, p := range parts {
		us.ok(p)
		us.ok(p)        // an answer was lost
		us.ok(parts[0]) // late
	}
	i, _ := us.Intake(global.giver(0).Authority)
	if i.Digest != global.Digest("us") || i.Part != uint64(len(parts)) {
		t.Errorf("the region was told of %x in %d parts, not of %x in %d", i.Digest, i.Part, global.Digest("us"), len(parts))
	}
	old := global.parts(job, "us", 1)[0]
	us.refused(fsm.CodeStale, old, "newer leader")
	us.refused(fsm.CodeStale, &fsm.ArriveRegion{Giver: global.giver(job), Digest: sum})
	more := &fsm.StageRegion{Giver: global.giver(job), Region: "us", Try: 2, Part: i.Part + 1, GoneTenants: []fsm.TenantName{"a"}}
	us.ok(more)
	if n, _ := us.Intake(global.giver(0).Authority); n.Digest == i.Digest {
		t.Error("what is no more is still counted")
	}
	us.ok(global.parts(job, "us", 3)[0]) // the next leader begins anew
	us.refused(fsm.CodeStale, &fsm.ArriveRegion{Giver: global.giver(job), Digest: sum})
}

func TestG2ALateWordOfAHandOverChangesNothing(t *testing.T) {
	global, us := handing(t)
	job, sum := given(t, global, us, "us")
	late := us.clone(t)
	arrive := &fsm.ArriveRegion{Giver: global.giver(job), Digest: sum}
	us.ok(arrive)
	before := us.shown()
	us.ok(arrive)
	us.ok(&fsm.StageRegion{Giver: global.giver(job), Region: "us", Try: 9, Part: 1})
	us.ok(&fsm.CloseIntake{Giver: global.giver(job)})
	us.refused(fsm.CodeTaskOver, arrive)
	us.refused(fsm.CodeTaskOver, &fsm.StageRegion{Giver: global.giver(job), Region: "us", Try: 9, Part: 1})
	us.ok(&fsm.CloseIntake{Giver: global.giver(job)})
	if us.shown() != before {
		t.Errorf("late words made %s of %s", us.shown(), before)
	}
	foreign := *arrive
	foreign.Authority = "c9/global"
	late.refused(fsm.CodeScope, &foreign)
	late.ok(arrive)
}

func (d *dir) clone(t *testing.T) *dir { return &dir{State: clone(t, d.State), t: t} }

func TestG2WhatIsRefusedBeforeAnythingIsHandedOver(t *testing.T) {
	global, us := handing(t)
	global.refused(fsm.CodeRegionUnknown, &fsm.BeginGive{Region: "tr"}, "tr", "/_shard/regions/tr")
	global.refused(fsm.CodeBadRequest, &fsm.BeginGive{})
	us.refused(fsm.CodeNotOwner, &fsm.BeginGive{Region: "eu"})
	us.refused(fsm.CodeRegionNotReady, &fsm.BeginGive{Region: "us"}, "does not know its global group")
	us.ok(&fsm.PutNode{Name: "n9", Addr: ptr("10.0.0.9:1"), Token: ptr("t")})
	job := global.ok(&fsm.BeginGive{Region: "us"}).Job
	us.refused(fsm.CodeRegionNotReady, global.parts(job, "us", 1)[0], "not empty")
	us.ok(&fsm.DeleteNode{Name: "n9"})
	us.ok(global.parts(job, "us", 1)[0])
	other := *global.parts(job, "us", 1)[0]
	other.Authority = "c9/global"
	us.refused(fsm.CodeScope, &other)

	tr := region(t, "tr")
	tr.refused(fsm.CodeScope, global.parts(job, "us", 1)[0], "tr")
}

func TestG2TheGlobalDirectoryTakesARegionBackOnlyAsItKnowsIt(t *testing.T) {
	global, us := handing(t)
	handed(t, global, us, "us")
	deletes := global.ok(&fsm.DeleteTenant{Name: "b"}).Job
	job := us.ok(&fsm.BeginGive{Region: "us"}).Job
	for _, p := range us.parts(job, "us", 1) {
		global.ok(p)
	}
	for _, c := range []fsm.Command{
		&fsm.CreateTenant{Name: "x", Region: ptr(fsm.RegionName("us"))}, &fsm.DeleteTenant{Name: "a"},
		&fsm.BeginRelocation{Tenant: "a", Region: "eu"}, &fsm.BeginRelocation{Tenant: "c", Region: "us"}, &fsm.DeleteRegion{Name: "us"},
	} {
		global.refused(fsm.CodeHandingOver, c, "us")
	}
	if r := global.MayArrive("us"); r == nil || r.Code != fsm.CodeRegionNotReady || !strings.Contains(r.Text, "b has work under way") {
		t.Errorf("with a delete under way: %v", r)
	}
	global.ok(&fsm.AdvanceJob{ID: deletes, From: fsm.StepRemove, To: fsm.StepDone})
	if r := global.MayArrive("us"); r == nil || !strings.Contains(r.Text, "b of the region is not the one") {
		t.Errorf("with a tenant that the global directory does not know: %v", r)
	}
}

func TestI1TheTakerCountsTheLongestLeaseOfEitherDirectory(t *testing.T) {
	global, us := handing(t)
	s := global.Settings()
	s.AutoFailover = 9000
	global.ok(&fsm.SetSettings{Settings: s})
	s.AutoFailover = 2000
	global.ok(&fsm.SetSettings{Settings: s})
	handed(t, global, us, "us")
	if got := us.Settings(); got.LongestLease != 9000 || got.AutoFailover != 3000 {
		t.Errorf("leases there are %d ms, the longest %d ms; nodes may hold one of 9000", got.AutoFailover, got.LongestLease)
	}
}

func TestI4EpochsGrowThroughDirectoriesWhoseRevisionsAreLower(t *testing.T) {
	global, us := handing(t)
	for range 200 {
		global.ok(&fsm.RecordUsage{})
	}
	global.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	p, _ := global.Placed("a")
	global.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "a", ID: p.ID}}})
	global.ok(&fsm.NodeBack{Node: "n1"})
	handed(t, global, us, "us")
	at := p.Epoch
	us.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: fsm.UnitRef{Unit: "a", ID: p.ID}, Node: "n3"}}})
	us.sync(fsm.UnitRef{Unit: "a", ID: p.ID}, "n3")
	us.ok(&fsm.FailOver{Node: "n2", Cause: fsm.CauseLapsed})
	next, _ := us.Placed("a")
	if uint64(us.Revision()) >= at || next.Epoch <= at || next.Node != "n3" {
		t.Errorf("at revision %d the epoch went from %d to %d", us.Revision(), at, next.Epoch)
	}
}

// TestG2WhoGivesARegionIsAskedForItsAuthority: a region takes what the global group gives,
// the global group what that region's own group gives, and neither keeps a record of others.
func TestG2WhoGivesARegionIsAskedForItsAuthority(t *testing.T) {
	global, us := handing(t)
	part := func(d *dir, authority string) *fsm.StageRegion {
		return &fsm.StageRegion{Giver: fsm.Giver{Authority: authority, History: 1, Job: 9}, Region: "us", Try: 1, Part: 1}
	}
	for _, authority := range []string{"c1/eu", "c1/us", "c1/"} {
		us.refused(fsm.CodeScope, part(us, authority))
		us.refused(fsm.CodeScope, &fsm.CloseIntake{Giver: part(us, authority).Giver})
	}
	for _, authority := range []string{"d1/eu", "c1/global", "d1"} {
		global.refused(fsm.CodeScope, part(global, authority))
	}
	for _, authority := range []string{"c1/global", "c9/global", "d1"} {
		global.refused(fsm.CodeScope, &fsm.CloseIntake{Giver: part(global, authority).Giver})
	}
	global.ok(&fsm.CloseIntake{Giver: part(global, "d9/tr").Giver}) // it is not recorded: there is nothing to close
	if len(slices.Collect(global.Intakes()))+len(slices.Collect(us.Intakes())) != 0 {
		t.Error("a hand-over that nobody can have begun is recorded")
	}
	closed := part(global, "d1/us")
	global.ok(&fsm.CloseIntake{Giver: closed.Giver})
	global.refused(fsm.CodeTaskOver, closed)
	us.ok(&fsm.CloseIntake{Giver: part(us, "c1/global").Giver})
	us.refused(fsm.CodeScope, &fsm.CloseIntake{Giver: part(us, "c9/global").Giver})
}
