package fsm

func (c *change) beginRelocation(cmd *BeginRelocation) Result {
	e, r := c.mayRelocate(cmd)
	if r != nil {
		return refused(r)
	}
	from, _ := c.TenantRegion(cmd.Tenant)
	j := &Job{ID: JobID(c.at), Kind: JobRelocate, Tenant: cmd.Tenant, Unit: c.idOf(e), From: from, Home: cmd.Region,
		Cause: CauseMove, Step: StepCopy, Started: c.now}
	if cmd.To != nil {
		j.Node = *cmd.To
	}
	c.putJob(j)
	t := *e.tenant
	t.Job = j.ID
	c.putHomed(&t)
	return Result{Job: j.ID}
}

// mayRelocate gives the tenant that is to be moved to another directory, or says why it
// is not.
func (c *change) mayRelocate(cmd *BeginRelocation) (*tenancy, *Refusal) {
	e, ok := c.tenants.Get(cmd.Tenant)
	name := string(cmd.Tenant)
	switch {
	case c.scope.Region != "":
		return nil, refuse(CodeNotOwner, "moves to another region are the global group's", "owner", "global")
	case !ok || e.tenant.Reserved:
		return nil, unknownTenant(cmd.Tenant)
	case cmd.Region != "" && !validRegion(cmd.Region):
		return nil, badName("region", string(cmd.Region))
	case cmd.To != nil && !ValidName(string(*cmd.To)):
		return nil, badName("node", string(*cmd.To))
	case !c.regionKnown(cmd.Region):
		return nil, refuse(CodeRegionUnknown, "no node is in region "+regionText(cmd.Region)+", and it keeps no directory of its own; record one there first, or name another region",
			"region", string(cmd.Region))
	case c.jobOf(cmd.Tenant) != nil, !e.tenant.HasHome && e.unit != nil && !e.unit.kept():
		return nil, busy(cmd.Tenant)
	case e.tenant.Buckets > 0:
		return nil, refuse(CodeBadRequest, "tenants with buckets are not moved to another directory by this version", "tenant", name)
	}
	if j, ok := c.Move(UnitName(cmd.Tenant)); ok {
		return nil, refuse(CodeBusy, "tenant "+name+" is being moved; wait for that move, or cancel it", "tenant", name, "move", j.ID.String())
	}
	from, _ := c.TenantRegion(cmd.Tenant)
	own := c.keepsOwn(cmd.Region)
	switch {
	case from == cmd.Region && cmd.To == nil || from == cmd.Region && own:
		return nil, refuse(CodeAlreadyThere, "tenant "+name+" is in region "+regionText(from)+" already", "tenant", name, "region", string(from))
	case !own && !e.tenant.HasHome:
		return nil, refuse(CodeBadRequest, "both regions are in this directory: that is a move like any other", "tenant", name)
	case e.unit != nil && generation(e.unit.Epoch) >= maxGeneration:
		return nil, refuse(CodeBadRequest, "tenant "+name+" was moved between directories too often; create another and copy it", "tenant", name)
	}
	return e, nil
}

// advanceRelocation is AdvanceJob of a relocation. Its entry to StepPromote is the one
// flip (architecture §3.9.2).
func (c *change) advanceRelocation(j *Job, cmd *AdvanceJob) *Refusal {
	e, ok := c.tenants.Get(j.Tenant)
	if j.Step != StepClean && (!ok || e.tenant.Job != j.ID) {
		return refuse(CodeStale, "the tenant is not at this job")
	}
	before := j.Step == StepCopy || j.Step == StepRelease
	next := *j
	next.Step, next.Problem = cmd.To, ""
	switch {
	case cmd.Keep != 0 || (cmd.To == StepUndo) != (cmd.Refusal != nil) || cmd.Refusal != nil && cmd.Refusal.Code == "":
		return refuse(CodeBadRequest, "a refusal with a code is given when a move is undone, and only then")
	case cmd.To == StepDone && (j.Step == StepClean || j.Step == StepUndo) && c.hasPart(j):
		return refuse(CodeStale, "this directory's part of the move has not ended", "tenant", string(j.Tenant))
	case before && cmd.To == StepUndo:
		next.Refusal = cmd.Refusal.kept()
		c.putJob(&next)
	case before && cmd.To != j.Step && (cmd.To == StepCopy || cmd.To == StepRelease):
		c.putJob(&next)
	case j.Step == StepPromote && cmd.To == StepClean:
		c.putJob(&next)
		c.free(e.tenant) // what is left where it was keeps nobody from it
	case j.Step == StepClean && cmd.To == StepDone:
		c.end(&next)
	case j.Step == StepRelease && cmd.To == StepPromote:
		return c.rehome(&next, e)
	case j.Step == StepUndo && cmd.To == StepDone:
		c.end(&next)
		c.free(e.tenant)
	default:
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	return nil
}

// hasPart reports whether this directory's own part of a relocation is under way.
func (c *change) hasPart(j *Job) bool {
	t, ok := c.tasks.Get(j.ID)
	return ok && !t.Over()
}

// free ends the work on a tenant's name.
func (c *change) free(t *Tenant) {
	free := *t
	free.Job = 0
	c.putHomed(&free)
}

// rehome is the flip: the tenant's home is another from this entry on, and what this
// directory has of either side changes with it.
func (c *change) rehome(j *Job, e *tenancy) *Refusal {
	local, unit := (*Job)(nil), e.unit
	if t, ok := c.tasks.Get(j.ID); ok {
		local, _ = c.running.Get(t.Local)
	}
	toOwn := c.keepsOwn(j.Home)
	leaves := !e.tenant.HasHome
	stale := refuse(CodeStale, "this directory's part of the move does not stand where the tenant can change directories", "tenant", string(j.Tenant))
	switch {
	case leaves && (local == nil || local.Kind != JobDepart || local.Step != StepSent || unit == nil):
		return stale
	case !toOwn && (local == nil || local.Kind != JobReceive || local.Step != StepCopy || unit == nil):
		return stale
	}
	c.putJob(j)
	t := *e.tenant
	if toOwn {
		t.HasHome, t.Home, t.Claim = true, j.Home, j.Unit
		c.putHomed(&t)
		if leaves {
			c.departed(local, unit)
		}
		c.events = append(c.events, Event{Tenant: t.info()})
		return nil
	}
	t.HasHome, t.Home, t.Claim = false, "", 0
	t.Pinned, t.Quota = local.Pinned, local.Quota
	c.events = append(c.events, Event{TenantGone: j.Tenant})
	c.putHomed(&t)
	c.land(local, unit)
	return nil
}

// MayRelocate says why a BeginRelocation would be refused now, nil where it would not be.
// Only Apply decides.
func (s *State) MayRelocate(cmd *BeginRelocation) *Refusal {
	c := change{State: s}
	_, r := c.mayRelocate(cmd)
	return r
}
