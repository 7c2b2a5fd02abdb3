package proto_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

func frameBytes(t testing.TB, f proto.Frame) []byte {
	t.Helper()
	b, err := proto.EncodeFrame(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// streamBytes is the stream of s from its hello to a heartbeat.
func streamBytes(t testing.TB, s *fsm.State) []byte {
	t.Helper()
	out := frameBytes(t, &proto.Hello{Version: proto.StreamVersion, Authority: "c/global", History: 1})
	if err := proto.StreamSnapshot(s, func(f []byte) error { out = append(out, f...); return nil }); err != nil {
		t.Fatal(err)
	}
	return append(out, frameBytes(t, &proto.Heartbeat{Revision: s.Revision()})...)
}

// follow reads a stream to its end into a view.
func follow(t testing.TB, r io.Reader) *fsm.View {
	t.Helper()
	fr, err := proto.NewFrameReader(r)
	if err != nil {
		t.Fatal(err)
	}
	defer fr.Close()
	v := fsm.NewView()
	for {
		f, err := fr.ReadFrame()
		if err == io.EOF {
			return v
		}
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *proto.Begin:
			v = fsm.NewView()
		case *proto.Chunk:
			err = v.Load(f.Events)
		case *proto.End:
			err = v.Apply(0, f.Revision, nil)
		case *proto.Delta:
			err = v.Apply(f.Prev, f.Revision, f.Events)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func view(t testing.TB, s *fsm.State) *fsm.View {
	t.Helper()
	v := fsm.NewView()
	if err := v.Apply(0, s.Revision(), slices.Collect(fsm.Project(s))); err != nil {
		t.Fatal(err)
	}
	return v
}

// A follower that got the directory at some entry and the deltas from there
// holds what the server's projection says, at every entry.
func TestAFollowerHoldsTheProjection(t *testing.T) {
	for seed := range uint64(20) {
		l, s := fsmtest.NewLog(seed), fsm.New()
		for range 50 {
			s.Apply(l.Next(s))
		}
		stream := streamBytes(t, s)
		for range 100 {
			prev := s.Revision()
			_, events := s.Apply(l.Next(s))
			stream = append(stream, frameBytes(t, &proto.Delta{Prev: prev, Revision: s.Revision(), Events: events})...)
		}
		if !follow(t, bytes.NewReader(stream)).Equal(view(t, s)) {
			t.Fatalf("log %d: the follower differs", seed)
		}
	}
}

func TestEveryEventAndFrameSurvivesItsEncoding(t *testing.T) {
	events := []fsm.Event{
		{Node: &fsm.NodeInfo{Name: "n1", Addr: "a:1", Region: "eu", Zone: "z", Lost: true, Unleased: true}}, {NodeGone: "n2"},
		{Unit: &fsm.UnitInfo{Unit: "a.7", ID: 9, Node: "n1", State: fsm.UnitMoving, Epoch: 3, Copies: []fsm.Copy{{Node: "n2", State: fsm.CopyInSync}}}},
		{UnitGone: "b"}, {Tenant: &fsm.TenantInfo{Name: "a", Buckets: 16, Hash: fsm.HashStrCRC32}},
		{Tenant: &fsm.TenantInfo{Name: "c", Home: "", HasHome: true}}, {TenantGone: "d"},
		{Region: &fsm.Region{Name: "us", Routers: []string{"http://r:1"}, Authority: "beef/us"}}, {RegionGone: "sa"},
	}
	b, err := proto.EncodeEvents(events)
	if err != nil {
		t.Fatal(err)
	}
	got, err := proto.DecodeEvents(b)
	if diff := cmp.Diff(events, got); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	for _, f := range []proto.Frame{
		&proto.Hello{Version: 1, Authority: "c/eu", History: 4, Age: 1500 * time.Millisecond}, &proto.Delta{Prev: 3, Revision: 9, Events: events},
		&proto.Delta{Prev: 9, Revision: 10, Events: []fsm.Event{}}, &proto.Heartbeat{Revision: 10, Age: time.Hour}, &proto.Heartbeat{Revision: 11},
	} {
		fr, err := proto.NewFrameReader(bytes.NewReader(frameBytes(t, f)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fr.ReadFrame()
		if diff := cmp.Diff(f, got); err != nil || diff != "" {
			t.Errorf("%T: %v %s", f, err, diff)
		}
		fr.Close()
	}
	if _, err := proto.EncodeFrame(&proto.Chunk{}); err == nil {
		t.Error("a chunk was encoded on its own")
	}
}

// A stream that lacks a frame, has one twice or garbled, or in another order,
// is not taken for whole.
func TestAnIncompleteDirectoryIsNotTaken(t *testing.T) {
	s := fsmtest.Large(5, 12_000)
	var frames [][]byte
	if err := proto.StreamSnapshot(s, func(f []byte) error { frames = append(frames, f); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(frames) < 4 {
		t.Fatalf("%d frames are too few for this test", len(frames))
	}
	last := len(frames) - 1
	garbled := slices.Clone(frames[1])
	garbled[len(garbled)/2] ^= 1
	for name, stream := range map[string][][]byte{
		"a chunk lacks":      append(slices.Clone(frames[:1]), frames[2:]...),
		"a chunk is doubled": append(slices.Clone(frames[:2]), frames[1:]...),
		"chunks are swapped": append([][]byte{frames[0], frames[2], frames[1]}, frames[3:]...),
		"no begin":           frames[1:],
		"a chunk is garbled": append([][]byte{frames[0], garbled}, frames[2:]...),
		"a delta inside":     append([][]byte{frames[0], frameBytes(t, &proto.Delta{Prev: 1, Revision: 2})}, frames[1:]...),
		"an end alone":       frames[last:],
		"another hello":      {frameBytes(t, &proto.Hello{Version: proto.StreamVersion + 1})},
	} {
		fr, err := proto.NewFrameReader(bytes.NewReader(bytes.Join(stream, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = fr.ReadFrame()
		}
		if !errors.Is(err, proto.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
		fr.Close()
	}
}
