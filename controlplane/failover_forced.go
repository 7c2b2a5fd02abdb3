package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
)

// positionsTimeout bounds what a node is asked during a failover by hand.
const positionsTimeout = 5 * time.Second

// choice is a copy that is not in sync and is given a unit by force.
type choice struct {
	to         fsm.NodeName
	epoch, seq uint64 // where it stands
}

func (c choice) position() string { return fmt.Sprintf("%d:%d", c.epoch, c.seq) }

// all is for choices.
func all(*fsm.Placed) bool { return true }

// lost asks the node which of the units that the directory places on it it has lost: it
// does not hold them, or says that their files are damaged. A node that does not answer
// has lost nothing that anybody knows of.
func (f *handFailover) lost(ctx context.Context) func(*fsm.Placed) bool {
	call := nodeCall{nodes: f.nodes, node: at(f.node)}
	held, _, ok := call.held(ctx, positionsTimeout)
	good := make(map[fsm.UnitRef]bool)
	for _, h := range held {
		if !h.Damaged {
			good[fsm.UnitRef{Unit: h.Unit, ID: h.ID}] = true
		}
	}
	return func(u *fsm.Placed) bool {
		return ok && u.State == fsm.UnitActive && u.Promoted() && !good[fsm.UnitRef{Unit: u.Unit, ID: u.ID}]
	}
}

// choices names, for those units of the node that have no copy in sync and that which
// says yes to, the copy that stands furthest, a call's worth of them, by name. Copies
// that hold nothing, or whose position is not known, are none.
func (f *handFailover) choices(ctx context.Context, which func(*fsm.Placed) bool) []fsm.Flip {
	state := f.group.State()
	units := make(map[fsm.NodeName]map[fsm.UnitRef]bool)
	for u := range state.HeldBy(f.node.Name) {
		if u.Node != f.node.Name || !which(u) || slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyInSync }) {
			continue
		}
		for _, c := range u.Copies {
			if c.State.Listed() {
				if units[c.Node] == nil {
					units[c.Node] = make(map[fsm.UnitRef]bool)
				}
				units[c.Node][fsm.UnitRef{Unit: u.Unit, ID: u.ID}] = true
			}
		}
	}
	f.chosen = make(map[fsm.UnitRef]choice)
	for n, wanted := range units {
		for unit, c := range f.positions(ctx, state, n) {
			if best, ok := f.chosen[unit]; wanted[unit] && (!ok || c.ahead(best)) {
				f.chosen[unit] = c
			}
		}
	}
	out := make([]fsm.Flip, 0, len(f.chosen))
	for unit, c := range f.chosen {
		out = append(out, fsm.Flip{UnitRef: unit, From: f.node.Name, To: c.to})
	}
	slices.SortFunc(out, func(a, b fsm.Flip) int { return cmp.Compare(a.Unit, b.Unit) })
	return out[:min(len(out), loops.UnitsPerCall)]
}

// ahead reports whether c stands further than b; of two that stand at the same place the
// first by name is taken.
func (c choice) ahead(b choice) bool {
	return cmp.Or(cmp.Compare(c.epoch, b.epoch), cmp.Compare(c.seq, b.seq), cmp.Compare(b.to, c.to)) > 0
}

// positions asks a node where the copies that it holds stand.
func (f *handFailover) positions(ctx context.Context, state *fsm.State, n fsm.NodeName) map[fsm.UnitRef]choice {
	node, ok := state.Node(n)
	if !ok {
		return nil
	}
	call := nodeCall{nodes: f.nodes, node: at(node)}
	held, _, _ := call.held(ctx, positionsTimeout)
	out := make(map[fsm.UnitRef]choice)
	for _, h := range held {
		if epoch, seq, ok := parsePosition(h.Position); ok && epoch > 0 && !h.Damaged {
			out[fsm.UnitRef{Unit: h.Unit, ID: h.ID}] = choice{n, epoch, seq}
		}
	}
	return out
}

func refsOf(flips []fsm.Flip) []fsm.UnitRef {
	refs := make([]fsm.UnitRef, len(flips))
	for i := range flips {
		refs[i] = flips[i].UnitRef
	}
	return refs
}
