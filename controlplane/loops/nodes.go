package loops

import (
	"cmp"
	"maps"
	"slices"

	"domicile/fsm"
)

// News is what the keeper of leases knows of the nodes.
type News struct {
	Nodes map[fsm.NodeName]*NodeNews
	// Fresh says that it is not what the last round was given.
	Fresh bool
	// MaySettle says that no lease can run any more that is longer than
	// Settings.AutoFailover.
	MaySettle bool
	// WaitedOut says that no lease can run any more that was granted before this
	// leader's term began, if it is no longer than Settings.LongestLease.
	WaitedOut bool
	// Homes is what a region's group that is being recovered knows of the global directory;
	// nil in the global group.
	Homes *Homes
	// Names is what a region's group knows of the global directory, nil where it has no copy;
	// and in the global group.
	Names *Names
	Given Given
}

// Given says why a recovery takes nothing over before another group has answered, or "" in
// each: that one gives a region to this directory (Here), or may have one that this directory
// was about to give (Away).
type Given struct{ Here, Away string }

// Homes tells which tenants a region does not keep any more. Its own directory, where that
// is recovered, may be from before a tenant moved away, or was deleted.
type Homes struct {
	Problem string // why that is not known yet, or ""
	// Elsewhere is asked of a tenant under the id that the region has it by; held says that
	// one of its nodes holds something of it.
	Elsewhere func(t fsm.TenantName, id fsm.UnitID, held bool) bool
	// Here says that a tenant has its home in this region, by a copy that is the newest.
	Here func(t fsm.TenantName, id fsm.UnitID) bool
}

// Names is what a region's copy of the global directory says.
type Names struct {
	History uint64
	AsOf    fsm.Millis // when it was known to be the newest
	// Home says whether a tenant has its home in this region, under that id, and whether it
	// is there at all.
	Home func(t fsm.TenantName, id fsm.UnitID) (here, known bool)
}

// NodeNews is what the keeper of leases knows of a node.
type NodeNews struct {
	Lease    fsm.NodeLease // as the node told in this term; LeaseUnknown before
	Answered bool          // it answered in this term
	Silent   bool          // its last call failed
	Lapsed   bool          // its lease has certainly lapsed, and it is sent nothing until a failover was recorded
	Lapse    uint64        // which time that is, in this term
	Stopping bool          // it wants to hand its units over
	Boot     string        // the process at its address; "": not known
	// List is the revision of the list of units that it holds, which Lagging and
	// Behind are of; of Behind, the copy that is the furthest ahead comes first.
	List            fsm.Revision
	Lagging, Behind map[fsm.UnitName][]string // addresses of copies
	// Uncompared are units that the node has not compared with their copies since
	// its start: that one is not in Lagging says nothing then.
	Uncompared []fsm.UnitName
	// Missing are units of the list that the node does not hold (of one that takes no
	// lease: that it does not name when it is looked at): its folder was
	// lost. What it reports of their copies says nothing of them.
	Missing []fsm.UnitName
	// Damaged are units that the node writes whose files are damaged.
	Damaged []fsm.UnitName
	// Following, of a node that takes no lease, are the copies that follow it.
	Following map[fsm.UnitName][]string
}

// nodeMemory is what a leader knows of a node in its own term.
type nodeMemory struct {
	nextDrain fsm.Millis // when its drain looks at it again
	drained   fsm.UnitID // the last unit that its drain has looked at, 0: it begins anew
	leaving   int        // moves that took units from it, as its drain last saw
	lostAt    fsm.Millis // when it was first seen as lost; 0: it is not
	boot      string     // its process, as it was seen last
	// settling: it came, or came back, and its copies do not all follow yet. What it
	// gives up for that it can tell only then.
	settling bool
	quiet    bool // it was seen not to answer since
	lapse    *lapse
	look     look
}

// lapse is a failover that is being prepared: positions are asked for of the
// nodes that hold copies, where there is a choice.
type lapse struct {
	asked map[fsm.NodeName]bool
	until fsm.Millis
	seen  map[fsm.CopyRef]Held
}

func newNodeMemory() *nodeMemory { return &nodeMemory{settling: true} }

// told notes the positions that a node answered for a failover.
func (m *nodeMemory) told(c Call, a Answer) {
	if m.lapse == nil {
		return
	}
	delete(m.lapse.asked, c.Target.Node)
	for _, h := range a.Held {
		m.lapse.seen[fsm.CopyRef{UnitRef: h.UnitRef, Node: c.Target.Node}] = h
	}
}

// lookAtNodes acts on what is known of the nodes: lapses, returns, stops, and
// what they report of copies.
func (p *planner) lookAtNodes() {
	if !p.news.Fresh && !p.m.look && (p.m.lookAt == 0 || p.now < p.m.lookAt) {
		if p.m.lookAt != 0 {
			p.wakeAt(p.m.lookAt)
		}
		return
	}
	p.m.look, p.m.lookAt = false, 0
	for n := range p.s.Nodes() {
		k := p.m.node(n.Name)
		news := p.news.Nodes[n.Name]
		switch {
		case !n.Lost:
			k.lostAt, k.quiet = 0, false
		case k.lostAt == 0:
			k.lostAt = p.now
		}
		if news == nil {
			continue
		}
		k.quiet = k.quiet || n.Lost && (!news.Answered || news.Silent || news.Lapsed)
		p.node(n, k, news)
	}
	if l := p.s.Settings(); p.news.MaySettle && l.LongestLease > l.AutoFailover {
		p.propose(Matter{Kind: MatterLongLease}, &fsm.SettleLease{LongestLease: l.AutoFailover})
	}
}

// nodesAt has the nodes looked at when a time has come.
func (p *planner) nodesAt(t fsm.Millis) {
	if p.m.lookAt == 0 || t < p.m.lookAt {
		p.m.lookAt = t
	}
	p.wakeAt(t)
}

func (p *planner) node(n *fsm.Node, k *nodeMemory, news *NodeNews) {
	if news.Lease != fsm.LeaseUnknown && news.Lease != n.Lease {
		p.proposeFor(Matter{Kind: MatterLease, Node: n.Name}, &fsm.SetNodeLease{Node: n.Name, Lease: news.Lease})
	}
	if news.Lapsed {
		p.lapsed(n, k, news.Lapse)
		return
	}
	k.lapse = nil
	answers := news.Answered && !news.Silent
	if n.Lost && answers {
		p.back(n, k)
	}
	if !answers {
		return
	}
	if p.m.passedOver[n.Name] && !p.isSilent(n.Name) {
		delete(p.m.passedOver, n.Name)
		p.m.ChangedAll() // as of a node that appears (C4)
	}
	if news.Boot != k.boot {
		if k.boot != "" {
			p.restarted(n)
			k.settling = true
		}
		k.boot = news.Boot
	}
	if p.heldIsKnown(&k.look, news) {
		if missing := p.missing(n, &k.look); news.Following != nil && len(missing) > 0 {
			with := *news
			with.Missing, news = missing, &with
		}
		p.report(n, news)
	}
	if k.settling && !p.catchesUp(n) {
		k.settling, k.look.again = false, k.look.next > 0
	}
	p.lookAt(n, k, news)
	if news.Stopping {
		p.takeOut(n)
		p.handOver(n, fsm.CauseStopped, func(_ *fsm.Placed, first fsm.NodeName) fsm.NodeName { return first })
	} else if len(news.Behind)+len(news.Missing)+len(news.Damaged) > 0 {
		p.handOver(n, fsm.CauseBehind, func(u *fsm.Placed, first fsm.NodeName) fsm.NodeName {
			return p.takesOver(u, news, first)
		})
	}
}

// restarted has what a node holds looked at, and has it told again what to follow: what
// its former process was told says nothing of this one.
func (p *planner) restarted(n *fsm.Node) {
	maps.DeleteFunc(p.m.units.told, func(c fsm.CopyRef, _ telling) bool { return c.Node == n.Name })
	p.m.ChangedNode(n.Name)
}

// takesOver gives the node that is to take a unit over from a primary that lacks what a
// copy has, or "": the in-sync copy that is the furthest ahead (architecture §3.7.4), or
// the first of them where the primary does not hold the unit, or its file is damaged.
func (p *planner) takesOver(u *fsm.Placed, news *NodeNews, first fsm.NodeName) fsm.NodeName {
	for _, addr := range news.Behind[u.Unit] {
		for _, n := range inSync(u) {
			if node, ok := p.s.Node(n); ok && baseURL(node.Addr) == addr && !node.Lost && !p.isSilent(n) {
				return n
			}
		}
	}
	switch {
	case slices.Contains(news.Missing, u.Unit):
	case slices.Contains(news.Damaged, u.Unit):
		if at := p.m.units.damaged[ref(u)]; at != 0 && p.now < at+DamagedAgain {
			p.nodesAt(at + DamagedAgain)
			return ""
		}
	default:
		return ""
	}
	return first
}

// SilenceShows is how long a node may be silent before the keeper of leases
// knows: it asks those that take none once a second.
const SilenceShows fsm.Millis = 3000

// back says that a lost node answers again. A node that was lost by an
// operator's word a moment ago may not be known to be silent yet.
func (p *planner) back(n *fsm.Node, k *nodeMemory) {
	if at := k.lostAt + SilenceShows; !k.quiet && p.now < at {
		p.nodesAt(at)
		return
	}
	p.proposeFor(Matter{Kind: MatterBack, Node: n.Name}, &fsm.NodeBack{Node: n.Name})
	k.look.again, k.settling = true, true
}

// catchesUp reports whether a node was a unit's primary and does not follow its present
// one, or has copies that are not in sync.
func (p *planner) catchesUp(n *fsm.Node) bool {
	for u := range p.s.HeldBy(n.Name) {
		if slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool {
			return c.Node == n.Name && (c.State == fsm.CopyFormer || c.State.Listed() && c.State != fsm.CopyInSync)
		}) {
			return true
		}
	}
	return false
}

// proposeFor proposes what is about a node; the nodes are looked at again when
// it cannot be proposed yet.
func (p *planner) proposeFor(m Matter, cmd fsm.Command) {
	if p.propose(m, cmd) {
		return
	}
	if until := p.m.proposing[m]; until != forever && until > p.now {
		p.nodesAt(until)
	}
}

// lapsed fails a node over whose lease has certainly lapsed (L5), or says that
// there is nothing to fail over.
func (p *planner) lapsed(n *fsm.Node, k *nodeMemory, number uint64) {
	if n.Lost && !p.promotable(n) {
		p.plan.Resume = append(p.plan.Resume, Lapse{n.Name, number})
		return
	}
	if k.lapse == nil {
		k.lapse = p.compare(n)
	}
	if len(k.lapse.asked) > 0 && p.now < k.lapse.until {
		p.nodesAt(k.lapse.until)
		return
	}
	m := Matter{Kind: MatterFailOver, Node: n.Name}
	p.proposeFor(m, &fsm.FailOver{Node: n.Name, Cause: fsm.CauseLapsed, Choices: p.choices(n, k.lapse)})
	if last := len(p.plan.Proposals) - 1; last >= 0 && p.plan.Proposals[last].Matter == m {
		p.plan.Proposals[last].Lapse = number
	}
}

// promotable reports whether one of a lost node's units can be elsewhere.
func (p *planner) promotable(n *fsm.Node) bool {
	for u := range p.s.HeldBy(n.Name) {
		if u.Node == n.Name && (u.State == fsm.UnitActive || u.State == fsm.UnitMoving) && p.elsewhere(u) {
			return true
		}
	}
	return false
}

// elsewhere reports whether a failover could give a unit to another node.
func (p *planner) elsewhere(u *fsm.Placed) bool {
	_, ok := p.s.Successor(u, nil)
	return ok
}

// inSync yields the nodes of a unit's in-sync copies.
func inSync(u *fsm.Placed) []fsm.NodeName {
	var nodes []fsm.NodeName
	for _, c := range u.Copies {
		if c.State == fsm.CopyInSync {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// compare begins to ask for the positions of copies, where a unit has several
// that could be promoted (C7).
func (p *planner) compare(n *fsm.Node) *lapse {
	l := &lapse{asked: make(map[fsm.NodeName]bool), until: p.now + PositionsWithin, seen: make(map[fsm.CopyRef]Held)}
	for u := range p.s.HeldBy(n.Name) {
		if u.Node != n.Name {
			continue
		}
		if nodes := inSync(u); len(nodes) > 1 {
			for _, c := range nodes {
				l.asked[c] = true
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(l.asked)) {
		if node, ok := p.s.Node(c); !ok || node.Lost {
			delete(l.asked, c)
			continue
		}
		call := Call{Work: LookAtUnits, Target: fsm.Target{Node: c}, Source: n.Name}
		if !p.m.known(call).running {
			p.put(Action{Call: call, Verb: LookAtUnits})
		}
	}
	return l
}

// maxChoices bounds what a failover names: all other units go to the first of
// their copies.
const maxChoices = UnitsPerCall

// choices names the copy that is the furthest ahead, for units that have
// several.
func (p *planner) choices(n *fsm.Node, l *lapse) []fsm.Flip {
	var out []fsm.Flip
	for u := range p.s.HeldBy(n.Name) {
		nodes := inSync(u)
		if u.Node != n.Name || len(nodes) < 2 || len(out) == maxChoices {
			continue
		}
		var best Held
		var to fsm.NodeName
		for _, c := range nodes {
			node, ok := p.s.Node(c)
			h, told := l.seen[fsm.CopyRef{UnitRef: ref(u), Node: c}]
			if ok && !node.Lost && told && (to == "" || ahead(h, best)) {
				best, to = h, c
			}
		}
		if to != "" {
			out = append(out, fsm.Flip{UnitRef: ref(u), From: n.Name, To: to})
		}
	}
	return out
}

// ahead reports whether a stands further than b.
func ahead(a, b Held) bool {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq)) > 0
}

// handOver begins to give a node's units to their copies, a few at a time: those
// of which to names a node, to that one; first is the one that the directory would choose,
// or "".
func (p *planner) handOver(n *fsm.Node, cause fsm.FlipCause, to func(u *fsm.Placed, first fsm.NodeName) fsm.NodeName) {
	if p.sources[n.Name] {
		return // its answer is waited for first
	}
	cmd := &fsm.BeginHandover{Node: n.Name, Cause: cause, Silent: p.silent()}
	for u := range p.s.HeldBy(n.Name) {
		if u.Node != n.Name || u.State != fsm.UnitActive || !u.Promoted() || u.Job != 0 {
			continue
		}
		first, _ := p.s.Successor(u, cmd.Silent)
		node := to(u, first)
		if node == "" {
			continue
		}
		if node != first {
			cmd.Choices = append(cmd.Choices, fsm.Flip{UnitRef: ref(u), From: n.Name, To: node})
		}
		if cmd.Units = append(cmd.Units, ref(u)); len(cmd.Units) == UnitsPerHandover {
			break
		}
	}
	if len(cmd.Units) > 0 {
		p.proposeFor(Matter{Kind: MatterHandover, Node: n.Name}, cmd)
	}
}

// isSilent reports whether a node did not answer of late, or is about to stop:
// nothing is placed there, or given to it.
func (p *planner) isSilent(name fsm.NodeName) bool {
	if news := p.news.Nodes[name]; news != nil && (news.Silent || news.Lapsed || news.Stopping) {
		return true
	}
	l, ok := p.m.links[name]
	return ok && l.failures > 0
}

// takeOut has a node that stops count as nobody's copy: no write waits for it once
// it is gone, and proxies send it no more reads.
func (p *planner) takeOut(n *fsm.Node) {
	var changes []fsm.CopyChange
	for u := range p.s.HeldBy(n.Name) {
		for _, c := range u.Copies {
			if c.Node == n.Name && c.State.Counts() && u.Promoted() && len(changes) < UnitsPerCall {
				changes = append(changes, fsm.CopyChange{UnitRef: ref(u), Epoch: u.Epoch, Node: n.Name, From: c.State, To: fsm.CopySyncing})
			}
		}
	}
	if len(changes) > 0 {
		p.proposeFor(Matter{Kind: MatterReport, Node: n.Name}, &fsm.ChangeCopies{Changes: changes})
	}
}

// silent names the nodes that did not answer of late.
func (p *planner) silent() []fsm.NodeName {
	var names []fsm.NodeName
	for n := range p.s.Nodes() {
		if p.isSilent(n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}
