package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// build makes a state of records, and gives the first error.
func build(nodes []*fsm.Node, add func(*fsm.Builder) error) (*fsm.State, error) {
	b, err := fsm.NewBuilder(fsm.Meta{Revision: 100, Level: 1, Scope: fsm.Scope{Cluster: "c", History: 1}})
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if err := b.AddNode(n, 0); err != nil {
			return nil, err
		}
	}
	if err := add(b); err != nil {
		return nil, err
	}
	return b.State()
}

func node(name fsm.NodeName, region fsm.RegionName) *fsm.Node {
	return &fsm.Node{ID: 1, Name: name, Addr: "a:1", Token: "t", Region: region, Weight: 1}
}

func bucket(b uint32, on, copy fsm.NodeName) *fsm.Placed {
	return &fsm.Placed{
		ID: 5, Unit: fsm.Unit("wide", b), Node: on, State: fsm.UnitActive, Epoch: 1,
		Copies: []fsm.Copy{{Node: copy, State: fsm.CopyInSync}},
	}
}

// The records hold what later commands will make: buckets, copies and homes.
func TestBucketsCopiesAndHomesAreKept(t *testing.T) {
	const buckets = 12
	s, err := build([]*fsm.Node{node("n1", "eu"), node("n2", "eu")}, func(b *fsm.Builder) error {
		if err := b.AddRegion(&fsm.Region{Name: "us", Routers: []string{"http://r1:8090"}}); err != nil {
			return err
		}
		if err := b.AddTenant(&fsm.Tenant{Name: "away", Home: "us", HasHome: true, Claim: 3}, nil); err != nil {
			return err
		}
		if err := b.AddTenant(&fsm.Tenant{Name: "wide", Buckets: buckets, Hash: fsm.HashMPCRC32}, nil); err != nil {
			return err
		}
		units := make([]*fsm.Placed, buckets)
		for i := range units {
			units[i] = bucket(uint32(i+1), "n1", "n2")
		}
		slices.SortFunc(units, func(a, b *fsm.Placed) int { return strings.Compare(string(a.Unit), string(b.Unit)) })
		for _, p := range units {
			if err := b.AddUnit(p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, c := s.NodeHolds("n2"); p != 0 || c != buckets {
		t.Errorf("n2 holds %d primaries and %d copies", p, c)
	}
	v, d := fsm.NewView(), &dir{State: s, t: t}
	if err := v.Apply(0, 100, slices.Collect(fsm.Project(s))); err != nil {
		t.Fatal(err)
	}
	if _, units, tenants, _ := v.Counts(); units != buckets || tenants != 2 {
		t.Errorf("a view of %d units and %d tenants", units, tenants)
	}
	d.refused(fsm.CodeRegionElsewhere, &fsm.SetPin{Tenant: "away", Pinned: true})
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "n2"}, "a copy of wide.1")
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n2", Region: ptr(fsm.RegionName("us"))}, "wide.1")
	job := d.ok(&fsm.DeleteTenant{Name: "wide"}).Job
	if j, _ := d.Job(job); len(j.Targets) != 2*buckets || len(d.events) != buckets+1 {
		t.Errorf("%d targets, %d events", len(j.Targets), len(d.events))
	}
	if err := v.Apply(100, d.Revision(), d.events); err != nil || !v.Equal(projection(t, s)) {
		t.Errorf("the events do not tell what changed: %v", err)
	}
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepRemove, To: fsm.StepDone})
	d.ok(&fsm.DeleteNode{Name: "n2"})
}

// Check finds each of these, so that a snapshot that holds one is refused.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	three := []*fsm.Node{node("n1", "eu"), node("n2", "eu"), node("n3", "us")}
	active := func(change func(*fsm.Placed)) func(*fsm.Builder) error {
		p := &fsm.Placed{ID: 2, Unit: "a", Node: "n1", State: fsm.UnitActive, Epoch: 1}
		change(p)
		return func(b *fsm.Builder) error { return b.AddTenant(&fsm.Tenant{Name: "a"}, p) }
	}
	copies := func(c ...fsm.Copy) func(*fsm.Placed) { return func(p *fsm.Placed) { p.Copies = c } }
	job := func(j fsm.Job, state fsm.UnitState) func(*fsm.Builder) error {
		return func(b *fsm.Builder) error {
			err := active(func(p *fsm.Placed) { p.State, p.Job = state, 9 })(b)
			if err == nil {
				err = b.AddJob(&j)
			}
			return err
		}
	}
	good := fsm.Job{ID: 9, Kind: fsm.JobCreate, Tenant: "a", Step: fsm.StepMake, Targets: []fsm.Target{{Unit: "a", ID: 2, Node: "n1"}}}
	with := func(change func(*fsm.Job)) fsm.Job { j := good; change(&j); return j }
	if _, err := build(three, job(good, fsm.UnitCreating)); err != nil {
		t.Fatal(err)
	}
	for name, add := range map[string]func(*fsm.Builder) error{
		"a unit on no node":           active(func(p *fsm.Placed) { p.Node = "n9" }),
		"a unit without an id":        active(func(p *fsm.Placed) { p.ID = 0 }),
		"a unit of a later revision":  active(func(p *fsm.Placed) { p.ID = 101 }),
		"a unit of another name":      active(func(p *fsm.Placed) { p.Unit = "b" }),
		"a unit in no state":          active(func(p *fsm.Placed) { p.State = 9 }),
		"a copy beside its primary":   active(copies(fsm.Copy{Node: "n1", State: fsm.CopySyncing})),
		"a copy in another region":    active(copies(fsm.Copy{Node: "n3", State: fsm.CopySyncing})),
		"a copy twice":                active(copies(fsm.Copy{Node: "n2", State: fsm.CopySyncing}, fsm.Copy{Node: "n2", State: fsm.CopySyncing})),
		"an active unit at a job":     job(good, fsm.UnitActive),
		"a deleting unit at a create": job(good, fsm.UnitDeleting),
		"a job of another tenant":     job(with(func(j *fsm.Job) { j.Tenant = "b" }), fsm.UnitCreating),
		"a job at no step of its own": job(with(func(j *fsm.Job) { j.Step = fsm.StepRemove }), fsm.UnitCreating),
		"a job on another node":       job(with(func(j *fsm.Job) { j.Targets = []fsm.Target{{Unit: "a", ID: 2, Node: "n2"}} }), fsm.UnitCreating),
		"an undo without a reason":    job(with(func(j *fsm.Job) { j.Step = fsm.StepUndo }), fsm.UnitCreating),
		"a creating unit without job": active(func(p *fsm.Placed) { p.State = fsm.UnitCreating }),
		"an orphan job":               func(b *fsm.Builder) error { return b.AddJob(&good) },
		"a tenant without its unit":   func(b *fsm.Builder) error { return b.AddTenant(&fsm.Tenant{Name: "a"}, nil) },
		"a bucket without tenant":     func(b *fsm.Builder) error { return b.AddUnit(bucket(1, "n1", "n2")) },
		"a bucket too few": func(b *fsm.Builder) error {
			if err := b.AddTenant(&fsm.Tenant{Name: "wide", Buckets: 2}, nil); err != nil {
				return err
			}
			return b.AddUnit(bucket(1, "n1", "n2"))
		},
		"too many buckets": func(b *fsm.Builder) error {
			return b.AddTenant(&fsm.Tenant{Name: "wide", Buckets: fsm.MaxBuckets + 1}, nil)
		},
		"nodes out of order":         func(b *fsm.Builder) error { return b.AddNode(node("n0", "eu"), 0) },
		"a standby in another place": func(b *fsm.Builder) error { n := node("n4", "eu"); n.Standby = "n3"; return b.AddNode(n, 0) },
		"a standby that is not": func(b *fsm.Builder) error {
			n := node("n4", "eu")
			n.Standby = "n9"
			return b.AddNode(n, 0)
		},
		"a key twice": func(b *fsm.Builder) error {
			return fmt.Errorf("%v%v", b.AddRequest(&fsm.Request{Key: "k", Revision: 1}), b.AddRequest(&fsm.Request{Key: "k", Revision: 2}))
		},
	} {
		if _, err := build(three, add); err == nil {
			t.Errorf("%s was not found", name)
		}
	}
	if _, err := fsm.NewBuilder(fsm.Meta{Level: fsm.Version + 1}); err == nil {
		t.Error("a directory of a newer version was taken")
	}
}
