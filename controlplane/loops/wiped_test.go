package loops

import (
	"testing"

	"domicile/fsm"
)

// TestL11AWipedNodeWithoutLeaseTakesNoCopyOut: a node that lost its folder, and takes no
// lease that would say what it is to hold, is looked at before what it says of its copies
// counts; its units go to them. Found by hand: the intact copy was taken out of sync by
// the word of the primary that had nothing, and only force brought the tenant back.
func TestL11AWipedNodeWithoutLeaseTakesNoCopyOut(t *testing.T) {
	s, news := replicatedIn(t)
	holds := map[fsm.NodeName][]Held{}
	for _, n := range simNames {
		news[n] = &NodeNews{Lease: fsm.LeaseNone, Answered: true, Boot: "1", Following: map[fsm.UnitName][]string{}}
		s.apply(0, &fsm.SetNodeLease{Node: n, Lease: fsm.LeaseNone})
	}
	for _, n := range []fsm.NodeName{"n1", "n2", "n3"} {
		holds[n] = []Held{{UnitRef: ref(s.placed())}}
	}
	news["n1"].Following["a"] = []string{s.url("n2"), s.url("n3")}
	var begun *fsm.BeginHandover
	rounds := func() {
		for range 10 {
			if h := s.plan(news); h != nil {
				begun = h
			}
			for _, f := range s.calls {
				if f.Verb == LookAtUnits {
					s.m.End(f.Call, Answer{Outcome: Done, Held: holds[f.Target.Node]}, s.now)
				}
			}
			s.calls = nil
			s.now += 10
		}
	}
	rounds()
	if begun != nil || len(inSync(s.placed())) != 2 {
		t.Fatalf("%+v: %+v", begun, s.placed())
	}
	news["n1"] = &NodeNews{Lease: fsm.LeaseNone, Answered: true, Boot: "2", Following: map[fsm.UnitName][]string{}}
	holds["n1"] = nil
	rounds()
	if begun == nil || begun.Cause != fsm.CauseBehind || len(begun.Units) != 1 || len(inSync(s.placed())) != 2 {
		t.Errorf("%+v: %+v", begun, s.placed())
	}
}
