package fsm

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// ErrGap is returned by View.Apply for events that do not follow on what the
// view holds: the follower has to begin again from a projection.
var ErrGap = errors.New("the change does not follow on this view of the directory")

// View is the reducer of Events: what a follower of the directory knows. A
// View is used by one goroutine at a time.
type View struct {
	revision Revision
	nodes    map[NodeName]*NodeInfo
	units    map[UnitName]*UnitInfo
	tenants  map[TenantName]*TenantInfo
	regions  map[RegionName]*Region
}

// NewView returns the view of the empty directory, at revision 0.
func NewView() *View {
	return &View{
		nodes:   make(map[NodeName]*NodeInfo),
		units:   make(map[UnitName]*UnitInfo),
		tenants: make(map[TenantName]*TenantInfo),
		regions: make(map[RegionName]*Region),
	}
}

// Revision is that of the last change that the view holds.
func (v *View) Revision() Revision { return v.revision }

// Node, Unit, Tenant and Region give what the view holds of each. What they
// return is not to be changed.
func (v *View) Node(n NodeName) (*NodeInfo, bool)       { i, ok := v.nodes[n]; return i, ok }
func (v *View) Unit(u UnitName) (*UnitInfo, bool)       { i, ok := v.units[u]; return i, ok }
func (v *View) Tenant(t TenantName) (*TenantInfo, bool) { i, ok := v.tenants[t]; return i, ok }
func (v *View) Region(r RegionName) (*Region, bool)     { i, ok := v.regions[r]; return i, ok }

// Counts tells how many nodes, units, tenants and regions the view holds.
func (v *View) Counts() (nodes, units, tenants, regions int) {
	return len(v.nodes), len(v.units), len(v.tenants), len(v.regions)
}

// Load adds a part of a projection to a view that is still at revision 0. The
// last part is followed by Apply(0, revision, nil).
func (v *View) Load(events []Event) error {
	if v.revision != 0 {
		return ErrGap
	}
	return v.reduce(events)
}

// Apply takes the view from revision prev to revision rev. It returns ErrGap
// when the view does not stand at prev or rev is not after it, and changes
// nothing then.
func (v *View) Apply(prev, rev Revision, events []Event) error {
	if prev != v.revision || rev <= prev {
		return fmt.Errorf("view at revision %d, change from %d to %d: %w", v.revision, prev, rev, ErrGap)
	}
	if err := v.reduce(events); err != nil {
		return err
	}
	v.revision = rev
	return nil
}

func (v *View) reduce(events []Event) error {
	for i := range events {
		if err := events[i].Valid(); err != nil {
			return err
		}
	}
	for i := range events {
		v.put(&events[i])
	}
	return nil
}

func (v *View) put(e *Event) {
	switch {
	case e.Node != nil:
		v.nodes[e.Node.Name] = e.Node
	case e.NodeGone != "":
		delete(v.nodes, e.NodeGone)
	case e.Unit != nil:
		v.units[e.Unit.Unit] = e.Unit
	case e.UnitGone != "":
		delete(v.units, e.UnitGone)
	case e.Tenant != nil:
		v.tenants[e.Tenant.Name] = e.Tenant
	case e.TenantGone != "":
		delete(v.tenants, e.TenantGone)
	case e.Region != nil:
		v.regions[e.Region.Name] = e.Region
	case e.RegionGone != "":
		delete(v.regions, e.RegionGone)
	}
}

// Equal reports whether two views hold the same at the same revision.
func (v *View) Equal(w *View) bool {
	return v.revision == w.revision &&
		maps.EqualFunc(v.nodes, w.nodes, func(a, b *NodeInfo) bool { return *a == *b }) &&
		maps.EqualFunc(v.units, w.units, (*UnitInfo).equal) &&
		maps.EqualFunc(v.tenants, w.tenants, func(a, b *TenantInfo) bool { return *a == *b }) &&
		maps.EqualFunc(v.regions, w.regions, func(a, b *Region) bool {
			return a.Name == b.Name && a.Authority == b.Authority && slices.Equal(a.Routers, b.Routers)
		})
}

func (u *UnitInfo) equal(w *UnitInfo) bool {
	return u.Unit == w.Unit && u.ID == w.ID && u.Node == w.Node && u.State == w.State &&
		u.Epoch == w.Epoch && u.Promoting == w.Promoting && slices.Equal(u.Copies, w.Copies)
}

// Project yields the events that build the view of s from an empty one: nodes,
// then regions, then each tenant and its units, all by name.
func Project(s *State) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for n := range s.Nodes() {
			if !yield(Event{Node: n.info()}) {
				return
			}
		}
		for r := range s.Regions() {
			if !yield(Event{Region: r}) {
				return
			}
		}
		projectTenants(s, yield)
	}
}

func projectTenants(s *State, yield func(Event) bool) {
	for t, p := range s.Placements() {
		if p != nil && !t.HasHome {
			if p.served() && !yield(Event{Unit: p.info()}) {
				return
			}
			continue
		}
		if s.told(t) && !yield(Event{Tenant: t.info()}) {
			return
		}
		if t.HasHome {
			continue // what is left here of its unit is nobody's to ask
		}
		for p := range s.TenantUnits(t.Name) {
			if p.served() && !yield(Event{Unit: p.info()}) {
				return
			}
		}
	}
}

func (n *Node) info() *NodeInfo {
	return &NodeInfo{Name: n.Name, Addr: n.Addr, Region: n.Region, Zone: n.Zone, Lost: n.Lost, Unleased: n.Lease == LeaseNone}
}

// told reports whether followers are told of a tenant beside its units: it has
// a home, or buckets that are served.
func (s *State) told(t *Tenant) bool {
	if t.HasHome || t.Buckets == 0 {
		return t.HasHome && !t.Reserved
	}
	p, ok := s.buckets.Get(Unit(t.Name, 1))
	return ok && p.served()
}

func (t *Tenant) info() *TenantInfo {
	return &TenantInfo{Name: t.Name, Buckets: t.Buckets, Hash: t.Hash, Home: t.Home, HasHome: t.HasHome, ID: t.Claim}
}

// served reports whether followers are told of the unit.
func (p *Placed) served() bool { return p.kept() || p.State == UnitSent }

func (p *Placed) info() *UnitInfo {
	u := &UnitInfo{Unit: p.Unit, ID: p.ID, Node: p.Node, State: p.State, Epoch: p.Epoch, Promoting: !p.Promoted()}
	if u.State == UnitSent {
		u.State = UnitMoving // whose it is comes from the global directory
	}
	for i := range p.Copies {
		if c := &p.Copies[i]; c.State.Replica() || c.State == CopyReader {
			if u.Copies == nil {
				u.Copies = make([]Copy, 0, len(p.Copies))
			}
			state := c.State
			if state == CopyJoining {
				state = CopySyncing // the difference is the primary's and the directory's
			}
			u.Copies = append(u.Copies, Copy{Node: c.Node, State: state})
		}
	}
	return u
}
