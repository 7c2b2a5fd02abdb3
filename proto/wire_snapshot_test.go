package proto_test

import (
	"bytes"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

// A snapshot that was cut anywhere, or has any byte changed, gives an error
// and no state.
func TestASnapshotThatIsCutOrGarbledIsRefused(t *testing.T) {
	s := fsm.New()
	for _, e := range fsmtest.Entries(11, 60) {
		s.Apply(e)
	}
	whole := snapshotBytes(t, s)
	for i := range whole {
		if _, err := proto.ReadSnapshot(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("a snapshot cut to %d of %d bytes was read", i, len(whole))
		}
		bad := bytes.Clone(whole)
		bad[i] ^= 0x10
		if _, err := proto.ReadSnapshot(bytes.NewReader(bad)); err == nil {
			t.Fatalf("a snapshot with byte %d of %d changed was read", i, len(whole))
		}
	}
}

func TestALargeSnapshotIsManyPartsAndOneState(t *testing.T) {
	s := fsmtest.Large(7, 30_000)
	b := snapshotBytes(t, s)
	r := readSnapshot(t, b)
	if !bytes.Equal(snapshotBytes(t, r), b) || r.CountTenants() != 30_000 || !view(t, r).Equal(view(t, s)) {
		t.Fatal("the state that was read differs from the one that was written")
	}
	for n := range s.Nodes() {
		p, c := s.NodeHolds(n.Name)
		if p2, c2 := r.NodeHolds(n.Name); p != p2 || c != c2 || p == 0 {
			t.Errorf("node %s holds %d and %d, %d and %d after reading", n.Name, p, c, p2, c2)
		}
	}
}
