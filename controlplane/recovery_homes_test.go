package controlplane

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"domicile/fsm"
)

// TestI1ARecoveredRegionAsksTheGlobalDirectoryWhichTenantsAreIts before it takes any over:
// its own may be from before one moved away.
func TestI1ARecoveredRegionAsksTheGlobalDirectoryWhichTenantsAreIts(t *testing.T) {
	r := startRegions(t, 1, "us", "eu")
	r.withNode("us", "n1", "a")
	r.withNode("eu", "e1", "a")
	g := r.global.leader()
	g.want(g.ask("PUT", "/_shard/tenants/here", `{"region":"us"}`), 201, "")
	g.want(g.ask("PUT", "/_shard/tenants/there", `{"region":"eu"}`), 201, "")
	r.settled()
	us := r.of["us"].leader()
	here, _ := us.group.State().Placed("here")
	homes := us.tenantsElsewhere()
	elsewhere := func(name fsm.TenantName, id fsm.UnitID, held bool) bool { return homes.Elsewhere(name, id, held) }
	if homes == nil || homes.Problem != "" || elsewhere("here", here.ID, true) || !elsewhere("there", 7, true) {
		t.Errorf("us knows of %+v", homes)
	}
	// Deleted since, also where it was made again; but not where it was only just made.
	if !elsewhere("here", here.ID+1, true) || !elsewhere("new", 7, true) || !elsewhere("new", here.ID, false) {
		t.Error("us keeps what was deleted since")
	}
	if elsewhere("new", here.ID, true) {
		t.Error("us gives up what it has made for a job of the global group")
	}
	if g.tenantsElsewhere() != nil {
		t.Error("the global group asks itself")
	}
	const body = `{"tenant":"there","id":7,"node":"n1"}`
	us.want(us.ask("POST", "/_shard/recovery/adopt", body), 409, "region_elsewhere")
	us.want(us.ask("POST", "/_shard/recovery/adopt", `{"tenant":"new","id":7,"node":"n1"}`), 404, "unknown_tenant")
	us.want(us.ask("POST", "/_shard/recovery/adopt", `{"tenant":"here","id":7,"node":"n1"}`), 409, "tenant_exists")
	names := us.globalNames()
	if h, known := names.Home("here", here.ID); !h || !known || names.History != 1 || names.AsOf == 0 {
		t.Errorf("here is at home %v, known %v, in %+v", h, known, names)
	}
	for name, id := range map[fsm.TenantName]fsm.UnitID{"here": here.ID + 1, "new": 7} {
		if h, known := names.Home(name, id); h || known {
			t.Errorf("%s of id %d is at home %v, known %v", name, id, h, known)
		}
	}

	r.cut("us")
	us.until("knows that its copy is old", func() bool { return us.tenantsElsewhere().Problem != "" })
	us.want(us.ask("POST", "/_shard/recovery/write-off", `{"region":"global"}`), 409, "group_conflict")
	us.want(us.ask("POST", "/_shard/recovery/adopt", fmt.Sprintf(`{"tenant":"here","id":%d,"node":"n1"}`, here.ID)), 503, "global_unreachable")
}

// TestI1ARegionThatIsRecoveredCutOffTakesAnOperatorsWordForItsCopy of the global directory: a
// tenant that has moved away after that was kept would be written in two regions.
func TestI1ARegionThatIsRecoveredCutOffTakesAnOperatorsWordForItsCopy(t *testing.T) {
	r := startRegions(t, 1, "us", "eu")
	n1 := r.withNode("us", "n1", "a")
	r.withNode("eu", "e1", "a")
	g, us := r.global.leader(), r.of["us"].leader()
	for _, name := range []string{"here", "there"} {
		g.want(g.ask("PUT", "/_shard/tenants/"+name, `{"region":"us"}`), 201, "")
	}
	here, _ := us.group.State().Placed("here")
	there, _ := us.group.State().Placed("there")
	file := us.backup()
	g.want(g.ask("DELETE", "/_shard/tenants/there", ""), 204, "")
	g.want(g.ask("PUT", "/_shard/tenants/there", `{"region":"eu"}`), 201, "")
	n1.mu.Lock() // it was never removed from it
	n1.units["there"] = there.ID
	n1.mu.Unlock()
	r.settled()

	next := r.of["us"].anew(us)
	r.links[next] = r.links[us]
	us = next
	us.until("has the global directory", func() bool { d := us.globalCopy(); return d != nil && d.Revision() >= g.group.State().Revision() })
	r.cut("us")
	us.until("knows that its copy is old", func() bool { return us.global.Age() > homesAge })
	us.want(us.ask("POST", "/_shard/restore", file), 200, "")
	us.until("waits for the global group", func() bool {
		return strings.Contains(us.ask("GET", "/_shard/recovery", "").text, "region global")
	})
	us.want(us.ask("POST", "/_shard/recovery/write-off", `{"region":"eu"}`), 404, fsm.CodeRegionUnknown)
	us.want(us.ask("POST", "/_shard/recovery/write-off", `{"region":"global"}`), 200, "")
	us.until("is recovered", func() bool { return !us.group.State().Recovering() })
	homes := us.tenantsElsewhere()
	if homes.Problem != "" || !homes.Elsewhere("there", there.ID, true) || homes.Elsewhere("new", 7, false) || homes.Elsewhere("here", here.ID+1, true) {
		t.Errorf("by its copy us goes by %+v", homes)
	}
	if u, known := us.group.State().Placed("there"); known && u.State == fsm.UnitActive {
		t.Errorf("us serves %+v, which lives in eu", u)
	}
	if u, _ := us.group.State().Placed("here"); u == nil || u.State != fsm.UnitActive {
		t.Errorf("us does not serve here: %+v", u)
	}
}

// TestO6G3ARegionsGroupThatIsLostWithoutABackupTakesItsNameAgain: its nodes, and the global group,
// take the new one for the same. Tenants are adopted from the nodes, and nothing that lives
// elsewhere; what is left of no tenant frees its name when it is deleted.
func TestO6G3ARegionsGroupThatIsLostWithoutABackupTakesItsNameAgain(t *testing.T) {
	r := startRegions(t, 1, "us", "eu")
	n1 := r.withNode("us", "n1", "a")
	r.withNode("eu", "e1", "a")
	g, us := r.global.leader(), r.of["us"].leader()
	for _, name := range []string{"here", "lost", "away"} {
		g.want(g.ask("PUT", "/_shard/tenants/"+name, `{"region":"us"}`), 201, "")
	}
	here, _ := us.group.State().Placed("here")
	away, _ := us.group.State().Placed("away")
	g.want(g.ask("DELETE", "/_shard/tenants/away", ""), 204, "")
	g.want(g.ask("PUT", "/_shard/tenants/away", `{"region":"eu"}`), 201, "")
	n1.mu.Lock()
	delete(n1.units, "lost")
	n1.units["away"] = away.ID // it was never removed from it
	n1.mu.Unlock()
	authority := us.authority()
	r.settled()

	next := r.of["us"].anew(us)
	r.links[next] = r.links[us]
	us = next
	lost := "/_shard/restore?lost=" + url.QueryEscape(authority)
	us.want(us.ask("POST", "/_shard/restore?lost=abc/eu", ""), 400, fsm.CodeBadRequest)
	us.want(us.ask("POST", "/_shard/restore?lost=abc", ""), 400, fsm.CodeBadRequest)
	us.want(us.ask("POST", lost, `{}`), 400, fsm.CodeBadRequest)
	g.want(g.ask("POST", lost, ""), 400, fsm.CodeBadRequest)
	us.want(us.ask("POST", lost, ""), 200, "")
	us.until("is the group of that name, in a newer history", func() bool {
		scope, _ := us.group.State().Scope()
		return scope.Authority() == authority && scope.History == 2 && !us.group.State().Recovering()
	})
	us.want(us.ask("POST", lost, ""), 409, "group_conflict")
	us.addNode(n1, "us", "a")
	us.until("lists what the node holds", func() bool {
		text := us.ask("GET", "/_shard/recovery", "").text
		return strings.Contains(text, `"unit":"here"`) && strings.Contains(text, `"unit":"away"`)
	})
	adopt := func(name string, id fsm.UnitID) reply {
		return us.ask("POST", "/_shard/recovery/adopt", fmt.Sprintf(`{"tenant":%q,"id":%d,"node":"n1"}`, name, id))
	}
	us.want(adopt("here", here.ID), 201, "")
	us.want(adopt("away", away.ID), 409, "region_elsewhere")
	for _, s := range []*testServer{g, us, r.of["eu"].leader()} {
		s.until("tells of the tenant", func() bool { return s.ask("GET", "/_shard/tenants/here", "").body["node"] == "n1" })
	}
	g.until("deletes what is lost", func() bool { return g.ask("DELETE", "/_shard/tenants/lost", "").status == 204 })
	g.want(g.ask("PUT", "/_shard/tenants/lost", `{"region":"us"}`), 201, "")
}
