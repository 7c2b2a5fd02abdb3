package loops

import (
	"testing"

	"domicile/fsm"
)

// TestI8ANodeIsLookedAtAfterAFollowCallThatWasNotAnswered: such a call may arrive
// when the copy has been given up, and would leave a unit behind that no entry
// places there. Found by faults at random.
func TestI8ANodeIsLookedAtAfterAFollowCallThatWasNotAnswered(t *testing.T) {
	m := NewMemory(1)
	m.node("n1").look.next = 1000 + LookEvery
	c := Call{Work: FollowUnits, Target: fsm.Target{Node: "n1"}, Source: "n2"}
	m.Begin(Action{Call: c, Verb: FollowUnits})
	m.End(c, silent, 1000)
	if got, want := m.node("n1").look.next, 1000+ConfirmAfter; got != want {
		t.Errorf("the node is looked at at %d, want %d", got, want)
	}
}
