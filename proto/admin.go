package proto

import (
	"time"

	"domicile/fsm"
)

// Headers of the admin API (spec §2.2).
const (
	HeaderRequestID      = "X-Request-Id"
	HeaderRevision       = "Domicile-Revision"
	HeaderRelayed        = "Domicile-Relayed" // "1": relayed within the group already
	HeaderIdempotencyKey = "Idempotency-Key"
)

// PutNode is the body of PUT /_shard/nodes/<n>. A field left out keeps what is
// recorded (N2); "standby":"" ends a pair.
type PutNode struct {
	Addr    *string         `json:"addr,omitempty"`
	Token   *string         `json:"token,omitempty"`
	Region  *fsm.RegionName `json:"region,omitempty"`
	Zone    *fsm.ZoneName   `json:"zone,omitempty"`
	Standby *fsm.NodeName   `json:"standby,omitempty"`
	Weight  *uint32         `json:"weight,omitempty"`
}

// NodeRecorded answers PUT /_shard/nodes/<n>.
type NodeRecorded struct {
	Node         fsm.NodeName     `json:"node"`
	Addr         string           `json:"addr"`
	Region       fsm.RegionName   `json:"region"`
	Zone         fsm.ZoneName     `json:"zone"`
	Unreplicated []fsm.TenantName `json:"unreplicated"`
}

// NodeState is the state of a node as the admin API tells it.
type NodeState string

// States of nodes. NodeUnleased is a node that takes no lease.
const (
	NodeUnleased NodeState = "unleased"
)

// Node is what GET /_shard/nodes tells of a node; it carries no token (N5).
type Node struct {
	Name     fsm.NodeName   `json:"name"`
	Addr     string         `json:"addr"`
	Region   fsm.RegionName `json:"region"`
	Zone     fsm.ZoneName   `json:"zone"`
	Weight   uint32         `json:"weight"`
	Standby  fsm.NodeName   `json:"standby,omitempty"`
	State    NodeState      `json:"state"`
	Tenants  int            `json:"tenants"`  // units whose primary it is
	Replicas int            `json:"replicas"` // units that it holds a copy of
	Bytes    uint64         `json:"bytes"`    // of all unit files, as last told
	// LeaseLeftMS is 0 where the node is not up, and left out where its state is unknown.
	LeaseLeftMS *int64 `json:"lease_left_ms,omitempty"`
	// Problem is why the leader's last call to the node failed, as far as the server asked
	// knows: another group holds it, above all.
	Problem string `json:"problem,omitempty"`
}

// PutTenant is the body of PUT /_shard/tenants/<t>.
type PutTenant struct {
	Region  *fsm.RegionName `json:"region,omitempty"`
	Node    *fsm.NodeName   `json:"node,omitempty"`
	Buckets uint32          `json:"buckets,omitempty"`
	Hash    string          `json:"hash,omitempty"` // strcrc32 (default) or mpcrc32
	Schema  string          `json:"schema,omitempty"`
	Pinned  bool            `json:"pinned,omitempty"`
}

// TenantCreated answers PUT /_shard/tenants/<t>. Exactly one of ReplicaOn and
// Unreplicated is set. Node is left out for a tenant with buckets.
type TenantCreated struct {
	Tenant       fsm.TenantName `json:"tenant"`
	Node         fsm.NodeName   `json:"node,omitempty"`
	Region       fsm.RegionName `json:"region"`
	Buckets      uint32         `json:"buckets,omitempty"`
	ReplicaOn    fsm.NodeName   `json:"replica_on,omitempty"`
	Unreplicated string         `json:"unreplicated,omitempty"`
}

// TenantUnknown is the state of a tenant whose region could not be asked.
const TenantUnknown = "unknown"

// Tenant is what GET /_shard/tenants tells of a tenant (T3). Replica is the
// node of its copy, or "". SameZone is given only when true. Bytes only where
// the list was asked for them and the node answered.
type Tenant struct {
	Name     fsm.TenantName `json:"name"`
	Node     fsm.NodeName   `json:"node"`
	State    string         `json:"state"` // active, moving, creating or deleting
	Region   fsm.RegionName `json:"region"`
	Zone     fsm.ZoneName   `json:"zone"`
	Replica  fsm.NodeName   `json:"replica"`
	SameZone bool           `json:"same_zone,omitempty"`
	Pinned   bool           `json:"pinned"`
	Quota    *Quota         `json:"quota,omitempty"`
	Buckets  uint32         `json:"buckets,omitempty"`
	Bytes    *uint64        `json:"bytes,omitempty"`
	Move     fsm.JobID      `json:"move,omitempty"` // the move that it waits for, or is under
	// Replicas are all its copies; Replica is one of them. Unreplicated says why none
	// is in sync: its writes are acknowledged alone, and it is failed over only by hand.
	Replicas     []Replica `json:"replicas,omitempty"`
	Unreplicated string    `json:"unreplicated,omitempty"`
	// ReadReplicas are those in other regions that were asked for, by region.
	ReadReplicas []ReadReplica `json:"read_replicas,omitempty"`
	// Unreachable says that the tenant's region, which keeps its own directory, could not be
	// asked: it has the tenant, and nothing else is known. State is TenantUnknown then.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Replica is a copy of a tenant. Its states, in order, are syncing, joining and
// in_sync (architecture §3.7.1).
type Replica struct {
	Node     fsm.NodeName `json:"node"`
	Zone     fsm.ZoneName `json:"zone"`
	State    string       `json:"state"`
	Since    time.Time    `json:"since"` // it has been in State
	SameZone bool         `json:"same_zone,omitempty"`
}

// Quota bounds a tenant at its node (T6); a field left out bounds nothing.
type Quota struct {
	Bytes    uint64 `json:"bytes,omitempty"`
	RPS      uint32 `json:"rps,omitempty"`
	InFlight uint32 `json:"inflight,omitempty"`
}

// Pin answers PUT and DELETE /_shard/tenants/<t>/pin.
type Pin struct {
	Tenant fsm.TenantName `json:"tenant"`
	Pinned bool           `json:"pinned"`
}

// PutRegion is the body of PUT /_shard/regions/<r>.
type PutRegion struct {
	Routers []string `json:"routers"`
}

// Region is what GET /_shard/regions tells of a region.
type Region struct {
	Name    fsm.RegionName `json:"name"`
	Routers []string       `json:"routers"`
	// Authority names the region's own group, as its routers told first.
	Authority string `json:"authority,omitempty"`
	// Unreachable are those of the routers that did not answer when they were recorded; told
	// by PUT alone.
	Unreachable []string `json:"unreachable,omitempty"`
	// HandOver is under way, from this directory or to it.
	HandOver *RegionHandOver `json:"handover,omitempty"`
}

// Group answers GET /_shard/group. Leader is the id of the server that leads,
// or "" where none is known.
type Group struct {
	Region  fsm.RegionName `json:"region"`
	ID      fsm.MemberID   `json:"id"` // of the server asked
	Cluster string         `json:"cluster"`
	Leader  fsm.MemberID   `json:"leader"`
	Term    uint64         `json:"term"`
	Index   uint64         `json:"index"` // last log index applied by the server asked
	Servers []Server       `json:"servers"`
	// Authority names the group and its directory, once there is one, and History the
	// directory's history.
	Authority string `json:"authority,omitempty"`
	History   uint64 `json:"history,omitempty"`
	// Global is, for a region's group, what this server has of the global directory.
	Global *GroupCopy `json:"global,omitempty"`
}

// Server is a server of a group.
type Server struct {
	ID      fsm.MemberID `json:"id"`
	Raft    string       `json:"raft"`
	API     string       `json:"api"`
	Voter   bool         `json:"voter"`
	Healthy bool         `json:"healthy"`
}

// AddServer is the body of POST /_shard/group/servers. Voter defaults to true.
// Region, Version and Empty are told by a server that joins by itself: whose
// directory it is for, the newest command version that it knows, and whether
// its folder holds nothing, so that it must not vote as one that it was before.
type AddServer struct {
	ID      fsm.MemberID    `json:"id"`
	Raft    string          `json:"raft"`
	API     string          `json:"api"`
	Voter   *bool           `json:"voter,omitempty"`
	Region  *fsm.RegionName `json:"region,omitempty"`
	Version uint32          `json:"version,omitempty"`
	Empty   bool            `json:"empty,omitempty"`
}

// ServerAdded answers POST /_shard/group/servers.
type ServerAdded struct {
	ID      fsm.MemberID `json:"id"`
	Cluster string       `json:"cluster"` // the group's cluster id
	Index   uint64       `json:"index"`   // Raft index from which on it belongs to the group
}

// PutMember is the body of POST /_shard/group/members: a server of the group
// has the leader record its addresses and its version.
type PutMember struct {
	ID      fsm.MemberID `json:"id"`
	Raft    string       `json:"raft"`
	API     string       `json:"api"`
	Version uint32       `json:"version"`
}

// Transfer is the body of POST /_shard/group/transfer; without an id the
// leader chooses.
type Transfer struct {
	ID fsm.MemberID `json:"id,omitempty"`
}

// Led answers POST /_shard/group/transfer.
type Led struct {
	Leader fsm.MemberID `json:"leader"`
}

// ServerRemoved answers DELETE /_shard/group/servers/<id>.
type ServerRemoved struct {
	ID fsm.MemberID `json:"id"`
}

// EventName says what an Event is about; it is the event's type in the stream.
type EventName string

// Events of GET /_shard/events. Names are on the wire and never change.
const (
	EventNodeRecorded   EventName = "node_recorded" // recorded or changed
	EventNodeDeleted    EventName = "node_deleted"
	EventTenantCreated  EventName = "tenant_created"
	EventTenantDeleted  EventName = "tenant_deleted" // takes no more requests
	EventRegionRecorded EventName = "region_recorded"
	EventRegionDeleted  EventName = "region_deleted"
	EventLeaderChanged  EventName = "leader_changed"
)

// Event is one event of GET /_shard/events.
type Event struct {
	Event    EventName       `json:"event"`
	Revision fsm.Revision    `json:"revision"` // at which the directory shows it
	Node     fsm.NodeName    `json:"node,omitempty"`
	Tenant   fsm.TenantName  `json:"tenant,omitempty"`
	Region   *fsm.RegionName `json:"region,omitempty"`
	Zone     *fsm.ZoneName   `json:"zone,omitempty"`
	Leader   fsm.MemberID    `json:"leader,omitempty"`
	Term     uint64          `json:"term,omitempty"`
	From     fsm.NodeName    `json:"from,omitempty"`  // tenant_failed_over, tenant_moved: its old primary
	Lost     *PositionRange  `json:"lost,omitempty"`  // writes_lost: the positions, where they are known
	Files    []string        `json:"files,omitempty"` // writes_lost: what the node keeps aside
	// Move is the number of a move or rebalance, Cause why it was begun, Problem why it
	// was not carried out, and PauseMS for how long it held writes up.
	Move    fsm.JobID `json:"move,omitempty"`
	Cause   string    `json:"cause,omitempty"`
	Problem string    `json:"problem,omitempty"`
	PauseMS uint64    `json:"pause_ms,omitempty"`
}

// Health answers GET /_health and GET /_ready.
type Health struct {
	Status string `json:"status"`
}
