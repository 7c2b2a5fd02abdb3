package loops

import (
	"cmp"
	"maps"
	"slices"

	"domicile/fsm"
)

// unitLists puts together what units ask the directory for, so that an entry
// carries many.
type unitLists struct {
	promoted map[Matter][]fsm.UnitRef
	again    map[Matter][]fsm.Flip // of units that their nodes do not promote
	add      []fsm.CopyWanted
	leave    []fsm.CopyChange
	drop     []fsm.CopyRef
	read     []fsm.UnitRef // units whose read replicas are not as they should be
}

// confirm asks for the entry that says that a unit was promoted.
func (l *unitLists) confirm(u *fsm.Placed) {
	if l.promoted == nil {
		l.promoted = make(map[Matter][]fsm.UnitRef)
	}
	m := Matter{Kind: MatterPromoted, Node: u.Node, Epoch: u.Epoch}
	l.promoted[m] = append(l.promoted[m], ref(u))
}

// flipAgain asks for the entry that gives a unit to another node than the one that does
// not promote it.
func (l *unitLists) flipAgain(u *fsm.Placed, to fsm.NodeName) {
	if l.again == nil {
		l.again = make(map[Matter][]fsm.Flip)
	}
	m := Matter{Kind: MatterFlipAgain, Node: u.Node}
	l.again[m] = append(l.again[m], fsm.Flip{UnitRef: ref(u), From: u.Node, To: to})
}

// sorted gives the matters of a list in one order.
func sorted[T any](of map[Matter][]T) []Matter {
	return slices.SortedFunc(maps.Keys(of), func(a, b Matter) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Epoch, b.Epoch))
	})
}

// proposeLists proposes what was put together. What does not go into an entry
// now waits until that entry is applied.
func (p *planner) proposeLists() {
	l := &p.lists
	for _, m := range sorted(l.again) {
		proposeSome(p, m, l.again[m], func(f fsm.Flip) fsm.UnitName { return f.Unit },
			func(flips []fsm.Flip) fsm.Command {
				return &fsm.FailOver{Node: m.Node, Cause: fsm.CauseUnpromoted, Choices: flips}
			})
	}
	for _, m := range sorted(l.promoted) {
		proposeSome(p, m, l.promoted[m], func(u fsm.UnitRef) fsm.UnitName { return u.Unit },
			func(units []fsm.UnitRef) fsm.Command {
				return &fsm.ConfirmPromotion{Node: m.Node, Epoch: m.Epoch, Units: units}
			})
	}
	proposeSome(p, Matter{Kind: MatterAdd}, l.add, func(w fsm.CopyWanted) fsm.UnitName { return w.Unit },
		func(wanted []fsm.CopyWanted) fsm.Command {
			return &fsm.AddCopies{Units: wanted, Silent: p.silent()}
		})
	proposeSome(p, Matter{Kind: MatterLeave}, l.leave, func(c fsm.CopyChange) fsm.UnitName { return c.Unit },
		func(changes []fsm.CopyChange) fsm.Command { return &fsm.ChangeCopies{Changes: changes} })
	proposeSome(p, Matter{Kind: MatterDrop}, l.drop, func(c fsm.CopyRef) fsm.UnitName { return c.Unit },
		func(copies []fsm.CopyRef) fsm.Command { return &fsm.DropCopies{Copies: copies} })
	proposeSome(p, Matter{Kind: MatterReaders}, l.read, func(r fsm.UnitRef) fsm.UnitName { return r.Unit },
		func(units []fsm.UnitRef) fsm.Command { return &fsm.PlaceReaders{Units: units, Silent: p.silent()} })
}

func proposeSome[T any](p *planner, m Matter, list []T, name func(T) fsm.UnitName, cmd func([]T) fsm.Command) {
	if len(list) == 0 {
		return
	}
	now := list[:min(len(list), UnitsPerCall)]
	if !p.propose(m, cmd(now)) {
		now = nil
	}
	for _, t := range list[len(now):] {
		p.m.units.blocked[m] = append(p.m.units.blocked[m], name(t))
	}
}
