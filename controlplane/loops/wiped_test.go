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

// TestC6AUnitThatCameWhileItsNodeWasLookedAtIsNotMissing: an answer from before a tenant
// was made says nothing of it, and keeps its copies from nothing.
func TestC6AUnitThatCameWhileItsNodeWasLookedAtIsNotMissing(t *testing.T) {
	s, _ := replicatedIn(t)
	k, n := newNodeMemory(), &fsm.Node{Name: "n1"}
	news := &NodeNews{Lease: fsm.LeaseNone, Answered: true, Boot: "1", Following: map[fsm.UnitName][]string{}}
	p := planner{s: s.state, m: s.m, news: &News{}, now: s.now, taken: map[fsm.NodeName]int{}}
	p.lookAt(n, k, news)
	home := fsm.NodeName("n1")
	job := s.apply(0, &fsm.CreateTenant{Name: "b", Node: &home}).Job
	s.apply(s.term, &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	k.look.held = []Held{{UnitRef: ref(s.placed())}} // what it held when it was asked
	p.s = s.state
	p.lookAt(n, k, news)
	if missing := p.missing(n, &k.look); len(missing) > 0 {
		t.Errorf("%v are taken for missing", missing)
	}
}
