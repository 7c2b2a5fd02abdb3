package fsm

// Commands of leases, failover and copies. All are proposed by the leader's
// planners and executors and carry the term in which they were decided, except
// where an operator asked. All of them act on whole lists in one entry.

// UnitRef names a unit by name and id, so that a late decision about a former
// unit of the same name does nothing.
type UnitRef struct {
	Unit UnitName
	ID   UnitID
}

// SetNodeLease records whether a node takes leases, as it answered a grant.
type SetNodeLease struct {
	Node  NodeName
	Lease NodeLease
}

// NodeBack says that a lost node has answered again.
type NodeBack struct{ Node NodeName }

// SettleLease lowers Settings.LongestLease to Settings.AutoFailover, which
// LongestLease has to name, once the leader has led for longer than any older
// lease may run.
type SettleLease struct{ LongestLease Millis }

// FlipCause says why units were flipped; numbers are on the wire.
type FlipCause uint8

// Causes of flips.
const (
	CauseLapsed  FlipCause = 1 // the node's lease has certainly lapsed (L5)
	CauseHand    FlipCause = 2 // an operator asked (L6)
	CauseStopped FlipCause = 3 // the node stops, and handed over (L11)
	CauseBehind  FlipCause = 4 // the node lacks what a copy has (architecture §3.7.4)
	// CauseUnpromoted: the node does not promote what it was given, as it lost it, for
	// one (architecture §3.7.6).
	CauseUnpromoted FlipCause = 5
	CauseMove       FlipCause = 6 // an operator moves the unit (M1)
	CauseDrain      FlipCause = 7 // the node is drained (N7)
	CauseRebalance  FlipCause = 8 // a rebalance moves the unit (B3)
)

func (c FlipCause) String() string {
	switch c {
	case CauseLapsed:
		return "lapsed"
	case CauseHand:
		return "hand"
	case CauseStopped:
		return "stopped"
	case CauseBehind:
		return "behind"
	case CauseUnpromoted:
		return "unpromoted"
	case CauseMove:
		return "move"
	case CauseDrain:
		return "drain"
	case CauseRebalance:
		return "rebalance"
	}
	return "unknown"
}

// Flip is a unit that goes to another node.
type Flip struct {
	UnitRef
	From, To NodeName
}

// FailOver flips, in this one entry (I4, L5), every active or moving unit of
// Node that has a copy to be promoted: the one that Choices names, else the
// in-sync copy that is first by (job's target, not the standby of another node,
// zone as in C2, name), else Previous; a lost node only where Choices names it.
// Units without one stay, unless Choices names another copy that follows and
// Cause is CauseHand. The epoch of a flipped unit is this entry's revision. With
// CauseLapsed, or Silent, the node is recorded as lost; CauseLapsed is refused
// for a node that takes no lease (L5), CauseHand where nothing flips. A handover
// of Node ends, or goes on to StepThaw with the units that stay. A flip to a
// standby ends its pair. It answers Result.Flips and Result.Left.
//
// With CauseUnpromoted only units flip whose promotion on Node is not confirmed, each to
// the in-sync copy, or Previous, that Choices names: nobody has written them since they
// were given to Node, as no grant names them (architecture §3.7.6). Node is not lost for
// it, and must take leases: another may write as soon as it is promoted. Refused where
// nothing flips.
type FailOver struct {
	Node    NodeName
	Cause   FlipCause
	Silent  bool
	Choices []Flip
}

// BeginHandover begins a JobHandover: units of Node (all of them where Units is
// empty) that have an in-sync copy on a node that is neither lost nor in Silent
// become UnitMoving; the job's targets say where each goes: to the in-sync copy that
// Choices names, else to Successor. With CauseHand, Choices may also name a copy that
// follows and is not in sync, for a unit that has no such copy: the operator's word that
// the node has lost the unit, or cannot read it, and that what the copy lacks is given
// up (L6). The job is Forced then. Refused when nothing is handed over, for a lost node,
// and while another handover of Node runs. It answers Result.Job.
type BeginHandover struct {
	Node    NodeName
	Cause   FlipCause
	Units   []UnitRef
	Silent  []NodeName
	Choices []Flip
}

// EndRelease ends StepRelease of a handover or a move: the units that the source has
// released flip in this one entry, all at this entry's revision as epoch; the
// others become active again where they were, and the job goes to StepThaw when
// there are such, else a handover is done and a move goes to StepPromote. That a
// move's target has all that was acknowledged is said by the release. A released unit whose target is not in sync
// any more goes to another in-sync copy; without one it is not flipped, unless
// the job is Forced and the target follows. Where all that Node had as a primary
// went to its standby, the pair is turned round; else a flip to a standby ends
// its pair. It answers Result.Flips and Result.Left.
type EndRelease struct {
	ID       JobID
	Released []UnitRef
}

// ConfirmPromotion says that Node answered the promotion of these units at
// Epoch: from this entry on they may be granted.
type ConfirmPromotion struct {
	Node  NodeName
	Epoch uint64
	Units []UnitRef
}

// CopyWanted asks for one more copy of a unit, on Node, or on the best feasible
// node where that is "".
type CopyWanted struct {
	UnitRef
	Node NodeName
}

// AddCopies records syncing copies (C1 to C4), before anything follows. A former
// or leaving copy on the node follows again. Passed over are units that are not
// promoted, nodes that may not hold the copy, and units that have enough: for a
// node that was named one more than is asked for is allowed, for "" only where
// BetterCopy knows a better node. It answers Result.Added.
type AddCopies struct {
	Units  []CopyWanted
	Silent []NodeName // did not answer just now; not chosen
}

// CopyChange takes a copy from one state to another, if the unit still stands
// at Epoch, is promoted, and the copy is in From: syncing → joining → in sync,
// either of these → syncing, and any → leaving, if an in-sync copy is left then
// or none is asked for (architecture §3.7.6).
type CopyChange struct {
	UnitRef
	Epoch    uint64
	Node     NodeName
	From, To CopyState
}

// ChangeCopies applies changes; those whose condition does not hold any more
// are passed over.
type ChangeCopies struct{ Changes []CopyChange }

// CopyRef names a copy.
type CopyRef struct {
	UnitRef
	Node NodeName
}

// DropCopies forgets leaving copies whose nodes have confirmed that they hold
// nothing of the unit any more.
type DropCopies struct{ Copies []CopyRef }

func (*SetNodeLease) command()     {}
func (*NodeBack) command()         {}
func (*SettleLease) command()      {}
func (*FailOver) command()         {}
func (*BeginHandover) command()    {}
func (*EndRelease) command()       {}
func (*ConfirmPromotion) command() {}
func (*AddCopies) command()        {}
func (*ChangeCopies) command()     {}
func (*DropCopies) command()       {}
