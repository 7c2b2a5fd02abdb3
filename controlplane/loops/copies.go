package loops

import (
	"slices"

	"domicile/fsm"
)

// copies plans what the copies of a unit need whose primary is promoted. What it
// should have is the directory's to say (fsm's Lacks, BetterCopy, SpareCopy);
// when is said here.
func (p *planner) copies(u *fsm.Placed) {
	m := &p.m.units
	if slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Listed() && c.State != fsm.CopyInSync }) {
		if m.watch(u, p.s.Revision()) {
			p.m.look = true // what its primary says may be known already, and not be said again
			p.wakeAt(p.now)
		}
	} else {
		m.unwatch(u.Unit)
	}
	p.tellCopies(u)
	p.readers(u)
	if u.Lacks != 0 {
		p.add(u)
	} else if wanted, ok := p.s.BetterCopy(u); ok {
		p.improve(u, wanted)
	} else {
		delete(m.badly, u.Unit)
	}
	if spare, ok := p.s.SpareCopy(u); ok {
		p.lists.leave = append(p.lists.leave, spare)
	}
	p.removeLeft(u)
}

// overdue reports whether the grace before a repair is over that began at since,
// and else has the unit looked at when it is.
func (p *planner) overdue(u *fsm.Placed, since fsm.Millis) bool {
	at := since + p.s.Settings().RepairAfter
	if p.now >= at || p.now < p.m.units.hurry {
		return true
	}
	p.later(u, at)
	return false
}

// add asks for a copy that is missing. A node that was the unit's primary, and
// is there, gets it at once: it needs little to follow again. Any other waits
// for the grace (C6).
func (p *planner) add(u *fsm.Placed) {
	home, ok := p.s.Node(u.Node)
	if !ok {
		return // cannot be: a node that holds a unit is not deleted (N6)
	}
	for _, c := range u.Copies {
		if n, ok := p.s.Node(c.Node); ok && c.State == fsm.CopyFormer && p.mayHold(u, home, n) {
			p.lists.add = append(p.lists.add, fsm.CopyWanted{UnitRef: ref(u), Node: c.Node})
			return
		}
	}
	// Where no node can take it nothing is proposed, however many units there
	// are: a node that appears, or is back, has all looked at again (C4).
	if (p.leaves(u) || p.overdue(u, u.Lacks)) && p.feasible(u, home) {
		p.lists.add = append(p.lists.add, fsm.CopyWanted{UnitRef: ref(u)})
	}
}

// improve asks for a copy in a better zone than the worst one's (C3). The
// directory does not record since when there is one, so that a new leader
// begins to wait anew.
func (p *planner) improve(u *fsm.Placed, wanted fsm.CopyWanted) {
	m := &p.m.units
	if m.badly[u.Unit] == 0 {
		m.badly[u.Unit] = p.now
	}
	if p.overdue(u, m.badly[u.Unit]) && !p.isSilent(wanted.Node) {
		p.lists.add = append(p.lists.add, wanted)
	}
}

// feasible reports whether a node may take one more copy of a unit.
func (p *planner) feasible(u *fsm.Placed, home *fsm.Node) bool {
	for n := range p.s.Nodes() {
		if p.mayHold(u, home, n) {
			return true
		}
	}
	return false
}

// mayHold reports whether one more copy of a unit may be placed on n (C1, C5);
// Apply decides.
func (p *planner) mayHold(u *fsm.Placed, home, n *fsm.Node) bool {
	of, standby := p.s.StandbyOf(n.Name)
	switch {
	case n.Name == home.Name, n.Region != home.Region, n.Lost, n.Drain != nil,
		home.Standby != "" && n.Name != home.Standby, standby && of != home.Name, !standby && n.Weight == 0:
		return false
	}
	if slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == n.Name && c.State.Follows() }) {
		return false
	}
	if p.isSilent(n.Name) {
		p.m.passedOver[n.Name] = true
		return false
	}
	return true
}

// removeLeft takes copies that left off their nodes, after the grace, and
// forgets those that are gone from there. One that may be needed waits until the unit has
// a copy in sync.
func (p *planner) removeLeft(u *fsm.Placed) {
	m := &p.m.units
	for _, c := range u.Copies {
		at := fsm.CopyRef{UnitRef: ref(u), Node: c.Node}
		if c.State != fsm.CopyLeaving {
			delete(m.removed, at)
			continue
		}
		call := Call{Work: RemoveUnit, Target: fsm.Target{Unit: u.Unit, ID: u.ID, Node: c.Node}}
		t := p.m.known(call)
		switch due := c.Since + p.s.Settings().RemoveAfter; {
		case m.removed[at] != 0:
			p.lists.drop = append(p.lists.drop, at)
		case p.outlives(u, c) || t.running || !p.apart(ref(u), c.Node, false):
		case m.beingTold(u.Unit, c.Node):
			m.park(c.Node, u.Unit) // it could arrive after the removal, and make the unit again
		case p.now < due:
			p.later(u, due)
		case t.failures > 0 && p.now < t.retryAt:
			p.later(u, t.retryAt)
		case !p.call(Action{Call: call, Verb: RemoveCopy}, true):
			m.park(c.Node, u.Unit)
		}
	}
}
