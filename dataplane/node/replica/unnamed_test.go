package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// TestAUnitThatIsNotNamedAnyMoreAcknowledgesNothing (3.5.7): that a grant takes the unit
// away, with its copies, does not make a commit acknowledged that no copy has. Found by
// faults at random: a read saw a commit that the promoted copy lacked.
func TestAUnitThatIsNotNamedAnyMoreAcknowledgesNothing(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	src.inSync("acme", dst)
	dst.close()
	done := make(chan error, 1)
	go func() { _, err := src.write("acme", insert(1)); done <- err }()
	wait.For(t, "the write waits", func() error {
		if at := src.mark("acme").Position.Seq; at < 2 {
			return fmt.Errorf("%d", at)
		}
		return nil
	})
	before := src.mark("acme").Position.Seq - 1
	src.r.ChangeCopies(nil, []string{"acme"}, time.Second)
	if err := <-done; !errors.Is(err, store.ErrUnreplicated) {
		t.Errorf("the write ended with %v", err)
	}
	u, release, err := src.s.Acquire(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if at := u.Position().Seq; at > before {
		t.Errorf("acknowledged up to %d, no copy has more than %d", at, before)
	}
	src.r.ChangeCopies(map[string]Copies{"acme": {}}, nil, time.Second) // it is this node's again
	if at := u.Position().Seq; at != before+1 {
		t.Errorf("named again it stands at %d, want %d", at, before+1)
	}
}
