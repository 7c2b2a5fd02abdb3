package replica

import (
	"testing"

	"domicile/dataplane/node/store"
)

// TestL10ASourceThatKnowsAReaderHasNotHeardOfACopy: a reader that is being made a copy has
// the record of one a moment before the source is asked anew. What the source answers to
// the reader's question in that moment must not make the copy one that may be promoted:
// the source writes on without its promise. Found by a review.
func TestL10ASourceThatKnowsAReaderHasNotHeardOfACopy(t *testing.T) {
	src := newNode(t, Config{}, store.Config{})
	src.create("acme")
	src.must("acme", "CREATE TABLE t(v)")
	dst := newNode(t, Config{}, store.Config{})
	if err := dst.r.Follow(ctx, "acme", 7, 1, store.CopyReader, src.addr, dst.addr, "secret"); err != nil {
		t.Fatal(err)
	}
	dst.awaitState("acme", StateFollowing)
	dst.r.mu.Lock()
	f := dst.r.following["acme"]
	dst.r.mu.Unlock()
	unheard := func() bool {
		t.Helper()
		rec, err := dst.s.Get("acme")
		if err != nil {
			t.Fatal(err)
		}
		return rec.Unheard
	}
	if _, err := dst.s.Follow(ctx, "acme", 7, src.addr, store.CopyOrdinary); err != nil { // as become
		t.Fatal(err)
	}
	if err := f.heard(); err != nil || !unheard() { // as for an answer to what was asked before
		t.Fatalf("unheard %v, %v", unheard(), err)
	}
	f.mu.Lock()
	f.kind, f.asked = store.CopyOrdinary, store.CopyOrdinary
	f.mu.Unlock()
	if err := f.heard(); err != nil || unheard() {
		t.Errorf("unheard %v, %v", unheard(), err)
	}
}
