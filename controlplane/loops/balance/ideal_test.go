package balance

import (
	"math/rand/v2"
	"slices"
	"testing"

	"domicile/fsm"
)

// countsOf is the arithmetic of vshard's rebalancer for whole buckets: shares are
// rounded up, then as many are taken off again as were too many, one of each node
// in turn; nodes with more pinned buckets than that keep those, and the others
// share the rest.
func countsOf(buckets int, weights, pinned []int) []int {
	ideal := make([]int, len(weights))
	open := make([]int, len(weights))
	for i := range open {
		open[i] = i
	}
	for passes := 0; ; passes++ {
		if passes > len(weights) {
			panic("more passes than nodes")
		}
		sum := 0
		for _, i := range open {
			sum += weights[i]
		}
		rest := -buckets
		for _, i := range open {
			ideal[i] = 0
			if sum > 0 {
				ideal[i] = (weights[i]*buckets + sum - 1) / sum
			}
			rest += ideal[i]
		}
		for _, i := range open {
			if rest > 0 && ideal[i] > 0 && weights[i]*buckets%sum != 0 {
				ideal[i]--
				rest--
			}
		}
		was := len(open)
		open = slices.DeleteFunc(slices.Clone(open), func(i int) bool {
			if ideal[i] >= pinned[i] {
				return false
			}
			ideal[i] = pinned[i]
			buckets -= pinned[i]
			return true
		})
		if len(open) == was {
			return ideal
		}
	}
}

// bucketsOf makes units of one size, of which some are pinned.
func bucketsOf(weights, have, pinned []int) Input {
	var in Input
	for i, w := range weights {
		name := fsm.NodeName('a' + rune(i))
		in.Nodes = append(in.Nodes, Node{Name: name, Weight: uint32(w), Takes: true, Gives: true})
		in.Units = append(in.Units, units(name, pinned[i], gib, "pinned")...)
		in.Units = append(in.Units, units(name, have[i]-pinned[i], gib, "")...)
	}
	return in
}

// TestB3VshardsVectors: the published cases come out as they do there; what is left
// over where shares are not whole may go to another node.
func TestB3VshardsVectors(t *testing.T) {
	for _, v := range []struct {
		weights, have, pinned, want []int
		within                      int
	}{
		{[]int{50, 20, 30}, []int{100, 0, 0}, []int{0, 0, 0}, []int{50, 20, 30}, 0},
		{[]int{1, 1, 0}, []int{2, 2, 3}, []int{0, 0, 0}, []int{3, 4, 0}, 1},
		{[]int{1000, 2000, 500}, []int{100, 100, 100}, []int{0, 0, 0}, []int{85, 172, 43}, 1},
		{[]int{1, 1, 1}, []int{34, 34, 32}, []int{0, 0, 0}, []int{33, 34, 33}, 1},
		{[]int{1, 1, 1, 1}, []int{33, 33, 34, 0}, []int{26, 24, 30, 0}, []int{26, 24, 30, 20}, 0},
		{[]int{1, 1, 1, 1}, []int{33, 33, 34, 0}, []int{30, 25, 24, 0}, []int{30, 25, 24, 21}, 0},
		{[]int{1, 1, 1, 1}, []int{33, 33, 34, 0}, []int{30, 10, 15, 0}, []int{30, 24, 23, 23}, 1},
		{[]int{0, 1, 1, 0}, []int{30, 25, 25, 20}, []int{25, 25, 25, 0}, []int{25, 38, 37, 0}, 1},
		{[]int{1, 1, 1, 1}, []int{10000, 10000, 10000, 0}, []int{0, 0, 0, 0}, []int{7500, 7500, 7500, 7500}, 0},
		{[]int{2, 1, 3}, []int{3000, 0, 0}, []int{0, 0, 0}, []int{1000, 500, 1500}, 0},
		{[]int{1, 1, 1}, []int{150, 150, 0}, []int{0, 120, 0}, []int{90, 120, 90}, 0},
	} {
		n := 0
		for _, h := range v.have {
			n += h
		}
		for what, got := range map[string][]int{
			"the oracle":  countsOf(n, v.weights, v.pinned),
			"the planner": unitsAfter(Make(bucketsOf(v.weights, v.have, v.pinned))),
		} {
			for i := range got {
				if got[i] < v.want[i]-v.within || got[i] > v.want[i]+v.within {
					t.Errorf("weights %v, %v with %v pinned: %s gives %v, not %v", v.weights, v.have, v.pinned, what, got, v.want)
					break
				}
			}
		}
	}
}

// TestB3EqualUnitsAndNodesComeToVshardsCounts, and no more units move than that takes.
func TestB3EqualUnitsAndNodesComeToVshardsCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 4000 {
		n := 1 + r.IntN(6)
		weights, have, pinned := make([]int, n), make([]int, n), make([]int, n)
		buckets := 0
		for i := range n {
			weights[i] = 7
			have[i] = r.IntN(1 + r.IntN(40))
			if r.IntN(2) == 0 {
				pinned[i] = r.IntN(have[i] + 1)
			}
			buckets += have[i]
		}
		p := Make(bucketsOf(weights, have, pinned))
		got, want := unitsAfter(p), countsOf(buckets, weights, pinned)
		fewest := 0
		for i := range got {
			fewest += max(0, have[i]-got[i])
		}
		if len(p.Moves) != fewest {
			t.Fatalf("%v with %v pinned: %d moves to %v", have, pinned, len(p.Moves), got)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%v with %v pinned: %v, not %v", have, pinned, got, want)
		}
	}
}

// TestB3IdealsAreVshards to a byte, for any weights.
func TestB3IdealsAreVshards(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		n := 1 + r.IntN(8)
		weights, pinned := make([]int, n), make([]int, n)
		all, holders := make([]*holder, n), make([]holder, n)
		total := 0
		for i := range n {
			weights[i] = r.IntN(5)
			if r.IntN(2) == 0 {
				pinned[i] = r.IntN(1e9)
			}
			total += pinned[i] + r.IntN(1e9)
		}
		weights[r.IntN(n)] = 1 + r.IntN(1000)
		for i := range n {
			holders[i] = holder{weight: uint32(weights[i]), keeps: uint64(pinned[i])}
			all[i] = &holders[i]
		}
		share(uint64(total), all)
		sum := uint64(0)
		for i, want := range countsOf(total, weights, pinned) {
			sum += holders[i].ideal
			if d := int(holders[i].ideal) - want; d < -1 || d > 1 {
				t.Fatalf("%d over %v with %v pinned: node %d gets %d, not %d", total, weights, pinned, i, holders[i].ideal, want)
			}
		}
		if sum != uint64(total) {
			t.Fatalf("%d over %v with %v pinned: %d in all", total, weights, pinned, sum)
		}
	}
}

func TestSharesNearTheLimit(t *testing.T) {
	all := []*holder{{weight: 1<<32 - 1}, {weight: 1<<32 - 1, keeps: 1 << 61}, {weight: 1}, {}}
	share(maxTotal, all)
	if sum := all[0].ideal + all[1].ideal + all[2].ideal + all[3].ideal; sum != maxTotal || all[3].ideal != 0 {
		t.Errorf("shares %+v %+v %+v %+v", all[0], all[1], all[2], all[3])
	}
}
