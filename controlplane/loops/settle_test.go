package loops

import (
	"testing"

	"domicile/fsm"
)

// TestI1TasksThatOutlivedTheirJobsAreSettledByAFreshCopyOfTheGlobalDirectory, and by none
// of before: neither of an older history, nor of before the task was seen.
func TestI1TasksThatOutlivedTheirJobsAreSettledByAFreshCopyOfTheGlobalDirectory(t *testing.T) {
	s := newRegionRecovery(t, "left", "not-given", "stays", "unknown")
	s.news.WaitedOut = true
	s.news.Homes = &Homes{Elsewhere: func(fsm.TenantName, fsm.UnitID, bool) bool { return false }}
	s.run(40)
	s.wants(true, nil)
	of := fsm.Origin{Authority: "c1/global", History: 1}
	jobs := map[fsm.TenantName]fsm.JobID{}
	for i, name := range []fsm.TenantName{"stays", "left", "unknown", "not-given"} {
		jobs[name] = fsm.JobID(100 + i)
		u := s.id(fsm.UnitName(name))
		local := s.apply(&fsm.BeginTask{Origin: of, Job: jobs[name], Kind: fsm.TaskDepart, Tenant: name, ID: u.ID}).Task.Local
		if name == "left" {
			p, _ := s.state.Placed(u.Unit)
			s.apply(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{u}})
			s.apply(&fsm.TellTask{Origin: of, Job: jobs[name], Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "127.0.0.1:9"}})
			s.apply(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{u}})
		}
	}
	region := fsm.RegionName("us")
	for i, name := range []fsm.TenantName{"came", "never"} {
		jobs[name] = fsm.JobID(110 + i)
		s.apply(&fsm.BeginTask{Origin: of, Job: jobs[name], Kind: fsm.TaskReceive, Tenant: name, ID: fsm.UnitID(jobs[name]), Region: &region,
			Source: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "127.0.0.1:9", Token: "t", Epoch: 7}})
	}
	settled := func() (all []*fsm.SettleTask) {
		plan := Next(s.state.Snapshot(), s.m, &s.news, s.now)
		for _, p := range plan.Proposals {
			if cmd, ok := p.Cmd.(*fsm.SettleTask); ok {
				all = append(all, cmd)
			}
		}
		return all
	}
	s.news.Names = &Names{History: 1, AsOf: s.now + 1, Home: func(name fsm.TenantName, id fsm.UnitID) (here, known bool) {
		return name == "stays" || name == "came", name != "unknown"
	}}
	if got := settled(); len(got) > 0 {
		t.Errorf("before the history rises, %+v", got[0])
	}
	s.apply(&fsm.BindGlobal{Authority: "c1/global", History: 2})
	s.news.Names.AsOf = s.now + 1
	if got := settled(); len(got) > 0 {
		t.Errorf("by a copy of before, %+v", got[0])
	}
	s.news.Names.History = 2
	s.news.Names.AsOf = s.now
	if got := settled(); len(got) > 0 {
		t.Errorf("by a copy that is as old as the task was seen to be, %+v", got[0])
	}
	s.news.Names.AsOf = s.now + 1
	// What was not given up stays, wherever its home is: whether another group has it, and this one yields, is asked.
	want := map[fsm.JobID]bool{jobs["stays"]: true, jobs["left"]: false, jobs["not-given"]: true, jobs["unknown"]: true, jobs["came"]: true, jobs["never"]: false}
	got := settled()
	if len(got) != len(want) {
		t.Fatalf("%d tasks are settled", len(got))
	}
	for _, cmd := range got {
		if here, ok := want[cmd.Job]; !ok || here != cmd.Here || cmd.History != 2 {
			t.Errorf("%+v", cmd)
		}
		s.apply(cmd)
	}
	s.m.Forget(s.state, s.now)
	if got := settled(); len(got) > 0 {
		t.Errorf("again %+v", got[0])
	}
}

// TestI1ARegionRecoversWithoutTenantsThatWereDeleted since its backup: the name may be
// another tenant's by now.
func TestI1ARegionRecoversWithoutTenantsThatWereDeleted(t *testing.T) {
	s := newRegionRecovery(t, "a", "b", "c")
	s.news.WaitedOut = true
	b := s.id("b")
	s.holds("n1", primary(b, 1, 9))
	asked := map[fsm.TenantName]bool{}
	s.news.Homes = &Homes{Elsewhere: func(t fsm.TenantName, id fsm.UnitID, held bool) bool {
		asked[t] = held && id == b.ID
		return t != "c"
	}}
	s.run(40)
	s.wants(true, map[fsm.UnitName]string{"a": "nowhere", "b": "nowhere"})
	if asked["a"] || !asked["b"] || asked["c"] {
		t.Errorf("held: %v", asked)
	}
	if _, ok := s.state.Placed("c"); !ok {
		t.Error("c is gone")
	}
}
