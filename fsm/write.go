package fsm

import (
	"slices"

	"github.com/tidwall/btree"
)

// These are the only functions that write to a State's trees. They keep the
// indices (seats, running and ended jobs) with the records.

// ownSeat gives the seat of a node for changing it in place: a copy where a
// snapshot may still be reading it.
func (s *State) ownSeat(name NodeName) *seat {
	e, ok := s.nodes.Get(name)
	if ok && e.generation == s.generation {
		return e
	}
	own := &seat{units: *btree.NewMap[seatKey, *Placed](degree)}
	if ok {
		*own = *e
		own.units = *e.units.Copy()
	}
	own.generation = s.generation
	s.nodes.Set(name, own)
	return own
}

// putNode records n and moves its place in a pair.
func (s *State) putNode(n *Node) {
	own := s.ownSeat(n.Name)
	before := NodeName("")
	if own.node != nil {
		before = own.node.Standby
	}
	own.node = n
	if before == n.Standby {
		return
	}
	if before != "" {
		s.ownSeat(before).standbyOf = ""
	}
	if n.Standby != "" {
		s.ownSeat(n.Standby).standbyOf = n.Name
	}
}

// dropNode forgets a node that holds nothing, and its pairs.
func (s *State) dropNode(e *seat) {
	if e.node.Standby != "" {
		s.ownSeat(e.node.Standby).standbyOf = ""
	}
	if e.standbyOf != "" {
		own := s.ownSeat(e.standbyOf)
		alone := *own.node
		alone.Standby = ""
		own.node = &alone
	}
	s.nodes.Delete(e.node.Name)
}

// putTenant records t and, when it is one unit, that unit.
func (s *State) putTenant(t *Tenant, unit *Placed) {
	before, replaced := s.tenants.Set(t.Name, &tenancy{t, unit})
	if !replaced {
		before = &tenancy{}
	}
	s.reseat(before.unit, unit)
}

// dropTenant forgets a tenant and its units.
func (s *State) dropTenant(name TenantName) {
	t, ok := s.tenants.Delete(name)
	if !ok {
		return
	}
	s.reseat(t.unit, nil)
	for b := uint32(1); b <= t.tenant.Buckets; b++ {
		if p, ok := s.buckets.Delete(Unit(name, b)); ok {
			s.reseat(p, nil)
		}
	}
}

// putUnit records a unit of a tenant that is recorded.
func (s *State) putUnit(p *Placed) {
	if t, ok := s.tenants.Get(TenantName(p.Unit)); ok {
		s.putTenant(t.tenant, p)
		return
	}
	before, _ := s.buckets.Set(p.Unit, p)
	s.reseat(before, p)
}

// reseat takes a unit's former record from the nodes that held it and gives its
// present one to those that hold it; either may be nil.
func (s *State) reseat(before, now *Placed) {
	if before == now {
		return
	}
	if before != nil && (now == nil || before.ID != now.ID || before.Node != now.Node || !sameNodes(before.Copies, now.Copies)) {
		key := seatKeyOf(before)
		own := s.ownSeat(before.Node)
		own.units.Delete(key)
		own.primaries--
		for _, c := range before.Copies {
			own := s.ownSeat(c.Node)
			own.units.Delete(key)
			own.copies--
		}
		before = nil
	}
	if now == nil {
		return
	}
	key, added := seatKeyOf(now), 0
	if before == nil {
		added = 1
	}
	own := s.ownSeat(now.Node)
	own.units.Set(key, now)
	own.primaries += added
	for _, c := range now.Copies {
		own := s.ownSeat(c.Node)
		own.units.Set(key, now)
		own.copies += added
	}
}

func sameNodes(a, b []Copy) bool {
	return slices.EqualFunc(a, b, func(a, b Copy) bool { return a.Node == b.Node })
}

// JobsKept is how many ended jobs are kept, the last to end; their outcomes
// also stay with the Idempotency-Keys that asked for them. Running jobs are
// kept until they end.
const JobsKept = 10_000

// putJob records a job that runs.
func (s *State) putJob(j *Job) {
	s.jobs.Set(j.ID, j)
	s.running.Set(j.ID, j)
}

// endJob records a job that has ended and forgets the one that ended first,
// when there are too many.
func (s *State) endJob(j *Job) {
	s.running.Delete(j.ID)
	s.jobs.Set(j.ID, j)
	s.ended.Set(j.EndedIn, j.ID)
	if s.ended.Len() > JobsKept {
		_, oldest, _ := s.ended.PopMin()
		s.jobs.Delete(oldest)
	}
}
