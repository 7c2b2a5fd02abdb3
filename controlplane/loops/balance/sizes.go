package balance

import "slices"

// sizes are units of one node, lightest first. A unit that has left the node is
// skipped, and what was skipped once is skipped at once from then on, so that
// taking all units of a node costs hardly more than one search for each.
type sizes struct {
	weights []uint64
	units   []int32
	// down and up lead from an index of units, plus one, toward the next unit
	// that is still there; 0 and len+1 are none.
	down, up []int32
}

func (l *sizes) add(u int32, weight uint64) {
	l.units = append(l.units, u)
	l.weights = append(l.weights, weight)
}

// close readies the list once it has all its units.
func (l *sizes) close() {
	both := make([]int32, 2*len(l.units)+4)
	l.down, l.up = both[:len(l.units)+2], both[len(l.units)+2:]
	for i := range l.down {
		l.down[i], l.up[i] = int32(i), int32(i)
	}
}

// atMost gives the heaviest unit of at most weight that is still there, or -1.
func (l *sizes) atMost(weight uint64, there func(int32) bool) int32 {
	return l.follow(l.down, l.split(weight), -1, there)
}

// above gives the lightest unit of more than weight that is still there, or -1.
func (l *sizes) above(weight uint64, there func(int32) bool) int32 {
	return l.follow(l.up, l.split(weight)+1, 1, there)
}

// split says how many units weigh at most weight.
func (l *sizes) split(weight uint64) int32 {
	n, _ := slices.BinarySearch(l.weights, weight+1)
	return int32(n)
}

func (l *sizes) follow(next []int32, from, step int32, there func(int32) bool) int32 {
	end := from
	for end > 0 && int(end) <= len(l.units) && !there(l.units[end-1]) {
		if next[end] == end {
			next[end] = end + step
		}
		end = next[end]
	}
	for i := from; i != end; {
		i, next[i] = next[i], end
	}
	if end == 0 || int(end) > len(l.units) {
		return -1
	}
	return l.units[end-1]
}
