package loops

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"domicile/fsm"
)

// While the directory is being recovered (architecture §3.8.3) nothing else is
// planned. Every recorded node is read until it has been read for certain: with the
// new history, so that it takes nothing of an older one any more (fence); then again
// after every lease that may have been running is over, by the node's own word and
// by the time that the longest one lasts, so that what it holds is final. Then the
// units are taken over, each where its newest branch is, and the recovery ends. A
// leader that takes over begins to read anew.

// ReadAgain is the pause between two readings of a node that does not answer well
// enough.
const ReadAgain fsm.Millis = 250

// maxRaised bounds how often the history is raised again without an operator: two
// groups of one cluster id that were recovered at once would raise for ever.
const maxRaised = 3

// takeOverBytes bounds the names in one TakeOver: it stays below what the log takes.
const takeOverBytes = 160 << 10

// NodeRead is what a node answered when it was read.
type NodeRead struct {
	Left   fsm.Millis // of its lease, whoever granted it; 0: it is over
	Leased bool       // it takes leases
	Units  []Found
}

// Found is a unit that a node holds.
type Found struct {
	fsm.UnitRef
	Epoch, Seq uint64 // its position
	// Follows: it is a copy there. Usable: it can be promoted. Written: it is the
	// node's own to write, not given up.
	Follows, Usable, Written bool
	From                     string // the address that it follows, or ""
	To                       string // the address of the node that it was given up for, or ""
	Problem                  string // its files cannot be read
}

// recoveryMemory is what a leader has read in its term and this recovery.
type recoveryMemory struct {
	id    fsm.Revision
	nodes map[fsm.NodeName]*reading
	// found is what the readings say of each unit, once all are final.
	found map[fsm.UnitRef]*branches
	// regions are the readings of those that keep their own directories; homes is where
	// tenants live by these, by name, once that is decided.
	regions map[fsm.RegionName]*regionReading
	homes   []fsm.TakenHome
	decided bool
	// anew: a region is read anew that was read before, so that all is taken over anew.
	anew bool
	// problem stands in the way of the whole.
	problem string
}

// reading is what is known of one node.
type reading struct {
	id     fsm.NodeID
	fenced bool // it has answered the new history
	// left is until when its lease may run, by its own word; it is read again then.
	left    fsm.Millis
	heard   uint64     // the newest history that it has refused ours for
	next    fsm.Millis // not asked before
	began   fsm.Millis // when the reading under way began
	quiet   bool       // nobody could write there any more when that began
	final   *NodeRead
	problem string
}

// branches are the nodes that hold something of a unit, the newest branch first.
type branches struct {
	best   *Found
	on     fsm.NodeName
	leased bool
	others []fsm.NodeName
	epoch  uint64 // the newest of any, usable or not
}

func (p *planner) recover(r *fsm.Recovery) {
	m := p.m.recovery
	if m == nil || m.id != r.ID {
		m = &recoveryMemory{id: r.ID, nodes: make(map[fsm.NodeName]*reading), regions: make(map[fsm.RegionName]*regionReading)}
		p.m.recovery = m
	}
	m.problem = p.news.Given.Away
	raised := p.raise(r, m)
	regions := raised || p.readRegions(r, m)
	if raised || !p.readAll(r, m) || !regions || !p.knowAll(r, m) {
		p.wakeAt(p.now + ReadAgain)
		return
	}
	if m.found == nil {
		m.compare(p.s)
		m.decided = false
	}
	if wait := cmp.Or(p.news.Given.Away, p.news.Given.Here); wait != "" { // what is given is not looked for where it was
		m.problem = wait
		p.wakeAt(p.now + ReadAgain)
		return
	}
	if m.anew = m.anew && (r.Settled || r.Taken != ""); m.anew {
		p.propose(Matter{Kind: MatterRecovery}, &fsm.TakeOver{Recovery: r.ID, Anew: true})
		return
	}
	if r.Settled {
		if !p.stillAsRead(r, m) {
			return
		}
		p.propose(Matter{Kind: MatterRecovery}, &fsm.EndRecovery{Recovery: r.ID, Nodes: m.final(p.s, r), Regions: m.readOf(p.s, r)})
		return
	}
	homes := p.news.Homes
	if homes != nil && homes.Problem != "" {
		m.problem = homes.Problem
		p.wakeAt(p.now + ReadAgain)
		return
	}
	if r.Taken == "" || !m.decided {
		m.decide(p.s, r) // once for all parts
	}
	if m.problem = m.givenUp(p.s, r); m.problem != "" {
		p.wakeAt(p.now + ReadAgain)
		return
	}
	p.propose(Matter{Kind: MatterRecovery}, m.takeOver(p.s, r, homes))
}

// readAll reads every node, and reports whether all readings are final.
func (p *planner) readAll(r *fsm.Recovery, m *recoveryMemory) bool {
	all := true
	fenced := true
	for n := range p.s.Nodes() {
		k := m.nodes[n.Name]
		if k == nil || k.id != n.ID {
			k = &reading{id: n.ID}
			m.nodes[n.Name], m.found = k, nil
		}
		fenced = fenced && (k.fenced || r.Without(string(n.Name)))
	}
	for n := range p.s.Nodes() {
		if r.Without(string(n.Name)) {
			continue
		}
		k := m.nodes[n.Name]
		if k.final != nil {
			continue
		}
		all = false
		call := Call{Work: ReadNode, Target: fsm.Target{Node: n.Name}, Epoch: uint64(r.ID)}
		quiet := fenced && p.news.WaitedOut
		switch {
		case p.m.known(call).running, p.now < k.next:
		case k.fenced && !quiet: // it is read again once all others were, too
		case k.fenced && p.now < k.left:
		default:
			k.began, k.quiet = p.now, quiet && k.fenced
			p.put(Action{Call: call, Verb: ReadNode})
		}
	}
	return all
}

// read notes what a node answered.
func (m *recoveryMemory) read(c Call, a Answer, now fsm.Millis) {
	k := m.nodes[c.Target.Node]
	if k == nil || c.Epoch != uint64(m.id) {
		return
	}
	k.next = now + ReadAgain
	if a.Outcome != Done || a.Read == nil {
		k.problem = "it was not read"
		if a.Refusal != nil {
			k.problem = a.Refusal.Text
		}
		k.heard = max(k.heard, a.Heard)
		return
	}
	k.fenced, k.problem, k.left = true, "", 0
	switch {
	case a.Read.Left > 0:
		k.left = now + a.Read.Left + a.Read.Left/10
	case k.quiet:
		k.final, m.found = a.Read, nil
	}
}

// raise has the history raised above one that a node, or a region, has heard: else it would
// take nothing from this group. It reports whether that is needed.
func (p *planner) raise(r *fsm.Recovery, m *recoveryMemory) bool {
	scope, _ := p.s.Scope()
	var heard uint64
	var by string
	for n := range p.s.Nodes() {
		if k := m.nodes[n.Name]; k != nil && k.heard > heard && !r.Without(string(n.Name)) {
			heard, by = k.heard, "node "+string(n.Name)
		}
	}
	for g := range p.s.RegionsToRead() {
		if k := m.regions[g.Name]; k != nil && k.heard > heard && !r.WithoutRegion(g.Name) {
			heard, by = k.heard, "region "+string(g.Name)
		}
	}
	if heard < scope.History {
		return false
	}
	if r.Raised >= maxRaised {
		m.problem = fmt.Sprintf("%s has heard of history %d, and the history was raised %d times already: another group of this cluster id is being "+
			"recovered, or was; stop one of the two for good, then run domicile recover on this server's folder with --history %d", by, heard, r.Raised, heard+1)
		return true
	}
	at := Matter{Kind: MatterRecovery}
	if p.free(at) {
		p.plan.Proposals = append(p.plan.Proposals, Proposal{Matter: at, Raise: heard + 1, Recovery: r.ID})
	}
	return true
}

// knowAll reports whether every node that copies follow is recorded. One that is not
// may hold newer branches: it came after the directory that is being recovered.
func (p *planner) knowAll(r *fsm.Recovery, m *recoveryMemory) bool {
	recorded := make(map[string]bool)
	for n := range p.s.Nodes() {
		recorded[baseURL(n.Addr)] = true
	}
	for n := range p.s.Nodes() {
		k := m.nodes[n.Name]
		if r.Without(string(n.Name)) || k == nil || k.final == nil {
			continue
		}
		for i := range k.final.Units {
			f := &k.final.Units[i]
			if f.Follows && f.From != "" && !recorded[f.From] && !r.Without(f.From) {
				m.problem = fmt.Sprintf("unit %s on node %s follows %s, which is the address of no recorded node and may hold more of it: record that node "+
					"(PUT /_shard/nodes/…), or write the address off", f.Unit, n.Name, f.From)
				return false
			}
		}
	}
	return true
}

// compare finds the newest branch of each unit.
func (m *recoveryMemory) compare(s *fsm.State) {
	m.found = make(map[fsm.UnitRef]*branches)
	r := s.Recovery()
	for n := range s.Nodes() {
		k := m.nodes[n.Name]
		if k == nil || k.final == nil || r.Without(string(n.Name)) {
			continue
		}
		for i := range k.final.Units {
			f := &k.final.Units[i]
			b := m.found[f.UnitRef]
			if b == nil {
				b = &branches{}
				m.found[f.UnitRef] = b
			}
			b.add(s, f, n.Name, k.final.Leased)
		}
	}
}

func (b *branches) add(s *fsm.State, f *Found, on fsm.NodeName, leased bool) {
	b.epoch = max(b.epoch, f.Epoch)
	p, ok := s.Placed(f.Unit)
	placed := func(n fsm.NodeName) bool { return ok && p.ID == f.ID && p.Node == n }
	if !f.Usable || b.best != nil && !newer(f, leased, placed(on), b.best, b.leased, placed(b.on)) {
		b.others = append(b.others, on)
		return
	}
	if b.best != nil {
		b.others = append(b.others, b.on)
	}
	b.best, b.on, b.leased = f, on, leased
}

// newer reports whether f is a newer branch than g, or to be preferred where they
// are the same. A primary that takes no lease may be written at any time: no copy of
// its epoch is ahead of it for long.
func newer(f *Found, fLeased, fPlaced bool, g *Found, gLeased, gPlaced bool) bool {
	return cmp.Or(
		cmp.Compare(f.Epoch, g.Epoch),
		number(f.Written && !fLeased)-number(g.Written && !gLeased),
		cmp.Compare(f.Seq, g.Seq),
		number(f.Written)-number(g.Written),
		number(fPlaced)-number(gPlaced),
	) > 0
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// final names the nodes that were read.
func (m *recoveryMemory) final(s *fsm.State, r *fsm.Recovery) []fsm.NodeRef {
	var nodes []fsm.NodeRef
	for n := range s.Nodes() {
		if k := m.nodes[n.Name]; k != nil && k.final != nil && k.id == n.ID && !r.Without(string(n.Name)) {
			nodes = append(nodes, fsm.NodeRef{Node: n.Name, ID: n.ID})
		}
	}
	return nodes
}

// takeOver gives the next part of the units. A job that may end with it ends a part: an
// entry ends one at most.
func (m *recoveryMemory) takeOver(s *fsm.State, r *fsm.Recovery, homes *Homes) *fsm.TakeOver {
	cmd := &fsm.TakeOver{Recovery: r.ID, After: r.Taken}
	scope, _ := s.Scope()
	size, full := 0, false
	for name, home := range m.names(s, r.Taken) {
		if full {
			return cmd
		}
		switch {
		case home != nil:
			cmd.Homes = append(cmd.Homes, *home)
			size += fsm.MaxName*(3+len(home.Others)) + 24
		case m.awayFrom(s, homes, name):
			cmd.Elsewhere = append(cmd.Elsewhere, name)
			size += len(name)
		case m.takeCome(s, name, cmd, homes):
			full = true
		default:
			full = m.takeTenant(s, name, cmd, &size)
		}
		cmd.Upto = name
		full = full || size > takeOverBytes || len(cmd.Units) >= UnitsPerCall || scope.Region == "" && s.AtWork(name)
	}
	cmd.Upto = ""
	return cmd
}

// names yields the tenants that come after after, those of the directory and those that
// regions have, with where they were found to live; nil: as the directory says.
func (m *recoveryMemory) names(s *fsm.State, after fsm.TenantName) iter.Seq2[fsm.TenantName, *fsm.TakenHome] {
	at, there := slices.BinarySearchFunc(m.homes, after, func(h fsm.TakenHome, name fsm.TenantName) int { return cmp.Compare(h.Tenant, name) })
	if there {
		at++
	}
	found := m.homes[at:]
	return func(yield func(fsm.TenantName, *fsm.TakenHome) bool) {
		for t := range s.Tenants("", after) {
			for len(found) > 0 && found[0].Tenant < t.Name {
				h := &found[0]
				if found = found[1:]; !yield(h.Tenant, h) {
					return
				}
			}
			var h *fsm.TakenHome
			if len(found) > 0 && found[0].Tenant == t.Name {
				h, found = &found[0], found[1:]
			}
			if !yield(t.Name, h) {
				return
			}
		}
		for i := range found {
			if !yield(found[i].Tenant, &found[i]) {
				return
			}
		}
	}
}

// awayFrom reports whether a tenant that a region's directory serves lives elsewhere, or no
// more.
func (m *recoveryMemory) awayFrom(s *fsm.State, h *Homes, t fsm.TenantName) bool {
	if h == nil {
		return false
	}
	u, ok := s.Placed(fsm.UnitName(t))
	return ok && (u.State == fsm.UnitActive || u.State == fsm.UnitMoving) && h.Elsewhere(t, u.ID, m.found[ref(u)] != nil)
}

// takeTenant adds a tenant's units, and reports whether a create of it is found done.
func (m *recoveryMemory) takeTenant(s *fsm.State, t fsm.TenantName, cmd *fsm.TakeOver, size *int) (made bool) {
	for u := range s.ToTakeOver(t) {
		found := fsm.TakenUnit{UnitRef: ref(u)}
		if b := m.found[ref(u)]; b != nil {
			found.Epoch = b.epoch
			if found.Others = b.others; b.best != nil {
				found.Node = b.on
			}
			slices.Sort(found.Others)
		}
		*size += len(u.Unit) + fsm.MaxName*(1+len(found.Others)) + 24
		made = made || u.State == fsm.UnitCreating && found.Node != "" && found.Node != u.Node
		cmd.Units = append(cmd.Units, found)
	}
	return made
}

// RecoveryNode tells how far the recovery is with a node.
type RecoveryNode struct {
	Node    fsm.NodeName
	State   RecoveryState
	LeftMS  int64  // LeaseRunning
	Problem string // why it was not read
}

// RecoveryState is how far the recovery is with a node.
type RecoveryState string

// States of nodes while the directory is being recovered.
const (
	ToBeRead     RecoveryState = "to_be_read"
	LeaseRunning RecoveryState = "lease_running" // it was read, and is again once no older lease can run
	NodeWasRead  RecoveryState = "read"
	WrittenOff   RecoveryState = "written_off"
)

// RecoveryView tells what a leader that recovers the directory waits for, and what
// it has found so far. Orphans are units that nodes hold and the directory does not
// know.
type RecoveryView struct {
	Nodes   []RecoveryNode
	Regions []RecoveryRegion
	Problem string
	Orphans []Orphan
	// Damaged are units whose files a node could not read: that branch was left out.
	Damaged []Orphan
}

// Orphan is a unit on a node.
type Orphan struct {
	fsm.UnitRef
	Node       fsm.NodeName
	Epoch, Seq uint64
	Primary    bool // the node's own to write
	Problem    string
}

// Recovery tells how far the recovery of the directory is, by what this leader has
// learned; false where none runs.
func (m *Memory) Recovery(s *fsm.State, now fsm.Millis) (RecoveryView, bool) {
	r := s.Recovery()
	if !r.Running() {
		return RecoveryView{}, false
	}
	var v RecoveryView
	k := m.recovery
	if k == nil || k.id != r.ID {
		k = &recoveryMemory{}
	}
	v.Problem = k.problem
	v.Regions = k.showRegions(s, r)
	for n := range s.Nodes() {
		one := RecoveryNode{Node: n.Name, State: ToBeRead}
		if read := k.nodes[n.Name]; read != nil {
			one.Problem = read.problem
			switch {
			case read.final != nil:
				one.State = NodeWasRead
				v.collect(s, n.Name, read.final.Units)
			case read.fenced:
				one.State, one.LeftMS = LeaseRunning, int64(max(0, read.left-now))
			}
		}
		if r.Without(string(n.Name)) {
			one = RecoveryNode{Node: n.Name, State: WrittenOff}
		}
		v.Nodes = append(v.Nodes, one)
	}
	return v, true
}

// orphansShown bounds each list of a view.
const orphansShown = 10_000

func (v *RecoveryView) collect(s *fsm.State, n fsm.NodeName, units []Found) {
	for i := range units {
		f := &units[i]
		o := Orphan{UnitRef: f.UnitRef, Node: n, Epoch: f.Epoch, Seq: f.Seq, Primary: f.Written, Problem: f.Problem}
		if p, ok := s.Placed(f.Unit); (!ok || p.ID != f.ID) && len(v.Orphans) < orphansShown {
			v.Orphans = append(v.Orphans, o)
		} else if f.Problem != "" && len(v.Damaged) < orphansShown {
			v.Damaged = append(v.Damaged, o)
		}
	}
}
