package balance

import (
	"cmp"
	"math"
	"slices"
)

// run moves units, in rounds, until a round moves none.
func (p *planner) run() {
	for {
		p.setIdeals()
		for _, i := range p.active {
			n := &p.nodes[i]
			n.surplus = int64(n.bytes) - int64(n.ideal)
		}
		if !p.round() {
			return
		}
	}
}

// round moves each unit at most once, from where it was when the round began.
func (p *planner) round() (any bool) {
	p.tried = make([]bool, len(p.nodes))
	if p.worst() < 0 {
		return false
	}
	p.setOrder()
	p.setSources()
	for k := p.worst(); k >= 0; k = p.worst() {
		if p.in.MaxMoves > 0 && p.moved >= p.in.MaxMoves {
			p.full = true
			return false
		}
		m := p.choose(k)
		if m.unit < 0 {
			p.tried[k] = true
			continue
		}
		p.move(m)
		any = true
	}
	return any
}

// worst gives the node that differs most from its ideal, in proportion, among
// those that differ by more than the threshold and were not tried in vain, or -1.
func (p *planner) worst() int32 {
	found, most := int32(-1), 0.0
	for _, i := range p.active {
		n := &p.nodes[i]
		if d := n.differs(); !p.tried[i] && n.unbalanced(p.in.Threshold) &&
			(found < 0 || d > most || d == most && n.apart() > p.nodes[found].apart()) {
			found, most = i, d
		}
	}
	return found
}

// apart is how many bytes the node differs from its ideal by.
func (n *node) apart() uint64 {
	if n.surplus < 0 {
		return uint64(-n.surplus)
	}
	return uint64(n.surplus)
}

// differs is that in proportion to the ideal.
func (n *node) differs() float64 {
	if n.surplus == 0 {
		return 0
	}
	return float64(n.apart()) / float64(n.ideal)
}

func (n *node) unbalanced(threshold float64) bool {
	if !(threshold > 0) {
		threshold = 0
	}
	return n.differs() > threshold
}

// setOrder sorts the nodes by what they lack.
func (p *planner) setOrder() {
	p.order = slices.Clone(p.active)
	slices.SortStableFunc(p.order, func(a, b int32) int { return cmp.Compare(p.nodes[a].surplus, p.nodes[b].surplus) })
}

// reorder puts one node to its place after its surplus has changed.
func (p *planner) reorder(k int32) {
	o := p.order
	i := slices.Index(o, k)
	after := func(a, b int32) bool {
		c := cmp.Compare(p.nodes[a].surplus, p.nodes[b].surplus)
		return c > 0 || c == 0 && a > b
	}
	for ; i+1 < len(o) && after(o[i], o[i+1]); i++ {
		o[i], o[i+1] = o[i+1], o[i]
	}
	for ; i > 0 && after(o[i-1], o[i]); i-- {
		o[i], o[i-1] = o[i-1], o[i]
	}
}

// move moves a unit within the plan.
func (p *planner) move(m choice) {
	u := &p.units[m.unit]
	was := p.at[m.unit]
	from, to := &p.nodes[was], &p.nodes[m.to]
	if p.copied(u, was) && from.room < math.MaxUint64 {
		from.room += u.weight
	}
	if p.copied(u, m.to) && to.room < math.MaxUint64 {
		to.room -= u.weight
	}
	p.steps++
	u.step = p.steps
	if was == u.home {
		p.moved++
	}
	if m.to == u.home {
		p.moved--
	}
	from.surplus -= int64(u.weight)
	from.bytes -= u.weight
	from.units--
	to.surplus += int64(u.weight)
	to.bytes += u.weight
	to.units++
	p.at[m.unit] = m.to
	p.reorder(was)
	p.reorder(m.to)
}

// copied reports whether u is copied where it moves to n.
func (p *planner) copied(u *unit, n int32) bool {
	return n != u.home && !slices.Contains(u.copies, n)
}
