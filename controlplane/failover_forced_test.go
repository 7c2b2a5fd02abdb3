package controlplane

import (
	"strings"
	"testing"

	"domicile/fsm"
)

// TestL6ForceGivesWhatANodeHasLostToACopyThatIsNotInSync: a node that answers and is
// leased does not hold a tenant any more, and cannot read another, neither of which has a
// copy in sync. By force alone they go to the copy that is the furthest ahead, and the
// answer says what may be lost; a tenant that the node still has does not.
func TestL6ForceGivesWhatANodeHasLostToACopyThatIsNotInSync(t *testing.T) {
	s, nodes := startLeased(t, 6000, 2, true, "n1/a", "n2/b", "n3/b")
	for _, n := range nodes[1:] {
		for _, u := range []fsm.UnitName{"t0", "t1", "t2"} {
			n.set(func() { n.lagging[u] = true })
		}
	}
	nodes[1].set(func() { nodes[1].position = "1:5" })
	nodes[2].set(func() { nodes[2].position = "1:10" })
	s.create(4, "n1")
	for _, u := range []fsm.UnitName{"t0", "t1", "t2"} {
		s.copiesAre(u, "n1", "n2:syncing", "n3:syncing")
	}
	s.copiesAre("t3", "n1", "n2:in_sync", "n3:in_sync")
	nodes[0].set(func() { delete(nodes[0].units, "t0"); nodes[0].damaged["t1"] = true })

	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 502, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t3","to":"n2"}]`) || !strings.Contains(r.text, "force promotes one that may lack") {
		t.Errorf("without force: %s", r.text)
	}
	most := writers(t, "t1", nodes)
	r = s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 502, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t0","to":"n3","not_in_sync":true,"position":"1:10"},{"tenant":"t1","to":"n3","not_in_sync":true,"position":"1:10"}]`) ||
		!strings.Contains(r.text, `"failed":[{"tenant":"t2"`) {
		t.Errorf("by force: %s", r.text)
	}
	if !nodes[2].mayWrite("t0") || !nodes[2].mayWrite("t1") || most.Load() > 1 {
		t.Errorf("n3 may write: %v, %v; at most %d nodes did", nodes[2].mayWrite("t0"), nodes[2].mayWrite("t1"), most.Load())
	}
	nodes[1].set(func() { clear(nodes[1].lagging) })
	for _, u := range []fsm.UnitName{"t0", "t1"} {
		s.copiesAre(u, "n3", "n1:in_sync", "n2:in_sync")
	}
	if p, _ := s.group.State().Placed("t2"); p.Node != "n1" {
		t.Errorf("t2, which n1 has, is on %s", p.Node)
	}
}

// TestL6ForceWaitsForTheLeaseOfASilentNode: and gives what has no copy in sync to the one
// that is the furthest ahead, in the same call.
func TestL6ForceWaitsForTheLeaseOfASilentNode(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	nodes[1].set(func() { nodes[1].lagging["t0"] = true })
	s.create(2, "n1")
	s.copiesAre("t0", "n1", "n2:syncing")
	s.copiesAre("t1", "n1", "n2:in_sync")
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 200, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t0","to":"n2","not_in_sync":true,"position":"1:1"},{"tenant":"t1","to":"n2"}]`) {
		t.Errorf("answer %s", r.text)
	}
	if !nodes[1].mayWrite("t0") || most.Load() > 1 {
		t.Errorf("n2 may write: %v; at most %d nodes did", nodes[1].mayWrite("t0"), most.Load())
	}
}
