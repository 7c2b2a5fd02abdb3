package controlplane

import (
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// TestG2WhatStaysInTheWayOfAHandOverHasItUndone: a tenant that one of the two directories lacks is
// found once everything was told, again and again; the region is the giver's again, and open.
func TestG2WhatStaysInTheWayOfAHandOverHasItUndone(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.GiveWithin = 300 * time.Millisecond }, "us")
	us := r.of["us"].leader()
	r.withNode("us", "n1", "a")
	r.create("us", "acme")
	r.create("us", "hooli")
	r.lose("us", "acme")
	us.want(us.ask("POST", "/_shard/regions/us/return", ""), 202, "")
	us.until("has undone it", func() bool { return strings.Contains(us.handOver("return"), `"outcome":"undone"`) })
	undone := us.want(us.ask("GET", "/_shard/regions/us/return", ""), 200, fsm.CodeRegionNotReady)
	if said, _ := undone.body["error"].(string); !strings.Contains(said, "acme") {
		t.Errorf("it tells %s", undone.text)
	}
	r.create("us", "initech")
	us.want(us.ask("DELETE", "/_shard/tenants/acme", ""), 204, "")
	us.want(us.ask("POST", "/_shard/regions/us/return", ""), 202, "")
	us.until("has handed the region over", func() bool { return strings.Contains(us.handOver("return"), `"outcome":"done"`) })
}

// TestG2AHandOverIsCancelledUntilTheRegionIsGiven, whoever is asked; the region is open then.
func TestG2AHandOverIsCancelledUntilTheRegionIsGiven(t *testing.T) {
	r, _, ready := handing(t)
	global, us := r.global.leader(), r.of["us"].leader()
	global.want(global.ask("DELETE", "/_shard/regions/us/return", ""), 404, fsm.CodeRegionUnknown)
	us.want(us.ask("DELETE", "/_shard/regions/us/adopt", ""), 404, fsm.CodeRegionUnknown)
	us.want(us.ask("POST", "/_shard/regions/us/adopt", ""), 202, "")
	global.until("has given the region", func() bool { return strings.Contains(global.handOver("adopt"), `"step":"nodes"`) })
	us.want(us.ask("DELETE", "/_shard/regions/us/adopt", ""), 409, fsm.CodeMoveReleased)
	ready.Store(true)
	global.until("has ended the hand-over", func() bool { return strings.Contains(global.handOver("adopt"), `"outcome":"done"`) })
	us.want(us.ask("DELETE", "/_shard/regions/us/adopt", ""), 409, fsm.CodeMoveEnded)

	r.create("us", "c")
	r.lose("us", "c")
	global.want(global.ask("POST", "/_shard/regions/us/return", ""), 202, "")
	us.until("says what is in the way", func() bool { return strings.Contains(us.handOver("return"), "tenant c has the region for its home") })
	global.want(global.ask("PUT", "/_shard/tenants/d", `{"region":"us"}`), 503, fsm.CodeHandingOver)
	for range 2 { // its answer was lost
		global.want(global.ask("DELETE", "/_shard/regions/us/return", "", proto.HeaderIdempotencyKey, "cancel"), 200, fsm.CodeCancelled)
	}
	us.until("has undone it", func() bool { return strings.Contains(us.handOver("return"), `"outcome":"undone"`) })
	if told := us.handOver("return"); !strings.Contains(told, `"code":"cancelled"`) {
		t.Errorf("it tells %s", told)
	}
	us.want(us.ask("DELETE", "/_shard/regions/us/return", ""), 409, fsm.CodeMoveEnded)
	r.create("us", "d")
}
