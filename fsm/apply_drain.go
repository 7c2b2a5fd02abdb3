package fsm

import "strconv"

func (c *change) setDrain(cmd *SetDrain) Result {
	e, ok := c.nodes.Get(cmd.Node)
	if !ok {
		return refused(unknownNode(cmd.Node))
	}
	n := *e.node
	switch {
	case !cmd.Drain && n.Drain == nil:
		return Result{Node: &n}
	case !cmd.Drain:
		n.Drain = nil
	case n.Drain != nil:
		again := *n.Drain
		again.Forced = again.Forced || cmd.Forced
		n.Drain = &again
	default:
		if r := c.mayDrain(e, cmd.Forced); r != nil {
			return refused(r)
		}
		n.Drain = &Drain{ID: c.at, Since: c.now, Units: uint32(e.units.Len()), Forced: cmd.Forced}
	}
	c.State.putNode(&n)
	c.recount(n.Name)
	c.events = append(c.events, Event{Node: n.info()}) // what it holds is to be looked at
	return Result{Node: &n}
}

// holdsOfOwn reports whether a node is the primary of a unit or has a replica of one: read
// replicas are not needed where no other node may hold them.
func (s *State) holdsOfOwn(e *seat) bool {
	found := false
	e.units.Scan(func(_ seatKey, p *Placed) bool {
		found = p.Node == e.node.Name || p.copyOn(e.node.Name).Replica()
		return !found
	})
	return found
}

// mayDrain refuses a drain that could not empty the node.
func (c *change) mayDrain(e *seat, forced bool) *Refusal {
	name := string(e.node.Name)
	if e.standbyOf != "" {
		return refuse(CodeNodeIsStandby, "node "+name+" is the standby of "+string(e.standbyOf)+
			", whose copies are there alone; end the pair first", "node", name, "standby_of", string(e.standbyOf))
	}
	if forced || !c.holdsOfOwn(e) {
		return nil
	}
	others := 0
	c.nodes.Scan(func(_ NodeName, o *seat) bool {
		takes := o.node.Weight > 0 && o.standbyOf == "" || o.standbyOf == e.node.Name
		if o != e && o.node.Region == e.node.Region && takes && !o.node.Lost && o.node.Drain == nil {
			others++
		}
		return true
	})
	need := 1 + int(c.settings.Replicas)
	if others >= need {
		return nil
	}
	return refuse(CodeNoRoom, "region "+regionText(e.node.Region)+" would be left with "+plural(uint64(others), "node")+
		" that may hold tenants, and a tenant with its copies needs "+strconv.Itoa(need)+
		": record another node there, end another drain, or force it, which empties the node as far as that goes", "node", name, "region", string(e.node.Region))
}
