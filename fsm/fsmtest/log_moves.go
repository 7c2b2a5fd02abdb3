package fsmtest

import "domicile/fsm"

// movesCommand gives a command of moves, drains or rebalances that fits s more often
// than not.
func (l *Log) movesCommand(s *fsm.State) fsm.Command {
	switch n := l.rand.IntN(100); {
	case n < 22:
		return l.beginMove(s)
	case n < 75:
		if j := l.move(s); j.Step == fsm.StepRelease {
			return l.endMoveRelease(j)
		} else if j.Kind == fsm.JobMove {
			return l.advanceMove(s, j)
		}
		return l.beginMove(s)
	case n < 80:
		return &fsm.CancelMove{ID: pick(l, l.move(s).ID, l.job(s).ID, l.anyJob(s)), Reason: pick(l, "", "not today")}
	case n < 84:
		return l.beginRebalance(s)
	case n < 90:
		j := l.move(s)
		return &fsm.NoteJob{ID: j.ID, Problem: pick(l, "", "the disk is full"), Pause: fsm.Millis(l.rand.IntN(50)), Bytes: uint64(l.rand.IntN(1 << 20))}
	default:
		return &fsm.SetDrain{Node: l.node(), Drain: l.one(2), Forced: l.one(2)}
	}
}

// move gives a running move, or a job that is none.
func (l *Log) move(s *fsm.State) *fsm.Job {
	j, n := &fsm.Job{ID: fsm.JobID(l.at)}, 0
	for r := range s.RunningJobs() {
		if r.Kind == fsm.JobMove {
			if n++; l.one(n) {
				j = r
			}
		}
	}
	return j
}

func (l *Log) anyJob(s *fsm.State) (id fsm.JobID) {
	n := 0
	for j := range s.Jobs() {
		if n++; l.one(n) {
			id = j.ID
		}
	}
	return id
}

func (l *Log) beginMove(s *fsm.State) *fsm.BeginMove {
	if j := s.Rebalance(); j != nil && !l.one(4) {
		t := j.Targets[l.rand.IntN(len(j.Targets))]
		return &fsm.BeginMove{Unit: t.Unit, To: pick(l, t.Node, t.Node, t.Node, l.node()), Cause: fsm.CauseRebalance, Group: j.ID}
	}
	p := l.unit(s)
	m := &fsm.BeginMove{Unit: p.Unit, To: l.node(), Cause: fsm.CauseMove}
	switch {
	case l.one(8):
		m.Cause = fsm.FlipCause(l.rand.IntN(10))
	case l.one(2):
		if n, ok := s.Node(p.Node); ok && n.Drain != nil {
			m.Cause = fsm.CauseDrain
			m.To = pick(l, "", "", m.To)
		}
	}
	if n, ok := s.Node(m.To); ok && !l.one(6) {
		m.Region = &n.Region
	}
	if l.one(4) {
		m.To = ""
		if l.one(2) {
			m.Region = ptr(l.region())
		}
	}
	if l.one(20) {
		m.Region = ptr(pick[fsm.RegionName](l, "global", "", "xx", "ap"))
	}
	m.Forced = l.one(3)
	if l.one(20) {
		m.Group = l.anyJob(s)
	}
	if l.one(6) {
		m.Silent = []fsm.NodeName{l.node()}
	}
	return m
}

// advanceMove takes a move a step on, or gives it up.
func (l *Log) advanceMove(s *fsm.State, j *fsm.Job) *fsm.AdvanceJob {
	next := map[fsm.JobStep]fsm.JobStep{
		fsm.StepQueue: fsm.StepCopy, fsm.StepCopy: fsm.StepRelease, fsm.StepThaw: fsm.StepCopy, fsm.StepClean: fsm.StepDone, fsm.StepPromote: fsm.StepDone,
	}
	a := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: next[j.Step]}
	t := j.Targets[0]
	if p, ok := s.Placed(t.Unit); ok && p.Node == t.Node && l.one(2) {
		a.To = fsm.StepPromote
	} else if j.Step == fsm.StepCopy && l.one(3) {
		a.To = fsm.StepCopy
	}
	if j.Step != fsm.StepClean && l.one(8) || j.Step == fsm.StepPromote && l.one(2) || j.Refusal != nil && l.one(2) {
		a.To = fsm.StepDone
		a.Refusal = &fsm.Refusal{Code: pick(l, fsm.CodeMoveUndone, fsm.CodeMoveUndone, fsm.CodeDeleted, ""), Text: "it cannot be"}
	}
	if l.one(15) {
		a.From, a.To = fsm.JobStep(l.rand.IntN(13)), fsm.JobStep(l.rand.IntN(13))
	}
	return a
}

func (l *Log) endMoveRelease(j *fsm.Job) *fsm.EndRelease {
	e := &fsm.EndRelease{ID: j.ID}
	if !l.one(4) {
		e.Released = []fsm.UnitRef{l.ref(&fsm.Placed{Unit: j.Targets[0].Unit, ID: j.Targets[0].ID})}
	}
	return e
}

func (l *Log) beginRebalance(s *fsm.State) *fsm.BeginRebalance {
	b := &fsm.BeginRebalance{}
	for range l.rand.IntN(5) {
		p := l.unit(s)
		r := l.ref(p)
		b.Moves = append(b.Moves, fsm.Target{Unit: r.Unit, ID: r.ID, Node: l.node()})
	}
	return b
}
