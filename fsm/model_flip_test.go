package fsm_test

import (
	"maps"
	"slices"

	"domicile/fsm"
)

// modelHandover is a handover of a node's units that is under way.
type modelHandover struct {
	job     fsm.JobID
	thaw    bool
	forced  bool
	drain   bool
	targets map[fsm.TenantName]modelTarget
}

type modelTarget struct {
	id fsm.UnitID
	to fsm.NodeName
}

// successor gives the node that takes a unit over, or "".
func (m *model) successor(name fsm.TenantName, silent []fsm.NodeName) fsm.NodeName {
	t := m.tenants[name]
	var target, best fsm.NodeName
	if mv := m.moveOf(t); t.moving && mv != nil && mv.step == fsm.StepRelease {
		target = mv.to
	} else if t.moving {
		target = m.handovers[t.node].targets[name].to
	}
	key := func(on fsm.NodeName) string {
		k := []byte("00000")
		if t.copies[on] != fsm.CopyInSync {
			k[0] = '1'
		}
		if on != target {
			k[1] = '1'
		}
		if m.nodes[on].drain != nil {
			k[2] = '1'
		}
		if main := m.mainOf(on); main != "" && main != t.node {
			k[3] = '1'
		}
		k[4] += byte(m.zone(t.node, on))
		return string(k) + string(on)
	}
	for on, state := range t.copies {
		able := state == fsm.CopyInSync || state == fsm.CopyFormer && on == t.previous
		if able && !m.nodes[on].lost && !slices.Contains(silent, on) && (best == "" || key(on) < key(best)) {
			best = on
		}
	}
	return best
}

func (m *model) failOver(c *fsm.FailOver) fsm.Code {
	n := m.nodes[c.Node]
	switch {
	case n == nil:
		return noNode(c.Node)
	case c.Cause != fsm.CauseLapsed && c.Cause != fsm.CauseHand && c.Cause != fsm.CauseUnpromoted:
		return fsm.CodeBadRequest
	case c.Cause != fsm.CauseHand && n.lease != fsm.LeaseTaken:
		return fsm.CodeNodeUnleased
	case c.Cause == fsm.CauseHand && n.lease == fsm.LeaseTaken && !n.lost && m.auto > 0:
		return fsm.CodeStale
	}
	flips := map[fsm.TenantName]fsm.NodeName{}
	for name, t := range m.tenants {
		if t.node != c.Node || t.step != 0 {
			continue
		}
		if choice := firstChoice(c.Choices, name, t.id, c.Node); choice != "" {
			state := t.copies[choice]
			if state == fsm.CopyInSync || state != 0 && choice == t.previous || m.mayBeForced(t, choice) && c.Cause == fsm.CauseHand {
				flips[name] = choice
			}
		}
		if c.Cause == fsm.CauseUnpromoted {
			if t.previous == "" {
				delete(flips, name)
			}
		} else if to := m.successor(name, nil); flips[name] == "" && to != "" {
			flips[name] = to
		}
	}
	if c.Cause != fsm.CauseLapsed && len(flips) == 0 {
		return fsm.CodeNoCopy
	}
	m.flipAll(c.Node, flips, false)
	if c.Cause != fsm.CauseUnpromoted {
		m.leaveHandover(c.Node)
		m.leaveReleases(c.Node)
	}
	m.unpair(c.Node, flips, false)
	if c.Cause == fsm.CauseUnpromoted {
		return ""
	}
	n.lost = n.lost || c.Silent || c.Cause == fsm.CauseLapsed
	return ""
}

// firstChoice gives where a list of choices sends a unit of a node: the first counts.
func firstChoice(choices []fsm.Flip, name fsm.TenantName, id fsm.UnitID, from fsm.NodeName) fsm.NodeName {
	for _, f := range choices {
		if f.Unit == fsm.UnitName(name) && f.ID == id && f.From == from {
			return f.To
		}
	}
	return ""
}

// mayBeForced: an operator may choose a copy that lacks something, but no other region
// (L8).
func (m *model) mayBeForced(t *modelTenant, on fsm.NodeName) bool {
	return listed(t.copies[on]) && m.nodes[on].region == m.nodes[t.node].region
}

// flipAll gives units to other nodes; released says that these have what was
// acknowledged, as the unit was released to them.
func (m *model) flipAll(from fsm.NodeName, flips map[fsm.TenantName]fsm.NodeName, released bool) {
	for name, to := range flips {
		t := m.tenants[name]
		whole := released || t.copies[to] == fsm.CopyInSync || to == t.previous
		for on, state := range t.copies {
			if state == fsm.CopyJoining || state == fsm.CopyInSync && !whole {
				t.copies[on] = fsm.CopySyncing
			}
		}
		delete(t.copies, to)
		m.cross(t, from, to)
		t.copies[from] = fsm.CopyFormer
		if t.previous == "" || t.previous == to || m.nodes[from].lease != fsm.LeaseTaken {
			t.previous = from
		}
		t.node, t.epoch, t.moving = to, uint64(m.at), false
	}
}

// leaveHandover ends the handover of a node, or has it go on with what has not flipped.
func (m *model) leaveHandover(from fsm.NodeName) {
	if h := m.handovers[from]; h != nil {
		h.thaw = true
		maps.DeleteFunc(h.targets, func(name fsm.TenantName, g modelTarget) bool {
			t := m.tenants[name]
			if gone := t == nil || t.id != g.id || t.node != from || t.step != 0; gone {
				return true
			}
			t.moving = false
			return false
		})
		if len(h.targets) == 0 {
			delete(m.handovers, from)
		}
	}
}

// unpair ends pairs whose standby has a primary now, or turns one round.
func (m *model) unpair(from fsm.NodeName, flips map[fsm.TenantName]fsm.NodeName, turn bool) {
	for _, to := range flips {
		if main := m.mainOf(to); main != "" {
			m.nodes[main].standby = ""
			if turn && main == from && m.primaries(from) == 0 && m.nodes[from].drain == nil {
				m.nodes[to].standby = from
			}
		}
	}
}

func (m *model) handover(id fsm.JobID) *modelHandover {
	for _, h := range m.handovers {
		if h.job == id {
			return h
		}
	}
	return nil
}

func (m *model) beginHandover(c *fsm.BeginHandover) fsm.Code {
	n := m.nodes[c.Node]
	switch {
	case n == nil:
		return noNode(c.Node)
	case (c.Cause < fsm.CauseHand || c.Cause > fsm.CauseBehind) && c.Cause != fsm.CauseDrain:
		return fsm.CodeBadRequest
	case n.lost:
		return fsm.CodeNodeLost
	case c.Cause == fsm.CauseDrain && n.drain == nil:
		return fsm.CodeStale
	case m.handovers[c.Node] != nil:
		return fsm.CodeBusy
	}
	h := &modelHandover{job: fsm.JobID(m.at), drain: c.Cause == fsm.CauseDrain, targets: map[fsm.TenantName]modelTarget{}}
	for name, t := range m.tenants {
		asked := len(c.Units) == 0 || slices.Contains(c.Units, fsm.UnitRef{Unit: fsm.UnitName(name), ID: t.id})
		if !asked || t.node != c.Node || t.step != 0 || t.previous != "" || t.moving || h.drain && t.pinned && !n.drain.Forced {
			continue
		}
		to := m.successor(name, c.Silent)
		choice := firstChoice(c.Choices, name, t.id, c.Node)
		if n := m.nodes[choice]; n != nil && !n.lost && !slices.Contains(c.Silent, choice) &&
			(t.copies[choice] == fsm.CopyInSync || to == "" && m.mayBeForced(t, choice) && c.Cause == fsm.CauseHand) {
			to = choice
		}
		if to != "" {
			h.targets[name] = modelTarget{t.id, to}
			h.forced = h.forced || t.copies[to] != fsm.CopyInSync
		}
	}
	if len(h.targets) == 0 {
		return fsm.CodeNoCopy
	}
	for name := range h.targets {
		m.tenants[name].moving = true
	}
	m.handovers[c.Node] = h
	return ""
}

func (m *model) endRelease(c *fsm.EndRelease) fsm.Code {
	if mv := m.moves[c.ID]; mv != nil {
		return m.endMoveRelease(mv, c)
	}
	h := m.handover(c.ID)
	if h == nil || h.thaw {
		return fsm.CodeStale
	}
	flips := map[fsm.TenantName]fsm.NodeName{}
	var from fsm.NodeName
	for name, g := range h.targets {
		from = m.tenants[name].node
		if to := m.successor(name, nil); to != "" && slices.Contains(c.Released, fsm.UnitRef{Unit: fsm.UnitName(name), ID: g.id}) {
			flips[name] = to
			if m.tenants[name].copies[g.to] == fsm.CopyInSync {
				flips[name] = g.to // released to it, lost or not
			}
		}
	}
	for name, g := range h.targets {
		state, taken := m.tenants[name].copies[g.to], flips[name] != ""
		if (state == fsm.CopyInSync || h.forced && !taken && listed(state)) && slices.Contains(c.Released, fsm.UnitRef{Unit: fsm.UnitName(name), ID: g.id}) {
			flips[name] = g.to
		}
	}
	m.flipAll(from, flips, false)
	m.leaveHandover(from)
	m.unpair(from, flips, !h.drain)
	return ""
}

func (m *model) advanceHandover(h *modelHandover, c *fsm.AdvanceJob) fsm.Code {
	step := fsm.StepRelease
	if h.thaw {
		step = fsm.StepThaw
	}
	switch {
	case c.From != step:
		return fsm.CodeStale
	case !h.thaw || c.To != fsm.StepDone || c.Refusal != nil:
		return fsm.CodeBadRequest
	}
	maps.DeleteFunc(m.handovers, func(_ fsm.NodeName, o *modelHandover) bool { return o == h })
	return ""
}

func (m *model) deleteNode(c *fsm.DeleteNode) fsm.Code {
	name := c.Name
	switch {
	case m.nodes[name] == nil:
		return fsm.CodeNodeUnknown
	case !c.Force && (m.held(name) > 0 || m.awaits(name)):
		return fsm.CodeNodeInUse
	}
	for of, t := range m.tenants {
		going := t.step == fsm.StepUndo || t.step == fsm.StepRemove
		if t.node == name && !going || t.moving && m.movesTo(of, t) == name {
			return fsm.CodeNodeInUse
		}
	}
	m.giveUpMovesTo(name)
	for _, t := range m.tenants {
		if delete(t.copies, name); t.node == name {
			t.node = ""
		}
		if t.previous == name {
			t.previous = t.node
		}
	}
	delete(m.handovers, name)
	delete(m.nodes, name)
	for _, o := range m.nodes {
		if o.standby == name {
			o.standby = ""
		}
	}
	return ""
}
