package loops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"domicile/fsm"
)

// While the global directory is being recovered, each recorded region that keeps its own
// is read, too: its group takes nothing of an older history from then on, and tells which
// tenants it has. Where a tenant lives follows from that, and from what this directory's
// own nodes hold, alone.

// RegionCall is a reading of a region's directory, for a recovery of the global one.
type RegionCall struct {
	Recovery fsm.Revision
	Region   fsm.RegionName
	// Again asks only of which history its directory is: it was read before.
	Again  bool
	record *fsm.Region // as its routers were when it was asked
}

// RegionAnswer is what came of it: Done with Claims, or an outcome as of a TaskAnswer.
type RegionAnswer struct {
	Outcome Outcome
	Refusal *fsm.Refusal
	Heard   uint64 // newer history of the global directory that the region refused ours for, or 0
	Claims  []fsm.Claim
	History uint64 // of the region's own directory
}

// regionReading is what is known of a region.
type regionReading struct {
	record  *fsm.Region // where its routers change it is read anew
	running bool
	next    fsm.Millis // not asked before
	heard   uint64
	read    bool
	claims  []fsm.Claim
	history uint64 // of the region's directory when it was read
	again   bool   // it was asked once more since
	problem string
}

// BeginRegion notes that a reading of a region is under way.
func (m *Memory) BeginRegion(c RegionCall) {
	if k := m.regionReading(c); k != nil {
		k.running = true
	}
}

// EndRegion notes what came of it.
func (m *Memory) EndRegion(c RegionCall, a RegionAnswer, now fsm.Millis) {
	k := m.regionReading(c)
	if k == nil {
		return
	}
	k.running, k.next, k.problem = false, now+ReadAgain, ""
	k.heard = max(k.heard, a.Heard)
	switch {
	case c.Again && (a.Outcome != Done || a.History == k.history): // one that does not tell was read, and asks what this recovery found
		k.again = true
	case c.Again:
		m.recovery.regions[c.Region], m.recovery.anew = &regionReading{record: k.record}, true
	case a.Outcome == Done:
		k.read, k.claims, k.history = true, a.Claims, a.History
		m.recovery.homes, m.recovery.decided = nil, false
	case a.Refusal != nil:
		k.problem = a.Refusal.Text
	default:
		k.problem = "it was not read"
	}
}

func (m *Memory) regionReading(c RegionCall) *regionReading {
	if m.recovery == nil || m.recovery.id != c.Recovery {
		return nil
	}
	if k := m.recovery.regions[c.Region]; k != nil && k.record == c.record {
		return k
	}
	return nil // other routers were asked than are recorded now
}

// readRegions reads every region, and reports whether all are read.
func (p *planner) readRegions(r *fsm.Recovery, m *recoveryMemory) bool {
	all := true
	for g := range p.s.RegionsToRead() {
		k := m.regions[g.Name]
		if k == nil || !slices.Equal(k.record.Routers, g.Routers) {
			k = &regionReading{record: g}
			m.regions[g.Name], m.decided = k, false
		}
		k.again = k.again && r.Settled
		switch {
		case r.WithoutRegion(g.Name), k.read:
			continue
		case !k.running && p.now >= k.next:
			p.plan.Regions = append(p.plan.Regions, RegionCall{Recovery: r.ID, Region: g.Name, record: k.record})
		}
		all = false
	}
	return all
}

// stillAsRead asks each region that was read whether its directory is the one that was: one
// that was recovered since has forgotten that it heeds nothing of an older history, and may
// have lost what it told of. It reports whether that is known.
func (p *planner) stillAsRead(r *fsm.Recovery, m *recoveryMemory) bool {
	all := true
	for g := range p.s.RegionsToRead() {
		k := m.regions[g.Name]
		if r.WithoutRegion(g.Name) || k == nil || k.again {
			continue
		}
		if all = false; !k.running {
			p.plan.Regions = append(p.plan.Regions, RegionCall{Recovery: r.ID, Region: g.Name, Again: true, record: k.record})
		}
	}
	return all
}

// readOf names the regions that were read.
func (m *recoveryMemory) readOf(s *fsm.State, r *fsm.Recovery) (read []fsm.RegionName) {
	for g := range s.RegionsToRead() {
		if k := m.regions[g.Name]; k != nil && k.read && !r.WithoutRegion(g.Name) {
			read = append(read, g.Name)
		}
	}
	return read
}

// claimed is a claim with the region that makes it.
type claimed struct {
	fsm.Claim
	by fsm.RegionName
}

// decide finds out where every tenant lives that a region has, or that the directory has
// with a home.
func (m *recoveryMemory) decide(s *fsm.State, r *fsm.Recovery) {
	m.homes, m.decided = nil, true
	of := make(map[fsm.TenantName]map[fsm.UnitID][]claimed)
	for g := range s.RegionsToRead() {
		k := m.regions[g.Name]
		if k == nil || !k.read || r.WithoutRegion(g.Name) {
			continue
		}
		for _, c := range k.claims {
			if of[c.Tenant] == nil {
				of[c.Tenant] = make(map[fsm.UnitID][]claimed)
			}
			of[c.Tenant][c.ID] = append(of[c.Tenant][c.ID], claimed{c, g.Name})
		}
	}
	for t := range s.Tenants("", "") {
		if t.HasHome && of[t.Name] == nil {
			of[t.Name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if h := m.homeOf(s, r, name, of[name]); h != nil {
			m.homes = append(m.homes, *h)
		}
	}
}

// homeOf decides where a tenant lives; nil: where the directory has it. Of two of one name
// the newer is the one that was made later: ids are the global directory's revisions. One of
// which nobody tells stays in the region that the directory says, and is said to (a
// TakenHome that names no place): its region may know less than this directory.
func (m *recoveryMemory) homeOf(s *fsm.State, r *fsm.Recovery, name fsm.TenantName, claims map[fsm.UnitID][]claimed) *fsm.TakenHome {
	newest, stays := fsm.TakenHome{Tenant: name}, false
	t, known := s.Tenant(name)
	u, held := s.Placed(fsm.UnitName(name))
	consider := func(id fsm.UnitID, h *fsm.TakenHome, here bool) {
		if id > newest.ID && (h != nil || here) {
			newest, stays = fsm.TakenHome{Tenant: name, ID: id}, here
			if h != nil {
				newest.Home, newest.Node, newest.Others, newest.Epoch = h.Home, h.Node, h.Others, h.Epoch
			}
		}
	}
	own := fsm.UnitID(0) // that the directory has
	switch {
	case known && t.HasHome:
		own = t.Claim
		h := m.rehomed(s, r, t, u, claims[own])
		consider(own, h, h == nil)
	case held:
		own = u.ID
		if u.State != fsm.UnitDeleting {
			h := m.away(u, r, claims[own])
			consider(own, h, h == nil)
		} else {
			own = 0
		}
	}
	for id, of := range claims {
		if id != own {
			h, _ := among(r, of)
			consider(id, h, false)
		}
	}
	switch {
	case stays && known && t.HasHome:
		return &fsm.TakenHome{Tenant: name}
	case stays || newest.ID == 0:
		return nil
	}
	return &newest
}

// away says in which region a tenant of this directory's own nodes lives by now, nil for
// none. Where both have it, it has come to the one later whose epochs are of a later
// generation; of the same, its region was handed over since.
func (m *recoveryMemory) away(u *fsm.Placed, r *fsm.Recovery, of []claimed) *fsm.TakenHome {
	here := fsm.Generation(u.Epoch)
	if b := m.found[ref(u)]; b != nil && b.best != nil {
		here = max(here, fsm.Generation(b.best.Epoch))
	}
	if h, generation := among(r, of); h != nil && h.Epoch != 0 && generation >= here {
		return h
	}
	return nil
}

// rehomed says where a tenant lives that the directory has with a home, nil where nobody
// tells: a region, or this directory's own nodes, where what they hold is of after it left
// them (u, which the directory knows of still, or nil).
func (m *recoveryMemory) rehomed(s *fsm.State, r *fsm.Recovery, t *fsm.Tenant, u *fsm.Placed, of []claimed) *fsm.TakenHome {
	h, generation := among(r, of)
	b := m.found[fsm.UnitRef{Unit: fsm.UnitName(t.Name), ID: t.Claim}]
	if h == nil {
		if h = b.departed(s, t, of); h != nil {
			generation = fsm.Generation(h.Epoch)
		}
	}
	switch {
	case h != nil && h.Node != "":
		return h
	case !b.usable() || u != nil && fsm.Generation(b.best.Epoch) <= fsm.Generation(u.Epoch):
		if h == nil && b.usable() && u != nil && u.State == fsm.UnitReceiving && len(of) == 0 && !r.WithoutRegion(t.Home) {
			return b.here(t) // its source is no more, which goes only once it has come
		}
		return cmp.Or(h, receiver(of))
	case h != nil && h.Epoch != 0 && generation >= fsm.Generation(b.best.Epoch):
		return h
	case h == nil && !b.best.Written && (len(of) == 0 || r.WithoutRegion(t.Home)): // left over, as far as anybody can tell
		return nil
	}
	return b.here(t)
}

func (b *branches) usable() bool { return b != nil && b.best != nil }

// here is a tenant on this directory's own nodes.
func (b *branches) here(t *fsm.Tenant) *fsm.TakenHome {
	return &fsm.TakenHome{ID: t.Claim, Node: b.on, Others: slices.Sorted(slices.Values(b.others)), Epoch: b.epoch}
}

// departed says where a tenant is that no region has, and whose source was told that it has
// left: it went where that says, and what has it does not know so any more. b is what own
// nodes hold.
func (b *branches) departed(s *fsm.State, t *fsm.Tenant, of []claimed) *fsm.TakenHome {
	var last *claimed
	for i := range of {
		if c := &of[i]; c.How == fsm.ClaimDeparted && (last == nil || c.Job > last.Job) {
			last = c
		}
	}
	if last == nil {
		return nil
	}
	for g := range s.RegionsToRead() {
		if g.Name == last.Other {
			return &fsm.TakenHome{ID: last.ID, Home: last.Other, Epoch: last.Epoch}
		}
	}
	if !b.usable() {
		return nil
	}
	return b.here(t)
}

// receiver is the region that a tenant was on its way to where nobody else tells of it: its
// source is no more, which goes only once the tenant has come.
func receiver(of []claimed) *fsm.TakenHome {
	for _, c := range of {
		if c.How == fsm.ClaimReceiving {
			return &fsm.TakenHome{ID: c.ID, Home: c.by, Epoch: c.Epoch}
		}
	}
	return nil
}

// among says which region has a tenant, by what the regions claim of it: the one that it
// came to last. One that was never told that it has arrived has it only where its source
// was told that it has left: the entry between the two was there. Where the only region
// that can have it was written off, that is its home, with Epoch 0.
func among(r *fsm.Recovery, of []claimed) (home *fsm.TakenHome, generation uint64) {
	var best *claimed
	rank := func(c *claimed) uint64 { return 2*fsm.Generation(c.Epoch) + uint64(number(c.How == fsm.ClaimOwn)) }
	for i := range of {
		c := &of[i]
		has := c.How == fsm.ClaimOwn || c.How == fsm.ClaimSent || c.How == fsm.ClaimReceiving && flipped(of, c.Job)
		if has && (best == nil || cmp.Or(cmp.Compare(rank(c), rank(best)), cmp.Compare(c.Job, best.Job)) > 0) {
			best = c
		}
	}
	if best != nil {
		return &fsm.TakenHome{ID: best.ID, Home: best.by, Epoch: best.Epoch}, fsm.Generation(best.Epoch)
	}
	for i := range of {
		if c := &of[i]; r.WithoutRegion(c.Other) {
			return &fsm.TakenHome{ID: c.ID, Home: c.Other}, 0
		}
	}
	return nil, 0
}

// flipped reports whether the move of a job has changed its tenant's home.
func flipped(of []claimed, job fsm.JobID) bool {
	return slices.ContainsFunc(of, func(c claimed) bool { return c.How == fsm.ClaimDeparted && c.Job == job })
}

// givenUp says of the first unit that would be taken over although its node gave it up for
// one of another directory: that may write it, and no region that was read tells of it (I1).
func (m *recoveryMemory) givenUp(s *fsm.State, r *fsm.Recovery) string {
	if scope, _ := s.Scope(); scope.Region != "" {
		return ""
	}
	recorded := make(map[string]bool)
	for n := range s.Nodes() {
		recorded[baseURL(n.Addr)] = true
	}
	for t := range s.Tenants("", r.Taken) {
		u, ok := s.Placed(fsm.UnitName(t.Name))
		if !ok || t.HasHome || m.home(t.Name) != nil {
			continue
		}
		b := m.found[ref(u)]
		if !b.usable() || b.best.Written || b.best.Follows || b.best.To == "" || recorded[baseURL(b.best.To)] || r.Without(b.best.To) {
			continue
		}
		return fmt.Sprintf("node %s has given unit %s up for the node at %s, which is in another directory and may write it: record its region (PUT /_shard/regions/…), "+
			"or bring back the one that was written off by recording it again; or write the address off, so that the unit is taken over as %s has it", b.on, u.Unit, b.best.To, b.on)
	}
	return ""
}

// home is what was decided of a tenant, nil: that it is where the directory has it.
func (m *recoveryMemory) home(t fsm.TenantName) *fsm.TakenHome {
	i, ok := slices.BinarySearchFunc(m.homes, t, func(h fsm.TakenHome, t fsm.TenantName) int { return cmp.Compare(h.Tenant, t) })
	if !ok {
		return nil
	}
	return &m.homes[i]
}

// takeCome adds the unit of a tenant that was on its way between two directories, and has
// its home here by now; and reports whether it is one.
func (m *recoveryMemory) takeCome(s *fsm.State, t fsm.TenantName, cmd *fsm.TakeOver, homes *Homes) bool {
	u, ok := s.Placed(fsm.UnitName(t))
	if !ok || u.State != fsm.UnitReceiving && u.State != fsm.UnitSent || homes == nil || homes.Here == nil || !homes.Here(t, u.ID) {
		return false
	}
	b := m.found[ref(u)]
	if !b.usable() {
		return false
	}
	cmd.Units = append(cmd.Units, fsm.TakenUnit{UnitRef: ref(u), Node: b.on, Others: slices.Sorted(slices.Values(b.others)), Epoch: b.epoch})
	return true
}

// RecoveryRegion tells how far the recovery is with a region.
type RecoveryRegion struct {
	Region  fsm.RegionName
	State   RecoveryState // ToBeRead, NodeWasRead or WrittenOff
	Tenants int           // that it has
	Problem string        // why it was not read
}

func (m *recoveryMemory) showRegions(s *fsm.State, r *fsm.Recovery) (all []RecoveryRegion) {
	for g := range s.RegionsToRead() {
		one := RecoveryRegion{Region: g.Name, State: ToBeRead}
		if k := m.regions[g.Name]; k != nil {
			if one.Problem = k.problem; k.read {
				one.State, one.Tenants = NodeWasRead, len(k.claims)
			}
		}
		if r.WithoutRegion(g.Name) {
			one = RecoveryRegion{Region: g.Name, State: WrittenOff}
		}
		all = append(all, one)
	}
	return all
}
