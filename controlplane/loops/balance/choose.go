package balance

import (
	"encoding/binary"
	"math"
	"slices"
)

// worthMore is how many units of a better kind are rather moved than one of a worse
// kind that weighs as much.
const worthMore = 100

// kind is what a move costs.
type kind struct {
	switchOver bool
	worse      bool // a copy is in its primary's zone then, and was not
}

// source is what a node may give in this round.
type source struct {
	// copies has, by node, units that have an in-sync copy there (or come from
	// there in this plan): those that are well placed there and those that are not.
	copies map[int32]*[2]sizes
	// zones has all units, by the zones of their copies.
	zones []*sizes
}

// zoneSet is which zones the copies of some units are in; none for units of which one is
// in its primary's zone already, for they cannot be placed worse.
type zoneSet struct{ has map[int32]bool }

// zoneSet gives the zones of u's copies.
func (p *planner) zoneSet(u *unit) int32 {
	var zones []int32
	for _, c := range u.copies {
		if z := p.nodes[c].zone; z >= 0 && !u.bad && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	slices.Sort(zones)
	var key []byte
	for _, z := range zones {
		key = binary.LittleEndian.AppendUint32(key, uint32(z))
	}
	i, ok := p.setOf[string(key)]
	if !ok {
		i = int32(len(p.zoneSets))
		p.setOf[string(key)] = i
		set := zoneSet{has: make(map[int32]bool, len(zones))}
		for _, z := range zones {
			set.has[z] = true
		}
		p.zoneSets = append(p.zoneSets, set)
	}
	return i
}

// worse reports whether switching u over to n, where it has a copy, puts another of
// its copies into its primary's zone. To where it came from is never worse.
func (p *planner) worse(u *unit, n int32) bool {
	z := p.nodes[n].zone
	if u.bad || z < 0 || n == u.home {
		return false
	}
	for _, c := range u.copies {
		if c != n && p.nodes[c].zone == z {
			return true
		}
	}
	return false
}

// setSources lists what the nodes that have too much may give.
func (p *planner) setSources() {
	p.sources = make([]source, len(p.nodes))
	for i := range p.units {
		u, from := &p.units[i], p.at[i]
		if p.nodes[from].surplus <= 0 {
			continue
		}
		s := &p.sources[from]
		if s.copies == nil {
			s.copies, s.zones = make(map[int32]*[2]sizes), make([]*sizes, len(p.zoneSets))
		}
		if s.zones[u.zones] == nil {
			s.zones[u.zones] = new(sizes)
		}
		s.zones[u.zones].add(int32(i), u.weight)
		for _, c := range u.copies {
			if c != from {
				s.addCopy(c, p.worse(u, c), int32(i), u.weight)
			}
		}
		if u.home != from {
			s.addCopy(u.home, false, int32(i), u.weight)
		}
	}
	for _, s := range p.sources {
		for _, l := range s.zones {
			if l != nil {
				l.close()
			}
		}
		for _, l := range s.copies {
			l[0].close()
			l[1].close()
		}
	}
}

func (s *source) addCopy(at int32, worse bool, u int32, weight uint64) {
	l := s.copies[at]
	if l == nil {
		l = new([2]sizes)
		s.copies[at] = l
	}
	if worse {
		l[1].add(u, weight)
	} else {
		l[0].add(u, weight)
	}
}

// choice is a move that may be made; unit is -1 where there is none.
type choice struct {
	unit, to int32
	weight   uint64
}

// or takes c, or what is worse unless that weighs so much more that it saves many moves.
func (c choice) or(worse choice) choice {
	if worse.unit >= 0 && (c.unit < 0 || worse.weight/worthMore > c.weight) {
		return worse
	}
	return c
}

// kinds are the kinds of moves, the best first.
var kinds = []kind{{switchOver: true}, {}, {switchOver: true, worse: true}, {worse: true}}

// choose gives the best move that brings node k nearer to its ideal.
func (p *planner) choose(k int32) choice {
	found := choice{unit: -1}
	if len(p.units) == 0 {
		return found
	}
	heaviest := p.units[len(p.units)-1].weight
	for _, of := range kinds {
		for _, best := range []func(int32, kind) choice{p.fitting, p.larger} {
			found = found.or(best(k, of))
			if found.unit >= 0 && heaviest/worthMore <= found.weight {
				return found
			}
		}
	}
	return found
}

// pairs calls f for k and each node on the other side of its ideal, those that are
// further off first, until f returns false.
func (p *planner) pairs(k int32, kind kind, f func(from, to int32, gap, limit uint64) bool) {
	for i := range p.order {
		from, to := k, p.order[i]
		if p.nodes[k].surplus < 0 {
			from, to = p.order[len(p.order)-1-i], k
		}
		if p.nodes[from].surplus <= 0 || p.nodes[to].surplus >= 0 {
			return
		}
		gap, limit := p.between(from, to)
		if room := p.nodes[to].room; !kind.switchOver && !p.anyRoom {
			gap, limit = min(gap, room), min(limit, room)
		}
		if !f(from, to, gap, limit) {
			return
		}
	}
}

// fitting gives the move of the heaviest unit that brings neither node past its ideal.
func (p *planner) fitting(k int32, kind kind) choice {
	fit := choice{unit: -1}
	p.pairs(k, kind, func(from, to int32, gap, _ uint64) bool {
		p.lists(from, to, kind, func(l *sizes) {
			if u := l.atMost(gap, p.isAt(from)); u >= 0 && (fit.unit < 0 || p.units[u].weight > fit.weight) {
				fit = choice{u, to, p.units[u].weight}
			}
		})
		// What can be copied to one node can be to most, and those that follow lack less.
		return fit.unit < 0 || kind.switchOver && fit.weight < gap
	})
	return fit
}

// larger gives the move of the lightest unit that brings one of them past its ideal
// and is still worth it.
func (p *planner) larger(k int32, kind kind) choice {
	large := choice{unit: -1}
	p.pairs(k, kind, func(from, to int32, gap, limit uint64) bool {
		if gap >= limit {
			return true
		}
		p.lists(from, to, kind, func(l *sizes) {
			if u := l.above(gap, p.isAt(from)); u >= 0 {
				if w := p.units[u].weight; w <= limit && (large.unit < 0 || w < large.weight) {
					large = choice{u, to, w}
				}
			}
		})
		return true
	})
	return large
}

func (p *planner) isAt(n int32) func(int32) bool {
	return func(u int32) bool { return p.at[u] == n }
}

// lists calls f for the units that may move from one node to another by a move
// of a kind.
func (p *planner) lists(from, to int32, kind kind, f func(*sizes)) {
	s := &p.sources[from]
	if kind.switchOver {
		if l := s.copies[to]; l != nil && kind.worse {
			f(&l[1])
		} else if l != nil {
			f(&l[0])
		}
		return
	}
	for i, l := range s.zones {
		if l != nil && p.zoneSets[i].has[p.nodes[to].zone] == kind.worse {
			f(l)
		}
	}
}

// between gives what fits between two nodes, and the weight above which a unit
// would not bring them at least half nearer to each other, or would leave one of
// them further off than the other was. It asks for no ideal: moves within it
// cannot undo each other, whatever the ideals were when they were planned.
func (p *planner) between(from, to int32) (gap, limit uint64) {
	f, t := &p.nodes[from], &p.nodes[to]
	gap = min(f.apart(), t.apart())
	if f.Weight == 0 {
		return gap, math.MaxUint64
	}
	wf, wt := float64(f.Weight), float64(t.Weight)
	apart := float64(f.bytes)/wf - float64(t.bytes)/wt
	if !(apart > 0) {
		return gap, 0
	}
	return gap, uint64(apart * min(wf, wt, 1.5/(1/wf+1/wt)))
}
