package loops

import (
	"slices"

	"domicile/fsm"
)

// DrainAgain is when the units of a node that is drained are looked at again, though
// nothing of them could be given away.
const DrainAgain fsm.Millis = 250

// drains empties the nodes that are drained (N7): their units are handed over to copies
// that are in sync, some at a time; those that are to have no copies are moved. What
// they follow is placed elsewhere by repair, which does not count copies there.
func (p *planner) drains() {
	var draining []fsm.NodeName
	for n := range p.s.Nodes() {
		if n.Drain != nil {
			draining = append(draining, n.Name)
		}
	}
	for _, name := range draining {
		k := p.m.node(name)
		if n, _ := p.s.Node(name); n.Lost || p.isSilent(name) {
			continue // a failover gives its units away
		}
		if p.now < k.nextDrain {
			p.wakeAt(k.nextDrain)
			continue
		}
		if !p.drain(name, draining) {
			k.nextDrain = p.now + DrainAgain
			p.wakeAt(k.nextDrain)
		}
	}
}

// drain plans what may leave a node now, and reports whether anything is under way.
func (p *planner) drain(name fsm.NodeName, draining []fsm.NodeName) bool {
	n, _ := p.s.Node(name)
	not := append(p.silent(), draining...)
	hand := &fsm.BeginHandover{Node: name, Cause: fsm.CauseDrain, Silent: not}
	var move *fsm.BeginMove
	for u := range p.s.HeldBy(name) {
		if len(hand.Units) == UnitsPerHandover {
			break
		}
		if u.Node != name || u.State != fsm.UnitActive || !u.Promoted() || !p.mayLeave(u, n.Drain.Forced) {
			continue
		}
		if to, ok := p.s.Successor(u, not); ok && slices.Contains(inSync(u), to) {
			hand.Units = append(hand.Units, ref(u))
		} else if move == nil && p.s.CopiesWanted(u) == 0 && p.moving[name] < p.movesPerNode() {
			move = &fsm.BeginMove{Unit: u.Unit, Cause: fsm.CauseDrain, Forced: n.Drain.Forced, Silent: p.silent()}
		}
	}
	busy := p.sources[name] || p.moving[name] > 0
	if len(hand.Units) > 0 && !p.sources[name] {
		p.proposeFor(Matter{Kind: MatterHandover, Node: name}, hand)
		busy = true
	}
	if move != nil {
		busy = p.propose(Matter{Kind: MatterMove, Node: name}, move) || busy
	}
	return busy
}

// mayLeave reports whether a drain may give a unit away: no move has it, and it is not
// pinned, or that is to be overlooked (T7).
func (p *planner) mayLeave(u *fsm.Placed, forced bool) bool {
	if _, moving := p.s.Move(u.Unit); moving {
		return false
	}
	name, _, _ := u.Unit.Split()
	t, ok := p.s.Tenant(name)
	return ok && (forced || !t.Pinned)
}

// leaves reports whether a copy of a unit is on a node that is drained: another is made
// without a grace.
func (p *planner) leaves(u *fsm.Placed) bool {
	return slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool {
		n, ok := p.s.Node(c.Node)
		return ok && n.Drain != nil && c.State.Replica()
	})
}
