package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"domicile/fsm"
)

// gate is a Feed that lets nothing by until it is opened.
type gate struct{ open chan struct{} }

func (g gate) Publish(fsm.Revision, []fsm.Event, *fsm.State) { <-g.open }
func (g gate) Reset(*fsm.State)                              { <-g.open }

// TestALongLogIsAppliedBeforeLeading: a server that starts with a long log and
// leads at once takes no change until all of it is applied, however long that
// takes, and does not give up meanwhile. It once ended its process because its
// barrier was not taken in time.
func TestALongLogIsAppliedBeforeLeading(t *testing.T) {
	c := startCluster(t, 1, nil)
	const entries = 10_000 // more than wait between Raft and the state machine
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := range entries / 100 {
				c.propose("", putRegion(fmt.Sprintf("r%d-%d", w, i)))
			}
		})
	}
	wg.Wait()
	m := c.members[0]
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	g := gate{open: make(chan struct{})}
	m.cfg.Feed = g
	m.cfg.Timing.RPC = time.Millisecond
	m.start()
	busy := 0
	for busy < 3000 { // a millisecond each: longer than a leader tries to resign
		_, _, err := m.g.Propose(context.Background(), Proposal{Cmd: putRegion("early")})
		switch {
		case errors.Is(err, ErrBusy):
			busy++
		case errors.Is(err, ErrNoLeader):
		default:
			t.Fatalf("a change while the log is applied: %v", err)
		}
	}
	close(g.open)
	c.propose("", putRegion("later"))
	if !hasRegion(m.g, "r99-99") || !hasRegion(m.g, "later") {
		t.Error("not all of the log was applied")
	}
}
