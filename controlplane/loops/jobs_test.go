package loops

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"domicile/fsm"
)

// world is a directory with nodes, and the executor of one term on it, with
// calls that end when the test says so.
type world struct {
	t     *testing.T
	state *fsm.State
	rev   fsm.Revision
	term  uint64
	now   fsm.Millis
	m     *Memory
}

func newWorld(t *testing.T, nodes ...fsm.NodeName) *world {
	return newWorldOf(t, "", nodes...)
}

// newWorldOf is the directory of a region, or "" for the global one.
func newWorldOf(t *testing.T, region fsm.RegionName, nodes ...fsm.NodeName) *world {
	w := &world{t: t, state: fsm.New(), term: 1, now: 1}
	w.apply(0, &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", Region: region, History: 1}})
	for _, n := range nodes {
		addr, token := "127.0.0.1:1", "t"
		w.apply(0, &fsm.PutNode{Name: n, Addr: &addr, Token: &token})
	}
	w.m = NewMemory(w.rev)
	return w
}

func (w *world) apply(decided uint64, cmd fsm.Command) fsm.Result {
	w.rev++
	r, _ := w.state.Apply(fsm.Entry{Revision: w.rev, Term: w.term, At: w.now, Decided: decided, Cmd: cmd})
	return r
}

// newTerm is another leader, who knows nothing.
func (w *world) newTerm() {
	w.term++
	w.m = NewMemory(w.rev)
}

func (w *world) create(t fsm.TenantName, n fsm.NodeName, schema string) fsm.JobID {
	w.t.Helper()
	r := w.apply(0, &fsm.CreateTenant{Name: t, Node: &n, Schema: schema})
	if r.Refusal != nil {
		w.t.Fatal(r.Refusal)
	}
	return r.Job
}

func (w *world) remove(t fsm.TenantName) fsm.JobID { return w.apply(0, &fsm.DeleteTenant{Name: t}).Job }

// plan plans, begins the calls and applies the proposals.
func (w *world) plan() Plan {
	p := Next(w.state.Snapshot(), w.m, nil, w.now)
	for _, a := range p.Calls {
		w.m.Begin(a)
	}
	for _, c := range p.Proposals {
		w.m.Propose(c)
		r := w.apply(w.term, c.Cmd)
		w.m.Proposed(c, r.Refusal == nil, w.now)
	}
	w.m.Forget(w.state, w.now)
	return p
}

// expect plans and wants the one call with this verb.
func (w *world) expect(v Verb) Action {
	w.t.Helper()
	p := w.plan()
	if len(p.Calls) != 1 || p.Calls[0].Verb != v {
		w.t.Fatalf("planned %+v, want one call with verb %d", p, v)
	}
	return p.Calls[0]
}

func (w *world) end(a Action, answer Answer) { w.m.End(a.Call, answer, w.now) }

func (w *world) step(id fsm.JobID) string {
	j, ok := w.state.Job(id)
	if !ok {
		return "forgotten"
	}
	return j.Step.String()
}

var (
	done    = Answer{Outcome: Done}
	absent  = Answer{Outcome: Absent}
	refused = Answer{Outcome: Refused, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused, Text: "no"}}
	silent  = Answer{Outcome: Silent, Refusal: &fsm.Refusal{Code: fsm.CodeNodeUnreachable, Text: "silent"}}
	dead    = Answer{Outcome: Silent, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeNodeUnreachable, Text: "dead"}}
	later   = Answer{Outcome: Unavailable, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused, Text: "later"}}
	fenced  = Answer{Outcome: Fenced, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused, Text: "newer"}}
)

func TestACreateGoesThroughItsSteps(t *testing.T) {
	w := newWorld(t, "n1")
	id := w.create("a", "n1", "CREATE TABLE a(b)")
	w.end(w.expect(MakeUnit), done)
	w.plan()
	w.end(w.expect(RunSchema), done)
	w.plan()
	if p, ok := w.state.Placed("a"); w.step(id) != "done" || !ok || p.State != fsm.UnitActive {
		t.Errorf("job at %s, unit %+v", w.step(id), p)
	}
	if w.m.Running() != 0 || len(w.m.calls) != 0 {
		t.Errorf("the memory holds %+v", w.m)
	}
}

func TestASchemaIsRunOnAFreshUnitByWhoeverDidNotMakeIt(t *testing.T) {
	w := newWorld(t, "n1")
	w.create("a", "n1", "CREATE TABLE a(b)")
	w.end(w.expect(MakeUnit), done)
	w.plan()
	w.expect(RunSchema) // under way when the leader dies
	w.newTerm()
	w.end(w.expect(RemakeAndRunSchema), later)
	w.now += 1000
	w.end(w.expect(RemakeAndRunSchema), done)
}

func TestAUnitWhoseMakeMayStillArriveIsLookedForTwice(t *testing.T) {
	for which := range 2 {
		lookTwice(t, which)
	}
}

func lookTwice(t *testing.T, which int) {
	w := newWorld(t, "n1")
	id := w.create("a", "n1", "")
	w.end(w.expect(MakeUnit), silent)
	w.plan() // the refusal is recorded
	if w.step(id) != "undo" {
		t.Fatalf("job at %s", w.step(id))
	}
	w.now += 1000 // the node was silent: it is left alone for a while
	w.end(w.expect(RemoveUnit), []Answer{absent, done}[which])
	if p := w.plan(); len(p.Calls)+len(p.Proposals) != 0 || p.Wake != w.now+ConfirmAfter {
		t.Fatalf("planned %+v, want to wait", p)
	}
	w.now += ConfirmAfter
	w.end(w.expect(RemoveUnit), done)
	w.plan()
	if w.step(id) != "done" {
		t.Errorf("job at %s", w.step(id))
	}
}

func TestAMakeOfAFormerTermIsFencedByTheFirstAnswer(t *testing.T) {
	w := newWorld(t, "n1")
	id := w.create("a", "n1", "")
	w.end(w.expect(MakeUnit), silent)
	w.plan()
	w.newTerm()
	w.end(w.expect(RemoveUnit), absent)
	w.plan()
	if w.step(id) != "done" {
		t.Errorf("job at %s", w.step(id))
	}
}

func TestACreateThatNeverReachedItsNodeIsUndoneWithoutIt(t *testing.T) {
	w := newWorld(t, "n1")
	id := w.create("a", "n1", "")
	w.end(w.expect(MakeUnit), dead)
	w.plan()
	w.plan()
	if w.step(id) != "done" {
		t.Errorf("job at %s", w.step(id))
	}
	// One that a former leader may have sent is not.
	id = w.create("b", "n1", "")
	w.newTerm()
	w.now += 1000
	w.end(w.expect(MakeUnit), dead)
	w.plan()
	w.now += 1000
	w.end(w.expect(RemoveUnit), dead)
	if w.plan(); w.step(id) != "undo" {
		t.Errorf("job at %s", w.step(id))
	}
}

func TestANodeThatSaysLaterIsAskedAgainBeforeACreateIsUndone(t *testing.T) {
	w := newWorld(t, "n1")
	id := w.create("a", "n1", "")
	for range TriesUnavailable {
		w.now += 20_000
		w.end(w.expect(MakeUnit), later)
	}
	w.plan()
	if w.step(id) != "undo" {
		t.Errorf("job at %s", w.step(id))
	}
}

func TestANewerLeaderStopsAJobOnly(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.create("a", "n1", "")
	w.end(w.expect(MakeUnit), fenced)
	if p := w.plan(); len(p.Calls)+len(p.Proposals) != 0 {
		t.Errorf("planned %+v for a fenced job", p)
	}
	w.create("b", "n2", "")
	w.expect(MakeUnit)
	w.newTerm()
	if p := w.plan(); len(p.Calls) != 2 {
		t.Errorf("the next leader plans %+v, want both", p)
	}
}

// TestASilentNodeDelaysNoOther has hundreds of deletes on a silent node.
func TestASilentNodeDelaysNoOther(t *testing.T) {
	w := newWorld(t, "silent", "well")
	for i := range 2 * CallsAtOnce {
		w.create(fsm.TenantName(fmt.Sprint("s", i)), "silent", "")
	}
	for w.drain("silent", done); ; w.drain("silent", done) {
		if w.idle() {
			break
		}
	}
	for i := range 2 * CallsAtOnce {
		w.remove(fsm.TenantName(fmt.Sprint("s", i)))
	}
	p := w.plan()
	if len(p.Calls) != CallsPerNode {
		t.Fatalf("%d calls to one node, want %d", len(p.Calls), CallsPerNode)
	}
	for _, a := range p.Calls {
		w.end(a, silent)
	}
	for range 20 {
		p = w.plan()
		if len(p.Calls) > 1 {
			t.Fatalf("%d calls to a silent node, want one at a time", len(p.Calls))
		}
		if w.m.Running() == 0 && p.Wake <= w.now {
			t.Fatalf("never looked at again: wake %d at %d", p.Wake, w.now)
		}
		for _, a := range p.Calls {
			w.end(a, silent)
		}
		w.now = max(w.now, p.Wake)
	}
	for i := range CallsPerNode {
		w.create(fsm.TenantName(fmt.Sprint("w", i)), "well", "")
	}
	made := 0
	for _, a := range w.plan().Calls {
		if a.Target.Node == "well" {
			made++
		}
	}
	if made != CallsPerNode {
		t.Errorf("%d calls to the node that answers, want %d", made, CallsPerNode)
	}
}

func (w *world) idle() bool {
	for range w.state.RunningJobs() {
		return false
	}
	return true
}

// drain answers every call to a node.
func (w *world) drain(n fsm.NodeName, a Answer) {
	for _, c := range w.plan().Calls {
		if c.Target.Node == n {
			w.end(c, a)
		}
	}
}

// TestWhateverNodesAnswerJobsEndAsTheDirectorySays runs random creates and
// deletes over nodes that answer, stay silent, answer late and lose calls,
// under leaders that come and go, against a model of the nodes: once the nodes
// answer, every job ends, and each node holds exactly its active units.
func TestWhateverNodesAnswerJobsEndAsTheDirectorySays(t *testing.T) {
	for seed := range uint64(300) {
		s := newSimulation(t, seed)
		for range 120 {
			s.act()
		}
		s.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// simulation is a world with nodes.
type simulation struct {
	*world
	r     *rand.Rand
	held  map[fsm.NodeName]map[fsm.UnitName]fsm.UnitID
	heard map[fsm.NodeName]uint64
	calls []flight
}

// flight is a call on its way; answered says whether its answer was given up.
type flight struct {
	Action
	term     uint64
	sent     fsm.Millis
	number   uint64
	answered bool
	foreign  fsm.NodeName // FollowUnits: the node of another directory
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	return &simulation{world: newWorld(t, "n1", "n2"), r: rand.New(rand.NewPCG(seed, 1)),
		held: map[fsm.NodeName]map[fsm.UnitName]fsm.UnitID{"n1": {}, "n2": {}}, heard: map[fsm.NodeName]uint64{}}
}

func (s *simulation) act() {
	name := fsm.TenantName(fmt.Sprint("t", s.r.IntN(3)))
	switch s.r.IntN(8) {
	case 0, 1:
		node := fsm.NodeName([]string{"n1", "n2"}[s.r.IntN(2)])
		s.apply(0, &fsm.CreateTenant{Name: name, Node: &node})
	case 2:
		s.apply(0, &fsm.DeleteTenant{Name: name})
	case 3:
		if s.r.IntN(4) == 0 {
			s.newTerm() // its calls stay on their way, nobody waits for them
			for i := range s.calls {
				s.calls[i].answered = true
			}
		}
	case 4:
		s.now += fsm.Millis(s.r.IntN(3000))
		s.arrive()
	default:
		s.turn(false)
	}
	for _, a := range s.plan().Calls {
		s.calls = append(s.calls, flight{Action: a, term: s.term, sent: s.now})
	}
}

// arrive ends the calls that are as old as a call may become.
func (s *simulation) arrive() {
	for i := 0; i < len(s.calls); {
		f := s.calls[i]
		if s.now-f.sent < ConfirmAfter-3000 {
			i++
			continue
		}
		s.calls = append(s.calls[:i], s.calls[i+1:]...)
		s.serve(f)
		if !f.answered {
			s.end(f.Action, silent)
		}
	}
}

// turn lets one call go on.
func (s *simulation) turn(well bool) {
	if len(s.calls) == 0 {
		return
	}
	i := s.r.IntN(len(s.calls))
	f := &s.calls[i]
	if !well && !f.answered && s.r.IntN(3) == 0 {
		// Given up; it may arrive later, or never.
		f.answered = true
		s.end(f.Action, silent)
		if s.r.IntN(2) == 0 {
			s.calls = append(s.calls[:i], s.calls[i+1:]...)
		}
		return
	}
	call := *f
	s.calls = append(s.calls[:i], s.calls[i+1:]...)
	answer := s.serve(call)
	if !call.answered {
		s.end(call.Action, answer)
	}
}

func (s *simulation) serve(f flight) Answer {
	node := f.Target.Node
	if f.term < s.heard[node] {
		return fenced
	}
	s.heard[node] = f.term
	id, ok := s.held[node][f.Target.Unit]
	switch {
	case f.Verb == MakeUnit && ok && id != f.Target.ID:
		return refused
	case f.Verb == MakeUnit:
		s.held[node][f.Target.Unit] = f.Target.ID
	case !ok || id != f.Target.ID:
		return absent
	default:
		delete(s.held[node], f.Target.Unit)
	}
	return done
}

// settle lets the nodes answer until nothing is left to do. What is on its way
// arrives before the second look at a unit.
func (s *simulation) settle() {
	for range 10_000 {
		for _, a := range s.plan().Calls {
			s.calls = append(s.calls, flight{Action: a, term: s.term, sent: s.now})
		}
		if len(s.calls) > 0 {
			s.turn(true)
			continue
		}
		if s.idle() {
			break
		}
		s.now += 1000
	}
	if !s.idle() {
		s.t.Error("jobs do not end")
	}
	want := map[fsm.NodeName]map[fsm.UnitName]fsm.UnitID{"n1": {}, "n2": {}}
	for t := range s.state.Tenants("", "") {
		for p := range s.state.TenantUnits(t.Name) {
			want[p.Node][p.Unit] = p.ID
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(s.held) {
		s.t.Errorf("nodes hold %v, the directory says %v", s.held, want)
	}
}
