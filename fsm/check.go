package fsm

import (
	"cmp"
	"fmt"
	"slices"
)

// Check tells of the first invariant that does not hold in s, or nil. It reads
// all of s: it is for tests, for a state that was just read from a snapshot,
// and for an operator's word.
func Check(s *State) error {
	for _, check := range []func(*State) error{
		checkGroup, checkNodes, checkTenants, checkSeats, checkJobs, checkRequests,
	} {
		if err := check(s); err != nil {
			return fmt.Errorf("directory at revision %d: %w", s.revision, err)
		}
	}
	return nil
}

// each runs check on what seq yields and returns its first error, with the key.
func each[K, V any](scan func(func(K, V) bool), check func(K, V) error) (err error) {
	scan(func(k K, v V) bool {
		if e := check(k, v); e != nil {
			err = fmt.Errorf("%v: %w", k, e)
		}
		return err == nil
	})
	return err
}

// must returns an error made of text unless ok.
func must(ok bool, text string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(text, args...)
}

func checkGroup(s *State) error {
	if s.level < 1 || s.now < 0 || (s.scope.Cluster == "") != (s.scope.History == 0) {
		return fmt.Errorf("level %d, time %d, scope %+v", s.level, s.now, s.scope)
	}
	if r := s.settings.check(); r != nil {
		return r
	}
	err := each(s.members.Scan, func(id MemberID, m *Member) error {
		return must(m.ID == id && id != "" && m.Version >= s.level, "member %+v at level %d", *m, s.level)
	})
	if err != nil {
		return err
	}
	return each(s.regions.Scan, func(name RegionName, r *Region) error {
		return must(r.Name == name && validRegion(name) && len(r.Routers) > 0, "region %+v", *r)
	})
}

func checkNodes(s *State) error {
	return each(s.nodes.Scan, func(name NodeName, e *seat) error {
		n := e.node
		if n == nil || n.Name != name || !ValidName(string(name)) || n.Region != "" && !validRegion(n.Region) ||
			n.Addr == "" || n.Token == "" || n.ID == 0 || Revision(n.ID) > s.revision {
			return fmt.Errorf("bad record of a node")
		}
		if n.Standby != "" {
			sb, ok := s.nodes.Get(n.Standby)
			if !ok || n.Standby == name || sb.standbyOf != name || sb.node.Region != n.Region || sb.node.Standby != "" {
				return fmt.Errorf("bad pair with standby %s", n.Standby)
			}
		}
		if e.standbyOf != "" {
			of, ok := s.nodes.Get(e.standbyOf)
			if !ok || of.node.Standby != name || e.primaries > 0 {
				return fmt.Errorf("bad standby of %s, holding %d primaries", e.standbyOf, e.primaries)
			}
		}
		return nil
	})
}

func checkTenants(s *State) error {
	buckets := 0
	err := each(s.tenants.Scan, func(name TenantName, t *tenancy) error {
		buckets += int(t.tenant.Buckets)
		return checkTenant(s, name, t)
	})
	if err != nil {
		return err
	}
	return must(buckets == s.buckets.Len(), "%d units of buckets, %d expected", s.buckets.Len(), buckets)
}

func checkTenant(s *State, name TenantName, t *tenancy) error {
	if t.tenant.Name != name || !ValidName(string(name)) {
		return fmt.Errorf("bad record of a tenant")
	}
	want := int(t.tenant.Buckets)
	if want == 0 && !t.tenant.HasHome {
		want = 1
	}
	if t.tenant.HasHome && t.tenant.Buckets > 0 || (t.unit != nil) != (want == 1 && t.tenant.Buckets == 0) {
		return fmt.Errorf("units and record of a tenant disagree")
	}
	units := []*Placed{t.unit}
	if t.unit == nil {
		units = slices.Collect(s.TenantUnits(name))
	}
	if len(units) != want {
		return fmt.Errorf("%d units, %d expected", len(units), want)
	}
	for i, p := range units {
		bucket := uint32(0)
		if t.unit == nil {
			bucket = uint32(i) + 1
		}
		if p.Unit != Unit(name, bucket) || p.Job != units[0].Job {
			return fmt.Errorf("unit %s at job %d", p.Unit, p.Job)
		}
		if err := checkUnit(s, name, p); err != nil {
			return err
		}
	}
	return nil
}

func checkUnit(s *State, tenant TenantName, p *Placed) error {
	e, ok := s.nodes.Get(p.Node)
	if !ok || p.ID == 0 || Revision(p.ID) > s.revision || p.Epoch == 0 {
		return fmt.Errorf("bad placement on %s", p.Node)
	}
	for i, c := range p.Copies {
		other, ok := s.nodes.Get(c.Node)
		if !ok || c.Node == p.Node || i > 0 && p.Copies[i-1].Node >= c.Node || c.State != CopySyncing && c.State != CopyInSync {
			return fmt.Errorf("bad copy on %s", c.Node)
		}
		if other.node.Region != e.node.Region {
			return fmt.Errorf("copy on %s is outside of the region (I2)", c.Node)
		}
	}
	if p.State == UnitActive {
		return must(p.Job == 0, "an active unit is at job %d", p.Job)
	}
	j, ok := s.running.Get(p.Job)
	if !ok || j.Tenant != tenant {
		return fmt.Errorf("%s, at job %d that is not its own", p.State, p.Job)
	}
	ok = p.State == UnitCreating && j.Kind == JobCreate || p.State == UnitDeleting && j.Kind == JobDelete
	return must(ok, "%s, at a job to %s", p.State, j.Kind)
}

// checkSeats compares what nodes are said to hold with what is placed there.
func checkSeats(s *State) error {
	held := make(map[NodeName]*[2]int)
	count := func(n NodeName, p *Placed, copy int) error {
		if held[n] == nil {
			held[n] = new([2]int)
		}
		held[n][copy]++
		e, _ := s.nodes.Get(n)
		known, _ := e.units.Get(seatKeyOf(p))
		return must(known == p, "node %s does not know that it holds %s", n, p.Unit)
	}
	counts := func(p *Placed) error {
		err := count(p.Node, p, 0)
		for _, c := range p.Copies {
			err = cmp.Or(err, count(c.Node, p, 1))
		}
		return err
	}
	for _, p := range s.Placements() {
		if p != nil {
			if err := counts(p); err != nil {
				return err
			}
		}
	}
	for p := range s.BucketUnits() {
		if err := counts(p); err != nil {
			return err
		}
	}
	return each(s.nodes.Scan, func(name NodeName, e *seat) error {
		h := held[name]
		if h == nil {
			h = new([2]int)
		}
		return must(e.primaries == h[0] && e.copies == h[1] && e.units.Len() == h[0]+h[1],
			"said to hold %d primaries and %d copies, %d units; holds %d and %d",
			e.primaries, e.copies, e.units.Len(), h[0], h[1])
	})
}

func checkJobs(s *State) error {
	if n := s.running.Len() + s.ended.Len(); n != s.jobs.Len() || s.ended.Len() > JobsKept {
		return fmt.Errorf("%d jobs, %d running, %d ended", s.jobs.Len(), s.running.Len(), s.ended.Len())
	}
	err := each(s.ended.Scan, func(at Revision, id JobID) error {
		j, ok := s.jobs.Get(id)
		return must(ok && j.Step == StepDone && j.EndedIn == at && j.Schema == "" && at <= s.revision, "job %d", id)
	})
	if err != nil {
		return err
	}
	return each(s.running.Scan, func(id JobID, j *Job) error {
		if kept, ok := s.jobs.Get(id); !ok || kept != j || j.ID != id || Revision(id) > s.revision {
			return fmt.Errorf("bad record of a job")
		}
		return checkRunning(s, j)
	})
}

// checkRunning checks that a job is one that units are at, and works on all of
// them.
func checkRunning(s *State, j *Job) error {
	steps := map[JobKind][]JobStep{JobCreate: {StepMake, StepSchema, StepUndo}, JobDelete: {StepRemove}}[j.Kind]
	if !slices.Contains(steps, j.Step) || j.EndedIn != 0 || j.Ended != 0 || (j.Step == StepUndo) != (j.Refusal != nil) {
		return fmt.Errorf("a job to %s stands at %s", j.Kind, j.Step)
	}
	var want []Target
	for p := range s.TenantUnits(j.Tenant) {
		if p.Job != j.ID {
			return fmt.Errorf("unit %s is at job %d", p.Unit, p.Job)
		}
		want = append(want, Target{p.Unit, p.ID, p.Node})
		for _, c := range p.Copies {
			want = append(want, Target{p.Unit, p.ID, c.Node})
		}
	}
	slices.SortFunc(want, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Node, b.Node))
	})
	return must(len(want) > 0 && slices.Equal(want, j.Targets), "targets %v, units %v", j.Targets, want)
}

func checkRequests(s *State) error {
	if n := s.requests.Len(); n != s.answered.Len() || n > RequestsKept {
		return fmt.Errorf("%d requests, %d in order", n, s.answered.Len())
	}
	return each(s.answered.Scan, func(at Revision, key string) error {
		q, ok := s.requests.Get(key)
		return must(ok && q.Key == key && key != "" && q.Revision == at && at <= s.revision && q.At <= s.now, "request %q", key)
	})
}
