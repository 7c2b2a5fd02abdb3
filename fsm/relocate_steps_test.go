package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"domicile/fsm"
)

const (
	departJob  fsm.JobID = 50
	receiveJob fsm.JobID = 60

	// Codes in tables.
	stale = string(fsm.CodeStale)
	busy  = string(fsm.CodeBusy)
	over  = string(fsm.CodeTaskOver)
	gone  = string(fsm.CodeTaskForgone)
)

// foreign is a node of region eu, which has a directory of its own.
func foreign(node fsm.NodeName, epoch uint64) *fsm.Foreign {
	return &fsm.Foreign{Region: "eu", Node: node, Addr: "10.1.0.1:" + string(node[1:]), Epoch: epoch}
}

func word(job fsm.JobID, w fsm.TaskWord, other *fsm.Foreign) fsm.Command {
	return &fsm.TellTask{Origin: origin(1), Job: job, Word: w, Other: other}
}

func forgo(job fsm.JobID, kind fsm.TaskKind, id fsm.UnitID) fsm.Command {
	return &fsm.ForgoTask{Origin: origin(1), Job: job, Kind: kind, Tenant: "x", ID: id}
}

func beginReceive(job fsm.JobID, id fsm.UnitID, epoch uint64) fsm.Command {
	return &fsm.BeginTask{Origin: origin(1), Job: job, Kind: fsm.TaskReceive, Tenant: "x", ID: id, Region: ptr(fsm.RegionName("us")),
		Node: ptr(fsm.NodeName("n1")), Source: foreign("e1", epoch)}
}

// part tells how a task of tenant x stands, and what may be written of it.
func (d *dir) part(job fsm.JobID) string {
	t, ok := d.Task(job)
	if !ok {
		return "unknown"
	}
	text := "over"
	switch j, _ := d.Job(t.Local); {
	case t.Forgone:
		text = "forgone"
	case t.Refusal != nil:
		text += " " + string(t.Refusal.Code)
	case !t.Done:
		if text = j.Step.String(); j.Refusal != nil {
			text += " undone"
		}
		if j.Since != 0 {
			text += " settled"
		}
	}
	if p, ok := d.Placed("x"); ok {
		text += ", " + p.State.String()
		for u := range d.Grantable(p.Node) {
			if u == p {
				text += " granted"
			}
		}
	}
	return text
}

// said gives what becomes of a command at a place: a code, or how the task stands then,
// "=" where that is as before.
func (d *dir) said(t *testing.T, job fsm.JobID, c fsm.Command) string {
	t.Helper()
	at := d.clone(t)
	before := at.part(job)
	r := at.do(c)
	switch {
	case r.Refusal != nil && at.part(job) != before:
		t.Errorf("%+v was refused and made %s of %s", c, at.part(job), before)
		fallthrough
	case r.Refusal != nil:
		return string(r.Refusal.Code)
	case at.part(job) == before:
		return "="
	}
	return at.part(job)
}

// sayings holds what is said of a task, in the order of the columns of the tables below.
func sayings(job fsm.JobID, kind fsm.TaskKind, again fsm.Command) []fsm.Command {
	return []fsm.Command{
		word(job, fsm.TaskRelease, foreign("e1", 0)), word(job, fsm.TaskRelease, foreign("e2", 0)), word(job, fsm.TaskUndo, nil),
		word(job, fsm.TaskDeparted, nil), word(job, fsm.TaskSettled, nil), word(job, fsm.TaskArrived, nil), word(job, fsm.TaskSource, foreign("e2", 9)),
		again, forgo(job, kind, 40),
	}
}

// stepsTo applies, for a place of a table, what leads there.
type stepsTo map[string][]fsm.Command

// TestM5M6WhatIsSaidOfADepartingTenantWhereItStands: a word is taken where it belongs,
// changes nothing where it was said before, and is refused everywhere else. Granted is what
// its own group says may be written.
func TestM5M6WhatIsSaidOfADepartingTenantWhereItStands(t *testing.T) {
	us, x := own(t)
	begin := begin(origin(1), departJob, fsm.TaskDepart, "x", x.ID)
	local := fsm.JobID(us.Revision() + 1)
	release, undo := word(departJob, fsm.TaskRelease, foreign("e1", 0)), word(departJob, fsm.TaskUndo, nil)
	given := &fsm.EndRelease{ID: local, Released: []fsm.UnitRef{x}}
	departed, settled := word(departJob, fsm.TaskDeparted, nil), word(departJob, fsm.TaskSettled, nil)
	done := &fsm.AdvanceJob{ID: local, From: fsm.StepRemove, To: fsm.StepDone}
	to := stepsTo{
		"copy": {begin}, "release": {begin, release}, "not given": {begin, release, &fsm.EndRelease{ID: local}}, "sent": {begin, release, given},
		"taken back": {begin, release, given, undo}, "undone": {begin, undo}, "remove": {begin, release, given, departed},
		"settled": {begin, release, given, departed, settled}, "done": {begin, release, given, departed, settled, done},
		"forgone": {forgo(departJob, fsm.TaskDepart, x.ID)},
	}
	for _, row := range []struct {
		place, stands string
		says          [9]string // release, to another, undo, departed, settled, arrived, source, begun again, forgone
	}{
		{"copy", "copy, active granted", [9]string{"release, moving granted", "release, moving granted", "over move_undone, active granted", stale, stale, stale, stale, "=", "="}},
		{"release", "release, moving granted", [9]string{"=", stale, "thaw undone, active granted", stale, stale, stale, stale, "=", "="}},
		{"not given", "thaw, active granted", [9]string{busy, busy, "thaw undone, active granted", stale, stale, stale, stale, "=", "="}},
		{"sent", "sent, sent", [9]string{"=", stale, "thaw undone, active granted", "remove, deleting", stale, stale, stale, "=", "="}},
		{"taken back", "thaw undone, active granted", [9]string{stale, stale, "=", stale, stale, stale, stale, "=", "="}},
		{"remove", "remove, deleting", [9]string{stale, stale, stale, "=", "remove settled, deleting", stale, stale, "=", "="}},
		{"settled", "remove settled, deleting", [9]string{stale, stale, stale, "=", "=", stale, stale, "=", "="}},
		{"undone", "over move_undone, active granted", [9]string{over, over, "=", over, over, over, over, "=", "="}},
		{"done", "over", [9]string{over, over, over, "=", "=", "=", over, "=", "="}},
		{"forgone", "forgone, active granted", [9]string{over, over, "=", over, over, over, over, gone, "="}},
	} {
		at := us.reach(t, to[row.place])
		if got := at.part(departJob); got != row.stands {
			t.Errorf("%s: it stands at %q, want %q", row.place, got, row.stands)
		}
		for i, c := range sayings(departJob, fsm.TaskDepart, begin) {
			if got := at.said(t, departJob, c); got != row.says[i] {
				t.Errorf("%s: %T %+v gives %q, want %q", row.place, c, c, got, row.says[i])
			}
		}
		onlyGoes(t, at, local, row.place, map[string]string{
			"not given copy": "copy, active granted", "taken back done": "over move_undone, active granted",
			"remove done": "over", "settled done": "over",
		})
	}
}

// reach is a copy of d to which commands were applied.
func (d *dir) reach(t *testing.T, commands []fsm.Command) *dir {
	t.Helper()
	at := d.clone(t)
	for _, c := range commands {
		at.ok(c)
	}
	return at
}

// onlyGoes holds what AdvanceJob and EndRelease do at a place against what is allowed there,
// by place and step.
func onlyGoes(t *testing.T, at *dir, local fsm.JobID, place string, allowed map[string]string) {
	t.Helper()
	j, ok := at.Job(local)
	if !ok {
		return
	}
	for step := fsm.JobStep(0); step <= 14; step++ {
		for _, why := range []*fsm.Refusal{nil, {Code: fsm.CodeMoveUndone}} {
			got := at.said(t, j.Task, &fsm.AdvanceJob{ID: local, From: j.Step, To: step, Refusal: why})
			want := allowed[place+" "+step.String()]
			if want == "" || why != nil {
				want = string(fsm.CodeBadRequest)
			}
			if j.Ended != 0 {
				want = string(fsm.CodeStale)
			}
			if got != want {
				t.Errorf("%s: to %s, refused %v: %q, want %q", place, step, why != nil, got, want)
			}
		}
		if got := at.said(t, j.Task, &fsm.AdvanceJob{ID: local, From: j.Step + 1, To: step}); got != string(fsm.CodeStale) {
			t.Errorf("%s: from another step to %s: %q", place, step, got)
		}
	}
	if r := at.clone(t).do(&fsm.EndRelease{ID: local}); (r.Refusal == nil) != (place == "release") {
		t.Errorf("%s: the end of a release: %v", place, r.Refusal)
	}
}

// TestM5M6WhatIsSaidOfAReceivedTenantWhereItStands is the same for the other side: nothing
// of it may be written before it has arrived and was promoted.
func TestM5M6WhatIsSaidOfAReceivedTenantWhereItStands(t *testing.T) {
	us := region(t, "us")
	for _, n := range []fsm.NodeName{"n1", "n2"} {
		us.ok(&fsm.PutNode{Name: n, Addr: ptr("10.0.0." + string(n[1:]) + ":8081"), Token: ptr("t")})
		us.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	begin := beginReceive(receiveJob, 40, 7)
	local := fsm.JobID(us.Revision() + 1)
	arrived := word(receiveJob, fsm.TaskArrived, nil)
	promoted := &fsm.ConfirmPromotion{Node: "n1", Epoch: 1<<50 | uint64(local+1), Units: []fsm.UnitRef{{Unit: "x", ID: 40}}}
	given := forgo(receiveJob, fsm.TaskReceive, 40)
	to := stepsTo{
		"copy": {begin}, "promote": {begin, arrived}, "arrived": {begin, arrived, promoted}, "undo": {begin, given},
		"undone": {begin, given, &fsm.AdvanceJob{ID: local, From: fsm.StepUndo, To: fsm.StepDone}}, "forgone": {given},
	}
	for _, row := range []struct {
		place, stands string
		says          [9]string // release, to another, undo, departed, settled, arrived, source, begun again, forgone
	}{
		{"copy", "copy, receiving", [9]string{stale, stale, stale, stale, stale, "promote, active", "=", "=", "undo undone, deleting"}},
		{"promote", "promote, active", [9]string{stale, stale, stale, stale, stale, "=", stale, "=", "="}},
		{"undo", "undo undone, deleting", [9]string{stale, stale, stale, stale, stale, stale, stale, "=", "="}},
		{"arrived", "over, active granted", [9]string{over, over, over, "=", "=", "=", over, "=", "="}},
		{"undone", "over task_forgone", [9]string{over, over, "=", over, over, over, over, "=", "="}},
		{"forgone", "forgone", [9]string{over, over, "=", over, over, over, over, gone, "="}},
	} {
		at := us.reach(t, to[row.place])
		if got := at.part(receiveJob); got != row.stands {
			t.Errorf("%s: it stands at %q, want %q", row.place, got, row.stands)
		}
		for i, c := range sayings(receiveJob, fsm.TaskReceive, begin) {
			if got := at.said(t, receiveJob, c); got != row.says[i] {
				t.Errorf("%s: %T %+v gives %q, want %q", row.place, c, c, got, row.says[i])
			}
		}
		onlyGoes(t, at, local, row.place, map[string]string{"undo done": "over task_forgone"})
	}
	// The source was failed over: its copy is followed, in its epoch, and what is promoted
	// later goes on above that.
	at := us.reach(t, []fsm.Command{begin, word(receiveJob, fsm.TaskSource, foreign("e2", 3<<50|9)), arrived})
	if p, _ := at.Placed("x"); p.Epoch>>50 != 4 || p.Node != "n1" {
		t.Errorf("x goes on as %+v", *p)
	}
}

// relocating are the three ways from one directory to another, in a global one that keeps
// region eu itself: what BeginRelocation names, and what leads to the flip.
type relocating struct {
	name     string
	from, to fsm.RegionName
}

// begun is a global directory with tenant x in a region and a relocation of it.
func (r relocating) begun(t *testing.T) (*dir, fsm.JobID) {
	d := leased(t, "e1", "e2")
	for _, own := range []fsm.RegionName{"us", "tr"} {
		d.ok(&fsm.PutRegion{Region: fsm.Region{Name: own, Routers: []string{"http://" + string(own) + ":1"}}})
	}
	d.step(d.ok(&fsm.CreateTenant{Name: "x", Region: &r.from}).Job, fsm.StepDone)
	return d, d.ok(&fsm.BeginRelocation{Tenant: "x", Region: r.to}).Job
}

// ready has this directory's part of a relocation stand where the tenant can flip.
func (r relocating) ready(d *dir, move fsm.JobID) {
	scope, _ := d.Scope()
	o := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: d.Floor()}
	j, _ := d.Job(move)
	if r.from == "eu" {
		local := d.ok(&fsm.BeginTask{Origin: o, Job: move, Kind: fsm.TaskDepart, Tenant: "x", ID: j.Unit}).Task.Local
		d.ok(&fsm.TellTask{Origin: o, Job: move, Word: fsm.TaskRelease, Other: foreign("u1", 0)})
		d.ok(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{{Unit: "x", ID: j.Unit}}})
	}
	if r.to == "eu" {
		d.ok(&fsm.BeginTask{Origin: o, Job: move, Kind: fsm.TaskReceive, Tenant: "x", ID: j.Unit, Region: &r.to, Source: foreign("u1", 7)})
	}
}

// TestM1I4AHomeChangesInOneStepOfARelocationAlone, which comes from its release alone; what
// this directory has of either side has to stand where that can be.
func TestM1I4AHomeChangesInOneStepOfARelocationAlone(t *testing.T) {
	steps := map[string][]fsm.JobStep{"copy": nil, "release": {fsm.StepRelease}, "copy again": {fsm.StepRelease, fsm.StepCopy},
		"promote": {fsm.StepRelease, fsm.StepPromote}, "clean": {fsm.StepRelease, fsm.StepPromote, fsm.StepClean},
		"done": {fsm.StepRelease, fsm.StepPromote, fsm.StepClean, fsm.StepDone}, "undo": {fsm.StepUndo}, "undo late": {fsm.StepRelease, fsm.StepUndo},
		"undone": {fsm.StepUndo, fsm.StepDone}}
	goes := map[string][]fsm.JobStep{"copy": {fsm.StepRelease}, "copy again": {fsm.StepRelease}, "release": {fsm.StepCopy, fsm.StepPromote},
		"promote": {fsm.StepClean}, "clean": {fsm.StepDone}, "undo": {fsm.StepDone}, "undo late": {fsm.StepDone}}
	why := &fsm.Refusal{Code: fsm.CodeMoveUndone, Text: "no"}
	for _, r := range []relocating{{"between two of their own", "us", "tr"}, {"away from here", "eu", "us"}, {"to here", "us", "eu"}} {
		for place, path := range steps {
			d, move := r.begun(t)
			if len(path) > 1 && path[1] == fsm.StepPromote {
				r.ready(d, move)
			}
			for _, to := range path {
				if to == fsm.StepDone {
					d.partEnds(move)
				}
				d.take(move, to, why)
			}
			j, _ := d.Job(move)
			flipped := slices.Contains(path, fsm.StepPromote)
			want := map[bool]fsm.RegionName{false: r.from, true: r.to}[flipped]
			if home, ok := d.TenantRegion("x"); !ok || home != want || (j.Refusal != nil) != slices.Contains(path, fsm.StepUndo) {
				t.Errorf("%s, %s: x lives in %q, the job is %+v", r.name, place, home, *j)
			}
			for to := fsm.JobStep(0); to <= 14; to++ {
				for _, because := range []*fsm.Refusal{nil, why, {}} {
					got := d.clone(t).do(&fsm.AdvanceJob{ID: move, From: j.Step, To: to, Refusal: because}).Refusal
					ok := because == nil && slices.Contains(goes[place], to) || because == why && to == fsm.StepUndo && (j.Step == fsm.StepCopy || j.Step == fsm.StepRelease)
					switch {
					case j.Ended != 0:
						mustBe(t, got, fsm.CodeStale, r.name, place, to)
					case ok && (to == fsm.StepPromote || place == "clean") && (r.from == "eu" || r.to == "eu"): // nothing was begun for it here, or is not over
						mustBe(t, got, fsm.CodeStale, r.name, place, to)
					case ok:
						mustBe(t, got, "", r.name, place, to)
					default:
						mustBe(t, got, fsm.CodeBadRequest, r.name, place, to)
					}
				}
				if got := d.clone(t).do(&fsm.AdvanceJob{ID: move, From: j.Step, To: to, Keep: 4}).Refusal; j.Ended == 0 {
					mustBe(t, got, fsm.CodeBadRequest, r.name, place, to)
				}
			}
			canBeCancelled := d.clone(t).do(&fsm.CancelMove{ID: move}).Refusal
			mustBe(t, canBeCancelled, map[bool]fsm.Code{true: "", false: fsm.CodeMoveReleased}[j.Step == fsm.StepCopy], r.name, place, fsm.StepUndo, fsm.CodeMoveEnded)
		}
	}
}

// partEnds has this directory's part of a relocation that has flipped end.
func (d *dir) partEnds(move fsm.JobID) {
	d.t.Helper()
	t, ok := d.Task(move)
	if !ok {
		return
	}
	if p, _ := d.Placed("x"); t.Kind == fsm.TaskReceive {
		d.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "x", ID: p.ID}}})
		return
	}
	d.ok(&fsm.AdvanceJob{ID: t.Local, From: fsm.StepRemove, To: fsm.StepDone})
}

// take takes a job to a step, with a reason where it is undone.
func (d *dir) take(id fsm.JobID, to fsm.JobStep, why *fsm.Refusal) {
	d.t.Helper()
	j, _ := d.Job(id)
	if to != fsm.StepUndo {
		why = nil
	}
	d.ok(&fsm.AdvanceJob{ID: id, From: j.Step, To: to, Refusal: why})
}

// mustBe fails unless a refusal is of a code, or of one of others.
func mustBe(t *testing.T, got *fsm.Refusal, want fsm.Code, name, place string, to fsm.JobStep, others ...fsm.Code) {
	t.Helper()
	code := fsm.Code("")
	if got != nil {
		code = got.Code
	}
	if code != want && !slices.Contains(others, code) {
		t.Errorf("%s, %s, to %s: refused with %q, want %q", name, place, to, code, want)
	}
}

// TestM1WhatIsNotRelocated is refused with what helps, and nothing of it begins.
func TestM1WhatIsNotRelocated(t *testing.T) {
	d, move := relocating{"", "us", "tr"}.begun(t)
	d.take(move, fsm.StepUndo, &fsm.Refusal{Code: fsm.CodeMoveUndone})
	d.refused(fsm.CodeBusy, &fsm.BeginRelocation{Tenant: "x", Region: "tr"}, "x")
	d.take(move, fsm.StepDone, nil)
	d.step(d.ok(&fsm.CreateTenant{Name: "here", Node: ptr(fsm.NodeName("e1"))}).Job, fsm.StepDone)
	d.at("o1", "ap", "z")
	local := d.ok(&fsm.BeginMove{Unit: "here", To: "e2", Cause: fsm.CauseMove}).Job
	coming := d.ok(&fsm.CreateTenant{Name: "coming", Region: ptr(fsm.RegionName("us"))}).Job
	for _, row := range []struct {
		tenant fsm.TenantName
		region fsm.RegionName
		to     *fsm.NodeName
		code   fsm.Code
		names  string
	}{
		{"none", "us", nil, fsm.CodeTenantUnknown, "none"},
		{"coming", "tr", nil, fsm.CodeTenantUnknown, "coming"},
		{"x", "Bad", nil, fsm.CodeBadRequest, "Bad"},
		{"x", "tr", ptr(fsm.NodeName("@u")), fsm.CodeBadRequest, "@u"},
		{"x", "sa", nil, fsm.CodeRegionUnknown, "sa"},
		{"x", "us", nil, fsm.CodeAlreadyThere, "us"},
		{"x", "us", ptr(fsm.NodeName("u2")), fsm.CodeAlreadyThere, "us"}, // that is the region's own to do
		{"here", "us", nil, fsm.CodeBusy, "cancel it"},
	} {
		d.refused(row.code, &fsm.BeginRelocation{Tenant: row.tenant, Region: row.region, To: row.to}, row.names)
	}
	d.ok(&fsm.CancelMove{ID: local})
	d.refused(fsm.CodeBadRequest, &fsm.BeginRelocation{Tenant: "here", Region: "ap"}, "like any other")
	d.ok(&fsm.AdvanceJob{ID: coming, From: fsm.StepMake, To: fsm.StepDone})
	deleting := d.ok(&fsm.DeleteTenant{Name: "coming"}).Job
	d.refused(fsm.CodeBusy, &fsm.BeginRelocation{Tenant: "coming", Region: "tr"})
	d.ok(&fsm.AdvanceJob{ID: deleting, From: fsm.StepRemove, To: fsm.StepDone})
	us := region(t, "us")
	us.refused(fsm.CodeNotOwner, &fsm.BeginRelocation{Tenant: "x", Region: "tr"})
}

// TestM5ALaterTenantOfTheNameHearsNothingOfTheFormerOnesMoves: x of entry 40 leaves, comes
// back and leaves again, and is deleted; x of entry 90 is another tenant. Each word of each
// of those moves comes late.
func TestM5ALaterTenantOfTheNameHearsNothingOfTheFormerOnesMoves(t *testing.T) {
	us, x := own(t)
	us.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: x, Node: "n2"}}})
	var late []fsm.Command
	say := func(c fsm.Command) fsm.Result {
		late = append(late, c)
		return us.ok(c)
	}
	leave := func(job fsm.JobID) {
		local := say(begin(origin(1), job, fsm.TaskDepart, "x", x.ID)).Task.Local
		say(word(job, fsm.TaskRelease, foreign("e1", 0)))
		say(&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{x}})
		say(word(job, fsm.TaskDeparted, nil))
		say(word(job, fsm.TaskSettled, nil))
		us.refused(fsm.CodeBusy, beginReceive(job+1, x.ID, 7)) // what is left is in the way, for a while
		say(&fsm.AdvanceJob{ID: local, From: fsm.StepRemove, To: fsm.StepDone})
		if _, ok := us.Tenant("x"); ok {
			t.Fatal("x is there still")
		}
	}
	was, _ := us.Placed("x")
	leave(50)
	abroad := 1<<50 | uint64(4000) // it was promoted there, in an entry of a higher revision
	say(beginReceive(60, x.ID, abroad))
	say(word(60, fsm.TaskArrived, nil))
	p, _ := us.Placed("x")
	if p.Epoch <= abroad || p.Epoch>>50 != 2 || p.Epoch <= was.Epoch || p.ID != x.ID {
		t.Errorf("x is back as %+v, in generation %d", *p, p.Epoch>>50)
	}
	us.ok(&fsm.ConfirmPromotion{Node: "n1", Epoch: abroad, Units: []fsm.UnitRef{x}}) // of the branch abroad
	if p, _ := us.Placed("x"); p.Promoted() {
		t.Error("another directory's promotion counts here")
	}
	say(&fsm.ConfirmPromotion{Node: "n1", Epoch: p.Epoch, Units: []fsm.UnitRef{x}})
	leave(70)

	made := us.ok(begin(origin(1), 90, fsm.TaskCreate, "x", 90)).Task.Local
	us.step(made, fsm.StepDone)
	p, _ = us.Placed("x")
	if p.ID != 90 || p.Epoch != 1 {
		t.Fatalf("another tenant x is %+v", *p)
	}
	before := fmt.Sprint(*p, us.copies("x"))
	unchanged := func(c fsm.Command) {
		t.Helper()
		us.do(c)
		if now, ok := us.Placed("x"); !ok || fmt.Sprint(*now, us.copies("x")) != before {
			t.Errorf("late, %T %+v made %+v of %s", c, c, now, before)
		}
	}
	late = append(late, begin(origin(1), 80, fsm.TaskDelete, "x", x.ID), beginReceive(81, x.ID, abroad), begin(origin(1), 82, fsm.TaskDepart, "x", x.ID),
		forgo(60, fsm.TaskReceive, x.ID), word(50, fsm.TaskUndo, nil), word(60, fsm.TaskSource, foreign("e9", 9)), &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed, Choices: []fsm.Flip{{UnitRef: x, From: "n1", To: "n2"}}})
	for _, c := range late {
		unchanged(c)
	}
	us.ok(begin(origin(91), 91, fsm.TaskDelete, "none", 91)) // the older jobs have ended
	for _, c := range late {
		unchanged(c)
		if told, ok := c.(*fsm.TellTask); ok {
			us.refused(fsm.CodeTaskOver, told)
		}
	}
	// Its own move begins anew: it was in no other directory yet.
	local := us.ok(begin(origin(91), 100, fsm.TaskDepart, "x", 90)).Task.Local
	for _, c := range late {
		us.do(c)
	}
	if j, ok := us.Job(local); !ok || j.Step != fsm.StepCopy || us.part(100) != "copy, active granted" {
		t.Errorf("the later tenant's own move stands at %s", us.part(100))
	}
}
