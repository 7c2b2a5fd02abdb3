package proto

import "domicile/fsm"

// ReadReplica is a read replica of a tenant in another region (C8). Node is "" where no
// node has it, and Why then says why.
type ReadReplica struct {
	Region fsm.RegionName `json:"region"`
	Node   fsm.NodeName   `json:"node"`
	State  ReaderState    `json:"state"`
	Why    string         `json:"why,omitempty"`
}

// ReaderState is how a read replica stands.
type ReaderState string

// States of read replicas.
const (
	ReaderFollowing ReaderState = "following" // it follows, or is about to; reads of its region go there
	ReaderLost      ReaderState = "lost"      // its node was failed over and has not answered since
	ReaderUnplaced  ReaderState = "unplaced"  // no node of the region may have it now
	ReaderHome      ReaderState = "home"      // the tenant lives in the region, where its own copies are read
)

// ReadReplicaPut answers PUT /_shard/tenants/<t>/read-replicas/<region>.
type ReadReplicaPut struct {
	Tenant fsm.TenantName `json:"tenant"`
	ReadReplica
}

// EventReaderPlaced says that a read replica is placed on Node.
const EventReaderPlaced EventName = "read_replica_placed"
