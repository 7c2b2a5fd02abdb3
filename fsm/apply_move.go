package fsm

import (
	"slices"
	"strconv"
)

// Move gives the move that may still bring a unit to its target, if one runs.
func (s *State) Move(u UnitName) (*Job, bool) { return s.moves.Get(u) }

// Rebalance gives the rebalance that still has moves to begin, or nil: there is one
// at most.
func (s *State) Rebalance() *Job {
	for j := range s.RunningJobs() {
		if j.Kind == JobRebalance {
			return j
		}
	}
	return nil
}

// moveTarget gives the node that a running move brings p to, or "".
func (s *State) moveTarget(p *Placed) NodeName {
	if j, ok := s.moves.Get(p.Unit); ok && j.Kind == JobMove && j.Targets[0].ID == p.ID {
		return j.Targets[0].Node
	}
	return ""
}

func (c *change) beginMove(cmd *BeginMove) Result {
	if cmd.Group != 0 {
		return c.beginPlanned(cmd)
	}
	j, r := c.newMove(cmd)
	if r != nil {
		return refused(r)
	}
	c.putJob(j)
	return Result{Job: j.ID}
}

// beginPlanned begins a move that a rebalance plans, and takes it out of the plan.
func (c *change) beginPlanned(cmd *BeginMove) Result {
	group, ok := c.running.Get(cmd.Group)
	if !ok || group.Kind != JobRebalance || cmd.Cause != CauseRebalance {
		return refused(refuse(CodeStale, "the rebalance has ended"))
	}
	i := slices.IndexFunc(group.Targets, func(t Target) bool { return t.Unit == cmd.Unit && t.Node == cmd.To })
	if i < 0 {
		return refused(refuse(CodeStale, "the rebalance does not plan to move "+string(cmd.Unit)+" to "+string(cmd.To)))
	}
	j, r := (*Job)(nil), (*Refusal)(nil)
	if p, ok := c.Placed(cmd.Unit); ok && p.ID != group.Targets[i].ID {
		r = refuse(CodeTenantUnknown, "the tenant was deleted, and another one has its name", "tenant", tenantOf(cmd.Unit))
	} else {
		j, r = c.newMove(cmd)
	}
	c.leaveGroup(group, i, r)
	if r != nil {
		return Result{}
	}
	c.putJob(j)
	return Result{Job: j.ID}
}

// newMove gives the job that a command begins, or why it does not.
func (c *change) newMove(cmd *BeginMove) (*Job, *Refusal) {
	p, to, r := c.MayMove(cmd)
	if r != nil {
		return nil, r
	}
	name, _, _ := p.Unit.Split()
	return &Job{ID: JobID(c.at), Kind: JobMove, Tenant: name, Source: p.Node, Cause: cmd.Cause, Group: cmd.Group,
		Forced: cmd.Cause == CauseDrain && cmd.Forced, Step: StepQueue, Started: c.now, Targets: []Target{{p.Unit, p.ID, to}}}, nil
}

// MayMove gives the unit that a BeginMove would move now, and the node that it would go
// to, or why it would be refused. Only Apply decides.
func (s *State) MayMove(cmd *BeginMove) (*Placed, NodeName, *Refusal) {
	name, _, ok := cmd.Unit.Split()
	if !ok {
		return nil, "", badName("tenant", string(cmd.Unit))
	}
	t, ok := s.tenants.Get(name)
	if !ok {
		return nil, "", unknownTenant(name)
	}
	if t.tenant.HasHome {
		return nil, "", elsewhere(t.tenant.Home)
	}
	p, ok := s.Placed(cmd.Unit)
	if !ok {
		return nil, "", unknownTenant(name)
	}
	if r := s.mayBeMoved(p, cmd); r != nil {
		return nil, "", r
	}
	if j, ok := s.Move(cmd.Unit); ok && j.Kind != JobMove || t.tenant.Job != 0 {
		return nil, "", refuse(CodeBusy, "tenant "+string(name)+" is being moved to or from another region; wait for that move, or cancel it", "tenant", string(name))
	} else if ok {
		return nil, "", refuse(CodeBusy, "tenant "+string(name)+" is being moved to node "+string(j.Targets[0].Node)+
			"; wait for that move, or cancel it", "tenant", string(name), "move", j.ID.String())
	}
	to, r := s.moveTo(p, cmd)
	return p, to, r
}

// mayBeMoved says why a unit is not moved for a cause; nil where it may be.
func (s *State) mayBeMoved(p *Placed, cmd *BeginMove) *Refusal {
	e, ok := s.nodes.Get(p.Node)
	switch {
	case cmd.Cause != CauseMove && cmd.Cause != CauseDrain && cmd.Cause != CauseRebalance:
		return refuse(CodeBadRequest, "a move is by hand, of a drain, or of a rebalance", "tenant", tenantOf(p.Unit))
	case !ok || !p.kept():
		return busy(TenantName(tenantOf(p.Unit)))
	case cmd.Cause == CauseDrain && e.node.Drain == nil:
		return refuse(CodeStale, "node "+string(p.Node)+" is not being drained any more", "node", string(p.Node))
	}
	return s.pinned(p, cmd.Cause, cmd.Cause == CauseDrain && cmd.Forced)
}

// pinned refuses to take a pinned tenant's unit from its node, but by hand, or by force
// (T7).
func (s *State) pinned(p *Placed, cause FlipCause, forced bool) *Refusal {
	name := TenantName(tenantOf(p.Unit))
	t, ok := s.tenants.Get(name)
	if !ok || !t.tenant.Pinned || forced || cause != CauseDrain && cause != CauseRebalance {
		return nil
	}
	return refuse(CodePinned, "tenant "+string(name)+" is pinned to node "+string(p.Node)+
		"; only a move by hand, or a forced drain, takes it away", "tenant", string(name), "node", string(p.Node))
}

// moveTo gives the node that a move goes to (M1).
func (s *State) moveTo(p *Placed, cmd *BeginMove) (NodeName, *Refusal) {
	home, _ := s.nodes.Get(p.Node)
	region := home.node.Region
	if cmd.Region != nil {
		region = *cmd.Region
		if region != "" && !validRegion(region) {
			return "", badName("region", string(region))
		}
		if !s.regionKnown(region) {
			return "", refuse(CodeRegionUnknown, "no node is in region "+regionText(region)+
				"; record one there first, or name another region", "region", string(region))
		}
	}
	if s.keepsOwn(region) {
		return "", elsewhere(region)
	}
	if cmd.To != "" {
		return cmd.To, s.mayMoveTo(p, cmd, home.node.Region)
	}
	switch {
	case cmd.Region == nil && cmd.Cause != CauseDrain:
		return "", refuse(CodeBadRequest, "say where the tenant is to go: a node (to), or a region", "tenant", tenantOf(p.Unit))
	case cmd.Region != nil && region == home.node.Region:
		return "", refuse(CodeAlreadyThere, "tenant "+tenantOf(p.Unit)+" is in region "+regionText(region)+
			" already, on node "+string(p.Node), "tenant", tenantOf(p.Unit), "node", string(p.Node), "region", string(region))
	}
	w := want{role: RolePrimary, region: &region, unit: p, silent: cmd.Silent}
	if best := s.best(&w, func(n NodeName) bool { return n == p.Node }); best != nil {
		return best.seat.node.Name, nil
	}
	return "", s.noNode(&region, len(cmd.Silent) > 0)
}

// mayMoveTo says why a unit that lives in a region does not go to the node that was
// named; nil where it may.
func (s *State) mayMoveTo(p *Placed, cmd *BeginMove, region RegionName) *Refusal {
	e, ok := s.nodes.Get(cmd.To)
	if !ok {
		return unknownNode(cmd.To)
	}
	n, tenant := e.node, tenantOf(p.Unit)
	fields := []string{"tenant", tenant, "node", string(n.Name), "region", string(n.Region)}
	switch {
	case cmd.Region != nil && n.Region != *cmd.Region:
		return refuse(CodeRegionMismatch, "node "+string(n.Name)+" is in region "+regionText(n.Region)+
			", not in "+regionText(*cmd.Region)+"; leave one of the two out, or make them agree", fields...)
	case cmd.Region == nil && n.Region != region:
		return refuse(CodeRegionMismatch, "node "+string(n.Name)+" is in region "+regionText(n.Region)+", and tenant "+tenant+
			" lives in "+regionText(region)+": name the region in the request if the tenant is to leave its own", fields...)
	case n.Name == p.Node:
		return refuse(CodeAlreadyThere, "tenant "+tenant+" is on node "+string(n.Name)+" already", fields...)
	}
	if s.keepsOwn(n.Region) {
		return elsewhere(n.Region)
	}
	if slices.Contains(cmd.Silent, n.Name) {
		return refuse(CodeNodeUnreachable, "node "+string(n.Name)+" does not answer; nothing was moved", fields...)
	}
	return e.takesNone(fields...)
}

// takesNone says why nothing is moved to a node; nil where it may be.
func (e *seat) takesNone(fields ...string) *Refusal {
	name := string(e.node.Name)
	switch {
	case e.standbyOf != "":
		return refuse(CodeNodeIsStandby, "node "+name+" is the standby of "+string(e.standbyOf)+"; nothing is moved to a standby", fields...)
	case e.node.Drain != nil:
		return refuse(CodeNodeDraining, "node "+name+" is being drained; choose another, or end its drain", fields...)
	case e.node.Lost:
		return refuse(CodeNodeLost, "node "+name+" was failed over and has not answered since; choose another", fields...)
	}
	return nil
}

// leaveGroup takes a move out of the rebalance that planned it, and notes why it is
// not begun. The rebalance ends with its last one.
func (c *change) leaveGroup(j *Job, i int, why *Refusal) {
	next := *j
	if why != nil {
		next.Problem = clip(string(j.Targets[i].Unit) + ": " + why.Text)
		next.Attempts++
	}
	if len(j.Targets) == 1 {
		c.end(&next)
		return
	}
	next.Targets = slices.Delete(slices.Clone(j.Targets), i, i+1)
	c.putJob(&next)
}

func (c *change) beginRebalance(cmd *BeginRebalance) Result {
	if j := c.Rebalance(); j != nil {
		return refused(refuse(CodeBusy, "a rebalance is under way; wait for it, or cancel it", "move", j.ID.String()))
	}
	if len(cmd.Moves) == 0 || len(cmd.Moves) > MaxRebalance {
		return refused(refuse(CodeBadRequest, "a rebalance holds 1 to "+strconv.Itoa(MaxRebalance)+" moves"))
	}
	named := make(map[UnitName]bool, len(cmd.Moves)) // looked up only
	for _, t := range cmd.Moves {
		if named[t.Unit] {
			return refused(refuse(CodeBadRequest, "a rebalance moves "+clip(string(t.Unit))+" twice"))
		}
		named[t.Unit] = true
	}
	j := &Job{ID: JobID(c.at), Kind: JobRebalance, Cause: CauseRebalance, Step: StepBegin, Started: c.now, Targets: slices.Clone(cmd.Moves)}
	c.putJob(j)
	return Result{Job: j.ID}
}

// MaxRebalance bounds the moves of one rebalance.
const MaxRebalance = 1000
