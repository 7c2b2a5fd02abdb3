package loops

import (
	"domicile/fsm"
)

// depart plans the next step of a unit's way out of this directory (architecture §3.9.2).
// While it is copied, and once its source has given it up, the global group says how it
// goes on.
func (p *planner) depart(j *fsm.Job) {
	switch j.Step {
	case fsm.StepCopy:
		if k := p.m.move(j.ID); j.Refusal != nil || p.subject(j) == nil {
			p.step(j, fsm.StepDone)
		} else if k.why != "" && j.Problem == "" { // the source did not give it up
			p.advance(j, &fsm.NoteJob{ID: j.ID, Problem: k.why})
		}
	case fsm.StepRelease:
		p.release(j)
	case fsm.StepThaw:
		p.thaw(j)
	case fsm.StepRemove:
		p.removeDeparted(j)
	}
}

// removeDeparted takes what is left of a unit off this directory's nodes, once its grace is
// over: its last primary at the end, which tells what the others need not keep.
func (p *planner) removeDeparted(j *fsm.Job) {
	if j.Since == 0 {
		return // it may still be the only one that has what was acknowledged
	}
	if due := j.Since + p.s.Settings().RemoveAfter; p.now < due {
		p.wakeAt(due)
		return
	}
	home := fsm.NodeName("")
	if u, ok := p.s.Placed(fsm.UnitName(j.Tenant)); ok && u.ID == j.Unit {
		home = u.Node
	}
	left := p.removeFrom(j, func(n fsm.NodeName) bool { return n != home })
	if left == 0 {
		left = p.removeFrom(j, func(n fsm.NodeName) bool { return n == home })
	}
	if left == 0 {
		p.step(j, fsm.StepDone)
	}
}

// removeFrom has those nodes of a job's targets remove the unit, which lives on elsewhere,
// and counts those that have not yet.
func (p *planner) removeFrom(j *fsm.Job, which func(fsm.NodeName) bool) (left int) {
	for _, target := range j.Targets {
		if !which(target.Node) {
			continue
		}
		c := Call{Job: j.ID, Step: j.Step, Target: target}
		t := p.m.known(c)
		if t.last.Outcome == Done || t.last.Outcome == Absent {
			continue
		}
		left++
		switch {
		case t.running:
		case p.m.units.beingTold(target.Unit, target.Node):
			p.m.units.park(target.Node, target.Unit)
		case p.now < t.retryAt:
			p.wakeAt(t.retryAt)
			p.note(j, t)
		default:
			p.call(Action{Call: c, Verb: RemoveCopy}, true)
		}
	}
	return left
}
