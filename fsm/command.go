package fsm

// Command is one change asked of the directory. Its concrete types are the
// structs of this file; each is numbered in proto and says who proposes it.
type Command interface{ command() }

// Entry is what Apply takes: one command with what the proposer stamped on it.
type Entry struct {
	Revision Revision // Raft index of the log entry; grows from entry to entry
	Term     uint64   // Raft term of the log entry
	At       Millis   // proposer's clock
	// Decided is the term in which an executor or planner decided the
	// command; Apply refuses it in an entry of another term
	// (architecture §3.5.5). 0 for what a client asked.
	Decided     uint64
	Key         string // Idempotency-Key, or ""
	Fingerprint string // hash of method, path and body behind Key
	Cmd         Command
}

// Bootstrap names the directory. Proposed once by the first leader of a new
// group; refused when the directory has a scope.
type Bootstrap struct {
	Scope    Scope
	Settings Settings
}

// SetSettings replaces the settings, but LongestLease, which it only raises: to
// what it names and to AutoFailover. Proposed by a leader whose flags differ.
type SetSettings struct{ Settings Settings }

// PutMember records a server of the group: by itself when it joins or starts
// with another address or version.
type PutMember struct{ Member Member }

// DeleteMember forgets a server that has left the group.
type DeleteMember struct{ ID MemberID }

// PutNode records a node or changes one (N1 to N5, C5). A nil field keeps what
// is recorded (N2); a new node needs Addr and Token. Proposed for an operator,
// after the node was asked.
type PutNode struct {
	Name    NodeName
	Addr    *string
	Token   *string
	Region  *RegionName
	Zone    *ZoneName
	Standby *NodeName // "" ends a pair
	Weight  *uint32
	// Exclusive refuses an Addr that another node has. Set in all that is proposed
	// now; entries from before it are taken as they were.
	Exclusive bool
}

// DeleteNode forgets a node that holds nothing (N6). Force writes it off: its
// copies are forgotten, and jobs do not wait for it any more. It is refused
// while the node is the primary of a unit that is not being removed, or a unit
// is being handed over to it.
type DeleteNode struct {
	Name  NodeName
	Force bool
}

// NodeUsage is one node's usage in RecordUsage.
type NodeUsage struct {
	Node  NodeName
	Bytes uint64
}

// RecordUsage notes what nodes told of themselves. Proposed by the leader.
type RecordUsage struct{ Usage []NodeUsage }

// CreateTenant takes a name, places its units and begins a JobCreate (T2, T4).
// Proposed for a client.
type CreateTenant struct {
	Name    TenantName
	Region  *RegionName
	Node    *NodeName
	Buckets uint32
	Hash    Hash
	Pinned  bool
	Schema  string
	// Silent are nodes that did not answer the proposer just now; they are
	// not chosen, unless Node names one.
	Silent []NodeName
	// Origin is the region that was asked first, nil for none: a tenant that names a node
	// alone is created there, and one that names neither where this directory places none
	// itself.
	Origin *RegionName
}

// DeleteTenant begins a JobDelete; for a tenant whose create is under way the
// create is undone. A second one joins the running job.
type DeleteTenant struct{ Name TenantName }

// AdvanceJob moves a job one step on, if it stands at From. Proposed by the
// leader's executor after it did what the step asks for. To StepDone it ends
// the job with everything that goes with it: the units become active, or they
// and the tenant are gone. Refusal says why a create or a move is undone. To
// StepCopy it records the target of a move as a copy, before anything follows; to
// StepRelease the unit becomes UnitMoving.
type AdvanceJob struct {
	ID      JobID
	From    JobStep
	To      JobStep
	Refusal *Refusal
	// Keep, at the end of an undone create or delete of a tenant of a region that keeps its
	// own directory, is the id of the tenant that has the name there; 0: none.
	Keep UnitID
}

// NoteJob records what stands in a job's way, for people. Proposed by the
// executor when the text changes. Of a move it also records what was measured, where
// that is not 0, and of a relocation the nodes that its regions have named.
type NoteJob struct {
	ID       JobID
	Problem  string
	Pause    Millis
	Bytes    uint64
	From, To NodeName
}

// SetPin pins a tenant or lets it go (T7).
type SetPin struct {
	Tenant TenantName
	Pinned bool
}

// PutRegion records a region that keeps its own directory (G3).
type PutRegion struct{ Region Region }

// DeleteRegion forgets one that is no tenant's home.
type DeleteRegion struct{ Name RegionName }

func (*Bootstrap) command()    {}
func (*SetSettings) command()  {}
func (*PutMember) command()    {}
func (*DeleteMember) command() {}
func (*PutNode) command()      {}
func (*DeleteNode) command()   {}
func (*RecordUsage) command()  {}
func (*CreateTenant) command() {}
func (*DeleteTenant) command() {}
func (*AdvanceJob) command()   {}
func (*NoteJob) command()      {}
func (*SetPin) command()       {}
func (*PutRegion) command()    {}
func (*DeleteRegion) command() {}
