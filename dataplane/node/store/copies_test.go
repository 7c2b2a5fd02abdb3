package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// source is a sink that acknowledges what is durable, and keeps all entries.
type source struct {
	u       *Unit
	mu      sync.Mutex
	entries []Entry
	hold    bool // acknowledge nothing
}

func (s *source) Captured(c *Commit, read func(int, []byte) error) {
	e := Entry{Position: c.Position, Prev: c.Prev, Chain: c.Chain, PageSize: c.PageSize, DBPages: c.DBPages}
	for i, p := range c.Pages {
		data := make([]byte, c.PageSize)
		if err := read(i, data); err != nil {
			panic(err)
		}
		e.Pages = append(e.Pages, EntryPage{p.Number, data})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
}

func (s *source) Durable(p Position) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if !hold {
		s.u.Acknowledge(p)
	}
}

// after gives the entries after p.
func (s *source) after(p Position) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if s.entries[i].Position.Seq > p.Seq {
			return slices.Clone(s.entries[i:])
		}
	}
	return nil
}

// primary makes a unit whose entries are kept.
func primary(t testing.TB, cfg Config) (*Store, *Unit, *source) {
	t.Helper()
	src := new(source)
	cfg.Sink = func(u *Unit) Sink { src.u = u; return src }
	s := open(t, cfg)
	return s, unit(t, s), src
}

// follower makes a copy of acme that holds nothing.
func follower(t testing.TB, cfg Config) *Store {
	t.Helper()
	s := open(t, cfg)
	if m, err := s.Follow(ctx, "acme", 7, "http://a:1", CopyOrdinary); err != nil || m != (Mark{}) {
		t.Fatal(m, err)
	}
	return s
}

func apply(t testing.TB, s *Store, entries []Entry) Mark {
	t.Helper()
	m, err := s.Apply(ctx, "acme", entries)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func promote(t testing.TB, s *Store, epoch uint64) {
	t.Helper()
	if err := s.Promote(ctx, epoch, []UnitID{{"acme", 7}})[0]; err != nil {
		t.Fatal(err)
	}
}

// content is a unit's file without what SQLite counts for itself in page 1.
func content(t testing.TB, u *Unit) []byte {
	t.Helper()
	img, err := u.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	if _, err := img.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	clear(file[24:28])
	clear(file[92:100])
	return file
}

// sameFile compares two units byte for byte.
func sameFile(t testing.TB, a, b *Unit) {
	t.Helper()
	x, y := content(t, a), content(t, b)
	if !bytes.Equal(x, y) {
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Fatalf("files of %d and %d bytes differ from byte %d on", len(x), len(y), i)
			}
		}
		t.Fatalf("files of %d and %d bytes", len(x), len(y))
	}
	if a.Mark() != b.Mark() {
		t.Fatalf("marks %v and %v", a.Mark(), b.Mark())
	}
}

func TestCopyFromTheBeginning(t *testing.T) {
	_, p, src := primary(t, Config{})
	dir := t.TempDir()
	f := follower(t, Config{Dir: dir})
	wantErr(t, f.Promote(ctx, 5, []UnitID{{"acme", 7}})[0], ErrNeedsImage)
	write(t, p, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	for i := range 10 {
		write(t, p, fmt.Sprint("INSERT INTO t VALUES(", i, ")"))
	}
	entries := src.after(Position{})
	_, err := f.Apply(ctx, "acme", entries[1:])
	wantErr(t, err, ErrNeedsImage)
	apply(t, f, entries[:1])
	_, err = f.Apply(ctx, "acme", entries[2:])
	wantErr(t, err, ErrGap)
	if m := apply(t, f, entries); m != p.Mark() { // what it has is passed over
		t.Fatal(m, p.Mark())
	}
	u := acquire(t, f, "acme")
	sameFile(t, p, u)
	if one(t, u, "SELECT count(*) FROM t") != "11" || u.Position() != p.Position() {
		t.Error("content or position")
	}
	_, err = u.Write(ctx, func(*Conn) error { return nil })
	wantErr(t, err, ErrFollowing)
	f.Close()
	f = open(t, Config{Dir: dir})
	if m, err := f.Mark(ctx, "acme"); err != nil || m != p.Mark() {
		t.Fatal(m, err)
	}
	write(t, p, "DROP TABLE t")
	apply(t, f, src.after(Position{Seq: 11}))
	sameFile(t, p, acquire(t, f, "acme"))
}

func TestAlteredEntriesAreRefused(t *testing.T) {
	_, p, src := primary(t, Config{})
	f := follower(t, Config{})
	write(t, p, "CREATE TABLE t(a)")
	apply(t, f, src.after(Position{}))
	write(t, p, "INSERT INTO t VALUES(1)")
	write(t, p, "INSERT INTO t VALUES(randomblob(9000))")
	good := src.after(Position{Seq: 1})
	for name, c := range map[string]struct {
		alter func(e *Entry)
		want  error
	}{
		"a byte": {func(e *Entry) {
			e.Pages = slices.Clone(e.Pages)
			e.Pages[0].Data = slices.Clone(e.Pages[0].Data)
			e.Pages[0].Data[4000] ^= 1
		}, ErrBadEntry},
		"its chain":      {func(e *Entry) { e.Chain++ }, ErrBadEntry},
		"previous chain": {func(e *Entry) { e.Prev.Chain++ }, ErrForked},
		"its epoch":      {func(e *Entry) { e.Position.Epoch++ }, ErrBadEntry},
		"its number":     {func(e *Entry) { e.Position.Seq++ }, ErrBadEntry},
		"numbers":        {func(e *Entry) { e.Position.Seq++; e.Prev.Position.Seq++ }, ErrGap},
		"a page's":       {func(e *Entry) { e.Pages = slices.Clone(e.Pages); e.Pages[0].Number = 0 }, ErrBadEntry},
		"a page missing": {func(e *Entry) { e.Pages = e.Pages[1:] }, ErrBadEntry},
		"size":           {func(e *Entry) { e.DBPages++ }, ErrBadEntry},
		"huge":           {func(e *Entry) { e.DBPages = 1 << 31 }, ErrBadEntry},
		"page size":      {func(e *Entry) { e.PageSize = 8192 }, ErrBadEntry},
		"cut":            {func(e *Entry) { e.Pages = slices.Clone(e.Pages); e.Pages[0].Data = e.Pages[0].Data[:9] }, ErrBadEntry},
	} {
		for i := range good {
			es := slices.Clone(good)
			c.alter(&es[i])
			want := c.want
			if name == "numbers" && i == 1 || name == "its number" && i == 0 {
				want = nil // another error than alone
			}
			_, err := f.Apply(ctx, "acme", es)
			if err == nil || (want != nil && !errors.Is(err, want)) {
				t.Errorf("%s of entry %d: %v", name, i, err)
			}
			if m, _ := f.Mark(ctx, "acme"); m.Position.Seq != 1 {
				t.Fatalf("%s: the copy is at %v", name, m)
			}
		}
	}
	apply(t, f, good)
	sameFile(t, p, acquire(t, f, "acme"))
	forged := good[1]
	forged.Chain++
	_, err := f.Apply(ctx, "acme", []Entry{forged})
	wantErr(t, err, ErrForked)
}

// TestPromotedCopyGoesOn: writes after it are counted right, over crashes too.
func TestPromotedCopyGoesOn(t *testing.T) {
	_, p, src := primary(t, Config{})
	dir := t.TempDir()
	f := follower(t, Config{Dir: dir})
	for _, q := range []string{"CREATE TABLE t(a)", "INSERT INTO t VALUES(1)", "INSERT INTO t VALUES(2)"} {
		write(t, p, q)
	}
	apply(t, f, src.after(Position{}))
	u := acquire(t, f, "acme")
	wantErr(t, f.Promote(ctx, 1, []UnitID{{"acme", 7}})[0], ErrConflict)
	wantErr(t, f.Promote(ctx, 9, []UnitID{{"acme", 8}})[0], ErrWrongID)
	promote(t, f, 9)
	promote(t, f, 9)
	wantErr(t, f.Promote(ctx, 8, []UnitID{{"acme", 7}})[0], ErrConflict)
	if got := u.Position(); got != (Position{9, 3}) || u.Following() {
		t.Fatal(got)
	}
	if got := write(t, u, "INSERT INTO t VALUES(3)"); got != (Position{9, 4}) {
		t.Fatal(got)
	}
	if l := u.Lineage(); !slices.Equal(l, Lineage{{1, 0}, {9, 3}}) {
		t.Fatal(l)
	}
	want := u.Mark()
	// As a kill leaves it.
	dead := t.TempDir()
	if err := os.CopyFS(dead, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	k := open(t, Config{Dir: dead})
	if m, err := k.Mark(ctx, "acme"); err != nil || m != want {
		t.Fatal(m, want, err)
	}
	if got := write(t, acquire(t, k, "acme"), "INSERT INTO t VALUES(4)"); got != (Position{9, 5}) {
		t.Fatal(got)
	}
	// The former primary has gone on alone: its history forks.
	write(t, p, "INSERT INTO t VALUES('lost')")
	if l := u.Lineage(); l.Has(p.Position()) || !l.Has(Position{1, 3}) {
		t.Error("the fork is not seen")
	}
}

// TestFormerPrimaryFollows: what it has is counted right, it can be promoted
// again, and gets what came meanwhile.
func TestFormerPrimaryFollows(t *testing.T) {
	ps, p, src := primary(t, Config{})
	f := follower(t, Config{})
	write(t, p, "CREATE TABLE t(a)")
	write(t, p, "INSERT INTO t VALUES(1)")
	apply(t, f, src.after(Position{}))
	before := p.Mark()
	var more source
	f.cfg.Sink = func(u *Unit) Sink { more.u = u; return &more }
	promote(t, f, 4)
	n := acquire(t, f, "acme")
	wantErr(t, ps.Promote(ctx, 1, []UnitID{{"acme", 7}})[0], nil)
	_, err := ps.Follow(ctx, "acme", 8, "http://b:1", CopyOrdinary)
	wantErr(t, err, ErrWrongID)
	m, err := ps.Follow(ctx, "acme", 7, "http://b:1", CopyOrdinary)
	if err != nil || m != before {
		t.Fatal(m, before, err)
	}
	_, err = p.Write(ctx, func(*Conn) error { return nil })
	wantErr(t, err, ErrGone)
	_, err = ps.Update(ctx, "acme", func(r *Record) error { r.State = Active; return nil })
	wantErr(t, err, ErrWrongState)
	m, err = ps.Adopt(ctx, "acme", n.Lineage())
	if err != nil || m != n.Mark() || m.Position != (Position{4, 2}) {
		t.Fatal(m, err)
	}
	_, err = ps.Adopt(ctx, "acme", Lineage{{1, 0}, {5, 1}})
	wantErr(t, err, ErrForked)
	write(t, n, "INSERT INTO t VALUES(2)")
	if m := apply(t, ps, more.after(before.Position)); m != n.Mark() {
		t.Fatal(m, n.Mark())
	}
	back := acquire(t, ps, "acme")
	sameFile(t, n, back)
	wantErr(t, ps.Promote(ctx, 4, []UnitID{{"acme", 7}})[0], ErrConflict) // late, and of another's branch
	promote(t, ps, 6)
	if got := write(t, back, "INSERT INTO t VALUES(3)"); got != (Position{6, 4}) {
		t.Fatal(got)
	}
	if l := back.Lineage(); !slices.Equal(l, Lineage{{1, 0}, {4, 2}, {6, 3}}) {
		t.Fatal(l)
	}
}
