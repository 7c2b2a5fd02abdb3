package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// TestI3WhatIsNoTaskIsNotRecorded: a directory with one could not be read from its snapshot.
// Found by random logs.
func TestI3WhatIsNoTaskIsNotRecorded(t *testing.T) {
	us, _ := own(t)
	good := fsm.ForgoTask{Origin: origin(1), Job: 70, Kind: fsm.TaskReceive, Tenant: "y", ID: 70}
	for _, bad := range []func(c *fsm.ForgoTask){
		func(c *fsm.ForgoTask) { c.Tenant = "" },
		func(c *fsm.ForgoTask) { c.Tenant = "Bad" },
		func(c *fsm.ForgoTask) { c.ID = 0 },
		func(c *fsm.ForgoTask) { c.ID = 1 << 63 },
		func(c *fsm.ForgoTask) { c.Kind = 0 },
		func(c *fsm.ForgoTask) { c.Kind = 5 },
	} {
		c := good
		bad(&c)
		us.refused(fsm.CodeBadRequest, &c)
	}
	us.wantKept("40 create x done; ")
	us.ok(&good)
}

// TestM6TheGlobalDirectorysOwnPartIsThatOfAMoveThatRuns: it has the job, and needs nobody's
// word for it. Found by random logs.
func TestM6TheGlobalDirectorysOwnPartIsThatOfAMoveThatRuns(t *testing.T) {
	d, move := relocating{"", "us", "eu"}.begun(t)
	j, _ := d.Job(move)
	d.tenant(fsm.CreateTenant{Name: "here", Node: ptr(fsm.NodeName("e1"))})
	here, _ := d.Placed("here")
	o := fsm.Origin{Authority: "c/global", History: 1, Floor: d.Floor()}
	receive := func(job fsm.JobID, name fsm.TenantName, id fsm.UnitID) *fsm.BeginTask {
		return &fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskReceive, Tenant: name, ID: id, Region: ptr(fsm.RegionName("eu")), Source: foreign("u1", 7)}
	}
	d.refused(fsm.CodeBadRequest, begin(o, move, fsm.TaskCreate, "y", 9000))
	d.refused(fsm.CodeBadRequest, begin(o, move, fsm.TaskDelete, "x", j.Unit))
	d.refused(fsm.CodeTaskOver, begin(o, move, fsm.TaskDepart, "here", here.ID))
	d.refused(fsm.CodeTaskOver, receive(move+100, "x", j.Unit))
	d.refused(fsm.CodeTaskOver, receive(move, "y", 9000))
	d.refused(fsm.CodeTaskOver, receive(move, "x", j.Unit+1))
	d.refused(fsm.CodeTaskOver, &fsm.ForgoTask{Origin: o, Job: move + 100, Kind: fsm.TaskReceive, Tenant: "x", ID: j.Unit})
	d.ok(receive(move, "x", j.Unit))
}

// TestM6NoWordIsTakenBeforeTheFlipThatItTellsOf, where this directory has that flip itself: a
// tenant would live in two places, or in none. Found by random logs.
func TestM6NoWordIsTakenBeforeTheFlipThatItTellsOf(t *testing.T) {
	scopeOf := func(d *dir) fsm.Origin { return fsm.Origin{Authority: "c/global", History: 1, Floor: d.Floor()} }
	for _, r := range []relocating{{"", "us", "eu"}, {"", "eu", "us"}} {
		d, move := r.begun(t)
		d.take(move, fsm.StepRelease, nil)
		r.ready(d, move)
		say := func(w fsm.TaskWord) *fsm.TellTask { return &fsm.TellTask{Origin: scopeOf(d), Job: move, Word: w} }
		early := []fsm.TaskWord{fsm.TaskArrived, fsm.TaskDeparted, fsm.TaskSettled}
		for _, w := range early {
			d.refused(fsm.CodeStale, say(w))
		}
		d.take(move, fsm.StepPromote, nil)
		if r.to == "eu" {
			early = []fsm.TaskWord{fsm.TaskDeparted, fsm.TaskSettled}
			d.ok(say(fsm.TaskArrived))
		} else {
			early = []fsm.TaskWord{fsm.TaskArrived}
			d.ok(say(fsm.TaskDeparted))
			d.ok(say(fsm.TaskSettled))
		}
		for _, w := range append(early, fsm.TaskUndo) {
			d.refused(fsm.CodeStale, say(w))
		}
	}
}

// TestI8AMoveEndsAfterItsParts: what would be left of it here could not be told to go any
// more. Found by random logs.
func TestI8AMoveEndsAfterItsParts(t *testing.T) {
	r := relocating{"", "us", "eu"}
	d, move := r.begun(t)
	r.ready(d, move)
	task, _ := d.Task(move)
	why := &fsm.Refusal{Code: fsm.CodeMoveUndone, Text: "no"}
	d.take(move, fsm.StepUndo, why)
	undone := &fsm.AdvanceJob{ID: move, From: fsm.StepUndo, To: fsm.StepDone}
	d.refused(fsm.CodeStale, undone, "has not ended")
	d.ok(&fsm.ForgoTask{Origin: fsm.Origin{Authority: "c/global", History: 1}, Job: move, Kind: fsm.TaskReceive, Tenant: "x", ID: task.ID})
	d.refused(fsm.CodeStale, undone)
	d.ok(&fsm.AdvanceJob{ID: task.Local, From: fsm.StepUndo, To: fsm.StepDone})
	d.ok(undone)

	r = relocating{"", "eu", "us"}
	d, move = r.begun(t)
	d.take(move, fsm.StepRelease, nil)
	r.ready(d, move)
	task, _ = d.Task(move)
	d.take(move, fsm.StepPromote, nil)
	d.take(move, fsm.StepClean, nil)
	done := &fsm.AdvanceJob{ID: move, From: fsm.StepClean, To: fsm.StepDone}
	d.refused(fsm.CodeStale, done)
	d.ok(&fsm.AdvanceJob{ID: task.Local, From: fsm.StepRemove, To: fsm.StepDone})
	d.ok(done)
}

// TestI8ATenantIsNotReceivedWhileAFormerOnesMoveIsOpen: a directory with both could not be
// read from its snapshot. The former tenant was deleted while its source was asked to take it
// back. Found by random logs.
func TestI8ATenantIsNotReceivedWhileAFormerOnesMoveIsOpen(t *testing.T) {
	us, x := own(t)
	move := us.ok(&fsm.BeginMove{Unit: "x", To: "n2", Cause: fsm.CauseMove}).Job
	us.step(move, fsm.StepCopy)
	us.step(move, fsm.StepRelease)
	us.ok(&fsm.EndRelease{ID: move})
	gone := us.ok(begin(origin(41), 41, fsm.TaskDelete, "x", x.ID)).Task.Local
	us.step(gone, fsm.StepDone)
	again := beginReceive(50, 45, 7)
	us.refused(fsm.CodeBusy, again, "x")
	us.ok(&fsm.AdvanceJob{ID: move, From: fsm.StepThaw, To: fsm.StepDone, Refusal: &fsm.Refusal{Code: fsm.CodeDeleted, Text: "it was deleted"}})
	us.ok(again)
}

// TestI8AReceiveWhoseTenantIsDeletedEnds, and keeps nothing waiting: the region is free to be
// handed over. Found by random logs.
func TestI8AReceiveWhoseTenantIsDeletedEnds(t *testing.T) {
	us, _ := own(t)
	us.ok(&fsm.BeginTask{Origin: origin(40), Job: 50, Kind: fsm.TaskReceive, Tenant: "y", ID: 45, Region: ptr(fsm.RegionName("us")), Source: foreign("e1", 7)})
	local, _ := us.Task(50)
	end := &fsm.AdvanceJob{ID: local.Local, From: fsm.StepPromote, To: fsm.StepDone}
	us.ok(word(50, fsm.TaskArrived, nil))
	us.refused(fsm.CodeBadRequest, end)
	gone := us.ok(begin(origin(40), 60, fsm.TaskDelete, "y", 45)).Task.Local
	us.step(gone, fsm.StepDone)
	us.ok(end)
	us.wantKept("40 create x done; 50 receive y deleted; 60 delete y done; ")
	if why := us.Unready("us"); why != nil {
		t.Errorf("in the way of a hand-over: %v", why)
	}
}
