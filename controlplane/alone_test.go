package controlplane

import (
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// TestT4ServerOutOfTouchCallsNothingUnknown: a server whose group is gone may lack what
// was made since it last heard its leader, and knows nothing of leases.
func TestT4ServerOutOfTouchCallsNothingUnknown(t *testing.T) {
	g := startGroup(t, 3, func(c *Config) { c.Timing, c.Settings = fast, fsm.Settings{AutoFailover: 3000} })
	leader := g.leader()
	leader.addNode(newFakeNodes(t, true, "n1")[0], "eu", "a")
	leader.want(leader.ask("PUT", "/_shard/tenants/t1", ""), 201, "")
	last := g.follower()
	last.until("has the tenant", func() bool { _, ok := last.group.State().Tenant("t1"); return ok })
	last.until("knows by the leader that the node is up", func() bool {
		left, _ := last.ask("GET", "/_shard/nodes/n1", "").body["lease_left_ms"].(float64)
		return left > 0
	})
	last.want(last.ask("GET", "/_shard/tenants/other", ""), 404, "unknown_tenant")
	for _, s := range g.servers {
		if s != last {
			s.kill()
		}
	}
	last.until("knows no leader", func() bool { return !last.group.Leader().Known })
	for _, path := range []string{"/_shard/tenants/other", "/_shard/tenants/other/explain", "/_shard/nodes/n9", "/_shard/tenants/other?consistent=1"} {
		if r := last.ask("GET", path, ""); r.status != 503 || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, r.status, r.text)
		}
	}
	last.want(last.ask("GET", "/_shard/tenants/other", ""), 503, proto.CodeDirectoryUnavailable)
	last.want(last.ask("GET", "/_shard/tenants/t1", ""), 200, "")
	r := last.ask("GET", "/_shard/nodes/n1", "")
	if _, told := r.body["lease_left_ms"]; r.status != 200 || r.body["state"] != "unknown" || told {
		t.Errorf("the node: %d %s", r.status, r.text)
	}
}
