package controlplane

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

func (s *testServer) rebalanced(r reply) (p proto.RebalancePlan) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(r.text), &p); err != nil {
		s.t.Fatalf("%s: %v", r.text, err)
	}
	return p
}

// TestB3T7ARebalanceIsPlannedBegunAndWatched: a dry run changes nothing; carried out, each
// node has its share, pinned tenants stay, and another one finds nothing to do.
func TestB3T7ARebalanceIsPlannedBegunAndWatched(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(6, "n1")
	nodes["n1"].set(func() {
		for i := range 6 {
			nodes["n1"].sizes = map[fsm.UnitName]uint64{}
			nodes["n1"].sizes[fsm.UnitName(fmt.Sprint("t", i))] = 1 << 20
		}
	})
	s.want(s.ask("PUT", "/_shard/tenants/t0/pin", ""), 200, "")
	before := s.directory()
	dry := s.rebalanced(s.want(s.ask("POST", "/_shard/rebalance", `{"dry_run":true}`), 200, ""))
	if len(dry.Moves) != 4 || dry.ID != 0 || len(dry.Nodes) != 5 || s.directory() != before {
		t.Errorf("a dry run: %+v", dry)
	}
	for _, m := range dry.Moves {
		if m.Tenant == "t0" || m.From != "n1" || m.To != "n2" && m.To != "n3" || !strings.Contains(m.Why, "share") {
			t.Errorf("it would move %+v", m)
		}
	}
	if few := s.rebalanced(s.ask("POST", "/_shard/rebalance", `{"dry_run":true,"max":1,"region":"eu"}`)); len(few.Moves) != 1 || len(few.Nodes) != 3 {
		t.Errorf("of one region, one move: %+v", few)
	}
	key := []string{proto.HeaderIdempotencyKey, "k"}
	r := s.want(s.ask("POST", "/_shard/rebalance", "", key...), 202, "")
	begun := s.rebalanced(r)
	if begun.ID == 0 || len(begun.Moves) != 4 {
		t.Fatalf("begun: %s", r.text)
	}
	if again := s.rebalanced(s.want(s.ask("POST", "/_shard/rebalance", "", key...), 202, "")); again.ID != begun.ID {
		t.Errorf("the same key begins another: %+v", again)
	}
	s.stepIs(begun.ID.String(), "done")
	var moves []proto.Move
	s.until("its moves are made", func() bool {
		moves = nil
		_ = json.Unmarshal([]byte(s.ask("GET", "/_shard/moves", "").text), &moves)
		for _, m := range moves {
			if m.Step != proto.MoveCleaning && m.Step != proto.MoveDone {
				return false
			}
		}
		return len(moves) == 4
	})
	for _, m := range moves {
		if m.Group != begun.ID || m.Cause != "rebalance" {
			t.Errorf("move %+v", m)
		}
	}
	for n, want := range map[fsm.NodeName]int{"n1": 2, "n2": 2, "n3": 2} {
		if have, _ := s.group.State().NodeHolds(n); have != want {
			t.Errorf("%s holds %d tenants, want %d", n, have, want)
		}
	}
	if p, _ := s.group.State().Placed("t0"); p.Node != "n1" {
		t.Error("the pinned one was moved")
	}
	if r := s.want(s.ask("POST", "/_shard/rebalance", ""), 200, ""); len(s.rebalanced(r).Moves) != 0 {
		t.Errorf("another one: %s", r.text)
	}
	if list := s.ask("GET", "/_shard/moves?kind=rebalance", "").text; strings.Count(list, `"id"`) != 1 || !strings.Contains(list, begun.ID.String()) {
		t.Errorf("rebalances: %s", list)
	}
}

// TestB3ARebalanceIsCancelled: what has not begun stays; there is one at a time.
func TestB3ARebalanceIsCancelled(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(6, "n1")
	s.want(s.ask("PUT", "/_shard/settings", `{"moves_per_node":1}`), 200, "")
	for i := range 6 {
		for _, n := range []string{"n2", "n3"} {
			nodes[n].lags(fsm.UnitName(fmt.Sprint("t", i)), true)
		}
	}
	id := s.rebalanced(s.want(s.ask("POST", "/_shard/rebalance", ""), 202, "")).ID.String()
	s.until("the first move copies", func() bool { return strings.Contains(s.ask("GET", "/_shard/moves?active", "").text, id) })
	if r := s.want(s.ask("POST", "/_shard/rebalance", `{"max":1000}`), 409, fsm.CodeBusy); fmt.Sprint(r.body["move"]) != id {
		t.Errorf("another one: %s", r.text)
	}
	r := s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 200, "")
	if planned, _ := r.body["planned"].([]any); r.body["outcome"] != "cancelled" || r.body["kind"] != "rebalance" || len(planned) < 1 || len(planned) > 3 {
		t.Errorf("cancelled: %s", r.text)
	}
	s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 409, fsm.CodeMoveEnded)
}

// TestB3ARebalanceLeavesSilentNodesAlone and says so; what nobody can have meant is 400.
func TestB3ARebalanceLeavesSilentNodesAlone(t *testing.T) {
	s, nodes := startLeased(t, 60_000, 0, true, "n1/a", "n2/b")
	s.create(4, "n1")
	nodes[1].cut.Store(true)
	r := s.want(s.ask("POST", "/_shard/rebalance", ""), 200, "")
	if p := s.rebalanced(r); len(p.Moves) != 0 || !strings.Contains(r.text, "does not answer") {
		t.Errorf("with a silent node: %s", r.text)
	}
	for _, bad := range []string{`{"threshold":-1}`, `{"threshold":11}`, `{"threshold":"x"}`, `{"max":0}`, `{"max":1001}`, `{"max":1.5}`, `{"dry_run":1}`, `{"region":"A"}`, `{"x":1}`, `[]`} {
		s.want(s.ask("POST", "/_shard/rebalance", bad), 400, proto.CodeBadRequest)
	}
	s.want(s.ask("POST", "/_shard/rebalance", `{"region":"mars"}`), 404, fsm.CodeRegionUnknown)
}
