package loops

import (
	"testing"

	"domicile/fsm"
)

// TestN5I10NothingIsRemovedOfAProcessThatIsAnotherNodeToo has n4 be n1's process: what
// it holds is placed on n1, and stays.
func TestN5I10NothingIsRemovedOfAProcessThatIsAnotherNodeToo(t *testing.T) {
	for name, boots := range map[string]map[fsm.NodeName]string{
		"the same process":           {"n1": "p", "n4": "p"},
		"a holder that did not tell": {"n4": "p"},
		"two processes":              {"n1": "q", "n4": "p"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCopySim(t, 1)
			home := fsm.NodeName("n1")
			s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{AutoFailover: simLease}})
			s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home})
			s.m.ChangedAll()
			s.settle()
			u, _ := s.state.Placed("a")
			if u.Node != home || len(u.Copies) > 0 {
				t.Fatalf("a is %+v", u)
			}
			s.m.node("n4").look.again = true
			removed := false
			for range 400 {
				news := &News{Nodes: map[fsm.NodeName]*NodeNews{}, Fresh: true}
				for n, boot := range boots {
					news.Nodes[n] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, Boot: boot, List: s.state.ListRevision(n)}
				}
				for _, a := range Next(s.state.Snapshot(), s.m, news, s.now).Calls {
					s.m.Begin(a)
					answer := Answer{Outcome: Done}
					if a.Verb == LookAtUnits && a.Target.Node == "n4" {
						answer.Held = []Held{{UnitRef: ref(u), Epoch: 1, Seq: 1}}
					}
					removed = removed || a.Verb == RemoveUnit || a.Verb == RemoveCopy
					s.m.End(a.Call, answer, s.now)
				}
				s.now += 100
			}
			if want := name == "two processes"; removed != want {
				t.Errorf("removed: %v, want %v", removed, want)
			}
		})
	}
}

// TestI10ARecoveredRegionRemovesNothingThatItMayHaveLost: the global directory, whose
// revisions are the units' ids, was recovered more often than the region's.
func TestI10ARecoveredRegionRemovesNothingThatItMayHaveLost(t *testing.T) {
	s := newRegionRecovery(t, "known")
	s.news.WaitedOut = true
	known := s.id("known")
	s.holds("n1", primary(known, 1, 9))
	s.news.Homes = &Homes{Elsewhere: func(fsm.TenantName, fsm.UnitID, bool) bool { return false }}
	s.run(40)
	s.wants(true, nil)
	lost := fsm.UnitRef{Unit: "lost", ID: fsm.UnitID(fsm.FirstRevision(5)) + 7}
	s.m = NewMemory(s.state.Revision())
	looked := 0
	for range 400 {
		news := &News{Nodes: map[fsm.NodeName]*NodeNews{}, Fresh: true}
		for _, n := range []fsm.NodeName{"n1", "n2"} {
			news.Nodes[n] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, Boot: string(n), List: s.state.ListRevision(n)}
		}
		for _, a := range Next(s.state.Snapshot(), s.m, news, s.now).Calls {
			s.m.Begin(a)
			answer := Answer{Outcome: Done}
			if a.Verb == LookAtUnits && a.Target.Node == "n2" {
				looked++
				answer.Held = []Held{{UnitRef: lost, Epoch: 3, Seq: 9}}
			}
			if a.Verb == RemoveUnit || a.Verb == RemoveCopy {
				t.Fatalf("%s is told to remove %s of id %d", a.Target.Node, a.Target.Unit, a.Target.ID)
			}
			s.m.End(a.Call, answer, s.now)
		}
		s.m.node("n2").look.again = true
		s.now += 100
	}
	if looked < 3 {
		t.Errorf("the node was asked %d times", looked)
	}
}
