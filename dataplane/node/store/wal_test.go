package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

// buildWAL makes a WAL by the format's description, independent of the reader.
// Each commit is a list of page numbers; the last frame of it carries dbPages.
func buildWAL(bigEndian bool, salt1 uint32, commits [][]uint32, dbPages uint32) []byte {
	const ps = 512
	be := binary.BigEndian
	var out []byte
	var s1, s2 uint32
	sum := func(b []byte) {
		for i := 0; i < len(b); i += 8 {
			x, y := binary.LittleEndian.Uint32(b[i:]), binary.LittleEndian.Uint32(b[i+4:])
			if bigEndian {
				x, y = be.Uint32(b[i:]), be.Uint32(b[i+4:])
			}
			s1 += x + s2
			s2 += y + s1
		}
	}
	magic := uint32(walMagic)
	if bigEndian {
		magic |= 1
	}
	for _, w := range []uint32{magic, walVersion, ps, 0, salt1, 77} {
		out = be.AppendUint32(out, w)
	}
	sum(out)
	out = be.AppendUint32(be.AppendUint32(out, s1), s2)
	n := byte(0)
	for _, pages := range commits {
		for i, p := range pages {
			n++
			h := be.AppendUint32(nil, p)
			size := uint32(0)
			if i == len(pages)-1 {
				size = dbPages
			}
			h = be.AppendUint32(h, size)
			page := bytes.Repeat([]byte{n, byte(p), 3}, ps)[:ps]
			sum(h)
			sum(page)
			h = be.AppendUint32(be.AppendUint32(h, salt1), 77)
			h = be.AppendUint32(be.AppendUint32(h, s1), s2)
			out = append(append(out, h...), page...)
		}
	}
	return out
}

// readCommits gives what a tail finds in a WAL, as text.
func readCommits(wal io.ReaderAt, upTo int) (list []string, err error) {
	var w walTail
	ok, err := w.restart(wal)
	if err != nil || !ok {
		return nil, err
	}
	err = w.read(wal, upTo, nil, func(c *Commit) error {
		s := fmt.Sprint(c.frames, "/", c.DBPages, ":")
		for _, p := range c.Pages {
			s += fmt.Sprint(" ", p.Number, "@", p.Frame)
		}
		list = append(list, s)
		return nil
	})
	return list, err
}

func TestWALReader(t *testing.T) {
	for _, bigEndian := range []bool{false, true} {
		wal := buildWAL(bigEndian, 5, [][]uint32{{1}, {3, 2, 3, 9}, {2, 1}}, 4)
		want := []string{"1/4: 1@1", "5/4: 2@3 3@4", "7/4: 1@7 2@6"}
		for _, upTo := range []int{-1, 7} {
			got, err := readCommits(bytes.NewReader(wal), upTo)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%v, %v", got, err)
			}
		}
		// Every cut and every flipped byte: the commits before it, no other.
		for cut := range len(wal) {
			got, err := readCommits(bytes.NewReader(wal[:cut]), -1)
			if err != nil || !slices.Equal(got, want[:len(got)]) || len(got) == 3 {
				t.Fatalf("cut at %d: %v, %v", cut, got, err)
			}
			broken := bytes.Clone(wal)
			broken[cut] ^= 0x10
			got, err = readCommits(bytes.NewReader(broken), -1)
			if err != nil || !slices.Equal(got, want[:len(got)]) || len(got) == 3 {
				t.Fatalf("flipped at %d: %v, %v", cut, got, err)
			}
		}
		// A commit that SQLite reported must be there whole.
		for _, upTo := range []int{2, 6, 8} {
			_, err := readCommits(bytes.NewReader(wal), upTo)
			wantErr(t, err, errWALBroken)
		}
	}
}

// Frames of the last generation behind the present ones do not count.
func TestWALReaderStaleFrames(t *testing.T) {
	old := buildWAL(false, 5, [][]uint32{{1}, {2}, {3}}, 3)
	now := buildWAL(false, 6, [][]uint32{{2, 3}}, 3)
	got, err := readCommits(bytes.NewReader(append(now, old[len(now):]...)), -1)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
}

func FuzzWAL(f *testing.F) {
	f.Add(buildWAL(false, 5, [][]uint32{{1}, {3, 2, 3, 9}}, 4), -1)
	f.Add(buildWAL(true, 5, [][]uint32{{1}, {2, 2}}, 2), 3)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, wal []byte, upTo int) {
		list, err := readCommits(bytes.NewReader(wal), min(upTo, 1<<16))
		if err != nil && !errors.Is(err, errWALBroken) {
			t.Fatal(err)
		}
		if len(list) > len(wal)/(frameHeaderSize+512) {
			t.Fatal("more commits than frames")
		}
		for _, rec := range []*posRecord{nil, {Position: Position{1, 9}, Salt1: 5, Salt2: 77, Frames: 1}, {Clean: true}} {
			r, err := recoverPosition(rec, 1, bytes.NewReader(wal))
			if err != nil {
				t.Fatal(err)
			}
			if rec != nil && r.pos.Seq < rec.Position.Seq {
				t.Fatal("the position went back")
			}
		}
	})
}

func FuzzPosRecord(f *testing.F) {
	f.Add((&posRecord{Position: Position{1, 2}, Chain: 3, Salt1: 4, Salt2: 5, Frames: 6, Clean: true}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePos(b); err == nil && !bytes.Equal(p.encode()[:45], b[:45]) {
			t.Fatalf("%x is not what %+v encodes to", b, p)
		}
	})
}

func TestRecoverPosition(t *testing.T) {
	wal := bytes.NewReader(buildWAL(false, 5, [][]uint32{{1}, {2}, {3}}, 3))
	at := func(seq uint64) Position { return Position{2, seq} }
	for _, c := range []struct {
		name string
		rec  *posRecord
		wal  io.ReaderAt
		want Position
	}{
		{"new", nil, nil, Position{1, 0}},
		{"first commits", nil, wal, Position{1, 3}},
		{"clean", &posRecord{Position: at(9), Clean: true, Salt1: 1}, nil, at(9)},
		{"clean, then a new WAL", &posRecord{Position: at(9), Clean: true, Salt1: 1}, wal, at(12)},
		{"same generation", &posRecord{Position: at(9), Salt1: 5, Salt2: 77, Frames: 2}, wal, at(10)},
		{"all of it", &posRecord{Position: at(9), Salt1: 5, Salt2: 77, Frames: 3}, wal, at(9)},
		{"next generation", &posRecord{Position: at(9), Salt1: 4, Salt2: 1, Frames: 50}, wal, at(12)},
		{"WAL gone", &posRecord{Position: at(9), Salt1: 4, Frames: 50}, nil, at(9 + foreignJump)},
		{"other generation", &posRecord{Position: at(9), Salt1: 3, Frames: 50}, wal, at(12 + foreignJump)},
	} {
		r, err := recoverPosition(c.rec, 1, c.wal)
		if err != nil || r.pos != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, r.pos, err, c.want)
		}
	}
}

// A WAL that SQLite wrote, with spills and savepoints, read frame for frame.
func TestCaptureSeesWhatSQLiteWrote(t *testing.T) {
	sink := &mirror{pages: map[uint32][]byte{}}
	s := open(t, Config{Sink: func(u *Unit) Sink { sink.u = u; return sink }, CheckpointBytes: 200 << 10})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)")
	for i := range 60 {
		write(t, u, fmt.Sprintf("INSERT INTO t(b) SELECT randomblob(%d) FROM (VALUES(1),(2),(3))", 100+i*97), "SAVEPOINT x", "INSERT INTO t(b) VALUES(zeroblob(9000))", "ROLLBACK TO x")
		if i%20 == 19 {
			write(t, u, "DELETE FROM t WHERE a%3=0")
			if err := manual(u, "VACUUM"); err != nil {
				t.Fatal(err)
			}
		}
	}
	img, err := u.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var file bytes.Buffer
	if _, err := img.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for n := range sink.dbPages {
		got = append(got, sink.pages[n+1]...)
	}
	// The first pages were there before the first commit.
	if !bytes.Equal(got, file.Bytes()) {
		t.Fatalf("pages from the capture (%d bytes) are not the file (%d)", len(got), file.Len())
	}
	if sink.durable != u.Position() || sink.last != u.Position() {
		t.Fatalf("sink is at %s, durable %s; the unit at %s", sink.last, sink.durable, u.Position())
	}
}

// mirror applies commits to a map of pages.
type mirror struct {
	pages         map[uint32][]byte
	dbPages       uint32
	last, durable Position
	u             *Unit
}

func (m *mirror) Captured(c *Commit, read func(int, []byte) error) {
	for i, p := range c.Pages {
		page := make([]byte, c.PageSize)
		if err := read(i, page); err != nil {
			panic(err)
		}
		m.pages[p.Number] = page
	}
	m.dbPages, m.last = c.DBPages, c.Position
}

func (m *mirror) Durable(p Position) {
	m.durable = p
	m.u.Acknowledge(p)
}

func TestPositionText(t *testing.T) {
	p, err := ParsePosition("3:18446744073709551615")
	if err != nil || p.String() != "3:18446744073709551615" {
		t.Fatal(p, err)
	}
	for _, s := range []string{"", ":", "1", "1:", ":1", "01:1", "1:+1", "1: 1", "1:1:1", "1:18446744073709551616", "-1:0"} {
		if _, err := ParsePosition(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
	if (Position{1, 9}).Compare(Position{2, 0}) >= 0 || (Position{2, 1}).Compare(Position{2, 0}) <= 0 {
		t.Error("order")
	}
}
