package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"domicile/internal/boottime"
)

// lonely reaches nobody, and a copy that no list names has followed the unit at 5 ms
// and not since.
type lonely struct{ seen time.Duration }

func (lonely) Ready(context.Context, string) bool { return false }
func (lonely) Promise(context.Context, string, []string, time.Duration) ([]string, error) {
	return nil, context.DeadlineExceeded
}
func (lonely) Writes(string) bool { return true }
func (p lonely) FollowedSince(_ string, t time.Duration) []string {
	if p.seen >= t {
		return []string{"http://follower"}
	}
	return nil
}

// Clause 10: a deposed leader's late grant, with a list from before the copy was
// recorded, is taken but confirms nothing. The copy must promise all the same: a newer
// leader may promote it. Found by the model: "since the last grant" is too early.
func TestL10ALateGrantDoesNotMakeAFollowerForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := boottime.NewRuntime()
		l := New(clock, "boot-a")
		take := func(number, acked uint64) {
			g := servers(naming(grant(number, acked), "a"))
			if _, err := l.Take(&g, clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
		take(1, 0)
		take(2, 1)
		seen := clock.Now() + 5*time.Millisecond
		time.Sleep(10 * time.Millisecond)
		take(3, 1) // late
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx, lonely{seen}) }()
		time.Sleep(2 * ms)
		expect(t, l, "a", ErrLapsed)
		cancel()
		<-done
	})
}
