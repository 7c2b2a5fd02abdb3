package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// has makes a tenant in a region's directory that another has too, under its id, as where a
// recovery has gone on without the region.
func (r *testRegions) has(region fsm.RegionName, name fsm.TenantName, job fsm.JobID) {
	r.t.Helper()
	s, from, id := r.of[region].leader(), r.origin(), fsm.UnitID(0)
	global := r.global.leader().group.State()
	if t, _ := global.Tenant(name); t.HasHome {
		id = t.Claim
	} else if p, ok := global.Placed(fsm.UnitName(name)); ok {
		id = p.ID
	}
	s.want(s.callTask(job, proto.TaskCall{Call: proto.TaskBegin, To: region, Authority: from.Authority, History: from.History, Floor: 1,
		Kind: "create", Tenant: name, ID: id, Region: &region}), 200, "")
}

// TestI1OfTwoGroupsThatHaveATenantTheOneWhereItLivesKeepsIt: tr, or the global group itself. A
// tenant that the global directory has in tr, and that tr has not, or no node of it to write, may
// be us's alone: it is kept.
func TestI1OfTwoGroupsThatHaveATenantTheOneWhereItLivesKeepsIt(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.Settings.RemoveAfter, c.OrphansEvery = 1, 20*time.Millisecond }, "us", "tr")
	node, other := r.withNode("us", "n1", "a"), r.withNode("tr", "n1", "a")
	g, us := r.global.leader(), r.of["us"].leader()
	own := newFakeNode(t, "e1")
	g.addNode(own, "eu", "a")
	g.want(g.ask("PUT", "/_shard/tenants/in-eu", `{"region":"eu"}`), 201, "")
	for _, name := range []fsm.TenantName{"lost", "silent"} {
		r.create("tr", name)
		r.lose("tr", name)
	}
	r.create("tr", "both")
	tr := r.of["tr"].leader()
	over := make(chan struct{})
	defer close(over)
	other.set(func() {
		other.fault = func(w http.ResponseWriter, q *http.Request) bool {
			hang := q.Method == http.MethodPut && strings.HasSuffix(q.URL.Path, "/silent")
			if hang {
				<-over
			}
			return hang
		}
	})
	silent, _ := g.group.State().Tenant("silent")
	n1 := fsm.NodeName("n1")
	tr.propose(&fsm.BeginTask{Origin: r.origin(), Job: 900, Kind: fsm.TaskCreate, Tenant: "silent", ID: silent.Claim, Node: &n1})
	r.settled()
	removed := make(chan string, 8)
	node.set(func() {
		node.after = func(q *http.Request) {
			if q.Method == http.MethodDelete {
				removed <- q.URL.Path + " " + q.Header.Get(proto.HeaderRemoval)
			}
		}
	})
	for job, name := range map[fsm.JobID]fsm.TenantName{2: "both", 3: "in-eu", 4: "lost", 5: "silent"} {
		r.has("us", name, job)
	}
	gone := func(name fsm.TenantName) func() bool {
		return func() bool { _, here := us.group.State().Tenant(name); return !here }
	}
	us.until("has yielded both", gone("both"))
	us.until("has yielded in-eu", gone("in-eu"))
	for range 2 {
		if what := <-removed; !strings.HasSuffix(what, " "+proto.RemovalCopy) {
			t.Errorf("the node was told %s: it keeps nothing of that aside", what)
		}
	}
	for _, name := range []fsm.UnitName{"lost", "silent"} {
		if p, ok := us.group.State().Placed(name); !ok || p.State != fsm.UnitActive || node.held()[name] != p.ID {
			t.Errorf("of %s us has %+v", name, p)
		}
	}
	both, _ := tr.group.State().Placed("both")
	inEU, _ := g.group.State().Placed("in-eu")
	if other.held()["both"] != both.ID || own.held()["in-eu"] != inEU.ID {
		t.Errorf("%v, %v", other.held(), own.held())
	}
	told := func() int { return strings.Count(us.log.String(), "two groups had a tenant as their own") }
	us.until("tells of each in its log", func() bool { return told() >= 2 })
	if told() != 2 {
		t.Error("the log does not tell of each")
	}
	up, _ := us.belongsTo()
	in := func(only, to string, history uint64) string {
		return fmt.Sprintf(`{"to":%q,"authority":%q,"history":%d,"only":[%s]}`, to, up.Authority, history, only)
	}
	var page proto.Census
	tr.decode(tr.ask("POST", "/_shard/tasks/census", in(`"silent","none","both"`, "tr", 1)), &page)
	if len(page.Tenants) != 2 || page.Tenants[0].Tenant != "both" || !page.Tenants[0].Promoted || page.Tenants[1].Promoted || page.History != 1 {
		t.Errorf("%+v", page)
	}
	g.decode(g.ask("POST", "/_shard/tasks/census", in(`"in-eu","both"`, "", 1)), &page)
	if len(page.Tenants) != 1 || page.Tenants[0].ID != inEU.ID || !page.Tenants[0].Promoted {
		t.Errorf("%+v", page)
	}
	g.want(g.ask("POST", "/_shard/tasks/census", in(`"both"`, "", 2)), 409, fsm.CodeStale)
	tr.want(tr.ask("POST", "/_shard/tasks/census", in(strings.Repeat(`"both",`, censusPage)+`"both"`, "tr", 1)), 400, fsm.CodeBadRequest)
}

// TestI10WhatHasDepartedIsKeptUntilItIsPromotedWhereItLives: the region has settled, in a
// recovery of the global directory, that a tenant has left; the region where it lives may have
// it, and no node that was promoted.
func TestI10WhatHasDepartedIsKeptUntilItIsPromotedWhereItLives(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.Settings.RemoveAfter, c.OrphansEvery = 1, 20*time.Millisecond }, "us", "tr")
	node := r.withNode("us", "n1", "a")
	r.withNode("tr", "n1", "a")
	us, tr := r.of["us"].leader(), r.of["tr"].leader()
	r.create("tr", "x")
	x, _ := tr.group.State().Placed("x")
	r.lose("tr", "x")
	r.departed("us", node, x.ID)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	state := us.group.State()
	us.askHome(ctx, 0, state, owner{region: "tr"}, us.doubts(state, us.homesNow(state), nil)[owner{region: "tr"}])
	if p, ok := us.group.State().Placed("x"); !ok || node.held()["x"] != p.ID {
		t.Fatal("x is gone, and tr has nothing of it")
	}
	r.has("tr", "x", 900)
	us.until("lets x go", func() bool { _, here := us.group.State().Tenant("x"); return !here && len(node.held()) == 0 })
}

// departed has a region let a tenant x go, of which the global directory says no more.
func (r *testRegions) departed(region fsm.RegionName, node *fakeNode, id fsm.UnitID) {
	r.t.Helper()
	us := r.of[region].leader()
	r.has(region, "x", 2)
	from := r.origin()
	depart := us.propose(&fsm.BeginTask{Origin: from, Job: 3, Kind: fsm.TaskDepart, Tenant: "x", ID: id}).Task.Local
	node.cut.Store(true) // it has released x
	us.propose(&fsm.TellTask{Origin: from, Job: 3, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "tr", Node: "n1", Addr: "10.0.0.1:1"}})
	us.propose(&fsm.EndRelease{ID: depart, Released: []fsm.UnitRef{{Unit: "x", ID: id}}})
	node.cut.Store(false)
	us.propose(&fsm.TellTask{Origin: from, Job: 3, Word: fsm.TaskDeparted})
	from.Floor = 40
	us.propose(&fsm.ForgoTask{Origin: from, Job: 41, Kind: fsm.TaskCreate, Tenant: "y", ID: 41}) // says that job 3 is no more
	for range us.group.State().Unsettled() {
		depart = 0
	}
	if depart != 0 {
		r.t.Fatal("nothing is to be settled")
	}
}

// TestI10WhatHasDepartedOfATenantThatIsNoMoreIsToldAndDropped by an operator's word alone: it
// may be all that there is.
func TestI10WhatHasDepartedOfATenantThatIsNoMoreIsToldAndDropped(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.Settings.RemoveAfter, c.OrphansEvery = 1, 20*time.Millisecond }, "us", "tr")
	node := r.withNode("us", "n1", "a")
	r.withNode("tr", "n1", "a")
	us, g := r.of["us"].leader(), r.global.leader()
	r.create("tr", "x")
	x, _ := r.of["tr"].leader().group.State().Placed("x")
	r.lose("tr", "x")
	r.departed("us", node, x.ID)
	us.want(us.ask("DELETE", "/_shard/tasks/orphans/x", ""), 404, fsm.CodeTenantUnknown)
	g.want(g.ask("DELETE", "/_shard/tenants/x", ""), 204, "")
	listed := func() bool {
		return strings.Contains(g.ask("GET", "/_shard/tasks/orphans?region=us", "").text, fmt.Sprintf(`{"tenant":"x","id":%d,"kind":"departed"}`, x.ID))
	}
	again := func() reply {
		from, region := r.origin(), fsm.RegionName("us")
		return us.callTask(50, proto.TaskCall{Call: proto.TaskBegin, To: region, Authority: from.Authority, History: from.History, Floor: 40,
			Kind: "create", Tenant: "x", ID: 50, Region: &region})
	}
	us.until("tells of x", listed)
	us.want(again(), 409, fsm.CodeBusy)
	g.want(g.ask("DELETE", "/_shard/tasks/orphans/x?region=tr", ""), 404, fsm.CodeTenantUnknown)
	g.want(g.ask("DELETE", "/_shard/tasks/orphans/..x?region=us", ""), 400, fsm.CodeBadRequest)
	if p, ok := us.group.State().Placed("x"); !ok || node.held()["x"] != p.ID {
		t.Fatal("x is gone, and nobody said that it is not needed")
	}
	r.cut("us")
	us.until("has an old copy of the global directory alone", func() bool { return us.global.Age() > freshFor })
	us.want(us.ask("DELETE", "/_shard/tasks/orphans/x", ""), 503, proto.CodeGlobalUnreachable)
	r.heal("us")
	us.until("has a current one", func() bool { return us.homesNow(us.group.State()) != nil })
	us.until("tells of x again", listed)
	g.want(g.ask("DELETE", "/_shard/tasks/orphans/x?region=us", "", "Idempotency-Key", "drop"), 204, "")
	us.until("lets x go", func() bool { _, here := us.group.State().Tenant("x"); return !here && len(node.held()) == 0 })
	us.until("tells of it no more", func() bool { return !listed() })
	g.want(g.ask("DELETE", "/_shard/tasks/orphans/x?region=us", "", "Idempotency-Key", "drop"), 204, "")
	g.want(g.ask("DELETE", "/_shard/tasks/orphans/x?region=us", ""), 404, fsm.CodeTenantUnknown)
	us.want(again(), 200, "")
}
