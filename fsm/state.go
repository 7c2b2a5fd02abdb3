package fsm

import (
	"iter"

	"github.com/tidwall/btree"
)

// Version is the newest command version that this binary knows (Member.Version
// of a server that runs it). 1: nodes, tenants, regions. 2: copies, leases,
// failover. 3: moves, drains, rebalancing, read replicas. 4: regions that keep their own
// directory.
const Version = 4

// levelCopies is the level from which on copies are placed and counted, and
// lists of grants are numbered. Below it a server may not know of them.
const levelCopies = 2

// levelMoves is the level from which on units are moved.
const levelMoves = 3

// levelRegions is the level from which on regions keep their own directories.
const levelRegions = 4

// State is a directory at one revision. It is changed by Apply alone, and only
// by one goroutine; a State that Snapshot returned is read-only and may be
// read by any number of goroutines. Records that it hands out are immutable.
type State struct {
	revision Revision
	now      Millis // greatest Entry.At that was applied
	level    uint32
	scope    Scope
	settings Settings
	// recountAt is the tenant from which on Lacks is still to be brought up to
	// date after the settings have changed, or "".
	recountAt TenantName
	recovery  *Recovery // the last one, or nil
	upstream  Upstream
	// abroad is at or above the revisions in epochs that units brought from other
	// directories; giving is the running JobGive, or nil.
	abroad Revision
	giving *Job
	staged staged // of the open intake, or of giving

	members  btree.Map[MemberID, *Member]
	nodes    btree.Map[NodeName, *seat]
	tenants  btree.Map[TenantName, *tenancy]
	buckets  btree.Map[UnitName, *Placed] // units of tenants that have buckets
	regions  btree.Map[RegionName, *Region]
	jobs     btree.Map[JobID, *Job]      // running and ended
	running  btree.Map[JobID, *Job]      // those of jobs that have not ended
	ended    btree.Map[Revision, JobID]  // ended jobs by the entry that ended them
	moves    btree.Map[UnitName, *Job]   // moves before StepClean, by their unit
	tasks    taskTree                    // of jobs of the global directory
	intakes  intakeTree                  // regions that were given to this directory, by the giver's authority
	nodesIn  regionTree                  // nodes of each region, counted
	requests btree.Map[string, *Request] // by key
	answered btree.Map[Revision, string] // keys of requests, oldest first

	// generation separates what this State owns, and may change in place, from
	// what it shares with a snapshot.
	generation uint64
	readOnly   bool
}

// tenancy is a tenant and, when it is one unit, that unit: one look-up finds
// both, and a tree less has to be kept. It is immutable as they are.
type tenancy struct {
	tenant *Tenant
	unit   *Placed // nil for a tenant with buckets or a home
}

// seat is a node with what is known of it by reference: the units that it
// holds, in any state, and its place in a pair.
type seat struct {
	node      *Node
	standbyOf NodeName                    // the node whose standby this one is, or ""
	units     btree.Map[seatKey, *Placed] // by creation: new ones come at the end, which is cheap
	primaries int
	copies    int // units that it follows, or is to follow; former and leaving ones are not counted
	// copiesOn counts, by node, the following copies of the units whose primary
	// this is (C2).
	copiesOn btree.Map[NodeName, int]
	list     Revision // ListRevision

	generation uint64
}

// seatKey orders a node's units: by the entry that created them, then by
// bucket.
type seatKey uint64

// seatKeyOf leaves 47 bits to the revision: a group would have to take a
// million entries a second for four years to need more.
func seatKeyOf(p *Placed) seatKey {
	_, bucket, _ := p.Unit.Split()
	return seatKey(uint64(p.ID)<<bucketBits | uint64(bucket))
}

// bucketBits is how many bits of a seatKey are the bucket's.
const bucketBits = 17

// degree is that of the large trees. After a snapshot the first write to a
// part of a tree copies the nodes on the way there: small nodes are less to
// copy and to collect, large ones are fewer to pass.
const degree = 16

// New returns the empty directory, at revision 0 and without a scope.
func New() *State {
	return &State{level: 1, tenants: *btree.NewMap[TenantName, *tenancy](degree)}
}

// Snapshot returns this state as it is now, read-only, in O(1) whatever its
// size. It shares structure with s, which may go on being applied to. It is
// called by the goroutine that applies; on a snapshot it returns the snapshot.
func (s *State) Snapshot() *State {
	if s.readOnly {
		return s
	}
	c := *s
	c.members = *s.members.Copy()
	c.nodes = *s.nodes.Copy()
	c.tenants = *s.tenants.Copy()
	c.buckets = *s.buckets.Copy()
	c.regions = *s.regions.Copy()
	c.jobs = *s.jobs.Copy()
	c.running = *s.running.Copy()
	c.ended = *s.ended.Copy()
	c.moves = *s.moves.Copy()
	c.tasks = *s.tasks.Copy()
	c.intakes = *s.intakes.Copy()
	c.nodesIn = *s.nodesIn.Copy()
	c.staged = s.staged.copied()
	c.requests = *s.requests.Copy()
	c.answered = *s.answered.Copy()
	c.readOnly = true
	s.generation++
	return &c
}

// Revision is that of the last entry that was applied, 0 for none.
func (s *State) Revision() Revision { return s.revision }

// Now is the greatest time of an entry that was applied.
func (s *State) Now() Millis { return s.now }

// Level is the newest command version that every member knew when the last of
// them was recorded; it never falls. A command whose MinVersion is above it is
// not proposed.
func (s *State) Level() uint32 { return s.level }

// Scope tells whose directory this is; false before Bootstrap.
func (s *State) Scope() (Scope, bool) { return s.scope, s.scope.Cluster != "" }

// Settings are the group's settings.
func (s *State) Settings() Settings { return s.settings }

// Node gives the record of a node.
func (s *State) Node(name NodeName) (*Node, bool) {
	if e, ok := s.nodes.Get(name); ok {
		return e.node, true
	}
	return nil, false
}

// Nodes yields the nodes by name.
func (s *State) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		s.nodes.Scan(func(_ NodeName, e *seat) bool { return yield(e.node) })
	}
}

// NodeHolds counts the units whose primary is placed on a node, in any state,
// and those that it follows or is to follow. Copies that are former or leaving
// are in neither number; HeldBy yields them.
func (s *State) NodeHolds(name NodeName) (primaries, copies int) {
	if e, ok := s.nodes.Get(name); ok {
		return e.primaries, e.copies
	}
	return 0, 0
}

// HeldBy yields the units whose primary or a copy is placed on a node, in any
// state of either, in the order in which they were created.
func (s *State) HeldBy(name NodeName) iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		if e, ok := s.nodes.Get(name); ok {
			e.units.Scan(func(_ seatKey, p *Placed) bool { return yield(p) })
		}
	}
}

// HeldAfter yields those of HeldBy that were created after the unit of that id.
func (s *State) HeldAfter(name NodeName, id UnitID) iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		if e, ok := s.nodes.Get(name); ok {
			e.units.Ascend((seatKey(id)+1)<<bucketBits, func(_ seatKey, p *Placed) bool { return yield(p) })
		}
	}
}

// Grantable yields, in the order in which they were created, the units that a
// grant to a node names: whose primary it is, promoted, and that are not being
// removed (architecture §3.5.9).
func (s *State) Grantable(name NodeName) iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		for p := range s.HeldBy(name) {
			if p.Node == name && p.grantable() && !yield(p) {
				return
			}
		}
	}
}

func (p *Placed) grantable() bool {
	return p.Node != "" && p.State != UnitDeleting && p.State != UnitReceiving && p.State != UnitSent && p.Promoted()
}

// ListRevision is that of the entry that last changed what a grant to a node
// must say: the units that it names (Grantable), which of their copies follow,
// which of those count, and the addresses of those copies' nodes. It is the same
// on every server and under every leader, and so can name the list; 0 for a node
// that is not recorded. Below level 2 it stands still.
func (s *State) ListRevision(name NodeName) Revision {
	if e, ok := s.nodes.Get(name); ok {
		return e.list
	}
	return 0
}

// StandbyOf tells whose standby a node is.
func (s *State) StandbyOf(name NodeName) (NodeName, bool) {
	e, ok := s.nodes.Get(name)
	if !ok {
		return "", false
	}
	return e.standbyOf, e.standbyOf != ""
}

// Tenant gives the record of a tenant, whatever the state of its units.
func (s *State) Tenant(name TenantName) (*Tenant, bool) {
	if t, ok := s.tenants.Get(name); ok {
		return t.tenant, true
	}
	return nil, false
}

// CountTenants counts the tenants, whatever the state of their units.
func (s *State) CountTenants() int { return s.tenants.Len() }

// Tenants yields, by name, the tenants whose name begins with prefix and comes
// after after ("" for all).
func (s *State) Tenants(prefix string, after TenantName) iter.Seq[*Tenant] {
	return func(yield func(*Tenant) bool) {
		from := max(TenantName(prefix), after)
		s.tenants.Ascend(from, func(name TenantName, t *tenancy) bool {
			if after != "" && name == after {
				return true
			}
			if len(name) < len(prefix) || string(name[:len(prefix)]) != prefix {
				return false
			}
			return yield(t.tenant)
		})
	}
}

// Placements yields, by name, each tenant with its unit, or with nil when it is
// not one unit.
func (s *State) Placements() iter.Seq2[*Tenant, *Placed] {
	return func(yield func(*Tenant, *Placed) bool) {
		s.tenants.Scan(func(_ TenantName, t *tenancy) bool { return yield(t.tenant, t.unit) })
	}
}

// TenantUnits yields a tenant's units, by bucket for one that has buckets; none
// for a tenant whose home is another directory.
func (s *State) TenantUnits(name TenantName) iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		t, ok := s.tenants.Get(name)
		if !ok {
			return
		}
		if t.unit != nil {
			yield(t.unit)
			return
		}
		for b := uint32(1); b <= t.tenant.Buckets; b++ {
			if p, ok := s.buckets.Get(Unit(name, b)); ok && !yield(p) {
				return
			}
		}
	}
}

// TenantRegion is the region where a tenant lives: its home, or that of the
// node of its unit (T1); for a tenant with buckets the first one's.
func (s *State) TenantRegion(name TenantName) (RegionName, bool) {
	t, ok := s.tenants.Get(name)
	if !ok {
		return "", false
	}
	if t.tenant.HasHome {
		return t.tenant.Home, true
	}
	for p := range s.TenantUnits(name) {
		if n, ok := s.Node(p.Node); ok {
			return n.Region, true
		}
		for _, c := range p.Copies { // its node was written off while it is removed
			if n, ok := s.Node(c.Node); ok {
				return n.Region, true
			}
		}
	}
	return "", false
}

// Placed gives the record of a unit, in any state.
func (s *State) Placed(u UnitName) (*Placed, bool) {
	if t, ok := s.tenants.Get(TenantName(u)); ok {
		return t.unit, t.unit != nil
	}
	return s.buckets.Get(u)
}

// Job gives a running job, or an ended one that is still kept.
func (s *State) Job(id JobID) (*Job, bool) { return s.jobs.Get(id) }

// Jobs yields all jobs that are kept, running and ended, by id.
func (s *State) Jobs() iter.Seq[*Job] { return values(&s.jobs) }

// RunningJobs yields the jobs that have not ended, by id.
func (s *State) RunningJobs() iter.Seq[*Job] { return values(&s.running) }

// JobsBegun yields the jobs that began after a revision and are kept, by id, and JobsEnded
// those that ended after it, as they did.
func (s *State) JobsBegun(after Revision) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		s.jobs.Ascend(JobID(after+1), func(_ JobID, j *Job) bool { return yield(j) })
	}
}

// JobsEnded is told of at JobsBegun.
func (s *State) JobsEnded(after Revision) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		s.ended.Ascend(after+1, func(_ Revision, id JobID) bool {
			j, ok := s.jobs.Get(id)
			return !ok || yield(j)
		})
	}
}

// JobsNewest yields the jobs before an id that are kept, the newest first.
func (s *State) JobsNewest(before JobID) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		s.jobs.Descend(before-1, func(_ JobID, j *Job) bool { return yield(j) })
	}
}

// Member gives the record of a server of the group.
func (s *State) Member(id MemberID) (*Member, bool) { return s.members.Get(id) }

// Members yields the servers of the group by id.
func (s *State) Members() iter.Seq[*Member] { return values(&s.members) }

// Region gives the record of a region that keeps its own directory.
func (s *State) Region(name RegionName) (*Region, bool) { return s.regions.Get(name) }

// Regions yields, by name, the regions that keep their own directory.
func (s *State) Regions() iter.Seq[*Region] { return values(&s.regions) }

// Request gives what is remembered of an Idempotency-Key. It may have expired
// (RequestsKept, RequestAge): only Apply decides whether it counts.
func (s *State) Request(key string) (*Request, bool) { return s.requests.Get(key) }

func values[K ~string | ~uint64, V any](m *btree.Map[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		m.Scan(func(_ K, v V) bool { return yield(v) })
	}
}
