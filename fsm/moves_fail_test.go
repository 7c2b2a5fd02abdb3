package fsm_test

import (
	"testing"

	"domicile/fsm"
)

var moveSteps = []fsm.JobStep{fsm.StepQueue, fsm.StepCopy, fsm.StepRelease, fsm.StepThaw, fsm.StepPromote, fsm.StepClean}

// What else happens at each step of a move to m1, in another region, and what it is then:
// "" where it is refused.
func TestM5WhatBecomesOfAMoveAtEachStep(t *testing.T) {
	const away = "n1 former, n2 leaving"
	for name, c := range map[string]struct {
		do   func(d *dir) fsm.Command
		code fsm.Code
		want [6]string
	}{
		"the source is lost": {func(*dir) fsm.Command { return &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed} }, "", [6]string{
			"queue: n2 active; n1 former", "copy: n2 active; m1 target, m2 target, n1 former", "copy: n2 active; m1 target, m2 target, n1 former",
			"thaw: n2 active; m1 target, m2 target, n1 former", "promote: m1 active; m2 syncing, " + away, "clean: m1 active; m2 syncing, " + away,
		}},
		// Until it is promoted the source may have it again, though it is elsewhere.
		"the target is lost": {func(*dir) fsm.Command { return &fsm.FailOver{Node: "m1", Cause: fsm.CauseLapsed} }, "", [6]string{
			"queue: n1 active; n2 in_sync", "copy: n1 active; m1 target, m2 target, n2 in_sync", "release: n1 moving; m1 target, m2 target, n2 in_sync",
			"thaw: n1 active; m1 target, m2 target, n2 in_sync", "promote: n1 active; m1 former, m2 leaving, n2 leaving", "clean: m1 active; m2 syncing, " + away,
		}},
		"it is handed over": {func(*dir) fsm.Command { return &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand} }, fsm.CodeNoCopy, [6]string{
			"queue: n1 moving; n2 in_sync", "copy: n1 moving; m1 target, m2 target, n2 in_sync", "", "thaw: n1 moving; m1 target, m2 target, n2 in_sync", "", "",
		}},
		// A failover never leaves the region, whatever copies there are (L8).
		"it is forced elsewhere": {func(d *dir) fsm.Command {
			p, _ := d.Placed("a")
			d.change(fsm.UnitRef{Unit: "a", ID: p.ID}, "n2", fsm.CopyInSync, fsm.CopySyncing)
			return &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand, Choices: []fsm.Flip{{UnitRef: fsm.UnitRef{Unit: "a", ID: p.ID}, From: "n1", To: "m1"}}}
		}, fsm.CodeNoCopy, [6]string{}},
		"it is deleted": {func(*dir) fsm.Command { return &fsm.DeleteTenant{Name: "a"} }, fsm.CodeBusy, [6]string{
			"queue: n1 deleting; n2 in_sync", "copy: n1 deleting; m1 leaving, m2 leaving, n2 in_sync", "",
			"thaw: n1 deleting; m1 leaving, m2 leaving, n2 in_sync", "promote: m1 deleting; m2 syncing, " + away, "clean: m1 deleting; m2 syncing, " + away,
		}},
		"the target is written off": {func(*dir) fsm.Command { return &fsm.DeleteNode{Name: "m1", Force: true} }, fsm.CodeNodeInUse, [6]string{
			"queue move_undone: n1 active; n2 in_sync", "copy move_undone: n1 active; m2 leaving, n2 in_sync", "",
			"thaw move_undone: n1 active; m2 leaving, n2 in_sync", "", "",
		}},
		"the target is deleted": {func(*dir) fsm.Command { return &fsm.DeleteNode{Name: "m1"} }, fsm.CodeNodeInUse, [6]string{}},
		"the target changes its region": {func(*dir) fsm.Command { return &fsm.PutNode{Name: "m1", Region: ptr(fsm.RegionName("eu"))} },
			fsm.CodeNodeInUse, [6]string{}},
		"the target is drained": {func(*dir) fsm.Command { return &fsm.SetDrain{Node: "m1", Drain: true, Forced: true} }, "", [6]string{
			"queue: n1 active; n2 in_sync", "copy: n1 active; m1 target, m2 target, n2 in_sync", "release: n1 moving; m1 target, m2 target, n2 in_sync",
			"thaw: n1 active; m1 target, m2 target, n2 in_sync", "promote: m1 active; m2 syncing, " + away, "clean: m1 active; m2 syncing, " + away,
		}},
	} {
		for i, step := range moveSteps {
			d, _ := moving(t)
			id := d.upTo(step, "m1", "us")
			cmd := c.do(d)
			if name == "it is forced elsewhere" && (step == fsm.StepPromote || step == fsm.StepClean) {
				continue
			}
			if c.want[i] == "" {
				d.refused(c.code, cmd)
				continue
			}
			d.ok(cmd)
			if got := d.move(id); got != c.want[i] {
				t.Errorf("%s at %s: %q, want %q", name, step, got, c.want[i])
			}
		}
	}
}

// A failover that brings a unit to its move's target is as good as the move.
func TestM5AFailoverToTheTargetGoesOn(t *testing.T) {
	for _, step := range []fsm.JobStep{fsm.StepQueue, fsm.StepCopy, fsm.StepRelease, fsm.StepThaw} {
		d, u := moving(t)
		id := d.upTo(step, "n2", "eu")
		d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
		if j, _ := d.Job(id); j.Step != fsm.StepPromote {
			d.step(id, fsm.StepPromote)
		}
		p, _ := d.Placed("a")
		d.ok(&fsm.ConfirmPromotion{Node: "n2", Epoch: p.Epoch, Units: []fsm.UnitRef{u}})
		if got := d.move(id); got != "clean: n2 active; n1 former" {
			t.Errorf("at %s: %q", step, got)
		}
	}
}

// A target that was the primary for a while is no copy; the move has it follow again.
func TestM5ATargetThatIsNoCopyAnyMoreFollowsAgain(t *testing.T) {
	d, u := moving(t)
	id := d.upTo(fsm.StepCopy, "n2", "eu")
	d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: fsm.StepCopy})
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.NodeBack{Node: "n1"})
	d.ok(&fsm.FailOver{Node: "n2", Cause: fsm.CauseUnpromoted, Choices: []fsm.Flip{{UnitRef: u, From: "n2", To: "n1"}}})
	d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: fsm.StepRelease})
	p, _ := d.Placed("a")
	d.ok(&fsm.ConfirmPromotion{Node: "n1", Epoch: p.Epoch, Units: []fsm.UnitRef{u}})
	d.step(id, fsm.StepCopy)
	if got := d.move(id); got != "copy: n1 active; n2 target" {
		t.Error(got)
	}
}

// A released unit never goes to a target that is lost, and is the source's again (M6).
func TestM6AReleaseToALostTargetIsThawed(t *testing.T) {
	d, u := moving(t)
	id := d.upTo(fsm.StepRelease, "n3", "eu")
	d.ok(&fsm.FailOver{Node: "n3", Cause: fsm.CauseLapsed})
	r := d.ok(&fsm.EndRelease{ID: id, Released: []fsm.UnitRef{u}})
	if got := d.move(id); got != "thaw: n1 active; n2 in_sync, n3 target" || len(r.Left) != 1 {
		t.Errorf("%s, %+v", got, r)
	}
	d.refused(fsm.CodeStale, &fsm.EndRelease{ID: id, Released: []fsm.UnitRef{u}})
	d.refused(fsm.CodeNodeLost, &fsm.AdvanceJob{ID: id, From: fsm.StepThaw, To: fsm.StepCopy}, "n3")
}

// A recovery sends a release back, makes targets former copies, and gives a move up whose
// tenant is found in another region (§3.8.3, I2).
func TestI2AMoveInARecovery(t *testing.T) {
	for found, want := range map[fsm.NodeName]string{
		"n1": "thaw: n1 active; m1 former, m2 former, n2 syncing",
		"m2": "thaw move_undone: m2 active; m1 former, n1 former",
		"m1": "thaw: m1 active; m2 former, n1 former",
	} {
		d, u := moving(t)
		id := d.upTo(fsm.StepRelease, "m1", "us")
		if err := d.Recover(fsm.RecoverMajority, 2, fsm.Member{ID: "s1", Raft: "a:1", Version: fsm.Version}, d.Now()); err != nil {
			t.Fatal(err)
		}
		taken := fsm.TakenUnit{UnitRef: u, Node: found}
		if found != "n1" {
			taken.Others = []fsm.NodeName{"n1"}
		}
		d.ok(&fsm.TakeOver{Recovery: d.Recovery().ID, Units: []fsm.TakenUnit{taken}})
		if got := d.move(id); got != want {
			t.Errorf("found on %s: %q, want %q", found, got, want)
		}
	}
}

func TestN7WhichNodesAreDrained(t *testing.T) {
	d, _ := moving(t)
	drain := func(n fsm.NodeName, forced bool) *fsm.SetDrain {
		return &fsm.SetDrain{Node: n, Drain: true, Forced: forced}
	}
	d.refused(fsm.CodeNodeUnknown, drain("n9", true), "n9")
	if r := d.ok(drain("n3", false)); r.Node.Drain == nil || r.Node.Drain.Units != 0 || r.Node.Drain.ID != d.Revision() {
		t.Fatalf("%+v: a node that holds nothing is drained at once", r.Node)
	}
	d.refused(fsm.CodeNoRoom, drain("n1", false), "eu", "1 node")
	d.ok(drain("n1", true))
	if p, _ := d.Placed("a"); p.Lacks != 0 {
		t.Errorf("its copy is where it was: %+v", p)
	}
	began, _ := d.Node("n1")
	if r := d.ok(drain("n1", false)); *r.Node.Drain != *began.Drain {
		t.Errorf("begun again it is %+v, was %+v", r.Node.Drain, began.Drain)
	}
	d.ok(drain("n2", true))
	if p, _ := d.Placed("a"); p.Lacks == 0 {
		t.Error("a copy on a node that is drained counts")
	}
	d.ok(&fsm.SetDrain{Node: "n2"})
	if p, _ := d.Placed("a"); p.Lacks != 0 {
		t.Error("a copy on a node that is not drained any more does not count")
	}
	d.refused(fsm.CodeNodeDraining, &fsm.CreateTenant{Name: "b", Node: ptr(fsm.NodeName("n1"))}, "n1")
	d.refused(fsm.CodeNodeDraining, &fsm.PutNode{Name: "n2", Standby: ptr(fsm.NodeName("n3"))}, "n3")
	if at := d.tenant(fsm.CreateTenant{Name: "b", Region: ptr(fsm.RegionName("eu"))}); at != "n2" {
		t.Errorf("placed on %s", at)
	}
}

// The drain of a node with a standby hands over to it, and ends the pair; a standby is not
// drained (C5).
func TestN7C5DrainsAndPairs(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	u := d.replicated("a", "n1", "n2")
	d.refused(fsm.CodeNodeIsStandby, &fsm.SetDrain{Node: "n2", Drain: true, Forced: true}, "n2", "n1")
	d.refused(fsm.CodeStale, &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseDrain}, "n1")
	d.ok(&fsm.SetDrain{Node: "n1", Drain: true}) // n2 and n3 have room
	job := d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseStopped}).Job
	d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{u}})
	if n2, _ := d.Node("n2"); n2.Standby != "" {
		t.Errorf("n2 has standby %s: a node that is drained takes no copies", n2.Standby)
	}
}

func TestN7T7ADrainLeavesWhatIsPinned(t *testing.T) {
	d, u := moving(t)
	d.ok(&fsm.SetPin{Tenant: "a", Pinned: true})
	d.ok(&fsm.SetDrain{Node: "n1", Drain: true})
	hand := &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseDrain, Units: []fsm.UnitRef{u}}
	d.refused(fsm.CodeNoCopy, hand)
	d.ok(&fsm.SetDrain{Node: "n1", Drain: true, Forced: true})
	d.ok(hand)
}

func TestB3ARebalanceBeginsWhatItPlanned(t *testing.T) {
	d, u := moving(t)
	b := d.replicated("b", "n1", "n2")
	d.refused(fsm.CodeBadRequest, &fsm.BeginRebalance{})
	d.refused(fsm.CodeBadRequest, &fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "a", ID: u.ID, Node: "n2"}, {Unit: "a", ID: u.ID, Node: "n3"}}}, "a")
	d.refused(fsm.CodeBadRequest, &fsm.BeginRebalance{Moves: make([]fsm.Target, fsm.MaxRebalance+1)})
	group := d.ok(&fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "b", ID: b.ID - 1, Node: "n3"}, {Unit: "a", ID: u.ID, Node: "n3"}}}).Job
	d.refused(fsm.CodeBusy, &fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "a", ID: u.ID, Node: "n3"}}})
	begin := func(unit fsm.UnitName, to fsm.NodeName) *fsm.BeginMove {
		return &fsm.BeginMove{Unit: unit, To: to, Cause: fsm.CauseRebalance, Group: group}
	}
	d.refused(fsm.CodeStale, begin("c", "n3"), "c")
	d.refused(fsm.CodeStale, begin("a", "n2"), "a", "n2")
	d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: group, From: fsm.StepBegin, To: fsm.StepDone})
	if r := d.ok(begin("b", "n3")); r.Job != 0 { // another tenant has that name
		t.Errorf("%+v", r)
	}
	if j, _ := d.Job(group); len(j.Targets) != 1 || j.Attempts != 1 || j.Problem == "" {
		t.Errorf("%+v", j)
	}
	id := d.ok(begin("a", "n3")).Job
	if j, _ := d.Job(group); j.Ended == 0 {
		t.Errorf("%+v: it has begun all that it planned", j)
	}
	if j, _ := d.Job(id); j.Group != group || j.Cause != fsm.CauseRebalance {
		t.Errorf("%+v", j)
	}
	d.refused(fsm.CodeMoveEnded, &fsm.CancelMove{ID: group})
	second := d.ok(&fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "b", ID: b.ID, Node: "n3"}}}).Job
	d.ok(&fsm.CancelMove{ID: second})
	if j, _ := d.Job(second); j.Ended == 0 || j.Refusal.Code != fsm.CodeCancelled || d.Rebalance() != nil {
		t.Errorf("%+v", j)
	}
}
