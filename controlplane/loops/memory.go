package loops

import (
	"domicile/fsm"
)

// Call is one step of a job on one of its targets.
type Call struct {
	Job    fsm.JobID
	Step   fsm.JobStep
	Target fsm.Target
}

// Outcome says what came of a call.
type Outcome uint8

// Outcomes of calls.
const (
	Done        Outcome = 1 // it is as the step wants it: made, run, removed
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
}

// attempt is what is known of a Call in this term.
type attempt struct {
	running  bool
	touched  bool   // a call that ended was not Untouched
	last     Answer // of the last call that ended; zero before
	failures int    // calls in a row that did not end Done or Absent
	retryAt  fsm.Millis
	endedAt  fsm.Millis // when it first ended Done or Absent
	looks    int        // how often it did; asked again only ConfirmAfter later
}

// link is what is known of a node in this term.
type link struct {
	running  int // calls under way
	failures int // calls in a row without an answer
	retryAt  fsm.Millis
}

// Memory is what a leader knows of its jobs in its own term beside the state.
// It is used by one goroutine.
type Memory struct {
	since     fsm.Revision
	calls     map[Call]*attempt
	links     map[fsm.NodeName]*link
	proposing map[fsm.JobID]fsm.Millis // a proposal is under way, or failed and waits till then
	fenced    map[fsm.JobID]bool
	running   int
}

// NewMemory is that of a leader whose term began at or before revision since:
// nobody else has made a call for a job of a later one.
func NewMemory(since fsm.Revision) *Memory {
	return &Memory{
		since:     since,
		calls:     make(map[Call]*attempt),
		links:     make(map[fsm.NodeName]*link),
		proposing: make(map[fsm.JobID]fsm.Millis),
		fenced:    make(map[fsm.JobID]bool),
	}
}

// Running counts the calls under way.
func (m *Memory) Running() int { return m.running }

// Begin notes that a call is under way.
func (m *Memory) Begin(c Call) {
	m.attempt(c).running = true
	m.link(c.Target.Node).running++
	m.running++
}

// End notes what came of a call that was under way.
func (m *Memory) End(c Call, a Answer, now fsm.Millis) {
	t, l := m.attempt(c), m.link(c.Target.Node)
	t.running = false
	t.last = a
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
		m.fenced[c.Job] = true
	default:
		t.failures++
		t.retryAt = now + backoff(t.failures, uint64(c.Job))
	}
}

// forever marks a proposal that is under way.
const forever = fsm.Millis(1<<63 - 1)

// Propose notes that a proposal about a job is under way.
func (m *Memory) Propose(id fsm.JobID) { m.proposing[id] = forever }

// Proposed notes that a proposal about a job has ended; one that failed is
// made again ProposeAgain later, if the state still asks for it.
func (m *Memory) Proposed(id fsm.JobID, ok bool, now fsm.Millis) {
	if ok {
		delete(m.proposing, id)
		return
	}
	m.proposing[id] = now + ProposeAgain
}

// Forget drops what is known of jobs that have ended.
func (m *Memory) Forget(s *fsm.State) {
	for c, t := range m.calls {
		if !t.running && ended(s, c.Job) {
			delete(m.calls, c)
		}
	}
	for id := range m.proposing {
		if m.proposing[id] != forever && ended(s, id) {
			delete(m.proposing, id)
		}
	}
	for id := range m.fenced {
		if ended(s, id) {
			delete(m.fenced, id)
		}
	}
	for n, l := range m.links {
		if _, ok := s.Node(n); !ok && l.running == 0 {
			delete(m.links, n)
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
