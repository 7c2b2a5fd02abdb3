package fsm

import "strings"

// Reader is a read replica that an operator asked for, as it stands.
type Reader struct {
	Region RegionName
	Node   NodeName // "": no node has it
	Home   bool     // the unit lives in the region itself, where its own copies are read
	Lost   bool     // Node is lost: it answers no reads
	Why    string   // no node has it, for people
}

// Readers gives the read replicas of a unit that were asked for, by region.
func (s *State) Readers(p *Placed) []Reader {
	t, ok := s.tenants.Get(TenantName(tenantOf(p.Unit)))
	home, placed := s.nodes.Get(p.Node)
	if !ok || !placed {
		return nil
	}
	var all []Reader
	for _, r := range t.tenant.Readers {
		one := Reader{Region: r, Home: r == home.node.Region}
		if n, none := s.readerIn(p, r); !none {
			e, _ := s.nodes.Get(n)
			one.Node, one.Lost = n, e.node.Lost
		} else if !one.Home {
			one.Why = s.unread(home, p, r)
		}
		all = append(all, one)
	}
	return all
}

// unread says why a unit has no read replica in a region, for people.
func (s *State) unread(home *seat, p *Placed, r RegionName) string {
	if n, _ := s.readerIn(p, r); n != "" {
		return "a move is bringing the tenant to this region"
	}
	if s.keepsOwn(r) {
		return "region " + regionText(r) + " keeps its own directory"
	}
	if s.bestReader(home, p, r, nil) != "" {
		return "it has not been placed yet"
	}
	var closed []string
	w := want{role: RoleReader, region: &r, home: home, unit: p}
	s.judge(&w, func(c candidate) {
		if c.seat.node.Region == r && c.no != mayHold && len(closed) <= maxNamed {
			closed = append(closed, "node "+string(c.seat.node.Name)+": "+c.why(&w))
		}
	})
	switch {
	case closed == nil:
		return "no node is in region " + regionText(r)
	case len(closed) > maxNamed:
		closed[maxNamed] = "and so on"
	}
	return "no node of region " + regionText(r) + " may have it: " + strings.Join(closed, "; ")
}
