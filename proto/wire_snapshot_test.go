package proto_test

import (
	"bytes"
	"encoding/binary"
	"slices"
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

// A part that lacks, or is there twice, leaves every block whole: the trailer
// tells.
func TestASnapshotThatLacksAPartIsRefused(t *testing.T) {
	b := snapshotBytes(t, fsmtest.Large(7, 30_000))
	const magic, head = 8, 9
	var blocks [][]byte
	for rest := b[magic:]; len(rest) > 0; {
		n := head + int(binary.LittleEndian.Uint32(rest[1:]))
		blocks, rest = append(blocks, rest[:n]), rest[n:]
	}
	if len(blocks) < 5 {
		t.Fatalf("%d blocks are too few for this test", len(blocks))
	}
	last := len(blocks) - 2 // the last part: nothing in it is referred to from before
	for name, blocks := range map[string][][]byte{
		"the last part lacks":      append(slices.Clone(blocks[:last]), blocks[last+1:]...),
		"a part is there twice":    append(slices.Clone(blocks[:2]), blocks[1:]...),
		"the header lacks":         blocks[1:],
		"the header comes twice":   append(slices.Clone(blocks[:1]), blocks...),
		"a part of another kind":   append(slices.Clone(blocks[:1]), append([]byte{9}, blocks[1][1:]...)),
		"the trailer of another":   append(slices.Clone(blocks[:last+1]), trailerOf(t, fsm.New())),
		"parts are in wrong order": append([][]byte{blocks[0], blocks[2], blocks[1]}, blocks[3:]...),
	} {
		if _, err := proto.ReadSnapshot(bytes.NewReader(append([]byte("DOMICILE"), bytes.Join(blocks, nil)...))); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

// trailerOf gives the last block of the snapshot of s, which has no records.
func trailerOf(t *testing.T, s *fsm.State) []byte {
	b := snapshotBytes(t, s)[8:]
	return b[9+int(binary.LittleEndian.Uint32(b[1:])):]
}
