package loops

import (
	"slices"

	"domicile/fsm"
)

const (
	// DrainAgain is when the units of a node that is drained are looked at again though
	// none of them could be given away; later by a millisecond for DrainPace units.
	DrainAgain fsm.Millis = 250
	DrainPace  fsm.Millis = 50
	// DrainAtOnce bounds the units of a drained node that one round looks at.
	DrainAtOnce int = 2000
)

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
		n, _ := p.s.Node(name)
		if n.Lost || p.isSilent(name) || p.sources[name] || !p.free(Matter{Kind: MatterHandover, Node: name}) {
			continue // a failover gives its units away, or what it hands over is waited for
		}
		k := p.m.node(name)
		if k.leaving != p.leaving[name] {
			k.leaving, k.nextDrain = p.leaving[name], 0
		}
		if p.now < k.nextDrain {
			p.wakeAt(k.nextDrain)
			continue
		}
		p.drain(n, k, draining)
	}
}

// drain plans what may leave a node now, of the next of its units.
func (p *planner) drain(n *fsm.Node, k *nodeMemory, draining []fsm.NodeName) {
	hand := &fsm.BeginHandover{Node: n.Name, Cause: fsm.CauseDrain, Silent: append(p.silent(), draining...)}
	var move *fsm.BeginMove
	begins := Matter{Kind: MatterMove, Node: n.Name}
	mayMove := p.leaving[n.Name] < p.movesPerNode() && p.free(begins)
	seen, last, all := 0, k.drained, true
	for u := range p.s.HeldAfter(n.Name, k.drained) {
		if all = move == nil && len(hand.Units) < UnitsPerHandover && (seen < DrainAtOnce || u.ID == last); !all {
			break
		}
		seen, last = seen+1, u.ID
		if u.Node != n.Name || u.State != fsm.UnitActive || !u.Promoted() || !p.mayLeave(u, n.Drain.Forced) {
			continue
		}
		if to, ok := p.s.Successor(u, hand.Silent); ok && slices.Contains(inSync(u), to) {
			hand.Units = append(hand.Units, ref(u))
		} else if mayMove && p.s.CopiesWanted(u) == 0 {
			move = &fsm.BeginMove{Unit: u.Unit, Cause: fsm.CauseDrain, Forced: n.Drain.Forced, Silent: p.silent()}
		}
	}
	if k.drained = last; all {
		k.drained = 0
	}
	planned := len(hand.Units) > 0 && p.propose(Matter{Kind: MatterHandover, Node: n.Name}, hand)
	planned = move != nil && p.propose(begins, move) || planned
	switch {
	case planned:
		k.nextDrain = 0
		return
	case !all:
		k.nextDrain = p.now + 1
	default:
		primaries, copies := p.s.NodeHolds(n.Name)
		k.nextDrain = p.now + DrainAgain + fsm.Millis(primaries+copies)/DrainPace
	}
	p.wakeAt(k.nextDrain)
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

// leaves reports whether a copy of a unit is on a node that is drained, or its primary was
// there until a moment ago: another is made without a grace.
func (p *planner) leaves(u *fsm.Placed) bool {
	return slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool {
		n, ok := p.s.Node(c.Node)
		return ok && n.Drain != nil && (c.State.Replica() || c.State == fsm.CopyFormer)
	})
}
