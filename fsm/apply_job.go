package fsm

import (
	"cmp"
	"maps"
	"slices"
)

func (c *change) advanceJob(cmd *AdvanceJob) *Refusal {
	j, ok := c.running.Get(cmd.ID)
	if !ok {
		return refuse(CodeStale, "the job has ended")
	}
	if j.Step != cmd.From {
		return refuse(CodeStale, "the job stands at "+j.Step.String()+", not at "+cmd.From.String())
	}
	switch {
	case j.Kind == JobMove:
		return c.advanceMove(j, cmd)
	case j.Kind == JobRelocate:
		return c.advanceRelocation(j, cmd)
	case j.Kind == JobDepart:
		return c.advanceDepart(j, cmd)
	case j.Kind == JobReceive:
		return c.advanceReceive(j, cmd)
	case j.Kind == JobGive:
		return c.advanceGive(j, cmd)
	case j.Home != "":
		return c.advanceHomed(j, cmd)
	case cmd.Keep != 0:
		return refuse(CodeBadRequest, "keep is for tenants of regions that keep their own directory")
	}
	if !j.mayGo(cmd.To) {
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	if (cmd.To == StepUndo) != (cmd.Refusal != nil) {
		return refuse(CodeBadRequest, "a refusal is given when a job is undone, and only then")
	}
	if cmd.Refusal != nil && cmd.Refusal.Code == "" {
		return refuse(CodeBadRequest, "the refusal of a job needs a code")
	}
	if cmd.Refusal != nil {
		c.undo(j, cmd.Refusal.kept())
		return nil
	}
	next := *j
	next.Step, next.Problem = cmd.To, ""
	if cmd.To != StepDone {
		c.putJob(&next)
		return nil
	}
	// A schema may be long and is not needed any more.
	next.Schema, next.Ended, next.EndedIn = "", c.now, c.at
	c.endJob(&next)
	c.endTask(&next)
	if next.Kind == JobHandover {
		return nil
	}
	if next.Kind == JobCreate && next.Refusal == nil {
		c.settle(&next, c.serve(next.Tenant))
		return nil
	}
	c.dropTenant(next.Tenant)
	c.settle(&next, refused(next.Refusal))
	return nil
}

// mayGo reports whether a job's next step may be to.
func (j *Job) mayGo(to JobStep) bool {
	switch j.Step {
	case StepMake:
		return to == StepUndo || to == StepSchema && j.Schema != "" || to == StepDone && j.Schema == ""
	case StepSchema:
		return to == StepUndo || to == StepDone
	case StepUndo, StepRemove, StepThaw:
		return to == StepDone
	}
	return false // StepRelease is ended by EndRelease
}

// undo turns a create back. Its copies are no more: nothing has been asked to
// follow before the unit is active.
func (c *change) undo(j *Job, why *Refusal) {
	undone := *j
	undone.Step, undone.Problem, undone.Refusal = StepUndo, "", why
	c.putJob(&undone)
	for _, p := range slices.Collect(c.TenantUnits(j.Tenant)) {
		if p.Copies != nil {
			alone := *p
			alone.Copies = nil
			c.put(p, &alone)
		}
	}
}

// serve makes the units of a new tenant active and gives the result that the
// create is answered with.
func (c *change) serve(name TenantName) Result {
	t, _ := c.tenants.Get(name)
	if t.unit != nil {
		p := c.activate(t.unit)
		c.putTenant(t.tenant, p)
		return Result{Tenant: t.tenant, Placed: p}
	}
	for _, p := range slices.Collect(c.TenantUnits(name)) {
		c.putUnit(c.activate(p))
	}
	c.events = append(c.events, Event{Tenant: t.tenant.info()})
	return Result{Tenant: t.tenant}
}

// activate gives p as it is once it is served, and tells followers.
func (c *change) activate(p *Placed) *Placed {
	active := *p
	active.State, active.Job = UnitActive, 0
	c.events = append(c.events, Event{Unit: active.info()})
	return c.count(&active)
}

// kept is r as it is put into a record: bounded, and nobody else's.
func (r *Refusal) kept() *Refusal {
	own := &Refusal{Code: Code(clip(string(r.Code))), Text: clip(r.Text)}
	if len(r.Fields) > 0 && len(r.Fields) <= 16 {
		own.Fields = make(map[string]string, len(r.Fields))
		for _, k := range slices.Sorted(maps.Keys(r.Fields)) { // clipped names may be the same
			own.Fields[clip(k)] = clip(r.Fields[k])
		}
	}
	return own
}

func (c *change) noteJob(cmd *NoteJob) *Refusal {
	j, ok := c.running.Get(cmd.ID)
	if !ok {
		return refuse(CodeStale, "the job has ended")
	}
	noted := *j
	noted.Problem = clip(cmd.Problem)
	if cmd.Problem != "" {
		noted.Attempts++
	}
	if j.Kind == JobMove || j.Kind == JobRelocate {
		noted.Pause, noted.Bytes = cmp.Or(cmd.Pause, j.Pause), cmp.Or(cmd.Bytes, j.Bytes)
	}
	if j.Kind == JobRelocate && ValidName(string(cmd.From)) && ValidName(string(cmd.To)) {
		noted.Source, noted.Node = cmd.From, cmd.To
	}
	c.putJob(&noted)
	return nil
}
