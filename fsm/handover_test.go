package fsm_test

import (
	"fmt"
	"testing"

	"domicile/fsm"
)

// handover begins one of n1 with units a (n2) and b (n3) and gives its job.
func handover(t *testing.T) (d *dir, job fsm.JobID, a, b fsm.UnitRef) {
	d = leased(t, "n1", "n2", "n3")
	a = d.replicated("a", "n1", "n2")
	b = d.replicated("b", "n1", "n3")
	d.replicated("bare", "n1")
	r := d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseStopped})
	if r.Job == 0 || len(d.events) != 2 || d.events[0].Unit.State != fsm.UnitMoving {
		t.Fatalf("%+v, events %+v", r, d.events)
	}
	d.want("a b bare", "a n1 moving, b n1 moving, bare n1 active")
	return d, r.Job, a, b
}

func (d *dir) targets(id fsm.JobID) string {
	j, ok := d.Job(id)
	if !ok {
		return "none"
	}
	text := j.Step.String()
	for _, t := range j.Targets {
		text += fmt.Sprintf(" %s-%s", t.Unit, t.Node)
	}
	return text
}

func TestI4L11WhatWasReleasedFlipsInOneEntryAndTheRestIsThawed(t *testing.T) {
	d, job, a, b := handover(t)
	if got := d.targets(job); got != "release a-n2 b-n3" {
		t.Fatal(got)
	}
	list := d.ListRevision("n1")
	d.refused(fsm.CodeBusy, &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand}, "n1")
	d.refused(fsm.CodeBusy, &fsm.DeleteTenant{Name: "a"}, "a")
	d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: job, From: fsm.StepRelease, To: fsm.StepDone})
	d.refused(fsm.CodeStale, &fsm.EndRelease{ID: job + 1})
	if d.ListRevision("n1") != list {
		t.Error("a unit that moves is still the source's: nothing has changed for its list")
	}
	r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a, {Unit: "b", ID: b.ID - 1}, {Unit: "bare", ID: 1}}})
	if got := flips(r); got != "a n1-n2 left [b]" {
		t.Fatal(got)
	}
	d.want("a b bare", "a n2 active flipped after n1, b n1 active, bare n1 active")
	if got := d.targets(job); got != "thaw b-n3" {
		t.Fatal(got)
	}
	d.refused(fsm.CodeStale, &fsm.EndRelease{ID: job, Released: []fsm.UnitRef{b}})
	d.refused(fsm.CodeBusy, &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand})
	if n, _ := d.Node("n1"); n.Lost {
		t.Error("a node that handed over is not lost")
	}
	d.ok(&fsm.NoteJob{ID: job, Problem: "n1 does not answer"})
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepThaw, To: fsm.StepDone})
	if j, _ := d.Job(job); j.Ended == 0 || j.Source != "n1" || j.Cause != fsm.CauseStopped {
		t.Errorf("%+v", j)
	}
	again := d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand, Units: []fsm.UnitRef{b, b, {Unit: "a", ID: a.ID}}}).Job
	if r := d.ok(&fsm.EndRelease{ID: again, Released: []fsm.UnitRef{b}}); flips(r) != "b n1-n3 left []" {
		t.Fatal(flips(r))
	}
	if j, _ := d.Job(again); j.Step != fsm.StepDone || len(j.Targets) != 1 {
		t.Errorf("%+v: it has ended, and says what it worked on", j)
	}
}

func TestL6WhoCanHandOver(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2", "n3")
	b := d.replicated("b", "n1", "n2")
	hand := func(f func(*fsm.BeginHandover)) *fsm.BeginHandover {
		h := &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand, Silent: []fsm.NodeName{"n2"}}
		f(h)
		return h
	}
	d.refused(fsm.CodeNodeUnknown, hand(func(h *fsm.BeginHandover) { h.Node = "n9" }), "n9")
	d.refused(fsm.CodeBadRequest, hand(func(h *fsm.BeginHandover) { h.Cause = fsm.CauseLapsed }))
	d.refused(fsm.CodeNoCopy, hand(func(h *fsm.BeginHandover) { h.Node = "n3" }), "n3")
	d.refused(fsm.CodeNoCopy, hand(func(h *fsm.BeginHandover) { h.Units = []fsm.UnitRef{b} }), "b")
	d.refused(fsm.CodeNoCopy, hand(func(h *fsm.BeginHandover) { h.Units = []fsm.UnitRef{{Unit: "a", ID: a.ID + 1}} }))
	job := d.ok(hand(func(*fsm.BeginHandover) {})).Job
	if got := d.targets(job); got != "release a-n3" {
		t.Fatal(got)
	}
	// The target falls behind meanwhile: the other one takes over.
	d.change(a, "n3", fsm.CopyInSync, fsm.CopySyncing)
	if r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a}}); flips(r) != "a n1-n2 left []" {
		t.Fatal(flips(r))
	}
	d.wantCopies("a", "n1 former, n3 syncing")
	// And where there is no other, the source takes it back.
	job = d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseBehind}).Job
	d.change(b, "n2", fsm.CopyInSync, fsm.CopySyncing)
	if r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{b}}); flips(r) != " left [b]" || d.targets(job) != "thaw b-n2" {
		t.Fatal(flips(r), d.targets(job))
	}
}

// A node that is behind hands over to the copy that is ahead, though another would come
// first (architecture §3.7.4).
func TestTheCopyThatIsAheadIsChosen(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2", "n3")
	to := func(n fsm.NodeName) []fsm.Flip { return []fsm.Flip{{UnitRef: a, From: "n1", To: n}} }
	job := d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseBehind, Choices: to("n3")}).Job
	if got := d.targets(job); got != "release a-n3" {
		t.Fatal(got)
	}
	if j, _ := d.Job(job); j.Forced {
		t.Error("nothing is forced of a copy in sync")
	}
	if r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a}}); flips(r) != "a n1-n3 left []" {
		t.Fatal(flips(r))
	}
	// One that is not in sync is no choice but by hand.
	d = leased(t, "n1", "n2", "n3")
	a = d.replicated("a", "n1", "n2", "n3")
	d.change(a, "n3", fsm.CopyInSync, fsm.CopySyncing)
	job = d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseBehind, Choices: to("n3")}).Job
	if got := d.targets(job); got != "release a-n2" {
		t.Fatal(got)
	}
}

// By hand a unit without a copy in sync goes to the one that is named, also at the end,
// and where another came in sync meanwhile to that one.
func TestL6AHandoverIsForced(t *testing.T) {
	begin := func() (d *dir, job fsm.JobID, a fsm.UnitRef) {
		d = leased(t, "n1", "n2", "n3")
		a = d.replicated("a", "n1", "n2", "n3")
		for _, n := range []fsm.NodeName{"n2", "n3"} {
			d.change(a, n, fsm.CopyInSync, fsm.CopySyncing)
		}
		forced := &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand, Units: []fsm.UnitRef{a}, Choices: []fsm.Flip{{UnitRef: a, From: "n1", To: "n3"}}}
		for _, bad := range []func(h *fsm.BeginHandover){
			func(h *fsm.BeginHandover) { h.Choices = nil },
			func(h *fsm.BeginHandover) { h.Cause = fsm.CauseBehind },
			func(h *fsm.BeginHandover) { h.Silent = []fsm.NodeName{"n3"} },
			func(h *fsm.BeginHandover) { h.Choices = []fsm.Flip{{UnitRef: a, From: "n2", To: "n3"}} },
			func(h *fsm.BeginHandover) { h.Choices = []fsm.Flip{{UnitRef: a, From: "n1", To: "n9"}} },
		} {
			h := *forced
			bad(&h)
			d.refused(fsm.CodeNoCopy, &h, "n1")
		}
		job = d.ok(forced).Job
		if j, _ := d.Job(job); !j.Forced || d.targets(job) != "release a-n3" {
			t.Fatalf("%+v", j)
		}
		return d, job, a
	}
	d, job, a := begin()
	if r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a}}); flips(r) != "a n1-n3 left []" {
		t.Fatal(flips(r))
	}
	d.wantCopies("a", "n1 former, n2 syncing")
	d, job, a = begin()
	d.change(a, "n2", fsm.CopySyncing, fsm.CopyJoining)
	d.change(a, "n2", fsm.CopyJoining, fsm.CopyInSync)
	if r := d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a}}); flips(r) != "a n1-n2 left []" {
		t.Fatal(flips(r))
	}
	d, job, _ = begin()
	if r := d.ok(&fsm.EndRelease{ID: job}); flips(r) != " left [a]" || d.targets(job) != "thaw a-n3" {
		t.Fatal(flips(r), d.targets(job))
	}
}

// The source lapses while it hands over: a failover flips what it holds, the
// target first, and the job goes on with what is left, or ends.
func TestL5TheSourceOfAHandoverIsLost(t *testing.T) {
	d, job, a, b := handover(t)
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: b, Node: "n2"}}})
	d.sync(b, "n2")
	d.change(a, "n2", fsm.CopyInSync, fsm.CopySyncing)
	r := d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	if got := flips(r); got != "b n1-n3 left [a bare]" {
		t.Fatal(got)
	}
	d.want("a b", "a n1 active, b n3 active flipped after n1")
	if got := d.targets(job); got != "thaw a-n2" {
		t.Fatalf("%s: a late release may still reach the source", got)
	}
	if j, _ := d.Job(job); len(d.ToThaw(j)) != 1 {
		t.Fatal("a is to be thawed")
	}
	d.ok(&fsm.DeleteTenant{Name: "a"})
	if j, _ := d.Job(job); len(d.ToThaw(j)) != 0 {
		t.Fatal("a is being deleted, and wants no thaw")
	}
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepThaw, To: fsm.StepDone})

	d, job, _, _ = handover(t)
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	if got := d.targets(job); got != "done a-n2 b-n3" {
		t.Fatal(got)
	}
	d.refused(fsm.CodeStale, &fsm.EndRelease{ID: job, Released: []fsm.UnitRef{a, b}})
}

func TestN6ANodeIsWrittenOff(t *testing.T) {
	d, job, _, b := handover(t)
	force := func(n fsm.NodeName) *fsm.DeleteNode { return &fsm.DeleteNode{Name: n, Force: true} }
	d.refused(fsm.CodeNodeInUse, force("n1"), "n1", "a")
	d.refused(fsm.CodeNodeInUse, force("n3"), "is being given b")
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "n3"}, "a copy of b")
	d.refused(fsm.CodeNodeUnknown, force("n9"))
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.DeleteTenant{Name: "bare"})
	undone := d.ok(&fsm.CreateTenant{Name: "new", Node: ptr(fsm.NodeName("n1"))}).Job
	d.refused(fsm.CodeNodeInUse, force("n1"), "new")
	d.ok(&fsm.AdvanceJob{ID: undone, From: fsm.StepMake, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeNodeUnreachable}})
	// n1 holds former copies, of units that wait for their promotion, and units that are being removed.
	d.ok(force("n1"))
	d.want("a b bare new", "a n2 active after n2, b n3 active after n3, bare  deleting, new  creating")
	d.wantCopies("a", "")
	d.confirm("a")
	d.confirm("b")
	if got := d.targets(job); got != "done a-n2 b-n3" {
		t.Fatal(got)
	}
	p, _ := d.Placed("bare")
	if d.targets(p.Job) != "remove" || d.targets(undone) != "undo" {
		t.Fatal(d.targets(p.Job), d.targets(undone))
	}
	// Jobs without a target are done: nobody has to be asked.
	d.ok(&fsm.AdvanceJob{ID: p.Job, From: fsm.StepRemove, To: fsm.StepDone})
	d.ok(&fsm.AdvanceJob{ID: undone, From: fsm.StepUndo, To: fsm.StepDone})
	d.refused(fsm.CodeTenantUnknown, &fsm.DeleteTenant{Name: "new"})
	// A delete does not wait for a copy's node that is written off, and a thaw ends with its source.
	d.at("n4", "eu", "z4")
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: b, Node: "n4"}}})
	del := d.ok(&fsm.DeleteTenant{Name: "b"}).Job
	d.ok(force("n4"))
	if got := d.targets(del); got != "remove b-n3" {
		t.Fatal(got)
	}
}

func TestL6AFailoverByHandIsAnsweredOnce(t *testing.T) {
	d := leased(t, "n1", "n2")
	d.replicated("a", "n1", "n2")
	d.ok(&fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseNone})
	e := fsm.Entry{Key: "k", Cmd: &fsm.FailOver{Node: "n1", Cause: fsm.CauseHand, Silent: true}}
	first := flips(d.entry(e))
	if r := d.entry(e); !r.Replayed || flips(r) != first {
		t.Fatalf("%+v, first %s", r, first)
	}
}
