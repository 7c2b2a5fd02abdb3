package fsm

import "slices"

// ReadersLack says what the read replicas of a unit lack, beside what was asked for.
type ReadersLack uint8

// What read replicas lack.
const (
	ReadersWhole ReadersLack = 0
	// ReadersLost: one is on a node that is lost, and another node may have it.
	ReadersLost ReadersLack = 1
	// ReadersWrong: one is missing that a node may have, is on a node that is drained, or
	// is where none is asked for.
	ReadersWrong ReadersLack = 2
)

// ReadersLack tells whether PlaceReaders would change anything about a unit, where silent
// nodes are not chosen. Of a unit without read replicas it takes no step for each node.
func (s *State) ReadersLack(p *Placed, silent []NodeName) ReadersLack {
	lack := ReadersWhole
	if !p.kept() || !p.Promoted() {
		return lack
	}
	s.misplacedReaders(p, silent, func(m misplaced) {
		if m.to != "" || !m.lost {
			lack = max(lack, m.lack())
		}
	})
	return lack
}

// misplaced is a read replica that is not where it should be.
type misplaced struct {
	from    NodeName // "": it is missing
	to      NodeName // "": nowhere
	lost    bool     // from is lost, and may come back
	unasked bool     // none is asked for where from is
}

func (m *misplaced) lack() ReadersLack {
	if m.lost {
		return ReadersLost
	}
	return ReadersWrong
}

// misplacedReaders yields what is amiss with the read replicas of a unit: those that have
// to go, then those that are missing, by region.
func (s *State) misplacedReaders(p *Placed, silent []NodeName, yield func(misplaced)) {
	home, ok := s.nodes.Get(p.Node)
	t, known := s.tenants.Get(TenantName(tenantOf(p.Unit)))
	if !ok || !known {
		return
	}
	for i := range p.Copies {
		if c := &p.Copies[i]; c.State == CopyReader && !s.readIn(t.tenant, home.node.Region, c.Node) {
			yield(misplaced{from: c.Node, unasked: true})
		}
	}
	for _, r := range t.tenant.Readers {
		if r == home.node.Region {
			continue // it lives there; its copies there are ordinary ones
		}
		at, none := s.readerIn(p, r)
		e, _ := s.nodes.Get(at)
		switch {
		case none && at != "": // a move is about to make one there
		case none:
			if to := s.bestReader(home, p, r, silent); to != "" {
				yield(misplaced{to: to})
			}
		case e.node.Lost || e.node.Drain != nil:
			yield(misplaced{from: at, to: s.bestReader(home, p, r, silent), lost: e.node.Drain == nil})
		}
	}
}

// readIn reports whether a read replica of a tenant that lives in home is wanted in the
// region of node n.
func (s *State) readIn(t *Tenant, home RegionName, n NodeName) bool {
	e, _ := s.nodes.Get(n)
	_, asked := slices.BinarySearch(t.Readers, e.node.Region)
	return asked && e.node.Region != home
}

// readerIn gives the node of a unit's read replica in a region. none: there is none; the
// node is then that of a move's target there, if there is one.
func (s *State) readerIn(p *Placed, r RegionName) (n NodeName, none bool) {
	none = true
	for i := range p.Copies {
		c := &p.Copies[i]
		if e, ok := s.nodes.Get(c.Node); !ok || e.node.Region != r {
			continue
		}
		switch c.State {
		case CopyReader:
			return c.Node, false
		case CopyTarget:
			n = c.Node
		}
	}
	return n, true
}

// bestReader gives the node of a region that is to have a read replica of a unit, or "".
func (s *State) bestReader(home *seat, p *Placed, r RegionName, silent []NodeName) NodeName {
	w := want{role: RoleReader, region: &r, home: home, unit: p, silent: silent}
	best := s.best(&w, func(n NodeName) bool { return p.copyOn(n).Follows() })
	if best == nil {
		return ""
	}
	return best.seat.node.Name
}

func (c *change) setReader(cmd *SetReader) Result {
	t, ok := c.tenants.Get(cmd.Tenant)
	if !ok {
		return refused(unknownTenant(cmd.Tenant))
	}
	if t.tenant.HasHome {
		return refused(elsewhere(t.tenant.Home))
	}
	if j := c.jobOf(cmd.Tenant); j != nil && (j.Kind == JobDelete || j.Step == StepUndo) {
		return refused(refuse(CodeBusy, "tenant "+string(cmd.Tenant)+" is being removed", "tenant", string(cmd.Tenant)))
	}
	i, asked := slices.BinarySearch(t.tenant.Readers, cmd.Region)
	next := *t.tenant
	switch {
	case !cmd.Wanted && !asked:
		return refused(refuse(CodeReaderUnknown, "no read replica of tenant "+string(cmd.Tenant)+" was asked for in region "+clip(regionText(cmd.Region)),
			"tenant", string(cmd.Tenant), "region", clip(string(cmd.Region))))
	case !cmd.Wanted:
		next.Readers = slices.Delete(slices.Clone(next.Readers), i, i+1)
		if len(next.Readers) == 0 {
			next.Readers = nil
		}
	default:
		if r := c.mayRead(cmd); r != nil {
			return refused(r)
		}
		if !asked {
			next.Readers = slices.Insert(slices.Clone(next.Readers), i, cmd.Region)
		}
	}
	c.putTenant(&next, t.unit)
	r := Result{Tenant: &next, Created: cmd.Wanted && !asked}
	for _, p := range slices.Collect(c.TenantUnits(cmd.Tenant)) {
		if c.mendReaders(p, cmd.Silent); r.Created && len(c.events) == 0 && p.served() {
			c.events = append(c.events, Event{Unit: p.info()}) // the leader's planners hear of it
		}
	}
	t, _ = c.tenants.Get(cmd.Tenant)
	r.Placed = t.unit
	return r
}

// maxReaders bounds the regions in which a tenant may have read replicas.
const maxReaders = 64

// mayRead says why a tenant is to have no read replica in a region.
func (c *change) mayRead(cmd *SetReader) *Refusal {
	t, _ := c.Tenant(cmd.Tenant)
	region, _ := c.TenantRegion(cmd.Tenant)
	fields := []string{"tenant", string(cmd.Tenant), "region", string(cmd.Region)}
	switch {
	case cmd.Region != "" && !validRegion(cmd.Region):
		return badName("region", string(cmd.Region))
	case !c.regionKnown(cmd.Region):
		return refuse(CodeRegionUnknown, "no node is in region "+regionText(cmd.Region)+
			"; record one there first, or name another region", "region", string(cmd.Region))
	case region == cmd.Region:
		return refuse(CodeAlreadyThere, "tenant "+string(cmd.Tenant)+" lives in region "+regionText(region)+
			", where its own copies are read; a read replica is for another region", fields...)
	case len(t.Readers) == maxReaders && !slices.Contains(t.Readers, cmd.Region):
		return refuse(CodeBadRequest, "a tenant has read replicas in 64 regions at most", fields...)
	}
	if c.keepsOwn(cmd.Region) {
		return elsewhere(cmd.Region)
	}
	return nil
}

func (c *change) placeReaders(cmd *PlaceReaders) {
	for _, r := range cmd.Units {
		if p, ok := c.unitFor(r); ok {
			c.mendReaders(p, cmd.Silent)
		}
	}
}

// mendReaders brings the read replicas of a unit to what is asked for. One on a lost node
// stays where no other node may have it; one on a node that is drained goes all the same.
// Of a unit that is not promoted only those leave that nobody asks for.
func (c *change) mendReaders(p *Placed, silent []NodeName) {
	if !p.kept() {
		return
	}
	next := *p
	c.misplacedReaders(p, silent, func(m misplaced) {
		if m.to == "" && m.lost || !p.Promoted() && !m.unasked {
			return
		}
		if m.from != "" {
			next.Copies = next.with(Copy{Node: m.from, State: CopyLeaving, Since: c.now, Entry: c.at})
		}
		if m.to != "" {
			next.Copies = next.with(Copy{Node: m.to, State: CopyReader, Since: c.now, Entry: c.at})
		}
	})
	if !slices.Equal(next.Copies, p.Copies) {
		c.put(p, &next)
	}
}
