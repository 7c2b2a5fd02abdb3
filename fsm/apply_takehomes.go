package fsm

import "slices"

// While the global directory is recovered, the regions that keep their own directories
// are read as nodes are: where a tenant lives is what they say, whatever an older
// directory says of it (I1).

// endHomedJobs ends, before a recovery, the jobs of the global group that are done by
// regions. What they had come to since is not known; what the regions have counts.
func (s *State) endHomedJobs(now Millis) {
	c := change{State: s, at: s.revision}
	for _, j := range slices.Collect(s.RunningJobs()) {
		if j.Kind != JobRelocate && (j.Home == "" || j.Kind != JobCreate && j.Kind != JobDelete) {
			continue
		}
		c.at++ // below the first revision of the new history; no two jobs end in one
		next := *j
		next.Problem, next.Schema, next.Refusal = "", "", refuse(CodeRecovering, "the directory was recovered while this was under way: look where the tenant is", "tenant", string(j.Tenant))
		next.Step, next.Ended, next.EndedIn = StepDone, max(now, s.now), c.at
		s.endJob(&next)
		s.settle(&next, refused(next.Refusal))
		t, ok := s.Tenant(j.Tenant)
		switch {
		case !ok || t.Job != j.ID:
		case t.Reserved:
			s.dropTenant(t.Name)
		default:
			c.free(t)
		}
	}
}

// decides reports whether a recovery of this directory decides about a unit that was given
// up to another one. In a region's the global directory does.
func (s *State) decides(p *Placed) bool { return p.State == UnitSent && s.scope.Region == "" }

// AtWork reports whether a job to create, delete, depart or receive a tenant's unit is
// under way in this directory. A TakeOver ends one of these at most.
func (s *State) AtWork(name TenantName) bool { return s.workOn(name) != nil }

func (s *State) workOn(name TenantName) *Job {
	p, ok := s.Placed(UnitName(name))
	if !ok {
		return nil
	}
	j, ok := s.running.Get(p.Job)
	if !ok {
		j, ok = s.moves.Get(p.Unit)
	}
	if ok && (j.Kind == JobCreate || j.Kind == JobDelete || j.Kind == JobDepart || j.Kind == JobReceive) {
		return j
	}
	return nil
}

// toTakeHome gives the tenants that a TakeOver says the home of, once it is certain that
// it can be done for all of them, and how many jobs may end with it.
func (c *change) toTakeHome(cmd *TakeOver) (homes map[TenantName]bool, ends int, r *Refusal) {
	homes = make(map[TenantName]bool, len(cmd.Homes)) // looked up only
	before := cmd.After
	for i := range cmd.Homes {
		h := &cmd.Homes[i]
		if !ValidName(string(h.Tenant)) || h.Tenant <= before || cmd.Upto != "" && h.Tenant > cmd.Upto || c.scope.Region != "" {
			return nil, 0, refuse(CodeBadRequest, "homes are told by the global directory's recovery, in the order of names, of the tenants that are next")
		}
		if r := c.mayTakeHome(h); r != nil {
			return nil, 0, r
		}
		before = h.Tenant
		homes[h.Tenant] = true
	}
	for t := range c.Tenants("", cmd.After) {
		if cmd.Upto != "" && t.Name > cmd.Upto {
			break
		}
		if t.HasHome && !homes[t.Name] && !c.recovery.WithoutRegion(t.Home) {
			return nil, 0, refuse(CodeStale, "tenant "+string(t.Name)+" was not looked for in its region, "+string(t.Home), "tenant", string(t.Name), "region", string(t.Home))
		}
		if j := c.workOn(t.Name); j != nil && c.scope.Region == "" && (homes[t.Name] || c.stillHere(t, j)) {
			ends++
		}
	}
	return homes, ends, nil
}

func (c *change) mayTakeHome(h *TakenHome) *Refusal {
	e, known := c.tenants.Get(h.Tenant)
	_, recorded := c.regions.Get(h.Home)
	switch {
	case h.Home != "" && !recorded:
		return refuse(CodeRegionUnknown, "region "+clip(string(h.Home))+" is not recorded as one that keeps its own directory", "region", clip(string(h.Home)))
	case h.Home == "" && (!known || !e.tenant.HasHome):
		return refuse(CodeBadRequest, "only a tenant with a home is found to be gone, or here without being known here", "tenant", string(h.Tenant))
	case h.Home == "" && h.Node == "":
		return nil
	case h.ID == 0 || h.ID > maxID || Revision(h.ID) > c.recovery.ID || h.Home != "" && h.Node != "" || known && e.tenant.Buckets > 0:
		return refuse(CodeBadRequest, "no tenant was found so", "tenant", string(h.Tenant))
	case h.Home != "":
		return nil
	case generation(h.Epoch) >= maxGeneration || c.holdsOther(h):
		return refuse(CodeBadRequest, "a unit of that id is another tenant's", "tenant", string(h.Tenant))
	}
	bare := &Placed{ID: h.ID, Unit: UnitName(h.Tenant)}
	return c.mayTake(bare, &TakenUnit{UnitRef: bare.ref(), Node: h.Node, Others: h.Others})
}

// holdsOther reports whether a node holds, by this directory, a unit of another tenant
// under the id.
func (c *change) holdsOther(h *TakenHome) bool {
	for _, n := range append([]NodeName{h.Node}, h.Others...) {
		for p := range c.HeldAfter(n, h.ID-1) {
			if p.ID == h.ID && p.Unit != UnitName(h.Tenant) {
				return true
			}
			break
		}
	}
	return false
}

func (c *change) takeHomes(r *Recovery, homes []TakenHome) {
	for i := range homes {
		h := &homes[i]
		e, _ := c.tenants.Get(h.Tenant)
		switch {
		case h.Home != "":
			c.takeHome(r, h, e)
		case h.Node != "":
			c.takeHere(r, h, e)
		default:
			c.staysAway(r, e.tenant)
		}
	}
}

// staysAway leaves a tenant that no region tells of where this directory has it, and names
// it to the operator: it was deleted since, or its region knows less than this directory.
func (c *change) staysAway(r *Recovery, t *Tenant) {
	if j := c.workOn(t.Name); j != nil && j.Kind == JobReceive {
		if r.WithoutRegion(t.Home) { // it may be all that there is
			c.endFor(j)
			c.putTenant(t, nil)
			return
		}
		c.forgoReceive(j, foundElsewhere(t.Name))
	}
	if _, given := c.staged.tenants.Get(t.Name); given || r.WithoutRegion(t.Home) {
		return
	}
	r.Lost++
	if len(r.LostUnits) < LostKept {
		r.LostUnits = append(r.LostUnits, UnitRef{UnitName(t.Name), t.Claim})
	}
}

// takeHome gives a tenant its home in the region that has it. e is what this directory had
// of the name, or nil.
func (c *change) takeHome(r *Recovery, h *TakenHome, e *tenancy) {
	t := Tenant{Name: h.Tenant, Created: c.now}
	if e != nil {
		t = *e.tenant
	}
	told := h.Epoch != 0
	if t.HasHome && t.Home == h.Home && t.Claim == h.ID {
		c.goesOn(e, &t, told)
		return
	}
	r.Rehomed++
	t.HasHome, t.Home, t.Claim, t.Job, t.Reserved = true, h.Home, h.ID, 0, false
	c.goesOn(e, &t, told)
	c.events = append(c.events, Event{Tenant: t.info()})
}

// goesOn records a tenant as t, and has what this directory's nodes hold of it go: by the
// job that brought it here, or, once it is certain that it is promoted where it lives
// (Unsettled), by the one that is to remove it. What no such job is about is left to an
// operator, as what no entry knows of is; so is what was received where the region that is the
// tenant's home has not told of it: it may be all that there is.
func (c *change) goesOn(e *tenancy, t *Tenant, told bool) {
	if e == nil {
		c.putTenant(t, nil)
		return
	}
	j, p := c.workOn(e.tenant.Name), e.unit
	if p != nil && p.served() {
		c.events = append(c.events, Event{UnitGone: p.Unit})
	}
	if removes := e.tenant.HasHome && j != nil && t.Claim == p.ID && (told || j.Kind == JobDepart); !removes {
		if j != nil {
			c.endFor(j)
		}
		c.putTenant(t, nil)
		return
	}
	c.putTenant(t, p)
	if j.Kind == JobReceive {
		c.forgoReceive(j, foundElsewhere(t.Name))
	}
}

func foundElsewhere(t TenantName) *Refusal {
	return refuse(CodeRecovering, "the tenant was found elsewhere in a recovery of the directory", "tenant", string(t))
}

// endFor ends a job, and the task that it is for, as a recovery has found out what came of
// it.
func (c *change) endFor(j *Job) {
	next := *j
	next.Problem, next.Schema, next.Other = "", "", nil
	if next.Refusal == nil {
		next.Refusal = refuse(CodeRecovering, "the directory was recovered while this was under way", "tenant", string(j.Tenant))
	}
	c.endLocal(&next)
	c.settle(&next, refused(next.Refusal))
}

// takeHere takes a tenant over that has come to this directory's nodes since.
func (c *change) takeHere(r *Recovery, h *TakenHome, e *tenancy) {
	r.Rehomed++
	if j := c.workOn(h.Tenant); j != nil {
		c.endFor(j)
	}
	t := *e.tenant
	t.HasHome, t.Home, t.Claim, t.Job, t.Reserved = false, "", 0, 0, false
	c.events = append(c.events, Event{TenantGone: h.Tenant})
	c.found(&t, &Placed{ID: h.ID, Unit: UnitName(h.Tenant), Node: h.Node}, h.Others, h.Epoch)
}

// found records a unit that nodes were found to hold, and no entry knew of, as a tenant's.
func (c *change) found(t *Tenant, bare *Placed, others []NodeName, epoch uint64) *Placed {
	p := &Placed{ID: bare.ID, Unit: bare.Unit, Node: bare.Node, State: UnitActive, Epoch: c.epochAbove(epoch), Previous: bare.Node}
	p.Copies = c.copiesFound(bare, bare.Node, others)
	p = c.count(p)
	c.putTenant(t, p)
	c.events = append(c.events, Event{Unit: p.info()})
	return p
}

// stays ends a depart of a tenant that was taken over here: the job that it was a task of
// has ended.
func (c *change) stays(name TenantName) {
	t, _ := c.Tenant(name)
	if j := c.workOn(name); j != nil && c.scope.Region == "" && c.stillHere(t, j) {
		c.endFor(j)
	}
}

// stillHere reports whether the work on a tenant of this directory's own is to depart, which
// ends with a recovery. What is left of one that was deleted goes on being removed.
func (c *change) stillHere(t *Tenant, j *Job) bool {
	return j.Kind == JobDepart && !t.HasHome && j.Step != StepRemove
}
