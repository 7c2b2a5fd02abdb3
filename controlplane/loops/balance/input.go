package balance

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"domicile/fsm"
)

// maxUnit is more than SQLite can keep in one file, and maxTotal more than the
// arithmetic is made for: whoever tells of more is wrong.
const (
	maxUnit  = 1 << 49
	maxTotal = 1 << 62
)

// part is how a node takes part.
type part uint8

const (
	out      part = iota // as if it did not exist
	draining             // the drain moves what it holds
	active
)

// node is a Node and what the plan makes of it.
type node struct {
	*Node
	part        part
	zone        int32 // -1 where none was recorded
	before      uint64
	unitsBefore int
	bytes       uint64 // by now
	units       int
	stuck       uint64 // bytes that stay whatever is planned
	drained     uint64 // bytes that the drain will give to others
	ideal       uint64
	room        uint64 // bytes that may still be copied to it
	surplus     int64  // bytes above its ideal
	whyStuck    map[string]int
}

// unit is a unit that may move.
type unit struct {
	*Unit
	weight uint64
	home   int32
	copies []int32 // of the nodes known
	zones  int32   // the zones of its copies, among planner.zoneSets
	bad    bool    // has a copy in its primary's zone already
	step   int     // of its last move, from 1; 0 is none
}

// planner is a plan in the making. Nodes and units are known by their index.
type planner struct {
	in      *Input
	nodes   []node // by name
	byName  map[fsm.NodeName]int32
	active  []int32
	units   []unit  // that may move, lightest first
	at      []int32 // where each is by now
	ignored []string

	zoneSets []zoneSet
	setOf    map[string]int32

	order   []int32 // active nodes, those that lack most first
	sources []source
	tried   []bool // nodes that no move helps in this round
	steps   int
	moved   int  // units that are not where they were
	full    bool // ended by MaxMoves
	anyRoom bool // only asks: whether disks are what prevents a move
}

// read takes the input in, and leaves out what cannot be right.
func read(in *Input) *planner {
	p := &planner{in: in, byName: make(map[fsm.NodeName]int32, len(in.Nodes)), setOf: make(map[string]int32)}
	p.readNodes()
	p.readUnits()
	total := uint64(0)
	for i := range p.nodes {
		n := &p.nodes[i]
		total = sum(total, n.bytes)
		if kept := n.Free/10 + n.bytes/10; n.Free > 0 {
			n.room = n.Free - min(kept, n.Free)
		}
	}
	switch {
	case total == maxTotal:
		p.refuse("the units are said to hold more bytes than there can be; look at what the nodes report")
	case len(p.active) == 0:
		p.refuse("no node takes primaries")
	case !slices.ContainsFunc(p.active, func(i int32) bool { return p.nodes[i].Weight > 0 }):
		p.refuse("no node that takes primaries has a weight above 0; give one a weight")
	}
	return p
}

// refuse leaves everything where it is.
func (p *planner) refuse(why string) {
	p.ignored = append(p.ignored, "nothing is planned: "+why)
	for _, i := range p.active {
		p.nodes[i].part = out
	}
	p.active, p.units, p.at = nil, nil, nil
}

// sum adds what is at most maxTotal, and stops there.
func sum(a, b uint64) uint64 { return min(a+b, maxTotal) }

func (p *planner) readNodes() {
	sorted := make([]*Node, len(p.in.Nodes))
	for i := range p.in.Nodes {
		sorted[i] = &p.in.Nodes[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	zones := make(map[fsm.ZoneName]int32)
	for i, n := range sorted {
		if i > 0 && sorted[i-1].Name == n.Name || i+1 < len(sorted) && sorted[i+1].Name == n.Name {
			if i == 0 || sorted[i-1].Name != n.Name {
				p.ignored = append(p.ignored, "node "+string(n.Name)+" is listed more than once; it is left out")
			}
			continue
		}
		at := node{Node: n, zone: -1, room: math.MaxUint64, whyStuck: make(map[string]int)}
		if n.Zone != "" {
			z, ok := zones[n.Zone]
			if !ok {
				z = int32(len(zones))
				zones[n.Zone] = z
			}
			at.zone = z
		}
		switch {
		case n.Takes:
			at.part = active
			p.active = append(p.active, int32(len(p.nodes)))
		case n.Gives:
			at.part = draining
		}
		p.byName[n.Name] = int32(len(p.nodes))
		p.nodes = append(p.nodes, at)
	}
}

func (p *planner) readUnits() {
	sorted := make([]*Unit, len(p.in.Units))
	for i := range p.in.Units {
		sorted[i] = &p.in.Units[i]
	}
	slices.SortFunc(sorted, func(a, b *Unit) int { return cmp.Compare(a.Unit, b.Unit) })
	var twice, nowhere, huge ignoredUnits
	for i := 0; i < len(sorted); i++ {
		u := sorted[i]
		home, known := p.byName[u.Node]
		switch {
		case i+1 < len(sorted) && sorted[i+1].Unit == u.Unit:
			for i+1 < len(sorted) && sorted[i+1].Unit == u.Unit {
				i++
			}
			twice.add(u)
		case !known:
			nowhere.add(u)
		case u.Bytes > maxUnit:
			huge.add(u)
		default:
			p.place(u, home)
		}
	}
	p.ignored = append(p.ignored, twice.text("listed more than once")...)
	p.ignored = append(p.ignored, nowhere.text("on a node that is not among those listed")...)
	p.ignored = append(p.ignored, huge.text("said to hold more than a file can")...)
	p.sortUnits()
	p.at = make([]int32, len(p.units))
	for i := range p.units {
		p.at[i] = p.units[i].home
	}
}

// sortUnits puts the units, which are there by name, into the order of their weights.
func (p *planner) sortUnits() {
	type key struct {
		weight uint64
		at     int32
	}
	keys := make([]key, len(p.units))
	for i := range p.units {
		keys[i] = key{p.units[i].weight, int32(i)}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.at, b.at)) })
	sorted := make([]unit, len(keys))
	for i, k := range keys {
		sorted[i] = p.units[k.at]
	}
	p.units = sorted
}

// place counts a unit where it is, and notes it where it may move.
func (p *planner) place(u *Unit, home int32) {
	n := &p.nodes[home]
	w := u.Weight()
	n.bytes = sum(n.bytes, w)
	n.before = n.bytes
	n.units, n.unitsBefore = n.units+1, n.unitsBefore+1
	switch {
	case u.Stuck != "":
		n.stuck = sum(n.stuck, w)
		n.whyStuck[u.Stuck]++
	case n.part == draining:
		n.drained = sum(n.drained, w)
	case n.part == active:
		at := unit{Unit: u, weight: w, home: home}
		for _, c := range u.Copies {
			if i, ok := p.byName[c]; ok && i != home && !slices.Contains(at.copies, i) {
				at.copies = append(at.copies, i)
				at.bad = at.bad || p.nodes[i].zone >= 0 && p.nodes[i].zone == n.zone
			}
		}
		at.zones = p.zoneSet(&at)
		p.units = append(p.units, at)
	}
}

// ignoredUnits are units that are left out for one reason.
type ignoredUnits struct {
	n     int
	first *Unit
}

func (g *ignoredUnits) add(u *Unit) {
	if g.n++; g.first == nil {
		g.first = u
	}
}

func (g *ignoredUnits) text(why string) []string {
	switch g.n {
	case 0:
		return nil
	case 1:
		return []string{"unit " + string(g.first.Unit) + " is " + why + "; it is left out"}
	}
	return []string{fmt.Sprintf("%d units are %s, %s is one; they are left out", g.n, why, g.first.Unit)}
}
