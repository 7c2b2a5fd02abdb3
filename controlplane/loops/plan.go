package loops

import (
	"slices"

	"domicile/fsm"
)

// Limits and times of the executor's work.
const (
	// CallsAtOnce bounds all calls under way: nodes × a few, within what one
	// process can keep in sockets.
	CallsAtOnce = 512
	// CallsPerNode bounds those to one node that answers. Promotions, positions
	// and handovers are not held up by it: there is one of each at a time.
	CallsPerNode = 16
	// UnitsPerCall bounds the units of one call and of one entry: an entry of
	// so many of the longest names stays below what the log takes (256 KiB).
	UnitsPerCall = 1000
	// UnitsPerHandover bounds the units that a node hands over at once: each of them
	// is frozen until the last one was released.
	UnitsPerHandover = 64
	// UnitsPerRound bounds the units that one round looks at.
	UnitsPerRound = 20_000
	// TriesUnavailable is how often a create asks a node that says "not now"
	// before it is undone: together about three seconds.
	TriesUnavailable = 5
	// ConfirmAfter is when a unit is looked for a second time, whose make got no
	// answer, or that no entry places where it is: longer than a call may take
	// (controlplane's callTimeout).
	ConfirmAfter fsm.Millis = 12_000
	// ProposeAgain is the pause after a proposal that failed.
	ProposeAgain fsm.Millis = 200
	// PositionsWithin bounds the wait for positions before a failover (C7).
	PositionsWithin fsm.Millis = 100
	// TellAgain is when a copy that was told to follow, and did not come in sync,
	// is told again.
	TellAgain fsm.Millis = 15_000
	// DamagedAgain is for how long a unit that was given to its copy because its file
	// was damaged is not given on by itself for the same reason: where the copy is
	// damaged too, it would go to and fro.
	DamagedAgain fsm.Millis = 600_000
	// RefusedAgain is for how long a node that did not promote a unit is not given it
	// again, where another may have it.
	RefusedAgain fsm.Millis = 30_000
	// ScanEvery is how often every unit is looked at though nothing was heard of
	// it, and LookEvery how often every node is asked what it holds.
	ScanEvery fsm.Millis = 60_000
	LookEvery fsm.Millis = 300_000
)

// Verb says what a call does.
type Verb uint8

// Verbs.
const (
	MakeUnit  Verb = 1
	RunSchema Verb = 2
	// RemakeAndRunSchema removes the unit, makes it again and runs the schema.
	RemakeAndRunSchema Verb = 3
	RemoveUnit         Verb = 4
	// FollowUnits has the node follow Call.Source for units.
	FollowUnits Verb = 5
	// PromoteUnits makes the node the primary of units at Call.Epoch.
	PromoteUnits Verb = 6
	// HandOverUnits has the node give units up to their new nodes, and ThawUnits
	// take those back that it did not give up.
	HandOverUnits Verb = 7
	ThawUnits     Verb = 8
	// RemoveCopy removes a unit that lives on elsewhere: what the node holds of a
	// branch of its own it keeps aside (L7).
	RemoveCopy Verb = 10
	// LookAtUnits asks what the node holds.
	LookAtUnits Verb = 9
	// ReadNode asks, in a recovery, what the node holds and for how long its lease
	// runs, and has it take nothing of an older history any more.
	ReadNode Verb = 11
	// LookAtMove asks the target of a move how far it is.
	LookAtMove Verb = 12
)

func (v Verb) String() string {
	switch v {
	case MakeUnit:
		return "make"
	case RunSchema, RemakeAndRunSchema:
		return "schema"
	case RemoveUnit, RemoveCopy:
		return "remove"
	case FollowUnits:
		return "follow"
	case PromoteUnits:
		return "promote"
	case HandOverUnits:
		return "hand over"
	case ThawUnits:
		return "thaw"
	case LookAtUnits, LookAtMove:
		return "look"
	case ReadNode:
		return "read"
	}
	return "unknown"
}

// Item is a unit of a call about many.
type Item struct {
	fsm.UnitRef
	Epoch uint64       // FollowUnits: of the branch that its primary writes
	Node  fsm.NodeName // HandOverUnits, ThawUnits: whom the unit is given to
	// Kind is what the copy of FollowUnits is for: CopyTarget, CopyReader, or 0 for a
	// replica.
	Kind fsm.CopyState
}

// Action is a call to be made.
type Action struct {
	Call
	Verb  Verb
	Units []Item // of the calls about many units
}

// Matter is what a proposal is about; of one, only one is under way at a time.
type Matter struct {
	Kind  MatterKind
	Job   fsm.JobID
	Node  fsm.NodeName
	Epoch uint64
}

// MatterKind tells matters apart.
type MatterKind uint8

// Kinds of matters: a job's next step, and what is done beside jobs, most of it
// for a node apart.
const (
	MatterJob       MatterKind = 1
	MatterLease     MatterKind = 2 // whether a node takes leases
	MatterFailOver  MatterKind = 3
	MatterBack      MatterKind = 4 // a lost node answers
	MatterHandover  MatterKind = 5 // a node that stops, or is behind
	MatterPromoted  MatterKind = 6 // by node and epoch
	MatterReport    MatterKind = 7 // copies that came in sync, or fell behind
	MatterAdd       MatterKind = 8
	MatterLeave     MatterKind = 9
	MatterDrop      MatterKind = 10
	MatterLongLease MatterKind = 11
	MatterFlipAgain MatterKind = 12 // units that their node does not promote
	MatterRecovery  MatterKind = 13
	MatterMove      MatterKind = 14 // a move that a drain begins
	MatterSettle    MatterKind = 16 // a task that has outlived its job, by the number of that
	MatterReaders   MatterKind = 15 // read replicas that are missing, or where they should not be
)

// Proposal is a command to be proposed.
type Proposal struct {
	Matter
	Cmd fsm.Command
	// Lapse numbers the lapse that a failover was decided on (NodeNews.Lapse).
	Lapse uint64
	// Raise, where it is not 0, has the history raised to it, in this Recovery,
	// in the place of a command.
	Raise    uint64
	Recovery fsm.Revision
}

// Lapse is a node that was taken for lapsed, and which time that was.
type Lapse struct {
	Node   fsm.NodeName
	Number uint64
}

// Finding is something that people should know of, told once.
type Finding struct {
	Kind FindingKind
	Node fsm.NodeName
	Unit fsm.UnitRef
	// From and To are what a node had acknowledged alone on a branch that was
	// given up; Files what it keeps aside of it.
	From, To string
	Files    []string
	Count    int // FoundUnplaced: units
}

// FindingKind tells findings apart.
type FindingKind uint8

// Kinds of findings.
const (
	FoundLost     FindingKind = 1 // positions were lost, or files are kept aside (L7)
	FoundUnplaced FindingKind = 2 // a node holds units that are not placed there; they are removed
)

// Plan is what is to be done at once, and when to look again though nothing
// happens: 0 for never.
type Plan struct {
	Calls     []Action
	Proposals []Proposal
	Tasks     []TaskAction // calls to the groups of regions
	Regions   []RegionCall
	Findings  []Finding
	// Resume names lapsed nodes of which there is nothing to be failed over: the
	// keeper of leases may try them again.
	Resume []Lapse
	Wake   fsm.Millis
}

// Next plans what a leader does next. What it plans must be noted in m (Begin, BeginTask,
// BeginRegion, Propose) before it is called again.
func Next(s *fsm.State, m *Memory, news *News, now fsm.Millis) Plan {
	p := planner{s: s, m: m, news: news, now: now, taken: make(map[fsm.NodeName]int),
		sources: make(map[fsm.NodeName]bool), moving: make(map[fsm.NodeName]int), leaving: make(map[fsm.NodeName]int), batches: make(map[Call][]Item)}
	if p.news == nil {
		p.news = &News{}
	}
	if r := s.Recovery(); r.Running() {
		p.recover(r)
		return p.plan
	}
	m.recovery = nil
	p.lookAtJobs()
	p.lookAtNodes()
	p.lookAtUnits()
	p.jobs()
	p.drains()
	p.settleTasks()
	return p.plan
}

type planner struct {
	s     *fsm.State
	m     *Memory
	news  *News
	now   fsm.Millis
	taken map[fsm.NodeName]int // calls planned in this round
	// sources are nodes that are handing units over.
	sources map[fsm.NodeName]bool
	moving  map[fsm.NodeName]int // moves that copy to or from a node
	leaving map[fsm.NodeName]int // moves that take a unit from a node, those that wait too
	plan    Plan

	// What the units that were looked at ask for, put together; order keeps
	// that in which it was asked first.
	batches map[Call][]Item
	order   []Call
	lists   unitLists
}

func (p *planner) wakeAt(t fsm.Millis) {
	if t != forever && (p.plan.Wake == 0 || t < p.plan.Wake) {
		p.plan.Wake = t
	}
}

// call plans a call within the limits, and reports whether it did. A patient one
// waits for a node that is known to be silent, behind the one call that tries
// it.
func (p *planner) call(a Action, patient bool) bool {
	n := a.Target.Node
	limit, running := CallsPerNode, p.taken[n]
	if l, ok := p.m.links[n]; ok {
		running += l.running
		if patient && l.failures > 0 {
			if p.now < l.retryAt {
				p.wakeAt(l.retryAt)
				return false
			}
			limit = 1
		}
	}
	if running >= limit || p.m.running+len(p.plan.Calls) >= CallsAtOnce {
		return false // an answer that comes in makes room, and is a reason to plan again
	}
	p.put(a)
	return true
}

// put plans a call whatever the limits.
func (p *planner) put(a Action) {
	p.taken[a.Target.Node]++
	p.plan.Calls = append(p.plan.Calls, a)
}

// propose plans a proposal, unless one about the same matter is under way or
// has just failed, and reports whether it did.
func (p *planner) propose(m Matter, cmd fsm.Command) bool {
	if !p.free(m) {
		return false
	}
	p.plan.Proposals = append(p.plan.Proposals, Proposal{Matter: m, Cmd: cmd})
	return true
}

// free reports whether a proposal about m may be made now.
func (p *planner) free(m Matter) bool {
	if until, waiting := p.m.proposing[m]; waiting && p.now < until {
		p.wakeAt(until)
		return false
	}
	return !slices.ContainsFunc(p.plan.Proposals, func(q Proposal) bool { return q.Matter == m })
}
