package loops

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// newRegionRecovery is region us's directory, with tenants on its node n1, that is being
// recovered.
func newRegionRecovery(t *testing.T, tenants ...fsm.TenantName) *recoverySim {
	return newRegionRecoveryOf(t, func(*recoverySim) {}, tenants...)
}

// newRegionRecoveryOf does so after before was done to the directory.
func newRegionRecoveryOf(t *testing.T, before func(s *recoverySim), tenants ...fsm.TenantName) *recoverySim {
	s := &recoverySim{t: t, state: fsm.New(), now: 10_000, term: 2, nodes: make(map[fsm.NodeName]*recNode)}
	member := fsm.Member{ID: "s1", Raft: "a:1", Version: fsm.Version}
	s.apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "d1", Region: "us", History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000}})
	s.apply(&fsm.PutMember{Member: member})
	for i, name := range []fsm.NodeName{"n1", "n2"} {
		addr, token := fmt.Sprintf("127.0.0.1:%d", 8081+i), "t"
		s.apply(&fsm.PutNode{Name: name, Addr: &addr, Token: &token})
		s.nodes[name] = &recNode{heard: 1, read: NodeRead{Leased: true}}
	}
	home := fsm.NodeName("n1")
	for i, name := range tenants {
		job := fsm.JobID(40 + i)
		task := s.apply(&fsm.BeginTask{Origin: fsm.Origin{Authority: "c1/global", History: 1}, Job: job, Kind: fsm.TaskCreate, Tenant: name, ID: fsm.UnitID(job), Node: &home}).Task
		s.apply(&fsm.AdvanceJob{ID: task.Local, From: fsm.StepMake, To: fsm.StepDone})
	}
	before(s)
	if err := s.state.Recover(fsm.RecoverRestored, 2, member, s.now); err != nil {
		t.Fatal(err)
	}
	s.m = NewMemory(s.state.Revision())
	return s
}

// TestI1ARegionRecoversWithoutTenantsThatLiveElsewhere by now: another region writes them,
// whatever is left of them on its nodes.
func TestI1ARegionRecoversWithoutTenantsThatLiveElsewhere(t *testing.T) {
	s := newRegionRecovery(t, "a", "b")
	a, b := s.id("a"), s.id("b")
	s.holds("n1", primary(a, 1, 9))
	s.holds("n1", primary(b, 1, 9))
	s.holds("n2", replica(b, 3<<50|7, 8, "http://127.0.0.1:8081"))
	s.news.WaitedOut = true
	s.news.Homes = &Homes{Problem: "the global directory is not here"}
	s.run(40)
	if v, _ := s.m.Recovery(s.state, s.now); !strings.Contains(v.Problem, "the global directory is not here") {
		t.Errorf("it waits, and says %q", v.Problem)
	}
	s.wants(false, map[fsm.UnitName]string{"a": "n1 n2:syncing"})
	s.news.Homes = &Homes{Elsewhere: func(t fsm.TenantName, _ fsm.UnitID, _ bool) bool { return t == "a" }}
	s.run(40)
	s.wants(true, map[fsm.UnitName]string{"a": "nowhere"})
	if p, ok := s.state.Placed("b"); !ok || p.Epoch <= 3<<50|7 {
		t.Errorf("b goes on as %+v, behind a branch that a node holds", p)
	}
}

// TestI4ARegionTakesOverWhatHasComeToItSince: tenants that were on their way here, or away,
// and have their home here by now. What a node holds of them goes on as its newest branch; what
// has its home elsewhere, or is held by nobody, is left to what settles its move.
func TestI4ARegionTakesOverWhatHasComeToItSince(t *testing.T) {
	of := fsm.Origin{Authority: "c1/global", History: 1}
	came := map[fsm.TenantName]fsm.UnitRef{}
	s := newRegionRecoveryOf(t, func(s *recoverySim) {
		us, n1 := fsm.RegionName("us"), fsm.NodeName("n1")
		for i, name := range []fsm.TenantName{"came", "held-by-nobody", "not-come"} {
			job := fsm.JobID(100 + i)
			s.apply(&fsm.BeginTask{Origin: of, Job: job, Kind: fsm.TaskReceive, Tenant: name, ID: fsm.UnitID(job), Region: &us, Node: &n1,
				Source: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "127.0.0.1:9", Token: "t", Epoch: 7}})
			came[name] = fsm.UnitRef{Unit: fsm.UnitName(name), ID: fsm.UnitID(job)}
		}
		for i, name := range []fsm.TenantName{"back", "left"} {
			job, u := fsm.JobID(110+i), s.id(fsm.UnitName(name))
			local := s.apply(&fsm.BeginTask{Origin: of, Job: job, Kind: fsm.TaskDepart, Tenant: name, ID: u.ID}).Task.Local
			s.apply(&fsm.TellTask{Origin: of, Job: job, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "127.0.0.1:9"}})
			s.apply(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{u}})
		}
	}, "back", "left")
	s.news.WaitedOut = true
	back := s.id("back")
	s.holds("n1", Found{UnitRef: back, Epoch: 1, Seq: 5, Usable: true, To: "http://10.0.0.1:1"})
	s.holds("n2", primary(back, 2<<50|9, 7)) // it has left, and has come back
	s.holds("n1", Found{UnitRef: s.id("left"), Epoch: 1, Seq: 5, Usable: true, To: "http://10.0.0.1:1"})
	s.holds("n1", replica(came["came"], 7, 4, "http://127.0.0.1:8082"))
	s.holds("n2", primary(came["came"], 1<<50|9, 6))
	s.holds("n1", replica(came["not-come"], 7, 4, "http://127.0.0.1:8082"))
	s.news.Homes = &Homes{Elsewhere: func(name fsm.TenantName, _ fsm.UnitID, _ bool) bool { return name == "left" || name == "not-come" },
		Here: func(name fsm.TenantName, id fsm.UnitID) bool {
			return name == "back" && id == back.ID || name == "came" && id == came["came"].ID || name == "held-by-nobody"
		}}
	s.run(60)
	if s.state.Recovering() {
		t.Fatal("it is not recovered")
	}
	for name, want := range map[fsm.UnitName]string{"back": "active n2", "came": "active n2", "held-by-nobody": "receiving n1", "left": "sent n1", "not-come": "receiving n1"} {
		p, _ := s.state.Placed(name)
		if got := fmt.Sprint(p.State, " ", p.Node); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		if name == "back" && p.Epoch <= 2<<50|9 || name == "came" && p.Epoch <= 1<<50|9 {
			t.Errorf("%s goes on in epoch %d", name, p.Epoch)
		}
	}
	for task := range s.state.Tasks() {
		if want := task.Tenant == "back" || task.Tenant == "came" || task.Kind == fsm.TaskCreate; task.Over() != want {
			t.Errorf("the task to %s %s is over: %v", task.Kind, task.Tenant, task.Over())
		}
	}
}
