package proto

import "domicile/fsm"

// Recovery answers GET /_shard/recovery: what the directory's last recovery waits
// for, or what came of it (requirement O6).
type Recovery struct {
	Recovering bool   `json:"recovering"`
	History    uint64 `json:"history"`
	// The fields up to Lost are left out where the directory was never recovered.
	Cause      string   `json:"cause,omitempty"` // "majority_lost" or "restored"
	Began      int64    `json:"began,omitempty"` // milliseconds since the Unix epoch
	Ended      int64    `json:"ended,omitempty"`
	Raised     uint32   `json:"raised,omitempty"` // how often the history was raised above one that a node had heard
	WrittenOff []string `json:"written_off,omitempty"`
	// WrittenOffRegions keep their own directories; Regions are those that are read.
	WrittenOffRegions []fsm.RegionName `json:"written_off_regions,omitempty"`
	// Problem is what stands in the way, beside nodes that were not read.
	Problem string         `json:"problem,omitempty"`
	Nodes   []RecoveryNode `json:"nodes,omitempty"` // while it runs, on the leader
	// Regions are read in a recovery of the global directory, as nodes are.
	Regions []RecoveryRegion `json:"regions,omitempty"`
	// Rehomed tenants were found in another directory than the global one said, or were not
	// known to it.
	Rehomed uint64 `json:"rehomed,omitempty"`
	Units   uint64 `json:"units,omitempty"` // taken over
	Moved   uint64 `json:"moved,omitempty"` // of those, found on another node than recorded
	Lost    uint64 `json:"lost,omitempty"`  // of those, found nowhere, and tenants that their region does not tell of; the first of them:
	// LostUnits are not written before the node that they are recorded on has them.
	LostUnits []LostUnit `json:"lost_units,omitempty"`
	// Orphans are units that nodes hold and the directory does not know; Damaged
	// are those whose files a node cannot read. Unread are nodes that did not
	// answer when they were asked for them.
	Orphans []Orphan       `json:"orphans,omitempty"`
	Damaged []Orphan       `json:"damaged,omitempty"`
	Unread  []fsm.NodeName `json:"unread,omitempty"`
}

// RecoveryNode is how far a recovery is with a node.
type RecoveryNode struct {
	Node    fsm.NodeName `json:"node"`
	State   string       `json:"state"` // to_be_read, lease_running, read or written_off
	LeftMS  int64        `json:"left_ms,omitempty"`
	Problem string       `json:"problem,omitempty"`
}

// RecoveryRegion is how far a recovery of the global directory is with a region that keeps
// its own.
type RecoveryRegion struct {
	Region  fsm.RegionName `json:"region"`
	State   string         `json:"state"`             // to_be_read, read or written_off
	Tenants int            `json:"tenants,omitempty"` // that it has
	Problem string         `json:"problem,omitempty"`
}

// LostUnit is a unit that no node holds.
type LostUnit struct {
	Tenant fsm.TenantName `json:"tenant"`
	Unit   fsm.UnitName   `json:"unit"`
	ID     fsm.UnitID     `json:"id"`
}

// Orphan is a unit on a node.
type Orphan struct {
	Unit     fsm.UnitName `json:"unit"`
	ID       fsm.UnitID   `json:"id"`
	Node     fsm.NodeName `json:"node"`
	Position string       `json:"position"`
	Role     string       `json:"role"` // primary or replica
	Problem  string       `json:"problem,omitempty"`
}

// RecoveryWriteOff is the body of POST /_shard/recovery/write-off: the name of a
// recorded node, or the address of one that is not recorded; or a region that keeps its
// own directory.
type RecoveryWriteOff struct {
	Node   string         `json:"node,omitempty"`
	Region fsm.RegionName `json:"region,omitempty"`
}

// Adopt is the body of POST /_shard/recovery/adopt: the tenant's unit as Node holds
// it becomes the tenant of that name.
type Adopt struct {
	Tenant fsm.TenantName `json:"tenant"`
	ID     fsm.UnitID     `json:"id"`
	Node   fsm.NodeName   `json:"node"`
}

// Restored answers POST /_shard/restore.
type Restored struct {
	Cluster  string       `json:"cluster"`
	History  uint64       `json:"history"`
	Revision fsm.Revision `json:"revision"`
	Tenants  int          `json:"tenants"`
	Nodes    int          `json:"nodes"`
}
