package fsm_test

import (
	"fmt"
	"testing"

	"domicile/fsm"
)

// regional is a region's directory with two nodes, and how the global group calls it.
func regional(t *testing.T) (*dir, func(floor fsm.JobID) fsm.Origin) {
	d := region(t, "us")
	for _, n := range []fsm.NodeName{"n1", "n2"} {
		d.ok(&fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:8081"), Token: ptr("t"), Region: ptr(fsm.RegionName("us")), Zone: ptr(fsm.ZoneName(n))})
	}
	return d, func(floor fsm.JobID) fsm.Origin {
		return fsm.Origin{Authority: "g1/global", History: 2, Floor: floor}
	}
}

func begin(o fsm.Origin, job fsm.JobID, kind fsm.TaskKind, name fsm.TenantName, id fsm.UnitID) *fsm.BeginTask {
	return &fsm.BeginTask{Origin: o, Job: job, Kind: kind, Tenant: name, ID: id}
}

// kept tells of every task.
func (d *dir) kept() string {
	all := ""
	for t := range d.Tasks() {
		all += fmt.Sprintf("%d %s %s", t.Job, t.Kind, t.Tenant)
		switch {
		case t.Forgone:
			all += " forgone"
		case t.Refusal != nil:
			all += " " + string(t.Refusal.Code)
		case t.Done:
			all += " done"
		}
		all += "; "
	}
	return all
}

func (d *dir) wantKept(want string) {
	d.t.Helper()
	if got := d.kept(); got != want {
		d.t.Fatalf("tasks %q, want %q", got, want)
	}
}

// TestG5TasksAreTakenOnceFromOneGroup: whoever calls, however often, early or late.
func TestG5TasksAreTakenOnceFromOneGroup(t *testing.T) {
	d, from := regional(t)
	create := begin(from(10), 10, fsm.TaskCreate, "a", 10)
	made := d.ok(create)
	d.step(made.Task.Local, fsm.StepDone)
	if again := d.ok(create); !again.Task.Done || again.Task.Refusal != nil {
		t.Fatalf("begun again: %+v", again.Task)
	}
	d.wantKept("10 create a done; ")
	if p, _ := d.Placed("a"); p == nil || p.ID != 10 || p.State != fsm.UnitActive {
		t.Fatalf("the unit is %+v", p)
	}
	if up, ok := d.Upstream(); !ok || up != (fsm.Upstream{Authority: "g1/global", History: 2, Floor: 10}) {
		t.Errorf("belongs to %+v", up)
	}
	older, foreign, nobody := from(10), from(10), from(10)
	older.History, foreign.Authority, nobody.Authority = 1, "g2/global", ""
	d.refused(fsm.CodeStale, begin(older, 11, fsm.TaskDelete, "a", 10))
	d.refused(fsm.CodeScope, begin(foreign, 11, fsm.TaskDelete, "a", 10), "g1/global")
	d.refused(fsm.CodeBadRequest, begin(nobody, 11, fsm.TaskDelete, "a", 10))
	d.refused(fsm.CodeBadRequest, begin(from(10), 10, fsm.TaskDelete, "a", 10), "something else")
	d.refused(fsm.CodeBadRequest, begin(from(10), 10, fsm.TaskCreate, "a", 11), "something else")
	d.refused(fsm.CodeBadRequest, begin(from(10), 11, 9, "a", 10))
	d.refused(fsm.CodeBadRequest, begin(from(10), 11, fsm.TaskDelete, "a", 0))
	d.refused(fsm.CodeBadRequest, begin(from(10), 11, fsm.TaskDelete, "a", 1<<63))
	d.refused(fsm.CodeBadRequest, begin(from(10), 11, fsm.TaskReceive, "b", 11), "from a node")
	d.refused(fsm.CodeTaskUnknown, &fsm.TellTask{Origin: from(10), Job: 11, Word: fsm.TaskUndo})
	d.refused(fsm.CodeBadRequest, &fsm.ForgoTask{Origin: from(10), Job: 10, Kind: fsm.TaskDelete, Tenant: "a", ID: 10})

	// What the region has under another id, and what it never had.
	if r := d.ok(begin(from(10), 12, fsm.TaskCreate, "a", 12)); !r.Task.Done || r.Task.Refusal == nil || r.Task.Refusal.Code != fsm.CodeTenantExists || r.Task.Refusal.Fields["id"] != "10" {
		t.Errorf("it exists: %+v", r.Task)
	}
	if r := d.ok(begin(from(10), 13, fsm.TaskDelete, "a", 13)); !r.Task.Done || r.Task.Refusal != nil {
		t.Errorf("another one's delete: %+v", r.Task)
	}
	if r := d.ok(begin(from(10), 14, fsm.TaskDelete, "none", 14)); !r.Task.Done || r.Task.Local != 0 {
		t.Errorf("nothing to delete: %+v", r.Task)
	}
	if r := d.ok(&fsm.BeginTask{Origin: from(10), Job: 15, Kind: fsm.TaskCreate, Tenant: "b", ID: 15, Node: ptr(fsm.NodeName("n9"))}); r.Task.Refusal == nil || r.Task.Refusal.Code != fsm.CodeNodeUnknown {
		t.Errorf("no such node: %+v", r.Task)
	}
	d.wantKept("10 create a done; 12 create a tenant_exists; 13 delete a done; 14 delete none done; 15 create b unknown_node; ")
	gone := d.ok(begin(from(16), 16, fsm.TaskDelete, "a", 10))
	d.wantKept("16 delete a; ") // those below the floor are over
	d.refused(fsm.CodeTaskOver, create)
	d.refused(fsm.CodeTaskOver, begin(from(16), 12, fsm.TaskCreate, "c", 12))
	d.refused(fsm.CodeBusy, begin(from(16), 17, fsm.TaskCreate, "a", 17)) // asked again, it may do
	d.step(gone.Task.Local, fsm.StepDone)
	d.wantKept("16 delete a done; ")
	if _, there := d.Tenant("a"); there {
		t.Error("a is there")
	}
	d.ok(begin(from(17), 17, fsm.TaskCreate, "a", 17))
	d.refused(fsm.CodeNotOwner, &fsm.CreateTenant{Name: "mine"})
	d.refused(fsm.CodeNotOwner, &fsm.DeleteTenant{Name: "a"})
}

// TestG5WhatIsGivenUpIsNotDoneAnyMore: before it was begun, while it runs, and after.
func TestG5WhatIsGivenUpIsNotDoneAnyMore(t *testing.T) {
	d, from := regional(t)
	forgo := func(job fsm.JobID, kind fsm.TaskKind, name fsm.TenantName, id fsm.UnitID) *fsm.ForgoTask {
		return &fsm.ForgoTask{Origin: from(1), Job: job, Kind: kind, Tenant: name, ID: id}
	}
	if r := d.ok(forgo(5, fsm.TaskCreate, "a", 5)); !r.Task.Forgone {
		t.Fatalf("forgone: %+v", r.Task)
	}
	d.refused(fsm.CodeTaskForgone, begin(from(1), 5, fsm.TaskCreate, "a", 5))
	d.ok(forgo(5, fsm.TaskCreate, "a", 5))
	made := d.ok(begin(from(1), 6, fsm.TaskCreate, "a", 6))
	if r := d.ok(forgo(6, fsm.TaskCreate, "a", 6)); r.Task.Over() {
		t.Fatalf("its node may have it: %+v", r.Task)
	}
	d.ok(&fsm.AdvanceJob{ID: made.Task.Local, From: fsm.StepUndo, To: fsm.StepDone})
	d.wantKept("5 create a forgone; 6 create a task_forgone; ")
	made = d.ok(begin(from(1), 7, fsm.TaskCreate, "a", 7))
	d.step(made.Task.Local, fsm.StepDone)
	if r := d.ok(forgo(7, fsm.TaskCreate, "a", 7)); !r.Task.Done || r.Task.Refusal != nil {
		t.Errorf("what is done is told: %+v", r.Task)
	}
	gone := d.ok(begin(from(1), 8, fsm.TaskDelete, "a", 7))
	if r := d.ok(forgo(8, fsm.TaskDelete, "a", 7)); r.Task.Over() {
		t.Errorf("a delete that has begun goes on: %+v", r.Task)
	}
	d.step(gone.Task.Local, fsm.StepDone)
	d.wantKept("5 create a forgone; 6 create a task_forgone; 7 create a done; 8 delete a done; ")
	d.refused(fsm.CodeTaskOver, &fsm.TellTask{Origin: from(1), Job: 8, Word: fsm.TaskDeparted + 100})

	// A create that meets its delete, and a region that belongs to nobody yet.
	made = d.ok(begin(from(1), 9, fsm.TaskCreate, "b", 9))
	d.refused(fsm.CodeBusy, begin(from(1), 10, fsm.TaskDelete, "b", 9))
	d.step(made.Task.Local, fsm.StepDone)
	fresh := region(t, "tr")
	if _, ok := fresh.Upstream(); ok {
		t.Error("it belongs to somebody")
	}
	fresh.ok(&fsm.BindGlobal{Authority: "g1/global", History: 2})
	fresh.ok(&fsm.BindGlobal{Authority: "g1/global", History: 3})
	fresh.refused(fsm.CodeStale, &fsm.BindGlobal{Authority: "g1/global", History: 2})
	fresh.refused(fsm.CodeBadRequest, &fsm.BindGlobal{Authority: "g1/global", History: fsm.MaxHistory + 1}) // no group could come after it
	fresh.refused(fsm.CodeScope, &fsm.BindGlobal{Authority: "g2/global", History: 9})
	fresh.refused(fsm.CodeStale, begin(from(1), 5, fsm.TaskCreate, "a", 5))
	global := ready(t, 0)
	global.refused(fsm.CodeScope, &fsm.BindGlobal{Authority: "g1/global", History: 2})
	global.refused(fsm.CodeScope, begin(from(1), 5, fsm.TaskCreate, "a", 5))
}

// TestG5TheSameKeyAsksAnewWhereNothingHappened: a region that was not reached leaves no
// answer behind; one that has refused does.
func TestG5TheSameKeyAsksAnewWhereNothingHappened(t *testing.T) {
	d := ready(t, 0)
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:1"}}})
	create := fsm.Entry{Key: "k", Fingerprint: "f", Cmd: &fsm.CreateTenant{Name: "a", Region: ptr(fsm.RegionName("us"))}}
	undo := func(code fsm.Code) {
		r := d.entry(create)
		if r.Replayed || r.Job == 0 || !r.Tenant.Reserved {
			t.Fatalf("created: %+v", r)
		}
		d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: code, Text: "no"}})
		d.refused(fsm.CodeRegionUnreachable, &fsm.CreateTenant{Name: "a"}, "us")
		d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepUndo, To: fsm.StepDone})
	}
	undo(fsm.CodeRegionUnreachable)
	undo(fsm.CodeRecovering)
	undo(fsm.CodeNoNode)
	if r := d.entry(create); !r.Replayed || r.Refusal == nil || r.Refusal.Code != fsm.CodeNoNode {
		t.Errorf("what was refused: %+v", r)
	}
}
