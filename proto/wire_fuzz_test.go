package proto_test

import (
	"bytes"
	"slices"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

// Any bytes are an entry or an error; an entry keeps every invariant and is
// encoded to itself.
func FuzzEntries(f *testing.F) {
	for _, e := range slices.Concat(goldenLog(), fsmtest.Entries(1, 60), fsmtest.RegionsEntries(2, 150), fsmtest.RegionsEntries(3, 150)) {
		b, err := proto.EncodeEntry(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	logs := [][]fsm.Entry{fsmtest.Entries(5, 120), fsmtest.RegionsEntries(4, 120), fsmtest.RegionsEntries(5, 120)}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := proto.DecodeEntry(1, 9, b); err != nil {
			return
		}
		for _, log := range logs {
			fuzzEntry(t, log, b)
		}
	})
}

// fuzzEntry applies an entry behind a log.
func fuzzEntry(t *testing.T, log []fsm.Entry, b []byte) {
	s := fsm.New()
	for _, e := range log {
		s.Apply(e)
	}
	e, err := proto.DecodeEntry(s.Revision()+1, 9, b)
	if err != nil {
		return
	}
	prev, before := s.Revision(), view(t, s)
	_, events := s.Apply(e)
	if err := fsm.Check(s); err != nil {
		t.Fatalf("%T %+v: %v", e.Cmd, e.Cmd, err)
	}
	if err := before.Apply(prev, s.Revision(), events); err != nil || !before.Equal(view(t, s)) {
		t.Fatalf("%T %+v: the events do not tell what changed: %v", e.Cmd, e.Cmd, err)
	}
	if hexHash(t, readSnapshot(t, snapshotBytes(t, s))) != hexHash(t, s) {
		t.Fatalf("%T %+v: the snapshot differs", e.Cmd, e.Cmd)
	}
}

// Any bytes are a snapshot that holds, or an error; and so is anything inside
// of one whose sums fit.
func FuzzSnapshot(f *testing.F) {
	for _, n := range []int{0, 20, 60} {
		s := fsm.New()
		for _, e := range fsmtest.Entries(2, n) {
			s.Apply(e)
		}
		header, records := proto.OpenSnapshot(snapshotBytes(f, s))
		f.Add(header, records)
	}
	f.Fuzz(func(t *testing.T, header, records []byte) {
		for _, snapshot := range [][]byte{records, proto.SealSnapshot(header, records)} {
			s, err := proto.ReadSnapshot(bytes.NewReader(snapshot))
			if err != nil {
				continue
			}
			if hexHash(t, readSnapshot(t, snapshotBytes(t, s))) != hexHash(t, s) {
				t.Fatal("a snapshot of what was read differs")
			}
		}
	})
}

// Any bytes are frames or an error.
func FuzzFrames(f *testing.F) {
	s := fsm.New()
	for _, e := range fsmtest.Entries(3, 80) {
		prev := s.Revision()
		_, events := s.Apply(e)
		f.Add(frameBytes(f, &proto.Delta{Prev: prev, Revision: s.Revision(), Events: events}))
	}
	f.Add(streamBytes(f, s))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := proto.NewFrameReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer fr.Close()
		for {
			frame, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if _, chunk := frame.(*proto.Chunk); !chunk {
				frameBytes(t, frame)
			}
		}
	})
}
