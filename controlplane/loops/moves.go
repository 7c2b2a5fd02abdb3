package loops

import (
	"slices"

	"domicile/fsm"
)

// Limits and times of moves.
const (
	// LookAtMoveEvery is how often the target of a move is asked how far it is.
	LookAtMoveEvery fsm.Millis = 1000
	// MoveSilence is for how long a move waits for a target that does not answer, or
	// cannot follow, before it is undone.
	MoveSilence fsm.Millis = 30_000
	// MoveStalled is for how long a target that says that it follows may get nothing and
	// still lack something, before its move is undone; nor anything of another move from
	// the same node, behind whose image its own may stand in line.
	MoveStalled fsm.Millis = 300_000
	// BesideFor is for how long a target that has caught up waits for the replicas to be
	// beside it: what they lack then is placed by repair (C6).
	BesideFor fsm.Millis = 120_000
	// ReleaseTries is how often a source is asked to give a unit up for one move.
	ReleaseTries = 5
)

// moveMemory is what a leader knows of a move in its own term.
type moveMemory struct {
	nextLook  fsm.Millis
	troubled  fsm.Millis // since when the target is silent or cannot follow; 0: it is neither
	trouble   string
	looking   bool
	way       [2]fsm.NodeName // source and target when the target told last; zero: it has not
	image     Image           // that it told
	beside    fsm.Millis      // since when the target has waited for the replicas to be; 0: it does not
	frozen    fsm.Millis      // when the source was asked for the release that was given
	tries     int             // releases that were not given
	why       string          // the last one was not
	confirmed fsm.Revision
	pause     fsm.Millis // for how long writes waited; 0: that is not known
	copied    bool       // it was no copy in sync before
	measured  bool       // it was asked how large the unit is since it is written there
	bytes     uint64
	// Of a receive: its nodes were let follow, what they told, and the sum of that.
	begun     bool
	nodes     map[fsm.NodeName]*foreignMemory
	receiving Receiving
	between   betweenMemory // of a relocation
}

// Image is how far a move's target is, as it tells.
type Image struct {
	Bytes, Total uint64 // of the image that it takes; 0 where none is under way
	Held         uint64 // bytes of the unit as it holds it
	Problem      string // why it does not follow, or ""
	Follows      bool   // it gets what is committed as it is: it lacks no more than that
}

func (m *Memory) move(id fsm.JobID) *moveMemory {
	k, ok := m.moves[id]
	if !ok {
		k = new(moveMemory)
		m.moves[id] = k
	}
	return k
}

// lookedAtMove notes what a move's target told.
func (m *Memory) lookedAtMove(c Call, a Answer, now fsm.Millis) {
	k := m.move(c.Job)
	if c.Source == "" {
		k.lookedAtForeign(c.Target.Node, a, now)
		return
	}
	k.nextLook, k.looking = now+LookAtMoveEvery, false
	k.measured = k.measured || c.Step == fsm.StepClean
	switch {
	case a.Outcome != Done:
		k.trouble = "it does not answer"
		if a.Refusal != nil {
			k.trouble = a.Refusal.Text
		}
	case a.Image == nil:
		k.trouble = "it does not hold the unit"
	default:
		way := [2]fsm.NodeName{c.Source, c.Target.Node}
		if k.way != way || *a.Image != k.image {
			m.carried[way] = now
		}
		k.way, k.image = way, *a.Image
		if k.trouble = a.Image.Problem; k.trouble == "" {
			k.bytes = max(a.Image.Held, a.Image.Total)
		}
	}
	if k.trouble == "" {
		k.troubled = 0
	} else if k.troubled == 0 {
		k.troubled = now
	}
}

// countMoves counts, for each node, the moves that copy to or from it, and those that
// are to take a unit from it.
func (p *planner) countMoves(j *fsm.Job) {
	if j.Step == fsm.StepClean {
		return
	}
	if u := p.subject(j); u != nil {
		p.leaving[u.Node]++
	}
	if j.Step != fsm.StepQueue || !p.free(Matter{Kind: MatterJob, Job: j.ID}) {
		p.takeTurn(j)
	}
}

func (p *planner) takeTurn(j *fsm.Job) {
	t := j.Targets[0]
	source := j.Source
	if u := p.subject(j); u != nil && u.Node != t.Node {
		source = u.Node
	}
	p.moving[source]++
	p.moving[t.Node]++
}

// turn reports whether one more move between two nodes may begin (B3).
func (p *planner) turn(a, b fsm.NodeName) bool {
	limit := p.movesPerNode()
	return p.moving[a] < limit && p.moving[b] < limit
}

func (p *planner) movesPerNode() int {
	if n := p.s.Settings().MovesPerNode; n != 0 {
		return int(n)
	}
	return fsm.DefaultMovesPerNode
}

// move plans a move's next step.
func (p *planner) move(j *fsm.Job) {
	u := p.subject(j)
	switch j.Step {
	case fsm.StepQueue:
		p.queue(j, u)
	case fsm.StepCopy:
		p.copyUnit(j, u)
	case fsm.StepRelease:
		p.release(j)
	case fsm.StepThaw:
		p.thaw(j)
	case fsm.StepPromote:
		p.promoteMoved(j, u)
	case fsm.StepClean:
		p.clean(j, u)
	}
}

// subject gives the unit of a move, nil where it was deleted.
func (p *planner) subject(j *fsm.Job) *fsm.Placed {
	t := j.Targets[0]
	u, ok := p.s.Placed(t.Unit)
	if !ok || u.ID != t.ID || u.State != fsm.UnitActive && u.State != fsm.UnitMoving {
		return nil
	}
	return u
}

func (p *planner) step(j *fsm.Job, to fsm.JobStep) {
	p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: to})
}

// undo ends a move with the reason.
func (p *planner) undo(j *fsm.Job, code fsm.Code, text string) {
	p.advance(j, &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone, Refusal: &fsm.Refusal{Code: code, Text: text,
		Fields: map[string]string{"tenant": string(j.Tenant), "node": string(j.Targets[0].Node)}}})
}

// ready reports whether a move may go on from the queue or the copying with a unit as
// it stands, and else ends it, sends it on, or has it wait.
func (p *planner) ready(j *fsm.Job, u *fsm.Placed) bool {
	to := j.Targets[0].Node
	switch {
	case j.Refusal != nil:
		p.undo(j, j.Refusal.Code, j.Refusal.Text)
		return false
	case u == nil:
		p.undo(j, fsm.CodeDeleted, "tenant "+string(j.Tenant)+" was deleted")
		return false
	case u.Node == to:
		p.step(j, fsm.StepPromote)
		return false
	}
	if code, why := p.unwanted(j, u); why != "" {
		p.undo(j, code, why)
		return false
	}
	n, ok := p.s.Node(to)
	switch {
	case !ok:
		p.undo(j, fsm.CodeMoveUndone, "node "+string(to)+" is not recorded any more")
	case n.Lost:
		p.undo(j, fsm.CodeMoveUndone, "node "+string(to)+" was lost: it was failed over and has not answered since")
	case n.Drain != nil:
		p.undo(j, fsm.CodeNodeDraining, "node "+string(to)+" is being drained")
	case u.State != fsm.UnitActive || !u.Promoted(): // it is being given to another node; the move goes on from there
	default:
		return true
	}
	return false
}

// unwanted says why nobody wants any more what a drain or a rebalance began, or "".
func (p *planner) unwanted(j *fsm.Job, u *fsm.Placed) (fsm.Code, string) {
	if j.Cause != fsm.CauseDrain && j.Cause != fsm.CauseRebalance {
		return "", ""
	}
	if t, ok := p.s.Tenant(j.Tenant); ok && t.Pinned && !j.Forced {
		return fsm.CodePinned, "tenant " + string(j.Tenant) + " was pinned"
	}
	if n, ok := p.s.Node(u.Node); ok && n.Drain == nil && j.Cause == fsm.CauseDrain {
		return fsm.CodeCancelled, "node " + string(u.Node) + ", which the tenant is on, is not being drained"
	}
	return "", ""
}

func (p *planner) queue(j *fsm.Job, u *fsm.Placed) {
	if !p.ready(j, u) || !p.turn(u.Node, j.Targets[0].Node) {
		return
	}
	p.takeTurn(j)
	p.step(j, fsm.StepCopy)
}

// copyUnit waits until the target lacks nothing but what is under way, and the replicas
// to be beside it that are there, too.
func (p *planner) copyUnit(j *fsm.Job, u *fsm.Placed) {
	if !p.ready(j, u) {
		return
	}
	k, to := p.m.move(j.ID), j.Targets[0].Node
	if k.troubled != 0 && p.now >= k.troubled+MoveSilence {
		p.undo(j, fsm.CodeMoveUndone, "node "+string(to)+" cannot take the tenant: "+k.trouble)
		return
	}
	i := slices.IndexFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == to && c.State.Listed() })
	if i < 0 { // it was the primary for a while, or the directory was recovered
		p.step(j, fsm.StepCopy)
		return
	}
	whole := !p.isSilent(to) && p.caughtUp(u, u.Copies[i])
	if !whole && k.way == [2]fsm.NodeName{u.Node, to} && p.now >= p.m.carried[k.way]+MoveStalled {
		p.undo(j, fsm.CodeMoveUndone, "node "+string(to)+" says that it follows, and has got nothing for minutes")
		return
	}
	if whole && !p.besideIsMissing(k, u) {
		k.troubled, k.copied = 0, u.Copies[i].State == fsm.CopyTarget
		p.step(j, fsm.StepRelease)
		return
	}
	p.m.look = p.m.look || p.m.units.watch(u, p.s.Revision())
	switch {
	case p.now < k.nextLook:
		p.wakeAt(k.nextLook)
	case !p.lookAtMove(j, k, u.Node):
		p.wakeAt(p.now + LookAtMoveEvery)
	}
}

// lookAtMove asks a move's target how far it is on its way from a node, and reports
// whether it was asked.
func (p *planner) lookAtMove(j *fsm.Job, k *moveMemory, from fsm.NodeName) bool {
	if !k.looking {
		k.looking = p.call(Action{Call: Call{Job: j.ID, Step: j.Step, Work: LookAtMove, Target: j.Targets[0], Source: from}, Verb: LookAtMove}, true)
	}
	return k.looking
}

// besideIsMissing reports whether a target that has caught up is to wait for the replicas
// to be beside it.
func (p *planner) besideIsMissing(k *moveMemory, u *fsm.Placed) bool {
	if !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool {
		return c.State == fsm.CopyTarget && !p.isSilent(c.Node) && !p.caughtUp(u, c)
	}) {
		return false
	}
	if k.beside == 0 {
		k.beside = p.now
	}
	p.wakeAt(k.beside + BesideFor)
	return p.now < k.beside+BesideFor
}

// caughtUp reports whether a copy lacks nothing but what is under way, as the unit's
// primary reports.
func (p *planner) caughtUp(u *fsm.Placed, c fsm.Copy) bool {
	n, ok := p.s.Node(u.Node)
	news := p.news.Nodes[u.Node]
	if c.State == fsm.CopyInSync {
		return news == nil || !slices.Contains(news.Uncompared, u.Unit) // else its source refuses
	}
	if !ok || news == nil || !news.Answered || news.Silent || news.Lapsed {
		return false
	}
	named, watched := p.m.units.syncing[u.Node][u.Unit]
	r := reporting{p: p, node: n, news: news, current: news.List == p.s.ListRevision(u.Node)}
	return watched && !slices.Contains(news.Uncompared, u.Unit) && !slices.Contains(news.Missing, u.Unit) &&
		r.counts(u, c, named) && !r.lags(u.Unit, c.Node)
}

// promoteMoved waits until the target is promoted: that is the unit's, as after any flip.
func (p *planner) promoteMoved(j *fsm.Job, u *fsm.Placed) {
	switch {
	case u == nil:
		p.undo(j, fsm.CodeDeleted, "tenant "+string(j.Tenant)+" was deleted")
	case u.Node != j.Targets[0].Node && u.Promoted():
		p.undo(j, fsm.CodeMoveUndone, "node "+string(j.Targets[0].Node)+" was lost before it was promoted; the tenant is on "+string(u.Node))
	}
}

// clean notes for how long writes waited, and what was copied, once the unit can be
// written at its target, and ends the move when nothing of it is left elsewhere (M9).
func (p *planner) clean(j *fsm.Job, u *fsm.Placed) {
	if u == nil {
		p.step(j, fsm.StepDone)
		return
	}
	k, to := p.m.move(j.ID), j.Targets[0].Node
	if k.confirmed == 0 {
		k.confirmed = p.s.ListRevision(to)
	}
	news := p.news.Nodes[to]
	if j.Pause == 0 && k.frozen != 0 {
		if news == nil || news.Following == nil && news.List < k.confirmed && u.Node == to {
			p.m.look = true // the grant that names it is on its way
			return
		}
		if k.pause == 0 {
			k.pause = max(p.now-k.frozen, 1)
		}
		// A move may be over between two looks at it: its size is asked at its end.
		if !k.copied || k.measured || !p.lookAtMove(j, k, j.Source) {
			p.advance(j, &fsm.NoteJob{ID: j.ID, Pause: k.pause, Bytes: k.bytes})
		}
		return
	}
	if !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyFormer || c.State == fsm.CopyLeaving }) {
		p.step(j, fsm.StepDone)
	}
}

// rebalance begins the next moves of a plan whose turn has come.
func (p *planner) rebalance(j *fsm.Job) {
	for _, t := range j.Targets {
		u, ok := p.s.Placed(t.Unit)
		if ok && u.ID == t.ID && u.Node != t.Node && !p.turn(u.Node, t.Node) {
			continue
		}
		p.advance(j, &fsm.BeginMove{Unit: t.Unit, To: t.Node, Cause: fsm.CauseRebalance, Group: j.ID})
		return
	}
}
