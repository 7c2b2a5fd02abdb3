package loops

import (
	"testing"

	"domicile/fsm"
)

// replicatedIn gives a unit on n1 with copies in sync on n2 and n3, and what the nodes
// say of it.
func replicatedIn(t *testing.T) (*copySim, map[fsm.NodeName]*NodeNews) {
	s := newCopySim(t, 1)
	settings := s.state.Settings()
	settings.Replicas = 2
	s.apply(0, &fsm.SetSettings{Settings: settings})
	home, weight := fsm.NodeName("n1"), uint32(0)
	s.apply(0, &fsm.PutNode{Name: "n4", Weight: &weight})
	job := s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home}).Job
	s.apply(s.term, &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	for _, c := range s.placed().Copies {
		for from, to := c.State, fsm.CopyJoining; from != fsm.CopyInSync; from, to = to, fsm.CopyInSync {
			s.apply(s.term, &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: ref(s.placed()), Epoch: s.placed().Epoch, Node: c.Node, From: from, To: to}}})
		}
	}
	if len(inSync(s.placed())) != 2 {
		t.Fatalf("%+v", s.placed())
	}
	news := map[fsm.NodeName]*NodeNews{}
	for _, n := range simNames {
		news[n] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision(n)}
	}
	return s, news
}

func (s *copySim) placed() *fsm.Placed {
	u, _ := s.state.Placed("a")
	return u
}

func (s *copySim) url(n fsm.NodeName) string {
	node, _ := s.state.Node(n)
	return "http://" + node.Addr
}

// plan plans a round and applies what it proposes, and gives the handover that began.
func (s *copySim) plan(news map[fsm.NodeName]*NodeNews) (begun *fsm.BeginHandover) {
	s.m.ChangedAll()
	p := Next(s.state.Snapshot(), s.m, &News{Nodes: news, Fresh: true}, s.now)
	for _, a := range p.Calls {
		s.m.Begin(a)
		s.calls = append(s.calls, flight{Action: a, term: s.term, sent: s.now})
	}
	for _, c := range p.Proposals {
		s.m.Propose(c)
		r, _ := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Decided: s.term, Cmd: c.Cmd})
		s.m.Proposed(c, r.Refusal == nil, s.now)
		if h, ok := c.Cmd.(*fsm.BeginHandover); ok && r.Refusal == nil {
			begun = h
		}
	}
	return begun
}

// done has the source of a handover release everything.
func (s *copySim) done(news map[fsm.NodeName]*NodeNews) {
	for range 5 {
		s.plan(news)
		for _, f := range s.calls {
			s.m.End(f.Call, Answer{Outcome: Done}, s.now)
		}
		s.calls = nil
	}
}

// TestADamagedUnitIsGivenToItsCopyOnce: its copies, which cannot follow it any more, are
// not taken out; where the next primary is damaged too it is not given back at once.
func TestADamagedUnitIsGivenToItsCopyOnce(t *testing.T) {
	s, news := replicatedIn(t)
	news["n1"].Lagging = map[fsm.UnitName][]string{"a": {s.url("n2"), s.url("n3")}}
	news["n1"].Damaged = []fsm.UnitName{"a"}
	if begun := s.plan(news); begun == nil || begun.Cause != fsm.CauseBehind || len(inSync(s.placed())) != 2 {
		t.Fatalf("%+v: %+v", begun, s.placed())
	}
	s.done(news)
	first := s.placed()
	if first.Node == "n1" || !first.Promoted() {
		t.Fatalf("%+v", first)
	}
	news["n1"].Lagging, news["n1"].Damaged = nil, nil
	next := news[first.Node]
	next.Damaged = []fsm.UnitName{"a"}
	if begun := s.plan(news); begun != nil {
		t.Fatalf("at once it is given on: %+v", begun)
	}
	s.now += DamagedAgain
	if begun := s.plan(news); begun == nil {
		t.Errorf("it is never given on: %+v", s.placed())
	}
}

// TestTheCopyThatIsFurthestAheadTakesOver: also where it is not the first one
// (architecture §3.7.4); one that is not in sync is nothing to hand over to.
func TestTheCopyThatIsFurthestAheadTakesOver(t *testing.T) {
	for _, ahead := range []fsm.NodeName{"n2", "n3"} {
		s, news := replicatedIn(t)
		other := map[fsm.NodeName]fsm.NodeName{"n2": "n3", "n3": "n2"}[ahead]
		news["n1"].Behind = map[fsm.UnitName][]string{"a": {s.url("n4"), s.url(ahead), s.url(other)}}
		if s.plan(news) == nil {
			t.Fatalf("nothing is handed over: %+v", s.placed())
		}
		s.done(news)
		if u := s.placed(); u.Node != ahead {
			t.Errorf("%s is ahead; it went to %s", ahead, u.Node)
		}
	}
	s, news := replicatedIn(t)
	news["n1"].Behind = map[fsm.UnitName][]string{"a": {s.url("n4")}}
	if begun := s.plan(news); begun != nil {
		t.Errorf("%+v", begun)
	}
}
