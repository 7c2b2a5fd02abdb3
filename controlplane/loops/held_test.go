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
