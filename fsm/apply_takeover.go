package fsm

import (
	"cmp"
	"iter"
	"slices"
)

func (c *change) takeOver(cmd *TakeOver) *Refusal {
	if r := c.runs(cmd.Recovery); r != nil {
		return r
	}
	if cmd.Anew {
		c.recovery = c.fromTheStart()
		return nil
	}
	r := c.recovery
	if r.Settled || r.Taken != cmd.After || cmd.Upto != "" && cmd.Upto <= cmd.After {
		return refuse(CodeStale, "the units behind "+string(cmd.After)+" are not the next to be taken over")
	}
	taken := make(map[UnitRef]*TakenUnit, len(cmd.Units)) // looked up only
	for i := range cmd.Units {
		taken[cmd.Units[i].UnitRef] = &cmd.Units[i]
	}
	tenants, refusal := c.toTakeOver(cmd, taken)
	if refusal != nil {
		return refusal
	}
	c.forgetElsewhere(cmd)
	next := *r
	c.takeHomes(&next, cmd.Homes)
	next.Taken, next.Settled = cmd.Upto, cmd.Upto == ""
	next.LostUnits = slices.Clone(next.LostUnits)
	var flips []Flip
	for _, t := range tenants {
		c.wasServed(t, taken)
		for _, p := range slices.Collect(c.TenantUnits(t.Name)) {
			switch u := taken[p.ref()]; {
			case p.kept() || c.decides(p):
				flips = append(flips, c.take(&next, p, u)...)
			case u != nil && c.mayHaveCome(p):
				flips = append(flips, c.take(&next, c.comes(t.Name, p), u)...)
			}
		}
		c.stays(t.Name)
	}
	c.recovery = &next
	for _, f := range flips {
		c.unpair(f.From, []Flip{f}, false)
	}
	return nil
}

// ToTakeOver yields the units of a tenant that a TakeOver names: all that are not
// being removed.
func (s *State) ToTakeOver(name TenantName) iter.Seq[*Placed] {
	return func(yield func(*Placed) bool) {
		for p := range s.TenantUnits(name) {
			if (p.kept() || p.State == UnitCreating || s.decides(p)) && !s.removed(p) && !yield(p) {
				return
			}
		}
	}
}

// toTakeOver gives the tenants that a TakeOver is about, once it is certain that
// it can be done for all of them.
func (c *change) toTakeOver(cmd *TakeOver, taken map[UnitRef]*TakenUnit) ([]*Tenant, *Refusal) {
	var tenants []*Tenant
	named, gone := 0, 0
	homes, ends, refusal := c.toTakeHome(cmd)
	if refusal != nil {
		return nil, refusal
	}
	for t := range c.Tenants("", cmd.After) {
		if cmd.Upto != "" && t.Name > cmd.Upto {
			break
		}
		if _, away := slices.BinarySearch(cmd.Elsewhere, t.Name); away && c.mayForget(t.Name) {
			gone++
			continue
		}
		if homes[t.Name] || t.HasHome {
			continue
		}
		tenants = append(tenants, t)
		elsewhere := false
		for p := range c.ToTakeOver(t.Name) {
			u, ok := taken[p.ref()]
			if !ok {
				return nil, refuse(CodeStale, "unit "+string(p.Unit)+" was not looked for", "tenant", string(t.Name))
			}
			named++
			if r := c.mayTake(p, u); r != nil {
				return nil, r
			}
			elsewhere = elsewhere || p.State == UnitCreating && u.Node != "" && u.Node != p.Node
		}
		if elsewhere {
			ends++
		}
		for p := range c.TenantUnits(t.Name) {
			u, ok := taken[p.ref()]
			if !ok || !c.mayHaveCome(p) {
				continue
			}
			named++
			if r := c.mayTake(p, u); r != nil || u.Node == "" {
				return nil, cmp.Or(r, refuse(CodeBadRequest, "what no node holds has not come", "tenant", string(t.Name)))
			}
			ends++
		}
	}
	switch {
	case gone != len(cmd.Elsewhere):
		return nil, refuse(CodeBadRequest, "a tenant is said to live elsewhere that a recovery does not forget")
	case named != len(taken) || named != len(cmd.Units):
		return nil, refuse(CodeStale, "units are named that are not there, or not to be taken over")
	case ends > 1: // two jobs do not end in one entry
		return nil, refuse(CodeBadRequest, "more than one job is found done in one entry")
	}
	return tenants, nil
}

// mayHaveCome reports whether a recovery of a region's directory may find that a unit is
// this region's by now, which was on its way here, or had been given up: by the global
// directory its home is here. A TakeOver names it then, and the branch to go on with.
func (c *change) mayHaveCome(p *Placed) bool {
	return c.scope.Region != "" && (p.State == UnitReceiving || p.State == UnitSent)
}

// comes ends the work on such a unit as the global directory has ended it, and gives the
// unit as it is taken over.
func (c *change) comes(name TenantName, p *Placed) *Placed {
	j := c.workOn(name)
	switch {
	case j == nil:
	case j.Kind == JobReceive:
		next := *j
		next.Problem, next.Other = "", nil
		c.endLocal(&next)
	default:
		c.endFor(j)
	}
	p, _ = c.Placed(p.Unit)
	return p
}

// mayForget reports whether a recovery may find that a tenant lives in another region: it
// was a region's, and is not being made, received or removed, which ends by itself.
func (c *change) mayForget(name TenantName) bool {
	p, ok := c.Placed(UnitName(name))
	return ok && p.kept() && c.scope.Region != ""
}

func (c *change) forgetElsewhere(cmd *TakeOver) {
	for _, name := range cmd.Elsewhere {
		c.events = append(c.events, Event{UnitGone: UnitName(name)})
		c.dropTenant(name)
	}
}

func (c *change) mayTake(p *Placed, u *TakenUnit) *Refusal {
	for _, n := range append([]NodeName{u.Node}, u.Others...) {
		if n == "" {
			continue
		}
		if _, ok := c.nodes.Get(n); !ok {
			return unknownNode(n)
		}
		if c.recovery.Without(string(n)) {
			return refuse(CodeStale, "node "+string(n)+" was written off", "node", string(n))
		}
	}
	if slices.Contains(u.Others, u.Node) {
		return refuse(CodeBadRequest, "node "+string(u.Node)+" is named twice for unit "+string(p.Unit), "node", string(u.Node))
	}
	return nil
}

// wasServed ends a create of which the directory does not know that it was done:
// a unit of it lives on another node than it was made on, and only units that are
// served get there.
func (c *change) wasServed(t *Tenant, taken map[UnitRef]*TakenUnit) {
	for p := range c.TenantUnits(t.Name) {
		u := taken[p.ref()]
		if p.State != UnitCreating || u == nil || u.Node == "" || u.Node == p.Node {
			continue
		}
		j, _ := c.running.Get(p.Job)
		next := *j
		next.Problem, next.Schema = "", ""
		c.endLocal(&next)
		c.settle(&next, c.serve(t.Name))
		return
	}
}

// take takes a unit over: in a new branch, on the node that has the newest one.
// Its copies begin anew; what other nodes hold of it is kept until repair has made
// it follow, or let it go.
func (c *change) take(r *Recovery, p *Placed, u *TakenUnit) []Flip {
	r.Units++
	next := *p
	next.State, next.Job, next.Epoch, next.Lacks = UnitActive, 0, c.epochAbove(max(p.Epoch, u.Epoch)), 0
	switch u.Node {
	case "":
		r.Lost++
		if len(r.LostUnits) < LostKept {
			r.LostUnits = append(r.LostUnits, p.ref())
		}
	case p.Node:
	default:
		r.Moved++
		next.Node = u.Node
	}
	next.Previous = next.Node
	next.Copies = c.copiesFound(p, next.Node, u.Others)
	c.put(p, &next)
	if j, ok := c.Move(p.Unit); ok && j.Kind == JobMove && j.Targets[0].ID == p.ID && j.mayBeGivenUp() && j.Targets[0].Node != next.Node && !c.besides(p, next.Node) {
		// It is in another region than the move was asked in (I2).
		c.giveUp(j, refuse(CodeMoveUndone, "the tenant was found in another region in a recovery", "tenant", string(j.Tenant), "node", string(next.Node)))
	}
	if next.Node == p.Node {
		return nil
	}
	return []Flip{{p.ref(), p.Node, next.Node}}
}

// copiesFound gives the copies of a unit that was taken over by home.
func (c *change) copiesFound(p *Placed, home NodeName, others []NodeName) []Copy {
	e, _ := c.nodes.Get(home)
	found := Placed{}
	for _, cp := range p.Copies {
		on, _ := c.nodes.Get(cp.Node)
		if cp.State.Replica() || cp.State == CopyReader && on.node.Region == e.node.Region {
			cp.State, cp.Since, cp.Entry = CopySyncing, c.now, c.at
		} else if cp.State == CopyTarget {
			cp.State, cp.Since, cp.Entry = CopyFormer, c.now, c.at
		}
		found.Copies = found.with(cp)
	}
	for _, n := range append([]NodeName{p.Node}, others...) {
		if found.copyOn(n) == 0 && (n != p.Node || c.recovery.Without(string(n)) || slices.Contains(others, n)) {
			found.Copies = found.with(Copy{Node: n, State: CopyFormer, Since: c.now, Entry: c.at})
		}
	}
	found.Copies = found.without(home)
	region := e.node.Region
	found.Copies = slices.DeleteFunc(found.Copies, func(cp Copy) bool { // I2
		e, _ := c.nodes.Get(cp.Node)
		return e.node.Region != region && cp.State.Replica()
	})
	if len(found.Copies) == 0 {
		return nil
	}
	return found.Copies
}

// holdsID reports whether a node holds a unit of an id: no two have one.
func (c *change) holdsID(n NodeName, id UnitID) bool {
	for p := range c.HeldAfter(n, id-1) {
		return p.ID == id
	}
	return false
}

func (c *change) adoptUnit(cmd *AdoptUnit) Result {
	name := TenantName(cmd.Unit)
	e, ok := c.nodes.Get(cmd.Node)
	switch {
	case c.recovery == nil:
		return refused(refuse(CodeBadRequest, "the directory was never recovered, so that no unit is missing in it"))
	case !ValidName(string(name)):
		return refused(refuse(CodeBadRequest, "only a whole tenant is adopted, by its name", "tenant", clip(string(name))))
	case !ok:
		return refused(unknownNode(cmd.Node))
	case cmd.ID == 0 || cmd.ID > maxID || c.scope.Region == "" && Revision(cmd.ID) > c.recovery.ID || generation(cmd.Epoch) >= maxGeneration || c.holdsID(cmd.Node, cmd.ID):
		return refused(refuse(CodeBadRequest, "a unit of that id was not made before the recovery", "tenant", string(name)))
	case e.standbyOf != "":
		return refused(refuse(CodeNodeIsStandby, "node "+string(cmd.Node)+" is a standby; end its pair first", "node", string(cmd.Node)))
	}
	if _, taken := c.tenants.Get(name); taken {
		return refused(refuse(CodeTenantExists, "the directory has a tenant "+string(name)+"; delete that one first, if it is lost", "tenant", string(name)))
	}
	bare := &Placed{ID: cmd.ID, Unit: cmd.Unit, Node: cmd.Node}
	others := slices.DeleteFunc(slices.Clone(cmd.Others), func(n NodeName) bool { _, ok := c.nodes.Get(n); return !ok })
	t := &Tenant{Name: name, Created: c.now}
	p := c.found(t, bare, others, cmd.Epoch)
	return Result{Tenant: t, Placed: p}
}
