package replica

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"domicile/dataplane/node/store"
)

// TestL9APromotedCopyAcknowledgesNothingMore (3.5.11, the second line): a primary
// that goes on writing as if nothing had happened, as one that was stopped may for a
// moment, gets no write acknowledged that the promoted copy lacks, whenever in the
// middle of its writes the copy is promoted.
func TestL9APromotedCopyAcknowledgesNothingMore(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	src.inSync("acme", dst)
	var beyond atomic.Uint64 // the promoted copy's number
	under := make(chan struct{})
	acknowledged := make(chan uint64)
	go func() {
		var last uint64
		for i := 0; ; i++ {
			if i == 20 {
				close(under)
			}
			p, err := src.write("acme", insert(i))
			if err != nil {
				if !errors.Is(err, store.ErrUnreplicated) {
					t.Error(err)
				}
				acknowledged <- last
				return
			}
			if last = p.Seq; beyond.Load() > 0 && last > beyond.Load() {
				acknowledged <- last
				return
			}
		}
	}()
	<-under
	dst.promote(9, "acme")
	at := dst.mark("acme").Position
	beyond.Store(at.Seq)
	var last uint64
	for done := false; !done; {
		src.r.GiveUp(0) // the write that waits is told that nobody answers
		select {
		case last = <-acknowledged:
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	if at.Epoch != 9 {
		t.Fatal(at)
	}
	if last > at.Seq {
		t.Errorf("the former primary acknowledged number %d, the promoted copy has %s", last, at)
	}
}
