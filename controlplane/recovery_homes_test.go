package controlplane

import (
	"fmt"
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
