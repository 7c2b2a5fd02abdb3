package fsm

import "strconv"

func (c *change) beginTask(cmd *BeginTask) Result {
	if r := c.Heeds(cmd.Origin, cmd.Job); r != nil {
		return refused(r)
	}
	if r := cmd.check(); r != nil {
		return refused(r)
	}
	if r := c.partOf(cmd.Job, cmd.Kind, cmd.Tenant, cmd.ID); r != nil {
		return refused(r)
	}
	if t, ok := c.tasks.Get(cmd.Job); ok {
		return c.begunTask(t, cmd.Kind, cmd.ID)
	}
	t := &Task{Job: cmd.Job, Kind: cmd.Kind, Tenant: cmd.Tenant, ID: cmd.ID}
	local, r := c.doTask(cmd)
	if r != nil && r.again() {
		return refused(r)
	}
	switch {
	case r != nil:
		t.Done, t.Refusal = true, r.kept()
		if e, ok := c.tenants.Get(cmd.Tenant); ok && r.Code == CodeTenantExists {
			t.Refusal.Fields["id"] = strconv.FormatUint(uint64(c.idOf(e)), 10) // its name is kept for it (G5)
		}
	case local == 0:
		t.Done = true
	default:
		t.Local = local
	}
	c.putTask(t)
	c.heard(cmd.Origin)
	return Result{Task: t}
}

func (cmd *BeginTask) check() *Refusal {
	if r := checkTask(cmd.Job, cmd.Kind, cmd.Tenant, cmd.ID); r != nil {
		return r
	}
	switch {
	case len(cmd.Schema) > MaxSchema:
		return refuse(CodeBadRequest, "the schema is longer than 192 KiB")
	case cmd.Kind == TaskReceive && !cmd.Source.valid():
		return refuse(CodeBadRequest, "a tenant is received from a node: its name, its address and the epoch that it writes")
	}
	return nil
}

// checkTask refuses what cannot be recorded as a task.
func checkTask(job JobID, kind TaskKind, name TenantName, id UnitID) *Refusal {
	switch {
	case !ValidName(string(name)):
		return badName("tenant", string(name))
	case id == 0 || job == 0 || id > maxID || UnitID(job) > maxID:
		return refuse(CodeBadRequest, "a task names the job that it is of, and the tenant's id")
	case kind < TaskCreate || kind > TaskReceive:
		return refuse(CodeBadRequest, "this server knows no such task; start it with a newer version")
	}
	return nil
}

// partOf refuses, in the global directory, a task that is not a part of the relocation that
// it names: that job is there to be looked at.
func (c *change) partOf(job JobID, kind TaskKind, name TenantName, id UnitID) *Refusal {
	if c.scope.Region != "" {
		return nil
	}
	if kind != TaskDepart && kind != TaskReceive {
		return refuse(CodeBadRequest, "the global group does a task to "+kind.String()+" as a job of its own", "job", job.String())
	}
	if j, ok := c.running.Get(job); !ok || j.Kind != JobRelocate || j.Tenant != name || j.Unit != id {
		return refuse(CodeTaskOver, "no move of tenant "+string(name)+" to another directory has the number "+job.String()+" any more", "job", job.String(), "tenant", string(name))
	}
	return nil
}

// maxID bounds ids that come from another directory: a node's units are ordered by them.
const maxID = 1<<(64-bucketBits) - 1

func (f *Foreign) valid() bool {
	return f != nil && ValidName(string(f.Node)) && validAddr(f.Addr) && f.Epoch != 0 && generation(f.Epoch) < maxGeneration && (f.Token == "" || validToken(f.Token))
}

// again reports whether a refused task may be asked again: nothing is known of how it
// will end.
func (r *Refusal) again() bool {
	return r.Code == CodeBusy || r.Code == CodeRecovering || r.Code == CodeBadRequest
}

// begunTask answers for a task that is known.
func (c *change) begunTask(t *Task, kind TaskKind, id UnitID) Result {
	switch {
	case t.Forgone:
		return refused(refuse(CodeTaskForgone, "this was given up, and will not be done here any more", "job", t.Job.String(), "tenant", string(t.Tenant)))
	case t.Kind != kind || t.ID != id:
		return refused(refuse(CodeBadRequest, "job "+t.Job.String()+" of the global group is known here for something else", "job", t.Job.String()))
	}
	return Result{Task: t}
}

// doTask begins the job that does a task here; 0: there is nothing to be done.
func (c *change) doTask(cmd *BeginTask) (JobID, *Refusal) {
	switch cmd.Kind {
	case TaskCreate:
		create := &CreateTenant{Name: cmd.Tenant, Region: cmd.Region, Node: cmd.Node, Pinned: cmd.Pinned, Schema: cmd.Schema, Silent: cmd.Silent}
		r := c.makeTenant(create, cmd.ID, "", cmd.Job)
		return r.Job, r.Refusal
	case TaskDelete:
		return c.deleteFor(cmd)
	case TaskDepart:
		return c.depart(cmd)
	default:
		return c.receive(cmd)
	}
}

// deleteFor begins to delete a tenant for a task, or joins what removes it.
func (c *change) deleteFor(cmd *BeginTask) (JobID, *Refusal) {
	t, ok := c.tenants.Get(cmd.Tenant)
	if !ok || c.idOf(t) != cmd.ID {
		return 0, nil
	}
	j := c.jobOf(cmd.Tenant)
	switch {
	case j == nil:
		id := c.beginDelete(cmd.Tenant)
		c.workFor(id, cmd.Job)
		return id, nil
	case (j.Kind == JobDelete || j.Kind == JobCreate) && j.Task == 0:
		if j.Kind == JobCreate && j.Step != StepUndo {
			c.undo(j, refuse(CodeDeleted, "tenant "+string(cmd.Tenant)+" was deleted before it was made", "tenant", string(cmd.Tenant)))
		}
		c.workFor(j.ID, cmd.Job)
		return j.ID, nil
	}
	return 0, busy(cmd.Tenant)
}

// workFor records for which task a job runs.
func (c *change) workFor(id, task JobID) {
	j, _ := c.running.Get(id)
	next := *j
	next.Task = task
	c.putJob(&next)
}

// idOf is the id of a tenant that is one unit, wherever that is.
func (c *change) idOf(t *tenancy) UnitID {
	if t.tenant.HasHome {
		return t.tenant.Claim
	}
	for p := range c.TenantUnits(t.tenant.Name) {
		return p.ID
	}
	return 0
}

func (c *change) forgoTask(cmd *ForgoTask) Result {
	if r := c.Heeds(cmd.Origin, cmd.Job); r != nil {
		return refused(r)
	}
	if r := checkTask(cmd.Job, cmd.Kind, cmd.Tenant, cmd.ID); r != nil {
		return refused(r)
	}
	if r := c.partOf(cmd.Job, cmd.Kind, cmd.Tenant, cmd.ID); r != nil {
		return refused(r)
	}
	t, ok := c.tasks.Get(cmd.Job)
	if !ok {
		t = &Task{Job: cmd.Job, Kind: cmd.Kind, Tenant: cmd.Tenant, ID: cmd.ID, Forgone: true}
		c.putTask(t)
		c.heard(cmd.Origin)
		return Result{Task: t}
	}
	if t.Kind != cmd.Kind || t.ID != cmd.ID {
		return refused(refuse(CodeBadRequest, "job "+cmd.Job.String()+" of the global group is known here for something else", "job", cmd.Job.String()))
	}
	j, runs := c.running.Get(t.Local)
	why := refuse(CodeTaskForgone, "the global group has given this up", "job", cmd.Job.String(), "tenant", string(t.Tenant))
	switch {
	case t.Over() || !runs:
	case t.Kind == TaskCreate && (j.Step == StepMake || j.Step == StepSchema):
		c.undo(j, why)
	case t.Kind == TaskReceive:
		c.forgoReceive(j, why)
	}
	c.heard(cmd.Origin)
	return Result{Task: t}
}

func (c *change) tellTask(cmd *TellTask) Result {
	if r := c.Heeds(cmd.Origin, cmd.Job); r != nil {
		return refused(r)
	}
	t, ok := c.tasks.Get(cmd.Job)
	if !ok {
		return refused(refuse(CodeTaskUnknown, "nothing was begun here for job "+cmd.Job.String()+" of the global group", "job", cmd.Job.String()))
	}
	j, runs := c.running.Get(t.Local)
	var r *Refusal
	switch {
	case t.Over() || !runs:
		r = toldOver(t, cmd.Word)
	case t.Kind == TaskDepart:
		r = c.tellDeparting(j, cmd)
	case t.Kind == TaskReceive:
		r = c.tellReceiving(j, cmd)
	default:
		r = refuse(CodeBadRequest, "a task to "+t.Kind.String()+" is told nothing", "job", cmd.Job.String())
	}
	if r != nil {
		return refused(r)
	}
	c.heard(cmd.Origin)
	t, _ = c.tasks.Get(cmd.Job)
	return Result{Task: t}
}

// toldOver says whether a word may be told to a task that has ended: it was told before,
// or comes too late.
func toldOver(t *Task, w TaskWord) *Refusal {
	undone := t.Forgone || t.Refusal != nil
	if w == TaskUndo && undone || (w == TaskDeparted || w == TaskArrived || w == TaskSettled) && !undone {
		return nil
	}
	return refuse(CodeTaskOver, "this has ended here already", "job", t.Job.String(), "tenant", string(t.Tenant))
}
