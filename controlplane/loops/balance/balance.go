package balance

import "domicile/fsm"

// Node is a node of those among which is balanced: all of one region, for
// nothing moves to another (invariant I2).
type Node struct {
	Name   fsm.NodeName
	Weight uint32
	Zone   fsm.ZoneName
	// Takes says that primaries may be moved to it, Gives that they may be moved
	// from it. One that gives and does not take is being drained, and the drain
	// moves what it holds; one that does neither is left out.
	Takes, Gives bool
	// Reason says why it does not take or give.
	Reason string
	// Free is how many bytes its disk has left; 0 is unknown. A node with a full
	// disk takes: what it has copies of needs no room. Its Free is 1, then.
	Free uint64
}

// Unit is a unit and its primary's node.
type Unit struct {
	fsm.UnitRef
	Node  fsm.NodeName
	Bytes uint64
	// Stuck says why it may not move ("pinned"); "" where it may. On a draining
	// node, what the drain itself cannot move.
	Stuck string
	// Copies are the nodes of its in-sync copies.
	Copies []fsm.NodeName
}

// Weight is what the unit counts for in the balance: empty ones weigh
// something, so that they spread by their number.
func (u *Unit) Weight() uint64 { return max(u.Bytes, fsm.UnitEstimate) }

// Input is what a plan is made of.
type Input struct {
	Nodes []Node
	Units []Unit
	// Threshold is the share of its ideal by which a node's bytes may differ from
	// it; what is not a number above 0 is 0.
	Threshold float64
	// MaxMoves bounds the plan; 0 or less is no bound.
	MaxMoves int
}

// Share is what a node holds and should hold, in bytes as Unit.Weight counts them.
type Share struct {
	Name                fsm.NodeName
	Bytes, Ideal, After uint64
	Units, UnitsAfter   int
	// Note says why the node does not take part as others do.
	Note string
}

// Move is a move of the plan. Bytes are the unit's own.
type Move struct {
	fsm.UnitRef
	From, To fsm.NodeName
	Bytes    uint64
	// SwitchOver says that To has an in-sync copy: nothing is copied.
	SwitchOver bool
	Why        string
}

// Plan is what a rebalance would do, and why it would not do more.
type Plan struct {
	Nodes []Share // by name
	Moves []Move  // in the order in which they are best begun
	// Left says why what is out of balance after the moves stays so, and what
	// of the input was left out.
	Left []string
}

// Make plans. It never fails: what cannot be right is left out and told.
func Make(in Input) Plan {
	p := read(&in)
	p.run()
	return Plan{Nodes: p.table(), Moves: p.moves(), Left: append(p.ignored, p.left()...)}
}
