package loops

import (
	"domicile/fsm"
)

// Call is what a call is for: one step of a job on one of its targets, or Work
// that is no step of a job. Of one, only one is under way at a time.
type Call struct {
	Job    fsm.JobID
	Step   fsm.JobStep
	Target fsm.Target // the node asked, and the unit where it is about one
	Work   Verb
	Source fsm.NodeName // FollowUnits, LookAtMove: whom; LookAtUnits: the lapsed node whose copies are compared
	Epoch  uint64       // PromoteUnits; of a move's release and thaw: fsm.Job.Release
}

// Outcome says what came of a call.
type Outcome uint8

// Outcomes of calls.
const (
	Done        Outcome = 1 // it is as the step wants it: made, run, removed; of a call about many units: see Answer.Units
	Absent      Outcome = 2 // to a removal: the node does not hold this unit
	Refused     Outcome = 3 // the node said no
	Unavailable Outcome = 4 // the node said: not now; nothing was done
	Silent      Outcome = 5 // no answer; it may have been done
	Foreign     Outcome = 6 // the node belongs to another authority; nothing was done
	Fenced      Outcome = 7 // the node has heard a newer leader of this authority; nothing was done
)

// Answer is what the executor learned from a call. Refusal is what a create is
// undone with, for every outcome but Done and Absent. Its text is the same for
// the same trouble, so that it is noted once.
type Answer struct {
	Outcome Outcome
	Refusal *fsm.Refusal
	// Untouched: it is certain that the call did nothing on the node, and never
	// will. Not set, it may have, or may still.
	Untouched bool
	// Failed are, of a call about many units that is Done, those that it was not
	// done for; Held is what LookAtUnits found.
	Failed map[fsm.UnitName]Failure
	Held   []Held
	// Read is what ReadNode found; Heard, where it was refused, the history of the
	// holder that the node has heard.
	Read  *NodeRead
	Heard uint64
	// Image is what LookAtMove found, nil where the node does not hold the unit.
	Image *Image
	// Aside names the file that the node keeps of what RemoveCopy removed, or is "".
	Aside string
}

// Failure says why a call was not done for a unit.
type Failure struct {
	Why    string
	Left   fsm.Millis // time after which it can be done: a promise runs out then; or 0
	Absent bool       // the node does not hold the unit
}

// Held is a unit that a node holds.
type Held struct {
	fsm.UnitRef
	Epoch, Seq uint64 // its position
	// From and To are what the node had acknowledged alone on a branch that was
	// given up, or ""; Aside names the files that it keeps of such.
	From, To string
	Aside    []string
}

// attempt is what is known of a Call in this term.
type attempt struct {
	running  bool
	touched  bool   // a call that ended was not Untouched
	last     Answer // of the last call that ended; zero before
	failures int    // calls in a row that did not end Done or Absent
	retryAt  fsm.Millis
	lastEnd  fsm.Millis // when the last call ended
	endedAt  fsm.Millis // when it first ended Done or Absent
	looks    int        // how often it did; asked again only ConfirmAfter later
}

// link is what is known of a node in this term.
type link struct {
	running  int // calls under way
	failures int // calls in a row without an answer
	retryAt  fsm.Millis
}

// Memory is what a leader knows in its own term beside the state. It is used by
// one goroutine.
type Memory struct {
	since     fsm.Revision
	calls     map[Call]*attempt
	links     map[fsm.NodeName]*link
	proposing map[Matter]fsm.Millis // a proposal is under way, or failed and waits till then
	fenced    map[fsm.JobID]bool
	running   int

	units unitMemory
	moves map[fsm.JobID]*moveMemory
	tasks map[TaskCall]*taskMemory
	// outlived is when a task was first seen to have outlived its job.
	outlived map[fsm.JobID]fsm.Millis
	// carried is when the target of a move was seen to have got more from a node, or looked
	// at first, by these two.
	carried map[[2]fsm.NodeName]fsm.Millis
	nodes   map[fsm.NodeName]*nodeMemory
	// look asks for a round over the nodes though no news of them came.
	look   bool
	lookAt fsm.Millis

	// passedOver are nodes that would have got copies, and were silent.
	passedOver map[fsm.NodeName]bool

	recovery *recoveryMemory // nil while the directory is not being recovered
}

// NewMemory is that of a leader whose term began at or before revision since:
// nobody else has made a call for a job of a later one.
func NewMemory(since fsm.Revision) *Memory {
	return &Memory{
		since:     since,
		calls:     make(map[Call]*attempt),
		links:     make(map[fsm.NodeName]*link),
		proposing: make(map[Matter]fsm.Millis),
		fenced:    make(map[fsm.JobID]bool),
		units:     newUnitMemory(),
		moves:     make(map[fsm.JobID]*moveMemory),
		tasks:     make(map[TaskCall]*taskMemory),
		outlived:  make(map[fsm.JobID]fsm.Millis),
		carried:   make(map[[2]fsm.NodeName]fsm.Millis),
		nodes:     make(map[fsm.NodeName]*nodeMemory),
		look:      true,

		passedOver: make(map[fsm.NodeName]bool),
	}
}

// Running counts the calls under way.
func (m *Memory) Running() int { return m.running }

// Begin notes that a call is under way.
func (m *Memory) Begin(a Action) {
	m.attempt(a.Call).running = true
	m.link(a.Target.Node).running++
	m.running++
	if len(a.Units) > 0 {
		m.units.flying[a.Call] = a.Units
	}
}

// End notes what came of a call that was under way.
func (m *Memory) End(c Call, a Answer, now fsm.Millis) {
	t, l := m.attempt(c), m.link(c.Target.Node)
	t.running = false
	t.last, t.lastEnd = a, now
	t.touched = t.touched || !a.Untouched
	l.running--
	m.running--
	if a.Outcome == Silent {
		l.failures++
		l.retryAt = now + backoff(l.failures, uint64(c.Job))
	} else {
		*l = link{running: l.running}
	}
	switch a.Outcome {
	case Done, Absent:
		t.failures = 0
		if t.looks++; t.looks == 1 {
			t.endedAt = now
		}
	case Fenced:
		if c.Job != 0 {
			m.fenced[c.Job] = true
			break
		}
		fallthrough
	default:
		t.failures++
		t.retryAt = now + backoff(t.failures, uint64(c.Job))
	}
	m.ended(c, t, now)
}

// ended passes on what a call that was no step of a job has brought.
func (m *Memory) ended(c Call, t *attempt, now fsm.Millis) {
	m.units.ended(c, t, now)
	if c.Work == LookAtMove {
		m.lookedAtMove(c, t.last, now)
		delete(m.calls, c)
		return
	}
	if c.Work == ReadNode {
		if m.recovery != nil {
			m.recovery.read(c, t.last, now)
		}
		delete(m.calls, c)
		return
	}
	if c.Work == FollowUnits && t.last.Outcome == Silent && !t.last.Untouched {
		// It may still arrive, when nothing is to be followed there any more.
		l := &m.node(c.Target.Node).look
		l.next = min(l.next, now+ConfirmAfter)
		m.look = true
	}
	if c.Work == LookAtUnits {
		m.node(c.Target.Node).looked(c, t.last, now)
		if lapsed, ok := m.nodes[c.Source]; ok {
			lapsed.told(c, t.last)
		}
		m.look = true
	}
	if c.Work != 0 && (t.last.Outcome == Done || t.last.Outcome == Absent) {
		delete(m.calls, c)
	}
}

// forever marks a proposal that is under way.
const forever = fsm.Millis(1<<63 - 1)

// Propose notes that a proposal is under way.
func (m *Memory) Propose(p Proposal) { m.proposing[p.Matter] = forever }

// Proposed notes that a proposal has ended; one that failed is made again
// ProposeAgain later, if the state still asks for it.
func (m *Memory) Proposed(p Proposal, ok bool, now fsm.Millis) {
	if ok {
		delete(m.proposing, p.Matter)
	} else {
		m.proposing[p.Matter] = now + ProposeAgain
	}
	m.units.proposed(p.Cmd)
	switch p.Kind {
	case MatterFailOver, MatterBack:
		m.ChangedNode(p.Node)
	}
	if p.Kind != MatterJob {
		m.look = true
	}
}

// Changed notes that something about a unit may have changed.
func (m *Memory) Changed(u fsm.UnitName) { m.units.open(u) }

// ChangedNode has every unit looked at that a node holds.
func (m *Memory) ChangedNode(n fsm.NodeName) {
	m.units.holders = append(m.units.holders, n)
	m.look = true
}

// ChangedAll has every unit looked at: a node came, changed or went, or the
// settings did, or what changed is not known.
func (m *Memory) ChangedAll() {
	m.units.scanAgain = true
	m.look = true
}

// Hurry has copies repaired without a grace until a time (C6): an operator
// asked for it.
func (m *Memory) Hurry(until fsm.Millis) {
	m.units.hurry = until
	m.ChangedAll()
}

// Forget drops what is known of jobs that have ended, and of nodes that are
// gone.
func (m *Memory) Forget(s *fsm.State, now fsm.Millis) {
	for c, t := range m.calls {
		if !t.running && (c.Job != 0 && ended(s, c.Job) || c.Work != 0 && now > t.retryAt+ScanEvery) {
			delete(m.calls, c)
		}
	}
	for at, until := range m.proposing {
		if until != forever && (at.Job != 0 && ended(s, at.Job) || at.Job == 0 && now >= until) {
			delete(m.proposing, at)
		}
	}
	for id := range m.fenced {
		if ended(s, id) {
			delete(m.fenced, id)
		}
	}
	for id := range m.moves {
		if ended(s, id) {
			delete(m.moves, id)
		}
	}
	for c, t := range m.tasks {
		if !t.running && ended(s, c.Job) {
			delete(m.tasks, c)
		}
	}
	for job := range m.outlived {
		if t, ok := s.Task(job); !ok || !s.Outlived(t) {
			delete(m.outlived, job)
		}
	}
	for n, l := range m.links {
		if _, ok := s.Node(n); !ok && l.running == 0 {
			delete(m.links, n)
		}
	}
	for n := range m.nodes {
		if _, ok := s.Node(n); !ok {
			delete(m.nodes, n)
			delete(m.passedOver, n)
		}
	}
}

func ended(s *fsm.State, id fsm.JobID) bool {
	j, ok := s.Job(id)
	return !ok || j.Ended != 0
}

// known gives what is known of a call without noting anything.
func (m *Memory) known(c Call) attempt {
	if t, ok := m.calls[c]; ok {
		return *t
	}
	return attempt{}
}

func (m *Memory) attempt(c Call) *attempt {
	t, ok := m.calls[c]
	if !ok {
		t = new(attempt)
		m.calls[c] = t
	}
	return t
}

func (m *Memory) link(n fsm.NodeName) *link {
	l, ok := m.links[n]
	if !ok {
		l = new(link)
		m.links[n] = l
	}
	return l
}

func (m *Memory) node(n fsm.NodeName) *nodeMemory {
	k, ok := m.nodes[n]
	if !ok {
		k = newNodeMemory()
		m.nodes[n] = k
	}
	return k
}

// backoff doubles from 200 ms to 10 s, less up to a quarter, so that jobs that
// failed together do not come back together. The part taken off follows from
// seed and failures: planners draw nothing.
func backoff(failures int, seed uint64) fsm.Millis {
	wait := uint64(10_000)
	if failures < 7 {
		wait = min(wait, 200<<(failures-1))
	}
	x := (seed + uint64(failures)) * 0x9e3779b97f4a7c15
	return fsm.Millis(wait - wait/4*(x>>48)/(1<<16))
}
