package controlplane

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/group"
	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// executor does the work of running jobs while this server leads: it makes the
// calls to nodes that the planner asks for and proposes what came of them.
// Nothing else changes a node.
type executor struct {
	group  *group.Group
	nodes  *nodeClient
	logger hclog.Logger
	clock  func() fsm.Millis
	asked  *askers
	// interrupt, if set, is called before a command is proposed: tests stop the
	// leader there.
	interrupt atomic.Pointer[func(fsm.Command)]
}

// called is a call that has ended.
type called struct {
	call   loops.Call
	answer loops.Answer
}

// proposed is a proposal that has ended.
type proposed struct {
	job fsm.JobID
	err error
}

// shift is one term of the executor.
type shift struct {
	*executor
	term   uint64
	memory *loops.Memory
	work   sync.WaitGroup
	// The loop is the only receiver. Senders give up when ctx ends; a size of
	// 0 keeps them in step with the loop.
	calls     chan called
	proposals chan proposed
}

// run works until ctx, which ends with the term, has ended. It has waited for
// every call then.
func (e *executor) run(ctx context.Context, term uint64) error {
	s := &shift{executor: e, term: term, memory: loops.NewMemory(e.group.State().Revision()),
		calls: make(chan called), proposals: make(chan proposed)}
	defer s.work.Wait()
	changed := make(chan struct{}, 1) // one pending word is enough: the loop reads the newest state
	s.work.Go(func() { s.watch(ctx, changed) })
	for {
		wake := s.step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case c := <-s.calls:
			s.ended(c)
		case p := <-s.proposals:
			s.memory.Proposed(p.job, p.err == nil, e.clock())
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

// step starts what is to be done now and says when to look again.
func (s *shift) step(ctx context.Context) <-chan time.Time {
	state, now := s.group.State(), s.clock()
	plan := loops.Jobs(state, s.memory, now)
	for _, a := range plan.Calls {
		s.memory.Begin(a.Call)
		s.start(ctx, state, a)
	}
	for _, p := range plan.Proposals {
		s.memory.Propose(p.Job)
		s.propose(ctx, state, p)
	}
	s.memory.Forget(state)
	if plan.Wake == 0 {
		return nil
	}
	return time.After(time.Duration(max(plan.Wake-now, 1)) * time.Millisecond)
}

func (s *shift) start(ctx context.Context, state *fsm.State, a loops.Action) {
	scope, _ := state.Scope()
	job, _ := state.Job(a.Job)
	call := nodeCall{nodes: s.nodes, target: a.Target, schema: job.Schema,
		holder: proto.Holder{Authority: scope.Authority(), History: scope.History, Term: s.term}}
	node, ok := state.Node(a.Target.Node)
	if ok {
		call.node = at(node)
	}
	if id := s.asked.requestID(job.Tenant); id != "" {
		ctx = httpserve.WithRequestID(ctx, id)
	}
	s.work.Go(func() {
		answer := unrecorded(a.Target)
		if ok {
			answer = call.do(ctx, a.Verb)
		}
		select {
		case s.calls <- called{a.Call, answer}:
		case <-ctx.Done():
		}
	})
}

// unrecorded answers for a node that the directory does not know. It cannot be:
// a node that a job works on is not deleted (N6). A leader that stopped over it
// would stop every other one after it.
func unrecorded(t fsm.Target) loops.Answer {
	return loops.Answer{Outcome: loops.Silent, Refusal: &fsm.Refusal{Code: fsm.CodeNodeUnreachable,
		Text: "node " + string(t.Node) + " is not recorded; record it again", Fields: map[string]string{"node": string(t.Node)}}}
}

func (s *shift) ended(c called) {
	s.memory.End(c.call, c.answer, s.clock())
	switch c.answer.Outcome {
	case loops.Done, loops.Absent:
	case loops.Fenced:
		s.logger.Warn("a node has heard a newer leader", "node", c.call.Target.Node, "unit", c.call.Target.Unit, "term", s.term)
	default:
		s.logger.Debug("a node did not do a step", "node", c.call.Target.Node, "unit", c.call.Target.Unit,
			"step", c.call.Step.String(), "err", c.answer.Refusal)
	}
}

func (s *shift) propose(ctx context.Context, state *fsm.State, p loops.Proposal) {
	job, _ := state.Job(p.Job)
	s.work.Go(func() {
		if f := s.interrupt.Load(); f != nil {
			(*f)(p.Cmd)
		}
		result, _, err := s.group.Propose(ctx, group.Proposal{Decided: s.term, Cmd: p.Cmd})
		if err == nil && result.Refusal != nil {
			err = result.Refusal
		}
		s.report(job, p.Cmd, err)
		select {
		case s.proposals <- proposed{p.Job, err}:
		case <-ctx.Done():
		}
	})
}

// report logs the transitions of a job.
func (s *shift) report(job *fsm.Job, cmd fsm.Command, err error) {
	advance, ok := cmd.(*fsm.AdvanceJob)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.logger.Debug("a step of a job was not recorded; it is planned again", "tenant", job.Tenant, "err", err)
		}
		return
	}
	if !ok {
		s.logger.Warn("a job is held up", "tenant", job.Tenant, "job", job.Kind.String(), "err", cmd.(*fsm.NoteJob).Problem)
		return
	}
	switch {
	case advance.To == fsm.StepUndo:
		s.logger.Warn("a create is undone", "tenant", job.Tenant, "err", advance.Refusal.Text)
	case advance.To == fsm.StepDone:
		s.logger.Info("a job is done", "tenant", job.Tenant, "job", job.Kind.String())
	}
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
