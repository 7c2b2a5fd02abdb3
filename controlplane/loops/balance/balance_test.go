package balance

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

const gib = 1 << 30

// nodes gives nodes a, b, c … of the weights.
func nodes(weights ...uint32) []Node {
	var all []Node
	for i, w := range weights {
		all = append(all, Node{Name: fsm.NodeName('a' + rune(i)), Weight: w, Takes: true, Gives: true})
	}
	return all
}

// units gives n units on a node, all alike.
func units(node fsm.NodeName, n int, bytes uint64, stuck string, copies ...fsm.NodeName) []Unit {
	var all []Unit
	for i := range n {
		name := fsm.UnitName(fmt.Sprintf("%s-%s-%d-%d", node, stuck, bytes, i))
		all = append(all, Unit{UnitRef: fsm.UnitRef{Unit: name, ID: fsm.UnitID(i + 1)}, Node: node, Bytes: bytes, Stuck: stuck, Copies: copies})
	}
	return all
}

func unitsAfter(p Plan) (counts []int) {
	for _, n := range p.Nodes {
		counts = append(counts, n.UnitsAfter)
	}
	return counts
}

func wantLeft(t *testing.T, p Plan, texts ...string) {
	t.Helper()
	all := strings.Join(p.Left, "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("what is left does not tell of %q:\n%s", text, all)
		}
	}
	if len(texts) == 0 && len(p.Left) > 0 {
		t.Errorf("something is left:\n%s", all)
	}
}

func TestB3AMoveSaysWhy(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Units = slices.Concat(units("a", 3, 4*gib, "", "b"), units("c", 1, 4*gib, ""), units("b", 1, gib, ""))
	p := Make(in)
	if len(p.Moves) != 1 {
		t.Fatalf("moves: %+v", p.Moves)
	}
	want := Move{UnitRef: p.Moves[0].UnitRef, From: "a", To: "b", Bytes: 4 * gib, SwitchOver: true,
		Why: "node a holds 12.0 GiB, 2.12 times its share of 5.7 GiB; node b holds 1.0 GiB, 0.18 times its share of 5.7 GiB; b has an in-sync copy, so nothing is copied"}
	if p.Moves[0] != want {
		t.Errorf("move:\n%+v\nwant\n%+v", p.Moves[0], want)
	}
}

func TestB3AnInSyncCopyGoesBeforeACopying(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Units = slices.Concat(units("a", 5, gib, ""), units("a", 1, gib+1, "", "c"))
	p := Make(in)
	over := slices.IndexFunc(p.Moves, func(m Move) bool { return m.SwitchOver })
	if over != 0 || p.Moves[0].To != "c" || !slices.Equal(unitsAfter(p), []int{2, 2, 2}) {
		t.Errorf("moves: %+v, units %v", p.Moves, unitsAfter(p))
	}
}

func TestB3OneLargeCopyIsMadeRatherThanAHundredPauses(t *testing.T) {
	in := Input{Nodes: nodes(1, 1), Threshold: 0.1}
	in.Units = slices.Concat(units("a", 4, gib, ""), units("a", 3000, 1, "", "b"))
	if p := Make(in); len(p.Moves) != 2 || p.Moves[0].SwitchOver || p.Moves[1].SwitchOver {
		t.Errorf("%d moves, the first %+v", len(p.Moves), p.Moves[0])
	}
}

func TestB3ACopyIsNotPutIntoItsPrimarysZone(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Nodes[0].Zone, in.Nodes[1].Zone, in.Nodes[2].Zone = "x", "y", "y"
	// Half of a's units have their copy on b: those go there, nothing is copied,
	// and c gets of the others, whose copies are nowhere.
	in.Units = slices.Concat(units("a", 6, gib, "", "b"), units("a", 6, gib-1, ""))
	p := Make(in)
	for _, m := range p.Moves {
		if m.SwitchOver != (m.To == "b") || strings.Contains(m.Why, "zone") {
			t.Errorf("%+v", m)
		}
	}
	if !slices.Equal(unitsAfter(p), []int{4, 4, 4}) {
		t.Errorf("units %v", unitsAfter(p))
	}
	// Where nothing else helps, it is done and told.
	in.Units = units("a", 12, gib, "", "b")
	in.Nodes[1].Takes, in.Nodes[1].Gives = false, false
	p = Make(in)
	if !slices.Equal(unitsAfter(p), []int{6, 0, 6}) || !strings.HasSuffix(p.Moves[0].Why, "; a copy is in the zone of its primary then, and is placed anew") {
		t.Errorf("units %v, %+v", unitsAfter(p), p.Moves)
	}
}

func TestB3ASwitchOverMindsTheOtherCopies(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1, Units: units("a", 4, gib, "", "b", "c")}
	in.Nodes[0].Zone, in.Nodes[1].Zone, in.Nodes[2].Zone = "x", "y", "y"
	in.Nodes[2].Takes, in.Nodes[2].Gives = false, false
	p := Make(in)
	if len(p.Moves) != 2 || !p.Moves[0].SwitchOver || !strings.HasSuffix(p.Moves[0].Why, "; a copy is in the zone of its primary then, and is placed anew") {
		t.Errorf("%+v", p.Moves)
	}
	// Where it is in that zone already, it is not placed worse.
	in.Nodes[0].Zone = "y"
	p = Make(in)
	if len(p.Moves) != 2 || strings.Contains(p.Moves[0].Why, "zone") {
		t.Errorf("%+v", p.Moves)
	}
	in.Units = slices.Concat(units("a", 2, 2*gib, "", "c"), units("a", 2, gib, ""))
	p = Make(in)
	if len(p.Moves) != 2 || p.Moves[0].Bytes != 2*gib || strings.Contains(p.Moves[0].Why, "zone") {
		t.Errorf("%+v", p.Moves)
	}
}

func TestSizesGiveWhatIsStillThere(t *testing.T) {
	var l sizes
	for i, w := range []uint64{10, 20, 20, 30} {
		l.add(int32(i), w)
	}
	l.close()
	gone := make(map[int32]bool)
	there := func(u int32) bool { return !gone[u] }
	for _, want := range []struct{ atMost, above int32 }{{2, 3}, {1, 3}, {0, 3}, {-1, 3}} {
		if got := l.atMost(20, there); got != want.atMost || l.above(20, there) != want.above {
			t.Errorf("%d gone: at most 20 is %d, above is %d", len(gone), got, l.above(20, there))
		}
		gone[want.atMost] = true
	}
	if gone[3] = true; l.above(1, there) != -1 || l.atMost(9, there) != -1 {
		t.Error("what is gone is given")
	}
}

func TestB3ADiskIsNotFilled(t *testing.T) {
	in := Input{Nodes: nodes(1, 1), Threshold: 0.1, Units: units("a", 10, gib, "")}
	in.Nodes[1].Free = 4 * gib // nine tenths hold three units of a GiB
	p := Make(in)
	if !slices.Equal(unitsAfter(p), []int{7, 3}) {
		t.Errorf("units %v", unitsAfter(p))
	}
	if len(p.Moves) != 3 || !strings.HasPrefix(p.Moves[1].Why, "node a then holds 9.0 GiB, 1.80 times its share of 5.0 GiB; node b then holds 1.0 GiB") {
		t.Errorf("%+v", p.Moves)
	}
	wantLeft(t, p, "node a then holds 7.0 GiB, 1.40 times its share of 5.0 GiB, and stays so: the nodes that hold less have no room",
		"node b then holds 3.0 GiB, 0.60 times its share of 5.0 GiB, and stays so: its disk has no room")
	// What is there already needs none.
	in.Units = units("a", 10, gib, "", "b")
	in.Nodes[1].Free = 1
	p = Make(in)
	if !slices.Equal(unitsAfter(p), []int{5, 5}) {
		t.Errorf("units %v", unitsAfter(p))
	}
	wantLeft(t, p)
}

func TestB3ADrainingNodeIsLeftToItsDrain(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Nodes[2].Takes, in.Nodes[2].Reason = false, "draining since noon"
	in.Units = slices.Concat(units("a", 6, gib, ""), units("b", 2, gib, ""), units("c", 4, gib, ""))
	p := Make(in)
	// Six each is what a and b will hold: nothing has to leave a for that.
	if len(p.Moves) > 0 || p.Nodes[2].Ideal != 0 || p.Nodes[0].Ideal != 6*gib {
		t.Errorf("%+v", p)
	}
	if p.Nodes[2].Note != "its ideal is 0: what it holds is left to its drain: draining since noon" {
		t.Errorf("note %q", p.Nodes[2].Note)
	}
	wantLeft(t, p, "node b holds 2.0 GiB, 0.33 times its share of 6.0 GiB, and stays so: no node holds more than its share; what draining nodes hold comes to it")
	// What the drain cannot move comes to nobody.
	in.Units = slices.Concat(units("a", 6, gib, ""), units("b", 2, gib, ""), units("c", 4, gib, "pinned"))
	if p := Make(in); !slices.Equal(unitsAfter(p), []int{4, 4, 4}) || p.Nodes[0].Ideal != 4*gib {
		t.Errorf("%+v", p)
	}
}

func TestB3ANodeThatNeitherTakesNorGivesDoesNotCount(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Nodes[2].Takes, in.Nodes[2].Gives, in.Nodes[2].Reason = false, false, "lost"
	in.Units = slices.Concat(units("a", 4, gib, "", "c"), units("c", 50, gib, "", "b"))
	p := Make(in)
	if !slices.Equal(unitsAfter(p), []int{2, 2, 50}) || p.Nodes[2].Note != "left out: lost" {
		t.Errorf("%+v", p)
	}
	wantLeft(t, p)
}

func TestB3ANodeOfWeight0IsEmptied(t *testing.T) {
	in := Input{Nodes: nodes(0, 1, 1), Threshold: 0.1}
	in.Units = slices.Concat(units("a", 3, gib, ""), units("a", 1, 9*gib, ""), units("b", 1, 5*gib, ""), units("c", 1, gib, ""))
	if p := Make(in); p.Nodes[0].After != 0 || p.Nodes[0].UnitsAfter != 0 {
		t.Errorf("%+v", p)
	}
	// Even of what brings another past its share.
	in.Units = slices.Concat(units("a", 1, 9*gib, ""), units("b", 5, gib, ""), units("c", 5, gib, ""))
	if p := Make(in); p.Nodes[0].After != 0 {
		t.Errorf("%+v", p)
	}
}

func TestT7PinsStayAndTheOthersShareTheRest(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1, 1), Threshold: 0}
	in.Units = slices.Concat(units("a", 30, gib, "pinned"), units("a", 3, gib, ""), units("b", 10, gib, "pinned"),
		units("b", 23, gib, ""), units("c", 15, gib, "pinned"), units("c", 19, gib, ""))
	p := Make(in)
	counts := unitsAfter(p)
	slices.Sort(counts)
	if !slices.Equal(counts, []int{23, 23, 24, 30}) || p.Nodes[0].UnitsAfter != 30 {
		t.Errorf("units %v", unitsAfter(p))
	}
	for _, m := range p.Moves {
		if strings.Contains(string(m.Unit), "pinned") {
			t.Errorf("%+v", m)
		}
	}
	// All that may leave has left; the threshold alone says that a is not balanced.
	in.Units = slices.Concat(units("a", 2, gib, "pinned"), units("a", 1, gib, "a job has it"), units("b", 1, gib, ""))
	in.Nodes = nodes(0, 1)
	p = Make(in)
	if len(p.Moves) > 0 || p.Nodes[0].Ideal != 3*gib {
		t.Errorf("%+v", p)
	}
}

func TestB3WhatStaysOutOfBalanceSaysWhy(t *testing.T) {
	in := Input{Nodes: nodes(1, 1), Threshold: 0.1, Units: units("a", 2, gib, "")}
	in.Units = append(in.Units, units("b", 1, gib, "")...)
	wantLeft(t, Make(in), "node a holds 2.0 GiB, 1.33 times its share of 1.5 GiB, and stays so: each unit that may move is more than another node lacks",
		"node b holds 1.0 GiB, 0.67 times its share of 1.5 GiB, and stays so: no node that holds more has a unit that may move")
	in.Units = append(in.Units, units("a", 2, 1, "pinned")...)
	wantLeft(t, Make(in), "than another node lacks; units that may not: 2: pinned")
	in.Units = units("a", 10, gib, "")
	in.MaxMoves = 2
	if p := Make(in); len(p.Moves) != 2 {
		t.Errorf("%d moves", len(p.Moves))
	} else {
		wantLeft(t, p, "the plan ends after 2 moves, as asked for")
	}
}

func TestB3WithinTheThresholdNothingMoves(t *testing.T) {
	in := Input{Nodes: nodes(1, 1), Threshold: 0.1, Units: slices.Concat(units("a", 11, gib, ""), units("b", 9, gib, ""))}
	if p := Make(in); len(p.Moves)+len(p.Left) > 0 {
		t.Errorf("%+v", p)
	}
	in.Threshold = 0.09
	if p := Make(in); len(p.Moves) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestB3EmptyTenantsSpreadByNumber(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 2), Threshold: 0.1, Units: units("a", 40, 0, "")}
	if p := Make(in); p.Nodes[0].UnitsAfter > 11 || p.Nodes[2].UnitsAfter < 18 || p.Nodes[1].UnitsAfter < 9 {
		t.Errorf("units %v", unitsAfter(p))
	}
}

// TestB3ALargeTenantIsItsNodesShare: what no move makes smaller does not keep
// the others from being evened out.
func TestB3ALargeTenantIsItsNodesShare(t *testing.T) {
	in := Input{Nodes: nodes(1, 1, 1), Threshold: 0.1}
	in.Units = slices.Concat(units("a", 1, 100*gib, ""), units("b", 20, gib, ""))
	p := Make(in)
	if !slices.Equal(unitsAfter(p), []int{1, 10, 10}) && !slices.Equal(unitsAfter(p), []int{1, 11, 9}) {
		t.Errorf("units %v", unitsAfter(p))
	}
	wantLeft(t, p)
}

func TestB3BadInputIsLeftOutAndTold(t *testing.T) {
	good := Input{Nodes: nodes(1, 1), Threshold: 0.1, Units: units("a", 4, gib, "")}
	in := good
	in.Units = slices.Concat(good.Units, good.Units[:1], units("nowhere", 2, gib, ""), units("b", 1, math.MaxUint64, ""))
	p := Make(in)
	if !slices.Equal(unitsAfter(p), []int{2, 1}) && !slices.Equal(unitsAfter(p), []int{1, 2}) {
		t.Errorf("units %v", unitsAfter(p))
	}
	wantLeft(t, p, "unit a--1073741824-0 is listed more than once; it is left out",
		"2 units are on a node that is not among those listed, nowhere--1073741824-0 is one; they are left out",
		"is said to hold more than a file can; it is left out")

	in = good
	in.Nodes = append(nodes(1, 1, 1), nodes(1, 1)[1])
	p = Make(in)
	if len(p.Nodes) != 2 {
		t.Errorf("nodes %+v", p.Nodes)
	}
	wantLeft(t, p, "node b is listed more than once; it is left out")

	for why, in := range map[string]Input{
		"no node takes primaries":                         {Units: good.Units},
		"no node that takes primaries has a weight above": {Nodes: nodes(0, 0), Units: good.Units},
		"hold more bytes than there can be":               {Nodes: nodes(1, 1), Units: units("a", 1<<14, 1<<49, "")},
	} {
		p := Make(in)
		wantLeft(t, p, why)
		if len(p.Moves) > 0 {
			t.Errorf("%s: %+v", why, p.Moves)
		}
	}
	for _, threshold := range []float64{math.NaN(), -1, math.Inf(-1)} {
		in := good
		in.Threshold = threshold
		zero := good
		zero.Threshold = 0
		if !reflect.DeepEqual(Make(in), Make(zero)) {
			t.Errorf("threshold %v is not 0", threshold)
		}
	}
}
