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
