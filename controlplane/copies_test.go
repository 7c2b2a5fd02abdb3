package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// leasing has a group keep copies and lease its nodes for this long.
func leasing(ms fsm.Millis, replicas uint32) func(*Config) {
	return func(c *Config) {
		c.Settings = fsm.Settings{Replicas: replicas, AutoFailover: ms, RepairAfter: 200, RemoveAfter: 200}
	}
}

// startLeased runs one server with nodes in zones, given as name/zone.
func startLeased(t *testing.T, ms fsm.Millis, replicas uint32, leased bool, places ...string) (*testServer, []*fakeNode) {
	t.Helper()
	s := startGroup(t, 1, leasing(ms, replicas)).leader()
	var names []fsm.NodeName
	for _, p := range places {
		name, _, _ := strings.Cut(p, "/")
		names = append(names, fsm.NodeName(name))
	}
	nodes := newFakeNodes(t, leased, names...)
	for i, p := range places {
		_, zone, _ := strings.Cut(p, "/")
		s.addNode(nodes[i], "eu", zone)
	}
	return s, nodes
}

// create creates tenants t0, t1 … on a node.
func (s *testServer) create(n int, node string) {
	s.t.Helper()
	for i := range n {
		s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/t%d", i), fmt.Sprintf(`{"node":%q}`, node)), 201, "")
	}
}

// copiesAre waits until a unit has exactly these copies, given as node:state.
func (s *testServer) copiesAre(unit fsm.UnitName, primary fsm.NodeName, want ...string) {
	s.t.Helper()
	have := ""
	ok := func() bool {
		p, found := s.group.State().Placed(unit)
		if !found {
			return false
		}
		var copies []string
		for _, c := range p.Copies {
			copies = append(copies, fmt.Sprintf("%s:%s", c.Node, c.State))
		}
		have = fmt.Sprintf("%s %v, previous %q", p.Node, copies, p.Previous)
		return p.Node == primary && p.Promoted() && fmt.Sprint(copies) == fmt.Sprint(want)
	}
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s: %s\n%s", unit, have, s.log.String())
		}
	}()
	s.until(fmt.Sprintf("has %s on %s with copies %v", unit, primary, want), ok)
}

// TestC1C2ACopyIsMadeInAnotherZoneAndComesInSync creates a tenant: it can be
// written at once, and its copy follows and counts soon after.
func TestC1C2ACopyIsMadeInAnotherZoneAndComesInSync(t *testing.T) {
	s, nodes := startLeased(t, 1500, 1, true, "n1/a", "n2/a", "n3/b")
	s.addNode(newFakeNode(t, "us1"), "us", "c")
	r := s.want(s.ask("PUT", "/_shard/tenants/acme", `{"node":"n1"}`), 201, "")
	if r.body["replica_on"] != "n3" || r.body["unreplicated"] != nil {
		t.Errorf("created %s, want a copy on n3", r.text)
	}
	if !nodes[0].mayWrite("acme") {
		t.Error("it was answered before its node may write it")
	}
	s.copiesAre("acme", "n1", "n3:in_sync")
	r = s.want(s.ask("GET", "/_shard/tenants/acme", ""), 200, "")
	if r.body["replica"] != "n3" || r.body["same_zone"] != nil {
		t.Errorf("told %s", r.text)
	}
	r = s.want(s.ask("GET", "/_shard/nodes/n1", ""), 200, "")
	if left, _ := r.body["lease_left_ms"].(float64); r.body["state"] != "up" || left <= 0 {
		t.Errorf("n1 is %s", r.text)
	}
	text := s.ask("GET", "/_metrics", "").text
	for _, want := range []string{`domicile_nodes{state="up"} 3`, `domicile_nodes{state="unleased"} 1`, `domicile_replicas{node="n3"} 1`,
		`domicile_unreplicated_units 0`, `domicile_lease_age_seconds{node="n1"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestL9ACopyThatLagsIsTakenOutAndComesBack: a silent copy holds writes until
// an entry takes it out.
func TestL9ACopyThatLagsIsTakenOutAndComesBack(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	nodes[1].set(func() { nodes[1].lagging["t0"] = true })
	s.copiesAre("t0", "n1", "n2:syncing")
	nodes[1].set(func() { nodes[1].lagging["t0"] = false })
	s.copiesAre("t0", "n1", "n2:in_sync")
}

// TestC4ACopyIsPlacedWhenANodeAppears begins with one node.
func TestC4ACopyIsPlacedWhenANodeAppears(t *testing.T) {
	s, _ := startLeased(t, 600, 1, true, "n1/a")
	r := s.want(s.ask("PUT", "/_shard/tenants/t0", ""), 201, "")
	if why, _ := r.body["unreplicated"].(string); !strings.Contains(why, "no other node is in region eu") || r.body["replica_on"] != nil {
		t.Errorf("created %s", r.text)
	}
	s.until("has granted n1", func() bool { return s.ask("GET", "/_shard/nodes/n1", "").body["state"] == "up" })
	r = s.want(s.ask("POST", "/_shard/replicas", ""), 502, "")
	if !strings.Contains(r.text, "no other node is in region eu") {
		t.Errorf("a repair answers %s", r.text)
	}
	more := newFakeNode(t, "n2")
	more.leased = true
	s.addNode(more, "eu", "b")
	s.until("has a copy", func() bool { return s.ask("GET", "/_shard/tenants/t0", "").body["replica"] == "n2" })
}

// TestC3ASameZoneCopyMovesOnceABetterNodeIsThere: it is used, told and counted
// until then; the new one comes first, and the old one leaves after.
func TestC3ASameZoneCopyMovesOnceABetterNodeIsThere(t *testing.T) {
	s := startGroup(t, 1, leasing(600, 1)).leader()
	nodes := newFakeNodes(t, true, "n1", "n2", "n3")
	s.addNode(nodes[0], "eu", "a")
	s.addNode(nodes[1], "eu", "a")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	if r := s.ask("GET", "/_shard/tenants/t0", ""); r.body["same_zone"] != true {
		t.Errorf("told %s", r.text)
	}
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, `domicile_same_zone_copies{region="eu"} 1`) {
		t.Error("it is not counted")
	}
	if !strings.Contains(s.log.String(), "a tenant's copy is in its primary's own zone") {
		t.Error("it is not logged")
	}
	nodes[2].set(func() { nodes[2].lagging["t0"] = true })
	s.addNode(nodes[2], "eu", "b")
	s.copiesAre("t0", "n1", "n2:in_sync", "n3:syncing")
	nodes[2].set(func() { nodes[2].lagging["t0"] = false })
	s.copiesAre("t0", "n1", "n3:in_sync")
	waitFor(t, "n2 holds nothing", func() bool { return len(nodes[1].held()) == 0 })
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, `domicile_same_zone_copies{region="eu"} 0`) {
		t.Error("it is still counted")
	}
}

// TestC5APairsCopiesAreOnItsStandby records a pair for a node that holds
// tenants.
func TestC5APairsCopiesAreOnItsStandby(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b", "s1/b")
	s.create(3, "n1")
	r := s.want(s.ask("PUT", "/_shard/nodes/n1", `{"standby":"s1"}`), 200, "")
	if r.text != fmt.Sprintf(`{"node":"n1","addr":%q,"region":"eu","zone":"a","unreplicated":[]}`+"\n", nodes[0].addr()) {
		t.Errorf("answer %s", r.text)
	}
	for i := range 3 {
		s.copiesAre(fsm.UnitName(fmt.Sprint("t", i)), "n1", "s1:in_sync")
	}
	r = s.want(s.ask("PUT", "/_shard/tenants/more", `{"node":"n1"}`), 201, "")
	if r.body["replica_on"] != "s1" {
		t.Errorf("created %s", r.text)
	}
}

// TestC6ARepairByHandWaitsForNoGrace adds a node while the grace is long.
func TestC6ARepairByHandWaitsForNoGrace(t *testing.T) {
	s := startGroup(t, 1, func(c *Config) {
		c.Settings = fsm.Settings{Replicas: 1, AutoFailover: 600, RepairAfter: 3_600_000, RemoveAfter: 200}
	}).leader()
	nodes := newFakeNodes(t, true, "n1", "n2")
	s.addNode(nodes[0], "eu", "a")
	s.create(2, "n1")
	s.addNode(nodes[1], "eu", "b")
	r := s.want(s.ask("POST", "/_shard/replicas", ""), 200, "")
	want := `{"replicated":[{"tenant":"t0","replica":"n2"},{"tenant":"t1","replica":"n2"}],"failed":[]}` + "\n"
	if r.text != want {
		t.Errorf("answer %s, want %s", r.text, want)
	}
	if !nodes[1].was("follow 2 of http://" + nodes[0].addr()) {
		t.Errorf("n2 was told %v, want both in one call", nodes[1].told)
	}
	r = s.want(s.ask("POST", "/_shard/replicas", ""), 200, "")
	if r.text != `{"replicated":[],"failed":[]}`+"\n" {
		t.Errorf("with nothing to do it answers %s", r.text)
	}
}

// TestTheDirectorySaysWhyANodeIsChosen asks for each role.
func TestTheDirectorySaysWhyANodeIsChosen(t *testing.T) {
	s, _ := startLeased(t, 0, 1, false, "n1/a", "n2/b")
	s.create(1, "n1")
	r := s.want(s.ask("GET", "/_shard/tenants/t0/explain?for=replica", ""), 200, "")
	for _, want := range []string{`"node":"n2","may":true,"rank":1`, `"node":"n1","may":false,"why":"it is the primary","holds":"primary"`} {
		if !strings.Contains(r.text, want) {
			t.Errorf("%s lacks %s", r.text, want)
		}
	}
	s.want(s.ask("GET", "/_shard/tenants/t0/explain", ""), 200, "")
	s.want(s.ask("GET", "/_shard/tenants/t0/explain?for=x", ""), 400, proto.CodeBadRequest)
	s.want(s.ask("GET", "/_shard/tenants/t9/explain", ""), 404, fsm.CodeTenantUnknown)
}

// TestSettingsAreChangedOneByOne and the token is never told.
func TestSettingsAreChangedOneByOne(t *testing.T) {
	s := startGroup(t, 1, leasing(600, 1)).leader()
	r := s.want(s.ask("GET", "/_shard/settings", ""), 200, "")
	want := `{"replicas":1,"auto_failover_ms":600,"repair_after_ms":200,"remove_after_ms":200,"has_replication_token":false,"moves_per_node":4}` + "\n"
	if r.text != want {
		t.Errorf("settings are %s", r.text)
	}
	r = s.want(s.ask("PUT", "/_shard/settings", `{"replicas":2,"default_region":"eu","replication_token":"sekret"}`), 200, "")
	want = `{"replicas":2,"auto_failover_ms":600,"repair_after_ms":200,"remove_after_ms":200,"default_region":"eu","has_replication_token":true,"moves_per_node":4}` + "\n"
	if r.text != want || strings.Contains(s.log.String(), "sekret") {
		t.Errorf("settings are %s", r.text)
	}
	if !strings.Contains(s.log.String(), "leases are shorter than five election timeouts") {
		t.Error("short leases are not warned of")
	}
	r = s.want(s.ask("PUT", "/_shard/settings", `{"no_default_region":true}`), 200, "")
	if r.body["default_region"] != nil {
		t.Errorf("settings are %s", r.text)
	}
	for _, bad := range []string{`{"replicas":9}`, `{"auto_failover_ms":5}`, `{"auto_failover_ms":-1}`, `{"repair_after_ms":-1}`,
		`{"default_region":"A"}`, `{"no_default_region":true,"default_region":"eu"}`, `{"replication_token":"a b"}`, `{"token":"x"}`} {
		s.want(s.ask("PUT", "/_shard/settings", bad), 400, proto.CodeBadRequest)
	}
}
