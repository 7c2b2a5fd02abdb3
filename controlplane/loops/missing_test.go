package loops

import (
	"slices"
	"testing"

	"domicile/fsm"
)

// TestL11C6WhatANodeHasLostIsGivenToItsCopy has a node come back within its lease
// with an empty folder: it reports that its units are missing, and, hearing no
// follower of what it does not hold, that their copies lag.
func TestL11C6WhatANodeHasLostIsGivenToItsCopy(t *testing.T) {
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

	lost := s.nodes[home]
	delete(lost.units, "a")
	for range 20 {
		s.renew(home)
		lost.news.Missing = nil
		if now, _ := s.state.Placed("a"); now.Node == home {
			node, _ := s.state.Node(to)
			lost.news.Missing = []fsm.UnitName{"a"}
			lost.news.Lagging = map[fsm.UnitName][]string{"a": {"http://" + node.Addr}}
		}
		s.round()
		for len(s.calls) > 0 {
			f := s.calls[0]
			s.calls = slices.Delete(s.calls, 0, 1)
			answer := s.serve(f)
			if f.Verb == HandOverUnits {
				answer.Failed = map[fsm.UnitName]Failure{"a": {Why: "unknown unit", Absent: true}}
			}
			s.m.End(f.Call, answer, s.now)
		}
		s.now += 100
	}
	if u, _ := s.state.Placed("a"); u.Node != to || !u.Promoted() {
		t.Errorf("a was lost on %s and has a copy in sync on %s; it is %+v", home, to, u)
	}
	s.settle()
	s.ended()
}
