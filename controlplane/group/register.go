package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"domicile/fsm"
)

// register joins the group, where this server is not in it, and then keeps its
// own record in the directory right.
func (g *Group) register(ctx context.Context) error {
	if err := g.join(ctx); err != nil {
		return err
	}
	pause := backoff{least: g.cfg.Timing.Heartbeat, most: 10 * time.Second}
	told := false
	for {
		if old, ok := g.addressKnown(); !ok && !g.leads() {
			g.askToMove(ctx, old, &told)
		}
		if g.recorded() {
			pause.reset()
		} else if leader := g.Leader(); leader.Known && !leader.Self && leader.API != "" && g.cfg.Relay != nil && g.HasDirectory() {
			g.relaySelf(ctx, leader)
		}
		if !pause.wait(ctx, g.machine.removed) {
			return nil
		}
	}
}

// tellAgain is how often a trouble that lasts is logged.
const tellAgain = time.Minute

// join asks the group to take this server in until it has.
func (g *Group) join(ctx context.Context) error {
	if g.machine.founder.Load() || g.machine.joined.Load() > 0 || g.cfg.Join == nil {
		return nil
	}
	begun, err := g.disk.begun()
	if err != nil {
		return err
	}
	pause := backoff{least: g.cfg.Timing.Heartbeat, most: 5 * time.Second}
	for told := (time.Time{}); ; {
		answer, err := g.cfg.Join(ctx, JoinRequest{
			ID: g.cfg.ID, Raft: g.cfg.Advertise, API: g.cfg.API, Region: g.cfg.Region,
			Version: g.cfg.Version, Empty: !begun,
		})
		if err == nil {
			return g.joined(answer)
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(told) >= tellAgain {
			told = time.Now()
			g.logger.Warn("the group has not taken this server in yet; asking again", "err", err)
		}
		// Once it was added and has received something, it is empty no more.
		if begun, err = g.disk.begun(); err != nil {
			return err
		}
		if !pause.wait(ctx, nil) {
			return nil
		}
	}
}

// askToMove asks the group to know this server by its present address.
func (g *Group) askToMove(ctx context.Context, old string, told *bool) {
	if !*told {
		*told = true
		g.logger.Warn("the group knows this server by another Raft address; it is asked to change that where --join is given", "from", old, "to", g.cfg.Advertise)
	}
	if g.cfg.Join == nil {
		return
	}
	_, err := g.cfg.Join(ctx, JoinRequest{
		ID: g.cfg.ID, Raft: g.cfg.Advertise, API: g.cfg.API, Region: g.cfg.Region, Version: g.cfg.Version,
	})
	if err != nil && ctx.Err() == nil {
		g.logger.Debug("this server's address was not changed", "err", err)
	}
}

func (g *Group) joined(answer JoinAnswer) error {
	if c := g.clusterID(); c != "" && answer.Cluster != "" && c != answer.Cluster {
		return g.disk.folder.refuse("it belongs to group %s, and --join leads to group %s", c, answer.Cluster)
	}
	err := g.note(func(f *format) {
		f.Joined = max(answer.Index, 1)
		if answer.Cluster != "" {
			f.Cluster = answer.Cluster
		}
	})
	if err != nil {
		return err
	}
	g.machine.expect(answer.Cluster)
	g.machine.joined.Store(max(answer.Index, 1))
	g.logger.Info("joined the group", "index", answer.Index)
	return nil
}

func (g *Group) self() fsm.Member {
	return fsm.Member{ID: g.cfg.ID, Raft: g.cfg.Advertise, API: g.cfg.API, Version: g.cfg.Version}
}

// recorded reports whether the directory knows this server as it is.
func (g *Group) recorded() bool {
	m, ok := g.State().Member(g.cfg.ID)
	return ok && *m == g.self()
}

// mayRecord refuses a record that would give the directory a version that this
// server does not know: it could not read the next snapshot, nor could any other
// of its version. The level is the lowest that is recorded, so that it is enough
// that the leader's own record is right, before any other is taken.
func (g *Group) mayRecord(m *fsm.Member) error {
	switch {
	case m.ID != g.cfg.ID && !g.recorded():
		return ErrNoLeader // it has just become leader
	case m.ID == g.cfg.ID && *m != g.self():
		return &MembershipError{ID: m.ID, Text: fmt.Sprintf("server %s leads and records itself; what is given is not what it is", m.ID)}
	}
	return nil
}

// recordSelf records this server as leader of term.
func (g *Group) recordSelf(ctx context.Context, term uint64) error {
	return g.write(ctx, term, g.recorded, &fsm.PutMember{Member: g.self()})
}

func (g *Group) relaySelf(ctx context.Context, leader Leader) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timing.RPC)
	defer cancel()
	result, _, err := g.cfg.Relay(ctx, leader, Proposal{Cmd: &fsm.PutMember{Member: g.self()}})
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	if err != nil && ctx.Err() == nil {
		g.logger.Debug("this server's record was not taken", "err", err)
	}
}

// backoff is the pause between attempts: doubling, with jitter.
type backoff struct{ least, most, now time.Duration }

func (b *backoff) reset() { b.now = 0 }

// wait pauses; false when ctx ended or stop was closed.
func (b *backoff) wait(ctx context.Context, stop <-chan struct{}) bool {
	b.now = min(max(2*b.now, b.least), b.most)
	t := time.NewTimer(b.now/2 + rand.N(b.now/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	}
}
