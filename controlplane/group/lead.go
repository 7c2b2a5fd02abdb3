package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/fsm"
)

// duty is work of the leader alone.
type duty struct {
	name string
	do   func(ctx context.Context, term uint64) error
}

// OnLead registers work that the leader of the group does, and must be called
// before Run. do is called after a barrier of term, with a context that ends
// with this server's leadership in it, and returns when that ends. If it
// returns an error earlier, this server hands leadership over, and stops if
// nobody takes it. What it proposes carries the term in Proposal.Decided.
func (g *Group) OnLead(name string, do func(ctx context.Context, term uint64) error) {
	g.duties = append(g.duties, duty{name, do})
}

// termCell holds the newest news of this server's leadership. Raft's main loop
// sends it and waits until it is taken, so that one goroutine does nothing else.
type termCell struct {
	notify  chan bool
	done    chan struct{}
	ended   chan struct{}
	mu      sync.Mutex
	leading bool
	turn    uint64        // counts the news
	changed chan struct{} // closed with the next news
}

func newTermCell() *termCell {
	return &termCell{
		notify: make(chan bool, 16), done: make(chan struct{}), ended: make(chan struct{}),
		changed: make(chan struct{}),
	}
}

func (c *termCell) watch() {
	defer close(c.ended)
	for {
		select {
		case leading := <-c.notify:
			c.mu.Lock()
			c.leading = leading
			c.turn++
			close(c.changed)
			c.changed = make(chan struct{})
			c.mu.Unlock()
		case <-c.done:
			return
		}
	}
}

func (c *termCell) stop() {
	close(c.done)
	<-c.ended
}

func (c *termCell) get() (leading bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading, c.changed
}

// lead does a leader's work, term after term.
func (g *Group) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		leading, changed := g.term.get()
		if !leading {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if err := g.leadUntil(ctx, changed); err != nil {
			return err
		}
	}
	return nil
}

// leadUntil works for one term, until there is news of leadership.
func (g *Group) leadUntil(ctx context.Context, changed <-chan struct{}) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	term := g.raft.CurrentTerm()
	result := make(chan error, 1)
	go func() { result <- g.leadTerm(work, term) }()
	select {
	case <-ctx.Done():
		cancel()
		<-result
		return nil
	case <-changed:
		cancel()
		<-result
		g.logger.Info("leadership ended", "term", term)
		return nil
	case err := <-result:
		if err != nil && g.leadsIn(term) && ctx.Err() == nil {
			g.logger.Error("this server cannot lead", "term", term, "err", err)
			return g.resign(ctx, term, err)
		}
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return nil
}

// leadTerm prepares for term and runs the duties. It returns an error when this
// server leads and cannot do what a leader must.
func (g *Group) leadTerm(ctx context.Context, term uint64) error {
	err := g.passBarrier(ctx, term)
	for errors.Is(err, ErrBusy) {
		// A long log is being applied after a start, before anything else.
		err = g.passBarrier(ctx, term)
	}
	if err != nil {
		return err
	}
	g.logger.Info("leading", "term", term, "revision", g.State().Revision())
	if err := g.beginTerm(ctx, term); err != nil {
		return err
	}
	var done sync.WaitGroup
	failed := make(chan error, len(g.duties))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, d := range g.duties {
		done.Go(func() {
			if err := d.do(ctx, term); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", d.name, err)
				cancel()
			}
		})
	}
	done.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// beginTerm writes what the directory must say before anything else: whose it
// is, who leads, and settings for a start.
func (g *Group) beginTerm(ctx context.Context, term uint64) error {
	bootstrapped := func() bool { _, ok := g.State().Scope(); return ok }
	scope := fsm.Scope{Cluster: g.clusterID(), Region: g.cfg.Region, History: 1}
	if err := g.write(ctx, term, bootstrapped, &fsm.Bootstrap{Scope: scope, Settings: g.cfg.Settings}); err != nil {
		return fmt.Errorf("bootstrap the directory: %w", err)
	}
	if err := g.moveSelf(ctx); err != nil {
		return err
	}
	return g.recordSelf(ctx, term)
}

// write proposes what the directory must say until it says so: again where nothing
// happened, and where nobody knows what did, as when a backup was restored meanwhile.
func (g *Group) write(ctx context.Context, term uint64, says func() bool, cmd fsm.Command) error {
	for !says() {
		result, _, err := g.Propose(ctx, Proposal{Decided: term, Cmd: cmd})
		switch {
		case errors.Is(err, ErrTransferring), errors.Is(err, ErrBusy), errors.Is(err, ErrUnknownOutcome):
		case err != nil:
			return err
		case result.Refusal != nil && !says():
			return result.Refusal
		default:
			continue
		}
		select {
		case <-time.After(g.cfg.Timing.Heartbeat / 4):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// resign hands leadership over because of why. Where nobody takes it, the
// process has to end.
func (g *Group) resign(ctx context.Context, term uint64, why error) error {
	var err error
	for range 3 {
		attempt, cancel := context.WithTimeout(ctx, 3*g.cfg.Timing.Election)
		err = g.Transfer(attempt, "")
		cancel()
		if err == nil || !g.leadsIn(term) || ctx.Err() != nil {
			return nil
		}
		select { // a target may be found in a moment
		case <-time.After(g.cfg.Timing.Heartbeat):
		case <-ctx.Done():
			return nil
		}
	}
	return fmt.Errorf("this server cannot lead (%w) and no other takes over (%w)", why, err)
}
