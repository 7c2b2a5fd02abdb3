package loops

import (
	"strconv"

	"domicile/fsm"
)

// homedWait is for how long a region is asked to wait for the end of a create or delete.
const homedWait fsm.Millis = 5_000

// homed lets a create or delete go on of a tenant whose region keeps its own directory: the
// region has it as its task (architecture §3.9.1).
func (p *planner) homed(j *fsm.Job) {
	c := TaskCall{Job: j.ID, Region: j.Home}
	t := p.m.task(c)
	tenant, ok := p.s.Tenant(j.Tenant)
	switch {
	case t.running || !ok:
	case t.known && t.state.Over:
		p.homedOver(j, tenant, &t.state)
	case j.Step == fsm.StepUndo && p.neverAsked(j, t) && !t.heardOf:
		// Nothing was sent, or what was sent is refused for good, and nobody else can have: that is as certain as the region's word.
		p.endHomed(j, tenant, &TaskState{Forgone: true})
	case j.Step == fsm.StepUndo:
		p.noteTask(j, t)
		p.ask(c, &fsm.ForgoTask{Job: j.ID, Kind: taskKind(j), Tenant: j.Tenant, ID: tenant.Claim}, homedWait)
	case t.last.Outcome == Refused && t.asked.Cmd != nil,
		t.failures > 0 && p.neverAsked(j, t):
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: t.last.Refusal})
	default:
		p.noteTask(j, t)
		p.ask(c, homedTask(j, tenant), homedWait)
	}
}

// neverAsked reports whether it is certain that the region has done nothing for a job: it
// began in this term, and no call of it was taken.
func (p *planner) neverAsked(j *fsm.Job, t *taskMemory) bool {
	return fsm.Revision(j.ID) > p.m.since && !t.touched
}

func taskKind(j *fsm.Job) fsm.TaskKind {
	if j.Kind == fsm.JobDelete {
		return fsm.TaskDelete
	}
	return fsm.TaskCreate
}

// homedTask is what the region is asked for.
func homedTask(j *fsm.Job, t *fsm.Tenant) fsm.Command {
	order := &fsm.BeginTask{Job: j.ID, Kind: taskKind(j), Tenant: j.Tenant, ID: t.Claim}
	if j.Kind == fsm.JobCreate {
		region := j.Home
		order.Region, order.Pinned, order.Schema = &region, t.Pinned, j.Schema
		if node := j.Node; node != "" {
			order.Node = &node
		}
	}
	return order
}

// homedOver brings a job to its end whose task in the region is over.
func (p *planner) homedOver(j *fsm.Job, t *fsm.Tenant, s *TaskState) {
	switch {
	case j.Step == fsm.StepUndo:
		p.endHomed(j, t, s)
	case s.Refusal != nil:
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: s.Refusal})
	case s.Forgone:
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeTaskForgone,
			Text: "region " + string(j.Home) + " was told that this is not to be done any more", Fields: map[string]string{"region": string(j.Home)}}})
	default:
		p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone})
	}
}

// endHomed ends a job that is undone, and says who has the name: what the region has done
// counts, whatever was asked of it since.
func (p *planner) endHomed(j *fsm.Job, t *fsm.Tenant, s *TaskState) {
	end := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone}
	done := !s.Forgone && s.Refusal == nil
	switch {
	case j.Kind == fsm.JobCreate && done, j.Kind == fsm.JobDelete && !done:
		end.Keep = t.Claim
	case j.Kind == fsm.JobCreate && s.Refusal != nil && s.Refusal.Code == fsm.CodeTenantExists:
		if id, err := strconv.ParseUint(s.Refusal.Fields["id"], 10, 64); err == nil {
			end.Keep = fsm.UnitID(id) // a tenant that the region has, and this directory did not know
		}
	}
	p.advance(j, end)
}

// noteTask records what stands in the way of a job at a region, when that is news.
func (p *planner) noteTask(j *fsm.Job, t *taskMemory) {
	problem := ""
	switch r := t.refusal(); {
	case r != nil:
		problem = r.Text
	case t.known:
		problem = t.state.Problem
	}
	if problem != "" && problem != j.Problem {
		p.advance(j, &fsm.NoteJob{ID: j.ID, Problem: problem})
	}
}
