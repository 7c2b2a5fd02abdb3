package fsm

import (
	"cmp"
	"slices"
)

// Role is what a node may be to a unit.
type Role uint8

// Roles.
const (
	RolePrimary Role = 1
	RoleReplica Role = 2
	RoleReader  Role = 3 // a read replica in another region
)

// Verdict says whether a node may hold a unit in a role, and why. It is the
// whole of the rules of placement: T2 for primaries, C1, C2 and C5 for replicas.
type Verdict struct {
	Node NodeName
	May  bool
	Rank int // from 1, of those that may; 0 for the others
	Why  string
	// Primary and Copy say what the node is to the unit now; Copy is 0 for
	// nothing.
	Primary bool
	Copy    CopyState
}

// Explain gives every node's verdict for a tenant's unit, the first of one with
// buckets: those that may in their order, then the others by name. It is false
// for a tenant that has no unit here. What answers at present it does not know.
func (s *State) Explain(name TenantName, role Role) ([]Verdict, bool) {
	for p := range s.TenantUnits(name) {
		home, ok := s.nodes.Get(p.Node)
		if !ok {
			return nil, false
		}
		w := want{role: role, region: &home.node.Region, unit: p}
		if role == RoleReplica {
			w.home = home
		}
		return s.explain(&w), true
	}
	return nil, false
}

func (s *State) explain(w *want) []Verdict {
	var all []candidate
	s.judge(w, func(c candidate) { all = append(all, c) })
	slices.SortStableFunc(all, func(a, b candidate) int {
		if (a.no == mayHold) != (b.no == mayHold) {
			return cmp.Compare(min(a.no, 1), min(b.no, 1))
		}
		if a.no != mayHold {
			return 0
		}
		return a.compare(&b)
	})
	verdicts := make([]Verdict, len(all))
	for i := range all {
		c := &all[i]
		v := &verdicts[i]
		v.Node, v.May, v.Why = c.seat.node.Name, c.no == mayHold, c.why(w)
		if v.May {
			v.Rank = i + 1
		}
		if w.unit != nil {
			v.Primary = w.unit.Node == v.Node
			v.Copy = w.unit.copyOn(v.Node)
		}
	}
	return verdicts
}

// want is a place that is looked for.
type want struct {
	role   Role
	region *RegionName // primary, reader: of this region; nil: of any that keeps no directory of its own
	home   *seat       // replica, reader: that of the unit's primary
	unit   *Placed     // nil for a unit to be
	silent []NodeName  // did not answer the proposer just now
}

// no is why a node may not hold a unit.
type no uint8

const (
	mayHold no = iota
	noOtherRegion
	noOwnDirectory
	noHandingOver
	noPrimary
	noOtherStandby
	noNotStandby
	noWeight
	noLost
	noDraining
	noSilent
)

// candidate is a node's verdict in the form that is cheap to find and compare.
// The numbers are, in the order in which they count, those of T2 (bytes, units)
// or C2 (zone, held, shared, units); then comes the name.
type candidate struct {
	seat *seat
	no   no
	rank [4]uint64
}

// compare orders candidates that may hold the unit, the best first.
func (c *candidate) compare(d *candidate) int {
	for i := range c.rank {
		if c.rank[i] != d.rank[i] {
			return cmp.Compare(c.rank[i], d.rank[i])
		}
	}
	return cmp.Compare(c.seat.node.Name, d.seat.node.Name)
}

// judge is the one feasible-set function: it yields each node's verdict, by
// name. It takes a step for each node.
func (s *State) judge(w *want, yield func(candidate)) {
	if w.role == RolePrimary {
		s.nodes.Scan(func(name NodeName, e *seat) bool {
			c := candidate{seat: e, no: s.mayBePrimary(w, e)}
			if c.no == mayHold {
				bytes, units := e.estimate()
				c.rank = [4]uint64{bytes, uint64(units)}
			}
			yield(c)
			return true
		})
		return
	}
	shared := w.home.copiesOn.Iter() // in the order of nodes
	more := shared.First()
	s.nodes.Scan(func(name NodeName, e *seat) bool {
		for more && shared.Key() < name {
			more = shared.Next()
		}
		c := candidate{seat: e, no: s.mayFollow(w, e)}
		if c.no == mayHold {
			c.rank = [4]uint64{0, 1, 0, uint64(e.units.Len())}
			if w.role == RoleReplica { // zones mean nothing across regions
				c.rank[0] = uint64(zoneOf(w.home.node, e.node))
			}
			if w.unit != nil && w.unit.copyOn(name) != 0 {
				c.rank[1] = 0
			}
			if more && shared.Key() == name {
				c.rank[2] = uint64(shared.Value())
			}
		}
		yield(c)
		return true
	})
}

func (s *State) mayBePrimary(w *want, e *seat) no {
	switch {
	case w.region != nil && e.node.Region != *w.region:
		return noOtherRegion
	case e.standbyOf != "":
		return noOtherStandby
	case e.node.Weight == 0:
		return noWeight
	case e.node.Lost:
		return noLost
	case e.node.Drain != nil:
		return noDraining
	case slices.Contains(w.silent, e.node.Name):
		return noSilent
	}
	switch {
	case s.keepsOwn(e.node.Region):
		return noOwnDirectory
	case w.role == RolePrimary && s.closed(e.node.Region):
		return noHandingOver
	}
	return mayHold
}

// mayFollow: a read replica is placed where a primary may be, as it is nobody's copy.
func (s *State) mayFollow(w *want, e *seat) no {
	if w.role == RoleReader {
		return s.mayBePrimary(w, e)
	}
	return w.mayBeReplica(e)
}

// mayBeReplica: a standby is asked for no weight, it is there for its node.
func (w *want) mayBeReplica(e *seat) no {
	home := w.home.node
	switch {
	case e.node.Region != home.Region:
		return noOtherRegion
	case e == w.home || e.node.Name == home.Name:
		return noPrimary
	case home.Standby != "" && e.node.Name != home.Standby:
		return noNotStandby
	case e.standbyOf != "" && e.standbyOf != home.Name:
		return noOtherStandby
	case e.node.Weight == 0 && e.standbyOf == "":
		return noWeight
	case e.node.Lost:
		return noLost
	case e.node.Drain != nil:
		return noDraining
	case slices.Contains(w.silent, e.node.Name):
		return noSilent
	}
	return mayHold
}

// best gives the first node that may hold the unit and that skip does not
// name; nil if there is none.
func (s *State) best(w *want, skip func(NodeName) bool) *candidate {
	var best candidate
	s.judge(w, func(c candidate) {
		if c.no != mayHold || best.seat != nil && best.compare(&c) <= 0 || skip != nil && skip(c.seat.node.Name) {
			return
		}
		best = c
	})
	if best.seat == nil {
		return nil
	}
	return &best
}

// Classes of a copy's zone beside its primary's, the best first (C2).
const (
	zoneOther   = 0
	zoneUnknown = 1
	zoneSame    = 2
)

func zoneOf(home, n *Node) int {
	switch {
	case home.Zone == "" || n.Zone == "":
		return zoneUnknown
	case home.Zone != n.Zone:
		return zoneOther
	}
	return zoneSame
}

// why says the verdict to people.
func (c *candidate) why(w *want) string {
	switch n := c.seat.node; c.no {
	case noOtherRegion:
		return "it is in region " + regionText(n.Region)
	case noOwnDirectory:
		return "region " + regionText(n.Region) + " keeps its own directory"
	case noHandingOver:
		return "region " + regionText(n.Region) + " is being handed over to another directory"
	case noPrimary:
		return "it is the primary"
	case noOtherStandby:
		return "it is the standby of " + string(c.seat.standbyOf)
	case noNotStandby:
		return "the copies of " + string(w.home.node.Name) + " are on its standby " + string(w.home.node.Standby) + " alone"
	case noWeight:
		return "it has weight 0"
	case noLost:
		return "it was failed over and has not answered since"
	case noDraining:
		return "it is being drained"
	case noSilent:
		return "it does not answer"
	}
	if w.role == RolePrimary {
		return "it holds " + plural(c.rank[1], "unit") + ", about " + plural(c.rank[0], "byte")
	}
	zone := [...]string{"another zone", "a zone that is not known to be another", "the same zone"}[c.rank[0]]
	held := ""
	if c.rank[1] == 0 {
		held = ", holds a copy"
	}
	return zone + held + ", " + plural(c.rank[2], "copy") + " of " + string(w.home.node.Name) + "'s units, " +
		plural(c.rank[3], "unit") + " altogether"
}
