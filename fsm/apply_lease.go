package fsm

func (c *change) setNodeLease(cmd *SetNodeLease) *Refusal {
	e, ok := c.nodes.Get(cmd.Node)
	switch {
	case !ok:
		return unknownNode(cmd.Node)
	case cmd.Lease > LeaseNone:
		return refuse(CodeBadRequest, "that is no kind of lease", "node", string(cmd.Node))
	case e.node.Lease == cmd.Lease:
		return nil
	}
	n := *e.node
	n.Lease = cmd.Lease
	if *n.info() != *e.node.info() {
		c.events = append(c.events, Event{Node: n.info()})
	}
	c.State.putNode(&n)
	return nil
}

func (c *change) nodeBack(cmd *NodeBack) *Refusal {
	if _, ok := c.nodes.Get(cmd.Node); !ok {
		return unknownNode(cmd.Node)
	}
	c.lose(cmd.Node, false)
	return nil
}

// lose records whether a node is lost: its copies count no longer, or again.
func (c *change) lose(name NodeName, lost bool) {
	e, _ := c.nodes.Get(name)
	if e.node.Lost == lost {
		return
	}
	n := *e.node
	n.Lost = lost
	c.State.putNode(&n)
	c.events = append(c.events, Event{Node: n.info()})
	c.recount(name)
}

func (c *change) settleLease(cmd *SettleLease) *Refusal {
	if cmd.LongestLease != c.settings.AutoFailover {
		return refuse(CodeStale, "the length of leases has changed since that was decided")
	}
	c.settings.LongestLease = min(c.settings.LongestLease, cmd.LongestLease)
	return nil
}
