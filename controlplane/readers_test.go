package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// TestC8AReadReplicaIsAskedForShownAndTakenAway: by naming its region; its node is told
// what it is, and holds nothing of the tenant once it is not wanted any more.
func TestC8AReadReplicaIsAskedForShownAndTakenAway(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	far := newFakeNodes(t, true, "u1", "u2")
	for _, n := range far {
		s.addNode(n, "us", "a")
	}
	s.want(s.ask("PUT", "/_shard/settings", `{"remove_after_ms":0}`), 200, "")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	const path = "/_shard/tenants/t0/read-replicas/"
	shown := func() string {
		r := s.want(s.ask("GET", "/_shard/tenants/t0", ""), 200, "").body
		return fmt.Sprint(r["read_replicas"], " ", r["replica"], " ", r["unreplicated"])
	}
	if have := shown(); have != "<nil> n2 <nil>" {
		t.Error(have)
	}
	if r := s.want(s.ask("PUT", path+"us", ""), 201, ""); r.text != `{"tenant":"t0","region":"us","node":"u1","state":"following"}`+"\n" {
		t.Error(r.text)
	}
	s.want(s.ask("PUT", path+"us", ""), 200, "")
	s.copiesAre("t0", "n1", "n2:in_sync", "u1:reader")
	if have, want := shown(), "[map[node:u1 region:us state:following]] n2 <nil>"; have != want {
		t.Errorf("%s, want %s", have, want)
	}
	s.until("u1 is told what it is", func() (ok bool) {
		far[0].set(func() { ok = far[0].follows["t0"].Kind == proto.CopyReader })
		return ok
	})
	nodes[1].set(func() {
		if k := nodes[1].follows["t0"].Kind; k != "" {
			t.Errorf("n2 is told that it is a %q", k)
		}
	})
	if r := s.ask("POST", "/_shard/replicas", ""); r.status != 200 {
		t.Errorf("repair: %d %s", r.status, r.text)
	}
	s.want(s.ask("PUT", path+"eu", ""), 409, fsm.CodeAlreadyThere)
	s.want(s.ask("DELETE", "/_shard/nodes/u1", ""), 409, fsm.CodeNodeInUse)
	s.want(s.ask("DELETE", path+"us", ""), 204, "")
	s.want(s.ask("DELETE", path+"us", ""), 404, fsm.CodeReaderUnknown)
	s.copiesAre("t0", "n1", "n2:in_sync")
	far[0].set(func() {
		if len(far[0].units) > 0 {
			t.Errorf("u1 still holds %v", far[0].units)
		}
	})
	if have := shown(); have != "<nil> n2 <nil>" {
		t.Error(have)
	}
	s.want(s.ask("DELETE", "/_shard/nodes/u1", ""), 204, "")
}

// TestC8AReadReplicaThatNoNodeMayHaveIsPlacedLater, and says until then why not.
func TestC8AReadReplicaThatNoNodeMayHaveIsPlacedLater(t *testing.T) {
	s, _ := startLeased(t, 900, 0, true, "n1/a")
	far := newFakeNodes(t, true, "u1", "p1")
	s.addNode(far[0], "us", "a")
	s.addNode(far[1], "", "a") // in the unnamed region, which is one like any other (N4)
	s.want(s.ask("PUT", "/_shard/nodes/u1", `{"weight":0}`), 200, "")
	s.create(1, "n1")
	r := s.want(s.ask("PUT", "/_shard/tenants/t0/read-replicas/us", ""), 201, "")
	if r.body["node"] != "" || r.body["state"] != "unplaced" || !strings.Contains(r.text, "node u1: it has weight 0") {
		t.Error(r.text)
	}
	s.want(s.ask("PUT", "/_shard/tenants/t0/read-replicas/", ""), 201, "")
	s.copiesAre("t0", "n1", "p1:reader")
	s.want(s.ask("PUT", "/_shard/nodes/u1", `{"weight":1}`), 200, "")
	s.copiesAre("t0", "n1", "p1:reader", "u1:reader")
}

// TestC8ARecoveryGivesNoTenantToAReadReplica, however far it is: what only it has is lost.
func TestC8ARecoveryGivesNoTenantToAReadReplica(t *testing.T) {
	for kind, usable := range map[proto.CopyKind]bool{"": true, proto.CopyReader: false} {
		f := found(&proto.HeldUnit{Unit: "t0", ID: 7, State: unitFollowing, Position: "40:2", Kind: kind, From: "http://n1:1"})
		if f.Usable != usable || !f.Follows || f.Epoch != 40 || f.Seq != 2 {
			t.Errorf("a copy of kind %q is %+v", kind, f)
		}
	}
}
