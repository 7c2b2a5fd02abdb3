package fsm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

func plural(n uint64, what string) string {
	text := strconv.FormatUint(n, 10) + " "
	switch {
	case n == 1:
		return text + what
	case what == "copy":
		return text + "copies"
	}
	return text + what + "s"
}

// copyOn gives the state of the copy on a node, or 0.
func (p *Placed) copyOn(n NodeName) CopyState {
	for i := range p.Copies {
		if p.Copies[i].Node == n {
			return p.Copies[i].State
		}
	}
	return 0
}

// with gives p's copies with the copy on c.Node replaced by c, or added.
func (p *Placed) with(c Copy) []Copy {
	own := slices.Clone(p.Copies)
	i, found := slices.BinarySearchFunc(own, c.Node, func(c Copy, n NodeName) int { return cmp.Compare(c.Node, n) })
	if found {
		own[i] = c
		return own
	}
	return slices.Insert(own, i, c)
}

// without gives p's copies but the one on n.
func (p *Placed) without(n NodeName) []Copy {
	own := slices.DeleteFunc(slices.Clone(p.Copies), func(c Copy) bool { return c.Node == n })
	if len(own) == 0 {
		return nil
	}
	return own
}

// kept reports whether copies of the unit are added, judged and given up: not
// while it is made or removed.
func (p *Placed) kept() bool { return p.State == UnitActive || p.State == UnitMoving }

// CopiesWanted is how many copies a unit is to have: one for a unit whose node
// has a standby (C5), else Settings.Replicas.
func (s *State) CopiesWanted(p *Placed) int {
	if e, ok := s.nodes.Get(p.Node); ok && e.node.Standby != "" {
		return 1
	}
	return int(s.settings.Replicas)
}

// sound reports whether c is a copy that counts towards those that are wanted:
// it is a replica, its node is neither lost nor drained, and its pair has it there.
func (s *State) sound(home *seat, c *Copy) bool {
	if !c.State.Replica() {
		return false
	}
	e, ok := s.nodes.Get(c.Node)
	if !ok || e.node.Lost || e.node.Drain != nil {
		return false
	}
	if home.node.Standby != "" {
		return home.node.Standby == c.Node
	}
	return e.standbyOf == ""
}

// lacks reports whether a unit that is kept has fewer copies than are wanted.
func (s *State) lacks(p *Placed) bool {
	home, ok := s.nodes.Get(p.Node)
	if !ok {
		return false
	}
	missing := int(s.settings.Replicas)
	if home.node.Standby != "" {
		missing = 1
	}
	for i := range p.Copies {
		if missing > 0 && s.sound(home, &p.Copies[i]) {
			missing--
		}
	}
	return missing > 0
}

// count gives p with its Lacks as it is at this entry.
func (c *change) count(p *Placed) *Placed {
	since := Millis(0)
	if c.level >= levelCopies && p.kept() && c.lacks(p) {
		if since = p.Lacks; since == 0 {
			since = max(c.now, 1)
		}
	}
	if since == p.Lacks {
		return p
	}
	counted := *p
	counted.Lacks = since
	return &counted
}

// put records a unit that was changed, with its Lacks, and tells followers what
// they see of it.
func (c *change) put(before, now *Placed) *Placed {
	now = c.count(now)
	c.putUnit(now)
	if now.served() && (!before.served() || !before.info().equal(now.info()) || !sameTargets(before, now)) {
		c.events = append(c.events, Event{Unit: now.info()})
	}
	return now
}

// sameTargets reports whether moves have copies made of two records on the same nodes.
// Followers are not told of these; the leader's planners hear of a change by the event.
func sameTargets(a, b *Placed) bool {
	return slices.EqualFunc(targets(a), targets(b), func(c, d Copy) bool { return c.Node == d.Node })
}

func targets(p *Placed) (own []Copy) {
	for _, c := range p.Copies {
		if c.State == CopyTarget {
			own = append(own, c)
		}
	}
	return own
}

// recount brings Lacks of the units up to date that a node holds, after its
// record or its pair has changed.
func (c *change) recount(nodes ...NodeName) {
	for _, n := range nodes {
		if n == "" {
			continue
		}
		for _, p := range slices.Collect(c.HeldBy(n)) {
			if now := c.count(p); now != p {
				c.putUnit(now)
			}
		}
	}
}

// recountedAtOnce is how many tenants one entry recounts at most: some 40 ms.
const recountedAtOnce = 10_000

// firstName is before or at every name.
const firstName TenantName = "-"

// recountAll begins to do so for every unit, after what all of them are counted
// by has changed: the number of replicas, or the level that counts copies. Of a
// large directory each entry does a part, so that none holds the others up.
func (c *change) recountAll() { c.recountAt = firstName }

// recountSome does the next part of what recountAll began.
func (c *change) recountSome() {
	var changed []*Placed
	next, done := TenantName(""), 0
	c.tenants.Ascend(c.recountAt, func(name TenantName, _ *tenancy) bool {
		if done == recountedAtOnce {
			next = name
			return false
		}
		done++
		for p := range c.TenantUnits(name) {
			if now := c.count(p); now != p {
				changed = append(changed, now)
			}
		}
		return true
	})
	for _, p := range changed {
		c.putUnit(p)
	}
	c.recountAt = next
}

// counted reports whether a unit's Lacks is by the present settings.
func (s *State) counted(p *Placed) bool {
	t, _, _ := p.Unit.Split()
	return s.recountAt == "" || t < s.recountAt
}

// BetterCopy tells, for a unit that has all copies that it is to have and no
// more, of a node in a better zone than that of its worst copy (C3): once it has
// that copy too, and it is in sync, the worst may leave. It takes a step for each
// node where the worst copy is not in another zone than its primary, else none.
func (s *State) BetterCopy(p *Placed) (CopyWanted, bool) {
	home, ok := s.nodes.Get(p.Node)
	if !ok || !p.kept() || !p.Promoted() || home.node.Standby != "" || p.Lacks != 0 {
		return CopyWanted{}, false
	}
	worst, follow := zoneOther, 0
	for i := range p.Copies {
		if !p.Copies[i].State.Replica() {
			continue
		}
		follow++
		if e, ok := s.nodes.Get(p.Copies[i].Node); ok {
			worst = max(worst, zoneOf(home.node, e.node))
		}
	}
	if worst == zoneOther || follow > int(s.settings.Replicas) {
		return CopyWanted{}, false
	}
	c := s.bestReplica(home, p, nil)
	if c == nil || int(c.rank[0]) >= worst {
		return CopyWanted{}, false
	}
	return CopyWanted{UnitRef: p.ref(), Node: c.seat.node.Name}, true
}

// bestReplica gives the best node for one more copy of a unit.
func (s *State) bestReplica(home *seat, p *Placed, silent []NodeName) *candidate {
	w := want{role: RoleReplica, home: home, unit: p, silent: silent}
	return s.best(&w, func(n NodeName) bool { return p.copyOn(n).Follows() })
}

// SpareCopy tells of a copy that a unit does not need: one more than it is to
// have, the worst, or a former primary, while as many as are wanted, and at least
// one where any is, are in sync without it (architecture §3.7.6). It is the
// change by which that copy leaves. A former primary in another region is one as soon as
// the unit has a copy in sync where it lives, or cannot have any.
func (s *State) SpareCopy(p *Placed) (CopyChange, bool) {
	home, ok := s.nodes.Get(p.Node)
	if !ok || !p.kept() || !p.Promoted() {
		return CopyChange{}, false
	}
	wanted := s.CopiesWanted(p)
	var order []*Copy
	target := s.moveTarget(p)
	for i := range p.Copies {
		if c := &p.Copies[i]; c.State == CopyFormer && s.leftBehind(home, c.Node) && !s.AwaitsCopy(p) {
			return CopyChange{UnitRef: p.ref(), Epoch: p.Epoch, Node: c.Node, From: c.State, To: CopyLeaving}, true
		} else if c.Node != target && (c.State.Replica() || c.State == CopyFormer) {
			order = append(order, &p.Copies[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Copy) int { return slices.Compare(s.worth(home, a), s.worth(home, b)) })
	if len(order) <= wanted {
		return CopyChange{}, false
	}
	for _, c := range order[:wanted] {
		if c.State != CopyInSync || !s.sound(home, c) {
			return CopyChange{}, false
		}
	}
	c := order[len(order)-1]
	return CopyChange{UnitRef: p.ref(), Epoch: p.Epoch, Node: c.Node, From: c.State, To: CopyLeaving}, true
}

// AwaitsCopy reports whether a unit is to have copies, has none in sync, and will have
// one: what other nodes hold of it is kept so long (architecture §3.7.6). Where no node of
// its region may hold a copy nothing is waited for.
func (s *State) AwaitsCopy(p *Placed) bool {
	home, ok := s.nodes.Get(p.Node)
	if !ok || s.CopiesWanted(p) == 0 {
		return false
	}
	comes := false
	for i := range p.Copies {
		if p.Copies[i].State == CopyInSync {
			return false
		}
		comes = comes || p.Copies[i].State.Replica()
	}
	return comes || s.bestReplica(home, p, nil) != nil
}

// leftBehind reports whether a copy is in another region than its unit's primary: a move
// has taken the tenant out of it, and what is there goes, whatever copies there are (I2).
func (s *State) leftBehind(home *seat, n NodeName) bool {
	e, ok := s.nodes.Get(n)
	return ok && e.node.Region != home.node.Region
}

// worth orders copies, those to be kept first: that count, follow, are in a
// better zone, in sync.
func (s *State) worth(home *seat, c *Copy) []int {
	zone := zoneUnknown
	if e, ok := s.nodes.Get(c.Node); ok {
		zone = zoneOf(home.node, e.node)
	}
	return []int{number(!s.sound(home, c)), number(!c.State.Replica()), zone, number(c.State != CopyInSync)}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Unreplicated says why a unit has no copy that follows, for people (C4); "" if
// it has one.
func (s *State) Unreplicated(p *Placed) string {
	for i := range p.Copies {
		if p.Copies[i].State.Replica() {
			return ""
		}
	}
	home, ok := s.nodes.Get(p.Node)
	switch {
	case !ok || p.State == UnitDeleting:
		return "it is being removed"
	case s.CopiesWanted(p) == 0:
		return "no copies are asked for (--replicas 0)"
	}
	if s.bestReplica(home, p, nil) != nil {
		return "a copy has not been placed yet"
	}
	if home.node.Standby != "" {
		return "standby " + string(home.node.Standby) + " of node " + string(p.Node) + " was failed over and has not answered since"
	}
	var closed []string
	w := want{role: RoleReplica, home: home, unit: p}
	for _, v := range s.explain(&w) {
		if n, _ := s.Node(v.Node); n.Region != home.node.Region || v.Node == p.Node {
			continue
		}
		if len(closed) == maxNamed {
			closed = append(closed, "and so on")
			break
		}
		closed = append(closed, "node "+string(v.Node)+": "+v.Why)
	}
	if closed == nil {
		return "no other node is in region " + regionText(home.node.Region)
	}
	return "no node of region " + regionText(home.node.Region) + " may hold a copy: " + strings.Join(closed, "; ")
}

func (p *Placed) ref() UnitRef { return UnitRef{p.Unit, p.ID} }
