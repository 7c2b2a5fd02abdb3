package group

import (
	"context"
	"fmt"
	"time"

	"domicile/fsm"
)

// watch is the watchdog. Raft's heartbeats need no disk and go on from a server
// whose disk hangs, so that a leader's health is that its commits advance.
func (g *Group) watch(ctx context.Context) error {
	stall := g.cfg.Timing.Stall
	tick := time.NewTicker(max(min(stall/20, g.cfg.Timing.Heartbeat), time.Millisecond))
	defer tick.Stop()
	var committed, applied uint64
	progress := time.Now()
	away := make(map[fsm.MemberID]bool)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			// After a start a long log is applied before anything is committed.
			c, a := g.raft.CommitIndex(), g.raft.AppliedIndex()
			if c != committed || a != applied || !g.leads() || g.pending.count() == 0 {
				committed, applied, progress = c, a, now
			}
			if now.Sub(progress) > stall {
				return g.giveUp(fmt.Errorf("%w: %d changes wait and nothing was committed for %v", ErrStalled, g.pending.count(), stall))
			}
			if g.leads() && g.refused.lasted(g.raft.CurrentTerm()) > 3*g.cfg.Timing.Election {
				return g.giveUp(fmt.Errorf("%w: a hand-over of leadership does not end", ErrStalled))
			}
			g.tellAway(away)
		}
	}
}

// giveUp cuts this server off from the group, so that another can lead even if
// the process takes its time to end.
func (g *Group) giveUp(err error) error {
	g.logger.Error("this server gives up", "err", err)
	g.streams.cut()
	return err
}

// tellAway logs which servers went away or came back, as the leader sees it.
func (g *Group) tellAway(away map[fsm.MemberID]bool) {
	if !g.leads() {
		clear(away)
		return
	}
	for _, s := range g.servers() {
		switch {
		case !s.Known:
		case !s.Healthy && !away[s.ID]:
			away[s.ID] = true
			g.logger.Warn("a server of the group does not answer", "server", s.ID)
		case s.Healthy && away[s.ID]:
			delete(away, s.ID)
			g.logger.Info("a server of the group answers again", "server", s.ID)
		}
		if s.SnapshotLoop && !away["loop:"+s.ID] {
			away["loop:"+s.ID] = true
			g.logger.Error("a server is sent snapshots again and again and does not follow: stop it, empty its data folder, remove it and let it join again", "server", s.ID)
		}
	}
}
