package proto

import "domicile/fsm"

// States of nodes that are leased.
const (
	NodeUp     NodeState = "up"     // it takes leases, and its lease has not run out
	NodeLapsed NodeState = "lapsed" // its lease has run out, and it is not failed over yet
	NodeLost   NodeState = "lost"   // it was failed over, and has not answered since
	// NodeUnknown is a node that takes leases, told of by a server that does not lead
	// and could not ask the leader, or has only begun to lead.
	NodeUnknown NodeState = "unknown"
	// NodeDraining is a node that is being emptied, or was, and would else be one of the
	// others but lapsed and lost.
	NodeDraining NodeState = "draining"
)

// DeleteNode is the body of DELETE /_shard/nodes/<n>. Force writes off a node
// that will not come back: its copies are forgotten, and no job waits for it.
type DeleteNode struct {
	Force bool `json:"force,omitempty"`
}

// FailOver is the body of POST /_shard/nodes/<n>/failover. Force fails over a
// node that takes no lease, and units whose copies may lack acknowledged writes.
type FailOver struct {
	Force bool `json:"force,omitempty"`
}

// FailedOver answers POST /_shard/nodes/<n>/failover: 200, or 502 with
// something in Failed. Unreplicated are tenants that the node held, as primary
// or as copy, and that have no copy in sync now.
type FailedOver struct {
	Node         fsm.NodeName     `json:"node"`
	Promoted     []TenantPromoted `json:"promoted"`
	Failed       []TenantFailed   `json:"failed"`
	Unreplicated []fsm.TenantName `json:"unreplicated"`
}

// TenantPromoted is a tenant that takes writes on another node. Lost is what its
// old primary had acknowledged alone, once that node has told it.
type TenantPromoted struct {
	Tenant fsm.TenantName `json:"tenant"`
	To     fsm.NodeName   `json:"to"`
	// NotInSync says that its copy was promoted by force and may have lacked
	// acknowledged writes: those after Position, where it stood, are lost.
	NotInSync bool           `json:"not_in_sync,omitempty"`
	Position  string         `json:"position,omitempty"`
	Lost      *PositionRange `json:"lost,omitempty"`
}

// TenantFailed says why something was not done for a tenant.
type TenantFailed struct {
	Tenant fsm.TenantName `json:"tenant"`
	Why    string         `json:"why"`
}

// Replicated answers POST /_shard/replicas: 200, or 502 with something in
// Failed.
type Replicated struct {
	Replicated []TenantReplica `json:"replicated"` // whose copy came in sync
	Failed     []TenantFailed  `json:"failed"`
}

// TenantReplica is a tenant and the node of its copy.
type TenantReplica struct {
	Tenant  fsm.TenantName `json:"tenant"`
	Replica fsm.NodeName   `json:"replica"`
}

// Verdict is a line of GET /_shard/tenants/<t>/explain: whether a node may hold
// the tenant, its rank among those that may, from 1, and why. Holds is what it
// is to the tenant now: primary, syncing, joining, in_sync, former or leaving.
type Verdict struct {
	Node  fsm.NodeName `json:"node"`
	May   bool         `json:"may"`
	Rank  int          `json:"rank,omitempty"`
	Why   string       `json:"why"`
	Holds string       `json:"holds,omitempty"`
}

// Settings answers GET and PUT /_shard/settings. The replication token is told
// by nothing; HasReplicationToken says that there is one.
type Settings struct {
	Replicas            uint32          `json:"replicas"`
	AutoFailoverMS      int64           `json:"auto_failover_ms"` // length of leases; 0: nodes are not leased
	RepairAfterMS       int64           `json:"repair_after_ms"`
	RemoveAfterMS       int64           `json:"remove_after_ms"`
	DefaultRegion       *fsm.RegionName `json:"default_region,omitempty"` // left out: none
	HasReplicationToken bool            `json:"has_replication_token"`
	MovesPerNode        uint32          `json:"moves_per_node"` // that copy to or from a node at once
}

// PutSettings is the body of PUT /_shard/settings; a field left out keeps what
// is recorded. NoDefaultRegion takes the default region away.
type PutSettings struct {
	Replicas         *uint32         `json:"replicas,omitempty"`
	AutoFailoverMS   *int64          `json:"auto_failover_ms,omitempty"`
	RepairAfterMS    *int64          `json:"repair_after_ms,omitempty"`
	RemoveAfterMS    *int64          `json:"remove_after_ms,omitempty"`
	DefaultRegion    *fsm.RegionName `json:"default_region,omitempty"`
	NoDefaultRegion  bool            `json:"no_default_region,omitempty"`
	ReplicationToken *string         `json:"replication_token,omitempty"`
	MovesPerNode     *uint32         `json:"moves_per_node,omitempty"`
	// Force has leases end (AutoFailoverMS 0) though nodes write only under one.
	Force bool `json:"force,omitempty"`
}

// Events about copies, leases and failovers. node_lapsed and writes_lost are
// told by the leader alone.
const (
	EventNodeLapsed       EventName = "node_lapsed"
	EventNodeFailedOver   EventName = "node_failed_over"
	EventNodeBack         EventName = "node_back"
	EventTenantFailedOver EventName = "tenant_failed_over" // Node is its new primary, From the old one
	EventReplicaInSync    EventName = "replica_in_sync"    // Node is the copy's
	EventReplicaBehind    EventName = "replica_behind"     // the copy on Node does not count any more
	EventReplicaGone      EventName = "replica_gone"       // the copy on Node was given up
	EventWritesLost       EventName = "writes_lost"        // Node had acknowledged writes alone, which a failover lost
	EventRecoveryBegan    EventName = "recovery_began"     // the directory is being recovered; told by the leader alone
	EventRecoveryEnded    EventName = "recovery_ended"
)
