package fsm

import "errors"

var errEvent = errors.New("an event of the directory names nothing, or more than one thing")

// Event says one thing that changed, as followers of the directory need it: it
// carries no token. Events are put and gone per record; a later one about the
// same record replaces an earlier one. Exactly one field is set.
type Event struct {
	Node       *NodeInfo
	NodeGone   NodeName
	Unit       *UnitInfo // a unit that is served: active or moving
	UnitGone   UnitName
	Tenant     *TenantInfo // only tenants with buckets or a home: others are told by their unit
	TenantGone TenantName
	Region     *Region
	RegionGone RegionName
}

// NodeInfo is what a proxy needs of a node.
type NodeInfo struct {
	Name   NodeName
	Addr   string
	Region RegionName
	Zone   ZoneName
	// Lost says that the node was failed over and has not answered since: it answers
	// nobody any more, as far as the group knows.
	Lost bool
	// Unleased says that the node takes no lease: nothing of it fails over by itself (L5).
	Unleased bool
}

// UnitInfo is what a proxy needs of a unit. Copies are those that follow and may be
// read, each syncing, in sync or a reader, with nothing else set.
type UnitInfo struct {
	Unit   UnitName
	ID     UnitID
	Node   NodeName
	State  UnitState
	Epoch  uint64
	Copies []Copy
	// Promoting says that the unit has come to its node by a flip, and that the node
	// has not been confirmed as promoted yet: it takes no requests of it.
	Promoting bool
}

// TenantInfo is what a proxy needs of a tenant that is more than one unit, or
// lives in a region that keeps its own directory.
type TenantInfo struct {
	Name    TenantName
	Buckets uint32
	Hash    Hash
	Home    RegionName
	HasHome bool
	ID      UnitID // of its unit, where it has a home; 0 where that was not told
}

// Valid returns an error unless exactly one field is set, and names something.
func (e *Event) Valid() error {
	set := 0
	for _, is := range [...]bool{
		e.Node != nil, e.NodeGone != "", e.Unit != nil, e.UnitGone != "",
		e.Tenant != nil, e.TenantGone != "", e.Region != nil, e.RegionGone != "",
	} {
		if is {
			set++
		}
	}
	if set != 1 || e.Node != nil && e.Node.Name == "" || e.Unit != nil && e.Unit.Unit == "" ||
		e.Tenant != nil && e.Tenant.Name == "" || e.Region != nil && e.Region.Name == "" {
		return errEvent
	}
	return nil
}
