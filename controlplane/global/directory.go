package global

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"domicile/fsm"
	"domicile/proto/follow"
)

// Directory is the global directory at one revision, as followers are told of it. It
// does not change, and any number of goroutines may read it.
type Directory struct {
	at      follow.Position
	nodes   btree.Map[fsm.NodeName, *fsm.NodeInfo]
	regions btree.Map[fsm.RegionName, *fsm.Region]
	units   btree.Map[fsm.UnitName, *fsm.UnitInfo]
	// tenants are those with a home or buckets. All of the same kind share one record,
	// which has no name: a million homes are little more than their names and ids.
	tenants btree.Map[fsm.TenantName, tenant]
}

// tenant is one with a home or buckets: what kind it is of, and its id.
type tenant struct {
	*fsm.TenantInfo
	id fsm.UnitID
}

// Where is where a tenant lives.
type Where struct {
	Region fsm.RegionName
	// Home says that Region keeps its own directory, which knows the tenant's node;
	// otherwise the global directory does.
	Home bool
	ID   fsm.UnitID // of its unit; 0 where that is not told, or it is not one unit
}

// Position says whose directory it is, and its revision.
func (d *Directory) Position() follow.Position { return d.at }

// Revision is that of the last change that it holds.
func (d *Directory) Revision() fsm.Revision { return d.at.Revision }

// Owner names the global group and the history; with Project it makes the directory one
// that a stream's hub serves.
func (d *Directory) Owner() (authority string, history uint64, ok bool) {
	return d.at.Authority, d.at.History, d.at.Authority != ""
}

// Region gives the record of a region that keeps its own directory.
func (d *Directory) Region(name fsm.RegionName) (*fsm.Region, bool) { return d.regions.Get(name) }

// Regions yields the regions that keep their own directory, by name.
func (d *Directory) Regions() iter.Seq[*fsm.Region] { return values(&d.regions) }

// Unit gives what the global directory tells of a unit that it places itself.
func (d *Directory) Unit(u fsm.UnitName) (*fsm.UnitInfo, bool) { return d.units.Get(u) }

// Node gives a node of the global directory.
func (d *Directory) Node(n fsm.NodeName) (*fsm.NodeInfo, bool) { return d.nodes.Get(n) }

// Tenant says where a tenant lives; false for one that the directory does not tell of.
func (d *Directory) Tenant(name fsm.TenantName) (Where, bool) {
	if t, ok := d.tenants.Get(name); ok {
		return d.where(name, t), true
	}
	if u, ok := d.units.Get(fsm.UnitName(name)); ok {
		return d.placed(u), true
	}
	return Where{}, false
}

func (d *Directory) where(name fsm.TenantName, t tenant) Where {
	if t.HasHome {
		return Where{Region: t.Home, Home: true, ID: t.id}
	}
	for b := uint32(1); b <= t.Buckets; b++ {
		if u, ok := d.units.Get(fsm.Unit(name, b)); ok {
			return Where{Region: d.placed(u).Region}
		}
	}
	return Where{}
}

func (d *Directory) placed(u *fsm.UnitInfo) Where {
	if n, ok := d.nodes.Get(u.Node); ok {
		return Where{Region: n.Region, ID: u.ID}
	}
	return Where{ID: u.ID}
}

// Tenants yields, by name, the tenants whose name begins with prefix and comes after
// after ("" for all).
func (d *Directory) Tenants(prefix string, after fsm.TenantName) iter.Seq2[fsm.TenantName, Where] {
	from := max(fsm.TenantName(prefix), after)
	wanted := func(name fsm.TenantName) bool { return after == "" || name != after }
	return func(yield func(fsm.TenantName, Where) bool) {
		// Two trees by name: the units are gone through, and before each of them the
		// tenants that come before it.
		next, stop := iter.Pull2(ascend(&d.tenants, from))
		defer stop()
		name, t, ok := next()
		upTo := func(last fsm.TenantName, all bool) bool {
			for ok && (all || name < last) && strings.HasPrefix(string(name), prefix) {
				if wanted(name) && !yield(name, d.where(name, t)) {
					return false
				}
				name, t, ok = next()
			}
			return true
		}
		for unit, u := range ascend(&d.units, fsm.UnitName(from)) {
			if !strings.HasPrefix(string(unit), prefix) {
				break
			}
			if strings.Contains(string(unit), ".") {
				continue // a bucket: its tenant is among the tenants
			}
			if tenant := fsm.TenantName(unit); !upTo(tenant, false) || wanted(tenant) && !yield(tenant, d.placed(u)) {
				return
			}
		}
		upTo("", true)
	}
}

// Project yields the events that build the directory from an empty one.
func (d *Directory) Project() iter.Seq[fsm.Event] {
	return func(yield func(fsm.Event) bool) {
		for n := range values(&d.nodes) {
			if !yield(fsm.Event{Node: n}) {
				return
			}
		}
		for r := range values(&d.regions) {
			if !yield(fsm.Event{Region: r}) {
				return
			}
		}
		for name, shared := range ascend(&d.tenants, "") {
			t := *shared.TenantInfo
			t.Name, t.ID = name, shared.id
			if !yield(fsm.Event{Tenant: &t}) {
				return
			}
		}
		for u := range values(&d.units) {
			if !yield(fsm.Event{Unit: u}) {
				return
			}
		}
	}
}

func values[K ~string, V any](m *btree.Map[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		m.Scan(func(_ K, v V) bool { return yield(v) })
	}
}

func ascend[K ~string, V any](m *btree.Map[K, V], from K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.Ascend(from, yield) }
}

// builder makes the next directory from one. It is used by one goroutine; what it has
// given is not changed any more.
type builder struct {
	next  Directory
	kinds map[fsm.TenantInfo]*fsm.TenantInfo
}

func newBuilder() *builder { return &builder{kinds: make(map[fsm.TenantInfo]*fsm.TenantInfo)} }

// apply reduces events as fsm.View does.
func (b *builder) apply(events []fsm.Event) error {
	for i := range events {
		if err := events[i].Valid(); err != nil {
			return err
		}
	}
	for i := range events {
		b.put(&events[i])
	}
	return nil
}

func (b *builder) put(e *fsm.Event) {
	switch d := &b.next; {
	case e.Node != nil:
		d.nodes.Set(e.Node.Name, e.Node)
	case e.NodeGone != "":
		d.nodes.Delete(e.NodeGone)
	case e.Unit != nil:
		d.units.Set(e.Unit.Unit, e.Unit)
	case e.UnitGone != "":
		d.units.Delete(e.UnitGone)
	case e.Tenant != nil:
		d.tenants.Set(e.Tenant.Name, tenant{b.kind(*e.Tenant), e.Tenant.ID})
	case e.TenantGone != "":
		d.tenants.Delete(e.TenantGone)
	case e.Region != nil:
		d.regions.Set(e.Region.Name, e.Region)
	case e.RegionGone != "":
		d.regions.Delete(e.RegionGone)
	}
}

// kind gives the record that a tenant shares with those like it. What is shared is as
// many as there are regions, and numbers of buckets.
func (b *builder) kind(t fsm.TenantInfo) *fsm.TenantInfo {
	t.Name, t.ID = "", 0
	shared, ok := b.kinds[t]
	if !ok {
		shared = &t
		b.kinds[t] = shared
	}
	return shared
}

// seal gives the directory as it is now, which stands at at.
func (b *builder) seal(at follow.Position) *Directory {
	b.next.at = at
	return &Directory{at: at, nodes: *b.next.nodes.Copy(), regions: *b.next.regions.Copy(),
		units: *b.next.units.Copy(), tenants: *b.next.tenants.Copy()}
}
