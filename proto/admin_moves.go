package proto

import (
	"time"

	"domicile/fsm"
)

// MoveTenant is the body of POST /_shard/tenants/<t>/move: to a node, to the node of a
// region with the fewest bytes, or both, which must agree (M1). Wait, which is the
// default, has the answer come when the tenant is written at its new node.
type MoveTenant struct {
	To     *fsm.NodeName   `json:"to,omitempty"`
	Region *fsm.RegionName `json:"region,omitempty"`
	Wait   *bool           `json:"wait,omitempty"`
}

// TenantMoved answers it with 200. PauseMS is left out where a change of leader kept it
// from being measured. Exactly one of ReplicaOn and Unreplicated is set.
type TenantMoved struct {
	Tenant       fsm.TenantName `json:"tenant"`
	From         fsm.NodeName   `json:"from"`
	To           fsm.NodeName   `json:"to"`
	Region       fsm.RegionName `json:"region"`
	Bytes        uint64         `json:"bytes"`
	MS           uint64         `json:"ms"` // from its beginning until the tenant was written at its new node
	PauseMS      *uint64        `json:"pause_ms,omitempty"`
	ReplicaOn    fsm.NodeName   `json:"replica_on,omitempty"`
	Unreplicated string         `json:"unreplicated,omitempty"`
	ID           fsm.JobID      `json:"id"` // of the move
}

// MoveStep is where a move stands. MoveReleased is between the source's release and the
// entry that flips, and is seen by nobody but the leader.
type MoveStep string

// Steps of moves. Names are on the wire and never change.
const (
	MoveCopying    MoveStep = "copying"     // with Waiting: its turn has not come
	MoveCatchingUp MoveStep = "catching_up" // the target has an image, and follows
	MoveFrozen     MoveStep = "frozen"      // writes wait for the last of it
	MoveReleased   MoveStep = "released"
	MoveFlipped    MoveStep = "flipped"  // the tenant is placed on its new node, which is being promoted
	MoveUndoing    MoveStep = "undoing"  // between directories: the tenant stays, and what was begun for it is taken back
	MoveCleaning   MoveStep = "cleaning" // it is written there; what the source holds is to become a copy, or to go
	MoveDone       MoveStep = "done"     // it has ended: see Outcome
)

// MoveOutcome is what became of a move.
type MoveOutcome string

// Outcomes. A failed move is one whose tenant was deleted meanwhile.
const (
	MoveWasDone      MoveOutcome = "done"
	MoveWasUndone    MoveOutcome = "undone"
	MoveWasCancelled MoveOutcome = "cancelled"
	MoveHasFailed    MoveOutcome = "failed"
)

// Kinds of Move.
const (
	KindMove      = "move"
	KindRebalance = "rebalance"
)

// Move is what GET /_shard/moves tells of a move, and GET /_shard/moves/<id> also of a
// rebalance, which has Planned in place of a tenant and its nodes.
type Move struct {
	ID          fsm.JobID       `json:"id"`
	Kind        string          `json:"kind"`
	Tenant      fsm.TenantName  `json:"tenant,omitempty"`
	From        fsm.NodeName    `json:"from,omitempty"`
	To          fsm.NodeName    `json:"to,omitempty"`
	Region      *fsm.RegionName `json:"region,omitempty"`      // of To
	FromRegion  *fsm.RegionName `json:"from_region,omitempty"` // of From, where that is kept by another directory than To's
	Step        MoveStep        `json:"step"`
	Waiting     string          `json:"waiting,omitempty"` // why it has not begun to copy
	Bytes       uint64          `json:"bytes"`             // that To has
	BytesTotal  uint64          `json:"bytes_total"`       // 0 while it is not known
	Rate        uint64          `json:"rate,omitempty"`    // bytes a second of late
	Started     time.Time       `json:"started"`
	ExpectedEnd *time.Time      `json:"expected_end,omitempty"` // of the copying, at the present rate
	Ended       *time.Time      `json:"ended,omitempty"`
	PauseMS     *uint64         `json:"pause_ms,omitempty"` // for how long writes waited
	Outcome     MoveOutcome     `json:"outcome,omitempty"`
	Problem     string          `json:"problem,omitempty"`
	Cause       string          `json:"cause"`             // move, drain or rebalance
	Group       fsm.JobID       `json:"group,omitempty"`   // the rebalance that began it
	Of          fsm.JobID       `json:"of,omitempty"`      // the global group's move of which this is a region's part, as its group tells of it
	Planned     []PlannedMove   `json:"planned,omitempty"` // rebalance: that has not begun
}

// Drain is the body of POST /_shard/nodes/<n>/drain. Force takes pinned tenants too, and
// begins where not everything has a place to go to.
type Drain struct {
	Force bool `json:"force,omitempty"`
}

// DrainBegun answers POST /_shard/nodes/<n>/drain. Left counts what the node still
// holds: primaries, copies, and what it is about to remove.
type DrainBegun struct {
	ID    fsm.Revision `json:"id"`
	Node  fsm.NodeName `json:"node"`
	Units int          `json:"units"` // that it held when it began
	Left  int          `json:"left"`
}

// DrainState answers GET /_shard/nodes/<n>/drain.
type DrainState struct {
	DrainBegun
	State     string         `json:"state"` // draining or drained
	Force     bool           `json:"force,omitempty"`
	Since     time.Time      `json:"since"`
	Primaries int            `json:"primaries"` // of Left
	Copies    int            `json:"copies"`    // of Left
	Moving    int            `json:"moving"`    // of Primaries: that are on their way
	Blocked   []TenantFailed `json:"blocked"`   // what keeps some of them, twenty at most
}

// States of DrainState.
const (
	Draining = "draining"
	Drained  = "drained"
)

// Rebalance is the body of POST /_shard/rebalance. Threshold is the share of a node's
// ideal by which its bytes may differ from it; 0.1 if left out. Max bounds the moves.
type Rebalance struct {
	DryRun    bool            `json:"dry_run,omitempty"`
	Region    *fsm.RegionName `json:"region,omitempty"`
	Threshold *float64        `json:"threshold,omitempty"`
	Max       *int            `json:"max,omitempty"`
}

// RebalancePlan answers it: 202 with the ID of the rebalance that was begun, 200 without,
// for a dry run and where there is nothing to move.
type RebalancePlan struct {
	ID    fsm.JobID     `json:"id,omitempty"`
	Moves []PlannedMove `json:"moves"`
	Nodes []NodeShare   `json:"nodes"`
	Left  []string      `json:"left"` // why what stays out of balance does
}

// PlannedMove is a move that a rebalance plans. SwitchOver says that To has a copy in
// sync, so that nothing is copied.
type PlannedMove struct {
	Tenant     fsm.TenantName `json:"tenant"`
	From       fsm.NodeName   `json:"from,omitempty"`
	To         fsm.NodeName   `json:"to"`
	Bytes      uint64         `json:"bytes,omitempty"`
	SwitchOver bool           `json:"switch_over,omitempty"`
	Why        string         `json:"why,omitempty"`
}

// NodeShare is what a node holds and should hold, in bytes of primaries.
type NodeShare struct {
	Node       fsm.NodeName   `json:"node"`
	Region     fsm.RegionName `json:"region"`
	Bytes      uint64         `json:"bytes"`
	Ideal      uint64         `json:"ideal"`
	After      uint64         `json:"after"`
	Units      int            `json:"units"`
	UnitsAfter int            `json:"units_after"`
	Note       string         `json:"note,omitempty"` // why it does not take part as others do
}

// Events about moves, drains and rebalances.
const (
	EventTenantMoved    EventName = "tenant_moved" // it is written on Node, and was on From
	EventMoveBegun      EventName = "move_begun"   // of Tenant, from From to Node
	EventMoveDone       EventName = "move_done"
	EventMoveUndone     EventName = "move_undone"
	EventMoveCancelled  EventName = "move_cancelled"
	EventMoveFailed     EventName = "move_failed"
	EventDrainBegun     EventName = "node_drain_begun"
	EventDrained        EventName = "node_drained" // nothing is left on Node
	EventDrainEnded     EventName = "node_drain_ended"
	EventRebalanceBegun EventName = "rebalance_begun"
	EventRebalanceEnded EventName = "rebalance_ended"
)
