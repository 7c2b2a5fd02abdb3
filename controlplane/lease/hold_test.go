package lease

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
)

// TestHoldKeepsANodeFromALease shows that a failover by hand meets no lease, whatever
// the settings say meanwhile: not one that runs, nor one that begins while it is decided.
func TestHoldKeepsANodeFromALease(t *testing.T) {
	stage(t, 1000, 1, func(t *testing.T, s *scene) {
		s.place(unit("u", 0, "n1"))
		n := s.node(1)
		time.Sleep(time.Second)
		synctest.Wait()
		set := func(lease fsm.Millis) {
			s.change(func(r *records, _ fsm.Revision) { r.settings.AutoFailover = lease })
		}
		down := func(down bool) {
			n.mu.Lock()
			n.down = down
			n.mu.Unlock()
		}
		down(true)
		set(0)
		release, left, err := s.k.Hold("n1")
		if err != nil || release != nil || left <= 0 || left > 1100*time.Millisecond || !n.writes("u") {
			t.Fatalf("under a lease: held %v, %v left, %v; it writes: %v", release != nil, left, err, n.writes("u"))
		}
		time.Sleep(left)
		release, _, err = s.k.Hold("n1")
		if err != nil || release == nil || n.writes("u") {
			t.Fatalf("after it: held %v, %v; it writes: %v", release != nil, err, n.writes("u"))
		}
		down(false)
		set(1000)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n.writes("u") {
			t.Error("it was granted a lease while it was held")
		}
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		if !n.writes("u") {
			t.Error("it is not leased again")
		}
		if _, _, err := s.k.Hold("n9"); !errors.Is(err, ErrNotLeading) {
			t.Error(err)
		}
	})
}
