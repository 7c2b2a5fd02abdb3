package controlplane

import (
	"testing"
	"time"
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
	homes := us.tenantsElsewhere(0)
	if homes == nil || homes.Problem != "" || homes.Elsewhere("here") || homes.Elsewhere("new") || !homes.Elsewhere("there") {
		t.Errorf("us knows of %+v", homes)
	}
	if g.tenantsElsewhere(0) != nil {
		t.Error("the global group asks itself")
	}
	const body = `{"tenant":"there","id":7,"node":"n1"}`
	us.want(us.ask("POST", "/_shard/recovery/adopt", body), 409, "region_elsewhere")
	us.want(us.ask("POST", "/_shard/recovery/adopt", `{"tenant":"new","id":7,"node":"n1"}`), 404, "unknown_tenant")

	r.cut("us")
	us.until("knows that its copy is old", func() bool { return us.tenantsElsewhere(0).Problem != "" })
	if homes := us.tenantsElsewhere(time.Minute); homes.Problem != "" || !homes.Elsewhere("there") {
		t.Errorf("cut off, us goes by %+v", homes)
	}
}
