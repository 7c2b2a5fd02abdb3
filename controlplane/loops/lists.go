package loops

import (
	"cmp"
	"slices"

	"domicile/fsm"
)

// unitLists puts together what units ask the directory for, so that an entry
// carries many.
type unitLists struct {
	promoted map[Matter][]fsm.UnitRef
	add      []fsm.CopyWanted
	leave    []fsm.CopyChange
	drop     []fsm.CopyRef
}

// confirm asks for the entry that says that a unit was promoted.
func (l *unitLists) confirm(u *fsm.Placed) {
	if l.promoted == nil {
		l.promoted = make(map[Matter][]fsm.UnitRef)
	}
	m := Matter{Kind: MatterPromoted, Node: u.Node, Epoch: u.Epoch}
	l.promoted[m] = append(l.promoted[m], ref(u))
}

// proposeLists proposes what was put together. What does not go into an entry
// now waits until that entry is applied.
func (p *planner) proposeLists() {
	l := &p.lists
	matters := make([]Matter, 0, len(l.promoted))
	for m := range l.promoted {
		matters = append(matters, m)
	}
	slices.SortFunc(matters, func(a, b Matter) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, m := range matters {
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
