package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPromoteMany: open, closed and unknown units in one call; one record each.
func TestPromoteMany(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, MaxOpen: 20})
	base := open(t, Config{})
	file, info := image(t, unit(t, base))
	_ = info
	var ids []UnitID
	for i := range 50 {
		id := UnitID{fmt.Sprint("u", i), uint64(i + 1)}
		_, err := s.Install(ctx, id.Name, id.ID, readerOf(file), ImageInfo{Size: -1, State: Following, From: "http://a:1",
			Position: Position{3, 9}, Chain: 77, Lineage: Lineage{{1, 0}, {3, 4}}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		if i%3 == 0 {
			acquire(t, s, id.Name)
		}
	}
	ids = append(ids, UnitID{"none", 1}, UnitID{"u1", 2})
	errs := s.Promote(ctx, 12, ids)
	for i, err := range errs[:50] {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	wantErr(t, errs[50], ErrUnknownUnit)
	wantErr(t, errs[51], ErrConflict)
	check := func(s *Store) {
		t.Helper()
		for _, id := range ids[:50] {
			m, err := s.Mark(ctx, id.Name)
			l, _ := s.Lineage(id.Name)
			r, _ := s.Get(id.Name)
			if err != nil || m != (Mark{Position{12, 9}, 77}) || fmt.Sprint(l) != "[{1 0} {3 4} {12 9}]" || r.State != Active || r.From != "" {
				t.Fatal(id, m, l, r, err)
			}
		}
	}
	check(s)
	s.Close()
	s = open(t, Config{Dir: dir})
	check(s)
	if p := write(t, acquire(t, s, "u7"), "CREATE TABLE z(a)"); p != (Position{12, 10}) {
		t.Fatal(p)
	}
}

func TestPromotionThatIsNotRecordedChangesNothing(t *testing.T) {
	var fail bool
	boom := errors.New("boom")
	_, p, src := primary(t, Config{})
	s := follower(t, Config{Fault: func(op FileOp, _ string) error {
		if fail && op == OpRecord {
			return boom
		}
		return nil
	}})
	write(t, p, "CREATE TABLE t(a)")
	apply(t, s, src.after(Position{}))
	fail = true
	wantErr(t, s.Promote(ctx, 5, []UnitID{{"acme", 7}})[0], boom)
	fail = false
	u := acquire(t, s, "acme")
	if !u.Following() || u.Position() != (Position{1, 1}) {
		t.Fatal(u.Position())
	}
	write(t, p, "INSERT INTO t VALUES(1)")
	apply(t, s, src.after(u.Position()))
	promote(t, s, 5)
}

// TestSetAside: what a lost branch had is a plain SQLite file, its WAL included.
func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES('kept')")
	if _, err := s.Follow(ctx, "acme", 7, "http://b:1", CopyOrdinary); err != nil {
		t.Fatal(err)
	}
	path, m, err := s.SetAside(ctx, "acme")
	if err != nil || m.Position != (Position{1, 1}) || filepath.Dir(path) != filepath.Join(dir, "aside") ||
		!strings.HasPrefix(filepath.Base(path), "acme@1-1@") {
		t.Fatal(path, m, err)
	}
	copied := filepath.Join(t.TempDir(), "x.db") // opening it makes files beside it
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, file, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := openRaw(copied, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if got, err := r.queryText("SELECT a FROM t"); got != "kept" {
		t.Fatal(got, err)
	}
	files, err := s.AsideFiles()
	if f := files["acme"]; err != nil || len(f) != 1 || f[0].Path != path || f[0].Position != m.Position || f[0].Bytes != int64(len(file)) || time.Since(f[0].At) > time.Hour {
		t.Fatal(files, err)
	}
	if left := tmpFiles(t, s); len(left) != 0 {
		t.Error(left)
	}
}

// TestOldRecordIsRead: one without a lineage, as the first version wrote it.
func TestOldRecordIsRead(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	if l := u.Lineage(); fmt.Sprint(l) != "[{1 0}]" {
		t.Fatal(l)
	}
	if err := u.SetEpoch(ctx, 4); err != nil {
		t.Fatal(err)
	}
	if l := u.Lineage(); fmt.Sprint(l) != "[{1 0} {4 0}]" {
		t.Fatal(l)
	}
}

func TestLineage(t *testing.T) {
	l := Lineage{{1, 0}, {4, 10}, {9, 10}, {12, 25}}
	for p, want := range map[Position]bool{{1, 0}: true, {1, 10}: true, {1, 11}: false, {4, 10}: true, {4, 11}: false,
		{9, 10}: true, {9, 25}: true, {9, 26}: false, {12, 25}: true, {12, 1000}: true, {12, 24}: false, {5, 10}: false, {}: false} {
		if l.Has(p) != want {
			t.Error(p)
		}
	}
	if l.At(9) != 1 || l.At(10) != 9 || l.At(30) != 12 || !l.valid() || (Lineage{{2, 0}, {2, 1}}).valid() {
		t.Error("At, valid")
	}
	if got := l.branch(20, 12); fmt.Sprint(got) != "[{1 0} {4 10} {9 10} {20 12}]" {
		t.Error(got)
	}
}

func benchCopies(b *testing.B, n int) (*Store, []UnitID) {
	base := open(b, Config{})
	u := unit(b, base)
	img, err := u.Image(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer img.Close()
	var file strings.Builder
	img.WriteTo(&file)
	s := open(b, Config{MaxOpen: 2000})
	ids := make([]UnitID, n)
	for i := range ids {
		ids[i] = UnitID{fmt.Sprint("u", i), 1}
		_, err := s.Install(ctx, ids[i].Name, 1, strings.NewReader(file.String()), ImageInfo{Size: -1, State: Following, From: "x", Position: Position{1, 1}})
		if err != nil {
			b.Fatal(err)
		}
	}
	return s, ids
}

func benchPromote(b *testing.B, opened bool) {
	s, ids := benchCopies(b, 1000)
	if opened {
		for _, id := range ids {
			_, release, err := s.Acquire(ctx, id.Name)
			if err != nil {
				b.Fatal(err)
			}
			defer release()
		}
	}
	epoch := uint64(2)
	for b.Loop() {
		for i, err := range s.Promote(ctx, epoch, ids) {
			if err != nil {
				b.Fatal(i, err)
			}
		}
		epoch++
	}
}

func BenchmarkPromote1000Closed(b *testing.B) { benchPromote(b, false) }
func BenchmarkPromote1000Open(b *testing.B)   { benchPromote(b, true) }

func benchApply(b *testing.B, merged int, sync Sync) {
	_, p, src := primary(b, Config{Sync: SyncNormal})
	f := follower(b, Config{Sync: sync})
	write(b, p, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	apply(b, f, src.after(Position{}))
	src.entries = nil
	for range b.N {
		if _, err := p.Write(ctx, insertValue); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	cpuOf(b, func() {
		for i := 0; i < b.N; i += merged {
			apply(b, f, src.entries[i:min(i+merged, b.N)])
		}
	})
}

func BenchmarkApplyFull1(b *testing.B)    { benchApply(b, 1, SyncFull) }
func BenchmarkApplyFull64(b *testing.B)   { benchApply(b, 64, SyncFull) }
func BenchmarkApplyNormal1(b *testing.B)  { benchApply(b, 1, SyncNormal) }
func BenchmarkApplyNormal64(b *testing.B) { benchApply(b, 64, SyncNormal) }
