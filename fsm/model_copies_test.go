package fsm_test

import (
	"fmt"
	"slices"
	"strings"

	"domicile/fsm"
)

func (m *model) runCopies(c fsm.Command) fsm.Code {
	switch c := c.(type) {
	case *fsm.SetNodeLease:
		n := m.nodes[c.Node]
		if n == nil {
			return noNode(c.Node)
		}
		if c.Lease > 2 {
			return fsm.CodeBadRequest
		}
		n.lease = c.Lease
	case *fsm.NodeBack:
		if m.nodes[c.Node] == nil {
			return noNode(c.Node)
		}
		m.nodes[c.Node].lost = false
	case *fsm.SettleLease:
		if c.LongestLease != m.auto {
			return fsm.CodeStale
		}
		m.longest = min(m.longest, m.auto)
	case *fsm.FailOver:
		return m.failOver(c)
	case *fsm.BeginHandover:
		return m.beginHandover(c)
	case *fsm.EndRelease:
		return m.endRelease(c)
	case *fsm.ConfirmPromotion:
		if m.nodes[c.Node] == nil {
			return noNode(c.Node)
		}
		for _, u := range c.Units {
			if t := m.unit(u); t != nil && t.node == c.Node && t.epoch == c.Epoch && t.previous != "" {
				t.previous = ""
				m.promoted(t)
			}
		}
	case *fsm.AddCopies:
		for _, w := range c.Units {
			m.addCopy(w, c.Silent)
		}
	case *fsm.ChangeCopies:
		for _, ch := range c.Changes {
			m.changeCopy(ch)
		}
	case *fsm.DropCopies:
		for _, gone := range c.Copies {
			if t := m.unit(gone.UnitRef); t != nil && t.step == 0 && t.copies[gone.Node] == fsm.CopyLeaving {
				delete(t.copies, gone.Node)
			}
		}
	default:
		return m.runMoves(c)
	}
	return ""
}

func noNode(n fsm.NodeName) fsm.Code {
	if n == "" {
		return fsm.CodeBadRequest
	}
	return fsm.CodeNodeUnknown
}

func (m *model) unit(u fsm.UnitRef) *modelTenant {
	if t := m.tenants[fsm.TenantName(u.Unit)]; t != nil && t.id == u.ID {
		return t
	}
	return nil
}

// wanted: a pair has one copy, on the standby (C5); others as many as asked for.
func (m *model) wanted(t *modelTenant) int {
	if n := m.nodes[t.node]; n != nil && n.standby != "" {
		return 1
	}
	return m.replicas
}

func (m *model) mainOf(standby fsm.NodeName) fsm.NodeName {
	for name, n := range m.nodes {
		if n.standby == standby {
			return name
		}
	}
	return ""
}

// counts reports whether a copy is one of those that are asked for.
func (m *model) counts(t *modelTenant, on fsm.NodeName) bool {
	if !replica(t.copies[on]) || m.nodes[on].lost || m.nodes[on].drain != nil {
		return false
	}
	if sb := m.nodes[t.node].standby; sb != "" {
		return sb == on
	}
	return m.mainOf(on) == ""
}

// replica: one of the copies that are asked for; follows: any that follows; listed: one
// that an entry may promote.
func replica(s fsm.CopyState) bool { return s == 1 || s == 2 || s == 5 }
func follows(s fsm.CopyState) bool { return replica(s) || s == 6 || s == 7 }
func listed(s fsm.CopyState) bool  { return replica(s) || s == 6 }

func (m *model) zone(home, on fsm.NodeName) int {
	a, b := m.nodes[home].zone, m.nodes[on].zone
	switch {
	case a == "" || b == "":
		return 1
	case a != b:
		return 0
	}
	return 2
}

// free reports whether a node may take a copy of t (C1, C2, C5).
func (m *model) free(t *modelTenant, on fsm.NodeName, silent []fsm.NodeName) bool {
	n, home, main := m.nodes[on], m.nodes[t.node], m.mainOf(on)
	switch {
	case n == nil || on == t.node || n.region != home.region || n.lost || n.drain != nil || slices.Contains(silent, on) || follows(t.copies[on]):
		return false
	case home.standby != "":
		return home.standby == on
	}
	return main == "" && n.weight > 0
}

// placeCopy gives the node of one more copy by C2, or "".
func (m *model) placeCopy(t *modelTenant, silent []fsm.NodeName) fsm.NodeName {
	return m.placeCopyOf(t, silent, nil)
}

// placeCopyOf does not count the copies of a tenant that is not where t says: its move's
// target.
func (m *model) placeCopyOf(t *modelTenant, silent []fsm.NodeName, moved *modelTenant) fsm.NodeName {
	key := func(on fsm.NodeName) string {
		shared, holds := 0, 1
		for _, o := range m.tenants {
			if o.node == t.node && o != moved && follows(o.copies[on]) {
				shared++
			}
		}
		if t.copies[on] != 0 {
			holds = 0
		}
		return fmt.Sprintf("%d%d%09d%09d%s", m.zone(t.node, on), holds, shared, m.held(on), on)
	}
	var best fsm.NodeName
	for on := range m.nodes {
		if m.free(t, on, silent) && (best == "" || key(on) < key(best)) {
			best = on
		}
	}
	return best
}

func (m *model) addCopy(w fsm.CopyWanted, silent []fsm.NodeName) {
	t := m.unit(w.UnitRef)
	if t == nil || t.step != 0 || t.previous != "" {
		return
	}
	wanted, count, follow, worst := m.wanted(t), 0, 0, 0
	for on, state := range t.copies {
		if !replica(state) {
			continue
		}
		follow++
		worst = max(worst, m.zone(t.node, on))
		if m.counts(t, on) {
			count++
		}
	}
	if wanted == 0 || count > wanted || follow > 2*wanted+1 {
		return
	}
	on := w.Node
	switch {
	case on == "" && count < wanted:
		on = m.placeCopy(t, silent)
	case on == "":
		better := m.placeCopy(t, nil)
		if follow > wanted || better == "" || m.nodes[t.node].standby != "" || m.zone(t.node, better) >= worst {
			return
		}
		on = better
	}
	if m.free(t, on, silent) {
		t.copies[on] = fsm.CopySyncing
	}
}

// awaitsCopy: one is on its way, or a node could take one.
func (m *model) awaitsCopy(t *modelTenant) bool {
	comes := m.placeCopy(t, nil) != ""
	for _, state := range t.copies {
		if state == fsm.CopyInSync {
			return false
		}
		comes = comes || replica(state)
	}
	return comes && m.wanted(t) > 0
}

func (m *model) changeCopy(c fsm.CopyChange) {
	t := m.unit(c.UnitRef)
	if t == nil || t.step != 0 || t.previous != "" || t.epoch != c.Epoch || c.From == 0 || t.copies[c.Node] != c.From {
		return
	}
	safe := m.wanted(t) == 0
	for on, state := range t.copies {
		safe = safe || on != c.Node && state == fsm.CopyInSync
	}
	switch [2]fsm.CopyState{c.From, c.To} {
	case [2]fsm.CopyState{1, 5}, [2]fsm.CopyState{5, 2}, [2]fsm.CopyState{5, 1}, [2]fsm.CopyState{2, 1}:
		t.copies[c.Node] = c.To
	case [2]fsm.CopyState{1, 4}, [2]fsm.CopyState{2, 4}, [2]fsm.CopyState{3, 4}, [2]fsm.CopyState{5, 4}:
		if c.From == fsm.CopyFormer && m.nodes[c.Node].region != m.nodes[t.node].region && !m.awaitsCopy(t) {
			safe = true
		}
		if mv := m.moveOf(t); safe && (mv == nil || mv.to != c.Node) {
			t.copies[c.Node] = c.To
		}
	}
}

// compareCopies tells where a unit and the model's differ.
func (m *model) compareCopies(t *modelTenant, p *fsm.Placed) error {
	for _, c := range p.Copies {
		if t.copies[c.Node] != c.State {
			return fmt.Errorf("the copy on %s is %s", c.Node, t.copies[c.Node])
		}
	}
	lacks := false
	if t.step == 0 && m.level >= 2 {
		have := 0
		for on := range t.copies {
			if m.counts(t, on) {
				have++
			}
		}
		lacks = have < m.wanted(t)
	}
	if len(p.Copies) != len(t.copies) || p.Previous != t.previous || p.Epoch != t.epoch || p.ID != t.id ||
		(p.State == fsm.UnitMoving) != t.moving || (p.Lacks != 0) != lacks {
		return fmt.Errorf("%d copies, lacks copies: %v", len(t.copies), lacks)
	}
	return nil
}

func (m *model) compareHandovers(s *fsm.State) error {
	n := 0
	for j := range s.RunningJobs() {
		if j.Kind != fsm.JobHandover {
			continue
		}
		n++
		h := m.handovers[j.Source]
		if h == nil || h.job != j.ID || h.thaw != (j.Step == fsm.StepThaw) {
			return fmt.Errorf("handover %+v, the model has %+v", *j, h)
		}
		var got, want []string
		for _, t := range s.ToThaw(j) {
			got = append(got, fmt.Sprint(t.Unit, t.ID, t.Node))
		}
		for name, g := range h.targets {
			if t := m.tenants[name]; t != nil && t.id == g.id && t.node == j.Source && t.step == 0 {
				want = append(want, fmt.Sprint(name, g.id, g.to))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			return fmt.Errorf("handover of %v, the model has %v", got, want)
		}
	}
	if n != len(m.handovers) {
		return fmt.Errorf("%d handovers, the model has %d", n, len(m.handovers))
	}
	return nil
}
