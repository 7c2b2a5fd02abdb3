package group

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"domicile/fsm"
	"domicile/proto"
)

// maxPending is how many proposals may wait at once.
const maxPending = 4096

// Propose commits a command and answers what Apply made of it, once it is
// applied here. Only the leader takes it (NotLeaderError names it otherwise). A
// refusal is a Result, not an error. The deadline of ctx bounds the wait; when
// it passes after the command was handed to the log, that is ErrUnknownOutcome.
func (g *Group) Propose(ctx context.Context, p Proposal) (fsm.Result, fsm.Revision, error) {
	data, err := g.encode(p)
	if err != nil {
		return fsm.Result{}, 0, err
	}
	if err := g.mustLead(); err != nil {
		return fsm.Result{}, 0, err
	}
	if put, ok := p.Cmd.(*fsm.PutMember); ok {
		if err := g.mayRecord(&put.Member); err != nil {
			return fsm.Result{}, 0, err
		}
	}
	if !g.pending.enter() {
		return fsm.Result{}, 0, ErrBusy
	}
	begin := time.Now()
	future := g.raft.Apply(data, g.enqueueWait(ctx)) // times the hand-over alone
	err = await(ctx, g.ended, func() error {
		defer g.pending.leave()
		return future.Error()
	})
	if err = g.explain(err); err != nil {
		return fsm.Result{}, 0, err
	}
	g.refused.clear()
	g.machine.meters.commit.Observe(time.Since(begin).Seconds())
	switch answer := future.Response().(type) {
	case appliedResult:
		return answer.result, answer.revision, nil
	case error:
		return fsm.Result{}, 0, errors.Join(answer, ErrUnknownOutcome)
	default:
		return fsm.Result{}, 0, errors.Join(errors.New("the log answered nothing"), ErrUnknownOutcome)
	}
}

func (g *Group) encode(p Proposal) ([]byte, error) {
	if level, needs := g.State().Level(), fsm.MinVersion(p.Cmd); needs > level {
		return nil, &LevelError{Needs: needs, Level: level}
	}
	return proto.EncodeEntry(fsm.Entry{
		At: fsm.Millis(time.Now().UnixMilli()), Decided: p.Decided,
		Key: p.Key, Fingerprint: p.Fingerprint, Cmd: p.Cmd,
	})
}

// enqueueWait bounds how long a command waits to be handed to the log.
func (g *Group) enqueueWait(ctx context.Context) time.Duration {
	wait := g.cfg.Timing.RPC
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(deadline)), time.Millisecond)
	}
	return wait
}

// mustLead returns nil if this server believes that it leads.
func (g *Group) mustLead() error {
	select {
	case <-g.ended:
		return ErrClosed
	default:
	}
	if g.machine.dead() {
		return g.machine.failure
	}
	if g.leads() {
		return nil
	}
	if l := g.Leader(); l.Known && !l.Self {
		return &NotLeaderError{Leader: l}
	}
	return ErrNoLeader
}

// explain puts the library's errors in this package's words.
func (g *Group) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		if err := g.mustLead(); err != nil {
			return err
		}
		return ErrNoLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		g.refused.note(g.raft.CurrentTerm(), time.Now())
		return ErrTransferring
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore),
		errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ErrUnknownOutcome
	}
	if disk := g.disk.logs.failure.Load(); disk != nil && strings.Contains(err.Error(), (*disk).Error()) {
		err = *disk
	}
	return &StorageError{Err: err}
}

// await returns f's error, or ctx's if that ends first: the library's futures
// have no deadline of their own. f then runs on, until Raft answers or stops.
func await(ctx context.Context, ended <-chan struct{}, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return ErrClosed
	}
}

// ReadIndex returns once State contains every change that was acknowledged
// before it was called, on whatever server: after it, a read of State is
// linearizable. Only the leader can tell. ctx bounds the wait.
func (g *Group) ReadIndex(ctx context.Context) error {
	if err := g.mustLead(); err != nil {
		return err
	}
	term := g.raft.CurrentTerm()
	// A new leader knows what is committed only after an entry of its own.
	if err := g.passBarrier(ctx, term); err != nil {
		return err
	}
	committed := g.raft.CommitIndex()
	confirmed, err := g.Confirm(ctx)
	if err != nil {
		return err
	}
	if confirmed != term {
		return ErrNoLeader
	}
	index, err := visible(g.disk.cache, g.machine.applied.Load(), committed)
	if err != nil {
		return err
	}
	return g.machine.wait(ctx, func() bool { return g.machine.applied.Load() >= index })
}

// passBarrier returns once all that former leaders committed is applied here,
// and this server has led since, in term.
func (g *Group) passBarrier(ctx context.Context, term uint64) error {
	if g.barrier.Load() == term {
		return nil
	}
	future := g.raft.Barrier(g.enqueueWait(ctx))
	if err := await(ctx, g.ended, future.Error); err != nil {
		if errors.Is(err, raft.ErrLeadershipLost) {
			return ErrNoLeader
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return g.explain(err)
	}
	if !g.leadsIn(term) {
		return ErrNoLeader
	}
	g.barrier.Store(term)
	return nil
}

func (g *Group) leadsIn(term uint64) bool { return g.leads() && g.raft.CurrentTerm() == term }

// Confirm proves that no newer leader existed when it was called: it returns,
// with the term, once a majority of the voters has answered with success, in
// this term, an exchange that began after the call (architecture §3.5.4). The
// library's own check counts non-voters and answers that were under way.
func (g *Group) Confirm(ctx context.Context) (uint64, error) {
	if err := g.mustLead(); err != nil {
		return 0, err
	}
	term, began := g.raft.CurrentTerm(), time.Now()
	var others []raft.ServerID
	votes, voters := 0, 0
	for _, s := range g.voters() {
		voters++
		if s.ID == raft.ServerID(g.cfg.ID) {
			votes++
		} else {
			others = append(others, s.ID)
		}
	}
	if len(others) > 0 {
		g.raft.VerifyLeader() // makes it send heartbeats at once
	}
	again := time.NewTicker(g.cfg.Timing.Heartbeat / 4)
	defer again.Stop()
	for {
		n, changed := g.peers.confirmed(others, term, began)
		if !g.leadsIn(term) {
			return 0, ErrNoLeader
		}
		if votes+n > voters/2 {
			return term, nil
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-g.ended:
			return 0, ErrClosed
		}
	}
}

// proposals counts what was handed to Raft and has no answer.
type proposals struct{ n atomic.Int64 }

func newProposals() *proposals { return &proposals{} }

func (p *proposals) enter() bool {
	if p.n.Add(1) > maxPending {
		p.n.Add(-1)
		return false
	}
	return true
}

func (p *proposals) leave()     { p.n.Add(-1) }
func (p *proposals) count() int { return int(p.n.Load()) }

// refusals notes for how long a leader has refused every proposal because
// leadership is being handed over. By a fault of the library that may never
// end.
type refusals struct {
	mu          sync.Mutex
	term        uint64
	first, last time.Time
}

func (r *refusals) note(term uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term || r.first.IsZero() {
		r.term, r.first = term, at
	}
	r.last = at
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first = time.Time{}
}

// lasted is the time between the first and the last refusal of term.
func (r *refusals) lasted(term uint64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first.IsZero() || r.term != term {
		return 0
	}
	return r.last.Sub(r.first)
}
