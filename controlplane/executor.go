package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/group"
	"domicile/controlplane/lease"
	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/faultpoint"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// executor does the work of a leader while this server is one: it makes the
// calls to nodes that the planners ask for and proposes what came of them.
// Nothing else changes a node, but the keeper of leases.
type executor struct {
	group   *group.Group
	keeper  *lease.Keeper
	nodes   *nodeClient
	logger  hclog.Logger
	clock   func() fsm.Millis
	asked   *askers
	changes *changes
	known   *knowledge
	events  *eventLog
	meters  *failoverMeters
	// regions asks a region's group about its task of a job.
	regions func(context.Context, loops.TaskAction) loops.TaskAnswer
	// census reads a region for a recovery of the global directory.
	census func(context.Context, loops.RegionCall) loops.RegionAnswer
	// homes tells a recovery which tenants live elsewhere.
	homes func() *loops.Homes
	// given tells it in a term what it waits for of the other groups.
	given func(term uint64) loops.Given
	// names is what a region's group knows of the global directory; nil: nothing.
	names func() *loops.Names
	// numbers counts the calls that change nodes. It goes on over terms, and so
	// counts up in each.
	numbers atomic.Uint64
	// recovery is what is shown while this server recovers the directory; else nil.
	recovery atomic.Pointer[loops.RecoveryView]
	// interrupt, if set, is called before a command is proposed: tests stop the
	// leader there.
	interrupt atomic.Pointer[func(fsm.Command)]
}

// called is a call that has ended.
type called struct {
	action loops.Action
	answer loops.Answer
}

// tasked is a call to a region's group that has ended.
type tasked struct {
	loops.TaskCall
	answer loops.TaskAnswer
}

// counted is a reading of a region that has ended.
type counted struct {
	loops.RegionCall
	answer loops.RegionAnswer
}

// proposed is a proposal that has ended.
type proposed struct {
	loops.Proposal
	result fsm.Result
	err    error
}

// shift is one term of the executor.
type shift struct {
	*executor
	term   uint64
	began  time.Time
	memory *loops.Memory
	news   loops.News
	heard  <-chan struct{} // the keeper's word that was taken over last
	flips  flips
	work   sync.WaitGroup
	// The loop is the only receiver. Senders give up when ctx ends; a size of
	// 0 keeps them in step with the loop.
	calls     chan called
	tasks     chan tasked
	censuses  chan counted
	proposals chan proposed
}

// run works until ctx, which ends with the term, has ended. It has waited for
// every call then.
func (e *executor) run(ctx context.Context, term uint64) error {
	s := &shift{executor: e, term: term, began: time.Now(), memory: loops.NewMemory(e.group.State().Revision()),
		flips: flips{meters: e.meters}, calls: make(chan called), tasks: make(chan tasked), censuses: make(chan counted), proposals: make(chan proposed)}
	defer s.work.Wait()
	e.known.clear()
	e.changes.collect(true)
	defer e.changes.collect(false)
	defer e.recovery.Store(nil)
	changed := make(chan struct{}, 1) // one pending word is enough: the loop reads the newest state
	s.work.Go(func() { s.watch(ctx, changed) })
	for {
		told := s.hear()
		wake := s.step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-told:
		case <-e.changes.hurried:
		case c := <-s.calls:
			s.ended(c)
		case c := <-s.tasks:
			s.memory.EndTask(c.TaskCall, c.answer, s.clock())
		case g := <-s.censuses:
			s.memory.EndRegion(g.RegionCall, g.answer, s.clock())
		case p := <-s.proposals:
			s.recorded(p)
		case <-wake:
		}
	}
}

// watch tells of each change of the directory.
func (s *shift) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		if err := s.group.WaitRevision(ctx, s.group.State().Revision()+1); err != nil {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// hear takes over what the keeper knows of the nodes, if it is news, and gives
// what to wait for.
func (s *shift) hear() <-chan struct{} {
	changed := s.keeper.Changed()
	if s.news.Fresh = changed != s.heard; !s.news.Fresh {
		return changed
	}
	s.heard = changed
	return changed
}

// step starts what is to be done now and says when to look again.
func (s *shift) step(ctx context.Context) <-chan time.Time {
	s.changes.tell(s.memory)
	state, now := s.group.State(), s.clock()
	if s.news.Fresh || state.Recovering() {
		s.news = newsOf(s.keeper, state)
	}
	if state.Recovering() {
		s.news.Homes, s.news.Given = s.homes(), s.given(s.term)
	}
	s.news.Names = s.names()
	plan := loops.Next(state, s.memory, &s.news, now)
	for _, a := range plan.Calls {
		s.memory.Begin(a)
		s.start(ctx, state, a)
	}
	for _, a := range plan.Tasks {
		s.memory.BeginTask(a, now)
		s.startTask(ctx, state, a)
	}
	for _, c := range plan.Regions {
		s.memory.BeginRegion(c)
		s.startCensus(ctx, c)
	}
	for _, p := range plan.Proposals {
		s.memory.Propose(p)
		s.propose(ctx, state, p)
	}
	for _, n := range plan.Resume {
		s.keeper.Resume(n.Node, n.Number)
	}
	s.tell(state, plan.Findings)
	s.noteBetween(state)
	s.showRecovery(state, now)
	s.memory.Forget(state, now)
	if plan.Wake == 0 {
		return nil
	}
	return time.After(time.Duration(max(plan.Wake-now, 1)) * time.Millisecond)
}

// newsOf gives what the keeper knows of the nodes as planners read it.
func newsOf(k *lease.Keeper, state *fsm.State) loops.News {
	news := loops.News{Nodes: make(map[fsm.NodeName]*loops.NodeNews), Fresh: true, MaySettle: k.MaySettle(), WaitedOut: k.WaitedOut()}
	for n := range state.Nodes() {
		if s, ok := k.Node(n.Name); ok {
			news.Nodes[n.Name] = &loops.NodeNews{Lease: s.Lease, Answered: s.Answered, Silent: s.Silent, Lapsed: s.Lapsed, Lapse: s.Lapse,
				Boot: s.Boot, Stopping: s.Stopping, List: s.List, Lagging: s.Report.Lagging, Behind: s.Report.Behind,
				Uncompared: s.Report.Uncompared, Missing: s.Missing, Damaged: s.Report.Damaged, Following: s.Following}
		}
	}
	return news
}

func (s *shift) start(ctx context.Context, state *fsm.State, a loops.Action) {
	scope, _ := state.Scope()
	call := nodeCall{nodes: s.nodes, action: a, number: s.numbers.Add(1),
		holder: proto.Holder{Authority: scope.Authority(), History: scope.History, Term: s.term}}
	if job, ok := state.Job(a.Job); ok {
		call.schema = job.Schema
		if id := s.asked.requestID(job.Tenant); id != "" {
			ctx = httpserve.WithRequestID(ctx, id)
		}
	}
	ok := call.addresses(state)
	s.work.Go(func() {
		answer := unrecorded(a.Target)
		if ok {
			faultPoint("call", a.Verb)
			answer = call.do(ctx)
			faultPoint("called", a.Verb)
		}
		select {
		case s.calls <- called{a, answer}:
		case <-ctx.Done():
		}
	})
}

// startTask calls a region's group about its task of a job.
func (s *shift) startTask(ctx context.Context, state *fsm.State, a loops.TaskAction) {
	if job, ok := state.Job(a.Job); ok {
		if id := s.asked.requestID(job.Tenant); id != "" {
			ctx = httpserve.WithRequestID(ctx, id)
		}
	}
	s.work.Go(func() {
		faultPoint("ask", taskPoint(a))
		answer := s.regions(ctx, a)
		faultPoint("asked", taskPoint(a))
		if r := answer.Refusal; r != nil {
			s.logger.Debug("a region's group did not do its task", "region", string(a.Region), "job", a.Job, "err", r)
		}
		select {
		case s.tasks <- tasked{a.TaskCall, answer}:
		case <-ctx.Done():
		}
	})
}

// startCensus reads a region for a recovery of the global directory.
func (s *shift) startCensus(ctx context.Context, c loops.RegionCall) {
	s.work.Go(func() {
		answer := s.census(ctx, c)
		if r := answer.Refusal; r != nil {
			s.logger.Debug("a region was not read for the recovery", "region", string(c.Region), "err", r)
		}
		select {
		case s.censuses <- counted{c, answer}:
		case <-ctx.Done():
		}
	})
}

// taskPoint names a call to a region's group for fault points.
func taskPoint(a loops.TaskAction) string {
	switch c := a.Cmd.(type) {
	case *fsm.BeginTask:
		return "begin-" + c.Kind.String()
	case *fsm.TellTask:
		return "tell-" + c.Word.String()
	case *fsm.ForgoTask:
		return "forgo-" + c.Kind.String()
	}
	return "look"
}

// unrecorded answers for a node that the directory does not know. It cannot be:
// a node that a job works on is not deleted (N6). A leader that stopped over it
// would stop every other one after it.
func unrecorded(t fsm.Target) loops.Answer {
	return loops.Answer{Outcome: loops.Silent, Refusal: &fsm.Refusal{Code: fsm.CodeNodeUnreachable,
		Text: "node " + string(t.Node) + " is not recorded; record it again", Fields: map[string]string{"node": string(t.Node)}}}
}

func (s *shift) ended(c called) {
	s.memory.End(c.action.Call, c.answer, s.clock())
	s.known.note(c.action, c.answer)
	if c.action.Verb == loops.LookAtMove && c.answer.Image != nil {
		s.known.moved(c.action.Job, c.answer.Image, time.Now())
	}
	if c.action.Verb == loops.PromoteUnits {
		s.notPromoted(c.action, c.answer)
	}
	node := c.action.Target.Node
	switch c.answer.Outcome {
	case loops.Done, loops.Absent:
		if c.answer.Aside != "" {
			unit := fsm.UnitRef{Unit: c.action.Target.Unit, ID: c.action.Target.ID}
			s.tell(s.group.State(), []loops.Finding{{Kind: loops.FoundLost, Node: node, Unit: unit, Files: []string{c.answer.Aside}}})
		}
		for unit, f := range c.answer.Failed {
			s.logger.Debug("a node did not do a step for a unit", "node", node, "unit", unit, "step", c.action.Verb.String(), "err", f.Why)
		}
	case loops.Fenced:
		s.logger.Warn("a node has heard a newer leader", "node", node, "unit", c.action.Target.Unit, "term", s.term)
	default:
		s.logger.Debug("a node did not do a step", "node", node, "unit", c.action.Target.Unit,
			"step", c.action.Verb.String(), "err", c.answer.Refusal)
	}
}

func (s *shift) propose(ctx context.Context, state *fsm.State, p loops.Proposal) {
	s.proposing(state, p)
	s.work.Go(func() {
		if f := s.interrupt.Load(); f != nil {
			(*f)(p.Cmd)
		}
		if p.Raise != 0 {
			err := s.group.RaiseHistory(ctx, p.Recovery, p.Raise)
			select {
			case s.proposals <- proposed{p, fsm.Result{}, err}:
			case <-ctx.Done():
			}
			return
		}
		result, err := s.decide(ctx, p)
		if f, ok := p.Cmd.(*fsm.FailOver); ok && f.Cause == fsm.CauseLapsed && err == nil {
			s.keeper.Resume(f.Node, p.Lapse) // applied here, or refused (architecture §3.5.3)
		}
		if err == nil && result.Refusal != nil {
			err = result.Refusal
		}
		select {
		case s.proposals <- proposed{p, result, err}:
		case <-ctx.Done():
		}
	})
}

// errLapseOver: the node has been granted a lease since.
var errLapseOver = errors.New("the lapse that the failover was decided on is over")

// decide proposes a command, a failover only while its lapse lasts: until Resume
// names that lapse the node is sent no grant (architecture §3.5.3).
func (s *shift) decide(ctx context.Context, p loops.Proposal) (fsm.Result, error) {
	if f, ok := p.Cmd.(*fsm.FailOver); ok && f.Cause == fsm.CauseLapsed {
		if st, _ := s.keeper.Node(f.Node); !st.Lapsed || st.Lapse != p.Lapse {
			return fsm.Result{}, errLapseOver
		}
	}
	faultPoint("propose", p.Cmd)
	result, _, err := s.group.Propose(ctx, group.Proposal{Decided: s.term, Cmd: p.Cmd})
	faultPoint("proposed", p.Cmd)
	return result, err
}

// faultPoint is a labelled point before or after a call to a node or an entry. Tests
// end or stop the leader there; what would fail there does not.
func faultPoint(label string, on any) {
	if !faultpoint.Enabled {
		return
	}
	name := strings.ReplaceAll(fmt.Sprint(on), " ", "-")
	if cmd, ok := on.(fsm.Command); ok {
		name = strings.TrimPrefix(fmt.Sprintf("%T", cmd), "*fsm.")
		if step, ok := on.(*fsm.AdvanceJob); ok {
			name += "-" + step.To.String()
		}
	}
	_ = faultpoint.At(label, name)
}

// askers remembers which request asked for the work on a tenant that is under
// way, so that its id reaches the node. It is for tracing alone: a leader that
// took a job over does not know it.
type askers struct {
	mu sync.Mutex
	id map[fsm.TenantName]string
}

func (a *askers) begin(t fsm.TenantName, requestID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id[t] = requestID
}

func (a *askers) end(t fsm.TenantName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.id, t)
}

func (a *askers) requestID(t fsm.TenantName) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id[t]
}
