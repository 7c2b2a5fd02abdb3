package loops

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"domicile/fsm"
)

// look is what a leader knows of what a node holds. A node is asked at the
// beginning of a term, when it is back, and every LookEvery.
type look struct {
	again    bool // ask now
	next     fsm.Millis
	strange  map[fsm.UnitRef]fsm.Millis // held though not placed there, since when it was first seen
	removing map[fsm.UnitRef]bool       // seen twice: to be removed
	held     []Held                     // an answer that was not looked through yet
	told     map[fsm.UnitRef]string     // what was lost, as it was told
	asked    string                     // process of the node when it was asked last
	known    bool                       // what the process of holds was looked through
	of       string
	// missing are units that it is to write and does not hold, and their epochs; kept
	// of a node that takes no lease, as others tell it with each answer. expected are
	// those that it was to write when it was asked: one that came since says nothing.
	missing, expected map[fsm.UnitRef]uint64
}

// looked notes what a node answered.
func (m *nodeMemory) looked(c Call, a Answer, now fsm.Millis) {
	if c.Source != "" || a.Outcome != Done {
		return // about the positions of copies, or no answer
	}
	m.look.held = a.Held
	if m.look.held == nil {
		m.look.held = []Held{}
	}
	m.look.next = now + LookEvery
}

// lookAt asks a node what it holds, and acts on what it answered: what no entry
// places there is removed, once it was seen again ConfirmAfter later, and what
// was lost is told.
func (p *planner) lookAt(n *fsm.Node, k *nodeMemory, news *NodeNews) {
	l := &k.look
	if l.held != nil {
		l.findMissing()
		p.compareHeld(n, l)
		if l.known, l.of = true, l.asked; news.Following != nil {
			p.m.look = true // what it says counts from now on
			p.wakeAt(p.now)
		}
	}
	p.removeStrange(n, l)
	call := Call{Work: LookAtUnits, Target: fsm.Target{Node: n.Name}}
	t := p.m.known(call)
	switch {
	case t.running:
	case t.failures > 0 && p.now < t.retryAt:
		p.nodesAt(t.retryAt)
	case l.again || p.now >= l.next:
		if p.call(Action{Call: call, Verb: LookAtUnits}, true) {
			l.again, l.asked, l.expected = false, news.Boot, nil
			if news.Following != nil {
				l.expected = p.writtenBy(n)
			}
		} else {
			p.nodesAt(p.now + ProposeAgain)
		}
	default:
		p.nodesAt(l.next)
	}
}

// writtenBy gives the units that a node is to write, and their epochs.
func (p *planner) writtenBy(n *fsm.Node) map[fsm.UnitRef]uint64 {
	units := make(map[fsm.UnitRef]uint64)
	for u := range p.s.HeldBy(n.Name) {
		if u.Node == n.Name && u.State == fsm.UnitActive && u.Promoted() {
			units[ref(u)] = u.Epoch
		}
	}
	return units
}

// findMissing finds what a node was to write when it was asked and did not name: its
// folder was lost.
func (l *look) findMissing() {
	l.missing, l.expected = l.expected, nil
	for _, h := range l.held {
		delete(l.missing, h.UnitRef)
	}
}

// missing gives those of a node's units that it was found not to hold, and that were not
// given to it anew since.
func (p *planner) missing(n *fsm.Node, l *look) (units []fsm.UnitName) {
	for r, epoch := range l.missing {
		if u, ok := p.s.Placed(r.Unit); ok && u.ID == r.ID && u.Node == n.Name && u.Epoch == epoch {
			units = append(units, r.Unit)
		}
	}
	slices.Sort(units)
	return units
}

// heldIsKnown reports whether what a node that takes no lease holds was looked at since
// its process began, and has it looked at otherwise: before, that nobody follows a unit
// there says nothing of its copies.
func (p *planner) heldIsKnown(l *look, news *NodeNews) bool {
	if news.Following == nil || l.known && l.of == news.Boot {
		return true
	}
	l.again = l.again || l.asked != news.Boot || l.known
	return false
}

// compareHeld looks through what a node said that it holds. Every unit is made
// after the entry that places it (I8), so that what the state does not place
// there now is one that was given up, or forgotten.
func (p *planner) compareHeld(n *fsm.Node, l *look) {
	strange := make(map[fsm.UnitRef]fsm.Millis)
	for _, h := range l.held {
		if p.placedOn(h.UnitRef, n.Name) {
			p.tellLost(n, l, h)
			continue
		}
		if p.mayBeOrphaned(h.UnitRef) {
			continue // an operator adopts it, or removes it
		}
		since, seen := l.strange[h.UnitRef]
		if !seen {
			since = p.now
		}
		strange[h.UnitRef] = since
		if seen && p.now-since >= ConfirmAfter {
			if l.removing == nil {
				l.removing = make(map[fsm.UnitRef]bool)
			}
			l.removing[h.UnitRef] = true
		}
	}
	l.held, l.strange = nil, strange
	if len(l.removing) > 0 {
		p.plan.Findings = append(p.plan.Findings, Finding{Kind: FoundUnplaced, Node: n.Name, Count: len(l.removing)})
	}
	if len(strange) > len(l.removing) {
		l.next = min(l.next, p.now+ConfirmAfter)
	}
}

// mayBeOrphaned reports whether a unit that no entry places on a node may be from before a
// recovery of the directory: that was behind once, and that it does not know the unit says
// nothing. Ids of a region's units are the global directory's, whose history may be a newer
// one: they do not tell what is from before.
func (p *planner) mayBeOrphaned(u fsm.UnitRef) bool {
	r := p.s.Recovery()
	if r == nil {
		return false
	}
	scope, _ := p.s.Scope()
	known, ok := p.s.Placed(u.Unit)
	return fsm.Revision(u.ID) < r.ID || scope.Region != "" && !(ok && known.ID == u.ID)
}

// placedOn reports whether an entry places a unit on a node in any way.
func (p *planner) placedOn(r fsm.UnitRef, n fsm.NodeName) bool {
	u, ok := p.s.Placed(r.Unit)
	if !ok || u.ID != r.ID {
		return false
	}
	return u.Node == n || slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == n })
}

// apart reports whether the process of n is none of those that an entry places a
// unit on: what is removed from n would be removed there. strict: a node that has
// not told its process in this term may be the same.
func (p *planner) apart(r fsm.UnitRef, n fsm.NodeName, strict bool) bool {
	u, ok := p.s.Placed(r.Unit)
	own := p.news.Nodes[n]
	if !ok || u.ID != r.ID || own == nil {
		return true
	}
	differs := func(name fsm.NodeName) bool {
		news := p.news.Nodes[name]
		if name == n || name == "" {
			return true
		}
		if news == nil || news.Boot == "" && !news.Answered {
			return !strict
		}
		return own.Boot == "" || news.Boot != own.Boot
	}
	return differs(u.Node) && !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return !differs(c.Node) })
}

// tellLost tells once what a node had acknowledged alone on a branch that was
// given up (L7).
func (p *planner) tellLost(n *fsm.Node, l *look, h Held) {
	what := strings.Join(append([]string{h.From, h.To}, h.Aside...), " ")
	if h.From == "" && len(h.Aside) == 0 || l.told[h.UnitRef] == what {
		return
	}
	if l.told == nil {
		l.told = make(map[fsm.UnitRef]string)
	}
	l.told[h.UnitRef] = what
	p.plan.Findings = append(p.plan.Findings, Finding{Kind: FoundLost, Node: n.Name, Unit: h.UnitRef,
		From: h.From, To: h.To, Files: h.Aside})
}

// removeStrange takes units off a node that are not placed there.
func (p *planner) removeStrange(n *fsm.Node, l *look) {
	for _, r := range slices.SortedFunc(maps.Keys(l.removing), func(a, b fsm.UnitRef) int {
		return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.ID, b.ID))
	}) {
		if p.placedOn(r, n.Name) {
			delete(l.removing, r) // it came to be since
			continue
		}
		call := Call{Work: RemoveUnit, Target: fsm.Target{Unit: r.Unit, ID: r.ID, Node: n.Name}}
		t := p.m.known(call)
		switch {
		case !p.apart(r, n.Name, true):
			delete(l.removing, r) // looked at again
		case t.running:
		case t.failures > 0 && p.now < t.retryAt:
			p.nodesAt(t.retryAt)
		default:
			verb := RemoveUnit
			if u, ok := p.s.Placed(r.Unit); ok && u.ID == r.ID && u.State != fsm.UnitDeleting {
				verb = RemoveCopy
			}
			if !p.call(Action{Call: call, Verb: verb}, true) {
				p.nodesAt(p.now + ProposeAgain)
				return
			}
			delete(l.removing, r) // one that fails is seen again
			delete(l.strange, r)
		}
	}
}
