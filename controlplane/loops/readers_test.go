package loops

import (
	"fmt"
	"slices"
	"testing"

	"domicile/fsm"
)

func (s *copySim) region(n fsm.NodeName) fsm.RegionName {
	node, _ := s.state.Node(n)
	return node.Region
}

var farNames = []fsm.NodeName{"m1", "m2"}

// newFarSim is a copySim with two nodes of another region, where no tenant lives.
func newFarSim(t *testing.T, seed uint64) *copySim {
	s := newSim(t, seed, slices.Concat(simNames, farNames))
	s.names = simNames
	return s
}

// actFar is what happens to read replicas.
func (s *copySim) actFar() {
	name := fsm.TenantName(fmt.Sprint("t", s.r.IntN(4)))
	node := farNames[s.r.IntN(len(farNames))]
	switch s.r.IntN(8) {
	case 0, 1:
		s.apply(0, &fsm.SetReader{Tenant: name, Region: "us", Wanted: s.r.IntN(3) > 0})
	case 2:
		s.nodes[node].silent = s.r.IntN(3) == 0
	case 3:
		s.apply(0, &fsm.SetDrain{Node: node, Drain: s.r.IntN(3) == 0, Forced: true})
	default:
		s.renew(node)
	}
}

// followed checks that each copy is told what it is for.
func (s *copySim) followed() {
	for _, f := range s.calls {
		if f.Work != FollowUnits || f.sent != s.now {
			continue
		}
		for _, i := range f.Units {
			u, _ := s.state.Placed(i.Unit)
			far := s.region(f.Target.Node) == "us"
			if u != nil && u.ID == i.ID && (i.Kind == fsm.CopyReader) != far {
				s.t.Errorf("%s is told to follow %s as %q", f.Target.Node, i.Unit, i.Kind)
			}
		}
	}
}

// settleFar lets nothing fail any more, and gives the calls to follow of the last rounds.
func (s *copySim) settleFar(rounds int) (told int) {
	for round := range rounds {
		for name, n := range s.nodes {
			n.silent = false
			s.sync(name)
			s.renew(name)
		}
		s.round()
		s.followed()
		for len(s.calls) > 0 {
			if round > rounds/2 && s.calls[0].Work == FollowUnits {
				told++
			}
			s.turn()
		}
		s.now += 300
	}
	return told
}

// endedFar compares the directory with what was asked for, and each node with it.
func (s *copySim) endedFar() {
	for name, p := range s.state.Placements() {
		at := map[fsm.RegionName]int{}
		for _, c := range p.Copies {
			at[s.region(c.Node)]++
			if h := s.nodes[c.Node].units[p.Unit]; h.id != p.ID || h.from != p.Node {
				s.t.Errorf("%s holds %+v of %+v", c.Node, h, p)
			}
			if far := s.region(c.Node) == "us"; (c.State == fsm.CopyReader) != far || !far && c.State != fsm.CopyInSync {
				s.t.Errorf("%s ended as %+v", name.Name, p)
			}
		}
		if at["eu"] != s.state.CopiesWanted(p) || at["us"] != len(name.Readers) || s.region(p.Node) != "eu" || !p.Promoted() {
			s.t.Errorf("%s ended as %+v, read in %v", name.Name, p, name.Readers)
		}
	}
	for n := range s.nodes {
		for u, h := range s.nodes[n].units {
			if p, ok := s.state.Placed(u); !ok || p.ID != h.id || p.Node != n && !slices.ContainsFunc(p.Copies, func(c fsm.Copy) bool { return c.Node == n }) {
				s.t.Errorf("%s holds %s, which is %+v", n, u, p)
			}
		}
	}
}

// TestC8WhateverNodesDoReadersEndWhereTheyWereAskedFor: and nowhere else, and nobody is
// told again and again of what goes well.
func TestC8WhateverNodesDoReadersEndWhereTheyWereAskedFor(t *testing.T) {
	for seed := range uint64(60) {
		s := newFarSim(t, seed)
		for range 250 {
			s.act()
			s.actFar()
			s.followed()
		}
		for _, n := range farNames {
			s.apply(0, &fsm.SetDrain{Node: n})
		}
		s.settleFar(1300) // what a late call has left behind is found with the next look
		if told := s.settleFar(200); told > 0 {
			t.Errorf("%d calls to follow when nothing was to be done", told)
		}
		s.endedFar()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// readFar makes a tenant on n1 that is read in us, and lets it settle.
func readFar(t *testing.T) *copySim {
	s := newFarSim(t, 1)
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	n1 := fsm.NodeName("n1")
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &n1})
	s.apply(0, &fsm.SetReader{Tenant: "a", Region: "us", Wanted: true})
	s.m.ChangedAll()
	s.settleFar(20)
	if got := s.reader(); got != "m1" {
		t.Fatalf("read on %q", got)
	}
	return s
}

// reader names the node of the read replica, or "".
func (s *copySim) reader() fsm.NodeName {
	u, _ := s.state.Placed("a")
	for _, c := range u.Copies {
		if c.State == fsm.CopyReader {
			return c.Node
		}
	}
	return ""
}

// steps goes on for some time, with m1 silent or not.
func (s *copySim) steps(d fsm.Millis) {
	for end := s.now + d; s.now < end; s.now += 100 {
		for name := range s.nodes {
			s.renew(name)
		}
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
	}
}

func TestC8AReaderOnALostNodeIsReplacedAfterTheGrace(t *testing.T) {
	s := readFar(t)
	s.nodes["m1"].silent = true
	s.steps(simLease + simRepair/2)
	if n, _ := s.state.Node("m1"); !n.Lost || s.reader() != "m1" {
		t.Fatalf("lost %v, read on %q", n.Lost, s.reader())
	}
	s.nodes["m1"].silent = false
	s.steps(2 * simRepair)
	if got := s.reader(); got != "m1" {
		t.Fatalf("it came back in time, and is read on %q", got)
	}
	s.nodes["m1"].silent = true
	s.steps(simLease + 2*simRepair)
	if got := s.reader(); got != "m2" {
		t.Fatalf("read on %q", got)
	}
	s.nodes["m1"].silent = false
	s.settleFar(100)
	s.endedFar()
	if len(s.nodes["m1"].units) > 0 {
		t.Errorf("m1 still holds %v", s.nodes["m1"].units)
	}
}

func TestC8AReaderLeavesADrainedNodeAtOnce(t *testing.T) {
	s := readFar(t)
	_, events := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Cmd: &fsm.SetDrain{Node: "m1", Drain: true, Forced: true}})
	s.tell(events)
	s.m.ChangedAll()
	s.steps(100)
	if got := s.reader(); got != "m2" {
		t.Fatalf("read on %q", got)
	}
	s.steps(2 * simRemove)
	if len(s.nodes["m1"].units) > 0 {
		t.Errorf("m1 still holds %v", s.nodes["m1"].units)
	}
}

// TestC8I2NothingIsLeftOfAReaderThatIsNotWanted: also where the unit has no copy of its
// own that is in sync.
func TestC8I2NothingIsLeftOfAReaderThatIsNotWanted(t *testing.T) {
	s := readFar(t)
	for _, n := range simNames[1:] {
		s.nodes[n].silent = true
	}
	s.steps(2 * simLease)
	_, events := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Cmd: &fsm.SetReader{Tenant: "a", Region: "us"}})
	s.tell(events)
	s.steps(simRemove - 200)
	if len(s.nodes["m1"].units) != 1 {
		t.Error("it was removed before the grace was over")
	}
	s.steps(500)
	u, _ := s.state.Placed("a")
	if len(s.nodes["m1"].units) > 0 || s.reader() != "" || len(inSync(u)) > 0 || slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == "m1" }) {
		t.Errorf("m1 holds %v, the directory says %+v", s.nodes["m1"].units, u)
	}
}

// TestC8AReaderIsToldOnce: then seldom, whoever reports of it.
func TestC8AReaderIsToldOnce(t *testing.T) {
	s := readFar(t)
	if told := s.settleFar(int(TellReaderAgain) / 300 * 9 / 10); told > 0 {
		t.Errorf("told %d times", told)
	}
	if told := s.settleFar(3 * int(TellReaderAgain) / 300); told == 0 || told > 2 {
		t.Errorf("told %d times", told)
	}
}

// TestC8AReaderWaitsForANodeThatIsSilent: it is placed as soon as one answers.
func TestC8AReaderWaitsForANodeThatIsSilent(t *testing.T) {
	s := newFarSim(t, 1)
	n1 := fsm.NodeName("n1")
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &n1})
	s.settleFar(20)
	for _, n := range farNames {
		s.nodes[n].silent = true
	}
	s.steps(200)
	_, events := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Cmd: &fsm.SetReader{Tenant: "a", Region: "us", Wanted: true, Silent: farNames}})
	s.tell(events)
	s.steps(200)
	if got := s.reader(); got != "" {
		t.Fatalf("read on %q", got)
	}
	s.nodes["m2"].silent = false
	s.steps(300)
	if got := s.reader(); got != "m2" {
		t.Fatalf("read on %q", got)
	}
}
