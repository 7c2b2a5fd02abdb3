package replica

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/dataplane/node/store"
)

func TestFrameRoundTrip(t *testing.T) {
	var b []byte
	payloads := [][]byte{nil, {1}, bytes.Repeat([]byte{7}, 900)}
	for i, p := range payloads {
		b = appendFrame(b, frameAck, uint32(i), p)
	}
	b = appendFrame(b, frameChunk, 9, bytes.Repeat([]byte{3}, 100), bytes.Repeat([]byte{4}, chunkSize-100))
	r := bytes.NewReader(b)
	for i, p := range payloads {
		f, err := readFrame(r)
		if err != nil || f.kind != frameAck || f.unit != uint32(i) || !bytes.Equal(f.payload, p) {
			t.Fatal(i, f, err)
		}
	}
	if f, err := readFrame(r); err != nil || len(f.payload) != chunkSize {
		t.Fatal(err)
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Fatal(err)
	}
}

// Every single bit that is flipped on the way is found.
func TestFrameGarbled(t *testing.T) {
	good := appendFrame(nil, frameAck, 5, appendPosition(nil, store.Position{Epoch: 3, Seq: 9}))
	for bit := range len(good) * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if f, err := readFrame(bytes.NewReader(b)); err == nil {
			t.Fatalf("bit %d: %+v", bit, f)
		}
	}
	for n := 1; n < len(good); n++ {
		if _, err := readFrame(bytes.NewReader(good[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
}

// A length that lies makes nobody allocate.
func TestFrameLength(t *testing.T) {
	for _, b := range [][]byte{
		{0xff, 0xff, 0xff, 0xff, byte(frameEntry), 0, 0, 0, 0},
		{1, 4, 0, 0, byte(frameAck), 0, 0, 0, 0},
		{0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		if _, err := readFrame(bytes.NewReader(b)); !errors.Is(err, errFrame) {
			t.Error(b, err)
		}
	}
	head := []byte{0, 0, 0x80, 0, byte(frameEntry), 0, 0, 0, 0, 1, 2, 3} // 8 MiB announced, three bytes come
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := readFrame(bytes.NewReader(head)); err == nil {
				b.Fatal("read")
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 2*smallest {
		t.Errorf("%d bytes allocated", allocated)
	}
}

var lineage = store.Lineage{{Epoch: 1}, {Epoch: 3, From: 10}, {Epoch: 4, From: 10}, {Epoch: 9, From: 25}}

func TestMessageRoundTrip(t *testing.T) {
	mark := store.Mark{Position: store.Position{Epoch: 9, Seq: 30}, Chain: 1 << 60}
	unexported := cmp.AllowUnexported(follow{}, start{}, image{}, end{}, promise{})
	same := func(want, got any, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got, unexported); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	f := follow{id: 4, epoch: 5, mark: mark, image: true, name: "acme.3"}
	gotF, err := decodeFollow(f.encode())
	same(f, gotF, err)
	s := start{startOther, mark, lineage}
	gotS, err := decodeStart(s.encode())
	same(s, gotS, err)
	i := image{4096, mark, lineage, false}
	gotI, err := decodeImage(i.encode())
	same(i, gotI, err)
	i.moving = true
	gotI, err = decodeImage(i.encode())
	same(i, gotI, err)
	e := end{endWrongID, "another"}
	gotE, err := decodeEnd(e.encode())
	same(e, gotE, err)
	p := promise{3, 900, []string{"a", "bb", "c.1"}}
	gotP, err := decodePromise(framePromise, p.encode())
	same(p, gotP, err)
	d, err := decodeBeat(encodeBeat(time.Second))
	same(time.Second, d, err)
	// A lineage that is too long for the wire loses its oldest branches.
	long := make(store.Lineage, maxBranches+50)
	for i := range long {
		long[i] = store.Branch{Epoch: uint64(i + 1), From: uint64(i)}
	}
	last := long[len(long)-1]
	s = start{startOn, store.Mark{Position: store.Position{Epoch: last.Epoch, Seq: last.From}}, long}
	if len(s.encode()) > maxPayload(frameStart) {
		t.Error("too long")
	}
	gotS, err = decodeStart(s.encode())
	same(long[50:], gotS.lineage, err)
}

func TestMessageRefused(t *testing.T) {
	at := store.Mark{Position: store.Position{Epoch: 9, Seq: 30}}
	for name, p := range map[string][]byte{
		"kind":      (&start{7, at, lineage}).encode(),
		"nowhere":   (&start{startOn, at, nil}).encode(),
		"elsewhere": (&start{startOn, at, lineage[:2]}).encode(),
		"beyond":    (&start{startOn, store.Mark{Position: store.Position{Epoch: 9, Seq: 24}}, lineage}).encode(),
		"back":      (&start{startOn, at, store.Lineage{{Epoch: 9}, {Epoch: 3}, {Epoch: 9}}}).encode(),
		"odd":       append((&start{startOn, at, lineage}).encode(), 1),
	} {
		if _, err := decodeStart(p); !errors.Is(err, errFrame) {
			t.Error(name, err)
		}
	}
	if _, err := decodeFollow((&follow{}).encode()); !errors.Is(err, errFrame) {
		t.Error(err)
	}
	if _, err := decodeImage((&image{0, at, lineage, false}).encode()); !errors.Is(err, errFrame) {
		t.Error(err)
	}
}

func TestFork(t *testing.T) {
	mine := func(seq uint64, b ...store.Branch) (store.Lineage, uint64) { return b, seq }
	check := func(name string, l store.Lineage, seq uint64, want store.Position, ok bool) {
		t.Helper()
		if got, gotOK := fork(lineage, 40, l, seq); got != want || gotOK != ok {
			t.Errorf("%s: %v %v", name, got, gotOK)
		}
	}
	l, seq := mine(20, store.Branch{Epoch: 1}) // wrote on in branch 1, which was left at 10
	check("old primary", l, seq, store.Position{Epoch: 1, Seq: 10}, true)
	l, seq = mine(7, store.Branch{Epoch: 1})
	check("behind", l, seq, store.Position{Epoch: 1, Seq: 7}, true)
	l, seq = mine(12, store.Branch{Epoch: 1}, store.Branch{Epoch: 2, From: 8}) // a branch that nobody else knows
	check("own branch", l, seq, store.Position{Epoch: 1, Seq: 8}, true)
	l, seq = mine(12, store.Branch{Epoch: 2})
	check("strangers", l, seq, store.Position{}, false)
	l, seq = mine(33, store.Branch{Epoch: 1}, store.Branch{Epoch: 3, From: 10}, store.Branch{Epoch: 4, From: 10})
	check("wrote on in 4", l, seq, store.Position{Epoch: 4, Seq: 25}, true)
	for _, p := range []store.Position{{Epoch: 1, Seq: 10}, {Epoch: 3, Seq: 10}, {Epoch: 4, Seq: 25}, {Epoch: 9, Seq: 25}, {Epoch: 9, Seq: 40}} {
		if !onLineage(lineage, 40, p) {
			t.Error(p)
		}
	}
	for _, p := range []store.Position{{Epoch: 1, Seq: 11}, {Epoch: 2, Seq: 5}, {Epoch: 4, Seq: 9}, {Epoch: 9, Seq: 41}, {}} {
		if onLineage(lineage, 40, p) {
			t.Error(p)
		}
	}
}

func FuzzFrames(f *testing.F) {
	mark := store.Mark{Position: store.Position{Epoch: 9, Seq: 30}, Chain: 5}
	add := func(t frameType, p []byte) { f.Add(appendFrame(nil, t, 1, p)) }
	add(frameFollow, (&follow{id: 1, epoch: 2, mark: mark, name: "acme"}).encode())
	add(frameStart, (&start{startOn, mark, lineage}).encode())
	add(frameImage, (&image{4096, mark, lineage, false}).encode())
	add(frameEnd, (&end{endUnknown, "why"}).encode())
	add(framePromise, (&promise{1, 2, []string{"a"}}).encode())
	add(frameBeat, encodeBeat(time.Second))
	add(frameAck, appendPosition(nil, mark.Position))
	add(frameTook, appendCount(9))
	add(frameEntry, testEntry(1, 2, 512, 3).payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again := appendFrame(nil, fr.kind, fr.unit, fr.payload); !bytes.Equal(again, b[:len(again)]) {
			t.Fatal("another frame is the same")
		}
		// What is taken is what would be sent.
		same := func(p []byte, err error) {
			if err == nil && !bytes.Equal(p, fr.payload) {
				t.Fatalf("type %d: %x became %x", fr.kind, fr.payload, p)
			}
		}
		switch fr.kind {
		case frameFollow:
			m, err := decodeFollow(fr.payload)
			if len(fr.payload) > 40 && fr.payload[40] > 1 {
				return // any byte but 1 says no
			}
			same(m.encode(), err)
		case frameStart:
			m, err := decodeStart(fr.payload)
			if err != nil {
				return
			}
			same(m.encode(), err)
		case frameImage:
			m, err := decodeImage(fr.payload)
			same(m.encode(), err)
		case frameEnd:
			m, err := decodeEnd(fr.payload)
			same(m.encode(), err)
		case framePromise, framePromised:
			m, err := decodePromise(fr.kind, fr.payload)
			same(m.encode(), err)
		case frameEntry:
			decodeEntry(fr.payload)
		}
	})
}

// testEntry makes an entry of n pages that follows seq-1.
func testEntry(epoch, seq uint64, pageSize, n int) *entry {
	c := &store.Commit{Position: store.Position{Epoch: epoch, Seq: seq}, Chain: seq * 11, PageSize: pageSize, DBPages: uint32(n),
		Prev:  store.Mark{Position: store.Position{Epoch: epoch, Seq: seq - 1}, Chain: (seq - 1) * 11},
		Pages: make([]store.Page, n)}
	for i := range c.Pages {
		c.Pages[i].Number = uint32(i + 1)
	}
	e, err := encodeEntry(c, func(i int, page []byte) error {
		for k := range page {
			page[k] = byte(i) + byte(seq)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return e
}

func TestEntryRoundTrip(t *testing.T) {
	e := testEntry(3, 8, 1024, 5)
	d, err := decodeEntry(e.payload)
	if err != nil || d.Position != e.pos || d.Chain != e.chain || d.Prev != e.previous || d.PageSize != 1024 || d.DBPages != 5 || len(d.Pages) != 5 ||
		d.Pages[4].Number != 5 || d.Pages[4].Data[1023] != 12 {
		t.Fatal(d, err)
	}
	if int64(len(e.payload)) != entryHead+5*1028 {
		t.Error(len(e.payload))
	}
	for _, n := range []int{0, 10, len(e.payload) - 1} {
		if _, err := decodeEntry(e.payload[:n]); !errors.Is(err, errFrame) {
			t.Error(n, err)
		}
	}
}

func TestRing(t *testing.T) {
	var g ring
	for seq := uint64(5); seq < 300; seq++ {
		g.add(testEntry(1, seq, 512, 1))
		for g.len() > 100 {
			g.drop()
		}
	}
	if g.len() != 100 || g.oldest().pos.Seq != 200 || g.after(198) != nil || g.after(199).pos.Seq != 200 || g.after(298).pos.Seq != 299 || g.after(299) != nil {
		t.Error(g.len(), g.oldest().pos)
	}
	size := len(g.oldest().payload)
	if n, freed := g.add(testEntry(1, 400, 512, 1)); n != 100 || freed != 100*size || g.len() != 1 || g.bytes != size {
		t.Error("a gap was kept", n, freed, g.len(), g.bytes)
	}
}
