package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
)

// TestL11AStoppingNodeIsToldWhatCountsOnIt: how many units have it as a copy that counts,
// until there are none; others are not told.
func TestL11AStoppingNodeIsToldWhatCountsOnIt(t *testing.T) {
	stage(t, 60_000, 2, func(t *testing.T, s *scene) {
		u := unit("u", 0, "n1")
		u.Copies = []fsm.Copy{{Node: "n2", State: fsm.CopyInSync}}
		s.place(u)
		n := s.node(2)
		counted := func() *int {
			time.Sleep(2 * renewEvery)
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.taken[len(n.taken)-1].Counted
		}
		if c := counted(); c != nil {
			t.Errorf("%d, for a node that does not stop", *c)
		}
		n.mu.Lock()
		n.stopping = true
		n.mu.Unlock()
		if c := counted(); c == nil || *c != 1 {
			t.Errorf("%v, want 1", c)
		}
		u = unit("u", 0, "n1")
		u.Copies = []fsm.Copy{{Node: "n2", State: fsm.CopySyncing}}
		s.place(u)
		if c := counted(); c == nil || *c != 0 {
			t.Errorf("%v, want 0", c)
		}
	})
}
