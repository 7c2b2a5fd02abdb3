package fsm

import "strings"

const (
	maxAddr   = 512
	maxToken  = 4096
	maxText   = 4096      // of what a node or an executor says, kept in a record
	MaxSchema = 192 << 10 // bytes of CreateTenant.Schema
)

func (c *change) putNode(cmd *PutNode) Result {
	if r := cmd.check(); r != nil {
		return refused(r)
	}
	if r := c.addrTaken(cmd); r != nil {
		return refused(r)
	}
	e, changed := c.nodes.Get(cmd.Name)
	var n Node
	if changed {
		n = *e.node
	} else {
		if cmd.Addr == nil || cmd.Token == nil {
			return refused(refuse(CodeBadRequest, "node "+string(cmd.Name)+
				" is not recorded yet: give its addr and its token", "node", string(cmd.Name)))
		}
		n = Node{ID: NodeID(c.at), Name: cmd.Name, Weight: DefaultWeight}
		if c.level >= levelRegions {
			n.Region = c.scope.Region
		}
	}
	set(&n.Addr, cmd.Addr)
	set(&n.Token, cmd.Token)
	set(&n.Region, cmd.Region)
	set(&n.Zone, cmd.Zone)
	set(&n.Weight, cmd.Weight)
	if r := c.keepsNode(&n, changed && n.Region == e.node.Region); r != nil {
		return refused(r)
	}
	if changed && n.Region != e.node.Region {
		const what = "its region cannot change"
		if r := inUse(e, what); r != nil {
			return refused(r)
		}
		if r := c.awaits(e, what); r != nil {
			return refused(r)
		}
	}
	if cmd.Standby != nil && *cmd.Standby != n.Standby {
		if r := c.pair(&n, *cmd.Standby); r != nil {
			return refused(r)
		}
		n.Standby = *cmd.Standby
	}
	if !changed || *n.info() != *e.node.info() || e.node.Weight == 0 && n.Weight > 0 { // planners hear that it takes units
		c.events = append(c.events, Event{Node: n.info()})
	}
	was := (*Node)(nil)
	if changed {
		was = e.node
	}
	c.State.putNode(&n)
	c.follow(was, &n)
	if !changed || cmd.Addr != nil || cmd.Token != nil {
		c.readAgain(n.Name)
	}
	return Result{Created: !changed, Node: &n}
}

// keepsNode refuses a node of a region whose nodes are in another directory (G4); was:
// its region is as it was.
func (c *change) keepsNode(n *Node, was bool) *Refusal {
	if c.level < levelRegions || was {
		return nil
	}
	if c.scope.Region != "" && n.Region != c.scope.Region {
		return refuse(CodeRegionMismatch, "node "+string(n.Name)+" is to be in region "+regionText(n.Region)+", and this is the directory of region "+
			string(c.scope.Region)+" alone; leave the region out, or ask a server of that region", "node", string(n.Name), "region", string(n.Region))
	}
	if c.keepsOwn(n.Region) {
		return elsewhere(n.Region)
	}
	return nil
}

// follow brings up to date what depends on a node's record: lists that tell of
// its address, and whether units lack copies after its pair has changed. was
// is nil for a new node.
func (c *change) follow(was, n *Node) {
	if c.level < levelCopies {
		return
	}
	if was == nil {
		c.ownSeat(n.Name).list = c.at
		was = &Node{Addr: n.Addr}
	}
	if was.Standby != n.Standby {
		c.recount(n.Name, was.Standby, n.Standby)
	}
	if was.Addr == n.Addr {
		return
	}
	for p := range c.HeldBy(n.Name) {
		if p.Node != n.Name && p.grantable() && p.copyOn(n.Name).Listed() {
			c.ownSeat(p.Node).list = c.at
		}
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// addrTaken refuses the address of another node: one process under two names would
// be told by each to remove what the other one keeps there.
func (c *change) addrTaken(cmd *PutNode) *Refusal {
	if !cmd.Exclusive || cmd.Addr == nil {
		return nil
	}
	for n := range c.Nodes() {
		if n.Name != cmd.Name && endpoint(n.Addr) == endpoint(*cmd.Addr) {
			return AddressTaken(cmd.Name, n.Name)
		}
	}
	return nil
}

// AddressTaken refuses node, which is reached where other is.
func AddressTaken(node, other NodeName) *Refusal {
	return refuse(CodeAddressTaken, "node "+string(node)+" would be the same process as node "+string(other)+
		", which is recorded there: a node has one name; change or delete "+string(other)+" first", "node", string(other))
}

// endpoint is what two spellings of one address have in common.
func endpoint(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	return strings.ToLower(addr)
}

// check refuses values that no node can have, whatever is recorded.
func (cmd *PutNode) check() *Refusal {
	name := string(cmd.Name)
	switch {
	case !ValidName(name):
		return badName("node", name)
	case cmd.Addr != nil && !validAddr(*cmd.Addr):
		return refuse(CodeBadRequest, "the addr of node "+name+" is not host:port, or http:// or https:// and host:port", "node", name)
	case cmd.Token != nil && !validToken(*cmd.Token):
		return refuse(CodeBadRequest, "the token of node "+name+" is empty, too long, or not printable ASCII", "node", name)
	case cmd.Region != nil && *cmd.Region != "" && !validRegion(*cmd.Region):
		return badName("region", string(*cmd.Region))
	case cmd.Zone != nil && *cmd.Zone != "" && !ValidName(string(*cmd.Zone)):
		return badName("zone", string(*cmd.Zone))
	case cmd.Standby != nil && *cmd.Standby != "" && !ValidName(string(*cmd.Standby)):
		return badName("standby", string(*cmd.Standby))
	case cmd.Standby != nil && *cmd.Standby == cmd.Name:
		return refuse(CodeBadRequest, "node "+name+" cannot be its own standby", "node", name)
	}
	return nil
}

// validAddr reports whether a looks like host:port with an optional scheme;
// what is behind it is found out by asking the node.
func validAddr(a string) bool {
	rest, ok := strings.CutPrefix(a, "http://")
	if !ok {
		rest, _ = strings.CutPrefix(a, "https://")
	}
	colon := strings.LastIndexByte(rest, ':')
	return printable(a, maxAddr) && colon > 0 && colon < len(rest)-1 && !strings.ContainsAny(rest, "/?#@")
}

func validToken(t string) bool { return printable(t, maxToken) }

// printable reports whether t is 1 to limit bytes of printable ASCII without a
// space.
func printable(t string, limit int) bool {
	for i := 0; i < len(t); i++ {
		if t[i] <= ' ' || t[i] >= 0x7f {
			return false
		}
	}
	return t != "" && len(t) <= limit
}

// inUse refuses what cannot be done to a node that holds something or is in a
// pair (N3), naming one thing.
func inUse(e *seat, what string) *Refusal {
	name := string(e.node.Name)
	if r := holds(e, what); r != nil {
		return r
	}
	if other := max(e.node.Standby, e.standbyOf); other != "" {
		return refuse(CodeNodeInUse, "node "+name+" is in a pair with "+string(other)+": "+what+"; end the pair first",
			"node", name, "pair", string(other))
	}
	return nil
}

// holds refuses what cannot be done to a node that holds a unit, or data of one
// (a former or leaving copy), naming one.
func holds(e *seat, what string) *Refusal {
	_, p, any := e.units.Min()
	if !any {
		return nil
	}
	name, held := string(e.node.Name), "holds"
	if state := p.copyOn(e.node.Name); state.Follows() {
		held = "holds a copy of"
	} else if state != 0 {
		held = "holds a former copy of"
	}
	return refuse(CodeNodeInUse, "node "+name+" "+held+" "+string(p.Unit)+": "+what, "node", name, "tenant", tenantOf(p.Unit))
}

// awaits refuses what cannot be done to a node that a tenant is to be moved to.
func (s *State) awaits(e *seat, what string) *Refusal {
	j := s.movedTo(e.node.Name)
	if j == nil {
		return nil
	}
	name := string(e.node.Name)
	return refuse(CodeNodeInUse, "tenant "+string(j.Tenant)+" is being moved to node "+name+": "+what+"; cancel that move first, or wait for it",
		"node", name, "tenant", string(j.Tenant), "move", j.ID.String())
}

func tenantOf(u UnitName) string {
	t, _, _ := strings.Cut(string(u), ".")
	return t
}

// pair checks that standby may become n's (C5); "" always may.
func (c *change) pair(n *Node, standby NodeName) *Refusal {
	if standby == "" {
		return nil
	}
	e, ok := c.nodes.Get(standby)
	if !ok {
		return refuse(CodeStandbyUnknown, "no node is called "+string(standby)+"; record the standby first",
			"standby", string(standby))
	}
	fields := []string{"node", string(n.Name), "standby", string(standby)}
	conflict := func(text string) *Refusal { return refuse(CodePairConflict, text, fields...) }
	switch own, _ := c.StandbyOf(n.Name); {
	case e.node.Region != n.Region:
		return refuse(CodeRegionMismatch, "standby "+string(standby)+" is in region "+regionText(e.node.Region)+
			"; the standby of "+string(n.Name)+" must be in "+regionText(n.Region), fields...)
	case own != "":
		return conflict("node " + string(n.Name) + " is itself the standby of " + string(own) + "; a standby has none")
	case e.standbyOf != "":
		return conflict("node " + string(standby) + " is the standby of " + string(e.standbyOf) + " already")
	case e.node.Drain != nil:
		return refuse(CodeNodeDraining, "node "+string(standby)+" is being drained, so that no copies are placed there; end its drain first", fields...)
	case e.node.Standby != "":
		return conflict("node " + string(standby) + " has a standby of its own, " + string(e.node.Standby))
	case e.primaries > 0:
		_, p, _ := e.units.Min()
		return conflict("node " + string(standby) + " holds tenants (" + string(p.Unit) + "); a standby holds none of its own")
	}
	return nil
}

// recordUsage passes over nodes that have been deleted meanwhile.
func (c *change) recordUsage(cmd *RecordUsage) {
	for _, u := range cmd.Usage {
		e, ok := c.nodes.Get(u.Node)
		if !ok {
			continue
		}
		n := *e.node
		n.Usage = Usage{At: c.now, Bytes: u.Bytes, Units: uint32(e.units.Len())}
		c.State.putNode(&n)
	}
}
