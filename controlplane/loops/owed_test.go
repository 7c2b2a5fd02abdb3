package loops

import (
	"slices"
	"testing"

	"domicile/fsm"
)

// TestM3ACopyIsToldOfItsNewPrimaryThoughThatIsPromotedFirst: the call that tells it waits
// for another one to the same node, and the unit is promoted meanwhile. The copy counts,
// so that writes wait for it until it is taken out, a quarter of a lease later. Found by a
// hundred moves at once, in which one write took most of a second.
func TestM3ACopyIsToldOfItsNewPrimaryThoughThatIsPromotedFirst(t *testing.T) {
	s := newCopySim(t, 1)
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 2, AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	home := simNames[0]
	for _, name := range []fsm.TenantName{"a", "b"} {
		s.apply(0, &fsm.CreateTenant{Name: name, Node: &home})
	}
	s.m.ChangedAll()
	s.settle()
	a, _ := s.state.Placed("a")
	b, _ := s.state.Placed("b")
	if len(inSync(a)) != 2 || !slices.Equal(inSync(a), inSync(b)) {
		t.Fatalf("%+v, %+v", a, b)
	}
	to, other := inSync(a)[0], inSync(a)[1]
	flip := func(u *fsm.Placed) {
		j := s.apply(0, &fsm.BeginHandover{Node: home, Cause: fsm.CauseHand, Units: []fsm.UnitRef{ref(u)},
			Choices: []fsm.Flip{{UnitRef: ref(u), From: home, To: to}}}).Job
		s.apply(0, &fsm.EndRelease{ID: j, Released: []fsm.UnitRef{ref(u)}})
		s.m.Changed(u.Unit)
		s.round()
	}
	flip(a) // its copy is being told
	flip(b) // and this one waits for that call
	b, _ = s.state.Placed("b")
	s.apply(0, &fsm.ConfirmPromotion{Node: to, Epoch: b.Epoch, Units: []fsm.UnitRef{ref(b)}})
	s.m.Changed("b")
	for range 5 {
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
	}
	for _, name := range []fsm.UnitName{"a", "b"} {
		if from := s.nodes[other].units[name].from; from != to {
			t.Errorf("the copy of %s on %s follows %q, not %s", name, other, from, to)
		}
	}
}
