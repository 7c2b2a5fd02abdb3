package loops

import (
	"slices"

	"domicile/fsm"
)

// receive plans the next step of a unit's way into this directory (architecture §3.9.2).
// Once it has arrived it is promoted as after any flip.
func (p *planner) receive(j *fsm.Job) {
	switch j.Step {
	case fsm.StepCopy:
		p.followForeign(j)
	case fsm.StepPromote:
		if p.subject(j) == nil { // it was deleted
			p.step(j, fsm.StepDone)
		}
	case fsm.StepUndo:
		p.remove(j)
	}
}

// Receiving is how far what a node of another directory holds was copied.
type Receiving struct {
	Bytes, Total uint64
	Ready        bool // it lacks nothing but what is under way
	Silent       bool // the node that is to be the primary does not answer
	Trouble      string
}

// Receiving tells how far a receive is, as its nodes told this leader.
func (m *Memory) Receiving(id fsm.JobID) Receiving {
	if k, ok := m.moves[id]; ok {
		return k.receiving
	}
	return Receiving{}
}

// countBetween counts units that come from another directory, or go there, among the
// moves of their nodes (B3).
func (p *planner) countBetween(j *fsm.Job) {
	switch {
	case j.Kind == fsm.JobDepart && (j.Step == fsm.StepCopy || j.Step == fsm.StepRelease):
		if u := p.subject(j); u != nil {
			p.moving[u.Node]++
		}
	case j.Kind == fsm.JobReceive && j.Step == fsm.StepCopy && p.m.move(j.ID).begun:
		p.moving[j.Targets[0].Node]++
	}
}

// followForeign has the unit's node, and the copies to be beside it, follow the node of
// the other directory, and notes how far they are.
func (p *planner) followForeign(j *fsm.Job) {
	k, to := p.m.move(j.ID), j.Targets[0].Node
	u, ok := p.s.Placed(j.Targets[0].Unit)
	if !ok || u.ID != j.Unit {
		return // cannot be: a unit that is received has its record as long as its job copies
	}
	if !k.begun {
		if p.moving[to] >= p.movesPerNode() {
			k.receiving.Trouble = ""
			return
		}
		k.begun = true
		p.moving[to]++
	}
	nodes := []fsm.NodeName{to}
	for _, c := range u.Copies {
		nodes = append(nodes, c.Node)
	}
	for _, n := range nodes {
		p.tellForeign(j, n)
		p.lookAtForeign(j, k, n)
	}
	p.noteReceiving(j, k, nodes)
}

// foreignCall is the call that has a node follow the one of the other directory.
func foreignCall(j *fsm.Job, n fsm.NodeName) Call {
	t := j.Targets[0]
	t.Node = n
	return Call{Job: j.ID, Step: j.Step, Work: FollowUnits, Target: t, Epoch: j.Other.Epoch}
}

func (p *planner) tellForeign(j *fsm.Job, n fsm.NodeName) {
	m, c := &p.m.units, foreignCall(j, n)
	r := fsm.UnitRef{Unit: c.Target.Unit, ID: c.Target.ID}
	told, ok := m.told[fsm.CopyRef{UnitRef: r, Node: n}]
	t := p.m.known(c)
	switch at := told.at + TellAgain; {
	case t.running:
	case ok && told.epoch == c.Epoch && told.kind == fsm.CopyTarget && (p.now < at || p.m.move(j.ID).node(n).image.Follows):
		p.wakeAt(max(at, p.now+1))
	case p.now < max(t.retryAt, m.hold[hold{r.Unit, n, FollowUnits}]):
		p.wakeAt(max(t.retryAt, m.hold[hold{r.Unit, n, FollowUnits}]))
	default:
		p.call(Action{Call: c, Verb: FollowUnits, Units: []Item{{UnitRef: r, Epoch: c.Epoch, Kind: fsm.CopyTarget}}}, true)
	}
}

// foreignMemory is what a node told of what it follows in another directory.
type foreignMemory struct {
	looking  bool
	looks    fsm.Millis // since it was there last, or did not follow
	nextLook fsm.Millis
	image    Image
	trouble  string
}

func (k *moveMemory) node(n fsm.NodeName) *foreignMemory {
	if k.nodes == nil {
		k.nodes = make(map[fsm.NodeName]*foreignMemory)
	}
	f, ok := k.nodes[n]
	if !ok {
		f = new(foreignMemory)
		k.nodes[n] = f
	}
	return f
}

// LookAtForeignEvery is when a node is asked first how far it is with what it copies from
// another directory, which nobody but itself can tell; as long as it does not follow, each
// time so much later, up to LookAtMoveEvery.
const LookAtForeignEvery fsm.Millis = 50

func (p *planner) lookAtForeign(j *fsm.Job, k *moveMemory, n fsm.NodeName) {
	f, t := k.node(n), j.Targets[0]
	t.Node = n
	switch {
	case f.looking:
	case p.now < f.nextLook:
		p.wakeAt(f.nextLook)
	default:
		f.looking = p.call(Action{Call: Call{Job: j.ID, Step: j.Step, Work: LookAtMove, Target: t}, Verb: LookAtMove}, true)
		if !f.looking {
			p.wakeAt(p.now + LookAtMoveEvery)
		}
	}
}

// lookedAtForeign notes what a node told.
func (k *moveMemory) lookedAtForeign(n fsm.NodeName, a Answer, now fsm.Millis) {
	f := k.node(n)
	f.looking, f.trouble, f.nextLook = false, "", now+LookAtMoveEvery
	f.looks++
	switch {
	case a.Outcome != Done:
		f.image.Follows = false
		f.trouble = "node " + string(n) + " does not answer"
		if a.Refusal != nil {
			f.trouble = a.Refusal.Text
		}
		return
	case a.Image == nil:
		f.image = Image{} // it was not told to follow yet
	default:
		f.image = *a.Image
		if f.image.Problem != "" {
			f.trouble = "node " + string(n) + " cannot follow: " + f.image.Problem
		}
	}
	if !f.image.Follows && f.trouble == "" {
		f.nextLook = now + min(LookAtMoveEvery, f.looks*LookAtForeignEvery)
	}
}

// noteReceiving sums up what the nodes of a receive told.
func (p *planner) noteReceiving(j *fsm.Job, k *moveMemory, nodes []fsm.NodeName) {
	to := nodes[0]
	f := k.node(to)
	k.receiving = Receiving{Bytes: f.image.Bytes, Total: f.image.Total, Trouble: f.trouble}
	k.receiving.Silent = p.isSilent(to)
	if f.image.Total == 0 {
		k.receiving.Bytes, k.receiving.Total = f.image.Held, f.image.Held
	}
	switch n, ok := p.s.Node(to); {
	case !ok:
	case n.Lost:
		k.receiving.Trouble = "node " + string(to) + " was lost: it was failed over and has not answered since"
	case n.Drain != nil:
		k.receiving.Trouble = "node " + string(to) + " is being drained"
	}
	if !f.image.Follows || k.receiving.Trouble != "" {
		k.beside = 0
		return
	}
	waits := slices.ContainsFunc(nodes[1:], func(n fsm.NodeName) bool { return !p.isSilent(n) && !k.node(n).image.Follows })
	if waits && k.beside == 0 {
		k.beside = p.now
	}
	if waits && p.now < k.beside+BesideFor {
		p.wakeAt(k.beside + BesideFor)
		return
	}
	k.receiving.Ready = true
}

// followsNow reports whether a call that has a node follow for a receive is under way: a
// removal would be too early.
func (p *planner) followsNow(j *fsm.Job, n fsm.NodeName) bool {
	return j.Kind == fsm.JobReceive && p.m.units.beingTold(j.Targets[0].Unit, n)
}
