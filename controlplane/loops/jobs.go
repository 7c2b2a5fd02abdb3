package loops

import (
	"domicile/fsm"
)

// Limits and times of the executor's work.
const (
	// CallsAtOnce bounds all calls under way: nodes × a few, within what one
	// process can keep in sockets.
	CallsAtOnce = 512
	// CallsPerNode bounds those to one node that answers.
	CallsPerNode = 16
	// TriesUnavailable is how often a create asks a node that says "not now"
	// before it is undone: together about three seconds.
	TriesUnavailable = 5
	// ConfirmAfter is when a unit whose make got no answer is looked for a
	// second time: longer than a call may take (controlplane's callTimeout).
	ConfirmAfter fsm.Millis = 12_000
	// ProposeAgain is the pause after a proposal that failed.
	ProposeAgain fsm.Millis = 200
)

// Verb says what a call does.
type Verb uint8

// Verbs.
const (
	MakeUnit  Verb = 1
	RunSchema Verb = 2
	// RemakeAndRunSchema removes the unit, makes it again and runs the schema.
	RemakeAndRunSchema Verb = 3
	RemoveUnit         Verb = 4
)

// Action is a call to be made.
type Action struct {
	Call
	Verb Verb
}

// Proposal is a command to be proposed about a job.
type Proposal struct {
	Job fsm.JobID
	Cmd fsm.Command
}

// Plan is what is to be done at once, and when to look again though nothing
// happens: 0 for never.
type Plan struct {
	Calls     []Action
	Proposals []Proposal
	Wake      fsm.Millis
}

// Jobs plans the next step of each running job. What it plans must be noted in
// m before it is called again.
func Jobs(s *fsm.State, m *Memory, now fsm.Millis) Plan {
	p := planner{s: s, m: m, now: now, taken: make(map[fsm.NodeName]int)}
	for j := range s.RunningJobs() {
		if until, waiting := m.proposing[j.ID]; waiting && now < until {
			p.wakeAt(until)
			continue
		}
		if m.fenced[j.ID] {
			continue // a newer leader has it
		}
		p.job(j)
	}
	return p.plan
}

type planner struct {
	s     *fsm.State
	m     *Memory
	now   fsm.Millis
	taken map[fsm.NodeName]int // calls planned in this round
	plan  Plan
}

func (p *planner) wakeAt(t fsm.Millis) {
	if t != forever && (p.plan.Wake == 0 || t < p.plan.Wake) {
		p.plan.Wake = t
	}
}

func (p *planner) job(j *fsm.Job) {
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
			p.call(c, p.verb(j, target), false)
		case t.last.Outcome == Unavailable && t.failures < TriesUnavailable:
			all = false
			p.again(c, t, p.verb(j, target))
		default:
			p.propose(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: t.last.Refusal})
			return
		}
	}
	if all {
		p.propose(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: next})
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
		if t.running || p.makesNow(j, target) {
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
			p.call(c, RemoveUnit, true)
		default:
			if problem == "" && t.last.Refusal != nil {
				problem = t.last.Refusal.Text
			}
			p.again(c, t, RemoveUnit)
		}
	}
	switch {
	case all:
		p.propose(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone})
	case problem != "" && problem != j.Problem:
		p.propose(j, &fsm.NoteJob{ID: j.ID, Problem: problem})
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
	return j.Step == fsm.StepUndo && fsm.Revision(j.ID) > p.m.since &&
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
	p.call(c, RemoveUnit, true)
}

// again repeats a call that failed, once its time has come.
func (p *planner) again(c Call, t attempt, v Verb) {
	if p.now < t.retryAt {
		p.wakeAt(t.retryAt)
		return
	}
	p.call(c, v, v == RemoveUnit)
}

// call plans a call within the limits. A patient one waits for a node that is
// known to be silent, behind the one call that tries it.
func (p *planner) call(c Call, v Verb, patient bool) {
	n := c.Target.Node
	limit, running := CallsPerNode, p.taken[n]
	if l, ok := p.m.links[n]; ok {
		running += l.running
		if patient && l.failures > 0 {
			if p.now < l.retryAt {
				p.wakeAt(l.retryAt)
				return
			}
			limit = 1
		}
	}
	if running >= limit || p.m.running+len(p.plan.Calls) >= CallsAtOnce {
		return // an answer that comes in makes room, and is a reason to plan again
	}
	p.taken[n]++
	p.plan.Calls = append(p.plan.Calls, Action{Call: c, Verb: v})
}

func (p *planner) propose(j *fsm.Job, cmd fsm.Command) {
	p.plan.Proposals = append(p.plan.Proposals, Proposal{Job: j.ID, Cmd: cmd})
}
