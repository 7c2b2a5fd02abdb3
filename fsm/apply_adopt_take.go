package fsm

import (
	"iter"
	"slices"
)

// stageRegion takes in a part of what a region holds. Nothing of it is the directory's
// before arriveRegion.
func (c *change) stageRegion(cmd *StageRegion) *Refusal {
	if r := cmd.check(); r != nil {
		return r
	}
	if r := c.mayTakeIn(cmd.Giver, cmd.Region); r != nil {
		return r
	}
	was, known := c.intakes.Get(cmd.Authority)
	again := known && was.Job == cmd.Job
	same := again && cmd.History == was.History && cmd.Try == was.Try
	switch {
	case again && was.Arrived != 0:
		return nil
	case again && cmd.History == was.History && cmd.Try < was.Try:
		return refuse(CodeStale, "a newer leader of the group tells of the region since")
	case same && cmd.Part <= was.Part:
		return nil
	case cmd.Part != 1 && (!same || cmd.Part != was.Part+1 || cmd.Given != was.Given):
		return refuse(CodeStale, "parts come in order, and this one is not the next")
	}
	if r := c.mayBeLate(cmd.Given); r != nil {
		return r
	}
	next := Intake{Giver: cmd.Giver, Region: cmd.Region, Try: cmd.Try, Began: c.now, Given: cmd.Given}
	if again {
		next.Began = was.Began
	}
	if cmd.Part == 1 {
		if r := c.mayOpen(cmd.Giver, cmd.Region); r != nil {
			return r
		}
		c.staged = staged{}
	} else {
		next.Digest = was.Digest
	}
	next.Part, next.Longest = cmd.Part, cmd.Longest
	c.stage(&next, cmd)
	c.putIntake(&next)
	if c.scope.Region != "" {
		c.heard(Origin{Authority: cmd.Authority, History: cmd.History})
	}
	return nil
}

// mayBeLate refuses what comes of a region that had been given already, at a time at which
// it cannot arrive: since it was given the group that has lost it may have failed units over,
// and nodes may be written by another's word. A recovery reads them all.
func (c *change) mayBeLate(given bool) *Refusal {
	if given && !c.Recovering() {
		return refuse(CodeRegionNotReady, "the region was given to this group, whose directory was recovered since and does not know of it: "+
			"it is taken over in a recovery alone, which reads every node; stop the group's servers, run domicile recover on one of them and start that one, "+
			"while the group that gave the region is reached")
	}
	return nil
}

func (cmd *StageRegion) check() *Refusal {
	switch {
	case cmd.Authority == "" || !printable(cmd.Authority, 2*MaxName+1) || cmd.History == 0 || cmd.Job == 0 || cmd.Try == 0 || cmd.Part == 0:
		return refuse(CodeBadRequest, "a region is given by an authority's history, a job, and in parts that count from 1")
	case !validRegion(cmd.Region):
		return badName("region", string(cmd.Region))
	case outside(cmd.Longest):
		return refuse(CodeBadRequest, "a lease is not as long as that")
	case cmd.Node != nil && (!ValidName(string(cmd.Node.Name)) || !validAddr(cmd.Node.Addr) || !validToken(cmd.Node.Token) || cmd.Node.Region != cmd.Region ||
		cmd.Node.Lease > LeaseNone):
		return refuse(CodeBadRequest, "a node is given that no directory can have")
	}
	for i := range cmd.Tenants {
		if !cmd.Tenants[i].valid() {
			return refuse(CodeBadRequest, "a tenant is given that no directory can have", "tenant", clip(string(cmd.Tenants[i].Tenant.Name)))
		}
	}
	return nil
}

func (g *GivenTenant) valid() bool {
	t, p := &g.Tenant, &g.Unit
	ok := ValidName(string(t.Name)) && UnitName(t.Name) == p.Unit && t.Buckets == 0 && !t.HasHome && len(t.Readers) == 0 &&
		p.ID != 0 && p.ID <= maxID && ValidName(string(p.Node)) && p.State == UnitActive && p.Job == 0 && p.Promoted() &&
		p.Epoch >= firstEpoch && generation(p.Epoch) < maxGeneration
	for i, cp := range p.Copies {
		ok = ok && ValidName(string(cp.Node)) && cp.Node != p.Node && (cp.State.Replica() || cp.State == CopyFormer || cp.State == CopyLeaving) &&
			(i == 0 || p.Copies[i-1].Node < cp.Node)
	}
	return ok
}

// mayTakeIn checks who gives a region, and that the job is not over.
func (c *change) mayTakeIn(g Giver, r RegionName) *Refusal {
	if refusal := c.mayGiveHere(g, r); refusal != nil {
		return refusal
	}
	if c.scope.Region != "" {
		if refusal := c.belongs(g.Authority, g.History); refusal != nil {
			return refusal
		}
		if r != "" && r != c.scope.Region {
			return refuse(CodeScope, "this is the directory of region "+string(c.scope.Region)+", not of "+string(r), "region", string(c.scope.Region))
		}
	}
	i, known := c.intakes.Get(g.Authority)
	if known && (g.History < i.History || g.Job < i.Job || g.Job == i.Job && i.Over) {
		return refuse(CodeTaskOver, "that hand-over has ended; nothing is taken for it any more", "job", g.Job.String())
	}
	return nil
}

// mayGiveHere checks that a group gives what it has: the global one to a region's, or a
// region's itself to the global one. r is the region, "" where that is not told.
func (c *change) mayGiveHere(g Giver, r RegionName) *Refusal {
	of := groupOf(g.Authority)
	recorded, known := c.regions.Get(of)
	switch {
	case c.scope.Region != "" && of != GlobalGroup:
		return refuse(CodeScope, "region "+string(c.scope.Region)+" takes what the global group gives, and nothing of "+clip(g.Authority), "region", string(c.scope.Region))
	case c.scope.Region == "" && (!validRegion(of) || r != "" && r != of):
		return refuse(CodeScope, "the global group takes a region back from that region's own group, and not from "+clip(g.Authority), "region", string(r))
	case c.scope.Region == "" && known && recorded.Authority != "" && recorded.Authority != g.Authority:
		return refuse(CodeScope, "region "+string(of)+" is kept by "+recorded.Authority+"; the global group takes nothing of it from "+clip(g.Authority), "region", string(of))
	}
	return nil
}

// mayOpen says why a region cannot begin to be taken in.
func (c *change) mayOpen(g Giver, r RegionName) *Refusal {
	_, recorded := c.regions.Get(r)
	open := c.OpenIntake()
	switch {
	case c.giving != nil:
		return refuse(CodeBusy, "region "+string(c.giving.Home)+" is being handed over from here; regions go one at a time", "region", string(c.giving.Home))
	case open != nil && open.Authority != g.Authority:
		return refuse(CodeBusy, "region "+string(open.Region)+" is being taken over; regions come one at a time", "region", string(open.Region))
	case c.scope.Region == "" && !recorded:
		return refuse(CodeRegionUnknown, "region "+string(r)+" is not recorded here as one that keeps its own directory", "region", string(r))
	case c.scope.Region == "":
		return nil
	case c.nodes.Len() > 0 || c.tenants.Len() > 0:
		return refuse(CodeRegionNotReady, "the directory of region "+string(r)+" is not empty: it has nodes or tenants of its own; "+
			"a region is taken over by a group that has none", "region", string(r))
	}
	return nil
}

// stage takes a part's records in, or out.
func (c *change) stage(i *Intake, cmd *StageRegion) {
	for _, n := range cmd.GoneNodes {
		if had, ok := c.staged.nodes.Delete(n); ok {
			i.Digest -= NodeDigest(had)
		}
	}
	for _, t := range cmd.GoneTenants {
		if had, ok := c.staged.tenants.Delete(t); ok {
			i.Digest -= TenantDigest(had.tenant, had.unit)
		}
	}
	if cmd.Node != nil {
		n := *cmd.Node
		n.ID, n.Usage = NodeID(c.at), Usage{}
		if had, replaced := c.staged.nodes.Set(n.Name, &n); replaced {
			i.Digest -= NodeDigest(had)
		}
		i.Digest += NodeDigest(&n)
	}
	for k := range cmd.Tenants {
		t, p := cmd.Tenants[k].Tenant, cmd.Tenants[k].Unit
		p.Copies = slices.Clone(p.Copies)
		now := &tenancy{&t, &p}
		if had, replaced := c.staged.tenants.Set(t.Name, now); replaced {
			i.Digest -= TenantDigest(had.tenant, had.unit)
		}
		i.Digest += TenantDigest(&t, &p)
	}
}

// MayArrive says why what was staged of a region cannot be taken over as it is; nil where
// it can. The answer stays: nothing is begun there until the region has arrived, or was
// given up.
func (s *State) MayArrive(r RegionName) *Refusal {
	if refusal := s.nodesMayArrive(); refusal != nil || s.scope.Region != "" {
		return refusal
	}
	return s.namesMayArrive(r)
}

// nodesMayArrive is MayArrive of the nodes, which everything is on that comes with them.
func (s *State) nodesMayArrive() *Refusal {
	nodes := &s.staged.nodes
	for n := range s.StagedNodes() {
		if _, ok := nodes.Get(n.Standby); n.Standby != "" && !ok {
			return refuse(CodeBadRequest, "node "+string(n.Name)+" is in a pair with one that does not come with it", "node", string(n.Name))
		}
		if _, here := s.nodes.Get(n.Name); here {
			return refuse(CodeRegionNotReady, "a node of the name "+string(n.Name)+" is in this directory already: delete it, or drain and record it under another name", "node", string(n.Name))
		}
		for other := range s.Nodes() {
			if endpoint(other.Addr) == endpoint(n.Addr) {
				return AddressTaken(n.Name, other.Name)
			}
		}
	}
	for t, p := range s.StagedTenants() {
		_, ok := nodes.Get(p.Node)
		for _, cp := range p.Copies {
			_, there := nodes.Get(cp.Node)
			ok = ok && there
		}
		if !ok {
			return refuse(CodeBadRequest, "tenant "+string(t.Name)+" is on a node that does not come with it", "tenant", string(t.Name))
		}
	}
	return nil
}

// namesMayArrive is MayArrive of the names, in the global directory.
func (s *State) namesMayArrive(r RegionName) *Refusal {
	not := func(t TenantName, why string) *Refusal {
		return refuse(CodeRegionNotReady, "tenant "+string(t)+" "+why, "region", string(r), "tenant", string(t))
	}
	for t, p := range s.StagedTenants() {
		if e, named := s.tenants.Get(t.Name); !named || !e.tenant.HasHome || e.tenant.Home != r || e.tenant.Claim != p.ID {
			return not(t.Name, "of the region is not the one that the global directory knows")
		}
	}
	for t := range s.Tenants("", "") {
		if !t.HasHome || t.Home != r {
			continue
		}
		if t.Job != 0 || t.Reserved {
			return not(t.Name, "has work under way")
		}
		if _, ok := s.staged.tenants.Get(t.Name); !ok {
			return not(t.Name, "has the region for its home, and is not there")
		}
	}
	for j := range s.RunningJobs() {
		if j.Home == r || j.Kind == JobRelocate && j.From == r {
			return not(j.Tenant, "has work under way")
		}
	}
	return nil
}

// arriveRegion is the taker's flip. From this entry on every node counts as granted, for
// the longest lease of either directory (architecture §3.5.5).
func (c *change) arriveRegion(cmd *ArriveRegion) *Refusal {
	if r := c.mayTakeIn(cmd.Giver, ""); r != nil {
		return r
	}
	i, known := c.intakes.Get(cmd.Authority)
	switch {
	case !known || i.Job != cmd.Job:
		return refuse(CodeTaskUnknown, "nothing of that hand-over is known here", "job", cmd.Job.String())
	case i.Arrived != 0:
		return nil
	case i.Digest != cmd.Digest:
		return refuse(CodeStale, "what was given is not what was told of")
	}
	if r := c.mayBeLate(i.Given); r != nil {
		return r
	}
	if r := c.mayArrive(i); r != nil {
		return r
	}
	next := *i
	next.Arrived = c.at
	if i.Given && c.scope.Region == "" {
		c.forgetOlder(i.Region)
	}
	if c.scope.Region == "" {
		c.regions.Delete(i.Region)
		c.events = append(c.events, Event{RegionGone: i.Region})
	}
	c.arriveNodes(&next)
	for t, p := range collect2(c.StagedTenants()) {
		c.arriveTenant(t, p)
	}
	c.settings.LongestLease = max(c.settings.LongestLease, i.Longest)
	c.staged = staged{}
	c.putIntake(&next)
	if c.Recovering() {
		c.recovery = c.fromTheStart() // nothing of it was read
	}
	return nil
}

// mayArrive is MayArrive, but that the names of a global directory follow that has lost what it
// was given: it may be from before tenants of the region were made, deleted, or came there.
func (c *change) mayArrive(i *Intake) *Refusal {
	if !i.Given || c.scope.Region != "" {
		return c.MayArrive(i.Region)
	}
	if r := c.nodesMayArrive(); r != nil {
		return r
	}
	for t, p := range c.StagedTenants() {
		had, known := c.tenants.Get(t.Name)
		switch {
		case known && had.tenant.Buckets > 0, known && c.AtWork(t.Name):
			return refuse(CodeRegionNotReady, "tenant "+string(t.Name)+" of the region has work under way in the global directory", "region", string(i.Region), "tenant", string(t.Name))
		case known && idOf(had) > p.ID:
			return refuse(CodeRegionNotReady, "tenant "+string(t.Name)+" of the region is older than the one of that name that the global directory knows: delete one of the two",
				"region", string(i.Region), "tenant", string(t.Name))
		}
	}
	return nil
}

// idOf is the id of a whole tenant's unit, wherever it lives.
func idOf(t *tenancy) UnitID {
	if t.unit != nil {
		return t.unit.ID
	}
	return t.tenant.Claim
}

// forgetOlder has the global directory forget what a region that was given shows to be of
// before: tenants that it had itself and that have gone there since, and those that are not
// there any more.
func (c *change) forgetOlder(r RegionName) {
	var here, gone []TenantName
	for t := range c.Tenants("", "") {
		switch _, comes := c.staged.tenants.Get(t.Name); {
		case comes && !t.HasHome:
			here = append(here, t.Name)
		case !comes && t.HasHome && t.Home == r:
			gone = append(gone, t.Name)
		}
	}
	for _, name := range here {
		c.events = append(c.events, Event{UnitGone: UnitName(name)})
		c.dropTenant(name)
	}
	for _, name := range gone {
		c.events = append(c.events, Event{TenantGone: name})
		c.dropTenant(name)
	}
}

func (c *change) arriveNodes(i *Intake) {
	for n := range c.StagedNodes() {
		own := *n
		own.Standby = "" // until both of a pair are there
		if d := n.Drain; d != nil {
			own.Drain = &Drain{ID: c.at, Since: d.Since, Units: d.Units, Forced: d.Forced}
		}
		c.State.putNode(&own)
		c.ownSeat(n.Name).list = c.at
		i.Nodes = append(i.Nodes, NodeRef{n.Name, n.ID})
		c.events = append(c.events, Event{Node: own.info()})
	}
	for n := range c.StagedNodes() {
		if n.Standby != "" {
			e, _ := c.nodes.Get(n.Name)
			own := *e.node
			own.Standby = n.Standby
			c.State.putNode(&own)
		}
	}
}

// arriveTenant makes a staged tenant the directory's. Its unit goes on as it is: nothing
// was promoted, and nothing stopped.
func (c *change) arriveTenant(t *Tenant, p *Placed) {
	unit, own := *p, *t
	unit.Lacks = 0 // counted anew, by this directory's settings and clock
	unit.Copies = slices.Clone(p.Copies)
	for k := range unit.Copies {
		unit.Copies[k].Since, unit.Copies[k].Entry = c.now, c.at
	}
	own.Created = min(own.Created, c.now)
	c.abroad = max(c.abroad, flippedIn(p.Epoch))
	if had, ok := c.tenants.Get(t.Name); ok && had.tenant.HasHome {
		c.events = append(c.events, Event{TenantGone: t.Name})
	}
	c.putTenant(&own, c.count(&unit))
	c.events = append(c.events, Event{Unit: unit.info()})
}

func (c *change) closeIntake(cmd *CloseIntake) *Refusal {
	if cmd.Authority == "" || !printable(cmd.Authority, 2*MaxName+1) || cmd.History == 0 || cmd.Job == 0 {
		return refuse(CodeBadRequest, "a hand-over is known by the authority, its history, and its job there")
	}
	i, known := c.intakes.Get(cmd.Authority)
	if known && i.Job == cmd.Job && (i.Over || cmd.Undone && i.Arrived != 0) {
		return nil
	}
	if r := c.mayTakeIn(cmd.Giver, ""); r != nil {
		return r
	}
	if !known || i.Job != cmd.Job {
		i = &Intake{Giver: cmd.Giver, Region: c.scope.Region, Began: c.now}
		if c.scope.Region == "" {
			i.Region = groupOf(cmd.Authority)
		}
	}
	if _, recorded := c.regions.Get(i.Region); !known && !recorded && c.scope.Region == "" {
		return nil // nothing can have been taken for it, and nothing will be: no record is kept
	}
	if o := c.OpenIntake(); o != nil && o.Authority == cmd.Authority {
		c.staged = staged{} // another one's is that one's to close
	}
	next := *i
	next.Over = true
	c.putIntake(&next)
	if c.scope.Region != "" {
		c.heard(Origin{Authority: cmd.Authority, History: cmd.History})
	}
	return nil
}

// forgetStaged has a region that was to arrive told of anew, in a recovery: it may have
// arrived in what was lost, and may not be any more as it was told of then.
func (c *change) forgetStaged() {
	if o := c.OpenIntake(); o != nil && o.Arrived == 0 {
		next := *o
		next.Part, next.Digest = 0, 0
		c.staged = staged{}
		c.putIntake(&next)
	}
}

func (c *change) putIntake(i *Intake) { c.intakes.Set(i.Authority, i) }

// pair2 is a tenant and its unit.
type pair2 struct {
	t *Tenant
	p *Placed
}

// collect2 yields what seq did when it was called: the trees may be written to meanwhile.
func collect2(seq iter.Seq2[*Tenant, *Placed]) iter.Seq2[*Tenant, *Placed] {
	var all []pair2
	for t, p := range seq {
		all = append(all, pair2{t, p})
	}
	return func(yield func(*Tenant, *Placed) bool) {
		for _, e := range all {
			if !yield(e.t, e.p) {
				return
			}
		}
	}
}

func checkAdopt(s *State) error {
	open := 0
	err := each(s.intakes.Scan, func(authority string, i *Intake) error {
		if !i.Over {
			open++
		}
		return must(i.Authority == authority && i.Job != 0 && i.History != 0 && i.Arrived <= s.revision && (i.Over || validRegion(i.Region)), "intake of job %d", i.Job)
	})
	if err != nil {
		return err
	}
	var want uint64
	o, j := s.OpenIntake(), s.giving
	if o != nil && o.Arrived == 0 {
		want = o.Digest
	} else if j != nil {
		want = j.Digest
	}
	if sum := s.stagedDigest(); open > 1 || o != nil && j != nil || sum != want {
		return must(false, "%d intakes are open, what is staged adds up to %x", open, sum)
	}
	if j == nil {
		return nil
	}
	running, ok := s.running.Get(j.ID)
	flipped := j.Step == StepPromote || j.Step == StepClean
	return must(ok && running == j && validRegion(j.Home) && (j.Digest == 0 || flipped), "a hand-over of %q at %s", j.Home, j.Step)
}
