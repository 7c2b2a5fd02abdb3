package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
	"domicile/proto/follow"
)

// errTooLong says that the directory holds a name that no table can.
var errTooLong = errors.New("a name or a list of copies in the directory is longer than a proxy can hold")

// table is what a proxy knows of the directory at one revision: immutable, one
// pointer for a request to read. It equals the fsm.View at that revision.
type table struct {
	position follow.Position // whose directory, and of which revision
	units    *shards         // by unit name: an encoded unitRecord
	tenants  *shards         // by tenant name: an encoded fsm.TenantInfo, and 1 + the place of its home
	nodes    []seat          // a unit names its node by its place here
	places   map[fsm.NodeName]uint32
	regions  map[fsm.RegionName]*fsm.Region
	homes    []homeSeat // a home row names its region by its place here
	homeAt   map[fsm.RegionName]uint32
	// own is the region whose group's directory this is, "" for the global one.
	own fsm.RegionName
}

// homeSeat is a region's place in a table, which it keeps.
type homeSeat struct {
	name   fsm.RegionName
	region *region // nil before the proxy has opened it
}

// seat is a node's place in a table. Places are kept when a node goes, so that
// what unit records hold stays right.
type seat struct {
	info    fsm.NodeInfo
	present bool
	up      *http1.Upstream // nil before the proxy has opened it
}

// unitRecord is what a table knows of a unit.
type unitRecord struct {
	node  uint32 // place of its node
	state fsm.UnitState
	// promoting: its node takes no requests of it yet.
	promoting bool
	id        fsm.UnitID
	epoch     uint64
	revision  fsm.Revision // of its last change, or of the snapshot that told of it
	copies    []byte       // encoded: 5 bytes each, state and place of the node
}

const (
	unitHeader   = 4 + 1 + 1 + 8 + 8 + 8
	tenantHeader = 4 + 1 + 1
	copySize     = 5
	// promotingBit is in the byte that holds a unit's state.
	promotingBit = 0x80
	maxCopies    = 255
)

func newTable() *table {
	return &table{
		units:   newShards(),
		tenants: newShards(),
		places:  map[fsm.NodeName]uint32{},
		regions: map[fsm.RegionName]*fsm.Region{},
		homeAt:  map[fsm.RegionName]uint32{},
	}
}

// home finds the region that keeps a tenant in its own directory, nil without one. It
// allocates nothing.
func (t *table) home(tenant []byte) *homeSeat {
	place, ok := t.tenants.hint(tenant)
	if !ok || place == 0 {
		return nil
	}
	return &t.homes[place-1]
}

// seat finds the node of a unit, nil without one: the look-up of the hot path.
func (t *table) seat(unit []byte) *seat {
	place, ok := t.units.hint(unit)
	if !ok {
		return nil
	}
	return &t.nodes[place]
}

// unit looks up all that is known of a unit.
func (t *table) unit(name []byte) (unitRecord, bool) {
	v := t.units.get(name)
	if v == nil {
		return unitRecord{}, false
	}
	return decodeUnit(v), true
}

func decodeUnit(v []byte) unitRecord {
	_ = v[unitHeader-1]
	return unitRecord{
		node:      binary.LittleEndian.Uint32(v),
		state:     fsm.UnitState(v[4] &^ promotingBit),
		promoting: v[4]&promotingBit != 0,
		id:        fsm.UnitID(binary.LittleEndian.Uint64(v[6:])),
		epoch:     binary.LittleEndian.Uint64(v[14:]),
		revision:  fsm.Revision(binary.LittleEndian.Uint64(v[22:])),
		copies:    v[unitHeader : unitHeader+int(v[5])*copySize],
	}
}

func (t *table) unitInfo(name []byte, r unitRecord) fsm.UnitInfo {
	info := fsm.UnitInfo{
		Unit: fsm.UnitName(name), ID: r.id, Node: t.nodes[r.node].info.Name, State: r.state, Epoch: r.epoch, Promoting: r.promoting,
	}
	for c := r.copies; len(c) > 0; c = c[copySize:] {
		info.Copies = append(info.Copies, fsm.Copy{
			Node: t.nodes[binary.LittleEndian.Uint32(c[1:])].info.Name, State: fsm.CopyState(c[0]),
		})
	}
	return info
}

// tenant looks up what is known of a tenant beside its unit.
func (t *table) tenant(name []byte) (fsm.TenantInfo, bool) {
	v := t.tenants.get(name)
	if v == nil {
		return fsm.TenantInfo{}, false
	}
	return fsm.TenantInfo{
		Name:    fsm.TenantName(name),
		Buckets: binary.LittleEndian.Uint32(v),
		Hash:    fsm.Hash(v[4]),
		HasHome: v[5] == 1,
		Home:    fsm.RegionName(v[6:]),
	}, true
}

// all yields the events that build this table from an empty one: nodes,
// regions, tenants, units.
func (t *table) all(yield func(fsm.Event) bool) {
	for i := range t.nodes {
		if s := &t.nodes[i]; s.present && !yield(fsm.Event{Node: &s.info}) {
			return
		}
	}
	for _, r := range t.regions {
		if !yield(fsm.Event{Region: r}) {
			return
		}
	}
	stopped := false
	t.tenants.each(func(key, _ []byte) bool {
		info, _ := t.tenant(key)
		stopped = !yield(fsm.Event{Tenant: &info})
		return !stopped
	})
	if stopped {
		return
	}
	t.units.each(func(key, v []byte) bool {
		info := t.unitInfo(key, decodeUnit(v))
		return yield(fsm.Event{Unit: &info})
	})
}

// tableEdit makes the next table from one. Its table is not seen by anyone
// before seal.
type tableEdit struct {
	next       *table
	revision   fsm.Revision
	units      *editor
	tenants    *editor
	ownNodes   bool
	ownRegions bool
	ownHomes   bool
	scratch    []byte
}

// edit begins the table at revision rev. One edit of a lineage is made at a
// time, each under an id of its own; one that is not sealed leaves no trace.
func (t *table) edit(rev fsm.Revision, editID uint64) *tableEdit {
	next := *t
	return &tableEdit{next: &next, revision: rev, units: t.units.edit(editID), tenants: t.tenants.edit(editID)}
}

// apply reduces one event as fsm.View does.
func (e *tableEdit) apply(ev *fsm.Event) error {
	switch {
	case ev.Node != nil:
		e.putNode(ev.Node)
	case ev.NodeGone != "":
		e.dropNode(ev.NodeGone)
	case ev.Unit != nil:
		return e.putUnit(ev.Unit)
	case ev.UnitGone != "":
		e.units.remove(asBytes(string(ev.UnitGone)))
	case ev.Tenant != nil:
		return e.putTenant(ev.Tenant)
	case ev.TenantGone != "":
		e.tenants.remove(asBytes(string(ev.TenantGone)))
	case ev.Region != nil:
		e.regions()[ev.Region.Name] = ev.Region
	case ev.RegionGone != "":
		delete(e.regions(), ev.RegionGone)
	}
	return nil
}

func (e *tableEdit) regions() map[fsm.RegionName]*fsm.Region {
	if !e.ownRegions {
		e.next.regions, e.ownRegions = maps.Clone(e.next.regions), true
	}
	return e.next.regions
}

// place gives a node's place, a new one for a node never heard of.
func (e *tableEdit) place(name fsm.NodeName) uint32 {
	if i, ok := e.next.places[name]; ok {
		return i
	}
	e.ownSeats()
	i := uint32(len(e.next.nodes))
	e.next.nodes = append(e.next.nodes, seat{info: fsm.NodeInfo{Name: name}})
	e.next.places[name] = i
	return i
}

// home gives a region's place among homes, a new one for a region that was none yet.
func (e *tableEdit) home(name fsm.RegionName) uint32 {
	if i, ok := e.next.homeAt[name]; ok {
		return i
	}
	if !e.ownHomes {
		e.next.homes, e.next.homeAt = slices.Clone(e.next.homes), maps.Clone(e.next.homeAt)
		e.ownHomes = true
	}
	i := uint32(len(e.next.homes))
	e.next.homes = append(e.next.homes, homeSeat{name: name})
	e.next.homeAt[name] = i
	return i
}

// attaches tells whether the table names nodes or regions that the one before did not.
func (e *tableEdit) attaches() bool { return e.ownNodes || e.ownRegions || e.ownHomes }

func (e *tableEdit) ownSeats() {
	if !e.ownNodes {
		e.next.nodes, e.next.places = slices.Clone(e.next.nodes), maps.Clone(e.next.places)
		e.ownNodes = true
	}
}

func (e *tableEdit) putNode(n *fsm.NodeInfo) {
	i := e.place(n.Name)
	e.ownSeats()
	s := &e.next.nodes[i]
	if s.info.Addr != n.Addr {
		s.up = nil
	}
	s.info, s.present = *n, true
}

func (e *tableEdit) dropNode(name fsm.NodeName) {
	i, ok := e.next.places[name]
	if !ok {
		return
	}
	e.ownSeats()
	e.next.nodes[i] = seat{info: fsm.NodeInfo{Name: name}}
}

func (e *tableEdit) putUnit(u *fsm.UnitInfo) error {
	if len(u.Unit) > maxKey || len(u.Copies) > maxCopies {
		return fmt.Errorf("unit %.80q: %w", u.Unit, errTooLong)
	}
	b := binary.LittleEndian.AppendUint32(e.scratch[:0], e.place(u.Node))
	state := byte(u.State)
	if u.Promoting {
		state |= promotingBit
	}
	b = append(b, state, byte(len(u.Copies)))
	b = binary.LittleEndian.AppendUint64(b, uint64(u.ID))
	b = binary.LittleEndian.AppendUint64(b, u.Epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.revision))
	for _, c := range u.Copies {
		b = append(b, byte(c.State))
		b = binary.LittleEndian.AppendUint32(b, e.place(c.Node))
	}
	e.scratch = b
	e.units.put(asBytes(string(u.Unit)), b, e.next.places[u.Node])
	return nil
}

func (e *tableEdit) putTenant(t *fsm.TenantInfo) error {
	if len(t.Name) > maxKey || len(t.Home) > maxKey {
		return fmt.Errorf("tenant %.80q: %w", t.Name, errTooLong)
	}
	b := binary.LittleEndian.AppendUint32(e.scratch[:0], t.Buckets)
	home, place := byte(0), uint32(0)
	if t.HasHome {
		home, place = 1, 1+e.home(t.Home)
	}
	b = append(append(b, byte(t.Hash), home), t.Home...)
	e.scratch = b
	e.tenants.put(asBytes(string(t.Name)), b, place)
	return nil
}

func (e *tableEdit) applyAll(events []fsm.Event) error {
	for i := range events {
		if err := e.apply(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// seal gives the table, which stands at.
func (e *tableEdit) seal(at follow.Position) *table {
	e.next.units, e.next.tenants = e.units.seal(), e.tenants.seal()
	e.next.position = at
	e.next.own = regionOf(at.Authority)
	return e.next
}

// regionOf gives the region of an authority, "" for the global one.
func regionOf(authority string) fsm.RegionName {
	name := authority[strings.LastIndexByte(authority, '/')+1:]
	if name == proto.GlobalScope {
		return ""
	}
	return fsm.RegionName(name)
}

// isGlobal gives an error unless t is of the global directory. Which one a region belongs to
// its group has recorded, and its servers have no other's.
func (t *table) isGlobal() error {
	if t.own != "" {
		return fmt.Errorf("it is the directory of %s, and not the global one", t.position.Authority)
	}
	return nil
}
