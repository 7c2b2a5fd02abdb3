package controlplane

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
)

// writers counts the nodes that take writes of a unit, from one goroutine, and
// keeps the greatest count.
func writers(t *testing.T, unit fsm.UnitName, nodes []*fakeNode) (most *atomic.Int32) {
	most = new(atomic.Int32)
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			count := int32(0)
			for _, n := range nodes {
				if n.mayWrite(unit) {
					count++
				}
			}
			most.Store(max(most.Load(), count))
		}
	}()
	return most
}

// TestL5L7ANodeThatLapsedIsFailedOverAndComesBack cuts a node off, with the
// tenants that it holds: they are promoted on their copies in one call, and
// never does another node write before it has stopped. Once back, it follows.
func TestL5L7ANodeThatLapsedIsFailedOverAndComesBack(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	s.create(10, "n1")
	for i := range 10 {
		s.copiesAre(fsm.UnitName(fmt.Sprint("t", i)), "n1", "n2:in_sync")
	}
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	s.copiesAre("t9", "n2", "n1:former")
	waitFor(t, "n2 may write", func() bool { return nodes[1].mayWrite("t0") && nodes[1].mayWrite("t9") })
	if most.Load() > 1 {
		t.Error("two nodes took writes at once")
	}
	if !nodes[1].was("promote 10") {
		t.Errorf("n2 was told %v, want one promotion", nodes[1].told)
	}
	p, _ := s.group.State().Placed("t0")
	if epoch := nodes[1].promoted["t0"]; epoch != fmt.Sprint(p.Epoch) {
		t.Errorf("promoted at epoch %s, want that of the entry, %d", epoch, p.Epoch)
	}
	if r := s.ask("GET", "/_shard/nodes/n1", ""); r.body["state"] != "lost" || r.body["lease_left_ms"] != 0.0 {
		t.Errorf("n1 is %s", r.text)
	}
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, `domicile_failovers_total{outcome="done"} 1`) ||
		!strings.Contains(text, `domicile_unreplicated_units 10`) || !strings.Contains(text, `domicile_failover_duration_seconds_count 1`) {
		t.Errorf("metrics:\n%s", text)
	}
	nodes[0].set(func() { nodes[0].boot = "n1-2"; nodes[0].epoch = "" }) // it was restarted
	nodes[0].cut.Store(false)
	s.copiesAre("t9", "n2", "n1:in_sync")
	s.copiesAre("t0", "n2", "n1:in_sync")
	if r := s.ask("GET", "/_shard/nodes/n1", ""); r.body["state"] != "up" || r.body["replicas"] != 10.0 {
		t.Errorf("n1 is %s", r.text)
	}
	if most.Load() > 1 {
		t.Error("two nodes took writes at once")
	}
	for _, line := range []string{"a node's lease has lapsed: node=n1", "a node was failed over: node=n1 units=10 left=0",
		"units were promoted: node=n2", "a lost node is back: node=n1"} {
		if n := strings.Count(s.log.String(), line); n != 1 {
			t.Errorf("the log tells %q %d times", line, n)
		}
	}
}

// TestL5AnUnleasedNodeIsNeverFailedOverByItself cuts one off, beside one that is
// leased and fails over meanwhile.
func TestL5AnUnleasedNodeIsNeverFailedOverByItself(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b", "n3/c")
	nodes[0].set(func() { nodes[0].leased = false })
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	nodes[0].cut.Store(true)
	nodes[2].cut.Store(true)
	s.until("has failed n3 over", func() bool { n, _ := s.group.State().Node("n3"); return n.Lost })
	if p, _ := s.group.State().Placed("t0"); p.Node != "n1" {
		t.Errorf("t0 is on %s", p.Node)
	}
	// L6: by hand, with force alone.
	s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 409, fsm.CodeNodeUnleased)
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 200, "")
	if r.text != `{"node":"n1","promoted":[{"tenant":"t0","to":"n2"}],"failed":[],"unreplicated":["t0"]}`+"\n" {
		t.Errorf("answer %s\n%s\n%s", r.text, s.directory(), s.log.String())
	}
}

// TestL6AFailoverByHandOfANodeThatAnswersReleasesFirst: the units change nodes
// without the node's lease having to run out, and it keeps their copies.
func TestL6AFailoverByHandOfANodeThatAnswersReleasesFirst(t *testing.T) {
	s, nodes := startLeased(t, 6000, 1, true, "n1/a", "n2/b")
	s.create(20, "n1")
	for i := range 20 {
		s.copiesAre(fsm.UnitName(fmt.Sprint("t", i)), "n1", "n2:in_sync")
	}
	most := writers(t, "t0", nodes)
	began := time.Now()
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", "", "Idempotency-Key", "k"), 200, "")
	t.Logf("a failover of 20 tenants took %v", time.Since(began))
	promoted, _ := r.body["promoted"].([]any)
	if len(promoted) != 20 || fmt.Sprint(r.body["failed"]) != "[]" || fmt.Sprint(r.body["unreplicated"]) != "[]" {
		t.Errorf("answer %s", r.text)
	}
	if !nodes[1].mayWrite("t0") || most.Load() > 1 {
		t.Errorf("n2 may write: %v; at most %d nodes did", nodes[1].mayWrite("t0"), most.Load())
	}
	if !nodes[0].was("handover 20") || !nodes[1].was("promote 20") {
		t.Errorf("n1 was told %v, n2 %v", nodes[0].told, nodes[1].told)
	}
	s.copiesAre("t0", "n2", "n1:in_sync")
	for _, n := range nodes { // its call to hand over, and those to follow and to be promoted, have an order (I5)
		last := uint64(0)
		for _, text := range n.calledBy() {
			number, err := strconv.ParseUint(text, 10, 64)
			if err != nil || number <= last {
				t.Errorf("%s was called by number %q after %d", n.name, text, last)
			}
			last = number
		}
	}
	again := s.want(s.ask("POST", "/_shard/nodes/n1/failover", "", "Idempotency-Key", "k"), 200, "")
	if again.text != r.text {
		t.Errorf("again it answers %s, want %s", again.text, r.text)
	}
	s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 409, fsm.CodeNoCopy)
	s.want(s.ask("POST", "/_shard/nodes/n9/failover", ""), 404, fsm.CodeNodeUnknown)
}

// TestL6AFailoverByHandWaitsForTheLeaseOfASilentNode asks while the node is cut
// off: nobody else writes before it has stopped.
func TestL6AFailoverByHandWaitsForTheLeaseOfASilentNode(t *testing.T) {
	s, nodes := startLeased(t, 900, 1, true, "n1/a", "n2/b")
	s.create(2, "n1")
	s.want(s.ask("PUT", "/_shard/tenants/copied", `{"node":"n2"}`), 201, "")
	for _, u := range []fsm.UnitName{"t0", "t1"} {
		s.copiesAre(u, "n1", "n2:in_sync")
	}
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 200, "")
	want := `{"node":"n1","promoted":[{"tenant":"t0","to":"n2"},{"tenant":"t1","to":"n2"}],"failed":[],"unreplicated":["copied","t0","t1"]}` + "\n"
	if r.text != want {
		t.Errorf("answer %s, want %s", r.text, want)
	}
	if !nodes[1].mayWrite("t0") || most.Load() > 1 {
		t.Errorf("n2 may write: %v; at most %d nodes did", nodes[1].mayWrite("t0"), most.Load())
	}
}

// TestL6WhatCannotBeFailedOverIsTold: a unit without a copy in sync stays, and
// the copy that lags is promoted by force alone, once its primary is silent.
func TestL6WhatCannotBeFailedOverIsTold(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	nodes[1].set(func() { nodes[1].lagging["t0"] = true })
	s.create(2, "n1")
	s.copiesAre("t1", "n1", "n2:in_sync")
	s.copiesAre("t0", "n1", "n2:syncing")
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 502, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t1","to":"n2"}]`) || !strings.Contains(r.text, `"failed":[{"tenant":"t0","why":"it has no copy in sync`) {
		t.Errorf("answer %s", r.text)
	}
	nodes[0].cut.Store(true)
	s.until("has failed n1 over", func() bool { n, _ := s.group.State().Node("n1"); return n.Lost })
	s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 409, fsm.CodeNoCopy)
	r = s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 200, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t0","to":"n2","not_in_sync":true,"position":"1:1"}]`) {
		t.Errorf("answer %s", r.text)
	}
}

// TestL7WhatAFailoverLostIsTold has the old primary say so when it is back.
func TestL7WhatAFailoverLostIsTold(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	nodes[0].cut.Store(true)
	s.copiesAre("t0", "n2", "n1:former")
	lost := fsmRange("1:7", "1:9")
	nodes[0].set(func() { nodes[0].lost["t0"] = &lost; nodes[0].boot = "n1-2"; nodes[0].epoch = "" })
	nodes[0].cut.Store(false)
	line := "a failover lost writes that a node had acknowledged alone; it keeps them aside: node=n1 unit=t0 from=1:7 to=1:9"
	s.until("tells what was lost", func() bool { return strings.Contains(s.log.String(), line) })
	events, _, _, _, _ := s.events.since(0)
	if !slices.ContainsFunc(events, func(e event) bool {
		return e.Event == "writes_lost" && e.Node == "n1" && e.Tenant == "t0" && e.Lost != nil && e.Lost.To == "1:9"
	}) {
		t.Errorf("no event tells of it: %+v", events)
	}
}

// TestL7WhatIsLostIsToldOnceItIsKnown: what a former primary gives up it finds when it
// follows the present one, after it was asked what it holds. Found by failing a primary
// over under --ack primary: nothing was told.
func TestL7WhatIsLostIsToldOnceItIsKnown(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	var looked atomic.Bool
	nodes[0].before("/_admin/units", func(*http.Request) { looked.Store(true) })
	nodes[0].cut.Store(true)
	s.copiesAre("t0", "n2", "n1:former")
	looked.Store(false)
	nodes[0].set(func() { nodes[0].boot = "n1-2"; nodes[0].epoch = ""; nodes[0].lagging["t0"] = true })
	nodes[0].cut.Store(false)
	s.until("looks at what n1 holds", func() bool { return looked.Load() && nodes[0].was("follow 1 of http://"+nodes[1].addr()) })
	lost := fsmRange("1:7", "1:9")
	nodes[0].set(func() { nodes[0].lost["t0"] = &lost; nodes[0].lagging["t0"] = false })
	line := "a failover lost writes that a node had acknowledged alone; it keeps them aside: node=n1 unit=t0 from=1:7 to=1:9"
	s.until("tells what was lost", func() bool { return strings.Contains(s.log.String(), line) })
	p, _ := s.group.State().Placed("t0")
	once := loops.Finding{Kind: loops.FoundLost, Node: "n1", From: "1:7", To: "1:9", Unit: fsm.UnitRef{Unit: "t0", ID: p.ID}, Files: []string{}}
	s.jobs.known.clear() // as in its next term
	if s.jobs.known.first(&once) {
		t.Error("it would be told again")
	}
}

// TestI8UnitsThatNobodyPlacesAreRemoved leaves what the directory knows nothing
// of on a node.
func TestI8UnitsThatNobodyPlacesAreRemoved(t *testing.T) {
	if testing.Short() {
		t.Skip("a unit is looked for twice, twelve seconds apart")
	}
	s, nodes := startLeased(t, 600, 1, true, "n1/a")
	s.create(1, "n1")
	nodes[0].set(func() { nodes[0].units["stray"] = 1 })
	nodes[0].cut.Store(true)
	s.until("has lost n1", func() bool { n, _ := s.group.State().Node("n1"); return n.Lost })
	nodes[0].cut.Store(false)
	waitFor(t, "the stray unit is gone", func() bool { return len(nodes[0].held()) == 1 })
	if _, ok := nodes[0].held()["t0"]; !ok {
		t.Error("the other one is gone")
	}
}

// TestL11ANodeThatStopsHandsItsUnitsOver says in its answer to a grant, or where it
// takes no lease, about copies, that it is about to stop.
func TestL11ANodeThatStopsHandsItsUnitsOver(t *testing.T) {
	for _, leased := range []bool{true, false} {
		t.Run(fmt.Sprint("leased ", leased), func(t *testing.T) { stopHandsOver(t, leased) })
	}
}

func stopHandsOver(t *testing.T, leased bool) {
	s, nodes := startLeased(t, 900, 1, leased, "n1/a", "n2/b")
	s.create(5, "n1")
	for i := range 5 {
		s.copiesAre(fsm.UnitName(fmt.Sprint("t", i)), "n1", "n2:in_sync")
	}
	nodes[0].set(func() { nodes[0].stopping = true })
	s.until("has all on n2", func() bool { p, _ := s.group.State().NodeHolds("n1"); return p == 0 })
	if !nodes[0].was("handover 5") {
		t.Errorf("n1 was told %v", nodes[0].told)
	}
}

// TestAPromisedPromotionIsAskedAgain has the copy's node hold back (clause 10).
func TestAPromisedPromotionIsAskedAgain(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	nodes[1].set(func() { nodes[1].promised = 400 })
	nodes[0].cut.Store(true)
	s.copiesAre("t0", "n2", "n1:former")
	if n := strings.Count(fmt.Sprint(nodes[1].told), "promote 1"); n != 2 {
		t.Errorf("n2 was asked to promote %d times, want twice: %v", n, nodes[1].told)
	}
}

// TestC7TheCopyThatIsFurthestAheadIsPromoted keeps two copies of each unit.
func TestC7TheCopyThatIsFurthestAheadIsPromoted(t *testing.T) {
	s, nodes := startLeased(t, 600, 2, true, "n1/a", "n2/b", "n3/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync", "n3:in_sync")
	nodes[2].set(func() { nodes[2].position = "1:9" })
	nodes[0].cut.Store(true)
	s.copiesAre("t0", "n3", "n1:former", "n2:in_sync")
	waitFor(t, "the other copy follows the new primary", func() bool { return nodes[1].was("follow 1 of http://" + nodes[2].addr()) })
}

// TestL4TheNextLeaderFinishesAFailover kills the leader right after the entry,
// and before the promotion is confirmed.
func TestL4TheNextLeaderFinishesAFailover(t *testing.T) {
	for _, at := range []string{"before the promotion", "before it is confirmed"} {
		t.Run(at, func(t *testing.T) { leaderDiesInAFailover(t, at) })
	}
}

func leaderDiesInAFailover(t *testing.T, at string) {
	g := startGroup(t, 3, func(c *Config) { failover(c); leasing(1500, 1)(c) })
	leader := g.leader()
	nodes := newFakeNodes(t, true, "n1", "n2")
	leader.addNode(nodes[0], "eu", "a")
	leader.addNode(nodes[1], "eu", "b")
	leader.create(3, "n1")
	for i := range 3 {
		leader.copiesAre(fsm.UnitName(fmt.Sprint("t", i)), "n1", "n2:in_sync")
	}
	c := &crash{killed: make(chan struct{})}
	if at == "before it is confirmed" {
		for _, s := range g.servers { // another may lead by then
			s.interrupted(func(cmd fsm.Command) {
				if _, ok := cmd.(*fsm.ConfirmPromotion); ok {
					c.kill(s)
				}
			})
		}
	} else {
		nodes[1].before("/_admin/promote", func(*http.Request) { c.kill(leader) })
	}
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	c.await(t)
	next := g.leader()
	next.copiesAre("t2", "n2", "n1:former")
	waitFor(t, "n2 may write", func() bool { return nodes[1].mayWrite("t0") })
	if most.Load() > 1 {
		t.Error("two nodes took writes at once")
	}
}

// TestL6ForceShortensNoLeaseThatStillRuns: that nodes are not leased any more says
// nothing of the lease that a node was granted before and holds still.
func TestL6ForceShortensNoLeaseThatStillRuns(t *testing.T) {
	s, nodes := startLeased(t, 1500, 1, true, "n1/a", "n2/b")
	s.create(1, "n1")
	s.copiesAre("t0", "n1", "n2:in_sync")
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	s.want(s.ask("PUT", "/_shard/settings", `{"auto_failover_ms":0,"force":true}`), 200, "")
	if !nodes[0].mayWrite("t0") {
		t.Fatal("n1 holds no lease: nothing is shown")
	}
	s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 409, fsm.CodeNodeUnleased)
	r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 200, "")
	if !strings.Contains(r.text, `"promoted":[{"tenant":"t0","to":"n2"}]`) {
		t.Errorf("answer %s", r.text)
	}
	if nodes[0].mayWrite("t0") || most.Load() > 1 {
		t.Errorf("n1 may write: %v; at most %d nodes did", nodes[0].mayWrite("t0"), most.Load())
	}
}

// TestL5AFormerPrimaryIsChosenWhereItsCopyLostTheUnit: the copy comes back empty while the
// primary is away and is given the units; the former primary, back, is given them again
// (architecture §3.7.6). What failed is told, and counted, once.
func TestL5AFormerPrimaryIsChosenWhereItsCopyLostTheUnit(t *testing.T) {
	s, nodes := startLeased(t, 600, 1, true, "n1/a", "n2/b")
	s.create(3, "n1")
	for _, u := range []fsm.UnitName{"t0", "t1", "t2"} {
		s.copiesAre(u, "n1", "n2:in_sync")
	}
	most := writers(t, "t0", nodes)
	nodes[0].cut.Store(true)
	nodes[1].set(func() { clear(nodes[1].units); clear(nodes[1].follows); clear(nodes[1].from) })
	s.until("n2 was asked", func() bool { return nodes[1].was("promote 3") })
	if r := s.ask("POST", "/_shard/nodes/n2/failover", `{"force":true}`); r.status != 409 {
		t.Errorf("a failover of what nobody has: %d %s", r.status, r.text)
	}
	nodes[0].set(func() { nodes[0].boot = "n1-2"; nodes[0].epoch = ""; clear(nodes[0].list) })
	nodes[0].cut.Store(false)
	for _, u := range []fsm.UnitName{"t0", "t1", "t2"} {
		s.copiesAre(u, "n1", "n2:in_sync")
		waitFor(t, "n1 may write "+string(u), func() bool { return nodes[0].mayWrite(u) })
	}
	if most.Load() > 1 {
		t.Error("two nodes took writes at once")
	}
	for _, line := range []string{"a node does not promote units that were given to it; it is asked again, until another that may have them answers: node=n2",
		"units that their node does not promote go to another: node=n2 units=3"} {
		if n := strings.Count(s.log.String(), line); n != 1 {
			t.Errorf("the log tells %q %d times", line, n)
		}
	}
	if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, "domicile_promotions_failed_total 3\n") {
		t.Errorf("metrics:\n%s", text)
	}
}
