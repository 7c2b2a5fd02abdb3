package fsm

import "slices"

// deleteNode forgets a node that holds nothing; with Force also one that holds
// copies, or units that are being removed: it is not coming back.
func (c *change) deleteNode(cmd *DeleteNode) *Refusal {
	e, ok := c.nodes.Get(cmd.Name)
	if !ok {
		return unknownNode(cmd.Name)
	}
	if !cmd.Force {
		if r := holds(e, undeletable(e)); r != nil {
			return r
		}
		if r := c.awaits(e, "it cannot be deleted"); r != nil {
			return r
		}
	} else if r := c.mustStay(e); r != nil {
		return r
	} else {
		c.giveUpMovesTo(cmd.Name)
		c.writeOff(e)
	}
	if j := c.handoverOf(cmd.Name); j != nil { // nothing of it is left to be thawed
		done := *j
		done.Step, done.Problem, done.Ended, done.EndedIn = StepDone, "", c.now, c.at
		c.endJob(&done)
	}
	e, _ = c.nodes.Get(cmd.Name)
	main, standby := e.standbyOf, e.node.Standby
	c.dropNode(e)
	c.recount(main, standby)
	c.events = append(c.events, Event{NodeGone: cmd.Name})
	return nil
}

// undeletable says what makes a node deletable that holds something.
func undeletable(e *seat) string {
	switch {
	case e.primaries > 0:
		return "it cannot be deleted; drain it first, delete its tenants, or fail it over to their copies"
	case e.standbyOf != "":
		return "it cannot be deleted; end its pair with node " + string(e.standbyOf) + " first"
	}
	return "it cannot be deleted; force writes off what it holds as copies, which are made elsewhere then"
}

// mustStay refuses to write a node off that a unit cannot be without.
func (c *change) mustStay(e *seat) *Refusal {
	name := string(e.node.Name)
	for p := range c.HeldBy(e.node.Name) {
		switch {
		case p.Node == e.node.Name && !c.removed(p):
			return refuse(CodeNodeInUse, "node "+name+" holds "+string(p.Unit)+
				": it cannot be written off; fail it over, or delete the tenants that have no copy",
				"node", name, "tenant", tenantOf(p.Unit))
		case p.State == UnitMoving && c.targetOf(p) == e.node.Name:
			return refuse(CodeNodeInUse, "node "+name+" is being given "+string(p.Unit)+": try again when that is done",
				"node", name, "tenant", tenantOf(p.Unit))
		}
	}
	return nil
}

// removed reports whether a unit is on its way out: deleted, or its create is
// being undone.
func (s *State) removed(p *Placed) bool {
	if p.State != UnitCreating {
		return p.State == UnitDeleting
	}
	j, ok := s.running.Get(p.Job)
	return ok && j.Step == StepUndo
}

// writeOff takes a node out of the records of all that it holds, and out of
// the jobs that would wait for it.
func (c *change) writeOff(e *seat) {
	name := e.node.Name
	for _, p := range slices.Collect(c.HeldBy(name)) {
		next := *p
		if p.Node == name {
			next.Node = ""
		} else {
			next.Copies = p.without(name)
		}
		if p.Previous == name {
			next.Previous = p.Node
		}
		c.put(p, &next)
	}
	for _, j := range slices.Collect(c.RunningJobs()) {
		on := func(t Target) bool { return t.Node == name }
		removes := j.Step == StepRemove || j.Step == StepUndo // of a depart, or a receive
		if j.Kind != JobCreate && j.Kind != JobDelete && !removes || !slices.ContainsFunc(j.Targets, on) {
			continue
		}
		less := *j
		less.Targets = slices.DeleteFunc(slices.Clone(j.Targets), on)
		c.putJob(&less)
	}
}
