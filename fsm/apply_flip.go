package fsm

import (
	"cmp"
	"slices"
)

func (c *change) failOver(cmd *FailOver) Result {
	e, ok := c.nodes.Get(cmd.Node)
	switch {
	case !ok:
		return refused(unknownNode(cmd.Node))
	case cmd.Cause != CauseLapsed && cmd.Cause != CauseHand && cmd.Cause != CauseUnpromoted:
		return refused(refuse(CodeBadRequest, "a failover is by lapse, by hand, or of what was not promoted", "node", string(cmd.Node)))
	case cmd.Cause != CauseHand && e.node.Lease != LeaseTaken:
		return refused(refuse(CodeNodeUnleased, "node "+string(cmd.Node)+
			" takes no lease, so that nothing tells when it stops writing; fail it over by hand", "node", string(cmd.Node)))
	case cmd.Cause == CauseHand && e.node.Lease == LeaseTaken && !e.node.Lost && c.settings.AutoFailover > 0:
		// It came back while that was decided: it may have been granted again.
		return refused(refuse(CodeStale, "node "+string(cmd.Node)+
			" is under a lease, which has to run out or be given back first; ask again", "node", string(cmd.Node)))
	}
	choices := chosenFrom(cmd.Node, cmd.Choices)
	var flips []Flip
	var left []UnitName
	for p := range c.HeldBy(cmd.Node) {
		if p.Node != cmd.Node || !p.kept() || cmd.Cause == CauseUnpromoted && (p.Promoted() || choices[p.ref()] == "") {
			continue
		}
		if to := c.chosen(p, choices[p.ref()], cmd.Cause); to != "" {
			flips = append(flips, Flip{p.ref(), cmd.Node, to})
		} else {
			left = append(left, p.Unit)
		}
	}
	if cmd.Cause != CauseLapsed && len(flips) == 0 {
		return refused(nothingToPromote(cmd.Node, left))
	}
	for _, f := range flips {
		p, _ := c.Placed(f.Unit)
		c.flip(f, p.copyOn(f.To) == CopyInSync || f.To == p.Previous)
	}
	if cmd.Cause != CauseUnpromoted { // what is handed over was promoted
		c.leaveHandover(cmd.Node)
		c.leaveReleases(cmd.Node)
	}
	c.unpair(cmd.Node, flips, false)
	if cmd.Cause == CauseLapsed || cmd.Cause == CauseHand && cmd.Silent {
		c.lose(cmd.Node, true)
	}
	return Result{Flips: flips, Left: left}
}

// chosenFrom gives where choices send the units of a node; it is looked up only.
func chosenFrom(n NodeName, choices []Flip) map[UnitRef]NodeName {
	to := make(map[UnitRef]NodeName, len(choices))
	for _, f := range choices {
		if _, twice := to[f.UnitRef]; !twice && f.From == n {
			to[f.UnitRef] = f.To
		}
	}
	return to
}

func nothingToPromote(n NodeName, left []UnitName) *Refusal {
	name := string(n)
	if len(left) == 0 {
		return refuse(CodeNoCopy, "node "+name+" is the primary of no unit that could be given to another", "node", name)
	}
	return refuse(CodeNoCopy, "no unit of node "+name+" has a copy that could be promoted: by itself, one that is in sync on a node that answers; "+
		"by force, one that follows and holds data; "+string(left[0])+" has none, for one", "node", name, "tenant", tenantOf(left[0]))
}

// chosen gives the node that a failover gives p to: the one that was chosen,
// where it may be promoted, else the Successor, unless that one was chosen on purpose;
// or "".
func (c *change) chosen(p *Placed, choice NodeName, cause FlipCause) NodeName {
	if choice != "" {
		switch state := p.copyOn(choice); {
		case state == CopyInSync, state != 0 && choice == p.Previous, state.Listed() && cause == CauseHand && c.besides(p, choice):
			return choice
		}
	}
	if cause == CauseUnpromoted {
		return ""
	}
	to, _ := c.Successor(p, nil)
	return to
}

// besides reports whether a node is in the region of a unit's node: nothing but a move
// takes a unit elsewhere (L8).
func (s *State) besides(p *Placed, n NodeName) bool {
	home, ok := s.nodes.Get(p.Node)
	e, found := s.nodes.Get(n)
	return ok && found && home.node.Region == e.node.Region
}

// Successor gives the node that a unit goes to when its own fails or hands it
// over: that of an in-sync copy, the target of the handover or move that is under way
// first, then by whether it is drained, or another's standby, by zone (C2) and name; else,
// before its promotion is confirmed, its last primary (architecture §3.7.6).
// Nodes that are lost or silent are none. It is false where there is none.
func (s *State) Successor(p *Placed, silent []NodeName) (NodeName, bool) {
	home, ok := s.nodes.Get(p.Node)
	if !ok {
		return "", false
	}
	target := NodeName("")
	if p.State == UnitMoving {
		target = s.targetOf(p)
	}
	var best NodeName
	var rank [5]int
	for i := range p.Copies {
		cp := &p.Copies[i]
		last := cp.State == CopyFormer && cp.Node == p.Previous
		e, ok := s.nodes.Get(cp.Node)
		if !ok || cp.State != CopyInSync && !last || e.node.Lost || slices.Contains(silent, cp.Node) {
			continue
		}
		r := [5]int{number(last), number(cp.Node != target), number(e.node.Drain != nil), number(e.standbyOf != "" && e.standbyOf != p.Node), zoneOf(home.node, e.node)}
		if best == "" || slices.Compare(r[:], rank[:]) < 0 {
			best, rank = cp.Node, r
		}
	}
	return best, best != ""
}

// targetOf gives the node that a moving unit is being handed over to, or "".
func (s *State) targetOf(p *Placed) NodeName {
	j, ok := s.running.Get(p.Job)
	if !ok || j.Kind != JobHandover && j.Kind != JobMove {
		return ""
	}
	i, found := j.target(p.Unit)
	if !found {
		return ""
	}
	return j.Targets[i].Node
}

// target finds the first target of a unit.
func (j *Job) target(u UnitName) (int, bool) {
	return slices.BinarySearchFunc(j.Targets, u, func(t Target, u UnitName) int { return cmp.Compare(t.Unit, u) })
}

// flip gives a unit to a node that holds a copy of it (I4). What the former
// primary holds is kept; copies that were in sync stay so where the new one is whole,
// which lacks nothing that was acknowledged, and count from its first grant on; one
// that was joining begins again. In another region no copy of the former one goes on
// (L8), and the replicas to be that came with a move are replicas (M4).
func (c *change) flip(f Flip, whole bool) {
	p, _ := c.Placed(f.Unit)
	next := *p
	next.Node, next.State, next.Job, next.Epoch, next.Lacks = f.To, UnitActive, 0, c.nextEpoch(p), 0
	next.Copies = p.without(f.To)
	for i := range next.Copies {
		if cp := &next.Copies[i]; cp.State == CopyJoining || cp.State == CopyInSync && !whole {
			cp.State, cp.Since, cp.Entry = CopySyncing, c.now, c.at
		}
	}
	c.crossRegion(&next, f)
	if c.moveTarget(p) == f.To {
		next.Copies = c.settled(next.Copies, f.To, true)
	}
	next.Copies = next.with(Copy{Node: f.From, State: CopyFormer, Since: c.now, Entry: c.at})
	// A node that was never granted the unit, as it takes grants and was not
	// promoted for certain, has written nothing.
	if e, _ := c.nodes.Get(f.From); p.Promoted() || e.node.Lease != LeaseTaken {
		next.Previous = f.From
	}
	if next.Previous == f.To {
		next.Previous = f.From
	}
	c.put(p, &next)
}

// crossRegion has the copies of a unit leave that are in another region than its new
// node, but for read replicas; one of these that is in that region is a replica there.
func (c *change) crossRegion(p *Placed, f Flip) {
	from, _ := c.nodes.Get(f.From)
	to, _ := c.nodes.Get(f.To)
	if from.node.Region == to.node.Region {
		return
	}
	for i := range p.Copies {
		cp := &p.Copies[i]
		on, _ := c.nodes.Get(cp.Node)
		switch here := on.node.Region == to.node.Region; {
		case cp.State.Replica() && !here:
			cp.State, cp.Since, cp.Entry = CopyLeaving, c.now, c.at
		case cp.State == CopyReader && here:
			cp.State, cp.Since, cp.Entry = CopySyncing, c.now, c.at
		}
	}
}

// unpair ends the pair of each standby that became a primary: it is a node like
// any other now. Where the node was handed over whole to its own standby, the
// pair is turned round instead, if turn.
func (c *change) unpair(from NodeName, flips []Flip, turn bool) {
	seen := NodeName("")
	for _, f := range flips {
		if f.To == seen {
			continue
		}
		seen = f.To
		of, ok := c.StandbyOf(f.To)
		if !ok {
			continue
		}
		e, _ := c.nodes.Get(of)
		main := *e.node
		main.Standby = ""
		c.State.putNode(&main)
		if e, _ := c.nodes.Get(from); turn && of == from && e.primaries == 0 && e.node.Drain == nil {
			e, _ := c.nodes.Get(f.To)
			other := *e.node
			other.Standby = from
			c.State.putNode(&other)
		}
		c.recount(of, f.To)
	}
}

func (c *change) beginHandover(cmd *BeginHandover) Result {
	e, ok := c.nodes.Get(cmd.Node)
	name := string(cmd.Node)
	switch {
	case !ok:
		return refused(unknownNode(cmd.Node))
	case cmd.Cause != CauseHand && cmd.Cause != CauseStopped && cmd.Cause != CauseBehind && cmd.Cause != CauseDrain:
		return refused(refuse(CodeBadRequest, "a handover is by hand, of a node that stops or is drained, or of one that is behind", "node", name))
	case e.node.Lost:
		return refused(refuse(CodeNodeLost, "node "+name+" was failed over and has not answered since; it cannot hand over", "node", name))
	case cmd.Cause == CauseDrain && e.node.Drain == nil:
		return refused(refuse(CodeStale, "node "+name+" is not being drained any more", "node", name))
	}
	if j := c.handoverOf(cmd.Node); j != nil {
		return refused(refuse(CodeBusy, "a handover of node "+name+" is under way already; try again when it is done", "node", name))
	}
	j := &Job{ID: JobID(c.at), Kind: JobHandover, Source: cmd.Node, Cause: cmd.Cause, Step: StepRelease, Started: c.now}
	var left []UnitName
	choices := chosenFrom(cmd.Node, cmd.Choices)
	for p := range c.toHandOver(cmd) {
		if p.Node != cmd.Node || p.State != UnitActive || !p.Promoted() || cmd.Cause == CauseDrain && c.pinned(p, cmd.Cause, e.node.Drain.Forced) != nil {
			continue
		}
		if to, forced := c.recipient(cmd, p, choices[p.ref()]); to != "" {
			j.Targets = append(j.Targets, Target{p.Unit, p.ID, to})
			j.Forced = j.Forced || forced
		} else {
			left = append(left, p.Unit)
		}
	}
	if len(j.Targets) == 0 {
		return refused(nothingToPromote(cmd.Node, left))
	}
	sortTargets(j.Targets)
	j.Targets = slices.Compact(j.Targets) // a unit may be named twice
	c.putJob(j)
	for _, t := range j.Targets {
		p, _ := c.Placed(t.Unit)
		next := *p
		next.State, next.Job = UnitMoving, j.ID
		c.put(p, &next)
	}
	return Result{Job: j.ID}
}

// recipient gives the node that a handover gives p to, or ""; forced: its copy is not
// in sync, and no other one is.
func (c *change) recipient(cmd *BeginHandover, p *Placed, choice NodeName) (to NodeName, forced bool) {
	e, ok := c.nodes.Get(choice)
	takes := ok && !e.node.Lost && !slices.Contains(cmd.Silent, choice)
	if takes && p.copyOn(choice) == CopyInSync {
		return choice, false
	}
	if to, ok := c.Successor(p, cmd.Silent); ok {
		return to, false
	}
	if takes && p.copyOn(choice).Listed() && cmd.Cause == CauseHand && c.besides(p, choice) {
		return choice, true
	}
	return "", false
}

// toHandOver yields the units that are asked for.
func (c *change) toHandOver(cmd *BeginHandover) func(func(*Placed) bool) {
	if len(cmd.Units) == 0 {
		return c.HeldBy(cmd.Node)
	}
	return func(yield func(*Placed) bool) {
		for _, r := range cmd.Units {
			if p, ok := c.Placed(r.Unit); ok && p.ID == r.ID && !yield(p) {
				return
			}
		}
	}
}

func sortTargets(t []Target) {
	slices.SortFunc(t, func(a, b Target) int { return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Node, b.Node)) })
}

// handoverOf gives the handover of a node that is under way, or nil: there is
// one at most.
func (s *State) handoverOf(n NodeName) *Job {
	for j := range s.RunningJobs() {
		if j.Kind == JobHandover && j.Source == n {
			return j
		}
	}
	return nil
}

func (c *change) endRelease(cmd *EndRelease) Result {
	j, ok := c.running.Get(cmd.ID)
	if !ok || j.Step != StepRelease {
		return refused(refuse(CodeStale, "the job does not wait for a release"))
	}
	released := make(map[UnitRef]bool, len(cmd.Released)) // looked up only
	for _, r := range cmd.Released {
		released[r] = true
	}
	if j.Kind == JobDepart {
		return c.endDeparting(j, released)
	}
	var flips []Flip
	var left []UnitName
	for _, t := range j.Targets {
		p, _ := c.Placed(t.Unit)
		to, whole := c.releasedTo(j, p, t.Node)
		if to == "" || !released[p.ref()] {
			left = append(left, t.Unit)
			continue
		}
		f := Flip{p.ref(), j.Source, to}
		flips = append(flips, f)
		c.flip(f, whole)
	}
	if j.Kind == JobMove {
		c.leaveRelease(j)
	} else {
		c.leaveHandover(j.Source)
	}
	c.unpair(j.Source, flips, j.Cause != CauseDrain)
	return Result{Flips: flips, Left: left}
}

// releasedTo gives the node that a released unit flips to, or "", and whether it is
// certain to have all that was acknowledged: the source has released it to that node, or
// the node's copy was in sync.
func (c *change) releasedTo(j *Job, p *Placed, to NodeName) (n NodeName, whole bool) {
	if j.Kind == JobMove {
		if e, ok := c.nodes.Get(to); !ok || e.node.Lost || !p.copyOn(to).Listed() {
			return "", false
		}
		return to, true
	}
	if p.copyOn(to) != CopyInSync {
		if other, ok := c.Successor(p, nil); ok || !j.Forced || !p.copyOn(to).Listed() {
			to = other
		}
	}
	return to, p.copyOn(to) == CopyInSync || to == p.Previous
}

// leaveHandover takes what has flipped out of the handover of a node. What is
// left there is active again, and the job stays open for it until the source has
// answered that it took it back (architecture §3.6.5); without any it ends.
func (c *change) leaveHandover(source NodeName) {
	j := c.handoverOf(source)
	if j == nil {
		return
	}
	next := *j
	next.Step, next.Problem = StepThaw, ""
	if next.Targets = c.ToThaw(j); len(next.Targets) == 0 {
		next.Step, next.Ended, next.EndedIn = StepDone, c.now, c.at
		next.Targets = j.Targets
		c.endJob(&next)
		return
	}
	for _, t := range next.Targets {
		if p, _ := c.Placed(t.Unit); p.State == UnitMoving {
			back := *p
			back.State, back.Job = UnitActive, 0
			c.put(p, &back)
		}
	}
	c.putJob(&next)
}

// ToThaw gives the targets of a handover whose units are still its source's:
// those that it has to take back at StepThaw. Others were deleted or failed over
// meanwhile, and want nothing more; without any the step is done.
func (s *State) ToThaw(j *Job) []Target {
	var still []Target
	for _, t := range j.Targets {
		if p, ok := s.Placed(t.Unit); ok && p.ID == t.ID && p.Node == j.Source && p.kept() {
			still = append(still, t)
		}
	}
	return still
}
