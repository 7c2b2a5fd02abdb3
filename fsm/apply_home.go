package fsm

// HomeFor gives the region that keeps its own directory where a tenant is to be created;
// false where this directory places it itself (T2).
func (s *State) HomeFor(cmd *CreateTenant) (RegionName, bool) {
	if s.scope.Region != "" || s.level < levelRegions {
		return "", false
	}
	region := cmd.Region
	switch {
	case region != nil:
	case cmd.Node != nil:
		region = cmd.Origin // a node's name is one of the directory that was asked
	case s.settings.DefaultRegion != nil:
		region = s.settings.DefaultRegion
	case !s.placesAny():
		region = cmd.Origin
	}
	if region == nil {
		return "", false
	}
	return *region, s.keepsOwn(*region)
}

// placesAny reports whether the directory has a node in a region that keeps none of its
// own.
func (s *State) placesAny() bool {
	any := false
	s.nodes.Scan(func(_ NodeName, e *seat) bool {
		any = !s.keepsOwn(e.node.Region)
		return !any
	})
	return any
}

// claim takes a name for a tenant of a region that keeps its own directory, which is
// asked to make it then (G5). Nobody is told of the name before that is done.
func (c *change) claim(cmd *CreateTenant, home RegionName, key string) Result {
	id := JobID(c.at)
	t := &Tenant{Name: cmd.Name, Created: c.now, Pinned: cmd.Pinned, HasHome: true, Home: home,
		Claim: UnitID(c.at), Job: id, Reserved: true}
	c.putTenant(t, nil)
	j := &Job{ID: id, Kind: JobCreate, Tenant: cmd.Name, Step: StepMake, Schema: cmd.Schema, Started: c.now, Request: key, Home: home}
	if cmd.Node != nil {
		j.Node = *cmd.Node
	}
	c.putJob(j)
	return Result{Tenant: t, Job: id}
}

// deleteHomed begins to delete a tenant of a region that keeps its own directory. The
// name is given back once that region has removed it. A delete that the region did not
// take up ends with the tenant as it was: Result.Tenant tells it from a later one.
func (c *change) deleteHomed(t *Tenant) Result {
	j, ok := c.running.Get(t.Job)
	e, _ := c.tenants.Get(t.Name)
	switch {
	case !ok && e.unit != nil && e.unit.State != UnitDeleting:
		return refused(busy(t.Name))
	case !ok:
		return Result{Job: c.beginDeleteHomed(t), Tenant: t}
	case j.Kind == JobDelete, j.Kind == JobCreate && j.Step == StepUndo:
		return Result{Job: j.ID, Tenant: t}
	case j.Kind == JobCreate:
		c.turnBack(j, refuse(CodeDeleted, "tenant "+string(t.Name)+" was deleted before it was made", "tenant", string(t.Name)))
		return Result{Job: j.ID, Tenant: t}
	}
	return refused(busy(t.Name))
}

func (c *change) beginDeleteHomed(t *Tenant) JobID {
	j := &Job{ID: JobID(c.at), Kind: JobDelete, Tenant: t.Name, Step: StepRemove, Started: c.now, Home: t.Home}
	next := *t
	next.Job = j.ID
	c.putHomed(&next)
	c.putJob(j)
	return j.ID
}

// putHomed records a tenant with a home, and what of it is still in this directory.
func (c *change) putHomed(t *Tenant) {
	e, _ := c.tenants.Get(t.Name)
	c.putTenant(t, e.unit)
}

// advanceHomed is AdvanceJob of a create or delete of a tenant of a region that keeps
// its own directory. At its end Keep says which tenant has the name, 0 for none.
func (c *change) advanceHomed(j *Job, cmd *AdvanceJob) *Refusal {
	e, ok := c.tenants.Get(j.Tenant)
	switch {
	case !ok || e.tenant.Job != j.ID:
		return refuse(CodeStale, "the tenant's name is not at this job")
	case (cmd.To == StepUndo) != (cmd.Refusal != nil) || cmd.Refusal != nil && cmd.Refusal.Code == "":
		return refuse(CodeBadRequest, "a refusal with a code is given when a job is undone, and only then")
	case cmd.To == StepUndo && (j.Step == StepMake || j.Step == StepRemove):
		c.turnBack(j, cmd.Refusal.kept())
		return nil
	case cmd.To != StepDone || j.Step != StepMake && j.Step != StepRemove && j.Step != StepUndo:
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	case cmd.Keep > maxID, cmd.Keep != 0 && e.unit != nil && cmd.Keep != e.unit.ID:
		return refuse(CodeBadRequest, "no tenant has such an id")
	}
	keep := cmd.Keep
	if j.Step == StepMake {
		keep = e.tenant.Claim
	} else if j.Step == StepRemove {
		keep = 0
	}
	next := *j
	next.Problem, next.Schema = "", ""
	c.end(&next)
	c.settle(&next, c.nameEnds(e.tenant, &next, keep))
	return nil
}

// turnBack has a job of the global group be undone.
func (c *change) turnBack(j *Job, why *Refusal) {
	undone := *j
	undone.Step, undone.Problem, undone.Refusal = StepUndo, "", why
	c.putJob(&undone)
}

// nameEnds keeps a name for the tenant of an id, or gives it back, and gives what the
// job is answered with.
func (c *change) nameEnds(t *Tenant, j *Job, keep UnitID) Result {
	if keep == 0 {
		c.dropHomed(t)
		if !t.Reserved {
			c.events = append(c.events, Event{TenantGone: t.Name})
		}
		return refused(j.Refusal)
	}
	kept := *t
	kept.Claim, kept.Job, kept.Reserved = keep, 0, false
	c.putHomed(&kept)
	if t.Reserved || t.Claim != keep {
		c.events = append(c.events, Event{Tenant: kept.info()})
	}
	if j.Refusal != nil {
		return refused(j.Refusal)
	}
	return Result{Tenant: &kept}
}

// dropHomed forgets a tenant with a home: once this directory's nodes hold nothing of it. What
// is left there of one that has departed goes without a grace.
func (c *change) dropHomed(t *Tenant) {
	e, _ := c.tenants.Get(t.Name)
	if e.unit == nil {
		c.dropTenant(t.Name)
		return
	}
	gone := *t
	gone.HasHome, gone.Home, gone.Claim, gone.Job, gone.Reserved = false, "", 0, 0, false
	c.putTenant(&gone, e.unit)
	if j, ok := c.running.Get(e.unit.Job); ok && j.Kind == JobDepart {
		next := *j
		next.Since = max(c.now-c.settings.RemoveAfter, 1)
		c.putJob(&next)
	}
}

// homeInUse refuses to forget a region that tenants live in, or are about to.
func (c *change) homeInUse(r RegionName) *Refusal {
	used := func(t TenantName) *Refusal {
		return refuse(CodeRegionInUse, "region "+string(r)+" is the home of "+string(t), "region", string(r), "tenant", string(t))
	}
	for t := range c.Tenants("", "") {
		if t.HasHome && t.Home == r {
			return used(t.Name)
		}
	}
	for j := range c.RunningJobs() {
		if j.Home == r || j.Kind == JobRelocate && j.From == r {
			return used(j.Tenant)
		}
	}
	return nil
}
