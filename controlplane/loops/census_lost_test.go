package loops

import (
	"strings"
	"testing"

	"domicile/fsm"
)

// TestI4ATenantThatHasLeftAndIsNotToldToArriveIsNotLostInARecovery: the directory that is
// recovered has the flip from its own region to us; us was not told so, and is fenced now.
func TestI4ATenantThatHasLeftAndIsNotToldToArriveIsNotLostInARecovery(t *testing.T) {
	var u fsm.UnitRef
	s := newGlobalRecovery(t, func(s *recoverySim) {
		s.own("x")
		u = s.id("x")
		job := s.apply(&fsm.BeginRelocation{Tenant: "x", Region: "us"}).Job
		scope, _ := s.state.Scope()
		o := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: 1}
		local := s.apply(&fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskDepart, Tenant: "x", ID: u.ID}).Task.Local
		s.apply(&fsm.AdvanceJob{ID: job, From: fsm.StepCopy, To: fsm.StepRelease})
		s.apply(&fsm.TellTask{Origin: o, Job: job, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "us", Node: "u1", Addr: "http://10.0.0.1:1"}})
		s.apply(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{u}})
		s.apply(&fsm.AdvanceJob{ID: job, From: fsm.StepRelease, To: fsm.StepPromote})
		s.moves("us", "x", u.ID, fsm.ClaimReceiving, 1, job, "eu")
		s.holds("n1", Found{UnitRef: u, Epoch: 1, Seq: 5, Usable: true})
	})
	s.run(40)
	s.wants(true, nil)
	if s.home("x") == "nowhere" {
		t.Error("the tenant is gone")
	}
}

// TestI4ATenantThatCameToOwnNodesIsNotLostInARecovery: us was told that it has left, which
// this directory has lost; its node holds all of it, as the copy that was to be promoted.
func TestI4ATenantThatCameToOwnNodesIsNotLostInARecovery(t *testing.T) {
	for _, known := range []bool{false, true} {
		s := newGlobalRecovery(t, func(s *recoverySim) {
			id := s.claim("x")
			job := fsm.JobID(700)
			if known {
				n1, eu := fsm.NodeName("n1"), fsm.RegionName("eu")
				job = s.apply(&fsm.BeginRelocation{Tenant: "x", Region: "eu", To: &n1}).Job
				scope, _ := s.state.Scope()
				o := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: 1}
				s.apply(&fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskReceive, Tenant: "x", ID: id, Region: &eu, Node: &n1,
					Source: &fsm.Foreign{Region: "us", Node: "u1", Addr: "http://10.0.0.1:1", Epoch: 7}})
				s.apply(&fsm.AdvanceJob{ID: job, From: fsm.StepCopy, To: fsm.StepRelease})
			}
			s.moves("us", "x", id, fsm.ClaimDeparted, 7, job, "eu")
			s.holds("n1", replica(fsm.UnitRef{Unit: "x", ID: id}, 7, 5, "http://127.0.0.1:8081"))
		}, "x")
		s.run(40)
		s.wants(true, nil)
		if s.home("x") == "nowhere" {
			t.Errorf("known %v: the tenant is gone", known)
		}
	}
}

// TestI1WhatIsReceivedFromAWrittenOffRegionIsNotTakenOver: us, which an operator writes off, may
// only be cut off, and write it; n1 has what was copied of it until then.
func TestI1WhatIsReceivedFromAWrittenOffRegionIsNotTakenOver(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) {
		id, n1, eu := s.claim("x"), fsm.NodeName("n1"), fsm.RegionName("eu")
		job := s.apply(&fsm.BeginRelocation{Tenant: "x", Region: "eu", To: &n1}).Job
		scope, _ := s.state.Scope()
		s.apply(&fsm.BeginTask{Origin: fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: 1}, Job: job, Kind: fsm.TaskReceive, Tenant: "x", ID: id,
			Region: &eu, Node: &n1, Source: &fsm.Foreign{Region: "us", Node: "u1", Addr: "http://10.0.0.1:1", Epoch: 7}})
		s.holds("n1", replica(fsm.UnitRef{Unit: "x", ID: id}, 7, 5, "http://127.0.0.1:8081"))
		s.regions["us"].silent = true
	}, "x")
	us := s.home("x")
	s.run(40)
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Region: "us"})
	s.run(40)
	s.wants(true, nil)
	if got := s.home("x"); got != us {
		t.Errorf("x is of %s, want %s", got, us)
	}
}

// TestI4WhatWasWrittenOffMayHaveATenant: it went on from a node that was written off, or to
// a region that was.
func TestI4WhatWasWrittenOffMayHaveATenant(t *testing.T) {
	s := newGlobalRecovery(t, func(*recoverySim) {}, "node", "region")
	s.nodes["n2"].silent = true
	s.regions["tr"].silent = true
	s.run(40)
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Node: "n2"})
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Region: "tr"})
	s.run(40)
	s.wants(true, nil)
	for _, n := range []fsm.TenantName{"node", "region"} {
		if s.home(n) == "nowhere" {
			t.Errorf("%s: the name is free, though what was written off may have the tenant", n)
		}
	}
}

// TestG2ARegionThatWasGivenAndHasNotArrivedKeepsItsNames: eu was given to its own group by an
// entry of the directory that is recovered; that group was not told to take it over yet.
func TestG2ARegionThatWasGivenAndHasNotArrivedKeepsItsNames(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) {
		s.own("x")
		s.apply(&fsm.PutRegion{Region: fsm.Region{Name: "eu", Routers: []string{"http://eu:1"}}})
		s.regions["eu"] = &recRegion{heard: 1}
		job := s.apply(&fsm.BeginGive{Region: "eu"}).Job
		s.apply(&fsm.GiveRegion{ID: job, Digest: s.state.Digest("eu")})
		delete(s.nodes, "n1")
		delete(s.nodes, "n2")
	})
	s.run(40)
	s.wants(true, nil)
	if got := s.home("x"); got == "nowhere" {
		t.Errorf("x, which is given to eu, is %s; giving %v", got, s.state.Giving().Step)
	}
}

// TestI4ATenantGoesOnInARegionThatWasRestoredToo: us was told that it has left to tr, whose
// directory was restored from before it received it; or from before it was told to arrive.
func TestI4ATenantGoesOnInARegionThatWasRestoredToo(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) {
		s.moves("us", "x", s.claim("x"), fsm.ClaimDeparted, 7, 700, "tr")
	}, "x")
	s.run(40)
	s.wants(true, nil)
	if got := s.home("x"); !strings.HasPrefix(got, "tr ") {
		t.Errorf("x is of %s", got)
	}
	// The source has settled, and the target was restored from before it was told of the arrival.
	s = newGlobalRecovery(t, func(s *recoverySim) {
		s.moves("tr", "x", s.claim("x"), fsm.ClaimReceiving, 7, 700, "us")
	}, "x")
	s.run(40)
	s.wants(true, nil)
	if got := s.home("x"); !strings.HasPrefix(got, "tr ") {
		t.Errorf("restored while receiving: x is of %s", got)
	}
}

// TestI1WhatWasGivenUpForAWrittenOffRegionIsNotTakenOverUnasked: x went from n1 to us since
// the backup. us, which an operator writes off, may only be cut off, and write it.
func TestI1WhatWasGivenUpForAWrittenOffRegionIsNotTakenOverUnasked(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) {
		s.own("x")
		s.holds("n1", Found{UnitRef: s.id("x"), Epoch: 1, Seq: 5, Usable: true, To: "http://10.0.0.1:1"})
		s.regions["us"].silent = true
	})
	s.run(40)
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Region: "us"})
	s.run(40)
	s.wants(false, nil)
	if v, _ := s.m.Recovery(s.state, s.now); !strings.Contains(v.Problem, "http://10.0.0.1:1") {
		t.Errorf("it waits for %q", v.Problem)
	}
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Node: "http://10.0.0.1:1"})
	s.run(40)
	s.wants(true, nil)
}

// TestG2ARegionThatIsGivenBackArrivesBeforeAnythingIsTakenOver: us has given itself back by an
// entry of its own, and this directory was recovered from before it was told.
func TestG2ARegionThatIsGivenBackArrivesBeforeAnythingIsTakenOver(t *testing.T) {
	s := newGlobalRecovery(t, func(*recoverySim) {}, "x")
	id := s.claim("x")
	s.news.Given = Given{Here: "region us gives us to this group"}
	s.run(40)
	n := &fsm.Node{Name: "u1", Addr: "http://10.0.0.9:1", Token: "t", Region: "us"}
	p := fsm.Placed{ID: id, Unit: "x", Node: "u1", State: fsm.UnitActive, Epoch: 700}
	tn := fsm.Tenant{Name: "x"}
	g := fsm.Giver{Authority: "c1/us", History: 1, Job: 50}
	s.apply(&fsm.StageRegion{Giver: g, Region: "us", Try: 1, Part: 1, Node: n, Tenants: []fsm.GivenTenant{{Tenant: tn, Unit: p}}, Given: true})
	r, _ := s.state.Apply(fsm.Entry{Revision: s.state.Revision() + 1, Term: s.term, At: s.now, Cmd: &fsm.ArriveRegion{Giver: g, Digest: fsm.NodeDigest(n) + fsm.TenantDigest(&tn, &p)}})
	if r.Refusal != nil {
		t.Errorf("x is %s; us arrives: %v", s.home("x"), r.Refusal)
	}
}
