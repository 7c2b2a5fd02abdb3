package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"domicile/fsm"
)

// deployment has units of very different sizes on the first full of nodes, in three
// zones, each with an in-sync copy in another zone.
func deployment(nodes, full, units int, size func(*rand.Rand) uint64) Input {
	r := rand.New(rand.NewPCG(5, 5))
	in := Input{Threshold: 0.1}
	for i := range nodes {
		in.Nodes = append(in.Nodes, Node{Name: fsm.NodeName(fmt.Sprintf("n%03d", i)), Weight: uint32(1 + i%3),
			Zone: fsm.ZoneName("abc"[i%3 : i%3+1]), Takes: true, Gives: true, Free: 1 << 50})
	}
	for i := range units {
		at := r.IntN(full)
		copied := at
		for copied%3 == at%3 {
			copied = r.IntN(nodes)
		}
		u := Unit{UnitRef: fsm.UnitRef{Unit: fsm.UnitName(fmt.Sprintf("tenant-%06d", i)), ID: 1}, Node: in.Nodes[at].Name,
			Bytes: size(r), Copies: []fsm.NodeName{in.Nodes[copied].Name}}
		if i%50 == 0 {
			u.Stuck = "pinned"
		}
		in.Units = append(in.Units, u)
	}
	return in
}

func skewed(r *rand.Rand) uint64 { return uint64(math.Exp(r.Float64() * 24)) }
func empty(*rand.Rand) uint64    { return 0 }

// BenchmarkPlans plans 100,000 tenants on 100 nodes: in balance, after a tenth of the
// nodes has come, and where all are on one half, or on one node.
func BenchmarkPlans(b *testing.B) {
	for _, c := range []struct {
		name string
		full int
		size func(*rand.Rand) uint64
	}{
		{"skewed/balanced", 100, skewed}, {"skewed/tenth-new", 90, skewed}, {"skewed/half-new", 50, skewed}, {"skewed/on-one", 1, skewed},
		{"alike/tenth-new", 90, empty}, {"alike/half-new", 50, empty}, {"alike/on-one", 1, empty},
	} {
		in := deployment(100, c.full, 100_000, c.size)
		b.Run(c.name, func(b *testing.B) {
			var p Plan
			for b.Loop() {
				p = Make(in)
			}
			b.ReportMetric(float64(len(p.Moves)), "moves")
			b.ReportMetric(float64(len(p.Left)), "left")
		})
	}
}
