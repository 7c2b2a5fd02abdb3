package fsm

// Commands by which a region's nodes and tenants go from one directory to another, and
// back (G2, architecture §3.9.3). The directory that has them runs a JobGive; the other
// one keeps what it is told of in an Intake until all of it is certain.

// BeginGive begins a JobGive: in the global directory it gives a region to the group that
// keeps that region's own directory (adopt), in a region's directory it gives everything
// back to the global group (return). Proposed once the other group was asked. It answers
// Result.Job.
type BeginGive struct{ Region RegionName }

// GiveRegion is the one entry by which a region leaves the directory: its nodes and units
// are not this directory's any more, and its names have that region for their home, or are
// gone with it. Refused unless Digest is that of what goes (State.Given), so that the other
// directory has been told exactly that.
//
// Arrived says that the other directory has the region already: this one was recovered, and
// has lost that it gave it. Taken in a recovery alone; what the other one has is what was
// given, whatever is here.
type GiveRegion struct {
	ID      JobID
	Digest  uint64
	Arrived bool
}

// Giver names the group that gives a region away, and which of its jobs that is.
type Giver struct {
	Authority string
	History   uint64
	Job       JobID
}

// StageRegion tells of a part of what a region holds, before it is given. Parts count from
// 1 in each Try, which is the term of the giver's leader: a leader begins anew, and nothing
// of an older one is taken any more. The same part again changes nothing.
type StageRegion struct {
	Giver
	Region RegionName
	Try    uint64
	Part   uint64
	// Longest is the longest lease that the giver's nodes may hold.
	Longest Millis
	// Given says that the region was given already, and that the other directory does not
	// know what it had been told of: it was recovered since.
	Given   bool
	Node    *Node // at most one, so that each has an id of its own
	Tenants []GivenTenant
	// GoneNodes and GoneTenants were told of in an earlier part, and are no more.
	GoneNodes   []NodeName
	GoneTenants []TenantName
}

// GivenTenant is a tenant that is one unit, and that unit.
type GivenTenant struct {
	Tenant Tenant
	Unit   Placed
}

// ArriveRegion is the one entry by which a region comes into a directory, after the
// giver's GiveRegion. Refused unless Digest is that of what was staged.
type ArriveRegion struct {
	Giver
	Digest uint64
}

// CloseIntake ends an intake: what was staged is forgotten where it was not given, and
// the directory is open again. A job that was not heard of is closed too, so that what
// comes late for it is refused. Undone says that nothing was given, by what the giver knows:
// it changes nothing where the region has arrived.
type CloseIntake struct {
	Giver
	Undone bool
}

func (*BeginGive) command()    {}
func (*GiveRegion) command()   {}
func (*StageRegion) command()  {}
func (*ArriveRegion) command() {}
func (*CloseIntake) command()  {}
