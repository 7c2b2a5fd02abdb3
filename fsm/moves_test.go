package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// moving gives a directory with n1 to n3 in eu, m1 and m2 in us, and tenant a on n1 with
// an in-sync copy on n2.
func moving(t *testing.T) (*dir, fsm.UnitRef) {
	d := leased(t, "n1", "n2", "n3")
	for _, n := range []fsm.NodeName{"m1", "m2"} {
		d.at(n, "us", fsm.ZoneName("z-"+n))
		d.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	return d, d.replicated("a", "n1", "n2")
}

func moveTo(n fsm.NodeName, region fsm.RegionName) *fsm.BeginMove {
	return &fsm.BeginMove{Unit: "a", To: n, Region: &region, Cause: fsm.CauseMove}
}

// step takes a move from where it stands to a step.
func (d *dir) step(id fsm.JobID, to fsm.JobStep) {
	d.t.Helper()
	j, _ := d.Job(id)
	d.ok(&fsm.AdvanceJob{ID: id, From: j.Step, To: to})
}

// upTo takes a move to a node as far as a step.
func (d *dir) upTo(step fsm.JobStep, to fsm.NodeName, region fsm.RegionName) fsm.JobID {
	d.t.Helper()
	id := d.ok(moveTo(to, region)).Job
	for _, next := range []fsm.JobStep{fsm.StepCopy, fsm.StepRelease, fsm.StepPromote, fsm.StepClean} {
		if j, _ := d.Job(id); j.Step == step {
			break
		}
		p, _ := d.Placed("a")
		switch next {
		case fsm.StepPromote:
			e := &fsm.EndRelease{ID: id}
			if step != fsm.StepThaw {
				e.Released = []fsm.UnitRef{{Unit: "a", ID: p.ID}}
			}
			d.ok(e)
		case fsm.StepClean:
			d.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "a", ID: p.ID}}})
		default:
			d.step(id, next)
		}
	}
	if j, _ := d.Job(id); j.Step != step {
		d.t.Fatalf("the move is at %s, not at %s", j.Step, step)
	}
	return id
}

// move tells of a job and its unit.
func (d *dir) move(id fsm.JobID) string {
	j, _ := d.Job(id)
	text := j.Step.String()
	if j.Refusal != nil {
		text += " " + string(j.Refusal.Code)
	}
	p, ok := d.Placed("a")
	if !ok {
		return text
	}
	return fmt.Sprintf("%s: %s %s; %s", text, p.Node, p.State, d.copies("a"))
}

func TestM2I4AMoveGoesThroughItsSteps(t *testing.T) {
	for _, c := range []struct {
		to     fsm.NodeName
		region fsm.RegionName
		steps  []string
	}{
		{"n3", "eu", []string{
			"queue: n1 active; n2 in_sync", "copy: n1 active; n2 in_sync, n3 target", "release: n1 moving; n2 in_sync, n3 target",
			"promote: n3 active; n1 former, n2 in_sync", "clean: n3 active; n1 former, n2 in_sync",
		}},
		{"n2", "eu", []string{ // a switch-over: nothing is copied
			"queue: n1 active; n2 in_sync", "copy: n1 active; n2 in_sync", "release: n1 moving; n2 in_sync",
			"promote: n2 active; n1 former", "clean: n2 active; n1 former",
		}},
		{"m1", "us", []string{ // the replica to be goes along, and the old one leaves (M4)
			"queue: n1 active; n2 in_sync", "copy: n1 active; m1 target, m2 target, n2 in_sync",
			"release: n1 moving; m1 target, m2 target, n2 in_sync",
			"promote: m1 active; m2 syncing, n1 former, n2 leaving", "clean: m1 active; m2 syncing, n1 former, n2 leaving",
		}},
	} {
		d, u := moving(t)
		for i, step := range []fsm.JobStep{fsm.StepQueue, fsm.StepCopy, fsm.StepRelease, fsm.StepPromote, fsm.StepClean} {
			d, u = moving(t)
			id := d.upTo(step, c.to, c.region)
			if got := d.move(id); got != c.steps[i] {
				t.Errorf("to %s: %q, want %q", c.to, got, c.steps[i])
			}
			if _, by := d.Move("a"); by == (step == fsm.StepClean) {
				t.Errorf("to %s at %s: the unit knows its move: %v", c.to, step, by)
			}
		}
		p, _ := d.Placed("a")
		if p.Epoch == 1 || p.ID != u.ID {
			t.Errorf("%+v: a flip gives an epoch, and the unit stays the same", p)
		}
	}
}

// What undoes a move at each step, and what is left of it then (M5).
func TestM5M7AMoveIsUndoneBeforeItFlipsAndNotAfter(t *testing.T) {
	undo := func(d *dir, id fsm.JobID) fsm.Command {
		j, _ := d.Job(id)
		return &fsm.AdvanceJob{ID: id, From: j.Step, To: fsm.StepDone, Refusal: &fsm.Refusal{Code: fsm.CodeMoveUndone, Text: "no"}}
	}
	for step, want := range map[fsm.JobStep][2]string{ // after an undo, after a cancel; "" is refused
		fsm.StepQueue:   {"done move_undone: n1 active; n2 in_sync", "done cancelled: n1 active; n2 in_sync"},
		fsm.StepCopy:    {"done move_undone: n1 active; m1 leaving, m2 leaving, n2 in_sync", "done cancelled: n1 active; m1 leaving, m2 leaving, n2 in_sync"},
		fsm.StepRelease: {},
		// The source may have frozen, so that it has to answer the thaw first.
		fsm.StepThaw:    {"done move_undone: n1 active; m1 leaving, m2 leaving, n2 in_sync", "thaw cancelled: n1 active; m1 leaving, m2 leaving, n2 in_sync"},
		fsm.StepPromote: {},
		fsm.StepClean:   {},
	} {
		d, _ := moving(t)
		id := d.upTo(step, "m1", "us")
		if want[0] == "" {
			d.refused(fsm.CodeBadRequest, undo(d, id))
			d.refused(fsm.CodeMoveReleased, &fsm.CancelMove{ID: id}, "a")
			continue
		}
		d.ok(undo(d, id))
		if got := d.move(id); got != want[0] {
			t.Errorf("undone at %s: %q, want %q", step, got, want[0])
		}
		d.refused(fsm.CodeMoveEnded, &fsm.CancelMove{ID: id})
		d, _ = moving(t)
		id = d.upTo(step, "m1", "us")
		d.ok(&fsm.CancelMove{ID: id, Reason: strings.Repeat("x", 10_000)})
		if got := d.move(id); got != want[1] {
			t.Errorf("cancelled at %s: %q, want %q", step, got, want[1])
		}
		if step == fsm.StepThaw {
			d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: id, From: fsm.StepThaw, To: fsm.StepCopy})
			d.ok(undo(d, id))
			if j, _ := d.Job(id); j.Refusal.Code != fsm.CodeCancelled {
				t.Errorf("%+v: it was cancelled", j.Refusal)
			}
		}
	}
	d, _ := moving(t)
	d.refused(fsm.CodeMoveUnknown, &fsm.CancelMove{ID: 3})
	id := d.upTo(fsm.StepCopy, "n3", "eu")
	d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: fsm.StepDone, Refusal: &fsm.Refusal{}})
	for _, to := range []fsm.JobStep{fsm.StepQueue, fsm.StepPromote, fsm.StepClean, fsm.StepThaw, fsm.StepDone} {
		d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: to})
	}
	d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: id, From: fsm.StepQueue, To: fsm.StepCopy})
}

func TestM1T7WhereATenantIsNotMoved(t *testing.T) {
	d, _ := moving(t)
	us, eu, ap := fsm.RegionName("us"), fsm.RegionName("eu"), fsm.RegionName("ap")
	by := func(change func(*fsm.BeginMove)) *fsm.BeginMove {
		m := &fsm.BeginMove{Unit: "a", Cause: fsm.CauseMove}
		change(m)
		return m
	}
	d.refused(fsm.CodeBadRequest, by(func(*fsm.BeginMove) {}))
	d.refused(fsm.CodeRegionMismatch, by(func(m *fsm.BeginMove) { m.To = "m1" }), "us", "eu")
	d.refused(fsm.CodeRegionMismatch, by(func(m *fsm.BeginMove) { m.To, m.Region = "m1", &eu }), "us", "eu")
	d.refused(fsm.CodeNodeUnknown, by(func(m *fsm.BeginMove) { m.To = "n9" }), "n9")
	d.refused(fsm.CodeRegionUnknown, by(func(m *fsm.BeginMove) { m.Region = &ap }), "ap")
	d.refused(fsm.CodeAlreadyThere, by(func(m *fsm.BeginMove) { m.To = "n1" }), "n1")
	d.refused(fsm.CodeAlreadyThere, by(func(m *fsm.BeginMove) { m.Region = &eu }), "eu", "n1")
	d.refused(fsm.CodeNodeUnreachable, by(func(m *fsm.BeginMove) { m.To, m.Silent = "n3", []fsm.NodeName{"n3"} }), "n3")
	d.refused(fsm.CodeNoNode, by(func(m *fsm.BeginMove) { m.Region, m.Silent = &us, []fsm.NodeName{"m1", "m2"} }), "us")
	d.refused(fsm.CodeTenantUnknown, by(func(m *fsm.BeginMove) { m.Unit, m.To = "b", "n3" }), "b")
	d.refused(fsm.CodeBadRequest, by(func(m *fsm.BeginMove) { m.To, m.Cause = "n3", fsm.CauseHand }))
	d.refused(fsm.CodeStale, by(func(m *fsm.BeginMove) { m.Cause = fsm.CauseDrain }), "n1")
	d.ok(&fsm.PutNode{Name: "n2", Standby: ptr(fsm.NodeName("n3"))})
	d.refused(fsm.CodeNodeIsStandby, by(func(m *fsm.BeginMove) { m.To = "n3" }), "n3", "n2")
	d.ok(&fsm.PutNode{Name: "n2", Standby: ptr(fsm.NodeName(""))})
	d.ok(&fsm.SetDrain{Node: "n3", Drain: true, Forced: true})
	d.refused(fsm.CodeNodeDraining, by(func(m *fsm.BeginMove) { m.To = "n3" }), "n3")
	d.ok(&fsm.SetDrain{Node: "n3"})
	d.ok(&fsm.FailOver{Node: "n3", Cause: fsm.CauseLapsed})
	d.refused(fsm.CodeNodeLost, by(func(m *fsm.BeginMove) { m.To = "n3" }), "n3")
	d.ok(&fsm.NodeBack{Node: "n3"})
	d.ok(&fsm.SetPin{Tenant: "a", Pinned: true})
	d.refused(fsm.CodePinned, by(func(m *fsm.BeginMove) { m.To, m.Cause = "n3", fsm.CauseRebalance }), "a", "n1")
	d.ok(moveTo("n3", "eu")) // by hand it goes
	d.refused(fsm.CodeBusy, moveTo("n3", "eu"), "n3")
}

// A tenant that is pinned after a move of a drain or a rebalance began stays (T7).
func TestT7APinHoldsAMoveThatNoPersonAskedFor(t *testing.T) {
	for _, at := range []fsm.JobStep{fsm.StepQueue, fsm.StepCopy} {
		for _, forced := range []bool{false, true} {
			d, _ := moving(t)
			d.ok(&fsm.SetDrain{Node: "n1", Drain: true, Forced: true})
			id := d.ok(&fsm.BeginMove{Unit: "a", To: "n3", Cause: fsm.CauseDrain, Forced: forced}).Job
			next := fsm.StepCopy
			if at == fsm.StepCopy {
				d.step(id, fsm.StepCopy)
				next = fsm.StepRelease
			}
			d.ok(&fsm.SetPin{Tenant: "a", Pinned: true})
			if cmd := (&fsm.AdvanceJob{ID: id, From: at, To: next}); forced {
				d.ok(cmd)
			} else {
				d.refused(fsm.CodePinned, cmd, "a")
			}
		}
	}
}
