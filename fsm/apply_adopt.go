package fsm

import "slices"

func (c *change) runAdopt(cmd Command) (Result, bool) {
	switch cmd := cmd.(type) {
	case *BeginGive:
		return c.beginGive(cmd), true
	case *GiveRegion:
		return refused(c.giveRegion(cmd)), true
	case *StageRegion:
		return refused(c.stageRegion(cmd)), true
	case *ArriveRegion:
		return refused(c.arriveRegion(cmd)), true
	case *CloseIntake:
		return refused(c.closeIntake(cmd)), true
	}
	return Result{}, false
}

func handingOver(r RegionName) *Refusal {
	return refuse(CodeHandingOver, "region "+regionText(r)+" is being handed over to another directory: nothing is begun there until that is done; try again shortly",
		"region", string(r))
}

func (c *change) beginGive(cmd *BeginGive) Result {
	if r := c.mayGive(cmd.Region); r != nil {
		return refused(r)
	}
	j := &Job{ID: JobID(c.at), Kind: JobGive, Step: StepCopy, Started: c.now, Home: cmd.Region}
	c.putJob(j)
	return Result{Job: j.ID}
}

// mayGive says why a region cannot be given away by this directory at all. What only
// takes its time is waited for (unready).
func (c *change) mayGive(r RegionName) *Refusal {
	name := string(r)
	_, recorded := c.regions.Get(r)
	in, _ := c.nodesIn.Get(r)
	switch {
	case r == "" || !validRegion(r):
		return badName("region", name)
	case c.scope.Region != "" && r != c.scope.Region:
		return refuse(CodeNotOwner, "this is the directory of region "+string(c.scope.Region)+" alone", "region", name)
	case c.scope.Region != "" && c.upstream.Authority == "":
		return refuse(CodeRegionNotReady, "this group does not know its global group yet; try again when it follows the global directory", "region", name)
	case c.scope.Region == "" && !recorded:
		return refuse(CodeRegionUnknown, "region "+name+" is not recorded as one that keeps its own directory: record its routers first (PUT /_shard/regions/"+name+")", "region", name)
	case c.giving != nil:
		return refuse(CodeBusy, "region "+string(c.giving.Home)+" is being handed over already; regions go one at a time", "region", string(c.giving.Home), "job", c.giving.ID.String())
	case c.OpenIntake() != nil:
		return handingOver(c.OpenIntake().Region)
	case c.scope.Region == "" && in == 0:
		return refuse(CodeRegionNotReady, "no node of region "+name+" is in the global directory: there is nothing to hand over", "region", name)
	}
	return nil
}

// Unready says what the nodes and tenants of a region, that is to be given away, have to
// get done first; nil where all of it can be given as it is.
func (s *State) Unready(r RegionName) *Refusal { return s.unready(r, false) }

// unready is Unready; arrived says that the other directory has the region already, so that
// how its units are written here does not matter.
func (s *State) unready(r RegionName, arrived bool) *Refusal {
	for j := range s.RunningJobs() {
		if s.worksIn(j, r) {
			return refuse(CodeRegionNotReady, "a job to "+j.Kind.String()+" is under way in the region", "region", string(r), "job", j.ID.String(), "tenant", string(j.Tenant))
		}
	}
	for n := range s.Nodes() {
		if n.Region != r {
			continue
		}
		for p := range s.HeldBy(n.Name) {
			if why := s.unfit(p, r); why != "" && !(arrived && s.leaves(p)) {
				return refuse(CodeRegionNotReady, "tenant "+tenantOf(p.Unit)+" "+why, "region", string(r), "tenant", tenantOf(p.Unit))
			}
		}
	}
	return nil
}

// worksIn reports whether a running job has to do with a region.
func (s *State) worksIn(j *Job, r RegionName) bool {
	if j.Kind == JobGive {
		return false
	}
	in := func(n NodeName) bool {
		e, ok := s.nodes.Get(n)
		return ok && e.node.Region == r
	}
	if s.scope.Region != "" || j.Home == r || j.From == r && j.Kind == JobRelocate || in(j.Source) || in(j.Node) {
		return true
	}
	return slices.ContainsFunc(j.Targets, func(t Target) bool {
		p, ok := s.Placed(t.Unit)
		return in(t.Node) || ok && p.ID == t.ID && in(p.Node)
	})
}

// unfit says why a unit that a node of a region holds cannot be given with the region.
func (s *State) unfit(p *Placed, r RegionName) string {
	t, whole := s.tenants.Get(TenantName(p.Unit))
	home, ok := s.nodes.Get(p.Node)
	switch {
	case !whole || t.tenant.Buckets > 0:
		return "has buckets: it is not given to another directory by this version"
	case !ok || home.node.Region != r:
		return "lives elsewhere, and a node of the region still holds something of it"
	case len(t.tenant.Readers) > 0:
		return "has read replicas in other regions: end them first"
	case p.State != UnitActive || p.Job != 0 || t.tenant.Job != 0:
		return "has work under way"
	case !p.Promoted():
		return "has not been promoted on its node yet"
	case generation(p.Epoch) >= maxGeneration:
		return "has changed directories too often"
	}
	for _, cp := range p.Copies {
		if e, ok := s.nodes.Get(cp.Node); !ok || e.node.Region != r || cp.State == CopyTarget || cp.State == CopyReader {
			return "has a copy that is not one of the region's own"
		}
	}
	return ""
}

// leaves reports whether a unit of a region can be dropped that another directory has: nothing
// here refers to it but its nodes.
func (s *State) leaves(p *Placed) bool {
	t, whole := s.tenants.Get(TenantName(p.Unit))
	return whole && t.tenant.Buckets == 0 && len(t.tenant.Readers) == 0 && p.State == UnitActive && p.Job == 0 && t.tenant.Job == 0
}

// giveRegion is the giver's flip.
func (c *change) giveRegion(cmd *GiveRegion) *Refusal {
	j, ok := c.running.Get(cmd.ID)
	if !ok || j.Kind != JobGive || j.Step != StepCopy {
		return refuse(CodeStale, "no region is being given away by this job any more")
	}
	sum := c.Digest(j.Home)
	switch r := c.unready(j.Home, cmd.Arrived); {
	case r != nil:
		return r
	case cmd.Arrived && !c.Recovering():
		return refuse(CodeStale, "the directory is not being recovered: it has given nothing that it does not know of")
	case !cmd.Arrived && sum != cmd.Digest:
		return refuse(CodeStale, "the region has changed since the other group was told of it")
	}
	next := *j
	next.Step, next.Problem, next.Digest, next.Since = StepPromote, "", sum, c.now
	nodes, tenants := c.Given(j.Home)
	for t, p := range collect2(tenants) {
		c.staged.tenants.Set(t.Name, &tenancy{t, p})
		c.leave(t, p, j.Home)
	}
	for _, n := range nodes {
		c.staged.nodes.Set(n.Name, n)
		e, _ := c.nodes.Get(n.Name) // as the one before has left it
		c.dropNode(e)
		c.events = append(c.events, Event{NodeGone: n.Name})
	}
	c.putJob(&next)
	if c.Recovering() {
		c.recovery = c.fromTheStart()
	}
	return nil
}

// leave takes a tenant's unit out of the directory. In the global one its name stays.
func (c *change) leave(t *Tenant, p *Placed, home RegionName) {
	c.events = append(c.events, Event{UnitGone: p.Unit})
	if c.scope.Region != "" {
		c.dropTenant(t.Name)
		return
	}
	next := *t
	next.HasHome, next.Home, next.Claim = true, home, p.ID
	c.putTenant(&next, nil)
	c.events = append(c.events, Event{Tenant: next.info()})
}

// advanceGive is AdvanceJob of a JobGive.
func (c *change) advanceGive(j *Job, cmd *AdvanceJob) *Refusal {
	next := *j
	next.Step, next.Problem = cmd.To, ""
	switch {
	case cmd.Keep != 0 || (cmd.To == StepUndo) != (cmd.Refusal != nil) || cmd.Refusal != nil && cmd.Refusal.Code == "":
		return refuse(CodeBadRequest, "a refusal with a code is given when a hand-over is undone, and only then")
	case j.Step == StepCopy && cmd.To == StepUndo:
		next.Refusal = cmd.Refusal.kept()
		c.putJob(&next)
	case j.Step == StepPromote && cmd.To == StepClean:
		c.putJob(&next)
	case cmd.To == StepDone && (j.Step == StepClean || j.Step == StepUndo):
		c.staged = staged{} // none is of an intake: regions go one at a time
		c.end(&next)
	default:
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	return nil
}

// shut refuses what would begin something in a region that is being handed over. What
// keeps its tenants writable goes on: copies that come in sync or fall behind, failovers,
// handovers. The giver tells of it anew; the taker begins nothing before it has the region.
func (c *change) shut(cmd Command) *Refusal {
	if c.giving == nil && c.intakes.Len() == 0 {
		return nil
	}
	for _, r := range c.begunIn(cmd) {
		if c.closed(r) {
			return handingOver(r)
		}
	}
	if put, ok := cmd.(*PutNode); ok && c.isStaged(put) {
		if c.giving != nil {
			return handingOver(c.giving.Home)
		}
		return handingOver(c.OpenIntake().Region)
	}
	return nil
}

// isStaged reports whether a node has the name or the address of one that is to come with
// a region, which could not arrive any more, and may have been given already; or of one that
// was given and is not told yet.
func (c *change) isStaged(put *PutNode) bool {
	if _, named := c.staged.nodes.Get(put.Name); named {
		return true
	}
	taken := false
	c.staged.nodes.Scan(func(_ NodeName, n *Node) bool {
		taken = put.Addr != nil && endpoint(n.Addr) == endpoint(*put.Addr)
		return !taken
	})
	return taken
}

// begunIn names the regions in which a command would begin something.
func (c *change) begunIn(cmd Command) (regions []RegionName) {
	tenant := func(t TenantName) {
		if r, ok := c.TenantRegion(t); ok {
			regions = append(regions, r)
		}
	}
	node := func(n NodeName) {
		if e, ok := c.nodes.Get(n); ok {
			regions = append(regions, e.node.Region)
		}
	}
	region := func(r *RegionName) {
		if r != nil {
			regions = append(regions, *r)
		}
	}
	switch cmd := cmd.(type) {
	case *PutNode:
		node(cmd.Name)
		if region(cmd.Region); cmd.Region == nil {
			region(&c.scope.Region)
		}
	case *DeleteNode:
		node(cmd.Name)
	case *SetDrain:
		node(cmd.Node)
	case *CreateTenant:
		if region(cmd.Region); cmd.Region == nil && cmd.Node == nil {
			region(c.settings.DefaultRegion)
			region(cmd.Origin)
		} else if cmd.Node != nil {
			node(*cmd.Node)
		}
	case *DeleteTenant:
		tenant(cmd.Name)
	case *BeginMove:
		tenant(TenantName(tenantOf(cmd.Unit)))
		node(cmd.To)
		region(cmd.Region)
	case *BeginRebalance:
		for _, t := range cmd.Moves {
			node(t.Node)
		}
	case *BeginRelocation:
		tenant(cmd.Tenant)
		region(&cmd.Region)
	case *SetReader:
		tenant(cmd.Tenant)
		region(&cmd.Region)
	case *AdoptUnit:
		node(cmd.Node)
	case *DeleteRegion:
		region(&cmd.Name)
	case *BeginTask:
		region(cmd.Region)
		tenant(cmd.Tenant)
		region(&c.scope.Region)
	case *YieldTenant:
		region(&c.scope.Region)
	}
	return regions
}

// indexGive keeps the job that gives a region away.
func (s *State) indexGive(j *Job) {
	if j.Kind != JobGive {
		return
	}
	if s.giving = j; j.EndedIn != 0 {
		s.giving = nil
	}
}
