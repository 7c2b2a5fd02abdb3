package fsm

import "slices"

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
	if j, ok := s.moves.Get(p.Unit); ok && j.Targets[0].ID == p.ID {
		return j.Targets[0].Node
	}
	return ""
}

func (c *change) beginMove(cmd *BeginMove) Result {
	j, r := c.newMove(cmd)
	if cmd.Group != 0 {
		if stale := c.leaveGroup(cmd, r); stale != nil {
			return refused(stale)
		}
		if r != nil {
			return Result{}
		}
	}
	if r != nil {
		return refused(r)
	}
	c.putJob(j)
	return Result{Job: j.ID}
}

// newMove gives the job that a command begins, or why it does not.
func (c *change) newMove(cmd *BeginMove) (*Job, *Refusal) {
	name, _, ok := cmd.Unit.Split()
	if !ok {
		return nil, badName("tenant", string(cmd.Unit))
	}
	t, ok := c.tenants.Get(name)
	if !ok {
		return nil, unknownTenant(name)
	}
	if t.tenant.HasHome {
		return nil, elsewhere(t.tenant.Home)
	}
	p, ok := c.Placed(cmd.Unit)
	if !ok {
		return nil, unknownTenant(name)
	}
	switch cmd.Cause {
	case CauseMove:
	case CauseDrain, CauseRebalance:
		if t.tenant.Pinned && !cmd.Forced {
			return nil, refuse(CodePinned, "tenant "+string(name)+" is pinned to node "+string(p.Node)+
				"; only a move by hand, or a forced drain, takes it away", "tenant", string(name), "node", string(p.Node))
		}
	default:
		return nil, refuse(CodeBadRequest, "a move is by hand, of a drain, or of a rebalance", "tenant", string(name))
	}
	if !p.kept() {
		return nil, busy(name)
	}
	if j, ok := c.Move(cmd.Unit); ok {
		return nil, refuse(CodeBusy, "tenant "+string(name)+" is being moved to node "+string(j.Targets[0].Node)+
			"; wait for that move, or cancel it", "tenant", string(name), "move", j.ID.String())
	}
	to, r := c.moveTo(p, cmd)
	if r != nil {
		return nil, r
	}
	return &Job{ID: JobID(c.at), Kind: JobMove, Tenant: name, Source: p.Node, Cause: cmd.Cause, Group: cmd.Group,
		Step: StepQueue, Started: c.now, Targets: []Target{{p.Unit, p.ID, to}}}, nil
}

// moveTo gives the node that a move goes to (M1).
func (c *change) moveTo(p *Placed, cmd *BeginMove) (NodeName, *Refusal) {
	home, _ := c.nodes.Get(p.Node)
	region := home.node.Region
	if cmd.Region != nil {
		region = *cmd.Region
		if region != "" && !validRegion(region) {
			return "", badName("region", string(region))
		}
		if !c.regionKnown(region) {
			return "", refuse(CodeRegionUnknown, "no node is in region "+regionText(region)+
				"; record one there first, or name another region", "region", string(region))
		}
	}
	if r, ok := c.regions.Get(region); ok {
		return "", elsewhere(r.Name)
	}
	if cmd.To != "" {
		return cmd.To, c.mayMoveTo(p, cmd, home.node.Region)
	}
	switch {
	case cmd.Region == nil && cmd.Cause != CauseDrain:
		return "", refuse(CodeBadRequest, "say where the tenant is to go: a node (to), or a region", "tenant", tenantOf(p.Unit))
	case cmd.Region != nil && region == home.node.Region:
		return "", refuse(CodeAlreadyThere, "tenant "+tenantOf(p.Unit)+" is in region "+regionText(region)+
			" already, on node "+string(p.Node), "tenant", tenantOf(p.Unit), "node", string(p.Node), "region", string(region))
	}
	w := want{role: RolePrimary, region: &region, unit: p, silent: cmd.Silent}
	if best := c.best(&w, func(n NodeName) bool { return n == p.Node }); best != nil {
		return best.seat.node.Name, nil
	}
	return "", c.noNode(&region, len(cmd.Silent) > 0)
}

// mayMoveTo says why a unit that lives in a region does not go to the node that was
// named; nil where it may.
func (c *change) mayMoveTo(p *Placed, cmd *BeginMove, region RegionName) *Refusal {
	e, ok := c.nodes.Get(cmd.To)
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
	if own, ok := c.regions.Get(n.Region); ok {
		return elsewhere(own.Name)
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
// not begun.
func (c *change) leaveGroup(cmd *BeginMove, why *Refusal) *Refusal {
	j, ok := c.running.Get(cmd.Group)
	if !ok || j.Kind != JobRebalance {
		return refuse(CodeStale, "the rebalance has ended")
	}
	next := *j
	next.Targets = slices.DeleteFunc(slices.Clone(j.Targets), func(t Target) bool { return t.Unit == cmd.Unit })
	if len(next.Targets) == len(j.Targets) {
		return refuse(CodeStale, "the rebalance does not plan to move "+string(cmd.Unit))
	}
	if why != nil {
		next.Problem = clip(string(cmd.Unit) + ": " + why.Text)
		next.Attempts++
	}
	if len(next.Targets) > 0 {
		c.putJob(&next)
		return nil
	}
	next.Targets = j.Targets
	c.end(&next)
	return nil
}

// end records that a job is done.
func (c *change) end(j *Job) {
	j.Step, j.Ended, j.EndedIn = StepDone, c.now, c.at
	c.endJob(j)
}

func (c *change) beginRebalance(cmd *BeginRebalance) Result {
	if j := c.Rebalance(); j != nil {
		return refused(refuse(CodeBusy, "a rebalance is under way; wait for it, or cancel it", "move", j.ID.String()))
	}
	if len(cmd.Moves) == 0 || len(cmd.Moves) > MaxRebalance {
		return refused(refuse(CodeBadRequest, "a rebalance holds one to some thousand moves"))
	}
	j := &Job{ID: JobID(c.at), Kind: JobRebalance, Cause: CauseRebalance, Step: StepBegin, Started: c.now, Targets: slices.Clone(cmd.Moves)}
	c.putJob(j)
	return Result{Job: j.ID}
}

// MaxRebalance bounds the moves of one rebalance.
const MaxRebalance = 1000

// advanceMove is AdvanceJob of a move.
func (c *change) advanceMove(j *Job, cmd *AdvanceJob) *Refusal {
	t := j.Targets[0]
	p, ok := c.Placed(t.Unit)
	if !ok || p.ID != t.ID || !p.kept() {
		p = nil // it was deleted
	}
	there := p != nil && p.Node == t.Node // a failover brought it there
	var r *Refusal
	switch {
	case cmd.To == StepDone && cmd.Refusal != nil && (j.Step == StepQueue || j.Step == StepCopy || j.Step == StepThaw || j.Step == StepPromote && !there):
		c.endMove(j, p, cmd.Refusal)
	case cmd.Refusal != nil:
		r = refuse(CodeBadRequest, "a move at "+j.Step.String()+" is not undone by that")
	case j.Step == StepClean && cmd.To == StepDone:
		next := *j
		next.Problem = ""
		c.end(&next)
	case (j.Step == StepQueue || j.Step == StepCopy) && cmd.To == StepPromote && there:
		c.arrive(j, p)
	case (j.Step == StepQueue || j.Step == StepThaw && j.Refusal == nil) && cmd.To == StepCopy:
		r = c.beginCopy(j, p)
	case j.Step == StepCopy && cmd.To == StepRelease:
		r = c.beginRelease(j, p)
	default:
		r = refuse(CodeBadRequest, "a move does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	return r
}

// arrive has a move go on that a failover has brought to its target.
func (c *change) arrive(j *Job, p *Placed) {
	next := *j
	next.Step, next.Problem = StepPromote, ""
	c.putJob(&next)
	c.settleTargets(p)
	c.moved(p)
}

// settleTargets makes copies that were made for a move that is done with them what
// they are from now on: replicas in the unit's own region, else they leave.
func (c *change) settleTargets(p *Placed) {
	next := *p
	next.Copies = c.settled(p.Copies, p.Node, true)
	c.put(p, &next)
}

// settled gives copies without CopyTarget: replicas of a unit on home if they stay and
// are in its region.
func (c *change) settled(copies []Copy, home NodeName, stay bool) []Copy {
	own := slices.Clone(copies)
	e, _ := c.nodes.Get(home)
	for i := range own {
		if cp := &own[i]; cp.State == CopyTarget {
			on, _ := c.nodes.Get(cp.Node)
			cp.State, cp.Since, cp.Entry = CopyLeaving, c.now, c.at
			if stay && e != nil && on.node.Region == e.node.Region {
				cp.State = CopySyncing
			}
		}
	}
	return own
}

// beginCopy records the target of a move as a copy, and in another region the replicas
// to be beside it (M4).
func (c *change) beginCopy(j *Job, p *Placed) *Refusal {
	if p == nil {
		return refuse(CodeStale, "the tenant is gone")
	}
	to := j.Targets[0].Node
	e, ok := c.nodes.Get(to)
	if !ok {
		return unknownNode(to)
	}
	if r := e.takesNone("node", string(to)); r != nil {
		return r
	}
	home, _ := c.nodes.Get(p.Node)
	if p.Node == to || !p.Promoted() || p.State != UnitActive {
		return refuse(CodeStale, "the unit is being given to another node", "tenant", string(j.Tenant))
	}
	next := *p
	if state := p.copyOn(to); !state.Replica() && state != CopyTarget {
		next.Copies = next.with(c.target(to))
	}
	if e.node.Region != home.node.Region {
		next.Copies = c.replicasToBe(next, e)
	}
	step := *j
	step.Step, step.Problem, step.Source = StepCopy, "", p.Node
	c.putJob(&step)
	c.put(p, &next)
	return nil
}

// replicasToBe gives p's copies with the replicas that it is to have when it comes to
// another region.
func (c *change) replicasToBe(p Placed, e *seat) []Copy {
	p.Node = e.node.Name
	have := -1 // beside the target itself
	for i := range p.Copies {
		// A read replica there becomes a replica when the unit comes (crossRegion).
		if on, _ := c.nodes.Get(p.Copies[i].Node); p.Copies[i].State == CopyTarget || p.Copies[i].State == CopyReader && on.node.Region == e.node.Region {
			have++
		}
	}
	for range c.CopiesWanted(&p) - have {
		best := c.bestReplica(e, &p, nil)
		if best == nil {
			break
		}
		p.Copies = p.with(c.target(best.seat.node.Name))
	}
	return p.Copies
}

func (c *change) target(n NodeName) Copy {
	return Copy{Node: n, State: CopyTarget, Since: c.now, Entry: c.at}
}

// beginRelease gives the unit to its move, which has the source give it up.
func (c *change) beginRelease(j *Job, p *Placed) *Refusal {
	to := j.Targets[0].Node
	e, ok := c.nodes.Get(to)
	if p == nil || !ok || p.State != UnitActive || !p.Promoted() || p.Node == to || !p.copyOn(to).Listed() {
		return refuse(CodeStale, "the unit does not stand as it did when that was decided", "tenant", string(j.Tenant))
	}
	if r := e.takesNone("node", string(to)); r != nil {
		return r
	}
	step := *j
	step.Step, step.Problem, step.Source = StepRelease, "", p.Node
	step.Release = c.at
	c.putJob(&step)
	next := *p
	next.State, next.Job = UnitMoving, j.ID
	c.put(p, &next)
	return nil
}

// leaveRelease has a move go on after its source has released the unit, or has not, or
// was failed over.
func (c *change) leaveRelease(j *Job) {
	t := j.Targets[0]
	p, _ := c.Placed(t.Unit)
	next := *j
	next.Problem = ""
	switch {
	case p.Node == t.Node:
		next.Step = StepPromote
	case p.Node != j.Source:
		next.Step = StepCopy // goes on from the new primary
	default:
		next.Step = StepThaw
		if p.State == UnitMoving {
			back := *p
			back.State, back.Job = UnitActive, 0
			c.put(p, &back)
		}
	}
	c.putJob(&next)
}

// leaveReleases does so for all moves that a node is releasing units for.
func (c *change) leaveReleases(source NodeName) {
	for _, j := range slices.Collect(c.RunningJobs()) {
		if j.Kind == JobMove && j.Step == StepRelease && j.Source == source {
			c.leaveRelease(j)
		}
	}
}

// moved has a move go on to its end once its target is confirmed as promoted.
func (c *change) moved(p *Placed) {
	j, ok := c.Move(p.Unit)
	if !ok || j.Step != StepPromote || j.Targets[0].ID != p.ID || j.Targets[0].Node != p.Node || !p.Promoted() {
		return
	}
	next := *j
	next.Step, next.Problem = StepClean, ""
	c.putJob(&next)
}

// endMove undoes a move: what was copied for it leaves. p is its unit, nil where it is
// gone.
func (c *change) endMove(j *Job, p *Placed, why *Refusal) {
	next := *j
	if next.Problem == "" {
		next.Problem = clip(why.Text)
	}
	if next.Refusal == nil {
		next.Refusal = why.kept()
	}
	c.end(&next)
	if p != nil && slices.ContainsFunc(p.Copies, func(cp Copy) bool { return cp.State == CopyTarget }) {
		back := *p
		back.Copies = c.settled(p.Copies, "", false)
		c.put(p, &back)
	}
}

func (c *change) cancelMove(cmd *CancelMove) *Refusal {
	j, ok := c.jobs.Get(cmd.ID)
	if !ok || j.Kind != JobMove && j.Kind != JobRebalance {
		return refuse(CodeMoveUnknown, "no move has the number "+cmd.ID.String()+", or it ended long ago", "move", cmd.ID.String())
	}
	reason := clip(cmd.Reason)
	if reason == "" {
		reason = "it was cancelled"
	}
	why := refuse(CodeCancelled, reason, "move", j.ID.String())
	switch {
	case j.Ended != 0:
		return refuse(CodeMoveEnded, "the move has ended", "move", j.ID.String())
	case j.Kind == JobRebalance:
		next := *j
		next.Refusal = why.kept()
		c.end(&next)
	case j.Step == StepQueue || j.Step == StepCopy:
		p, ok := c.Placed(j.Targets[0].Unit)
		if !ok || p.ID != j.Targets[0].ID {
			p = nil
		}
		c.endMove(j, p, why)
	case j.Step == StepThaw:
		next := *j
		next.Refusal = why.kept()
		c.putJob(&next)
	default:
		return refuse(CodeMoveReleased, "the tenant is being given over, or was: the move cannot be cancelled any more; move the tenant back instead",
			"move", j.ID.String(), "tenant", string(j.Tenant))
	}
	return nil
}
