package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// yield is of x as the region has it now.
func (d *dir) yield(u fsm.UnitRef) *fsm.YieldTenant {
	p, _ := d.Placed(u.Unit)
	return &fsm.YieldTenant{UnitRef: u, Epoch: p.Epoch, History: d.GlobalHistory()}
}

// TestI1ATenantThatLivesElsewhereIsYielded: it is in no list any more, and goes as what has
// departed does; its name may come back then.
func TestI1ATenantThatLivesElsewhereIsYielded(t *testing.T) {
	us, x := own(t)
	us.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000, RemoveAfter: 60_000}})
	us.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: x}}})
	cmd := us.yield(x)
	for name, change := range map[string]func(c *fsm.YieldTenant){
		"another id": func(c *fsm.YieldTenant) { c.ID++ }, "another epoch": func(c *fsm.YieldTenant) { c.Epoch++ },
		"an older history": func(c *fsm.YieldTenant) { c.History-- }, "a newer one": func(c *fsm.YieldTenant) { c.History++ },
		"another name": func(c *fsm.YieldTenant) { c.Unit = "y" }, "no name": func(c *fsm.YieldTenant) { c.Unit = "" },
	} {
		bad := *cmd
		change(&bad)
		if r := us.do(&bad); r.Refusal == nil || r.Refusal.Code != fsm.CodeStale {
			t.Errorf("%s: %+v", name, r.Refusal)
		}
	}
	us.ok(cmd)
	us.want("x", "x n1 deleting")
	if len(us.events) != 1 || us.events[0].UnitGone != "x" || duties(us.State, "n1")+duties(us.State, "n2") != "" {
		t.Errorf("events %v; lists %q and %q", us.events, duties(us.State, "n1"), duties(us.State, "n2"))
	}
	if c, ok := us.ClaimOf("x"); ok {
		t.Errorf("it is claimed: %+v", c)
	}
	if err := fsm.Check(us.State); err != nil {
		t.Fatal(err)
	}
	us.refused(fsm.CodeStale, cmd)
	var job fsm.JobID
	for j := range us.RunningJobs() {
		if job = j.ID; j.Kind != fsm.JobDepart || j.Step != fsm.StepRemove || j.Since == 0 || len(j.Targets) != 2 {
			t.Errorf("%+v", j)
		}
	}
	us.wantUnsettled("")
	us.refused(fsm.CodeBusy, begin(origin(41), 41, fsm.TaskDelete, "x", x.ID))
	us.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepRemove, To: fsm.StepDone})
	if _, ok := us.Tenant("x"); ok {
		t.Error("its name is there still")
	}
	us.ok(&fsm.BeginTask{Origin: origin(41), Job: 42, Kind: fsm.TaskReceive, Tenant: "x", ID: x.ID, Region: ptr(fsm.RegionName("us")),
		Source: &fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://10.0.1.1:8081", Token: "t", Epoch: 1<<50 | 7}})
	if err := fsm.Check(us.State); err != nil {
		t.Fatal(err)
	}

	global := ready(t, 0)
	global.refused(fsm.CodeScope, &fsm.YieldTenant{UnitRef: x, History: 1})
}

// TestI1NothingIsYieldedInTheCourseOfAMove, whatever was decided at any time before: neither
// while the tenant leaves, nor when it has been back since, nor while it is moved here.
func TestI1NothingIsYieldedInTheCourseOfAMove(t *testing.T) {
	us, x := own(t)
	o := origin(40)
	decided := []*fsm.YieldTenant{us.yield(x)}
	refused := func(at string) {
		t.Helper()
		decided = append(decided, us.yield(x))
		for i, cmd := range decided {
			if r := us.do(cmd); r.Refusal == nil || r.Refusal.Code != fsm.CodeStale {
				t.Errorf("%s, by what was seen at the state %d: %v", at, i, r.Refusal)
			}
		}
	}
	tell := func(job fsm.JobID, w fsm.TaskWord) {
		t.Helper()
		us.ok(&fsm.TellTask{Origin: o, Job: job, Word: w, Other: &fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://10.0.1.1:8081"}})
	}
	leave := func(job fsm.JobID) (local fsm.JobID) {
		t.Helper()
		local = us.ok(begin(o, job, fsm.TaskDepart, "x", x.ID)).Task.Local
		refused("copied")
		tell(job, fsm.TaskRelease)
		refused("released")
		us.ok(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{x}})
		refused("given up")
		return local
	}
	local := leave(41)
	tell(41, fsm.TaskUndo)
	refused("taken back")
	us.ok(&fsm.AdvanceJob{ID: local, From: fsm.StepThaw, To: fsm.StepDone})

	local = leave(42)
	tell(42, fsm.TaskDeparted)
	refused("departed")
	tell(42, fsm.TaskSettled)
	us.ok(&fsm.AdvanceJob{ID: local, From: fsm.StepRemove, To: fsm.StepDone})

	us.ok(&fsm.BeginTask{Origin: o, Job: 43, Kind: fsm.TaskReceive, Tenant: "x", ID: x.ID, Region: ptr(fsm.RegionName("us")), Node: ptr(fsm.NodeName("n1")),
		Source: &fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://10.0.1.1:8081", Token: "t", Epoch: 1<<50 | 7}})
	refused("received")
	tell(43, fsm.TaskArrived)
	refused("arrived")
	before := decided
	us.confirm("x")
	for i, cmd := range before[:len(before)-1] { // the last has seen it since
		if r := us.do(cmd); r.Refusal == nil {
			t.Fatalf("back, it is yielded by what was seen at the state %d", i)
		}
	}
	us.ok(&fsm.BeginMove{Unit: "x", To: "n2", Cause: fsm.CauseMove})
	refused("moved here")
}
