package fsm

// yieldTenant ends that two directories have a tenant as their own. What is here is given up
// as what has departed is: it is named in no grant from this entry on, and goes after a grace,
// but that each node keeps aside what it alone was written.
//
// In the course of moves it never applies: the epoch, which is of each stay of a tenant in a
// directory anew, says that the tenant has been here from before the other group was asked
// until now; and no move has it in two directories at once (architecture §3.9.2).
func (c *change) yieldTenant(cmd *YieldTenant) *Refusal {
	if c.scope.Region == "" {
		return refuse(CodeScope, "the global directory says where tenants live: it gives none up for what a region has")
	}
	name := TenantName(cmd.Unit)
	e, ok := c.tenants.Get(name)
	if !ok || e.unit == nil || cmd.History != c.upstream.History {
		return refuse(CodeStale, "the tenant does not stand where it is given up", "tenant", clip(string(name)))
	}
	p := e.unit
	_, moves := c.Move(p.Unit)
	if p.ID != cmd.ID || p.Epoch != cmd.Epoch || p.State != UnitActive || p.Job != 0 || moves {
		return refuse(CodeStale, "the tenant does not stand where it is given up", "tenant", string(name))
	}
	c.events = append(c.events, Event{UnitGone: p.Unit})
	c.removeHeld(&Job{ID: JobID(c.at), Kind: JobDepart, Tenant: name, Unit: p.ID, Source: p.Node, Cause: CauseMove,
		Started: c.now, Since: max(c.now, 1)}, p, StepRemove, nil)
	return nil
}
