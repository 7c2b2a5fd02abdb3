package fsm

// Commands of read replicas.

// SetReader asks for a read replica of a tenant in another region, or asks for it no
// longer (C8). It is placed with this entry where a node of the region may hold it, else
// by PlaceReaders; one that is not asked for any more leaves with this entry. Refused for
// a region that is not known, keeps its own directory, or is the tenant's own, and, where
// it is not Wanted, for one that was not asked for. It answers Result.Tenant, Placed and
// Created.
type SetReader struct {
	Tenant TenantName
	Region RegionName
	Wanted bool
	Silent []NodeName // did not answer just now; not chosen
}

// PlaceReaders brings the read replicas of units to what was asked for: one that is
// missing is placed, one on a node that is lost or drained is replaced by another, and one
// that has nothing to do in its region leaves. Passed over are units that are not promoted.
// Proposed by the leader, which knows for how long to wait for a lost node.
type PlaceReaders struct {
	Units  []UnitRef
	Silent []NodeName // did not answer just now; not chosen
}

func (*SetReader) command()    {}
func (*PlaceReaders) command() {}
