package fsm

// unitFor gives the record of a unit whose copies may be changed: it has that
// id, is not being made or removed, and is promoted (architecture §3.7.6).
func (c *change) unitFor(r UnitRef) (*Placed, bool) {
	p, ok := c.Placed(r.Unit)
	return p, ok && p.ID == r.ID && p.kept() && p.Promoted()
}

func (c *change) addCopies(cmd *AddCopies) Result {
	var added []CopyRef
	for i := range cmd.Units {
		w := &cmd.Units[i]
		p, ok := c.unitFor(w.UnitRef)
		if !ok {
			continue
		}
		if n := c.nodeFor(w, p, cmd.Silent); n != "" {
			next := *p
			next.Copies = p.with(Copy{Node: n, State: CopySyncing, Since: c.now, Entry: c.at})
			c.put(p, &next)
			added = append(added, CopyRef{w.UnitRef, n})
		}
	}
	return Result{Added: added}
}

// nodeFor gives the node of one more copy of p, or "".
func (c *change) nodeFor(cw *CopyWanted, p *Placed, silent []NodeName) NodeName {
	home, _ := c.nodes.Get(p.Node)
	wanted, sound, follow := c.CopiesWanted(p), 0, 0
	for i := range p.Copies {
		if p.Copies[i].State.Replica() {
			follow++
		}
		if c.sound(home, &p.Copies[i]) {
			sound++
		}
	}
	// One that is not wanted is there at most, beside those that do not count:
	// the one that is to take the place of another.
	if wanted == 0 || sound > wanted || follow > 2*wanted+1 {
		return ""
	}
	if cw.Node == "" && sound >= wanted {
		if follow > sound {
			return ""
		}
		better, ok := c.BetterCopy(p)
		if !ok {
			return ""
		}
		cw = &better
	}
	w := want{role: RoleReplica, home: home, unit: p, silent: silent}
	if cw.Node == "" {
		best := c.bestReplica(home, p, silent)
		if best == nil {
			return ""
		}
		return best.seat.node.Name
	}
	e, ok := c.nodes.Get(cw.Node)
	if !ok || w.mayBeReplica(e) != mayHold || p.copyOn(cw.Node).Follows() {
		return ""
	}
	return cw.Node
}

func (c *change) changeCopies(cmd *ChangeCopies) {
	for i := range cmd.Changes {
		ch := &cmd.Changes[i]
		p, ok := c.unitFor(ch.UnitRef)
		if !ok || p.Epoch != ch.Epoch || ch.From == 0 || p.copyOn(ch.Node) != ch.From || !c.mayChange(p, ch) {
			continue
		}
		next := *p
		next.Copies = p.with(Copy{Node: ch.Node, State: ch.To, Since: c.now, Entry: c.at})
		c.put(p, &next)
	}
}

// mayChange reports whether a copy of p may go from one state to another.
func (c *change) mayChange(p *Placed, ch *CopyChange) bool {
	switch ch.To {
	case CopySyncing:
		return ch.From.Counts()
	case CopyJoining:
		return ch.From == CopySyncing
	case CopyInSync:
		return ch.From == CopyJoining
	case CopyLeaving:
		if ch.From == CopyLeaving || ch.From == CopyTarget || ch.Node == c.moveTarget(p) {
			return false
		}
		home, _ := c.nodes.Get(p.Node)
		if c.CopiesWanted(p) == 0 || ch.From == CopyFormer && c.leftBehind(home, ch.Node) && !c.AwaitsCopy(p) {
			return true
		}
		for i := range p.Copies {
			if p.Copies[i].State == CopyInSync && p.Copies[i].Node != ch.Node {
				return true
			}
		}
	}
	return false
}

func (c *change) dropCopies(cmd *DropCopies) {
	for _, gone := range cmd.Copies {
		p, ok := c.Placed(gone.Unit)
		if !ok || p.ID != gone.ID || !p.kept() || p.copyOn(gone.Node) != CopyLeaving {
			continue
		}
		next := *p
		next.Copies = p.without(gone.Node)
		c.put(p, &next)
	}
}

func (c *change) confirmPromotion(cmd *ConfirmPromotion) *Refusal {
	if _, ok := c.nodes.Get(cmd.Node); !ok {
		return unknownNode(cmd.Node)
	}
	for _, r := range cmd.Units {
		p, ok := c.Placed(r.Unit)
		if !ok || p.ID != r.ID || p.Node != cmd.Node || p.Epoch != cmd.Epoch || p.Promoted() {
			continue
		}
		next := *p
		next.Previous = ""
		c.moved(c.put(p, &next))
	}
	return nil
}
