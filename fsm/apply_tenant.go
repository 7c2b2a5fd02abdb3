package fsm

import (
	"slices"
	"strings"
)

// firstEpoch is the epoch of a unit's positions until an entry flips it, which
// gives it the entry's revision. No entry that can flip has a revision so low.
const firstEpoch = 1

func (c *change) createTenant(cmd *CreateTenant, key string) Result {
	name := cmd.Name
	switch {
	case !ValidName(string(name)):
		return refused(badName("tenant", string(name)))
	case cmd.Buckets > 0 || cmd.Hash != HashNone:
		return refused(refuse(CodeBadRequest, "tenants with buckets are not kept by this version; leave out buckets and hash",
			"tenant", string(name)))
	case len(cmd.Schema) > MaxSchema:
		return refused(refuse(CodeBadRequest, "the schema is longer than 192 KiB; create the tenant, then run it there",
			"tenant", string(name)))
	}
	if c.scope.Region != "" && c.level >= levelRegions {
		return refused(refuse(CodeNotOwner, "names are given by the global group: create the tenant through any server or proxy, which asks it",
			"tenant", string(name), "owner", "global"))
	}
	if t, ok := c.tenants.Get(name); ok {
		return refused(c.taken(t))
	}
	if region, ok := c.HomeFor(cmd); ok {
		return c.claim(cmd, region, key)
	}
	return c.makeTenant(cmd, UnitID(c.at), key, 0)
}

// makeTenant places a tenant's unit under an id and begins its create.
func (c *change) makeTenant(cmd *CreateTenant, id UnitID, key string, task JobID) Result {
	name := cmd.Name
	if t, ok := c.tenants.Get(name); ok {
		return refused(c.taken(t))
	}
	home, r := c.place(cmd)
	if r != nil {
		return refused(r)
	}
	n := home.node
	t := &Tenant{Name: name, Created: c.now, Pinned: cmd.Pinned}
	p := &Placed{ID: id, Unit: UnitName(name), Node: n.Name, State: UnitCreating, Epoch: firstEpoch, Job: JobID(c.at)}
	if c.level >= levelCopies {
		p.Copies = c.firstCopies(home, p, cmd.Silent)
	}
	c.putTenant(t, p)
	c.putJob(&Job{
		ID: JobID(c.at), Kind: JobCreate, Tenant: name, Step: StepMake, Schema: cmd.Schema,
		Started: c.now, Request: key, Task: task, Targets: []Target{{Unit: p.Unit, ID: id, Node: n.Name}},
	})
	return Result{Tenant: t, Placed: p, Job: JobID(c.at)}
}

// firstCopies places the copies of a unit to be (C1, C2); fewer than are asked
// for where there are no nodes for them (C4).
func (c *change) firstCopies(home *seat, p *Placed, silent []NodeName) []Copy {
	unit := *p
	for range c.CopiesWanted(p) {
		best := c.bestReplica(home, &unit, silent)
		if best == nil {
			break
		}
		unit.Copies = unit.with(Copy{Node: best.seat.node.Name, State: CopySyncing, Since: c.now, Entry: c.at})
	}
	return unit.Copies
}

// taken refuses a name that is in use, or is being given back.
func (c *change) taken(t *tenancy) *Refusal {
	name := string(t.tenant.Name)
	if t.tenant.Reserved {
		return refuse(CodeRegionUnreachable, "tenant "+name+" is being created in region "+string(t.tenant.Home)+", or its name being given back; try again when that is done",
			"tenant", name, "region", string(t.tenant.Home))
	}
	if t.unit != nil && (t.unit.State == UnitSent || t.unit.State == UnitReceiving) {
		return busy(t.tenant.Name)
	}
	if j := c.jobOf(t.tenant.Name); j != nil && (j.Kind == JobDelete || j.Step == StepUndo || j.Step == StepRemove) {
		return refuse(CodeBusy, "tenant "+name+" is being removed; try again when it is gone", "tenant", name)
	}
	return refuse(CodeTenantExists, "tenant "+name+" exists", "tenant", name)
}

// jobOf gives the job under way on a tenant, or nil.
func (c *change) jobOf(name TenantName) *Job {
	if t, ok := c.Tenant(name); ok && (t.Job != 0 || t.HasHome) { // what is left here of a unit that lives elsewhere does not count
		j, _ := c.running.Get(t.Job)
		return j
	}
	for p := range c.TenantUnits(name) {
		if p.Job != 0 {
			j, _ := c.running.Get(p.Job)
			return j
		}
	}
	return nil
}

// deleteTenant answers with the job at whose end the tenant is gone, however
// that job ends.
func (c *change) deleteTenant(cmd *DeleteTenant) Result {
	t, ok := c.tenants.Get(cmd.Name)
	if !ok {
		return refused(unknownTenant(cmd.Name))
	}
	if t.tenant.HasHome {
		return c.deleteHomed(t.tenant)
	}
	if c.scope.Region != "" && c.level >= levelRegions {
		return refused(refuse(CodeNotOwner, "names are taken back by the global group: delete the tenant through any server or proxy, which asks it",
			"tenant", string(cmd.Name), "owner", "global"))
	}
	switch j := c.jobOf(cmd.Name); {
	case j == nil:
		return Result{Job: c.beginDelete(cmd.Name)}
	case j.Kind == JobDelete || j.Step == StepUndo:
		return Result{Job: j.ID}
	case j.Kind == JobCreate:
		c.undo(j, refuse(CodeDeleted, "tenant "+string(cmd.Name)+" was deleted before it was made", "tenant", string(cmd.Name)))
		return Result{Job: j.ID}
	}
	return refused(busy(cmd.Name))
}

func busy(name TenantName) *Refusal {
	return refuse(CodeBusy, "other work on tenant "+string(name)+" is under way; try again when it is done", "tenant", string(name))
}

func unknownTenant(name TenantName) *Refusal {
	if !ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	return refuse(CodeTenantUnknown, "no tenant is called "+string(name), "tenant", string(name))
}

func (c *change) beginDelete(name TenantName) JobID {
	j := &Job{ID: JobID(c.at), Kind: JobDelete, Tenant: name, Step: StepRemove, Started: c.now}
	if t, _ := c.Tenant(name); c.told(t) {
		c.events = append(c.events, Event{TenantGone: name})
	}
	for _, p := range slices.Collect(c.TenantUnits(name)) {
		j.Targets = append(j.Targets, Target{Unit: p.Unit, ID: p.ID, Node: p.Node})
		for _, cp := range p.Copies {
			j.Targets = append(j.Targets, Target{Unit: p.Unit, ID: p.ID, Node: cp.Node})
		}
		if p.served() {
			c.events = append(c.events, Event{UnitGone: p.Unit})
		}
		gone := *p
		gone.State, gone.Job, gone.Previous = UnitDeleting, j.ID, ""
		gone.Copies = c.settled(p.Copies, "", false)
		c.put(p, &gone)
	}
	sortTargets(j.Targets)
	c.putJob(j)
	return j.ID
}

func (c *change) setPin(cmd *SetPin) Result {
	t, ok := c.tenants.Get(cmd.Tenant)
	if !ok {
		return refused(unknownTenant(cmd.Tenant))
	}
	if t.tenant.HasHome {
		return refused(elsewhere(t.tenant.Home))
	}
	if j := c.jobOf(cmd.Tenant); j != nil && (j.Kind == JobDelete || j.Step == StepUndo) {
		return refused(refuse(CodeBusy, "tenant "+string(cmd.Tenant)+" is being removed", "tenant", string(cmd.Tenant)))
	}
	pinned := *t.tenant
	pinned.Pinned = cmd.Pinned
	c.putTenant(&pinned, t.unit)
	return Result{Tenant: &pinned, Placed: t.unit}
}

// clip shortens a text that is kept in a record or a refusal.
func clip(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
