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
		own.copiesOn = *e.copiesOn.Copy()
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
		s.countNode(own.node.Region, -1)
	}
	own.node = n
	s.countNode(n.Region, 1)
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
	s.countNode(e.node.Region, -1)
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
	s.relist(before, now)
	if before != nil && (now == nil || !sameSeats(before, now)) {
		s.stand(before, nil, -1)
		before = nil
	}
	if now != nil && before == nil {
		s.stand(now, now, 1)
	} else if now != nil {
		s.stand(now, now, 0)
	}
}

// sameSeats reports whether the same nodes are the same to a unit.
func sameSeats(a, b *Placed) bool {
	return a.ID == b.ID && a.Node == b.Node && slices.EqualFunc(a.Copies, b.Copies, func(a, b Copy) bool {
		return a.Node == b.Node && a.State.Follows() == b.State.Follows()
	})
}

// stand gives the nodes of p's primary and copies the record now, or takes
// theirs where it is nil, and adds by to what they count.
func (s *State) stand(p, now *Placed, by int) {
	key := seatKeyOf(p)
	var home *seat
	if p.Node != "" { // it was written off
		home = s.ownSeat(p.Node)
		home.primaries += by
		home.hold(key, now)
	}
	for i := range p.Copies {
		c := &p.Copies[i]
		e := s.ownSeat(c.Node)
		e.hold(key, now)
		if by == 0 || !c.State.Follows() {
			continue
		}
		e.copies += by
		if home == nil {
			continue
		}
		if n, _ := home.copiesOn.Get(c.Node); n+by > 0 {
			home.copiesOn.Set(c.Node, n+by)
		} else {
			home.copiesOn.Delete(c.Node)
		}
	}
}

func (e *seat) hold(key seatKey, p *Placed) {
	if p == nil {
		e.units.Delete(key)
		return
	}
	e.units.Set(key, p)
}

// relist numbers the lists anew in which a unit is told of in another way, or
// is not any more, or is now (ListRevision).
func (s *State) relist(before, now *Placed) {
	if s.level < levelCopies {
		return
	}
	was, is := before != nil && before.grantable(), now != nil && now.grantable()
	if was && is && before.ID == now.ID && before.Node == now.Node && sameDuties(before.Copies, now.Copies) {
		return
	}
	if was {
		s.ownSeat(before.Node).list = s.revision
	}
	if is {
		s.ownSeat(now.Node).list = s.revision
	}
}

// sameDuties reports whether a grant says the same of two lists of copies: which
// are listed, and which of those count.
func sameDuties(a, b []Copy) bool {
	i, j := 0, 0
	for {
		for i < len(a) && !a[i].State.Listed() {
			i++
		}
		for j < len(b) && !b[j].State.Listed() {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if a[i].Node != b[j].Node || a[i].State.Counts() != b[j].State.Counts() {
			return false
		}
		i++
		j++
	}
}

// JobsKept is how many ended jobs are kept, the last to end; their outcomes
// also stay with the Idempotency-Keys that asked for them. Running jobs are
// kept until they end.
const JobsKept = 10_000

// putJob records a job that runs.
func (s *State) putJob(j *Job) {
	s.jobs.Set(j.ID, j)
	s.running.Set(j.ID, j)
	s.indexMove(j)
	s.indexGive(j)
}

// indexMove keeps moves, and tasks of relocations, with the job's unit while the job may
// still bring it to its target.
func (s *State) indexMove(j *Job) {
	if j.Kind != JobMove && j.Kind != JobDepart && j.Kind != JobReceive {
		return
	}
	u := UnitName(j.Tenant)
	if len(j.Targets) > 0 {
		u = j.Targets[0].Unit // of a tenant with buckets
	}
	if j.Step != StepClean && j.Step != StepDone && j.Step != StepRemove && j.Step != StepUndo {
		s.moves.Set(u, j)
	} else if known, ok := s.moves.Get(u); ok && known.ID == j.ID {
		s.moves.Delete(u)
	}
}

// endJob records a job that has ended and forgets the one that ended first,
// when there are too many.
func (s *State) endJob(j *Job) {
	s.running.Delete(j.ID)
	s.indexMove(j)
	s.indexGive(j)
	s.jobs.Set(j.ID, j)
	s.ended.Set(j.EndedIn, j.ID)
	if s.ended.Len() > JobsKept {
		_, oldest, _ := s.ended.PopMin()
		s.jobs.Delete(oldest)
	}
}
