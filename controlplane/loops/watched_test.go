package loops

import (
	"testing"

	"domicile/fsm"
)

// TestL9ACopyThatIsWellAgainBeforeItsFallIsSeenComesBack: the primary's word that a copy
// lacks nothing any more may be heard before the planner has seen the entry that took the
// copy out, and is not heard again. Found by faults at random: a copy that had everything
// stayed out of sync for good.
func TestL9ACopyThatIsWellAgainBeforeItsFallIsSeenComesBack(t *testing.T) {
	s, news := replicatedIn(t)
	s.m.ChangedAll()
	next := func(fresh bool) []Proposal {
		p := Next(s.state.Snapshot(), s.m, &News{Nodes: news, Fresh: fresh}, s.now)
		for _, c := range p.Proposals {
			s.m.Propose(c)
		}
		return p.Proposals
	}
	apply := func(c Proposal) {
		s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Decided: s.term, Cmd: c.Cmd})
	}
	next(true)
	news["n1"].Lagging = map[fsm.UnitName][]string{"a": {s.url("n2")}}
	out := next(true)
	if len(out) != 1 || out[0].Kind != MatterReport {
		t.Fatalf("%+v", out)
	}
	apply(out[0])
	// Before the executor hears that, the node has the new list, and the copy has caught up.
	news["n1"] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision("n1")}
	s.m.Proposed(out[0], true, s.now)
	for i := range 20 {
		for _, c := range next(i == 0) {
			apply(c)
			news["n1"].List = s.state.ListRevision("n1")
			s.m.Proposed(c, true, s.now)
		}
		s.now++
	}
	if len(inSync(s.placed())) != 2 {
		t.Errorf("%+v", s.placed())
	}
}
