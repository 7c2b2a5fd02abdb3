package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// startMoves runs a server with leased nodes in two regions: n1, n2 and n3 in eu, u1 and
// u2 in us.
func startMoves(t *testing.T, replicas uint32) (*testServer, map[string]*fakeNode) {
	t.Helper()
	s := startGroup(t, 1, leasing(900, replicas)).leader()
	nodes := map[string]*fakeNode{}
	for _, n := range newFakeNodes(t, true, "n1", "n2", "n3", "u1", "u2") {
		nodes[string(n.name)] = n
		region := map[byte]string{'n': "eu", 'u': "us"}[n.name[0]]
		s.addNode(n, region, "z"+string(n.name[1:]))
	}
	return s, nodes
}

func (s *testServer) move(tenant, body string, more ...string) reply {
	s.t.Helper()
	return s.ask("POST", "/_shard/tenants/"+tenant+"/move", body, more...)
}

// begin begins a move that is not waited for, and gives its number.
func (s *testServer) begin(tenant, to string) string {
	s.t.Helper()
	r := s.want(s.move(tenant, fmt.Sprintf(`{"to":%q,"wait":false}`, to)), 202, "")
	return numberOf(r)
}

// numberOf gives the number of the move that an answer tells of.
func numberOf(r reply) string {
	var m proto.Move
	_ = json.Unmarshal([]byte(r.text), &m)
	return m.ID.String()
}

// stepIs waits until a move is at a step.
func (s *testServer) stepIs(id, step string) map[string]any {
	s.t.Helper()
	var last map[string]any
	s.until("move "+id+" is "+step, func() bool {
		last = s.ask("GET", "/_shard/moves/"+id, "").body
		return last["step"] == step
	})
	return last
}

// lags has the copies of a unit on a node lack writes, or not any more.
func (n *fakeNode) lags(unit fsm.UnitName, lags bool) {
	n.set(func() { n.lagging[unit] = lags })
}

// TestM1M2M4ATenantMovesAndTheAnswerTellsHow within its region by name and across regions
// by name and by region, with its copy.
func TestM1M2M4ATenantMovesAndTheAnswerTellsHow(t *testing.T) {
	s, nodes := startMoves(t, 1)
	nodes["u1"].setBytes(1 << 30)
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	for _, c := range []struct{ body, from, to, region string }{
		{`{"to":"n3"}`, "n1", "n3", "eu"},
		{`{"to":"n3","region":"eu"}`, "", "", ""}, // refused, and nothing changes
		{`{"region":"us"}`, "n3", "u2", "us"},
		{`{"to":"n1","region":"eu"}`, "u2", "n1", "eu"},
	} {
		r := s.move("t0", c.body)
		if c.to == "" {
			s.want(r, 409, fsm.CodeAlreadyThere)
			continue
		}
		s.want(r, 200, "")
		if b := r.body; b["tenant"] != "t0" || b["from"] != c.from || b["to"] != c.to || b["region"] != c.region ||
			b["pause_ms"] == nil || b["ms"] == nil || b["bytes"] == nil || b["id"] == nil || (b["replica_on"] == nil) == (b["unreplicated"] == nil) {
			t.Errorf("%s: %s", c.body, r.text)
		}
		if !nodes[c.to].mayWrite("t0") {
			t.Errorf("%s: answered before its node may write it", c.body)
		}
		if b := s.want(s.ask("GET", "/_shard/tenants/t0", ""), 200, "").body; b["node"] != c.to || b["region"] != c.region {
			t.Errorf("%s: the tenant is %v", c.body, b)
		}
		s.until("has a copy in its region", func() bool {
			p, _ := s.group.State().Placed("t0")
			on, _ := s.group.State().Node(replicaOf(p))
			return on != nil && string(on.Region) == c.region && hasInSync(p)
		})
	}
	text := s.ask("GET", "/_metrics", "").text
	for _, want := range []string{`domicile_moves_total{outcome="undone"} 0`, `domicile_move_duration_seconds_count 3`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestM1AMoveThatCannotBeIsRefusedAndChangesNothing goes through the bad input.
func TestM1AMoveThatCannotBeIsRefusedAndChangesNothing(t *testing.T) {
	s, nodes := startMoves(t, 0)
	for _, n := range newFakeNodes(t, true, "s1", "d1", "l1", "f1") {
		nodes[string(n.name)] = n
		s.addNode(n, "eu", "z9")
	}
	s.create(2, "n1")
	s.want(s.ask("PUT", "/_shard/nodes/n3", `{"standby":"s1"}`), 200, "")
	s.want(s.ask("POST", "/_shard/nodes/d1/drain", ""), 202, "")
	nodes["f1"].set(func() { nodes["f1"].free = 1000 })
	s.until("l1 is known to take leases", func() bool { // else nothing of it ever lapses
		n, _ := s.group.State().Node("l1")
		return n.Lease == fsm.LeaseTaken
	})
	nodes["l1"].cut.Store(true)
	s.until("l1 is lost", func() bool {
		n, _ := s.group.State().Node("l1")
		return n.Lost
	})
	nodes["n2"].lags("t1", true)
	busy := s.begin("t1", "n2")
	s.until("it copies", func() bool { return nodes["n2"].was("follow 1 of http://" + nodes["n1"].addr()) })
	before := s.directory()
	for _, c := range []struct {
		tenant, body string
		status       int
		code         proto.Code
		names        string // a word of the answer
	}{
		{"t0", ``, 400, proto.CodeBadRequest, "region"},
		{"t0", `{"to":"n1"}`, 409, fsm.CodeAlreadyThere, "n1"},
		{"t0", `{"region":"eu"}`, 409, fsm.CodeAlreadyThere, "n1"},
		{"t0", `{"to":"u1"}`, 409, fsm.CodeRegionMismatch, `"region":"us"`},
		{"t0", `{"to":"u1","region":"eu"}`, 409, fsm.CodeRegionMismatch, `"region":"us"`},
		{"t0", `{"to":"nobody"}`, 404, fsm.CodeNodeUnknown, "nobody"},
		{"t0", `{"region":"mars"}`, 404, fsm.CodeRegionUnknown, "mars"},
		{"t0", `{"to":"s1"}`, 409, fsm.CodeNodeIsStandby, "n3"},
		{"t0", `{"to":"d1"}`, 409, fsm.CodeNodeDraining, "d1"},
		{"t0", `{"to":"l1"}`, 409, fsm.CodeNodeLost, "l1"},
		{"t0", `{"to":"f1"}`, 409, fsm.CodeNodeFull, `"needed_bytes":4505`},
		{"nobody", `{"to":"n2"}`, 404, fsm.CodeTenantUnknown, "nobody"},
		{"t1", `{"to":"n2"}`, 409, fsm.CodeBusy, `"move":` + busy},
		{"t0", `{"to":"N 2"}`, 400, proto.CodeBadRequest, ""},
		{"t0", `{"region":"N 2"}`, 400, proto.CodeBadRequest, ""},
		{"t0", `{"to":null}`, 400, proto.CodeBadRequest, ""},
		{"t0", `{"to":"n2","where":1}`, 400, proto.CodeBadRequest, "where"},
		{"t0", `{"to":"n2","wait":"no"}`, 400, proto.CodeBadRequest, ""},
		{"t0", `[]`, 400, proto.CodeBadRequest, ""},
	} {
		if r := s.want(s.move(c.tenant, c.body), c.status, c.code); !strings.Contains(r.text, c.names) {
			t.Errorf("%s %s: no %s in %s", c.tenant, c.body, c.names, r.text)
		}
	}
	if after := s.directory(); after != before {
		t.Errorf("something has changed:\n%s\nwas\n%s", after, before)
	}
	s.want(s.ask("DELETE", "/_shard/moves/"+busy, ""), 200, "")
}

// TestM1ASilentNodeIsNotMovedToNorFrom: it is found out before a move begins.
func TestM1ASilentNodeIsNotMovedToNorFrom(t *testing.T) {
	s, nodes := startLeased(t, 60_000, 0, true, "n1/a", "n2/b", "n3/c")
	s.create(1, "n1")
	nodes[1].cut.Store(true)
	s.want(s.move("t0", `{"to":"n2"}`), 502, fsm.CodeNodeUnreachable)
	nodes[0].cut.Store(true)
	if r := s.want(s.move("t0", `{"to":"n3"}`), 502, fsm.CodeNodeUnreachable); r.body["node"] != "n1" {
		t.Errorf("a silent source: %s", r.text)
	}
	nodes[0].cut.Store(false)
	s.want(s.move("t0", `{"to":"n3"}`), 200, "")
}

// TestM1OfARegionTheNodeWithRoomIsChosen: not the emptiest where it is full or silent.
func TestM1OfARegionTheNodeWithRoomIsChosen(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(2, "n1")
	nodes["u1"].set(func() { nodes["u1"].free = 100 })
	nodes["u2"].setBytes(1 << 30)
	if r := s.want(s.move("t0", `{"region":"us"}`), 200, ""); r.body["to"] != "u2" {
		t.Errorf("it went to the full node: %s", r.text)
	}
	nodes["u2"].set(func() { nodes["u2"].free = 100 })
	if r := s.want(s.move("t1", `{"region":"us"}`), 409, fsm.CodeNodeFull); r.body["free_bytes"] != 100.0 {
		t.Errorf("no numbers: %s", r.text)
	}
}

// TestM7AMoveIsWatchedAndCancelled before its release; whoever waits for it is told.
func TestM7AMoveIsWatchedAndCancelled(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(1, "n1")
	nodes["n2"].lags("t0", true)
	waiting := make(chan reply, 1)
	go func() { waiting <- s.move("t0", `{"to":"n2"}`) }()
	var id string
	s.until("the move is told of", func() bool {
		var list []proto.Move
		_ = json.Unmarshal([]byte(s.ask("GET", "/_shard/moves?active=1&tenant=t0&node=n2", "").text), &list)
		if len(list) == 1 {
			id = list[0].ID.String()
		}
		return id != ""
	})
	s.until("the tenant is shown as moving", func() bool {
		b := s.ask("GET", "/_shard/tenants/t0", "").body
		return b["state"] == "moving" && fmt.Sprint(b["move"]) == id && b["node"] == "n1" && b["replica"] == ""
	})
	if m := s.ask("GET", "/_shard/moves/"+id, "").body; m["tenant"] != "t0" || m["from"] != "n1" || m["to"] != "n2" || m["started"] == nil ||
		m["cause"] != "move" || m["region"] != "eu" || m["kind"] != "move" {
		t.Errorf("the move is %v", m)
	}
	if r := s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 200, ""); r.body["outcome"] != "cancelled" || r.body["step"] != "done" {
		t.Errorf("cancelled: %s", r.text)
	}
	s.want(<-waiting, 409, fsm.CodeCancelled)
	s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 409, fsm.CodeMoveEnded)
	s.copiesAre("t0", "n1")
	if b := s.ask("GET", "/_shard/tenants/t0", "").body; b["state"] != "active" || b["move"] != nil {
		t.Errorf("the tenant is %v", b)
	}
	for _, bad := range []string{"1", "0", "-1", "x", "99999999999999999999"} {
		s.want(s.ask("GET", "/_shard/moves/"+bad, ""), 404, fsm.CodeMoveUnknown)
		s.want(s.ask("DELETE", "/_shard/moves/"+bad, ""), 404, fsm.CodeMoveUnknown)
	}
	for _, bad := range []string{"?tenant=A", "?node=A", "?active=2", "?kind=x", "?after=x", "?limit=0", "?what=1"} {
		s.want(s.ask("GET", "/_shard/moves"+bad, ""), 400, proto.CodeBadRequest)
	}
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, `domicile_moves_total{outcome="cancelled"} 1`) {
		t.Error("it is not counted")
	}
}

// TestM7AMoveCannotBeCancelledOnceItIsReleased: the tenant is at its new node.
func TestM7AMoveCannotBeCancelledOnceItIsReleased(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(1, "n1")
	promoting, goOn := make(chan bool), make(chan bool)
	nodes["n2"].before("/_admin/promote", func(*http.Request) { promoting <- true; <-goOn })
	id := s.begin("t0", "n2")
	<-promoting
	if b := s.ask("GET", "/_shard/moves/"+id, "").body; b["step"] != "flipped" {
		t.Errorf("the move is %v", b)
	}
	s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 409, fsm.CodeMoveReleased)
	nodes["n2"].before("/_admin/promote", nil)
	close(goOn)
	s.copiesAre("t0", "n2", "n1:leaving")
}

// TestM7MovesAreListedNewestFirstInPages with their outcomes and pauses.
func TestM7MovesAreListedNewestFirstInPages(t *testing.T) {
	s, _ := startMoves(t, 0)
	s.want(s.ask("PUT", "/_shard/settings", `{"remove_after_ms":1}`), 200, "")
	s.create(1, "n1")
	var ids []string
	for _, to := range []string{"n2", "n3", "n2"} {
		r := s.want(s.move("t0", fmt.Sprintf(`{"to":%q}`, to)), 200, "")
		ids = append([]string{numberOf(r)}, ids...)
	}
	s.stepIs(ids[0], "done")
	var all []proto.Move
	for page := "/_shard/moves?limit=2"; page != ""; {
		r := s.want(s.ask("GET", page, ""), 200, "")
		var list []proto.Move
		if err := json.Unmarshal([]byte(r.text), &list); err != nil || len(list) > 2 {
			t.Fatalf("page %s: %v", r.text, err)
		}
		all = append(all, list...)
		page, _, _ = strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), ">")
	}
	for i, m := range all {
		if i >= len(ids) || m.ID.String() != ids[i] || m.Outcome != proto.MoveWasDone || m.Step != proto.MoveDone || m.PauseMS == nil || m.Ended == nil {
			t.Errorf("move %d is %+v", i, m)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d moves are listed", len(all))
	}
	if r := s.ask("GET", "/_shard/moves?active", ""); strings.TrimSpace(r.text) != "[]" {
		t.Errorf("active ones: %s", r.text)
	}
}

// TestM7TheSameKeyAnswersTheSameMove (spec §2.2), also once it has ended, and a refusal.
func TestM7TheSameKeyAnswersTheSameMove(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.want(s.ask("PUT", "/_shard/settings", `{"remove_after_ms":1}`), 200, "")
	s.create(1, "n1")
	key := []string{proto.HeaderIdempotencyKey, "k1"}
	first := s.want(s.move("t0", `{"to":"n2"}`, key...), 200, "")
	nodes["n2"].cut.Store(true) // a key needs no node
	again := s.want(s.move("t0", `{"to":"n2"}`, key...), 200, "")
	nodes["n2"].cut.Store(false)
	if first.body["id"] != again.body["id"] || first.body["pause_ms"] != again.body["pause_ms"] {
		t.Errorf("first %s, then %s", first.text, again.text)
	}
	s.stepIs(numberOf(first), "done")
	s.want(s.move("t0", `{"to":"n3"}`), 200, "")
	if r := s.want(s.move("t0", `{"to":"n2"}`, key...), 200, ""); r.body["id"] != first.body["id"] {
		t.Errorf("another move: %s", r.text)
	}
	s.want(s.move("t0", `{"to":"n1"}`, key...), 422, fsm.CodeKeyReused)
}

// TestB3MovesWaitForTheirTurn and say so.
func TestB3MovesWaitForTheirTurn(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(2, "n1")
	if r := s.want(s.ask("PUT", "/_shard/settings", `{"moves_per_node":1}`), 200, ""); r.body["moves_per_node"] != 1.0 {
		t.Errorf("settings: %s", r.text)
	}
	for _, bad := range []string{"0", "65", "-1"} {
		s.want(s.ask("PUT", "/_shard/settings", `{"moves_per_node":`+bad+`}`), 400, proto.CodeBadRequest)
	}
	nodes["n2"].lags("t0", true)
	first := s.begin("t0", "n2")
	s.until("the first has begun to copy", func() bool { return nodes["n2"].was("follow 1 of http://" + nodes["n1"].addr()) })
	second := s.begin("t1", "n2")
	if m := s.ask("GET", "/_shard/moves/"+second, "").body; !strings.Contains(fmt.Sprint(m["waiting"]), "moves_per_node") || m["step"] != "copying" {
		t.Errorf("the second is %v", m)
	}
	if b := s.ask("GET", "/_shard/tenants/t1", "").body; b["state"] != "active" || fmt.Sprint(b["move"]) != second {
		t.Errorf("its tenant is %v", b)
	}
	nodes["n2"].lags("t0", false)
	s.stepIs(first, "cleaning")
	s.stepIs(second, "cleaning")
}

// TestM5AMoveThatANodeFailsIsUndoneAndTold: its target cannot follow.
func TestM5AMoveThatItsTargetIsLostToIsUndoneAndTold(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.create(1, "n1")
	nodes["n2"].lags("t0", true)
	waiting := make(chan reply, 1)
	go func() { waiting <- s.move("t0", `{"to":"n2"}`) }()
	s.until("it copies", func() bool { return nodes["n2"].was("follow 1 of http://" + nodes["n1"].addr()) })
	nodes["n2"].cut.Store(true)
	r := s.want(<-waiting, 502, fsm.CodeMoveUndone)
	if !strings.Contains(r.text, "n2") || r.body["move"] == nil || r.body["tenant"] != "t0" {
		t.Errorf("it tells %s", r.text)
	}
	m := s.ask("GET", fmt.Sprint("/_shard/moves/", r.body["move"]), "").body
	if m["outcome"] != "undone" || m["problem"] == nil {
		t.Errorf("the move is %v", m)
	}
	s.until("it is written where it was", func() bool { return nodes["n1"].mayWrite("t0") })
}

// TestMovesAreToldAsEvents each once, in order.
func TestMovesAreToldAsEvents(t *testing.T) {
	s, nodes := startMoves(t, 0)
	s.want(s.ask("PUT", "/_shard/settings", `{"remove_after_ms":1}`), 200, "")
	s.create(1, "n1")
	from := s.Server.events.end()
	moved := s.want(s.move("t0", `{"to":"n2"}`), 200, "")
	s.stepIs(numberOf(moved), "done")
	nodes["n3"].lags("t0", true)
	id := s.begin("t0", "n3")
	s.want(s.ask("DELETE", "/_shard/moves/"+id, ""), 200, "")
	s.want(s.ask("POST", "/_shard/nodes/u1/drain", ""), 202, "")
	s.until("it is told as drained", func() bool { return s.count(from, proto.EventDrained) == 1 })
	s.want(s.ask("DELETE", "/_shard/nodes/u1/drain", ""), 204, "")
	s.until("that is told", func() bool { return s.count(from, proto.EventDrainEnded) == 1 })
	events, _, _, _, _ := s.Server.events.since(from)
	var told []string
	for _, e := range events {
		if e.Event != proto.EventLeaderChanged {
			told = append(told, fmt.Sprint(e.Event, " ", e.Tenant, e.From, e.Node))
		}
	}
	want := "move_begun t0n1n2, tenant_moved t0n1n2, move_done t0n1n2, move_begun t0n2n3, move_cancelled t0n2n3, node_drain_begun u1, node_drained u1, node_drain_ended u1"
	if have := strings.Join(told, ", "); have != want {
		t.Errorf("events %s, want %s", have, want)
	}
}

// count counts the events of a name from a number on.
func (s *testServer) count(from uint64, name proto.EventName) (n int) {
	events, _, _, _, _ := s.Server.events.since(from)
	for _, e := range events {
		if e.Event == name {
			n++
		}
	}
	return n
}

func TestM7HowFarAMoveIsIsTold(t *testing.T) {
	s := &Server{known: &knowledge{}}
	s.known.clear()
	at := time.UnixMilli(1_000_000)
	s.known.moves[7] = MoveProgress{At: at, Bytes: 250, Total: 1000, Rate: 25}
	j := &fsm.Job{ID: 7, Kind: fsm.JobMove, Tenant: "a", Source: "n1", Cause: fsm.CauseMove, Step: fsm.StepCopy, Started: 1,
		Targets: []fsm.Target{{Unit: "a", ID: 3, Node: "n2"}}}
	m := s.describeMove(fsm.New(), j)
	if m.Bytes != 250 || m.BytesTotal != 1000 || m.Rate != 25 || m.Step != proto.MoveCopying || m.ExpectedEnd == nil || !m.ExpectedEnd.Equal(at.Add(30*time.Second)) {
		t.Errorf("while it copies: %+v", m)
	}
	s.known.moves[7] = MoveProgress{At: at, Bytes: 1000, Total: 1000, Rate: 25}
	if m := s.describeMove(fsm.New(), j); m.Step != proto.MoveCatchingUp || m.ExpectedEnd != nil || m.Rate != 0 {
		t.Errorf("once the image is there: %+v", m)
	}
}
