package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestABusyStartIsNoReasonToGiveUp: a server that leads as soon as it starts and
// whose Raft is busy for a while (it applies a long log) takes no change
// meanwhile, and does not give up. It once ended its process because its
// barrier was not taken in time.
func TestABusyStartIsNoReasonToGiveUp(t *testing.T) {
	c := startCluster(t, 1, nil)
	c.propose("", putRegion("before"))
	m := c.members[0]
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{})
	m.hooks.logs = func(inner raft.LogStore) raft.LogStore {
		f := &faultyLog{LogStore: inner}
		f.set(nil, busy)
		return f
	}
	// For however long a slow machine takes to refuse them all.
	m.cfg.Timing.RPC, m.cfg.Timing.Stall = time.Millisecond, time.Hour
	m.start()
	// Each refusal takes a millisecond: together longer than a leader tries to resign.
	for refused := 0; refused < 3000; {
		_, _, err := m.g.Propose(context.Background(), Proposal{Cmd: putRegion("early")})
		switch {
		case errors.Is(err, ErrBusy):
			refused++
		case errors.Is(err, ErrNoLeader):
		default:
			t.Fatalf("a change at a busy server: %v", err)
		}
	}
	close(busy)
	c.propose("", putRegion("later"))
	if !hasRegion(m.g, "before") || !hasRegion(m.g, "later") {
		t.Error("a change is missing")
	}
}
