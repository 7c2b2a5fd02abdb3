package fsm

// depart begins a JobDepart: the unit stays active, and where it is, until it is told to
// be released.
func (c *change) depart(cmd *BeginTask) (JobID, *Refusal) {
	p, ok := c.Placed(UnitName(cmd.Tenant))
	switch {
	case !ok || p.ID != cmd.ID:
		return 0, unknownTenant(cmd.Tenant)
	case !p.kept():
		return 0, busy(cmd.Tenant)
	}
	if j, ok := c.Move(p.Unit); ok {
		return 0, refuse(CodeBusy, "tenant "+string(cmd.Tenant)+" is being moved; wait for that move, or cancel it",
			"tenant", string(cmd.Tenant), "move", j.ID.String())
	}
	c.putJob(&Job{ID: JobID(c.at), Kind: JobDepart, Tenant: cmd.Tenant, Unit: p.ID, Source: p.Node, Cause: CauseMove, Step: StepCopy,
		Started: c.now, Task: cmd.Job, Targets: []Target{{p.Unit, p.ID, ""}}})
	return JobID(c.at), nil
}

func (c *change) tellDeparting(j *Job, cmd *TellTask) *Refusal {
	p, ok := c.Placed(UnitName(j.Tenant))
	stale := refuse(CodeStale, "the tenant does not stand where that can be told of it", "tenant", string(j.Tenant), "step", j.Step.String())
	if !ok || p.ID != j.Unit {
		return stale
	}
	switch cmd.Word {
	case TaskRelease:
		switch {
		case cmd.Other == nil || !ValidName(string(cmd.Other.Node)) || !validAddr(cmd.Other.Addr):
			return refuse(CodeBadRequest, "a tenant is given up to a node: its name and its address")
		case j.Refusal != nil:
			return stale
		case j.Step == StepRelease, j.Step == StepSent:
			if j.Other.Addr != cmd.Other.Addr {
				return stale
			}
			return nil
		case j.Step == StepThaw:
			return busy(j.Tenant)
		case j.Step != StepCopy || p.State != UnitActive || !p.Promoted():
			return stale
		}
		c.releaseDeparting(j, p, cmd.Other)
	case TaskUndo:
		if j.Step == StepRemove {
			return stale
		}
		c.undoDeparting(j, p)
	case TaskDeparted:
		if j.Step != StepRemove && (j.Step != StepSent || c.flipsItself()) {
			return stale
		}
		c.departed(j, p)
	case TaskSettled:
		if j.Step != StepRemove {
			return stale
		}
		c.settleDeparted(j)
	default:
		return stale
	}
	return nil
}

// releaseDeparting has the source give a departing unit up to a node of another
// directory.
func (c *change) releaseDeparting(j *Job, p *Placed, other *Foreign) {
	step := *j
	step.Step, step.Problem, step.Source, step.Release = StepRelease, "", p.Node, c.at
	step.Other = &Foreign{Region: other.Region, Node: other.Node, Addr: other.Addr}
	c.putJob(&step)
	next := *p
	next.State, next.Job = UnitMoving, j.ID
	c.put(p, &next)
}

// endDeparting ends StepRelease of a depart: given up, the unit is nobody's to write
// until the global directory says whose it is (architecture §3.9.2).
func (c *change) endDeparting(j *Job, released map[UnitRef]bool) Result {
	p, ok := c.Placed(UnitName(j.Tenant))
	if !ok || !released[p.ref()] || p.Node != j.Source || p.Job != j.ID {
		c.leaveRelease(j)
		return Result{Left: []UnitName{UnitName(j.Tenant)}}
	}
	step := *j
	step.Step, step.Problem = StepSent, ""
	c.putJob(&step)
	next := *p
	next.State = UnitSent
	c.put(p, &next)
	return Result{}
}

// undoDeparting has a unit stay, by the global directory's word. The job stays open until
// the source has answered that it takes the unit back (architecture §3.6.5).
func (c *change) undoDeparting(j *Job, p *Placed) {
	next := *j
	if next.Refusal == nil {
		next.Refusal = refuse(CodeMoveUndone, "the move to another region was undone", "tenant", string(j.Tenant))
	}
	switch j.Step {
	case StepCopy:
		c.endLocal(&next)
		return
	case StepRelease:
		c.putJob(&next)
		c.leaveRelease(&next)
		return
	case StepSent:
		next.Step, next.Problem = StepThaw, ""
		back := *p
		back.State, back.Job = UnitActive, 0
		c.put(p, &back)
	}
	c.putJob(&next)
}

// endLocal ends a job that is a task's, and the task with it.
func (c *change) endLocal(j *Job) {
	c.end(j)
	c.endTask(j)
}

// flipsItself reports whether a tenant goes from this directory, or comes, with the entry
// that changes its home (rehome): no word that comes before can be true.
func (c *change) flipsItself() bool { return c.scope.Region == "" }

// departed has what this directory's nodes hold of a unit go, some time after it has
// settled (TaskSettled): the global directory has it elsewhere.
func (c *change) departed(j *Job, p *Placed) {
	if j.Step == StepRemove {
		return
	}
	c.events = append(c.events, Event{UnitGone: p.Unit})
	c.removeHeld(j, p, StepRemove, nil)
}

// settleDeparted begins the grace of what is left of a unit that has departed. Until then
// it may be the only one that holds what was acknowledged.
func (c *change) settleDeparted(j *Job) {
	if j.Since == 0 {
		next := *j
		next.Since = c.now
		c.putJob(&next)
	}
}

// removeHeld has a job remove a unit from every node that holds something of it.
func (c *change) removeHeld(j *Job, p *Placed, step JobStep, why *Refusal) {
	next := *j
	next.Step, next.Problem = step, ""
	if j.Kind != JobDepart {
		next.Other = nil // whose token is not kept
	}
	if why != nil {
		next.Refusal = why.kept()
	}
	next.Targets = []Target{{p.Unit, p.ID, p.Node}}
	for _, cp := range p.Copies {
		next.Targets = append(next.Targets, Target{p.Unit, p.ID, cp.Node})
	}
	sortTargets(next.Targets)
	gone := *p
	gone.State, gone.Job, gone.Previous = UnitDeleting, j.ID, ""
	gone.Copies = c.settled(p.Copies, "", false)
	c.putJob(&next)
	c.put(p, &gone)
}

// dropHeld forgets what was left here of a unit: with its tenant, unless that has its
// home in another directory.
func (c *change) dropHeld(name TenantName) {
	if t, ok := c.Tenant(name); ok && t.HasHome {
		c.putTenant(t, nil)
		return
	}
	c.dropTenant(name)
}

// advanceDepart is AdvanceJob of a depart: what its source, or the nodes that held the
// unit, have answered.
func (c *change) advanceDepart(j *Job, cmd *AdvanceJob) *Refusal {
	p, ok := c.Placed(UnitName(j.Tenant))
	here := ok && p.ID == j.Unit
	next := *j
	next.Problem = ""
	switch {
	case cmd.Refusal != nil || cmd.Keep != 0:
		return refuse(CodeBadRequest, "only the global group undoes this")
	case j.Step == StepThaw && cmd.To == StepCopy && j.Refusal == nil && here:
		next.Step = StepCopy
		c.putJob(&next)
	case cmd.To == StepDone && (j.Step == StepThaw || j.Step == StepCopy) && (j.Refusal != nil || !here):
		if next.Refusal == nil {
			next.Refusal = refuse(CodeDeleted, "the tenant was deleted", "tenant", string(j.Tenant))
		}
		c.endLocal(&next)
	case cmd.To == StepDone && j.Step == StepRemove:
		c.endLocal(&next)
		c.dropHeld(j.Tenant)
	default:
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	return nil
}
