package replica

import (
	"testing"
	"time"
)

// TestUnitThatNobodyFollowsKeepsNoEntries: what a grant names without copies costs
// no memory, and a copy that is named later goes on from what is kept since.
func TestUnitThatNobodyFollowsKeepsNoEntries(t *testing.T) {
	src, dst := pair(t, Config{})
	src.r.ChangeCopies(map[string]Copies{"acme": {}}, nil, time.Second)
	src.must("acme", insert(1))
	kept := func() int {
		src.r.memory.mu.Lock()
		defer src.r.memory.mu.Unlock()
		return src.r.memory.live
	}
	if n := kept(); n > 0 {
		t.Errorf("%d entries are kept", n)
	}
	src.r.ChangeCopies(map[string]Copies{"acme": {All: []string{dst.addr}}}, nil, time.Second)
	src.must("acme", insert(2))
	if n := kept(); n != 1 {
		t.Errorf("%d entries are kept for the copy that is to come, want 1", n)
	}
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
}
