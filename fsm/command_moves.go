package fsm

// Commands of moves, drains and rebalancing.

// BeginMove begins a JobMove of a tenant's unit (M1): to the node To, or, where that
// is "", to the node of Region with the fewest bytes. Region has to be named for a
// move to another region, and both must agree. Refused while another move of the unit
// runs. With Group the tenant is taken out of that rebalance, which notes the refusal
// if there is one; the command is then not refused. It answers Result.Job.
type BeginMove struct {
	Unit   UnitName
	To     NodeName
	Region *RegionName
	Cause  FlipCause
	Forced bool       // CauseDrain: a pinned tenant too
	Group  JobID      // CauseRebalance: the job that plans it
	Silent []NodeName // did not answer just now; not chosen for a Region
}

// CancelMove ends a move that has not come to its release (M7): the unit stays where
// it is, and the copy made for the move leaves. Of a rebalance it ends what has not
// begun. Reason is for people.
type CancelMove struct {
	ID     JobID
	Reason string
}

// BeginRebalance begins a JobRebalance of these moves (B3): Target.Node is where each
// unit goes. Refused while another one runs, and where it holds no move.
type BeginRebalance struct{ Moves []Target }

// SetDrain begins to empty a node, or ends that (N7). Begun again it changes nothing
// but Forced. Refused for a standby, and, unless Forced, where the other nodes of the
// region could not hold what the node holds. It answers Result.Node.
type SetDrain struct {
	Node   NodeName
	Drain  bool
	Forced bool // pinned tenants too, and where not everything can leave
}

func (*BeginMove) command()      {}
func (*CancelMove) command()     {}
func (*BeginRebalance) command() {}
func (*SetDrain) command()       {}
