package loops

import (
	"testing"

	"domicile/fsm"
)

// TestC6ANodeThatWasPassedOverIsThoughtOfWhenItAnswers: where the grace ends while the
// only node that could take a copy is silent, and not lost, the copy is placed when it
// answers, not with the next scan.
func TestC6ANodeThatWasPassedOverIsThoughtOfWhenItAnswers(t *testing.T) {
	s, news := replicatedIn(t)
	s.apply(s.term, &fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: ref(s.placed()), Epoch: s.placed().Epoch, Node: "n3", From: fsm.CopyInSync, To: fsm.CopyLeaving}}})
	news["n3"] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, Silent: true}
	s.m.ChangedAll()
	asked := 0
	next := func(fresh bool) {
		s.now += 100
		for _, c := range Next(s.state.Snapshot(), s.m, &News{Nodes: news, Fresh: fresh}, s.now).Proposals {
			if _, add := c.Cmd.(*fsm.AddCopies); add {
				asked++
			}
		}
	}
	next(true)
	for s.now < 5*simRepair {
		next(false)
	}
	if asked > 0 {
		t.Fatalf("a copy is asked for while nobody can take it: %+v", s.placed())
	}
	news["n3"] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.state.ListRevision("n3")}
	next(true)
	next(false)
	if asked == 0 {
		t.Errorf("no copy is asked for: %+v", s.placed())
	}
}
