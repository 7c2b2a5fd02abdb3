package balance

import "math/bits"

// holder is a node among which bytes are shared out.
type holder struct {
	weight uint32
	keeps  uint64 // it is never to hold less
	ideal  uint64
}

// share gives each holder its ideal of total bytes, by weight. One that keeps
// more than that has what it keeps for its ideal, and the others share the
// rest, until none is left that keeps more. What does not divide goes by one
// byte to the first. One of them has a weight.
func share(total uint64, all []*holder) {
	open := all
	for {
		deal(total, open)
		kept := open[:0:0]
		for _, h := range open {
			if h.ideal < h.keeps {
				h.ideal = h.keeps
				total -= h.keeps
			} else {
				kept = append(kept, h)
			}
		}
		if len(kept) == len(open) {
			return
		}
		open = kept
	}
}

// deal shares total out by weight alone.
func deal(total uint64, all []*holder) {
	weights := uint64(0)
	for _, h := range all {
		weights += uint64(h.weight)
	}
	if weights == 0 {
		return // nodes that all keep their ideal have left nothing
	}
	rest := total
	broken := make([]bool, len(all))
	for i, h := range all {
		hi, lo := bits.Mul64(total, uint64(h.weight))
		q, r := bits.Div64(hi, lo, weights)
		h.ideal, broken[i] = q, r > 0
		rest -= q
	}
	for i, h := range all {
		if rest > 0 && broken[i] {
			h.ideal++
			rest--
		}
	}
}

// setIdeals gives each node its ideal from where the units are by now.
func (p *planner) setIdeals() {
	largest := make([]uint64, len(p.nodes))
	for u := range p.units {
		largest[p.at[u]] = p.units[u].weight // the heaviest come last
	}
	total := uint64(0)
	holders := make([]holder, len(p.nodes))
	var open []*holder
	for i := range p.nodes {
		n := &p.nodes[i]
		switch n.part {
		case out:
			n.ideal = n.bytes
		case draining:
			n.ideal = 0
			total += n.drained
		case active:
			total += n.bytes
			holders[i] = holder{weight: n.Weight, keeps: n.stuck}
			switch {
			case !n.Gives:
				holders[i].keeps = n.bytes // so that it never has too much
			case n.Weight > 0:
				holders[i].keeps = max(n.stuck, largest[i])
			}
			open = append(open, &holders[i])
		}
	}
	share(total, open)
	for _, i := range p.active {
		p.nodes[i].ideal = holders[i].ideal
	}
}
