package loops

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

const (
	simLease  fsm.Millis = 1000
	simRepair fsm.Millis = 2000
	simRemove fsm.Millis = 1500
)

// copySim is a directory with leased nodes that fall silent and come back, and
// leaders that come and go, against a model of the nodes.
type copySim struct {
	*world
	r     *rand.Rand
	nodes map[fsm.NodeName]*simNode
	names []fsm.NodeName
	all   []fsm.NodeName // those of other directories, too
	calls []flight
	late  []flight                   // whose answers were given up: they may still arrive
	told  map[fsm.NodeName]*NodeNews // in the last round
	sent  uint64                     // calls, numbered
	acked map[fsm.UnitID]int         // writes that were acknowledged
	moves bool                       // there are moves, drains and rebalances, and entries are lost
	// healing is how many rounds it takes until nothing is left of what went wrong.
	healing int
	quiet   bool               // nothing goes wrong any more
	ready   map[fsm.JobID]bool // moves that were let begin to copy, of which the limit was checked
}

// simNode is a node, and what the keeper of leases knows of it.
type simNode struct {
	units   map[fsm.UnitName]simUnit
	heard   uint64
	silent  bool
	resumed fsm.Millis // lapses count from here, or from the last answer
	news    NodeNews
	// What the node itself knows: until when it may write which units, with which
	// copies, and the newest call that each unit was told.
	until   fsm.Millis
	grants  map[fsm.UnitID]simGrant
	heardOf map[fsm.UnitID]uint64
	stuck   bool // nothing that follows here catches up
}

// simGrant names the copies that a unit's writes wait for.
type simGrant struct {
	epoch  uint64
	counts []fsm.NodeName
}

type simUnit struct {
	id     fsm.UnitID
	from   fsm.NodeName // "": primary
	synced bool
	given  bool // given up: it writes no more
	epoch  uint64
	pos    int // writes that it has
}

var simNames = []fsm.NodeName{"n1", "n2", "n3", "n4"}

func newCopySim(t *testing.T, seed uint64) *copySim { return newSim(t, seed, simNames) }

func newSim(t *testing.T, seed uint64, names []fsm.NodeName) *copySim {
	return newSimOf(newWorld(t), seed, names)
}

func newSimOf(w *world, seed uint64, names []fsm.NodeName) *copySim {
	s := &copySim{world: w, r: rand.New(rand.NewPCG(seed, 2)), nodes: map[fsm.NodeName]*simNode{}, names: names, all: names,
		acked: map[fsm.UnitID]int{}, ready: map[fsm.JobID]bool{}}
	s.apply(0, &fsm.PutMember{Member: fsm.Member{ID: "c1", Raft: "127.0.0.1:9", API: "http://127.0.0.1:8", Version: fsm.Version}})
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: uint32(s.r.IntN(3)), AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	for i, n := range names {
		addr, token, zone := "127.0.0.1:"+fmt.Sprint(i+1), "t", fsm.ZoneName([]string{"a", "b"}[i%2])
		region := simRegion(n)
		s.apply(0, &fsm.PutNode{Name: n, Addr: &addr, Token: &token, Zone: &zone, Region: &region})
		s.apply(0, &fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
		s.nodes[n] = &simNode{units: map[fsm.UnitName]simUnit{}, grants: map[fsm.UnitID]simGrant{}, heardOf: map[fsm.UnitID]uint64{}}
	}
	s.lead()
	return s
}

// simRegion: nodes m1, m2 … are in another region than n1, n2 …, and k1, k2 … in a third.
func simRegion(n fsm.NodeName) fsm.RegionName {
	switch n[0] {
	case 'm':
		return "us"
	case 'k':
		return "tr"
	}
	return "eu"
}

// lead is a new leader, which knows nothing of the nodes and counts each as
// granted now.
func (s *copySim) lead() {
	s.newTerm()
	for i := range s.calls {
		s.calls[i].answered = true
	}
	for name, n := range s.nodes {
		if _, own := s.state.Node(name); own {
			n.resumed, n.news = s.now, NodeNews{}
		}
	}
}

// renew has the keeper hear a node, or miss it.
func (s *copySim) renew(name fsm.NodeName) {
	n := s.nodes[name]
	if n.news.Lapsed {
		return // nothing is sent to it
	}
	if n.silent || n.heard > s.term {
		n.news.Silent = true
		n.news.Lapsed = s.now > n.resumed+simLease+simLease/10
		return
	}
	n.heard, n.resumed, n.until = s.term, s.now, s.now+simLease
	s.grant(name)
	n.news = NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision(name), Lagging: map[fsm.UnitName][]string{}}
	for u := range s.state.HeldBy(name) {
		if u.Node != name || !u.Promoted() {
			continue
		}
		for _, c := range u.Copies {
			h := s.nodes[c.Node].units[u.Unit]
			if node, _ := s.state.Node(c.Node); c.State.Listed() && (h.id != u.ID || h.from != name || !h.synced || s.nodes[c.Node].silent) {
				n.news.Lagging[u.Unit] = append(n.news.Lagging[u.Unit], "http://"+node.Addr)
			}
		}
	}
}

func (s *copySim) round() Plan {
	news := &News{Nodes: map[fsm.NodeName]*NodeNews{}}
	for name, n := range s.nodes {
		if _, own := s.state.Node(name); own {
			told := n.news
			news.Nodes[name] = &told
		}
	}
	news.Fresh = !reflect.DeepEqual(news.Nodes, s.told) // as the executor has it
	s.told = news.Nodes
	p := Next(s.state.Snapshot(), s.m, news, s.now)
	for _, a := range p.Calls {
		s.check(a)
		s.m.Begin(a)
		s.sent++
		f := flight{Action: a, term: s.term, sent: s.now, number: s.sent}
		if j, ok := s.state.Job(a.Job); ok && j.Kind == fsm.JobReceive && a.Verb == FollowUnits {
			f.foreign = j.Other.Node
		}
		s.calls = append(s.calls, f)
	}
	for _, c := range p.Proposals {
		s.m.Propose(c)
		if f, ok := c.Cmd.(*fsm.FailOver); ok && f.Cause == fsm.CauseLapsed && !s.nodes[f.Node].news.Lapsed {
			s.t.Errorf("%s is failed over and has not lapsed", f.Node)
		}
		if !s.record(c) {
			continue
		}
		if f, ok := c.Cmd.(*fsm.FailOver); ok && f.Cause == fsm.CauseLapsed {
			s.resume(f.Node)
		}
	}
	for _, n := range p.Resume {
		s.resume(n.Node)
	}
	s.m.Forget(s.state, s.now)
	if err := fsm.Check(s.state); err != nil {
		s.t.Errorf("the directory: %v", err)
	}
	return p
}

func (s *copySim) next() fsm.Revision { s.rev++; return s.rev }

func (s *copySim) resume(n fsm.NodeName) {
	s.nodes[n].news.Lapsed, s.nodes[n].resumed = false, s.now
}

func (s *copySim) tell(events []fsm.Event) {
	for _, e := range events {
		if e.Unit != nil {
			s.m.Changed(e.Unit.Unit)
		}
		if e.Node != nil {
			s.m.ChangedAll()
		}
	}
}

// check holds what is asked of nodes against the directory: nothing is removed
// before architecture §3.7.6 allows it, and nothing is promoted or followed that
// no entry asks for.
func (s *copySim) check(a Action) {
	at := a.Target.Node
	switch {
	case a.Work == RemoveUnit:
		u, ok := s.state.Placed(a.Target.Unit)
		if !ok || u.ID != a.Target.ID {
			return
		}
		i := slices.IndexFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == at })
		if u.Node == at || i >= 0 && (u.Copies[i].State != fsm.CopyLeaving || !u.Promoted() || s.now < u.Copies[i].Since+simRemove ||
			s.state.CopiesWanted(u) > 0 && len(inSync(u)) == 0 && s.region(u.Node) == s.region(at)) {
			s.t.Errorf("%s is removed from %s: %+v at %d", u.Unit, at, u, s.now)
		}
	case a.Work == FollowUnits && a.Job != 0:
		j, _ := s.state.Job(a.Job)
		u, ok := s.state.Placed(a.Target.Unit)
		if !ok || j.Kind != fsm.JobReceive || u.ID != a.Target.ID || u.State != fsm.UnitReceiving || u.Node != at && !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == at }) {
			s.t.Errorf("%s is asked to follow another directory's node for %+v, which is %+v", at, *j, u)
		}
	case a.Work == PromoteUnits, a.Work == FollowUnits:
		for _, i := range a.Units {
			u, ok := s.state.Placed(i.Unit)
			good := ok && u.ID == i.ID && u.Epoch == i.Epoch
			if a.Work == PromoteUnits {
				good = good && u.Node == at && !u.Promoted() && a.Epoch == u.Epoch
			} else {
				good = good && u.Node == a.Source && slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == at && c.State.Follows() })
			}
			if !good {
				s.t.Errorf("%s is asked of %s for %+v, which is %+v", a.Work, at, i, u)
			}
		}
	}
}

// serve is what a node does with a call that has reached it.
func (s *copySim) serve(f flight) Answer {
	n := s.nodes[f.Target.Node]
	if f.term < n.heard {
		return fenced
	}
	n.heard = f.term
	answer := Answer{Outcome: Done, Failed: map[fsm.UnitName]Failure{}}
	if !s.newest(n, &f, answer.Failed) {
		return refused
	}
	switch f.Verb {
	case MakeUnit:
		if h, ok := n.units[f.Target.Unit]; ok && h.id != f.Target.ID {
			return refused
		}
		n.units[f.Target.Unit] = simUnit{id: f.Target.ID, epoch: 1}
	case RemoveUnit, RemoveCopy:
		if n.units[f.Target.Unit].id != f.Target.ID {
			return absent
		}
		delete(n.units, f.Target.Unit)
	case FollowUnits:
		for _, i := range f.Units {
			s.follow(n, i, max(f.Source, f.foreign))
		}
	case PromoteUnits:
		for _, i := range f.Units {
			h, ok := n.units[i.Unit]
			if !ok || h.id != i.ID {
				answer.Failed[i.Unit] = Failure{Why: "not here", Absent: true}
				continue
			}
			if s.r.IntN(8) == 0 {
				answer.Failed[i.Unit] = Failure{Why: "not now", Left: fsm.Millis(max(s.r.IntN(700)-200, 0))}
				continue
			}
			s.promote(f.Target.Node, h, i, f.Epoch)
		}
	case HandOverUnits:
		for _, i := range f.Units {
			if why := s.giveUp(f.Target.Node, i); why != nil {
				answer.Failed[i.Unit] = *why
			}
		}
	case ThawUnits:
		for _, i := range f.Units {
			if h, ok := n.units[i.Unit]; ok && h.id == i.ID && h.from == "" {
				h.given = false
				n.units[i.Unit] = h
			}
		}
	case LookAtMove:
		if h, ok := n.units[f.Target.Unit]; ok && h.id == f.Target.ID {
			from := s.nodes[h.from]
			answer.Image = &Image{Held: uint64(h.pos) + 1, Follows: h.from != "" && h.synced && !from.silent}
			if n.stuck && s.r.IntN(2) == 0 {
				answer.Image.Problem = "the disk is full"
			}
		}
	case LookAtUnits:
		answer.Held = []Held{}
		for u, h := range n.units {
			answer.Held = append(answer.Held, Held{UnitRef: fsm.UnitRef{Unit: u, ID: h.id}, Seq: 1})
		}
	}
	return answer
}

// turn lets one call go on; a silent node's is lost, before or after it was
// done.
func (s *copySim) turn() {
	if len(s.calls) == 0 {
		return
	}
	i := s.r.IntN(len(s.calls))
	f := s.calls[i]
	s.calls = slices.Delete(s.calls, i, i+1)
	n := s.nodes[f.Target.Node]
	answer := silent
	switch {
	case !n.silent:
		answer = s.serve(f)
	case s.moves && s.r.IntN(2) == 0:
		s.serve(f) // its answer is lost
	case s.moves && s.r.IntN(2) == 0:
		s.late = append(s.late, f)
	}
	if !f.answered {
		s.m.End(f.Call, answer, s.now)
	}
}

func (s *copySim) act() {
	name := fsm.TenantName(fmt.Sprint("t", s.r.IntN(4)))
	node := s.names[s.r.IntN(len(s.names))]
	s.write()
	switch s.r.IntN(14) {
	case 0:
		s.apply(0, &fsm.CreateTenant{Name: name, Node: &node})
	case 1:
		if s.r.IntN(6) == 0 {
			s.apply(0, &fsm.DeleteTenant{Name: name})
		}
	case 2:
		s.nodes[node].silent = s.r.IntN(3) == 0
	case 3:
		if s.r.IntN(5) == 0 {
			s.lead()
		}
	case 4:
		s.nodes[node].news.Stopping = s.r.IntN(4) == 0
	case 5, 6:
		s.now += fsm.Millis(s.r.IntN(700))
	case 7, 8:
		s.renew(node)
	case 9:
		s.sync(node)
	default:
		s.turn()
	}
	s.m.ChangedAll() // commands of clients: their events are not told here
	s.round()
}

// settle has every node answer until nothing is left to do, for longer than it
// takes to find what a late call has left behind.
func (s *copySim) settle() { s.rounds(1200) }

func (s *copySim) rounds(n int) {
	for range n {
		for _, name := range s.names {
			s.nodes[name].silent = false
			s.sync(name)
			s.renew(name)
		}
		s.write()
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
		s.now += 300
	}
	s.round()
}

// ended compares each node with the directory, and the directory with what was
// asked for.
func (s *copySim) ended() {
	for range s.state.RunningJobs() {
		s.t.Error("a job does not end")
	}
	want, have := map[fsm.NodeName][]string{}, map[fsm.NodeName][]string{}
	for u := range s.state.Placements() {
		p, _ := s.state.Placed(fsm.UnitName(u.Name))
		if p == nil || !p.Promoted() || p.Lacks != 0 || len(p.Copies) != s.state.CopiesWanted(p) || len(inSync(p)) != len(p.Copies) {
			s.t.Errorf("%s ended as %+v", u.Name, p)
			continue
		}
		want[p.Node] = append(want[p.Node], fmt.Sprint(p.Unit, p.ID, " primary"))
		for _, c := range p.Copies {
			want[c.Node] = append(want[c.Node], fmt.Sprint(p.Unit, p.ID, " of ", p.Node))
		}
	}
	for name, n := range s.nodes {
		for u, h := range n.units {
			what := " primary"
			if h.from != "" {
				what = " of " + string(h.from)
			}
			have[name] = append(have[name], fmt.Sprint(u, h.id, what))
		}
		if node, _ := s.state.Node(name); node.Lost {
			s.t.Errorf("%s is still lost", name)
		}
		slices.Sort(have[name])
		slices.Sort(want[name])
		if strings.Join(have[name], ",") != strings.Join(want[name], ",") {
			s.t.Errorf("%s holds %v, the directory says %v", name, have[name], want[name])
		}
	}
}

// TestC6L5I8WhateverNodesDoUnitsEndWhereTheDirectorySays lets nodes fall silent,
// lose calls, lag and stop, under leaders that come and go.
func TestC6L5I8WhateverNodesDoUnitsEndWhereTheDirectorySays(t *testing.T) {
	for seed := range uint64(120) {
		s := newCopySim(t, seed)
		for range 300 {
			s.act()
		}
		s.settle()
		s.ended()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
