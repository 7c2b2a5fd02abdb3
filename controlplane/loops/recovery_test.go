package loops

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// recoverySim is a directory that is being recovered, and its nodes.
type recoverySim struct {
	t      *testing.T
	state  *fsm.State
	m      *Memory
	now    fsm.Millis
	term   uint64
	news   News
	nodes  map[fsm.NodeName]*recNode
	raised []uint64
	// regions are those that keep their own directories.
	regions map[fsm.RegionName]*recRegion
}

// recNode is a node as a recovery finds it.
type recNode struct {
	silent bool
	left   fsm.Millis // until when its lease runs
	heard  uint64     // history of a holder that it has heard; it is fenced by a greater one
	read   NodeRead
	// fencedAt is when it took the new history; finalAt when it was last read with
	// its lease over.
	fencedAt, finalAt fsm.Millis
}

func newRecoverySim(t *testing.T, nodes int, tenants ...fsm.TenantName) *recoverySim {
	s := &recoverySim{t: t, state: fsmtest.Ready(fsm.Settings{Replicas: 1, AutoFailover: 3000}), now: 10_000, term: 2, nodes: make(map[fsm.NodeName]*recNode)}
	for i := range nodes {
		name, addr, token := fsm.NodeName(fmt.Sprintf("n%d", i+1)), fmt.Sprintf("127.0.0.1:%d", 8081+i), "t"
		s.apply(&fsm.PutNode{Name: name, Addr: &addr, Token: &token})
		s.nodes[name] = &recNode{heard: 1, read: NodeRead{Leased: true}}
	}
	for _, name := range tenants {
		home := fsm.NodeName("n1")
		job := s.apply(&fsm.CreateTenant{Name: name, Node: &home}).Job
		s.apply(&fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	}
	if err := s.state.Recover(fsm.RecoverRestored, 2, fsm.Member{ID: "s1", Raft: "a:1", Version: fsm.Version}, s.now); err != nil {
		t.Fatal(err)
	}
	s.m = NewMemory(s.state.Revision())
	return s
}

func (s *recoverySim) apply(cmd fsm.Command) fsm.Result {
	s.t.Helper()
	r, _ := s.state.Apply(fsm.Entry{Revision: s.state.Revision() + 1, Term: s.term, At: s.now, Cmd: cmd})
	if r.Refusal != nil {
		s.t.Fatalf("%T: %v", cmd, r.Refusal)
	}
	if err := fsm.Check(s.state); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *recoverySim) id(tenant fsm.UnitName) fsm.UnitRef {
	p, _ := s.state.Placed(tenant)
	return fsm.UnitRef{Unit: p.Unit, ID: p.ID}
}

// holds has a node hold something of a unit.
func (s *recoverySim) holds(n fsm.NodeName, f Found) {
	s.nodes[n].read.Units = append(s.nodes[n].read.Units, f)
}

func primary(u fsm.UnitRef, epoch, seq uint64) Found {
	return Found{UnitRef: u, Epoch: epoch, Seq: seq, Usable: true, Written: true}
}

func replica(u fsm.UnitRef, epoch, seq uint64, from string) Found {
	return Found{UnitRef: u, Epoch: epoch, Seq: seq, Usable: true, Follows: true, From: from}
}

// round plans once, serves the calls and applies the proposals. While the directory is
// being recovered only nodes are read, and units are taken over only once every node was
// read for certain.
func (s *recoverySim) round() {
	s.t.Helper()
	was := s.state.Recovering()
	plan := Next(s.state.Snapshot(), s.m, &s.news, s.now)
	if !was {
		return
	}
	if len(plan.Calls)+len(plan.Regions)+len(plan.Proposals) == 0 && plan.Wake == 0 {
		s.t.Fatal("nothing is planned, and never will be")
	}
	for _, a := range plan.Calls {
		if a.Verb != ReadNode {
			s.t.Fatalf("planned to %s while recovering", a.Verb)
		}
		s.m.Begin(a)
		s.m.End(a.Call, s.serve(a), s.now)
	}
	for _, c := range plan.Regions {
		s.m.BeginRegion(c)
		s.m.EndRegion(c, s.tell(c), s.now)
	}
	for _, p := range plan.Proposals {
		s.m.Propose(p)
		if p.Raise != 0 {
			s.raised = append(s.raised, p.Raise)
			if err := s.state.Recover(fsm.RecoverRestored, p.Raise, fsm.Member{ID: "s1", Raft: "a:1", Version: fsm.Version}, s.now); err != nil {
				s.t.Fatal(err)
			}
		} else {
			s.certain(p.Cmd)
			s.apply(p.Cmd)
		}
		s.m.Proposed(p, true, s.now)
	}
	s.m.Forget(s.state, s.now)
	s.now += 50
}

func (s *recoverySim) serve(a Action) Answer {
	n, scope := s.nodes[a.Target.Node], fsm.Scope{}
	scope, _ = s.state.Scope()
	switch {
	case n.silent:
		return silent
	case n.heard > scope.History:
		f := fenced
		f.Heard = n.heard
		return f
	}
	if n.heard < scope.History {
		n.heard, n.fencedAt = scope.History, s.now
	}
	read := n.read
	if read.Left = max(0, n.left-s.now); read.Left == 0 {
		n.finalAt = s.now
	}
	return Answer{Outcome: Done, Read: &read}
}

// certain checks what must hold before a unit is taken over, or the recovery ends.
func (s *recoverySim) certain(cmd fsm.Command) {
	s.t.Helper()
	if _, ok := cmd.(*fsm.ForgoNode); ok {
		return
	}
	if !s.news.WaitedOut {
		s.t.Fatalf("%T before the longest lease was waited out", cmd)
	}
	latest := fsm.Millis(0)
	for name, n := range s.nodes {
		if !s.state.Recovery().Without(string(name)) {
			latest = max(latest, n.fencedAt)
		}
	}
	for name, n := range s.nodes {
		if !s.state.Recovery().Without(string(name)) && (n.fencedAt == 0 || n.finalAt < latest) {
			s.t.Fatalf("%T, and node %s was read at %d, fenced at %d, the last node at %d", cmd, name, n.finalAt, n.fencedAt, latest)
		}
	}
}

func (s *recoverySim) run(rounds int) {
	s.t.Helper()
	for range rounds {
		s.round()
	}
}

func (s *recoverySim) where(u fsm.UnitName) string {
	p, ok := s.state.Placed(u)
	if !ok {
		return "nowhere"
	}
	text := string(p.Node)
	for _, c := range p.Copies {
		text += " " + string(c.Node) + ":" + c.State.String()
	}
	return text
}

func (s *recoverySim) wants(ended bool, places map[fsm.UnitName]string) {
	s.t.Helper()
	if s.state.Recovering() == ended {
		v, _ := s.m.Recovery(s.state, s.now)
		s.t.Fatalf("ended: %v; %+v", !ended, v)
	}
	for u, want := range places {
		if got := s.where(u); got != want {
			s.t.Errorf("%s is on %s, want %s", u, got, want)
		}
	}
}

// TestO6NodesAreReadUntilNobodyCanWriteBehindIt: leases of before are waited out, the
// longest one that is known and each node's own, and then nodes are read again.
func TestO6NodesAreReadUntilNobodyCanWriteBehindIt(t *testing.T) {
	s := newRecoverySim(t, 3, "a", "b", "c", "d")
	for _, u := range []fsm.UnitName{"a", "b", "c"} {
		s.holds("n1", primary(s.id(u), 1, 9))
	}
	s.holds("n2", primary(s.id("a"), 50, 7))
	s.holds("n3", replica(s.id("a"), 50, 7, "http://127.0.0.1:8082"))
	s.holds("n2", replica(s.id("b"), 1, 8, "http://127.0.0.1:8081"))
	s.holds("n3", replica(s.id("c"), 1, 10, "http://127.0.0.1:8081")) // ahead: its primary has lost something
	s.nodes["n2"].left = s.now + 4000
	s.run(100)
	s.wants(false, nil)
	if v, _ := s.m.Recovery(s.state, s.now); v.Nodes[0].State != LeaseRunning {
		t.Errorf("%+v", v)
	}
	s.news.WaitedOut = true
	s.nodes["n1"].read.Units[1].Seq = 11 // it went on writing b
	s.run(40)
	s.wants(true, map[fsm.UnitName]string{
		"a": "n2 n1:former n3:former", "b": "n1 n2:former n3:syncing", "c": "n3 n1:former n2:syncing", "d": "n1 n3:syncing",
	})
	if r := s.state.Recovery(); r.Units != 4 || r.Moved != 2 || r.Lost != 1 || r.LostUnits[0].Unit != "d" {
		t.Errorf("%+v", r)
	}
}

// TestO6ASilentNodeIsWaitedForUntilItIsWrittenOff, and so is one that belongs to
// another group; a new leader begins anew.
func TestO6ASilentNodeIsWaitedForUntilItIsWrittenOff(t *testing.T) {
	s := newRecoverySim(t, 3, "a")
	s.holds("n2", replica(s.id("a"), 1, 8, "http://127.0.0.1:8081"))
	s.nodes["n1"].silent, s.news.WaitedOut = true, true
	s.run(100)
	s.wants(false, nil)
	v, _ := s.m.Recovery(s.state, s.now)
	if v.Nodes[0].State != ToBeRead || v.Nodes[0].Problem != "silent" || v.Nodes[1].State != LeaseRunning {
		t.Errorf("%+v", v)
	}
	s.m, s.term = NewMemory(s.state.Revision()), 3
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Node: "n1"})
	s.news.WaitedOut = false
	s.run(100)
	s.wants(false, nil)
	s.news.WaitedOut = true
	s.run(40)
	s.wants(true, map[fsm.UnitName]string{"a": "n2 n1:former"})
}

// TestO6ANodeThatIsNotRecordedMayHoldMore: a copy follows it.
func TestO6ANodeThatIsNotRecordedMayHoldMore(t *testing.T) {
	s := newRecoverySim(t, 2, "a")
	s.holds("n1", primary(s.id("a"), 1, 8))
	s.holds("n2", replica(s.id("a"), 60, 3, "http://127.0.0.1:9999"))
	s.news.WaitedOut = true
	s.run(60)
	s.wants(false, nil)
	if v, _ := s.m.Recovery(s.state, s.now); !strings.Contains(v.Problem, "http://127.0.0.1:9999") {
		t.Errorf("%+v", v)
	}
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Node: "http://127.0.0.1:9999"})
	s.run(60)
	s.wants(true, map[fsm.UnitName]string{"a": "n2 n1:former"})
}

// TestO6TheHistoryIsRaisedAboveOneThatANodeHasHeard, a few times.
func TestO6TheHistoryIsRaisedAboveOneThatANodeHasHeard(t *testing.T) {
	s := newRecoverySim(t, 2, "a")
	s.holds("n1", primary(s.id("a"), 1, 8))
	s.nodes["n2"].heard, s.news.WaitedOut = 6, true
	s.run(60)
	s.wants(true, map[fsm.UnitName]string{"a": "n1 n2:syncing"})
	if len(s.raised) != 1 || s.raised[0] != 7 {
		t.Errorf("raised to %v", s.raised)
	}

	s = newRecoverySim(t, 2, "a")
	s.news.WaitedOut = true
	for range 200 { // another group that is being recovered does the same
		scope, _ := s.state.Scope()
		s.nodes["n2"].heard = scope.History + 1
		s.round()
	}
	s.wants(false, nil)
	if v, _ := s.m.Recovery(s.state, s.now); len(s.raised) != maxRaised || !strings.Contains(v.Problem, "--history") {
		t.Errorf("raised to %v; %+v", s.raised, v)
	}
}

// TestO6WhichBranchIsTheNewest: by epoch, then by number; of a primary that takes no
// lease no copy is ahead for long.
func TestO6WhichBranchIsTheNewest(t *testing.T) {
	u := fsm.UnitRef{Unit: "a", ID: 2}
	damaged := primary(u, 90, 1)
	damaged.Usable, damaged.Problem = false, "bad sector"
	gave := Found{UnitRef: u, Epoch: 1, Seq: 8, Usable: true} // released, to a copy that has it all
	for i, c := range []struct {
		n1, n2    Found
		unleased1 bool
		best      fsm.NodeName
	}{
		{primary(u, 1, 8), replica(u, 1, 7, ""), false, "n1"},
		{primary(u, 1, 8), replica(u, 1, 8, ""), false, "n1"},
		{replica(u, 1, 8, ""), primary(u, 1, 8), false, "n2"},
		{primary(u, 1, 8), replica(u, 1, 9, ""), false, "n2"},
		{primary(u, 1, 8), replica(u, 1, 9, ""), true, "n1"},
		{primary(u, 1, 800), primary(u, 40, 3), false, "n2"},
		{primary(u, 1, 800), primary(u, 40, 3), true, "n2"},
		{damaged, replica(u, 1, 7, ""), false, "n2"},
		{gave, replica(u, 1, 8, ""), false, "n1"},
		{replica(u, 0, 0, ""), gave, false, "n2"},
	} {
		b := &branches{}
		s := fsm.New()
		b.add(s, &c.n1, "n1", !c.unleased1)
		b.add(s, &c.n2, "n2", true)
		if b.on != c.best || len(b.others) != 1 || b.others[0] == b.on {
			t.Errorf("%d: %s, others %v, want %s", i, b.on, b.others, c.best)
		}
	}
}

// TestO6WhateverNodesHoldTheNewestBranchIsTakenOver: nodes answer or not, in any order,
// leases run, leaders change.
func TestO6WhateverNodesHoldTheNewestBranchIsTakenOver(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		var tenants []fsm.TenantName
		for i := range 1 + r.IntN(40) {
			tenants = append(tenants, fsm.TenantName(fmt.Sprintf("t%d", i)))
		}
		s := newRecoverySim(t, 2+r.IntN(4), tenants...)
		newest := make(map[fsm.UnitName]fsm.NodeName)
		for _, name := range tenants {
			u, best := s.id(fsm.UnitName(name)), [2]uint64{}
			for n := range s.state.Nodes() {
				if r.IntN(2) == 0 {
					continue
				}
				at := [2]uint64{1 + uint64(r.IntN(3)), uint64(r.IntN(1000))}
				if at == best {
					continue
				}
				s.holds(n.Name, Found{UnitRef: u, Epoch: at[0], Seq: at[1], Usable: true, Follows: r.IntN(2) == 0})
				if at[0] > best[0] || at[0] == best[0] && at[1] > best[1] {
					best, newest[u.Unit] = at, n.Name
				}
			}
		}
		for _, n := range s.nodes {
			n.left = s.now + fsm.Millis(r.IntN(3)*r.IntN(3000))
		}
		for i := 0; i < 4000 && s.state.Recovering(); i++ {
			if r.IntN(20) == 0 {
				for _, n := range s.nodes {
					n.silent = r.IntN(3) == 0 && i < 2000
				}
			}
			if r.IntN(100) == 0 && i < 2000 {
				s.term++
				s.m, s.news.WaitedOut = NewMemory(s.state.Revision()), false
			}
			s.news.WaitedOut = s.news.WaitedOut || r.IntN(40) == 0
			s.round()
		}
		s.wants(true, nil)
		for _, name := range tenants {
			p, _ := s.state.Placed(fsm.UnitName(name))
			want := newest[p.Unit]
			if want == "" {
				want = "n1"
			}
			if p.Node != want || p.Promoted() {
				t.Errorf("seed %d: %s is on %s, promoted: %v; its newest branch is on %s", seed, name, p.Node, p.Promoted(), want)
			}
		}
		s.round() // what was learned in the recovery is forgotten, and the units are looked at
		if s.m.recovery != nil || len(s.m.units.queue)+len(s.m.units.flying) == 0 && !s.m.units.scanning && s.m.units.nextScan == 0 {
			t.Errorf("seed %d: the planners do not go on", seed)
		}
	}
}

// TestO6WhatTheDirectoryDoesNotKnowFromBeforeItsRecoveryIsKept: repair removes what was
// made since and is placed nowhere, and nothing else.
func TestO6WhatTheDirectoryDoesNotKnowFromBeforeItsRecoveryIsKept(t *testing.T) {
	s := newRecoverySim(t, 1)
	n, _ := s.state.Node("n1")
	since := s.state.Recovery().ID
	before, after := fsm.UnitRef{Unit: "a", ID: fsm.UnitID(since - 1)}, fsm.UnitRef{Unit: "b", ID: fsm.UnitID(since)}
	k := &look{}
	for range 2 {
		p := planner{s: s.state, m: s.m, now: s.now}
		k.held = []Held{{UnitRef: before}, {UnitRef: after}}
		p.compareHeld(n, k)
		s.now += ConfirmAfter
	}
	if len(k.removing) != 1 || !k.removing[after] {
		t.Errorf("removed are %v, want %v alone", k.removing, after)
	}
}
