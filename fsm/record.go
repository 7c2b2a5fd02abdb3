package fsm

import "strings"

// Scope says whose directory this is. It is set by the first entry and never
// changes but for History, which only an operator's recovery raises.
type Scope struct {
	Cluster string     // random id made at bootstrap
	Region  RegionName // "" for the global group
	History uint64     // from 1; orders before the Raft term
}

// Authority names the group towards nodes: "<cluster>/<region>" or
// "<cluster>/global" (spec §2.5; "global" is therefore no region's name).
func (s Scope) Authority() string {
	if s.Region == "" {
		return s.Cluster + "/global"
	}
	return s.Cluster + "/" + string(s.Region)
}

// groupOf is the region whose group an authority is, or "global", which is no region's name.
func groupOf(authority string) RegionName {
	_, group, _ := strings.Cut(authority, "/")
	return RegionName(group)
}

// Settings are the group's own; flags only seed them (architecture §3.5.5).
type Settings struct {
	DefaultRegion *RegionName // nil: none (T2)
	Replicas      uint32
	AutoFailover  Millis // lease length; 0: nodes are not leased
	// LongestLease is the longest AutoFailover whose leases may still run: what
	// a new leader waits out (architecture §3.5.5).
	LongestLease     Millis
	RepairAfter      Millis
	RemoveAfter      Millis
	ReplicationToken string
	// MovesPerNode bounds the moves that copy to or from a node at once; 0 is
	// DefaultMovesPerNode (B3).
	MovesPerNode uint32
}

// DefaultMovesPerNode is Settings.MovesPerNode where none was given.
const DefaultMovesPerNode = 4

// Member is a server of the group.
type Member struct {
	ID      MemberID
	Raft    string // host:port of the Raft transport
	API     string // http(s)://host:port of the admin API
	Version uint32 // newest command version that its binary knows
}

// Node keeps units.
type Node struct {
	ID      NodeID
	Name    NodeName
	Addr    string // host:port, or http(s)://host:port
	Token   string // admin token; never leaves the group but towards the node
	Region  RegionName
	Zone    ZoneName
	Standby NodeName // the node's standby in a pair, or ""
	Weight  uint32   // share of units relative to other nodes; 0 takes none
	Usage   Usage
	Lease   NodeLease
	// Lost says that the node was failed over and has not answered since.
	Lost bool
	// Drain, unless nil, empties the node: nothing new is placed on it, and what it
	// holds goes elsewhere (N7).
	Drain *Drain
}

// Drain is a node's being emptied, from the entry that began it until one ends it;
// it stays when nothing is left on the node.
type Drain struct {
	ID     Revision // of the entry that began it
	Since  Millis
	Units  uint32 // that the node held when it began
	Forced bool   // pinned tenants too (T7)
}

// NodeLease says whether a node takes leases, as its last answer to a grant
// told; numbers are on the wire.
type NodeLease uint8

// What is known of a node's leases.
const (
	LeaseUnknown NodeLease = 0 // it was not asked yet
	LeaseTaken   NodeLease = 1 // it writes only under a lease
	LeaseNone    NodeLease = 2 // it takes none and is never failed over by itself (L5)
)

// Usage is what a node last told of itself.
type Usage struct {
	At    Millis
	Bytes uint64 // of all unit files
	Units uint32 // units placed on the node when Bytes was recorded
}

// Quota bounds a tenant at its node (T6); zero fields bound nothing.
type Quota struct {
	Bytes    uint64
	RPS      uint32
	InFlight uint32
}

// Hash is the function that maps a key to a bucket (B1).
type Hash uint8

// Hash functions; numbers are on the wire.
const (
	HashNone     Hash = 0
	HashStrCRC32 Hash = 1
	HashMPCRC32  Hash = 2
)

// Tenant is one database.
type Tenant struct {
	Name    TenantName
	Created Millis
	Buckets uint32 // 0: the tenant is one unit
	Hash    Hash
	Pinned  bool
	Quota   *Quota
	// Home is the region that keeps its own directory and this tenant, in the global
	// directory; HasHome says that there is one. Claim is then the id of its unit, Job
	// the work under way on its name, or 0, and Reserved that it is being created:
	// nobody is told of it yet (G5).
	Home     RegionName
	HasHome  bool
	Claim    UnitID
	Job      JobID
	Reserved bool
	// Readers are the regions that an operator asked read replicas for, sorted (C8). One
	// that the tenant lives in itself has none until it has moved away.
	Readers []RegionName
}

// UnitState is the state of a placement.
type UnitState uint8

// States of a unit; numbers are on the wire.
const (
	UnitCreating UnitState = 1 // recorded, not yet confirmed on its node; not served
	UnitActive   UnitState = 2
	UnitMoving   UnitState = 3
	UnitDeleting UnitState = 4 // gone for clients, being removed on nodes
	// UnitReceiving comes from another directory and is that one's still: its node and
	// its copies follow (architecture §3.9.2). No grant names it.
	UnitReceiving UnitState = 5
	// UnitSent was given up by its node for another directory: nobody writes it before
	// the global directory says whose it is. No grant names it.
	UnitSent UnitState = 6
)

func (s UnitState) String() string {
	switch s {
	case UnitCreating:
		return "creating"
	case UnitActive:
		return "active"
	case UnitMoving:
		return "moving"
	case UnitDeleting:
		return "deleting"
	case UnitReceiving:
		return "receiving"
	case UnitSent:
		return "sent"
	}
	return "unknown"
}

// CopyState is what a node other than the primary is to a unit (architecture
// §3.7).
type CopyState uint8

// States of a copy; numbers are on the wire. Syncing, joining and in-sync ones are the
// unit's copies: they follow. Former and leaving ones only hold data
// that must not be forgotten (I8).
const (
	// CopySyncing follows, or is to follow, and may lack acknowledged writes.
	CopySyncing CopyState = 1
	// CopyInSync acknowledges each write where the node's --ack asks for it, and
	// may be promoted. It comes after CopyJoining alone.
	CopyInSync CopyState = 2
	// CopyFormer was the primary before a flip. Repair makes it follow, or lets
	// it leave; until the present primary is promoted it may be chosen again.
	CopyFormer CopyState = 3
	// CopyLeaving was given up, and is removed from its node after RemoveAfter.
	CopyLeaving CopyState = 4
	// CopyJoining has caught up once: its primary learns with a grant that it
	// counts now, and acknowledges no write without it from then on. Only after
	// the primary has said, of that list, that it lacks nothing it is in sync:
	// else it could be promoted without writes that were acknowledged between
	// the entry and the grant (architecture §3.7.1).
	CopyJoining CopyState = 5
	// CopyTarget follows because a move brings the unit, or its replica to be, to its
	// node. It counts for nothing and is none of the copies that are wanted; what is
	// promoted of it has shown that it has the last position (architecture §3.6.2).
	CopyTarget CopyState = 6
	// CopyReader is a read replica in another region, where an operator asked for
	// one (C8). It counts for nothing and is never promoted.
	CopyReader CopyState = 7
)

// Follows reports whether a copy in state s follows the unit's primary, or is to.
func (s CopyState) Follows() bool { return s.Replica() || s == CopyTarget || s == CopyReader }

// Replica reports whether a copy in state s is one of those that a unit is to have
// (Settings.Replicas): it counts, or will once it has caught up.
func (s CopyState) Replica() bool {
	return s == CopySyncing || s == CopyJoining || s == CopyInSync
}

// Listed reports whether a grant names a copy in state s: some entry may promote it
// (architecture §3.5.10).
func (s CopyState) Listed() bool { return s.Follows() && s != CopyReader }

// Counts reports whether the primary acknowledges no write without a copy in
// state s (InSync of its grants).
func (s CopyState) Counts() bool { return s == CopyJoining || s == CopyInSync }

func (s CopyState) String() string {
	switch s {
	case CopySyncing:
		return "syncing"
	case CopyInSync:
		return "in_sync"
	case CopyFormer:
		return "former"
	case CopyLeaving:
		return "leaving"
	case CopyJoining:
		return "joining"
	case CopyTarget:
		return "target"
	case CopyReader:
		return "reader"
	}
	return "unknown"
}

// Copy is what a node other than the primary is to a unit.
type Copy struct {
	Node  NodeName
	State CopyState
	// Since is when it came into State, but of a move's target that leaves: that one's
	// grace is over at once. 0 in an Event.
	Since Millis
	// Entry brought it into State; a primary's report counts only if it is of a
	// list at least as new (Granted.Epoch). 0 in an Event.
	Entry Revision
}

// Placed is a unit's record: node, copies and state change in one entry (I4).
type Placed struct {
	ID     UnitID
	Unit   UnitName
	Node   NodeName // "" while it is removed, where its node was written off
	State  UnitState
	Epoch  uint64 // epoch of positions, given by the entry that flips
	Copies []Copy // sorted by node
	Job    JobID  // work under way on the unit, or 0
	// Previous is the last primary that may have written, from a flip until an
	// entry says that Node was promoted; "" otherwise. While it is set no grant
	// names the unit, and failover may choose any in-sync copy or Previous
	// (architecture §3.7.6). It is Node itself where the other was written off.
	Previous NodeName
	// Lacks is since when an active or moving unit has had fewer copies than are
	// asked for, not counting those that are on a lost node or where its pair
	// does not have them; 0: it has them (C6). Whether a copy is badly placed
	// otherwise is BetterCopy's to say. After Settings.Replicas has changed it
	// follows tenant by tenant, with the next entries.
	Lacks Millis
}

// Promoted reports whether the unit's node may be granted the unit.
func (p *Placed) Promoted() bool { return p.Previous == "" }

// Region keeps its own directory, reached by its routers (G3).
type Region struct {
	Name    RegionName
	Routers []string
	// Authority names the region's own group, as its routers told when they were first asked;
	// "" where it was recorded before that was asked for. Only that group is asked for anything
	// that changes, so that another one of the same region's name is never taken for it.
	Authority string
}

// JobKind is the kind of a Job; numbers are on the wire.
type JobKind uint8

// Kinds of jobs.
const (
	JobCreate JobKind = 1
	JobDelete JobKind = 2
	// JobHandover gives units of a node that answers to their in-sync copies:
	// a failover by hand, a clean stop (L6, L11).
	JobHandover JobKind = 3
	// JobMove brings a unit to another node while it is in use (M1 to M9).
	JobMove JobKind = 4
	// JobRebalance begins the moves of a plan, as each one's turn comes (B3).
	JobRebalance JobKind = 5
	// JobRelocate is the global group's: it moves a tenant from one directory to another.
	// JobDepart and JobReceive are its tasks in these (Task).
	JobRelocate JobKind = 6
	JobDepart   JobKind = 7
	JobReceive  JobKind = 8
	// JobGive gives a region's nodes and tenants to another directory (G2).
	JobGive JobKind = 9
)

func (k JobKind) String() string {
	switch k {
	case JobCreate:
		return "create"
	case JobDelete:
		return "delete"
	case JobHandover:
		return "handover"
	case JobMove:
		return "move"
	case JobRebalance:
		return "rebalance"
	case JobRelocate:
		return "relocate"
	case JobDepart:
		return "depart"
	case JobReceive:
		return "receive"
	case JobGive:
		return "give"
	}
	return "unknown"
}

// JobStep is where a job stands; numbers are on the wire.
type JobStep uint8

// Steps of jobs. A relocation goes Copy → Release → Promote → Clean → Done, its one
// flip being the entry to Promote; from Copy and Release to Undo, and from there to Done.
// A depart goes Copy → Release → Sent → Clean → Done; from Release, where the source did
// not give the unit up, to Thaw, and back to Copy, or to Done with a refusal. A receive
// goes Copy → Promote → Done, or to Undo → Done. A create or delete of a tenant of a region
// that keeps its own directory goes Make or Remove → Done, or to Undo → Done.
// A give goes Copy → Promote (the other directory takes over) → Clean (the nodes are told)
// → Done, or from Copy to Undo → Done.
// A create goes Make → Schema (only with one) → Done, or to
// Undo when a node refuses, and from there to Done with a refusal. A delete
// goes Remove → Done. A handover goes Release → Done where the node released
// every unit, else Release → Thaw → Done (architecture §3.6.5). A move goes
// Queue → Copy → Release → Promote → Clean → Done; from Release to Thaw where the
// source did not give the unit up, and from there back to Copy, or to Done with a
// refusal, as from Queue and Copy.
const (
	StepMake   JobStep = 1 // create the units on their nodes
	StepSchema JobStep = 2 // run the schema
	StepUndo   JobStep = 3 // remove the units from their nodes again
	StepRemove JobStep = 4 // remove the units from their nodes
	StepDone   JobStep = 5
	// StepRelease has the source freeze its units, wait for their copies, and
	// give them up; StepThaw has it take back those that it did not.
	StepRelease JobStep = 6
	StepThaw    JobStep = 7
	StepQueue   JobStep = 8  // wait for a turn: Settings.MovesPerNode
	StepCopy    JobStep = 9  // the target follows until it lacks nothing but what is under way
	StepPromote JobStep = 10 // the unit has flipped; its node is to be promoted
	StepClean   JobStep = 11 // what the source holds is to become a copy, or to go (M9)
	StepBegin   JobStep = 12 // begin the moves of a rebalance
	StepSent    JobStep = 13 // depart: wait for the global directory's word
)

func (s JobStep) String() string {
	switch s {
	case StepMake:
		return "make"
	case StepSchema:
		return "schema"
	case StepUndo:
		return "undo"
	case StepRemove:
		return "remove"
	case StepDone:
		return "done"
	case StepRelease:
		return "release"
	case StepThaw:
		return "thaw"
	case StepQueue:
		return "queue"
	case StepCopy:
		return "copy"
	case StepPromote:
		return "promote"
	case StepClean:
		return "clean"
	case StepBegin:
		return "begin"
	case StepSent:
		return "sent"
	}
	return "unknown"
}

// Job is work of more than one step (I8): written before anything is done on a
// node, resumed by whoever leads, kept for a while once done.
type Job struct {
	ID     JobID
	Kind   JobKind
	Tenant TenantName // "" for a handover and a rebalance
	Source NodeName   // handover, move: the node that gives the units up
	Cause  FlipCause  // handover, move
	Forced bool       // handover: a target may lack what was acknowledged (BeginHandover)
	Group  JobID      // move: the rebalance that began it, or 0
	// Release is the entry in which a move came to StepRelease last, the number by which
	// its source knows it: nodes refuse what was undone, or is older.
	Release  Revision
	Pause    Millis // move: how long writes waited for the flip; 0 until it is known
	Bytes    uint64 // move: of the unit when it was copied; 0 until it is known
	Step     JobStep
	Schema   string // create: SQL run once
	Started  Millis
	Ended    Millis   // 0 while it runs
	EndedIn  Revision // entry that ended it; 0 while it runs
	Problem  string   // last thing that went wrong, for people
	Refusal  *Refusal // set when the job was undone
	Request  string   // create: key whose answer is the outcome, or ""
	Targets  []Target // units and nodes that the job works on, sorted by unit then node
	Attempts uint32   // times that Problem was noted
	// Create, delete of a tenant of a region that keeps its own directory, which is asked
	// for it: that region; relocate: where to. Node is the node that was asked for, or "";
	// of a relocation it is the one there, once that is known, and Source the one that the
	// tenant comes from.
	Home RegionName
	Node NodeName
	From RegionName // relocate: where from
	Unit UnitID     // relocate, depart, receive: the id of the tenant's unit
	Task JobID      // the job of the global directory that this one is the task of, or 0
	// Other is the node of the other directory: depart: that the unit is given to; receive:
	// that it is followed from.
	Other *Foreign
	// Receive: what goes along with the tenant.
	Pinned bool
	Quota  *Quota
	// Since is, of a depart, since when what is left here is not needed any more, 0 where it is
	// or may be; of a give, when the region was given.
	Since  Millis
	Digest uint64 // give: of what was given (State.StagedNodes); Home is the region
}

// Target is one unit on one node that a job works on; for a handover, the node
// that the unit is given to.
type Target struct {
	Unit UnitName
	ID   UnitID
	Node NodeName
}

// Request remembers the answer to an Idempotency-Key (spec §2.2).
type Request struct {
	Key         string
	Fingerprint string // what was asked; another one under the same key is refused
	At          Millis
	Revision    Revision
	Result      Result
	Job         JobID // the answer is this job's outcome, when it has one
}
