package fsmtest

import (
	"fmt"

	"domicile/fsm"
)

// copiesCommand gives a command of leases, failover or copies that fits s more
// often than not.
func (l *Log) copiesCommand(s *fsm.State) fsm.Command {
	switch n := l.rand.IntN(100); {
	case n < 8:
		return &fsm.SetNodeLease{Node: l.node(), Lease: pick(l, fsm.LeaseTaken, fsm.LeaseTaken, fsm.LeaseNone, fsm.NodeLease(l.rand.IntN(4)))}
	case n < 14:
		return &fsm.NodeBack{Node: l.lost(s)}
	case n < 16:
		return &fsm.SettleLease{LongestLease: pick(l, s.Settings().AutoFailover, fsm.Millis(l.rand.IntN(5000)))}
	case n < 24:
		return l.failOver(s)
	case n < 32:
		return l.beginHandover(s)
	case n < 42:
		return l.endHandover(s)
	case n < 55:
		return l.confirm(s)
	case n < 68:
		return l.addCopies(s)
	case n < 94:
		return l.changeCopies(s)
	case n < 98:
		return l.dropCopies(s)
	default:
		return &fsm.DeleteNode{Name: l.node(), Force: true}
	}
}

// unit gives a unit that is placed, or one that is not.
func (l *Log) unit(s *fsm.State) *fsm.Placed {
	p, n := &fsm.Placed{Unit: fsm.UnitName(l.tenant()), ID: 1, Node: l.node()}, 0
	for _, u := range s.Placements() {
		if u != nil {
			if n++; l.one(n) {
				p = u
			}
		}
	}
	return p
}

// ref names a unit, now and then a former one of its name.
func (l *Log) ref(p *fsm.Placed) fsm.UnitRef {
	r := fsm.UnitRef{Unit: p.Unit, ID: p.ID}
	if l.one(20) {
		r.ID--
	}
	return r
}

// copy gives the node of a copy of p, or any node.
func (l *Log) copy(p *fsm.Placed) fsm.Copy {
	if len(p.Copies) == 0 || l.one(10) {
		return fsm.Copy{Node: l.node(), State: fsm.CopyState(l.rand.IntN(8))}
	}
	return p.Copies[l.rand.IntN(len(p.Copies))]
}

// lost gives a node that is lost, or any.
func (l *Log) lost(s *fsm.State) fsm.NodeName {
	n := l.node()
	for lost := range s.Nodes() {
		if lost.Lost && l.one(2) {
			n = lost.Name
		}
	}
	return n
}

// able gives a unit that has an in-sync copy, if one is found soon.
func (l *Log) able(s *fsm.State) *fsm.Placed {
	p := l.unit(s)
	for range 6 {
		for _, c := range p.Copies {
			if c.State == fsm.CopyInSync {
				return p
			}
		}
		p = l.unit(s)
	}
	return p
}

func (l *Log) failOver(s *fsm.State) *fsm.FailOver {
	p := l.able(s)
	f := &fsm.FailOver{Node: p.Node, Cause: fsm.CauseHand, Silent: l.one(2)}
	if n, ok := s.Node(p.Node); ok && n.Lease == fsm.LeaseTaken && !l.one(4) {
		f.Cause = fsm.CauseLapsed
	}
	if l.one(6) {
		f.Cause = fsm.FlipCause(l.rand.IntN(5))
	}
	if !p.Promoted() && l.one(2) {
		f.Cause, f.Choices = fsm.CauseUnpromoted, []fsm.Flip{{UnitRef: l.ref(p), From: p.Node, To: pick(l, p.Previous, l.copy(p).Node)}}
	}
	for range l.rand.IntN(3) {
		f.Choices = append(f.Choices, fsm.Flip{UnitRef: l.ref(p), From: p.Node, To: l.copy(p).Node})
		p = l.unit(s)
	}
	return f
}

func (l *Log) beginHandover(s *fsm.State) *fsm.BeginHandover {
	p := l.able(s)
	h := &fsm.BeginHandover{Node: p.Node, Cause: pick(l, fsm.CauseHand, fsm.CauseStopped, fsm.CauseBehind, fsm.CauseDrain, fsm.FlipCause(l.rand.IntN(9)))}
	for range l.rand.IntN(3) {
		h.Units = append(h.Units, l.ref(p))
		if l.one(2) {
			p = l.able(s)
		}
	}
	if l.one(4) {
		h.Silent = []fsm.NodeName{l.node()}
	}
	for range l.rand.IntN(3) {
		h.Choices = append(h.Choices, fsm.Flip{UnitRef: l.ref(p), From: p.Node, To: l.copy(p).Node})
		p = l.unit(s)
	}
	return h
}

// endHandover takes a handover a step on.
func (l *Log) endHandover(s *fsm.State) fsm.Command {
	var j *fsm.Job
	n := 0
	for r := range s.RunningJobs() {
		if r.Kind == fsm.JobHandover {
			if n++; l.one(n) {
				j = r
			}
		}
	}
	switch {
	case j == nil:
		return &fsm.EndRelease{ID: l.job(s).ID}
	case j.Step == fsm.StepThaw:
		return &fsm.AdvanceJob{ID: j.ID, From: fsm.StepThaw, To: fsm.StepDone}
	}
	e := &fsm.EndRelease{ID: j.ID}
	for _, t := range j.Targets {
		if !l.one(4) {
			e.Released = append(e.Released, l.ref(&fsm.Placed{Unit: t.Unit, ID: t.ID}))
		}
	}
	return e
}

func (l *Log) confirm(s *fsm.State) *fsm.ConfirmPromotion {
	p := l.unit(s)
	for range 10 {
		if !p.Promoted() {
			break
		}
		p = l.unit(s)
	}
	c := &fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch}
	if l.one(10) {
		c.Epoch--
	}
	for q := range s.HeldBy(p.Node) {
		if q.Epoch == p.Epoch && !l.one(4) {
			c.Units = append(c.Units, l.ref(q))
		}
	}
	return c
}

func (l *Log) addCopies(s *fsm.State) *fsm.AddCopies {
	a := &fsm.AddCopies{}
	for range 1 + l.rand.IntN(4) {
		p := l.unit(s)
		w := fsm.CopyWanted{UnitRef: l.ref(p)}
		if l.one(2) {
			w.Node = l.copy(p).Node
		}
		if l.one(4) {
			w.Node = l.node()
		}
		a.Units = append(a.Units, w)
	}
	if l.one(4) {
		a.Silent = []fsm.NodeName{l.node()}
	}
	return a
}

func (l *Log) changeCopies(s *fsm.State) *fsm.ChangeCopies {
	c := &fsm.ChangeCopies{}
	for range 1 + l.rand.IntN(6) {
		p := l.unit(s)
		cp := l.copy(p)
		to := map[fsm.CopyState]fsm.CopyState{fsm.CopySyncing: fsm.CopyJoining, fsm.CopyJoining: fsm.CopyInSync, fsm.CopyFormer: fsm.CopyLeaving}[cp.State]
		if to == 0 {
			if to = fsm.CopySyncing; !l.one(5) {
				continue
			}
		}
		if to == fsm.CopyLeaving && l.one(2) || l.one(12) {
			to = fsm.CopyState(l.rand.IntN(8))
		}
		ch := fsm.CopyChange{UnitRef: l.ref(p), Epoch: p.Epoch, Node: cp.Node, From: cp.State, To: to}
		if l.one(20) {
			ch.Epoch++
		}
		c.Changes = append(c.Changes, ch)
	}
	return c
}

func (l *Log) dropCopies(s *fsm.State) *fsm.DropCopies {
	d := &fsm.DropCopies{}
	for p := range s.HeldBy(l.node()) {
		for _, c := range p.Copies {
			if c.State == fsm.CopyLeaving || l.one(10) {
				d.Copies = append(d.Copies, fsm.CopyRef{UnitRef: l.ref(p), Node: c.Node})
			}
		}
	}
	return d
}

// Ready gives a directory that was begun as a group of this version begins one:
// with a scope, settings and a server that knows every command.
func Ready(settings fsm.Settings) *fsm.State {
	s := fsm.New()
	for i, c := range []fsm.Command{
		&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", History: 1}, Settings: settings},
		&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", Version: fsm.Version}},
	} {
		if r, _ := s.Apply(fsm.Entry{Revision: fsm.Revision(i + 1), Term: 1, At: 1_700_000_000_000, Cmd: c}); r.Refusal != nil {
			panic(fmt.Sprintf("%T: %v", c, r.Refusal))
		}
	}
	return s
}
