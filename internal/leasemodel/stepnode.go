package leasemodel

// primary is what the primary does by itself, and what is asked of it.
func (m *Model) primary(s *State, yield func(Step, *State)) {
	if s.Elected != 0 && s.Holder < 2 {
		n := *s
		m.hear(&n, 2)
		m.emit(yield, Step{Kind: StepHear, Leader: 1}, n)
	}
	if s.Recorded != 0 && (s.Follows == 0 || s.Has == 0) && s.Promoted == 0 {
		n := *s
		n.Follows, n.Has = 1, 1
		m.emit(yield, Step{Kind: StepFollow}, n)
	}
	// By order of any leader that it has not heard a newer one of.
	if s.Released == 0 && s.named() && s.Follows != 0 && s.Promoted == 0 {
		n := *s
		n.Released, n.Gave = 1, 1
		m.emit(yield, Step{Kind: StepRelease}, n)
	}
	if s.Boot < m.Bounds.Restarts {
		n := *s
		m.restart(&n)
		m.emit(yield, Step{Kind: StepRestart}, n)
	}
	if !m.Rule.Recheck {
		m.writes(s, yield)
	}
	if m.Bounds.Promises && s.Flipped != 0 && s.Promoted == 0 {
		n := *s
		m.promote(&n)
		m.emit(yield, Step{Kind: StepPromote}, n)
	}
}

// restart loses what the primary keeps in memory; holder and release are on
// disk.
func (m *Model) restart(n *State) {
	n.Boot++
	n.List, n.Newest, n.Acked, n.Older = listNone, 0, 0, 0
	n.Right = [maxGrants]uint8{}
	n.Held, n.Follows, n.Window, n.Ask, n.AskLeft, n.Writing = 0, 0, 0, 0, 0, 0
	if !m.Rule.RecordRelease {
		n.Released = 0
	}
}

// writes has the primary check its right when it takes a write in, and not
// again before it answers.
func (m *Model) writes(s *State, yield func(Step, *State)) {
	n := *s
	may := s.mayWrite(&m.Rule, &m.Bounds)
	if s.Writing == 0 && may {
		n.Writing = 1
		m.emit(yield, Step{Kind: StepWrite}, n)
	}
	if s.Writing != 0 {
		n.Writing = 0
		if !may && s.Promoted != 0 {
			n.Twice = 1
		}
		m.emit(yield, Step{Kind: StepWritten}, n)
	}
}

// promote asks the copy to be promoted, by any leader that has applied the flip.
func (m *Model) promote(n *State) {
	if n.Promised == 0 || !m.Rule.KeepPromise {
		n.Promoted = 1
		return
	}
	if n.Asked == 0 {
		n.Asked, n.PutOff = 1, n.Promised
	} else if n.PutOff == 0 {
		n.Late = 1
	}
}

// promises is clause 10.
func (m *Model) promises(s *State, yield func(Step, *State)) {
	if s.named() && s.Recorded != 0 && (s.Held != 0 || !m.Rule.OnlyContinues) {
		n := *s // a request that is under way is given up for lost
		n.Ask, n.AskLeft = askSent, m.Bounds.Lease
		if m.Rule.NineTenths {
			n.AskLeft--
		}
		m.emit(yield, Step{Kind: StepAsk}, n)
	}
	if s.Ask == askSent {
		n := *s
		if m.grantPromise(&n) {
			n.Ask = askAnswered
		} else {
			n.Ask, n.AskLeft = askNothing, 0
		}
		m.emit(yield, Step{Kind: StepPromise}, n)
	}
	if s.Ask == askAnswered {
		n := *s
		n.Window = max(n.Window, n.AskLeft)
		if !m.Rule.SinceSent {
			n.Window = m.Bounds.Lease - 1
		}
		n.Ask, n.AskLeft = askNothing, 0
		m.emit(yield, Step{Kind: StepPromised}, n)
	}
	if s.CopyBoot < m.Bounds.CopyRestarts {
		n := *s
		n.CopyBoot++
		n.Promised, n.Asked, n.PutOff = 0, 0, 0
		if n.Marked != 0 {
			n.Promised = m.Bounds.Lease
		}
		m.emit(yield, Step{Kind: StepRestartB}, n)
	}
}

// grantPromise has the copy answer a request.
func (m *Model) grantPromise(n *State) bool {
	if n.Promoted != 0 || n.Asked != 0 && m.Rule.StopRenewing {
		return false
	}
	n.Promised = m.Bounds.Lease
	if m.Rule.RecordPromise {
		n.Marked = 1
	}
	return true
}

// settle brings states that can do the same from now on into one form.
func (m *Model) settle(s *State) {
	r := &m.Rule
	if s.Released != 0 && r.RecordRelease && r.Released {
		*s = State{Released: 1, Gave: 1} // never writes again, whatever comes
		return
	}
	if m.Bounds.Promises && s.named() && s.deadline() > 0 {
		s.Held = 1
	}
	if !s.named() {
		s.Held, s.Window, s.Ask = 0, 0, askNothing
	}
	if s.AskLeft == 0 && r.SinceSent { // worth nothing any more
		s.Ask = askNothing
	}
	if s.Ask == askNothing {
		s.AskLeft = 0
	}
	if s.Flipped != 0 && !m.Bounds.Promises {
		s.Promoted = 1 // nothing holds it up, and the sooner the worse
	}
	if s.Promoted != 0 {
		s.Promised, s.Marked, s.Asked, s.PutOff, s.InSync = 0, 0, 0, 0, 1
		s.CopyBoot = m.Bounds.CopyRestarts
	}
	if s.Flipped != 0 {
		s.Until, s.InSync = [2]uint8{}, 1
		s.Decided[s.Elected] = 0
	}
	if s.Acked > 0 {
		for i := range s.Acked - 1 { // below the highest acked
			s.Right[i] = 0
		}
	}
	m.settleDeposed(s)
	for i := 0; i < maxGrants && s.Flight[i] != 0; {
		if m.idle(s, s.Flight[i]) {
			s.remove(i)
		} else {
			i++
		}
	}
}

// settleDeposed drops what a deposed leader can make no use of.
func (m *Model) settleDeposed(s *State) {
	r := &m.Rule
	if s.Elected == 0 || !r.Check {
		return
	}
	s.Until[0], s.Answered[0] = 0, s.Confirmed[0]
	if s.Holder == 1 && r.Confirm {
		for k := s.Confirmed[0]; k < maxGrants; k++ { // never acked
			if k+1 != s.Acked {
				s.Right[k] = 0
			}
		}
	}
	if s.Holder == 2 && r.NewerHolder {
		s.Sent[0] = m.Bounds.Grants[0]
		s.Answered[0], s.Confirmed[0], s.Decided[0], s.OldKnows = 0, 0, 0, 0
	}
}

// idle reports whether a message can do nothing from now on.
func (m *Model) idle(s *State, msg message) bool {
	r, l := &m.Rule, msg.leader()
	if msg.isAnswer() {
		if l == 0 && s.Elected != 0 && r.Check {
			return true
		}
		return msg.number() <= s.Answered[l] && (s.InSync != 0 || !msg.inSync() || !s.leads(l))
	}
	switch {
	case r.NewerHolder && l+1 < s.Holder:
		return true
	case r.Boot && msg.boot() < s.Boot:
		return true
	}
	return r.Boot && r.NewerHolder && r.Order && l+1 == s.Holder && msg.number() <= s.Newest
}
