package fsm

import "iter"

// Claim says how a region's directory has a tenant, where the global directory is being
// recovered and asks.
type Claim struct {
	Tenant TenantName
	ID     UnitID
	How    Claimed
	Epoch  uint64
	// Job is that of the global directory whose task brings the tenant here, or away, and
	// Other the region on its other side: of all but ClaimOwn.
	Job   JobID
	Other RegionName
	// Promoted says of ClaimOwn that a node was promoted for it, and has it to write.
	Promoted bool
}

// Claimed is how a tenant is had; its texts cross between groups.
type Claimed string

// How tenants are had.
const (
	ClaimOwn Claimed = "own" // it lives here, or is being made
	// ClaimSent was given up for Other, and may have got there or not.
	ClaimSent Claimed = "sent"
	// ClaimReceiving was not told that it has arrived.
	ClaimReceiving Claimed = "receiving"
	// ClaimDeparted was told that it has its home in Other now, and not yet that it is
	// written there: what is here may be all that there is.
	ClaimDeparted Claimed = "departed"
)

// Known reports whether this version knows of such a way.
func (c Claimed) Known() bool {
	return c == ClaimOwn || c == ClaimSent || c == ClaimReceiving || c == ClaimDeparted
}

// Generation counts, in the epoch of a unit, how often it has come to another directory.
func Generation(epoch uint64) uint64 { return generation(epoch) }

// Claims yields, by name, how this directory has the tenants that come after after. One
// that is being removed, and what is left of one that lives elsewhere, are not claimed.
func (s *State) Claims(after TenantName) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		for t := range s.Tenants("", after) {
			if c, ok := s.ClaimOf(t.Name); ok && !yield(c) {
				return
			}
		}
	}
}

// ClaimOf tells how this directory has a tenant; false where it does not claim it.
func (s *State) ClaimOf(name TenantName) (Claim, bool) {
	p, ok := s.Placed(UnitName(name))
	if !ok {
		return Claim{}, false
	}
	return s.claimOf(name, p)
}

func (s *State) claimOf(name TenantName, p *Placed) (Claim, bool) {
	c := Claim{Tenant: name, ID: p.ID, How: ClaimOwn, Epoch: p.Epoch}
	if p.kept() || p.State == UnitCreating {
		c.Promoted = p.kept() && p.Promoted()
		return c, !s.removed(p)
	}
	j, ok := s.running.Get(p.Job)
	if !ok {
		return c, false
	}
	c.Job = j.Task
	if j.Other != nil {
		c.Other = j.Other.Region
	}
	switch {
	case p.State == UnitSent:
		c.How = ClaimSent
	case p.State == UnitReceiving:
		c.How = ClaimReceiving
	case j.Kind == JobDepart && j.Step == StepRemove && j.Since == 0:
		c.How = ClaimDeparted
	default:
		return c, false
	}
	return c, true
}
