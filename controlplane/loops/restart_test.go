package loops

import (
	"testing"

	"domicile/fsm"
)

// TestC6ANodeThatRestartedIsToldAgainAtOnce: a copy that counts as told to follow was
// told that in a process that is gone. Found by killing a node and starting it again
// within its lease: it followed nothing for some twelve seconds.
func TestC6ANodeThatRestartedIsToldAgainAtOnce(t *testing.T) {
	s := newCopySim(t, 1)
	s.apply(0, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: simLease, RepairAfter: simRepair, RemoveAfter: simRemove}})
	home := simNames[0]
	s.apply(0, &fsm.CreateTenant{Name: "a", Node: &home})
	s.m.ChangedAll()
	boot := "1"
	told := 0
	var at fsm.NodeName
	turn := func(synced bool) {
		for _, n := range simNames {
			s.renew(n)
			s.nodes[n].news.Boot = "1"
		}
		if u, _ := s.state.Placed("a"); len(u.Copies) > 0 {
			at = u.Copies[0].Node
			s.nodes[at].news.Boot = boot
			h := s.nodes[at].units["a"]
			h.synced = synced && h.from != ""
			s.nodes[at].units["a"] = h
		}
		s.round()
		for len(s.calls) > 0 {
			if s.calls[0].Verb == FollowUnits {
				told++
			}
			s.turn()
		}
		s.now += 100
	}
	for range 30 {
		turn(true)
	}
	if u, _ := s.state.Placed("a"); len(inSync(u)) != 1 || told != 1 {
		t.Fatalf("a is %+v, told %d times", u, told)
	}
	boot = "2"
	for range 5 {
		turn(false)
	}
	if u, _ := s.state.Placed("a"); told != 2 {
		t.Errorf("a new process of %s was told %d times; a is %+v", at, told-1, u)
	}
}
