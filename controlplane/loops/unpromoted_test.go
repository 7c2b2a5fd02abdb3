package loops

import (
	"testing"

	"domicile/fsm"
)

// TestL5AUnitThatItsNodeCannotPromoteGoesBack kills primary and copy at once; the copy is
// back first, with an empty folder, and is given the unit; then the former primary is
// back, which holds all of it (architecture §3.7.6). Found by a deployment in which one
// disk was changed: the unit stayed where it was not.
func TestL5AUnitThatItsNodeCannotPromoteGoesBack(t *testing.T) {
	s := newCopySim(t, 1)
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	home := simNames[0]
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home})
	s.m.ChangedAll()
	s.settle()
	u, _ := s.state.Placed("a")
	if u.Node != home || len(inSync(u)) != 1 {
		t.Fatalf("a is %+v", u)
	}
	to := inSync(u)[0]
	s.nodes[home].silent = true
	delete(s.nodes[to].units, "a")
	turn := func() {
		for _, n := range simNames {
			s.renew(n)
		}
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
		s.now += 100
	}
	for range 50 {
		turn()
	}
	if u, _ = s.state.Placed("a"); u.Node != to || u.Promoted() {
		t.Fatalf("a is %+v, want it on %s, which lacks it", u, to)
	}
	s.nodes[home].silent = false
	for range 20 {
		turn()
	}
	if u, _ = s.state.Placed("a"); u.Node != home || !u.Promoted() {
		t.Errorf("a was lost on %s, and %s is back; it is %+v", to, home, u)
	}
	// Where nobody has it, the directory is not written at each try.
	s.nodes[home].silent = true
	for range 50 {
		turn()
	}
	s.settle()
	s.ended()
}

// TestL5AUnitThatNobodyHasDoesNotGoToAndFro: every node that may have a unit lacks it.
func TestL5AUnitThatNobodyHasDoesNotGoToAndFro(t *testing.T) {
	s := newCopySim(t, 1)
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	home := simNames[0]
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home})
	s.m.ChangedAll()
	s.settle()
	for _, n := range s.nodes {
		delete(n.units, "a")
	}
	s.nodes[home].silent = true
	epochs := map[uint64]bool{}
	for range 300 { // half a minute
		for _, n := range simNames {
			s.renew(n)
		}
		s.round()
		for len(s.calls) > 0 {
			s.turn()
		}
		u, _ := s.state.Placed("a")
		epochs[u.Epoch] = true
		s.nodes[home].silent = len(epochs) < 2
		s.now += 100
	}
	if len(epochs) < 3 || len(epochs) > 5 {
		t.Errorf("%d epochs in half a minute; want it given to the copy, back once, and tried again seldom", len(epochs))
	}
}
