package fsm

import "slices"

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
	case cmd.Refusal != nil && cmd.Refusal.Code == "":
		r = refuse(CodeBadRequest, "the refusal of a move needs a code")
	case cmd.To == StepDone && cmd.Refusal != nil && (j.mayBeGivenUp() || j.Step == StepPromote && !there):
		c.endMove(j, p, cmd.Refusal)
	case cmd.Refusal != nil:
		r = refuse(CodeBadRequest, "a move at "+j.Step.String()+" is not undone by that")
	case j.Step == StepClean && cmd.To == StepDone:
		next := *j
		next.Problem = ""
		c.end(&next)
	case j.Refusal != nil:
		r = refuse(CodeStale, "the move is given up")
	case j.mayBeGivenUp() && cmd.To == StepPromote && there:
		c.arrive(j, p)
	case j.mayBeGivenUp() && cmd.To == StepCopy:
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
	c.moved(p)
}

// settled gives copies without CopyTarget, once the move is done with them: replicas of
// a unit on home if they stay and are in its region, else they leave.
func (c *change) settled(copies []Copy, home NodeName, stay bool) []Copy {
	own := slices.Clone(copies)
	e, _ := c.nodes.Get(home)
	for i := range own {
		if cp := &own[i]; cp.State == CopyTarget {
			on, _ := c.nodes.Get(cp.Node)
			// It goes without a grace: nobody reads it, and in another region nothing may
			// reach it any more (I2).
			cp.State, cp.Since, cp.Entry = CopyLeaving, max(0, c.now-c.settings.RemoveAfter), c.at
			if stay && e != nil && on.node.Region == e.node.Region {
				cp.State, cp.Since = CopySyncing, c.now
			}
		}
	}
	return own
}

// beginCopy records the target of a move as a copy, and in another region the replicas
// to be beside it (M4). It does so again for a target that is no copy any more: it was
// the primary for a while, or what it held was not known in a recovery.
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
	if p.Node == to || !p.Promoted() || p.State != UnitActive || j.Step == StepCopy && p.copyOn(to).Listed() {
		return refuse(CodeStale, "the unit does not stand as it did when that was decided", "tenant", string(j.Tenant))
	}
	if r := c.pinned(p, j.Cause, j.Forced); r != nil {
		return r
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
	if r := c.pinned(p, j.Cause, j.Forced); r != nil {
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
		if (j.Kind == JobMove || j.Kind == JobDepart) && j.Step == StepRelease && j.Source == source {
			c.leaveRelease(j)
		}
	}
}

// moved has a move go on to its end once its target is confirmed as promoted.
func (c *change) moved(p *Placed) {
	j, ok := c.Move(p.Unit)
	if ok && j.Kind == JobReceive && j.Step == StepPromote && j.Unit == p.ID && p.Promoted() {
		next := *j
		next.Problem = ""
		c.endLocal(&next)
		return
	}
	if !ok || j.Kind != JobMove || j.Step != StepPromote || j.Targets[0].ID != p.ID || j.Targets[0].Node != p.Node || !p.Promoted() {
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
	c.targetsLeave(p)
}

// targetsLeave has the copies leave that were made for a unit's move; p may be nil.
func (c *change) targetsLeave(p *Placed) {
	if p == nil || !slices.ContainsFunc(p.Copies, func(cp Copy) bool { return cp.State == CopyTarget }) {
		return
	}
	back := *p
	back.Copies = c.settled(p.Copies, "", false)
	c.put(p, &back)
}

// mayBeGivenUp reports whether a move stands where it can be undone: its unit is its
// source's.
func (j *Job) mayBeGivenUp() bool {
	return j.Step == StepQueue || j.Step == StepCopy || j.Step == StepThaw
}

// giveUp decides that a move is undone, and has what was copied for it leave; the job
// ends once its source is certain to write the unit.
func (c *change) giveUp(j *Job, why *Refusal) {
	next := *j
	next.Refusal = why.kept()
	c.putJob(&next)
	if p, ok := c.Placed(j.Targets[0].Unit); ok && p.ID == j.Targets[0].ID && p.kept() {
		c.targetsLeave(p)
	}
}

// giveUpMovesTo does so with all moves to a node that is written off.
func (c *change) giveUpMovesTo(n NodeName) {
	for _, j := range slices.Collect(values(&c.moves)) {
		if j.Kind == JobMove && j.Targets[0].Node == n && j.mayBeGivenUp() && j.Refusal == nil {
			c.giveUp(j, refuse(CodeMoveUndone, "node "+string(n)+" was written off", "tenant", string(j.Tenant), "node", string(n)))
		}
	}
}

// movedTo gives a move that is to bring a unit to a node, or nil.
func (s *State) movedTo(n NodeName) *Job {
	for j := range values(&s.moves) {
		if j.Targets[0].Node == n && (j.Step == StepRelease || j.mayBeGivenUp()) && j.Refusal == nil {
			return j
		}
	}
	return nil
}

func (c *change) cancelMove(cmd *CancelMove) *Refusal {
	j, ok := c.jobs.Get(cmd.ID)
	if !ok || j.Kind != JobMove && j.Kind != JobRebalance && j.Kind != JobRelocate {
		return refuse(CodeMoveUnknown, "no move has the number "+cmd.ID.String()+", or it ended long ago", "move", cmd.ID.String())
	}
	reason := clip(cmd.Reason)
	if reason == "" {
		reason = "it was cancelled"
	}
	why := refuse(CodeCancelled, reason, "move", j.ID.String())
	switch {
	case j.Ended != 0:
		return refuse(CodeMoveEnded, "it has ended already; if a tenant is to be elsewhere, move it", "move", j.ID.String())
	case j.Kind == JobRelocate && j.Step == StepCopy:
		c.turnBack(j, why.kept())
	case j.Kind == JobRebalance:
		next := *j
		next.Refusal = why.kept()
		c.end(&next)
	case j.Kind == JobMove && (j.Step == StepQueue || j.Step == StepCopy):
		p, ok := c.Placed(j.Targets[0].Unit)
		if !ok || p.ID != j.Targets[0].ID {
			p = nil
		}
		c.endMove(j, p, why)
	case j.Kind == JobMove && j.Step == StepThaw:
		c.giveUp(j, why)
	default:
		return refuse(CodeMoveReleased, "the tenant is being given over, or was: the move cannot be cancelled any more; move the tenant back instead",
			"move", j.ID.String(), "tenant", string(j.Tenant))
	}
	return nil
}

// end records that a job is done.
func (c *change) end(j *Job) {
	j.Step, j.Ended, j.EndedIn = StepDone, c.now, c.at
	c.endJob(j)
}
