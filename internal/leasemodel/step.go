package leasemodel

// Kind is a kind of step.
type Kind uint8

// Steps.
const (
	StepTick     Kind = iota // one tick passes for everybody
	StepSlow                 // one tick passes, which the primary's clock does not see
	StepElect                // the old leader is deposed, and does not know it
	StepInherit              // the same, and an entry of the old one is in the new one's log
	StepSend                 // a leader sends a grant
	StepGrant                // a grant arrives
	StepRepeat               // a grant arrives, and will once more
	StepHear                 // the primary hears the new leader by another call
	StepAnswer               // an answer arrives
	StepLapse                // a leader takes the primary for lapsed
	StepApply                // the entry that says so is applied
	StepRefuse               // it is refused
	StepRecord               // an entry records the copy
	StepFollow               // the copy follows
	StepRelease              // the primary releases the unit
	StepGiven                // the entry that flips the released unit is applied
	StepPromote              // a promotion arrives at the copy
	StepAsk                  // the primary asks for a promise
	StepPromise              // the request arrives at the copy
	StepPromised             // its answer arrives
	StepRestart              // the primary restarts
	StepRestartB             // the copy restarts
	StepWrite                // the primary lets a write in
	StepWritten              // it answers the write
)

// Step is one step: its kind, the leader it concerns, and the message.
type Step struct {
	Kind   Kind
	Leader uint8
	Msg    message
}

// Model is a rule and its bounds.
type Model struct {
	Rule   Rule
	Bounds Bounds
}

// Start gives the states to begin with.
func (m *Model) Start() []State {
	s := State{Holder: 1, Recorded: 1, Follows: 1, Has: 1}
	s.Until[0] = m.patience()
	if m.Bounds.Joining {
		joining := s
		joining.Recorded, joining.Follows, joining.Has = 0, 0, 0
		return []State{s, joining}
	}
	return []State{s}
}

// patience is how long a leader waits from an answer.
func (m *Model) patience() uint8 {
	if m.Rule.Tenth {
		return m.Bounds.Lease + 1
	}
	return m.Bounds.Lease
}

// leads reports whether leader l is the group's leader.
func (s *State) leads(l uint8) bool { return l == s.Elected }

// knows reports whether leader l has applied the flip.
func (s *State) knows(l uint8) bool {
	return s.Flipped != 0 && (l == 1 || s.OldKnows != 0)
}

// Each calls yield for every step that may be next.
func (m *Model) Each(s *State, yield func(Step, *State)) {
	if s.Holder == 0 { // settled for good
		return
	}
	m.time(s, yield)
	m.leaders(s, yield)
	m.messages(s, yield)
	m.primary(s, yield)
	if m.Bounds.Promises {
		m.promises(s, yield)
	}
}

// emit settles a state and hands it out.
func (m *Model) emit(yield func(Step, *State), step Step, s State) {
	m.settle(&s)
	yield(step, &s)
}

func down(v *uint8) {
	if *v > 0 {
		*v--
	}
}

func (m *Model) time(s *State, yield func(Step, *State)) {
	n := *s
	down(&n.Until[0])
	down(&n.Until[1])
	down(&n.Promised)
	down(&n.PutOff)
	if s.Steady == 0 {
		slow := n
		slow.Steady = m.Bounds.Lease
		m.emit(yield, Step{Kind: StepSlow}, slow)
	}
	down(&n.Steady)
	for i := range n.Right {
		down(&n.Right[i])
	}
	down(&n.Older)
	down(&n.Window)
	down(&n.AskLeft)
	m.emit(yield, Step{Kind: StepTick}, n)
}

func (m *Model) leaders(s *State, yield func(Step, *State)) {
	if s.Elected == 0 {
		m.elect(s, yield)
	}
	for l := range s.Elected + 1 {
		m.send(s, l, yield)
	}
	l := s.Elected // steps of entries are those of the leader alone
	if s.Flipped != 0 {
		return
	}
	if (s.InSync != 0 || m.Bounds.ByHand && s.Has != 0) && s.Until[l] == 0 && s.Decided[l] == 0 {
		n := *s
		n.Decided[l] = 1
		m.emit(yield, Step{Kind: StepLapse, Leader: l}, n)
	}
	if s.Decided[l] != 0 {
		n := *s
		n.Decided[l] = 0
		m.emit(yield, Step{Kind: StepRefuse, Leader: l}, n)
		n.flip(l)
		m.emit(yield, Step{Kind: StepApply, Leader: l}, n)
	}
	if s.Released != 0 || s.Gave != 0 {
		n := *s
		n.Decided[l] = 0
		n.flip(l)
		m.emit(yield, Step{Kind: StepGiven, Leader: l}, n)
	}
	if s.Recorded == 0 {
		n := *s
		n.Recorded = 1 + l
		m.emit(yield, Step{Kind: StepRecord, Leader: l}, n)
	}
}

func (s *State) flip(l uint8) {
	s.Flipped = 1
	if l == 0 {
		s.OldKnows = 1
	}
}

// elect deposes the old leader. An entry of its own that was under way may be
// in the new one's log, or not.
func (m *Model) elect(s *State, yield func(Step, *State)) {
	n := *s
	n.Elected = 1
	if m.Rule.WaitElected {
		n.Until[1] = m.patience()
	}
	m.emit(yield, Step{Kind: StepElect}, n)
	if n.Decided[0] != 0 && n.Flipped == 0 {
		n.Flipped = 1
		m.emit(yield, Step{Kind: StepInherit}, n)
	}
}

// send has leader l send a grant. It may name any boot, and give the list whole
// or by name alone; the rule's leader knows better.
func (m *Model) send(s *State, l uint8, yield func(Step, *State)) {
	if s.Sent[l] >= m.Bounds.Grants[l] || s.Decided[l] != 0 && m.Rule.QuietDecided {
		return
	}
	list := listAlone
	if s.knows(l) {
		list = listEmpty
	} else if s.Recorded == 1 || s.Recorded == 2 && l == 1 {
		list = listWithOne
	}
	for boot := range int(s.Boot) + 1 {
		for _, whole := range []bool{true, false} {
			n := *s
			n.Sent[l]++
			g := grant(int(l), int(n.Sent[l]), int(s.Confirmed[l]), boot, list, whole)
			m.put(n, g, Step{Kind: StepSend, Leader: l, Msg: g}, yield)
		}
	}
}

// put sends a message; where too many are in flight it displaces any other, or
// is lost itself, which is how messages are lost.
func (m *Model) put(n State, msg message, step Step, yield func(Step, *State)) {
	if n.add(msg, m.Bounds.InFlight) {
		m.emit(yield, step, n)
		return
	}
	m.emit(yield, step, n)
	for i := range m.Bounds.InFlight {
		o := n
		o.remove(i)
		o.add(msg, m.Bounds.InFlight)
		m.emit(yield, step, o)
	}
}

func (m *Model) messages(s *State, yield func(Step, *State)) {
	for i, msg := range s.Flight {
		if msg == 0 {
			break
		}
		n := *s
		n.remove(i)
		if msg.isAnswer() {
			m.answered(&n, msg)
			m.emit(yield, Step{Kind: StepAnswer, Leader: msg.leader(), Msg: msg}, n)
			continue
		}
		m.granted(n, msg, StepGrant, yield)
		if s.Duplicates < m.Bounds.Duplicates {
			n = *s
			n.Duplicates++
			if after := n; !m.take(&after, msg) || !m.idle(&after, msg) {
				m.granted(n, msg, StepRepeat, yield)
			}
		}
	}
}

// answered has the leader see an answer. A leadership check that succeeds is
// taken to follow at once where it can at all: the sooner, the more acked names.
func (m *Model) answered(n *State, msg message) {
	l := msg.leader()
	if msg.number() > n.Answered[l] {
		n.Answered[l] = msg.number()
		n.Until[l] = m.patience()
		if n.leads(l) || !m.Rule.Check {
			n.Confirmed[l] = n.Answered[l]
		}
	}
	if msg.inSync() && n.leads(l) {
		n.InSync = 1
	}
}

// granted has the primary take a grant, or refuse it, and answer.
func (m *Model) granted(n State, msg message, kind Kind, yield func(Step, *State)) {
	step := Step{Kind: kind, Leader: msg.leader(), Msg: msg}
	follows := n.Follows != 0
	if !m.take(&n, msg) {
		m.emit(yield, step, n)
		return
	}
	m.put(n, answer(int(msg.leader()), int(msg.number()), n.List == listWithOne && follows), step, yield)
}

// take is clauses 2, 6 and 9 at the primary.
func (m *Model) take(n *State, msg message) bool {
	r := &m.Rule
	if m.stale(n, msg) {
		return false
	}
	held := msg.whole() || n.List == msg.list()
	if !held && r.Whole {
		return false
	}
	if h := msg.leader() + 1; h != n.Holder {
		m.hear(n, h)
	}
	k := msg.number()
	n.Newest = max(n.Newest, k)
	n.Right[k-1] = m.Bounds.Lease
	n.Acked = max(n.Acked, msg.acked())
	if !r.Confirm {
		n.Acked = max(n.Acked, k)
	}
	if held && (msg.list() != listEmpty || r.ListAtOnce) {
		n.List = msg.list()
	}
	if !r.Remember {
		n.Follows = 0
	}
	return true
}

// stale reports that the primary refuses a grant whatever its list.
func (m *Model) stale(n *State, msg message) bool {
	r, h := &m.Rule, msg.leader()+1
	return r.NewerHolder && h < n.Holder || r.Boot && msg.boot() != n.Boot ||
		r.Order && h == n.Holder && msg.number() <= n.Newest
}

// hear makes h the holder: what is left under the former one runs out as it
// would have.
func (m *Model) hear(n *State, h uint8) {
	n.Older = n.deadline()
	n.Right = [maxGrants]uint8{}
	n.Newest, n.Acked = 0, 0
	n.Holder = h
}
