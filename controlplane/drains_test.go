package controlplane

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

func (s *testServer) drainOf(node string) (d proto.DrainState) {
	s.t.Helper()
	r := s.want(s.ask("GET", "/_shard/nodes/"+node+"/drain", ""), 200, "")
	if err := json.Unmarshal([]byte(r.text), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// TestN7ADrainIsBegunWatchedAndEnded: nothing is left on the node, which takes tenants
// again afterwards.
func TestN7ADrainIsBegunWatchedAndEnded(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b", "n3/c")
	s.want(s.ask("PUT", "/_shard/settings", `{"remove_after_ms":1,"repair_after_ms":1}`), 200, "")
	s.create(3, "n1")
	s.want(s.ask("PUT", "/_shard/tenants/t0/pin", ""), 200, "")
	s.until("has its copies", func() bool { return len(lacking(s.group.State())) == 0 })
	r := s.want(s.ask("POST", "/_shard/nodes/n1/drain", ""), 202, "")
	if r.body["id"] == nil || r.body["node"] != "n1" || r.body["units"] != 3.0 || r.body["left"] == nil {
		t.Errorf("begun: %s", r.text)
	}
	s.until("all but the pinned one have left", func() bool {
		d := s.drainOf("n1")
		return d.Primaries == 1 && d.Left == 1 && d.Moving == 0 && len(d.Blocked) == 1
	})
	if d := s.drainOf("n1"); d.State != proto.Draining || d.Blocked[0].Tenant != "t0" || !strings.Contains(d.Blocked[0].Why, "pinned") || d.Units != 3 || d.Since.IsZero() {
		t.Errorf("the drain is %+v", d)
	}
	if b := s.ask("GET", "/_shard/nodes/n1", "").body; b["state"] != "draining" || b["lease_left_ms"] == 0.0 {
		t.Errorf("the node is %v", b)
	}
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, `domicile_nodes{state="draining"} 1`) {
		t.Error("it is not counted as draining")
	}
	s.want(s.ask("PUT", "/_shard/tenants/x", `{"node":"n1"}`), 409, fsm.CodeNodeDraining)
	if again := s.want(s.ask("POST", "/_shard/nodes/n1/drain", `{"force":true}`), 202, ""); again.body["id"] != r.body["id"] {
		t.Errorf("asked again it is another drain: %s", again.text)
	}
	s.until("nothing is left", func() bool { d := s.drainOf("n1"); return d.State == proto.Drained && d.Left == 0 })
	s.until("the node holds nothing", func() bool { return len(nodes[0].held()) == 0 })
	for i := range 3 {
		if b := s.ask("GET", fmt.Sprintf("/_shard/tenants/t%d", i), "").body; b["node"] == "n1" || b["replica"] == "n1" || b["replica"] == "" {
			t.Errorf("tenant %d is %v", i, b)
		}
	}
	s.want(s.ask("DELETE", "/_shard/nodes/n1/drain", ""), 204, "")
	s.want(s.ask("DELETE", "/_shard/nodes/n1/drain", ""), 404, proto.CodeNotDraining)
	s.want(s.ask("GET", "/_shard/nodes/n1/drain", ""), 404, proto.CodeNotDraining)
	s.want(s.ask("PUT", "/_shard/tenants/x", `{"node":"n1"}`), 201, "")
}

// TestN7ADrainThatCannotBeIsRefused and changes nothing.
func TestN7ADrainThatCannotBeIsRefused(t *testing.T) {
	s, nodes := startLeased(t, 60_000, 0, true, "n1/a", "n2/b", "n3/c", "s1/c")
	s.create(1, "n1")
	s.want(s.ask("PUT", "/_shard/nodes/n3", `{"standby":"s1"}`), 200, "")
	nodes[0].setBytes(1 << 30)
	for _, n := range nodes[1:] {
		n.set(func() { n.free = 1 << 20 })
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		code               proto.Code
	}{
		{"POST", "nobody/drain", "", 404, fsm.CodeNodeUnknown}, {"GET", "nobody/drain", "", 404, fsm.CodeNodeUnknown},
		{"DELETE", "nobody/drain", "", 404, fsm.CodeNodeUnknown}, {"POST", "N/drain", "", 400, proto.CodeBadRequest},
		{"GET", "N/drain", "", 400, proto.CodeBadRequest}, {"DELETE", "N/drain", "", 400, proto.CodeBadRequest},
		{"POST", "n1/drain", `{"forced":true}`, 400, proto.CodeBadRequest}, {"POST", "n1/drain?x", "", 400, proto.CodeBadRequest},
		{"DELETE", "n1/drain", `{"x":1}`, 400, proto.CodeBadRequest}, {"POST", "s1/drain", "", 409, fsm.CodeNodeIsStandby},
		{"POST", "n1/drain", "", 409, fsm.CodeNoRoom}, // the disks
	} {
		s.want(s.ask(c.method, "/_shard/nodes/"+c.path, c.body), c.status, c.code)
	}
	nodes[1].set(func() { nodes[1].free = 2 << 30 })
	s.want(s.ask("POST", "/_shard/nodes/n1/drain", ""), 202, "")
	s.want(s.ask("POST", "/_shard/nodes/n2/drain", ""), 202, "") // it holds nothing
	s.want(s.ask("DELETE", "/_shard/nodes/n2/drain", ""), 204, "")
	s.until("t0 has left", func() bool { p, _ := s.group.State().Placed("t0"); return p.Node != "n1" })
	p, _ := s.group.State().Placed("t0")
	if r := s.want(s.ask("POST", "/_shard/nodes/n3/drain", `{"force":true}`), 202, ""); r.body["node"] != "n3" {
		t.Errorf("%s", r.text)
	}
	if p.Node == "n2" {
		s.want(s.ask("POST", "/_shard/nodes/n2/drain", ""), 409, fsm.CodeNoRoom) // no other node is left
	}
}

// TestN7WhatKeepsTenantsIsTold: a copy that does not come in sync, and a node that nothing
// else may stand in for.
func TestN7WhatKeepsTenantsIsTold(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	nodes[1].lags("t0", true)
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:syncing")
	s.want(s.ask("POST", "/_shard/nodes/n1/drain", ""), 409, fsm.CodeNoRoom)
	s.want(s.ask("POST", "/_shard/nodes/n1/drain", `{"force":true}`), 202, "")
	if d := s.drainOf("n1"); len(d.Blocked) != 1 || !strings.Contains(d.Blocked[0].Why, "not in sync") || !d.Force {
		t.Errorf("the drain is %+v", d)
	}
	s.want(s.ask("DELETE", "/_shard/nodes/n1/drain", ""), 204, "")
	nodes[1].lags("t0", false)
	s.copiesAre("t0", "n1", "n2:in_sync")
	s.want(s.ask("POST", "/_shard/nodes/n2/drain", `{"force":true}`), 202, "")
	if d := s.drainOf("n2"); len(d.Blocked) != 1 || !strings.Contains(d.Blocked[0].Why, "no other node") || d.Copies != 1 {
		t.Errorf("the drain of a copy's node is %+v", d)
	}
}
