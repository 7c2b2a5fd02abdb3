package loops

import (
	"container/heap"
	"maps"
	"slices"

	"domicile/fsm"
)

// unitMemory knows which units are to be looked at, and what was done for them
// in this term. A unit that needs nothing is in none of its maps, so that a
// directory of a million costs what changes, and a slow scan.
type unitMemory struct {
	queue  []fsm.UnitName // to be looked at, oldest first
	queued map[fsm.UnitName]bool
	later  dueHeap
	due    map[fsm.UnitName]fsm.Millis // the earliest in later
	// parked wait until a call to a node ends or may be tried.
	parked map[fsm.NodeName]map[fsm.UnitName]bool
	flying map[Call][]Item // units of calls under way
	// blocked wait until another proposal about the same matter may be made.
	blocked map[Matter][]fsm.UnitName

	told     map[fsm.CopyRef]telling     // copies that were told to follow
	owed     map[fsm.CopyRef]telling     // copies in sync that are to be told of a new primary, and were not yet
	promoted map[fsm.UnitRef]uint64      // epoch at which the node answered the promotion
	refused  map[fsm.CopyRef]fsm.Millis  // nodes that did not promote what they were given, since when
	removed  map[fsm.CopyRef]fsm.Millis  // leaving copies that are gone from their nodes, since when
	hold     map[hold]fsm.Millis         // what a node did not do for a unit is asked again then
	badly    map[fsm.UnitName]fsm.Millis // a copy is badly placed, since when
	// readerLost are units with a read replica on a node that is lost, since when.
	readerLost map[fsm.UnitName]fsm.Millis
	// damaged are units that were given up because their files were damaged, since when.
	damaged map[fsm.UnitRef]fsm.Millis
	// syncing are the units of each primary that have a copy that is not in sync,
	// with the revision from which on its lists name the unit as it is.
	syncing map[fsm.NodeName]map[fsm.UnitName]fsm.Revision
	at      map[fsm.UnitName]fsm.NodeName // the primary under which it is in syncing

	// hurry says until when units are repaired without a grace: an operator asked.
	hurry fsm.Millis

	holders   []fsm.NodeName // nodes whose units are all to be looked at
	scanAgain bool
	scanning  bool
	cursor    fsm.TenantName
	nextScan  fsm.Millis
}

// telling is what a copy was told.
type telling struct {
	epoch uint64
	kind  fsm.CopyState // Item.Kind
	at    fsm.Millis
}

// hold is what a node did not do for a unit.
type hold struct {
	unit fsm.UnitName
	node fsm.NodeName
	verb Verb
}

func newUnitMemory() unitMemory {
	return unitMemory{
		queued: make(map[fsm.UnitName]bool), due: make(map[fsm.UnitName]fsm.Millis),
		parked: make(map[fsm.NodeName]map[fsm.UnitName]bool), flying: make(map[Call][]Item),
		blocked: make(map[Matter][]fsm.UnitName),
		told:    make(map[fsm.CopyRef]telling), owed: make(map[fsm.CopyRef]telling), promoted: make(map[fsm.UnitRef]uint64),
		refused: make(map[fsm.CopyRef]fsm.Millis),
		removed: make(map[fsm.CopyRef]fsm.Millis), hold: make(map[hold]fsm.Millis),
		badly: make(map[fsm.UnitName]fsm.Millis), readerLost: make(map[fsm.UnitName]fsm.Millis), damaged: make(map[fsm.UnitRef]fsm.Millis),
		syncing: make(map[fsm.NodeName]map[fsm.UnitName]fsm.Revision), at: make(map[fsm.UnitName]fsm.NodeName),
		scanAgain: true,
	}
}

// open has a unit looked at in the next round.
func (m *unitMemory) open(u fsm.UnitName) {
	if !m.queued[u] {
		m.queued[u] = true
		m.queue = append(m.queue, u)
	}
}

// openAt has a unit looked at when a time has come.
func (m *unitMemory) openAt(u fsm.UnitName, t fsm.Millis) {
	if at, ok := m.due[u]; ok && at <= t {
		return
	}
	m.due[u] = t
	heap.Push(&m.later, dueUnit{t, u})
}

// park has a unit looked at when a call to n has ended.
func (m *unitMemory) park(n fsm.NodeName, u fsm.UnitName) {
	if m.parked[n] == nil {
		m.parked[n] = make(map[fsm.UnitName]bool)
	}
	m.parked[n][u] = true
}

// beingTold reports whether a call that has n follow u is under way.
func (m *unitMemory) beingTold(u fsm.UnitName, n fsm.NodeName) bool {
	for c, items := range m.flying {
		if c.Work == FollowUnits && c.Target.Node == n && slices.ContainsFunc(items, func(i Item) bool { return i.Unit == u }) {
			return true
		}
	}
	return false
}

// wake opens the units whose time has come.
func (m *unitMemory) wake(now fsm.Millis) {
	for len(m.later) > 0 && m.later[0].at <= now {
		d := heap.Pop(&m.later).(dueUnit)
		if m.due[d.unit] == d.at {
			delete(m.due, d.unit)
			m.open(d.unit)
		}
	}
}

// unpark opens the units that waited for a node, by name: which call they go
// into shall not depend on chance.
func (m *unitMemory) unpark(n fsm.NodeName) {
	if len(m.parked[n]) == 0 {
		return
	}
	waiting := make([]fsm.UnitName, 0, len(m.parked[n]))
	for u := range m.parked[n] {
		waiting = append(waiting, u)
	}
	slices.Sort(waiting)
	for _, u := range waiting {
		m.open(u)
	}
	delete(m.parked, n)
}

// ended notes what a call brought for its units.
func (m *unitMemory) ended(c Call, t *attempt, now fsm.Millis) {
	defer m.unpark(c.Target.Node)
	units := m.flying[c]
	delete(m.flying, c)
	if c.Work == RemoveUnit && c.Target.Unit != "" {
		units = []Item{{UnitRef: fsm.UnitRef{Unit: c.Target.Unit, ID: c.Target.ID}}}
	}
	for _, i := range units {
		m.open(i.Unit)
		if c.Work == RemoveUnit { // whatever came of it, what comes back there is to be told
			delete(m.told, fsm.CopyRef{UnitRef: i.UnitRef, Node: c.Target.Node})
		}
		failure, failed := t.last.Failed[i.Unit]
		switch {
		case t.last.Outcome != Done && t.last.Outcome != Absent:
		case failed:
			wait := max(failure.Left, RetryUnit)
			m.hold[hold{i.Unit, c.Target.Node, c.Work}] = now + wait
			if c.Work == PromoteUnits && failure.Left == 0 {
				m.refused[fsm.CopyRef{UnitRef: i.UnitRef, Node: c.Target.Node}] = now
			}
		case c.Work == FollowUnits:
			m.told[fsm.CopyRef{UnitRef: i.UnitRef, Node: c.Target.Node}] = telling{i.Epoch, i.Kind, now}
		case c.Work == PromoteUnits:
			m.promoted[i.UnitRef] = c.Epoch
		case c.Work == RemoveUnit:
			m.removed[fsm.CopyRef{UnitRef: i.UnitRef, Node: c.Target.Node}] = now
		}
	}
}

// RetryUnit is when a node is asked again for a unit for which it did not do
// what it was asked.
const RetryUnit fsm.Millis = 250

// proposed opens the units that a proposal was about: it may have failed.
func (m *unitMemory) proposed(cmd fsm.Command) {
	switch cmd := cmd.(type) {
	case *fsm.ConfirmPromotion:
		for _, u := range cmd.Units {
			m.open(u.Unit)
		}
	case *fsm.FailOver:
		for _, f := range cmd.Choices {
			m.open(f.Unit)
		}
	case *fsm.AddCopies:
		for _, u := range cmd.Units {
			m.open(u.Unit)
		}
	case *fsm.ChangeCopies:
		for _, c := range cmd.Changes {
			m.open(c.Unit)
		}
	case *fsm.DropCopies:
		for _, c := range cmd.Copies {
			m.open(c.Unit)
		}
	case *fsm.PlaceReaders:
		for _, u := range cmd.Units {
			m.open(u.Unit)
		}
	}
}

// forget drops what is known of a unit that is not there, or whose job has it.
func (m *unitMemory) forget(u fsm.UnitName) {
	m.unwatch(u)
	delete(m.badly, u)
	delete(m.readerLost, u)
}

func (m *unitMemory) unwatch(u fsm.UnitName) {
	if n, ok := m.at[u]; ok {
		delete(m.syncing[n], u)
		delete(m.at, u)
	}
}

// watch keeps a unit with a copy that is not in sync among those for which its
// primary's reports count, and reports whether it is new among them.
func (m *unitMemory) watch(u *fsm.Placed, rev fsm.Revision) bool {
	n, ok := m.at[u.Unit]
	if ok && n == u.Node {
		return false
	}
	if ok {
		delete(m.syncing[n], u.Unit)
	}
	if m.syncing[u.Node] == nil {
		m.syncing[u.Node] = make(map[fsm.UnitName]fsm.Revision)
	}
	m.syncing[u.Node][u.Unit] = rev
	m.at[u.Unit] = u.Node
	return true
}

// lookAtUnits looks at the units that something was heard of, those whose time
// has come, and the next part of a scan, and plans what they need.
func (p *planner) lookAtUnits() {
	m := &p.m.units
	m.wake(p.now)
	p.unpark()
	for _, n := range m.holders {
		for u := range p.s.HeldBy(n) {
			m.open(u.Unit)
		}
	}
	m.holders = nil
	p.scan()
	batch := m.queue
	if len(batch) > UnitsPerRound {
		batch = batch[:UnitsPerRound]
		p.wakeAt(p.now + 1)
	}
	for _, u := range batch {
		delete(m.queued, u)
	}
	m.queue = m.queue[len(batch):]
	if len(m.queue) == 0 {
		m.queue = nil
	}
	for _, u := range batch {
		p.unit(u)
	}
	p.send()
	p.proposeLists()
	if len(m.later) > 0 {
		p.wakeAt(m.later[0].at)
	}
}

// unpark opens the units that wait for a call or a proposal that may be made
// now.
func (p *planner) unpark() {
	m := &p.m.units
	for _, n := range slices.Sorted(maps.Keys(m.parked)) {
		if l, ok := p.m.links[n]; !ok || l.running == 0 && p.now >= l.retryAt {
			m.unpark(n)
		}
	}
	for at, units := range m.blocked {
		if p.free(at) {
			delete(m.blocked, at)
			for _, u := range units {
				m.open(u)
			}
		}
	}
}

// scan opens the next part of all units, when a scan is due or under way.
func (p *planner) scan() {
	m := &p.m.units
	if m.scanAgain || !m.scanning && p.now >= m.nextScan {
		m.scanAgain, m.scanning, m.cursor, m.nextScan = false, true, "", p.now+ScanEvery
		m.clean(p.now)
	}
	if !m.scanning {
		p.wakeAt(m.nextScan)
		return
	}
	left := UnitsPerRound / 2
	for t := range p.s.Tenants("", m.cursor) {
		if left <= 0 {
			p.wakeAt(p.now + 1)
			return
		}
		for u := range p.s.TenantUnits(t.Name) {
			m.open(u.Unit)
			left--
		}
		m.cursor = t.Name
		left--
	}
	m.scanning = false
	p.wakeAt(m.nextScan)
}

// clean drops what was noted of units that are gone, or long ago.
func (m *unitMemory) clean(now fsm.Millis) {
	for c, t := range m.told {
		if now-t.at > 2*max(ScanEvery, tellAgain(t.kind)) {
			delete(m.told, c)
		}
	}
	for c, t := range m.owed {
		if now-t.at > 2*ScanEvery {
			delete(m.owed, c)
		}
	}
	for c, at := range m.refused {
		if now-at > RefusedAgain {
			delete(m.refused, c)
		}
	}
	for c, at := range m.removed {
		if now-at > 2*ScanEvery {
			delete(m.removed, c)
		}
	}
	for u, at := range m.damaged {
		if now-at > DamagedAgain {
			delete(m.damaged, u)
		}
	}
	for h, until := range m.hold {
		if now > until+ScanEvery {
			delete(m.hold, h)
		}
	}
}

// unit plans what a unit needs.
func (p *planner) unit(name fsm.UnitName) {
	u, ok := p.s.Placed(name)
	if !ok || u.State != fsm.UnitActive {
		// Its job has it; and looks at it again when the job ends.
		p.m.units.forget(name)
		if ok && u.State == fsm.UnitMoving {
			p.tellCopies(u)
		}
		return
	}
	if !u.Promoted() {
		p.unpromoted(u)
		return
	}
	delete(p.m.units.promoted, ref(u))
	p.copies(u)
}

func ref(u *fsm.Placed) fsm.UnitRef { return fsm.UnitRef{Unit: u.Unit, ID: u.ID} }

// unpromoted has a unit that was flipped promoted on its node, and its other
// copies follow that node at the same time.
func (p *planner) unpromoted(u *fsm.Placed) {
	m := &p.m.units
	if m.promoted[ref(u)] == u.Epoch && u.Epoch != 0 {
		p.lists.confirm(u)
	} else if to := p.another(u); to != "" {
		p.lists.flipAgain(u, to)
	} else {
		p.want(Call{Work: PromoteUnits, Target: fsm.Target{Node: u.Node}, Epoch: u.Epoch}, u, true)
	}
	p.tellCopies(u)
}

// another gives the node that is to have a unit instead of its own, which has answered
// that it does not promote it: that of an in-sync copy, or the former primary, which
// answers and has not refused it (architecture §3.7.6); or "". Nobody has written the
// unit since it was flipped, and so nobody is overtaken: no grant names it.
func (p *planner) another(u *fsm.Placed) fsm.NodeName {
	refused := func(n fsm.NodeName) bool {
		at, ok := p.m.units.refused[fsm.CopyRef{UnitRef: ref(u), Node: n}]
		return ok && p.now < at+RefusedAgain
	}
	if n, ok := p.s.Node(u.Node); !ok || n.Lease != fsm.LeaseTaken || !refused(u.Node) {
		return ""
	}
	not := p.silent()
	for _, c := range u.Copies {
		if refused(c.Node) {
			not = append(not, c.Node)
		}
	}
	to, _ := p.s.Successor(u, not)
	return to
}

// tellCopies has those copies follow the unit's node that were not told so: all
// that are not in sync, and the others once for each new primary.
func (p *planner) tellCopies(u *fsm.Placed) {
	m := &p.m.units
	for _, c := range u.Copies {
		at := fsm.CopyRef{UnitRef: ref(u), Node: c.Node}
		if !c.State.Follows() || c.State == fsm.CopyInSync && u.Promoted() && m.owed[at].epoch != u.Epoch {
			delete(m.owed, at)
			continue
		}
		t, ok := m.told[at]
		if again := t.at + tellAgain(c.State); ok && t.epoch == u.Epoch && t.kind == kind(c.State) && p.now < again {
			if c.State != fsm.CopyInSync && c.State != fsm.CopyReader {
				p.later(u, again)
			}
			delete(m.owed, at)
			continue
		}
		if c.State == fsm.CopyInSync { // the call may have to wait until the unit is promoted
			m.owed[at] = telling{epoch: u.Epoch, at: p.now}
		}
		p.want(Call{Work: FollowUnits, Target: fsm.Target{Node: c.Node}, Source: u.Node}, u, false)
	}
}

func (p *planner) later(u *fsm.Placed, t fsm.Millis) { p.m.units.openAt(u.Unit, t) }

// want puts a unit into a call about many, or has it wait until such a call may
// be made. An urgent one does not wait for a node that did not answer others.
func (p *planner) want(c Call, u *fsm.Placed, urgent bool) {
	m := &p.m.units
	if until := m.hold[hold{u.Unit, c.Target.Node, c.Work}]; p.now < until {
		p.later(u, until)
		return
	}
	t := p.m.known(c)
	switch l := p.m.links[c.Target.Node]; {
	case t.running || len(p.batches[c]) >= UnitsPerCall:
		m.park(c.Target.Node, u.Unit)
		return
	case urgent && t.failures > 0 && p.now < min(t.retryAt, t.lastEnd+UrgentAgain):
		p.later(u, min(t.retryAt, t.lastEnd+UrgentAgain))
		return
	case !urgent && t.failures > 0 && p.now < t.retryAt:
		p.later(u, t.retryAt)
		return
	case !urgent && l != nil && l.failures > 0 && p.now < l.retryAt:
		p.later(u, l.retryAt)
		return
	}
	if _, begun := p.batches[c]; !begun {
		p.order = append(p.order, c)
	}
	p.batches[c] = append(p.batches[c], Item{UnitRef: ref(u), Epoch: u.Epoch, Kind: followKind(c, u)})
}

// UrgentAgain is when a promotion is tried again that was not answered well.
const UrgentAgain fsm.Millis = 300

// send plans the calls that were put together.
func (p *planner) send() {
	for _, c := range p.order {
		a := Action{Call: c, Verb: c.Work, Units: p.batches[c]}
		if c.Work == PromoteUnits {
			p.put(a)
			continue
		}
		if !p.call(a, true) {
			for _, i := range a.Units {
				p.m.units.park(c.Target.Node, i.Unit)
			}
		}
	}
}
