package proto_test

import (
	"bytes"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

func snapshotBytes(t testing.TB, s *fsm.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := proto.WriteSnapshot(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readSnapshot(t testing.TB, b []byte) *fsm.State {
	t.Helper()
	s, err := proto.ReadSnapshot(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wire carries an entry over the log's encoding.
func wire(t testing.TB, e fsm.Entry) fsm.Entry {
	t.Helper()
	b, err := proto.EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	d, err := proto.DecodeEntry(e.Revision, e.Term, b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The same log gives the same state, byte for byte, whatever ran it: this is
// what finds an order of a map that reaches the state (I3).
func TestI3SameLogSameBytes(t *testing.T) {
	logs := 1000
	if testing.Short() {
		logs = 100
	}
	for seed := range logs {
		sameBytes(t, seed, fsmtest.Entries(uint64(seed), 200))
	}
	for seed := range logs / 2 {
		sameBytes(t, seed, fsmtest.RegionsEntries(uint64(seed), 300))
	}
}

func sameBytes(t *testing.T, seed int, log []fsm.Entry) {
	t.Helper()
	a, b := fsm.New(), fsm.New()
	for _, e := range log {
		a.Apply(e)
		b.Apply(wire(t, e))
	}
	if hexHash(t, a) != hexHash(t, b) {
		t.Fatalf("log %d: two replays differ", seed)
	}
}

// A snapshot taken at any entry, written late, and followed by the rest of the
// log equals the whole log.
func TestSnapshotAndTailEqualTheWholeLog(t *testing.T) {
	for seed := range 100 {
		log := fsmtest.Entries(uint64(seed), 200)
		if seed >= 60 {
			log = fsmtest.RegionsEntries(uint64(seed), 200)
		}
		whole := fsm.New()
		var taken []*fsm.State
		for _, e := range log {
			taken = append(taken, whole.Snapshot())
			whole.Apply(e)
		}
		want := snapshotBytes(t, whole)
		for i := 0; i < len(log); i += 1 + seed%13*7 {
			s := readSnapshot(t, snapshotBytes(t, taken[i]))
			for _, e := range log[i:] {
				s.Apply(e)
			}
			if !bytes.Equal(snapshotBytes(t, s), want) {
				t.Fatalf("log %d: snapshot at entry %d and the rest differ from the whole", seed, i)
			}
		}
	}
}

// A snapshot reads the same before and after the state has gone on.
func TestSnapshotIsNotChangedByLaterEntries(t *testing.T) {
	for seed := range 30 {
		l, s := fsmtest.NewLog(uint64(seed)), fsm.New()
		if seed >= 20 {
			l = fsmtest.NewRegionsLog(uint64(seed))
		}
		var taken []*fsm.State
		var bytesThen [][]byte
		for range 150 {
			c := s.Snapshot()
			taken, bytesThen = append(taken, c), append(bytesThen, snapshotBytes(t, c))
			s.Apply(l.Next(s))
		}
		for i, c := range taken {
			if !bytes.Equal(snapshotBytes(t, c), bytesThen[i]) {
				t.Fatalf("log %d: the snapshot at entry %d has changed", seed, i)
			}
		}
	}
}

func TestStateHashTellsStatesApart(t *testing.T) {
	seen := make(map[[32]byte]fsm.Revision)
	s := fsm.New()
	for _, e := range fsmtest.Entries(7, 300) {
		s.Apply(e)
		h, err := proto.StateHash(s)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := seen[h]; ok {
			t.Fatalf("states at %d and %d have one hash", at, s.Revision())
		}
		seen[h] = s.Revision()
		r := readSnapshot(t, snapshotBytes(t, s))
		if again, _ := proto.StateHash(r); again != h {
			t.Fatalf("the state read from a snapshot has another hash at %d", s.Revision())
		}
	}
}
