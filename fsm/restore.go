package fsm

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/tidwall/btree"
)

// MaxBuckets is the greatest number of a tenant's buckets.
const MaxBuckets = 1 << 16

// Meta is what a state holds beside its records.
type Meta struct {
	Revision Revision
	Now      Millis
	Level    uint32
	Scope    Scope
	Settings Settings
	// RecountAt is the tenant from which on Placed.Lacks is still to be brought
	// up to date after the settings have changed, or "".
	RecountAt TenantName
	Recovery  *Recovery // the last one, or nil
	Upstream  Upstream
	// Abroad is at or above the revisions in epochs that units brought from other
	// directories.
	Abroad Revision
}

// Meta gives what s holds beside its records.
func (s *State) Meta() Meta {
	return Meta{Revision: s.revision, Now: s.now, Level: s.level, Scope: s.scope, Settings: s.settings, RecountAt: s.recountAt, Recovery: s.recovery,
		Upstream: s.upstream, Abroad: s.abroad}
}

// BucketUnits yields, by name, the units of tenants that have buckets.
func (s *State) BucketUnits() iter.Seq[*Placed] { return values(&s.buckets) }

// allUnits yields every unit: of whole tenants, then of those with buckets.
func (s *State) allUnits() iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		for _, p := range s.Placements() {
			if p != nil && !yield(p) {
				return
			}
		}
		for p := range s.BucketUnits() {
			if !yield(p) {
				return
			}
		}
	}
}

// Requests yields what is remembered of Idempotency-Keys, by revision.
func (s *State) Requests() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		s.answered.Scan(func(_ Revision, key string) bool {
			q, _ := s.requests.Get(key)
			return yield(q)
		})
	}
}

// CountRecords counts the records of s: members, regions, nodes, tenants,
// units of buckets, jobs, tasks, requests, intakes, and what is staged.
func (s *State) CountRecords() int {
	return s.members.Len() + s.regions.Len() + s.nodes.Len() + s.tenants.Len() +
		s.buckets.Len() + s.jobs.Len() + s.tasks.Len() + s.requests.Len() + s.intakes.Len() + s.staged.nodes.Len() + s.staged.tenants.Len()
}

// Builder makes a State of its records, as a snapshot holds them. Records of a
// kind are added in the order of their keys, and nodes before what is placed
// on them; a record that is out of order, or refers to a node that is not
// there, is an error.
type Builder struct{ s *State }

// NewBuilder begins a state. It fails for one of a level that this binary does
// not know.
func NewBuilder(m Meta) (*Builder, error) {
	if m.Level > Version {
		return nil, fmt.Errorf("the directory is of command version %d and this binary knows %d: start a newer one", m.Level, Version)
	}
	s := New()
	s.revision, s.now, s.level, s.scope, s.settings, s.recountAt = m.Revision, m.Now, m.Level, m.Scope, m.Settings, m.RecountAt
	s.recovery, s.upstream, s.abroad = m.Recovery, m.Upstream, m.Abroad
	return &Builder{s}, nil
}

// load adds a record behind the last one of its tree.
func load[K cmp.Ordered, V any](m *btree.Map[K, V], k K, v V) error {
	if last, _, any := m.Max(); any && k <= last {
		return fmt.Errorf("record %v comes after %v", k, last)
	}
	m.Load(k, v)
	return nil
}

// AddMember adds a server of the group.
func (b *Builder) AddMember(m *Member) error { return load(&b.s.members, m.ID, m) }

// AddRegion adds a region that keeps its own directory.
func (b *Builder) AddRegion(r *Region) error { return load(&b.s.regions, r.Name, r) }

// AddNode adds a node and the revision of its list (State.ListRevision).
func (b *Builder) AddNode(n *Node, list Revision) error {
	b.s.countNode(n.Region, 1)
	return load(&b.s.nodes, n.Name, &seat{node: n, list: list, units: *btree.NewMap[seatKey, *Placed](degree)})
}

// AddTenant adds a tenant, with its unit when it is one unit.
func (b *Builder) AddTenant(t *Tenant, unit *Placed) error {
	if t.Buckets > MaxBuckets {
		return fmt.Errorf("tenant %s has %d buckets", t.Name, t.Buckets)
	}
	if err := load(&b.s.tenants, t.Name, &tenancy{t, unit}); err != nil || unit == nil {
		return err
	}
	return b.seat(unit)
}

// AddUnit adds a unit of a tenant with buckets.
func (b *Builder) AddUnit(p *Placed) error {
	if err := load(&b.s.buckets, p.Unit, p); err != nil {
		return err
	}
	return b.seat(p)
}

// seat tells the nodes of a unit that they hold it.
func (b *Builder) seat(p *Placed) error {
	if _, ok := b.s.nodes.Get(p.Node); !ok && p.Node != "" {
		return fmt.Errorf("unit %s is on node %s, which is not recorded", p.Unit, p.Node)
	}
	for _, c := range p.Copies {
		if _, ok := b.s.nodes.Get(c.Node); !ok {
			return fmt.Errorf("a copy of unit %s is on node %s, which is not recorded", p.Unit, c.Node)
		}
	}
	b.s.stand(p, p, 1)
	return nil
}

// AddJob adds a job, running or ended.
func (b *Builder) AddJob(j *Job) error {
	if err := load(&b.s.jobs, j.ID, j); err != nil {
		return err
	}
	if j.EndedIn == 0 {
		if j.Kind == JobMove && len(j.Targets) != 1 {
			return fmt.Errorf("job %d moves %d units", j.ID, len(j.Targets))
		}
		b.s.running.Load(j.ID, j)
		b.s.indexMove(j)
		b.s.indexGive(j)
		return nil
	}
	if _, taken := b.s.ended.Set(j.EndedIn, j.ID); taken {
		return fmt.Errorf("two jobs ended in entry %d", j.EndedIn)
	}
	return nil
}

// AddTask adds this group's part of a job of the global group.
func (b *Builder) AddTask(t *Task) error { return load(&b.s.tasks, t.Job, t) }

// AddIntake adds what is known of a region that was given to the directory; AddStagedNode
// and AddStagedTenant what the open one was told of.
func (b *Builder) AddIntake(i *Intake) error { return load(&b.s.intakes, i.Authority, i) }

// AddStagedNode is told of at AddIntake.
func (b *Builder) AddStagedNode(n *Node) error { return load(&b.s.staged.nodes, n.Name, n) }

// AddStagedTenant is told of at AddIntake.
func (b *Builder) AddStagedTenant(t *Tenant, unit *Placed) error {
	if unit == nil {
		return fmt.Errorf("tenant %s is staged without its unit", t.Name)
	}
	return load(&b.s.staged.tenants, t.Name, &tenancy{t, unit})
}

// AddRequest adds what is remembered of an Idempotency-Key; these come by
// their revisions.
func (b *Builder) AddRequest(q *Request) error {
	if _, taken := b.s.requests.Set(q.Key, q); taken {
		return fmt.Errorf("key of entry %d is there twice", q.Revision)
	}
	return load(&b.s.answered, q.Revision, q.Key)
}

// State ends the building and gives the state, if every invariant holds.
func (b *Builder) State() (*State, error) {
	b.s.nodes.Scan(func(name NodeName, e *seat) bool {
		if of, ok := b.s.nodes.Get(e.node.Standby); ok {
			of.standbyOf = name
		}
		return true
	})
	if err := Check(b.s); err != nil {
		return nil, err
	}
	return b.s, nil
}
