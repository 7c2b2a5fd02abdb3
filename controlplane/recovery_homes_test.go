package controlplane

import (
	"testing"
	"time"

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
	homes := us.tenantsElsewhere(0)
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
	if g.tenantsElsewhere(0) != nil {
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
	us.until("knows that its copy is old", func() bool { return us.tenantsElsewhere(0).Problem != "" })
	if homes := us.tenantsElsewhere(time.Minute); homes.Problem != "" || !homes.Elsewhere("there", 7, true) || homes.Elsewhere("new", 7, false) || homes.Elsewhere("here", here.ID+1, true) {
		t.Errorf("cut off, us goes by %+v", homes)
	}
}
