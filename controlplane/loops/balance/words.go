package balance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table gives the nodes as they are and as they would be.
func (p *planner) table() []Share {
	all := make([]Share, len(p.nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		all[i] = Share{Name: n.Name, Bytes: n.before, Ideal: n.ideal, After: n.bytes, Units: n.unitsBefore, UnitsAfter: n.units}
		reason := ""
		if n.Reason != "" {
			reason = ": " + n.Reason
		}
		switch {
		case n.part == draining:
			all[i].Note = "its ideal is 0: what it holds is left to its drain" + reason
		case n.part == out && !n.Takes:
			all[i].Note = "left out" + reason
		case n.part == active && !n.Gives:
			all[i].Note = "gives nothing" + reason
		}
	}
	return all
}

// moves lists the units that are not where they were, each with the reason as it
// will be when those before it are done.
func (p *planner) moves() []Move {
	var steps []int32
	for i := range p.units {
		if p.at[i] != p.units[i].home {
			steps = append(steps, int32(i))
		}
	}
	slices.SortFunc(steps, func(a, b int32) int { return cmp.Compare(p.units[a].step, p.units[b].step) })
	bytes := make([]uint64, len(p.nodes))
	touched := make([]bool, len(p.nodes))
	for i := range p.nodes {
		bytes[i] = p.nodes[i].before
	}
	moves := make([]Move, 0, len(steps))
	for _, i := range steps {
		u, from, to := &p.units[i], p.units[i].home, p.at[i]
		m := Move{UnitRef: u.UnitRef, From: p.nodes[from].Name, To: p.nodes[to].Name, Bytes: u.Bytes, SwitchOver: !p.copied(u, to)}
		m.Why = p.holding(from, bytes[from], touched[from]) + "; " + p.holding(to, bytes[to], touched[to]) + "; " + p.costs(u, to)
		bytes[from] -= u.weight
		bytes[to] += u.weight
		touched[from], touched[to] = true, true
		moves = append(moves, m)
	}
	return moves
}

// costs says what the move copies.
func (p *planner) costs(u *unit, to int32) string {
	text := bytesText(u.Bytes) + " are copied"
	worse := !u.bad && p.zoneSets[u.zones].has[p.nodes[to].zone]
	if !p.copied(u, to) {
		text, worse = string(p.nodes[to].Name)+" has an in-sync copy, so nothing is copied", p.worse(u, to)
	}
	if worse {
		text += "; a copy is in the zone of its primary then, and is placed anew"
	}
	return text
}

// holding says what a node holds, beside its share. It is said so often that
// it is put together by hand.
func (p *planner) holding(i int32, bytes uint64, then bool) string {
	n := &p.nodes[i]
	verb := " holds "
	if then {
		verb = " then holds "
	}
	switch {
	case n.ideal == 0:
		return "node " + string(n.Name) + verb + bytesText(bytes) + ", its share is nothing"
	case bytes == 0:
		return "node " + string(n.Name) + verb + "nothing, its share is " + bytesText(n.ideal)
	}
	return "node " + string(n.Name) + verb + bytesText(bytes) + ", " + timesText(float64(bytes)/float64(n.ideal)) +
		" times its share of " + bytesText(n.ideal)
}

// left says why each node that is out of balance stays so.
func (p *planner) left() []string {
	var texts []string
	if p.full {
		return []string{fmt.Sprintf("the plan ends after %d moves, as asked for; more are planned once they are done", p.moved)}
	}
	for _, i := range p.active {
		n := &p.nodes[i]
		if !n.unbalanced(p.in.Threshold) {
			continue
		}
		why := p.whyTaker(i)
		if n.surplus > 0 {
			why = p.whyGiver(i)
		}
		texts = append(texts, p.holding(i, n.bytes, p.moved > 0)+", and stays so: "+why)
	}
	return texts
}

// whyGiver says why a node gives no more.
func (p *planner) whyGiver(k int32) string {
	n, may := &p.nodes[k], 0
	for i := range p.units {
		if p.at[i] == k {
			may++
		}
	}
	stuck := n.stuckText()
	switch {
	case may == 0:
		return "none of its units may move" + stuck
	case p.roomWouldHelp(k):
		return "the nodes that hold less have no room on their disks for a unit of it" + stuck
	}
	return "each unit that may move is more than another node lacks" + stuck
}

// whyTaker says why a node takes no more.
func (p *planner) whyTaker(k int32) string {
	n := &p.nodes[k]
	giver := slices.ContainsFunc(p.active, func(i int32) bool { return p.nodes[i].surplus > 0 })
	switch {
	case !giver:
		return "no node holds more than its share; what draining nodes hold comes to it"
	case p.roomWouldHelp(k):
		return "its disk has no room for a unit of those that hold more (" + bytesText(n.Free) +
			" were free; a tenth of that and of what it held is kept)"
	}
	return "no node that holds more has a unit that may move and is not more than this one lacks"
}

// roomWouldHelp reports whether a node would move something if disks had room.
func (p *planner) roomWouldHelp(k int32) bool {
	p.anyRoom = true
	m := p.choose(k)
	p.anyRoom = false
	return m.unit >= 0
}

// stuckText tells of the units that may not move, the commonest reasons first.
func (n *node) stuckText() string {
	reasons := slices.SortedFunc(maps.Keys(n.whyStuck), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.whyStuck[b], n.whyStuck[a]), cmp.Compare(a, b))
	})
	if len(reasons) == 0 {
		return ""
	}
	var texts []string
	for i, r := range reasons {
		if i == 3 {
			texts = append(texts, "and so on")
			break
		}
		texts = append(texts, fmt.Sprintf("%d: %s", n.whyStuck[r], r))
	}
	return "; units that may not: " + strings.Join(texts, ", ")
}

// timesText gives a ratio as people read it.
func timesText(r float64) string {
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

// bytesText gives a size as people read it.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}
