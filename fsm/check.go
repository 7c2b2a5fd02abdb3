package fsm

import (
	"fmt"
	"slices"
)

// Check tells of the first invariant that does not hold in s, or nil. It reads
// all of s: it is for tests, for a state that was just read from a snapshot,
// and for an operator's word.
func Check(s *State) error {
	for _, check := range []func(*State) error{
		checkGroup, checkRecovery, checkNodes, checkTenants, checkSeats, checkLists, checkJobs, checkTasks, checkAdopt, checkRequests,
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
	if s.recountAt != "" && !ValidName(string(s.recountAt)) {
		return fmt.Errorf("a count stands at %q", s.recountAt)
	}
	if s.level >= levelCopies && s.settings.LongestLease < s.settings.AutoFailover {
		return fmt.Errorf("leases of %d ms, the longest of %d ms", s.settings.AutoFailover, s.settings.LongestLease)
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
			n.Addr == "" || n.Token == "" || n.ID == 0 || Revision(n.ID) > s.revision || n.Lease > LeaseNone {
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
			if !ok || of.node.Standby != name || e.primaries > 0 || n.Drain != nil {
				return fmt.Errorf("bad standby of %s, holding %d primaries, drained %v", e.standbyOf, e.primaries, n.Drain != nil)
			}
		}
		if d := n.Drain; d != nil && (d.ID == 0 || d.ID > s.revision || d.Since > s.now) {
			return fmt.Errorf("a drain of entry %d, begun at %d", d.ID, d.Since)
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
	if t.tenant.Name != name || !ValidName(string(name)) || len(t.tenant.Readers) > maxReaders || !slices.IsSorted(t.tenant.Readers) {
		return fmt.Errorf("bad record of a tenant")
	}
	want := int(t.tenant.Buckets)
	if want == 0 && !t.tenant.HasHome {
		want = 1
	}
	if err := checkHome(s, t); err != nil {
		return err
	}
	if t.tenant.HasHome && t.unit != nil {
		want = 1 // what is left of it, or comes
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
		together := p.State == UnitCreating || p.State == UnitDeleting
		if p.Unit != Unit(name, bucket) || together && (p.Job != units[0].Job || p.State != units[0].State) {
			return fmt.Errorf("unit %s at job %d", p.Unit, p.Job)
		}
		if err := checkUnit(s, name, p); err != nil {
			return err
		}
	}
	return nil
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

func checkRequests(s *State) error {
	if n := s.requests.Len(); n != s.answered.Len() || n > RequestsKept {
		return fmt.Errorf("%d requests, %d in order", n, s.answered.Len())
	}
	return each(s.answered.Scan, func(at Revision, key string) error {
		q, ok := s.requests.Get(key)
		return must(ok && q.Key == key && key != "" && q.Revision == at && at <= s.revision && q.At <= s.now, "request %q", key)
	})
}
