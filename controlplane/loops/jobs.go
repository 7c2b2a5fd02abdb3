package loops

import (
	"slices"

	"domicile/fsm"
)

// lookAtJobs notes which nodes are handing units over.
func (p *planner) lookAtJobs() {
	for j := range p.s.RunningJobs() {
		switch j.Kind {
		case fsm.JobHandover:
			p.sources[j.Source] = true
		case fsm.JobMove:
			p.countMoves(j)
		case fsm.JobDepart, fsm.JobReceive:
			p.countBetween(j)
		}
	}
}

// jobs plans the next step of each running job.
func (p *planner) jobs() {
	for j := range p.s.RunningJobs() {
		if p.m.fenced[j.ID] || !p.free(Matter{Kind: MatterJob, Job: j.ID}) {
			continue // a newer leader has it, or a step is being recorded
		}
		p.job(j)
	}
}

func (p *planner) job(j *fsm.Job) {
	if j.Home != "" && (j.Kind == fsm.JobCreate || j.Kind == fsm.JobDelete) {
		p.homed(j)
		return
	}
	switch j.Kind {
	case fsm.JobMove:
		p.move(j)
		return
	case fsm.JobRebalance:
		p.rebalance(j)
		return
	case fsm.JobGive:
		return // whole directories: it makes no call to a node before the region is given
	case fsm.JobDepart:
		p.depart(j)
		return
	case fsm.JobReceive:
		p.receive(j)
		return
	case fsm.JobRelocate:
		p.relocate(j)
		return
	}
	switch j.Step {
	case fsm.StepMake:
		next := fsm.StepDone
		if j.Schema != "" {
			next = fsm.StepSchema
		}
		p.forward(j, next)
	case fsm.StepSchema:
		p.forward(j, fsm.StepDone)
	case fsm.StepUndo, fsm.StepRemove:
		p.remove(j)
	case fsm.StepRelease:
		p.release(j)
	case fsm.StepThaw:
		p.thaw(j)
	}
}

// forward brings a create one step on when every target has answered well, and
// has it undone when one has not.
func (p *planner) forward(j *fsm.Job, next fsm.JobStep) {
	all := true
	for _, target := range j.Targets {
		c := Call{Job: j.ID, Step: j.Step, Target: target}
		t := p.m.known(c)
		switch {
		case t.running:
			all = false
		case t.last.Outcome == Done:
		case t.last.Outcome == 0:
			all = false
			p.call(Action{Call: c, Verb: p.verb(j, target)}, false)
		case t.last.Outcome == Unavailable && t.failures < TriesUnavailable:
			all = false
			p.again(c, t, p.verb(j, target))
		default:
			p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: t.last.Refusal})
			return
		}
	}
	if all {
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: next})
	}
}

// verb says how to do a create's step on a target.
func (p *planner) verb(j *fsm.Job, target fsm.Target) Verb {
	if j.Step == fsm.StepMake {
		return MakeUnit
	}
	made := p.m.known(Call{Job: j.ID, Step: fsm.StepMake, Target: target})
	tried := p.m.known(Call{Job: j.ID, Step: fsm.StepSchema, Target: target})
	if made.last.Outcome == Done && !tried.touched {
		return RunSchema
	}
	return RemakeAndRunSchema
}

// remove takes the units off their nodes and ends the job once each node has
// confirmed it.
func (p *planner) remove(j *fsm.Job) {
	all, problem := true, ""
	for _, target := range j.Targets {
		c := Call{Job: j.ID, Step: j.Step, Target: target}
		t := p.m.known(c)
		if t.running || p.makesNow(j, target) || p.followsNow(j, target.Node) {
			all = false
			continue
		}
		if p.gone(j, target, t) {
			continue
		}
		all = false
		switch {
		case t.last.Outcome == Absent || t.last.Outcome == Done:
			p.confirm(c, t)
		case t.last.Outcome == 0:
			p.call(Action{Call: c, Verb: RemoveUnit}, true)
		default:
			if problem == "" && t.last.Refusal != nil {
				problem = t.last.Refusal.Text
			}
			p.again(c, t, RemoveUnit)
		}
	}
	switch {
	case all:
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone})
	case problem != "" && problem != j.Problem:
		p.advance(j, &fsm.NoteJob{ID: j.ID, Problem: problem})
	}
}

// makesNow reports whether a call that makes the unit is under way from here:
// a removal would be too early.
func (p *planner) makesNow(j *fsm.Job, target fsm.Target) bool {
	return p.m.known(Call{Job: j.ID, Step: fsm.StepMake, Target: target}).running ||
		p.m.known(Call{Job: j.ID, Step: fsm.StepSchema, Target: target}).running
}

// late reports whether a call of this term that makes the unit may still be on
// its way. Those of former terms are refused by a node that has answered us.
func (p *planner) late(j *fsm.Job, target fsm.Target) bool {
	for _, step := range [...]fsm.JobStep{fsm.StepMake, fsm.StepSchema} {
		last := p.m.known(Call{Job: j.ID, Step: step, Target: target}).last
		if last.Outcome == Silent && !last.Untouched {
			return true
		}
	}
	return false
}

// untouched reports whether it is certain that the create never did anything
// on the target: it began in this term, and each call since did nothing.
func (p *planner) untouched(j *fsm.Job, target fsm.Target) bool {
	return j.Kind == fsm.JobCreate && j.Step == fsm.StepUndo && fsm.Revision(j.ID) > p.m.since &&
		!p.m.known(Call{Job: j.ID, Step: fsm.StepMake, Target: target}).touched &&
		!p.m.known(Call{Job: j.ID, Step: fsm.StepSchema, Target: target}).touched
}

// gone reports whether the target is certain not to hold the unit any more.
func (p *planner) gone(j *fsm.Job, target fsm.Target, t attempt) bool {
	if p.untouched(j, target) {
		return true
	}
	// Done is no better than Absent: what was removed may have been made by an
	// earlier call than the one that may still arrive.
	return (t.last.Outcome == Done || t.last.Outcome == Absent) && (t.looks > 1 || !p.late(j, target))
}

// confirm looks a second time for a unit whose make may still arrive.
func (p *planner) confirm(c Call, t attempt) {
	if at := t.endedAt + ConfirmAfter; p.now < at {
		p.wakeAt(at)
		return
	}
	p.call(Action{Call: c, Verb: RemoveUnit}, true)
}

// again repeats a call that failed, once its time has come.
func (p *planner) again(c Call, t attempt, v Verb) {
	if p.now < t.retryAt {
		p.wakeAt(t.retryAt)
		return
	}
	p.call(Action{Call: c, Verb: v}, v == RemoveUnit)
}

func (p *planner) advance(j *fsm.Job, cmd fsm.Command) {
	p.propose(Matter{Kind: MatterJob, Job: j.ID}, cmd)
}

// release has the source of a handover or a move give its units up, and ends the step with
// what it released. Asked again, the source answers the same; one that refuses
// has released nothing in this term, and is told to thaw what it did in another.
func (p *planner) release(j *fsm.Job) {
	c := Call{Job: j.ID, Step: j.Step, Target: fsm.Target{Node: j.Source}, Epoch: uint64(j.Release)}
	t := p.m.known(c)
	switch {
	case t.running:
	case t.last.Outcome == Done:
		p.m.notReleased(j, &t.last)
		var released []fsm.UnitRef
		for _, target := range j.Targets {
			// What the node does not hold it cannot write either. A move's target need
			// not be in sync: that it has the last position only a release can tell.
			if f, failed := t.last.Failed[target.Unit]; !failed || f.Absent && j.Kind == fsm.JobHandover {
				u := fsm.UnitRef{Unit: target.Unit, ID: target.ID}
				released = append(released, u)
				if news := p.news.Nodes[j.Source]; news != nil && slices.Contains(news.Damaged, u.Unit) {
					p.m.units.damaged[u] = p.now
				}
			}
		}
		p.advance(j, &fsm.EndRelease{ID: j.ID, Released: released})
	case t.last.Outcome == Refused, t.last.Outcome == Foreign,
		t.last.Outcome == Unavailable && t.failures >= TriesUnavailable:
		p.m.notReleased(j, &t.last)
		p.advance(j, &fsm.EndRelease{ID: j.ID})
	case p.now < t.retryAt:
		p.wakeAt(t.retryAt)
		p.note(j, t)
	default:
		if k := p.m.move(j.ID); j.Kind == fsm.JobMove && k.frozen == 0 {
			k.frozen = p.now
		}
		p.put(Action{Call: c, Verb: HandOverUnits, Units: givenTo(j, j.Targets)})
	}
}

// notReleased notes why a source did not give up the unit of a move.
func (m *Memory) notReleased(j *fsm.Job, a *Answer) {
	if j.Kind == fsm.JobHandover {
		return
	}
	k := m.move(j.ID)
	switch f, failed := a.Failed[j.Targets[0].Unit]; {
	case failed:
		k.why = f.Why
	case a.Outcome != Done && a.Refusal != nil:
		k.why = a.Refusal.Text
	}
}

// thaw has the source of a handover take back what it did not release, and ends
// the job once it has answered: until then a release of a former leader may
// still reach it. Units that went elsewhere meanwhile are left out. A move tries again
// some times.
func (p *planner) thaw(j *fsm.Job) {
	mine := p.s.ToThaw(j)
	c := Call{Job: j.ID, Step: j.Step, Target: fsm.Target{Node: j.Source}, Epoch: uint64(j.Release)}
	t := p.m.known(c)
	switch {
	case t.running:
	case len(mine) == 0 || t.last.Outcome == Done:
		switch {
		case j.Kind == fsm.JobMove:
			p.thawed(j)
			return
		case j.Kind == fsm.JobDepart && j.Refusal == nil:
			p.step(j, fsm.StepCopy)
			return
		}
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone})
	case p.now < t.retryAt:
		p.wakeAt(t.retryAt)
		p.note(j, t)
	default:
		p.call(Action{Call: c, Verb: ThawUnits, Units: givenTo(j, mine)}, true)
	}
}

// thawed has a move whose source did not release its unit try again, or ends it.
func (p *planner) thawed(j *fsm.Job) {
	k := p.m.move(j.ID)
	switch {
	case !p.ready(j, p.subject(j)):
	case k.tries+1 >= ReleaseTries:
		p.undo(j, fsm.CodeMoveUndone, "node "+string(j.Source)+" did not give the tenant up: "+k.why)
	default:
		k.tries++
		k.frozen = 0
		p.step(j, fsm.StepCopy)
	}
}

// note records what stands in a job's way, when that is news.
func (p *planner) note(j *fsm.Job, t attempt) {
	if r := t.last.Refusal; r != nil && r.Text != j.Problem {
		p.advance(j, &fsm.NoteJob{ID: j.ID, Problem: r.Text})
	}
}

// givenTo gives the units of a job with the nodes that they are given to.
func givenTo(j *fsm.Job, targets []fsm.Target) []Item {
	out := make([]Item, len(targets))
	for i, t := range targets {
		out[i] = Item{UnitRef: fsm.UnitRef{Unit: t.Unit, ID: t.ID}, Node: t.Node}
		if j.Other != nil {
			out[i].Node = j.Other.Node // of another directory
		}
	}
	return out
}
