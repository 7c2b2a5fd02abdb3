package proto_test

import (
	"bytes"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

// Another number of replicas is counted a part at a time in a large directory,
// in the same parts on every server, one that begins from a snapshot included.
func TestC6ALargeDirectoryIsRecountedInParts(t *testing.T) {
	const tenants = 25_000
	s := fsmtest.LargeReplicated(8, tenants, 0)
	lacking := func(s *fsm.State) (n int) {
		for _, p := range s.Placements() {
			if p.Lacks != 0 {
				n++
			}
		}
		return n
	}
	rev := s.Revision()
	step := func(s *fsm.State, c fsm.Command) {
		t.Helper()
		s.Apply(fsm.Entry{Revision: rev, Term: 1, Cmd: c})
		if err := fsm.Check(s); err != nil {
			t.Fatal(err)
		}
	}
	rev++
	step(s, &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000}})
	if n := lacking(s); n == 0 || n == tenants {
		t.Fatalf("%d of %d are counted by one entry", n, tenants)
	}
	var other *fsm.State
	for i := 0; lacking(s) < tenants; i++ {
		if i == 1 {
			other = readSnapshot(t, snapshotBytes(t, s))
		}
		if i > 10 {
			t.Fatalf("%d of %d are counted", lacking(s), tenants)
		}
		rev++
		step(s, &fsm.NodeBack{Node: "nobody"}) // refused, and the count goes on
		if other != nil {
			step(other, &fsm.NodeBack{Node: "nobody"})
		}
	}
	if other == nil || !bytes.Equal(snapshotBytes(t, other), snapshotBytes(t, s)) {
		t.Fatal("a server that began from a snapshot has counted otherwise")
	}
	if s.Meta().RecountAt != "" {
		t.Errorf("the count stands at %q", s.Meta().RecountAt)
	}
	h, _ := proto.StateHash(s)
	if o, _ := proto.StateHash(other); h != o {
		t.Error("another hash")
	}
}
