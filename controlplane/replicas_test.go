package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// TestC4C7EachCopyIsShownAsItIs: which copies a tenant has, which of them are in sync,
// and why it is unreplicated where none is (architecture §3.7.1).
func TestC4C7EachCopyIsShownAsItIs(t *testing.T) {
	s, nodes := startLeased(t, 900, 2, true, "n1/a", "n2/b", "n3/a")
	nodes[1].set(func() { nodes[1].lagging["t0"] = true })
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:syncing", "n3:in_sync")
	show := func() map[string]any { return s.want(s.ask("GET", "/_shard/tenants/t0", ""), 200, "").body }
	copies := func() string {
		var all []string
		list, _ := show()["replicas"].([]any)
		for _, c := range list {
			one := c.(map[string]any)
			all = append(all, fmt.Sprint(one["node"], "/", one["zone"], ":", one["state"], ":", one["same_zone"]))
			if one["since"] == nil {
				t.Errorf("%v tells not since when", one)
			}
		}
		return strings.Join(all, " ")
	}
	if have, want := copies(), "n2/b:syncing:<nil> n3/a:in_sync:true"; have != want || show()["unreplicated"] != nil {
		t.Errorf("copies %s, want %s; unreplicated: %v", have, want, show()["unreplicated"])
	}
	nodes[2].set(func() { nodes[2].lagging["t0"] = true })
	s.copiesAre("t0", "n1", "n2:syncing", "n3:syncing")
	if why := fmt.Sprint(show()["unreplicated"]); !strings.Contains(why, "is not in sync yet") {
		t.Errorf("it has no copy in sync and is shown as unreplicated: %s", why)
	}
	s.want(s.ask("PUT", "/_shard/settings", `{"replicas":0}`), 200, "")
	s.copiesAre("t0", "n1")
	if why := fmt.Sprint(show()["unreplicated"]); !strings.Contains(why, "no copies are asked for") {
		t.Errorf("it has no copy and is shown as unreplicated: %s", why)
	}
}

// TestL6UnreplicatedIsTheSameHoweverANodeIsFailedOver: tenants without a copy in sync
// are named by a handover, by a failover of a silent node, and where it failed.
func TestL6UnreplicatedIsTheSameHoweverANodeIsFailedOver(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(2, "n1")
	for _, u := range []fsm.UnitName{"t0", "t1"} {
		s.copiesAre(u, "n1", "n2:in_sync")
	}
	fail := func(node string, status int) string {
		r := s.want(s.ask("POST", "/_shard/nodes/"+node+"/failover", ""), status, "")
		return fmt.Sprint(r.body["unreplicated"])
	}
	if have := fail("n1", 200); have != "[]" {
		t.Errorf("after a handover whose former primary follows: %s", have)
	}
	nodes[0].set(func() { nodes[0].lagging["t0"] = true })
	s.copiesAre("t0", "n2", "n1:syncing")
	s.copiesAre("t1", "n2", "n1:in_sync")
	if have := fail("n2", 502); have != "[t0]" {
		t.Errorf("t0 was not handed over, and has no copy in sync: %s", have)
	}
	s.copiesAre("t1", "n1", "n2:in_sync")
	nodes[1].set(func() { nodes[1].lagging["t1"] = true })
	s.copiesAre("t1", "n1", "n2:syncing")
	nodes[0].set(func() { delete(nodes[0].lagging, "t0") })
	s.copiesAre("t0", "n2", "n1:in_sync")
	nodes[1].cut.Store(true)
	if have := fail("n2", 200); have != "[t0 t1]" {
		t.Errorf("after a silent node: %s", have)
	}
}

// TestC6WhyACopyCannotFollowIsTold: the copy's node says who refuses it, and so do the
// answers about the tenant, and the log once.
func TestC6WhyACopyCannotFollowIsTold(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	nodes[1].set(func() {
		nodes[1].lagging["t0"] = true
		nodes[1].refused = map[string]string{"http://" + nodes[0].addr(): "compare the replication tokens"}
	})
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:syncing")
	const want = "compare the replication tokens"
	s.until("the leader knows", func() bool {
		return strings.Contains(fmt.Sprint(s.ask("GET", "/_shard/tenants/t0", "").body["unreplicated"]), want)
	})
	if r := s.ask("GET", "/_shard/tenants/t0/explain?for=replica", ""); !strings.Contains(r.text, want) {
		t.Errorf("explain: %s", r.text)
	}
	if r := s.want(s.ask("POST", "/_shard/replicas", ""), 502, ""); !strings.Contains(r.text, want) {
		t.Errorf("repair: %s", r.text)
	}
	if n := strings.Count(s.log.String(), "a node refuses to be followed by another"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}
