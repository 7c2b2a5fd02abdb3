package fsm_test

import (
	"fmt"
	"slices"

	"domicile/fsm"
)

// modelMove is a move that has not ended.
type modelMove struct {
	tenant       fsm.TenantName
	id           fsm.UnitID
	source, to   fsm.NodeName
	step         fsm.JobStep
	cause        fsm.FlipCause
	forced       bool
	why          fsm.Code // it is given up
	pause, bytes uint64
}

type modelRebalance struct {
	job   fsm.JobID
	moves []fsm.Target
}

type modelDrain fsm.Drain

func (m *model) runMoves(c fsm.Command) fsm.Code {
	switch c := c.(type) {
	case *fsm.BeginMove:
		return m.beginMove(c)
	case *fsm.CancelMove:
		return m.cancelMove(c)
	case *fsm.BeginRebalance:
		twice := false
		for i, t := range c.Moves {
			twice = twice || slices.ContainsFunc(c.Moves[:i], func(o fsm.Target) bool { return o.Unit == t.Unit })
		}
		switch {
		case m.rebalance != nil:
			return fsm.CodeBusy
		case len(c.Moves) == 0 || twice:
			return fsm.CodeBadRequest
		}
		m.rebalance = &modelRebalance{fsm.JobID(m.at), slices.Clone(c.Moves)}
	case *fsm.SetDrain:
		return m.setDrain(c)
	}
	return ""
}

// moveOf gives the move that may still bring t itself to its target, or nil.
func (m *model) moveOf(t *modelTenant) *modelMove {
	for _, mv := range m.moves {
		if m.tenants[mv.tenant] == t && mv.id == t.id && mv.step != fsm.StepClean {
			return mv
		}
	}
	return nil
}

// movesTo gives the node that a moving tenant is given to.
func (m *model) movesTo(name fsm.TenantName, t *modelTenant) fsm.NodeName {
	if mv := m.moveOf(t); mv != nil && mv.step == fsm.StepRelease {
		return mv.to
	}
	return m.handovers[t.node].targets[name].to
}

func (mv *modelMove) early() bool {
	return mv.step == fsm.StepQueue || mv.step == fsm.StepCopy || mv.step == fsm.StepThaw
}

// awaits: a tenant is to come to a node.
func (m *model) awaits(n fsm.NodeName) bool {
	for _, mv := range m.moves {
		if mv.to == n && mv.why == "" && (mv.early() || mv.step == fsm.StepRelease) {
			return true
		}
	}
	return false
}

func (t *modelTenant) targetsLeave() {
	for on, state := range t.copies {
		if state == fsm.CopyTarget {
			t.copies[on] = fsm.CopyLeaving
		}
	}
}

// subject gives the tenant that a move is of, unless it is gone.
func (m *model) subject(mv *modelMove) *modelTenant {
	if t := m.tenants[mv.tenant]; t != nil && t.id == mv.id && t.step == 0 {
		return t
	}
	return nil
}

func (m *model) giveUpMovesTo(n fsm.NodeName) {
	for _, mv := range m.moves {
		if mv.to == n && mv.early() && mv.why == "" {
			m.giveUp(mv, fsm.CodeMoveUndone)
		}
	}
}

func (m *model) giveUp(mv *modelMove, why fsm.Code) {
	mv.why = why
	if t := m.subject(mv); t != nil {
		t.targetsLeave()
	}
}

func (m *model) endMove(id fsm.JobID, why fsm.Code) {
	mv := m.moves[id]
	if mv.why != "" {
		why = mv.why
	}
	if t := m.subject(mv); t != nil && why != "" {
		t.targetsLeave()
	}
	delete(m.moves, id)
	m.over[id] = why
}

func (m *model) beginMove(c *fsm.BeginMove) fsm.Code {
	if c.Group == 0 {
		return m.newMove(c)
	}
	r := m.rebalance
	if r == nil || r.job != c.Group || c.Cause != fsm.CauseRebalance {
		return fsm.CodeStale
	}
	i := slices.IndexFunc(r.moves, func(t fsm.Target) bool { return t.Unit == c.Unit && t.Node == c.To })
	if i < 0 {
		return fsm.CodeStale
	}
	if t := m.tenants[fsm.TenantName(c.Unit)]; t == nil || t.id == r.moves[i].ID {
		m.newMove(c)
	}
	if r.moves = slices.Delete(r.moves, i, i+1); len(r.moves) == 0 {
		m.rebalance = nil
		m.over[r.job] = ""
	}
	return ""
}

func (m *model) newMove(c *fsm.BeginMove) fsm.Code {
	name := fsm.TenantName(c.Unit)
	t := m.tenants[name]
	switch {
	case t == nil && (c.Unit == "" || c.Unit == "Bad"):
		return fsm.CodeBadRequest
	case m.homes[name] != nil:
		return fsm.CodeRegionElsewhere
	case t == nil:
		return fsm.CodeTenantUnknown
	case c.Cause < fsm.CauseMove || c.Cause > fsm.CauseRebalance:
		return fsm.CodeBadRequest
	case t.step != 0:
		return fsm.CodeBusy
	case c.Cause == fsm.CauseDrain && m.nodes[t.node].drain == nil:
		return fsm.CodeStale
	case t.pinned && (c.Cause == fsm.CauseRebalance || c.Cause == fsm.CauseDrain && !c.Forced):
		return fsm.CodePinned
	}
	for _, mv := range m.moves {
		if mv.tenant == name && mv.step != fsm.StepClean {
			return fsm.CodeBusy
		}
	}
	to, code := m.moveTo(t, c)
	if code == "" {
		m.moves[fsm.JobID(m.at)] = &modelMove{tenant: name, id: t.id, source: t.node, to: to, step: fsm.StepQueue, cause: c.Cause,
			forced: c.Forced && c.Cause == fsm.CauseDrain}
	}
	return code
}

// moveTo gives the node that a move goes to (M1).
func (m *model) moveTo(t *modelTenant, c *fsm.BeginMove) (fsm.NodeName, fsm.Code) {
	home := m.nodes[t.node].region
	region := home
	if c.Region != nil {
		region = *c.Region
		known := m.regions[region]
		for _, n := range m.nodes {
			known = known || n.region == region
		}
		switch {
		case region == "global":
			return "", fsm.CodeBadRequest
		case !known:
			return "", fsm.CodeRegionUnknown
		}
	}
	if m.own(region) {
		return "", fsm.CodeRegionElsewhere
	}
	if c.To == "" {
		switch {
		case c.Region == nil && c.Cause != fsm.CauseDrain:
			return "", fsm.CodeBadRequest
		case c.Region != nil && region == home:
			return "", fsm.CodeAlreadyThere
		}
		if n := m.emptiest(&region, t.node, c.Silent); n != "" {
			return n, ""
		}
		return "", fsm.CodeNoNode
	}
	n := m.nodes[c.To]
	switch {
	case n == nil:
		return "", fsm.CodeNodeUnknown
	case n.region != region:
		return "", fsm.CodeRegionMismatch
	case c.To == t.node:
		return "", fsm.CodeAlreadyThere
	case slices.Contains(c.Silent, c.To):
		return "", fsm.CodeNodeUnreachable
	}
	return c.To, m.takesNone(c.To)
}

// takesNone says why nothing is moved to a node.
func (m *model) takesNone(n fsm.NodeName) fsm.Code {
	switch {
	case m.standbyOf(n):
		return fsm.CodeNodeIsStandby
	case m.nodes[n].drain != nil:
		return fsm.CodeNodeDraining
	case m.nodes[n].lost:
		return fsm.CodeNodeLost
	}
	return ""
}

func (m *model) cancelMove(c *fsm.CancelMove) fsm.Code {
	if r := m.rebalance; r != nil && r.job == c.ID {
		m.rebalance = nil
		m.over[c.ID] = fsm.CodeCancelled
		return ""
	}
	mv := m.moves[c.ID]
	switch {
	case mv == nil && m.ended[c.ID]:
		return fsm.CodeMoveEnded
	case mv == nil:
		return fsm.CodeMoveUnknown
	case !mv.early():
		return fsm.CodeMoveReleased
	case mv.step == fsm.StepThaw:
		m.giveUp(mv, fsm.CodeCancelled)
	default:
		m.endMove(c.ID, fsm.CodeCancelled)
	}
	return ""
}

func (m *model) noteMove(c *fsm.NoteJob) bool {
	mv := m.moves[c.ID]
	if mv != nil && c.Pause != 0 {
		mv.pause = uint64(c.Pause)
	}
	if mv != nil && c.Bytes != 0 {
		mv.bytes = c.Bytes
	}
	return mv != nil || m.rebalance != nil && m.rebalance.job == c.ID
}

// advanceMove is false for a job that is no move and no rebalance.
func (m *model) advanceMove(c *fsm.AdvanceJob) (fsm.Code, bool) {
	mv := m.moves[c.ID]
	switch {
	case mv == nil && m.rebalance != nil && m.rebalance.job == c.ID:
		if c.From != fsm.StepBegin {
			return fsm.CodeStale, true
		}
		return fsm.CodeBadRequest, true
	case mv == nil:
		return "", false
	case mv.step != c.From:
		return fsm.CodeStale, true
	}
	return m.stepMove(c, mv, m.subject(mv)), true
}

func (m *model) stepMove(c *fsm.AdvanceJob, mv *modelMove, t *modelTenant) fsm.Code {
	there := t != nil && t.node == mv.to
	switch {
	case c.Refusal != nil:
		if c.Refusal.Code == "" || c.To != fsm.StepDone || !mv.early() && (mv.step != fsm.StepPromote || there) {
			return fsm.CodeBadRequest
		}
		m.endMove(c.ID, c.Refusal.Code)
	case mv.step == fsm.StepClean && c.To == fsm.StepDone:
		m.endMove(c.ID, "")
	case mv.why != "":
		return fsm.CodeStale
	case mv.early() && c.To == fsm.StepPromote && there:
		mv.step = fsm.StepPromote
		if t.previous == "" {
			mv.step = fsm.StepClean
		}
	case mv.early() && c.To == fsm.StepCopy, mv.step == fsm.StepCopy && c.To == fsm.StepRelease:
		return m.copyOrRelease(c, mv, t)
	default:
		return fsm.CodeBadRequest
	}
	return ""
}

func (m *model) copyOrRelease(c *fsm.AdvanceJob, mv *modelMove, t *modelTenant) fsm.Code {
	release := c.To == fsm.StepRelease
	ready := t != nil && !t.moving && t.previous == "" && t.node != mv.to
	switch {
	case t == nil, release && (!ready || !listed(t.copies[mv.to])):
		return fsm.CodeStale
	case m.takesNone(mv.to) != "":
		return m.takesNone(mv.to)
	case !ready, !release && mv.step == fsm.StepCopy && listed(t.copies[mv.to]):
		return fsm.CodeStale
	case t.pinned && (mv.cause == fsm.CauseRebalance || mv.cause == fsm.CauseDrain && !mv.forced):
		return fsm.CodePinned
	}
	mv.source, mv.step = t.node, c.To
	if release {
		t.moving = true
		return ""
	}
	if !replica(t.copies[mv.to]) {
		t.copies[mv.to] = fsm.CopyTarget
	}
	if m.nodes[mv.to].region != m.nodes[t.node].region {
		m.besideTarget(mv, t)
	}
	return ""
}

// besideTarget fills the replicas that a tenant is to have in its new region (M4).
func (m *model) besideTarget(mv *modelMove, t *modelTenant) {
	real := t.node
	t.node = mv.to
	defer func() { t.node = real }()
	have := -1
	for _, state := range t.copies {
		if state == fsm.CopyTarget {
			have++
		}
	}
	for range m.wanted(t) - have {
		if n := m.placeCopyOf(t, nil, t); n != "" {
			t.copies[n] = fsm.CopyTarget
		}
	}
}

// cross is what a flip does to copies: in another region those of the former one leave,
// and what a move has filled are replicas from then on.
func (m *model) cross(t *modelTenant, from, to fsm.NodeName) {
	region := m.nodes[to].region
	mv := m.moveOf(t)
	for on, state := range t.copies {
		here := m.nodes[on].region == region
		switch {
		case replica(state) && !here:
			t.copies[on] = fsm.CopyLeaving
		case state == fsm.CopyTarget && mv != nil && mv.to == to:
			t.copies[on] = fsm.CopyLeaving
			if here {
				t.copies[on] = fsm.CopySyncing
			}
		}
	}
}

// leaveReleases has the moves go on that waited for a node's release.
func (m *model) leaveReleases(source fsm.NodeName) {
	for _, mv := range m.moves {
		if mv.step != fsm.StepRelease || mv.source != source {
			continue
		}
		switch t := m.subject(mv); {
		case t.node == mv.to:
			mv.step = fsm.StepPromote
		case t.node != source:
			mv.step = fsm.StepCopy
		default:
			mv.step, t.moving = fsm.StepThaw, false
		}
	}
}

func (m *model) endMoveRelease(mv *modelMove, c *fsm.EndRelease) fsm.Code {
	if mv.step != fsm.StepRelease {
		return fsm.CodeStale
	}
	t := m.subject(mv)
	flips := map[fsm.TenantName]fsm.NodeName{}
	if listed(t.copies[mv.to]) && !m.nodes[mv.to].lost && slices.Contains(c.Released, fsm.UnitRef{Unit: fsm.UnitName(mv.tenant), ID: mv.id}) {
		flips[mv.tenant] = mv.to
	}
	m.flipAll(mv.source, flips, true)
	switch {
	case len(flips) > 0:
		mv.step = fsm.StepPromote
	default:
		mv.step, t.moving = fsm.StepThaw, false
	}
	m.unpair(mv.source, flips, mv.cause != fsm.CauseDrain)
	return ""
}

// promoted has a move go on whose target is confirmed.
func (m *model) promoted(t *modelTenant) {
	if mv := m.moveOf(t); mv != nil && mv.step == fsm.StepPromote && mv.to == t.node {
		mv.step = fsm.StepClean
	}
}

func (m *model) setDrain(c *fsm.SetDrain) fsm.Code {
	n := m.nodes[c.Node]
	switch {
	case n == nil:
		return noNode(c.Node)
	case !c.Drain:
		n.drain = nil
	case n.drain != nil:
		n.drain.Forced = n.drain.Forced || c.Forced
	case m.standbyOf(c.Node):
		return fsm.CodeNodeIsStandby
	default:
		others := 0
		for name, o := range m.nodes {
			if name != c.Node && o.region == n.region && !o.lost && o.drain == nil && (n.standby == name || o.weight > 0 && !m.standbyOf(name)) {
				others++
			}
		}
		own := false
		for _, t := range m.tenants {
			own = own || t.node == c.Node || t.copies[c.Node].Replica()
		}
		if own && others <= m.replicas && !c.Forced {
			return fsm.CodeNoRoom
		}
		n.drain = &modelDrain{ID: m.at, Since: m.now, Units: uint32(m.held(c.Node)), Forced: c.Forced}
	}
	return ""
}

func (m *model) compareMoves(s *fsm.State) error {
	n := 0
	for j := range s.RunningJobs() {
		switch j.Kind {
		case fsm.JobMove:
			n++
			mv, why := m.moves[j.ID], fsm.Code("")
			if j.Refusal != nil {
				why = j.Refusal.Code
			}
			t := j.Targets[0]
			if mv == nil || j.Tenant != mv.tenant || t.ID != mv.id || t.Node != mv.to || j.Source != mv.source || j.Step != mv.step ||
				j.Cause != mv.cause || why != mv.why || uint64(j.Pause) != mv.pause || j.Bytes != mv.bytes {
				return fmt.Errorf("move %+v, the model has %+v", *j, mv)
			}
		case fsm.JobRebalance:
			if r := m.rebalance; r == nil || r.job != j.ID || !slices.Equal(r.moves, j.Targets) {
				return fmt.Errorf("rebalance %+v, the model has %+v", *j, r)
			}
		}
	}
	if n != len(m.moves) || (s.Rebalance() != nil) != (m.rebalance != nil) {
		return fmt.Errorf("%d moves, the model has %d; rebalance %+v", n, len(m.moves), m.rebalance)
	}
	for id, code := range m.over {
		j, ok := s.Job(id)
		if !ok || j.Ended == 0 || (j.Refusal != nil) != (code != "") || code != "" && j.Refusal.Code != code {
			return fmt.Errorf("move %d ended as %+v, the model says %q", id, j, code)
		}
		m.ended[id] = true
	}
	return nil
}
