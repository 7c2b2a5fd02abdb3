package fsm

// receive begins a JobReceive: the unit's node, and the copies to be beside it, follow a
// node of another directory (architecture §3.9.2).
func (c *change) receive(cmd *BeginTask) (JobID, *Refusal) {
	e, known := c.tenants.Get(cmd.Tenant)
	if known && (!e.tenant.HasHome || e.tenant.Claim != cmd.ID) {
		return 0, c.taken(e)
	}
	if known && e.unit != nil {
		return 0, busy(cmd.Tenant) // what was left here of it is still being removed
	}
	if _, ok := c.Move(UnitName(cmd.Tenant)); ok {
		return 0, busy(cmd.Tenant) // a former tenant of the name was deleted in the middle of a move
	}
	home, r := c.place(&CreateTenant{Name: cmd.Tenant, Region: cmd.Region, Node: cmd.Node, Silent: cmd.Silent})
	if r != nil {
		return 0, r
	}
	t := &Tenant{Name: cmd.Tenant, Created: c.now, Pinned: cmd.Pinned, Quota: cmd.Quota}
	if known {
		t = e.tenant
	}
	id := JobID(c.at)
	p := &Placed{ID: cmd.ID, Unit: UnitName(cmd.Tenant), Node: home.node.Name, State: UnitReceiving, Epoch: cmd.Source.Epoch, Job: id}
	for range c.CopiesWanted(p) {
		best := c.bestReplica(home, p, cmd.Silent)
		if best == nil {
			break
		}
		p.Copies = p.with(c.target(best.seat.node.Name))
	}
	source := *cmd.Source
	c.putTenant(t, p)
	c.putJob(&Job{ID: id, Kind: JobReceive, Tenant: cmd.Tenant, Unit: p.ID, Cause: CauseMove, Step: StepCopy, Started: c.now, Task: cmd.Job,
		Other: &source, Pinned: cmd.Pinned, Quota: cmd.Quota, Targets: []Target{{p.Unit, p.ID, p.Node}}})
	return id, nil
}

func (c *change) tellReceiving(j *Job, cmd *TellTask) *Refusal {
	p, ok := c.Placed(UnitName(j.Tenant))
	stale := refuse(CodeStale, "the tenant does not stand where that can be told of it", "tenant", string(j.Tenant), "step", j.Step.String())
	switch {
	case !ok || p.ID != j.Unit:
		return stale
	case cmd.Word == TaskSource && !cmd.Other.valid():
		return refuse(CodeBadRequest, "a tenant is received from a node: its name, its address and the epoch that it writes")
	case cmd.Word == TaskSource && j.Step == StepCopy:
		next, unit, source := *j, *p, *cmd.Other
		next.Other, unit.Epoch = &source, source.Epoch
		c.putJob(&next)
		c.put(p, &unit)
	case cmd.Word == TaskArrived && j.Step == StepCopy && !c.flipsItself():
		c.land(j, p)
	case cmd.Word == TaskArrived && j.Step == StepPromote:
	default:
		return stale
	}
	return nil
}

// land makes a received unit this directory's: it is promoted as after any flip, in an
// epoch of the next generation.
func (c *change) land(j *Job, p *Placed) {
	next := *p
	next.State, next.Job, next.Previous = UnitActive, 0, p.Node
	next.Epoch = epochOf(generation(p.Epoch)+1, c.at)
	next.Copies = c.settled(p.Copies, p.Node, true)
	step := *j
	step.Step, step.Problem, step.Other = StepPromote, "", nil
	c.putJob(&step)
	c.put(p, &next)
}

// forgoReceive removes what was received, as long as it is the other directory's.
func (c *change) forgoReceive(j *Job, why *Refusal) {
	if p, ok := c.Placed(UnitName(j.Tenant)); ok && p.ID == j.Unit && j.Step == StepCopy {
		c.removeHeld(j, p, StepUndo, why)
	}
}

// advanceReceive is AdvanceJob of a receive that is undone: every node has answered that
// it holds nothing any more; or of one whose tenant has arrived, and was deleted before it
// was promoted.
func (c *change) advanceReceive(j *Job, cmd *AdvanceJob) *Refusal {
	p, ok := c.Placed(UnitName(j.Tenant))
	deleted := j.Step == StepPromote && (!ok || p.ID != j.Unit || !p.kept())
	if j.Step != StepUndo && !deleted || cmd.To != StepDone || cmd.Refusal != nil || cmd.Keep != 0 {
		return refuse(CodeBadRequest, "a "+j.Kind.String()+" does not go from "+j.Step.String()+" to "+cmd.To.String())
	}
	next := *j
	next.Problem = ""
	if deleted {
		next.Refusal = refuse(CodeDeleted, "the tenant was deleted", "tenant", string(j.Tenant))
		c.endLocal(&next)
		return nil
	}
	c.endLocal(&next)
	c.dropHeld(j.Tenant)
	return nil
}

// Epochs of a unit grow wherever it lives: their upper bits count how often the unit has
// come to another directory, whose revisions are the lower ones (architecture §3.7.5).
const (
	generationBits = 13
	epochBits      = 63 - generationBits
	maxGeneration  = 1<<generationBits - 1
)

func epochOf(generation uint64, at Revision) uint64 { return generation<<epochBits | uint64(at) }

func generation(epoch uint64) uint64 { return epoch >> epochBits }

// flippedIn is the revision, in the directory where the unit lived then, of the entry that
// gave an epoch.
func flippedIn(epoch uint64) Revision { return Revision(epoch & (1<<epochBits - 1)) }
