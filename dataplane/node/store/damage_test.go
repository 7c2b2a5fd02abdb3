package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// closedUnit gives a store with the unit acme, closed and all of it in its file: a table
// t of many pages, and a small one s.
func closedUnit(t *testing.T, cfg Config) *Store {
	t.Helper()
	cfg.IdleClose = time.Millisecond
	s := open(t, cfg)
	if _, err := s.Create(ctx, "acme", 7); err != nil {
		t.Fatal(err)
	}
	u, release, err := s.Acquire(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	write(t, u, "CREATE TABLE s(a)", "INSERT INTO s VALUES(1)", "CREATE TABLE t(a)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100) INSERT INTO t SELECT randomblob(3000) FROM n")
	release()
	until(t, "it closes", func() bool { return s.Stats().OpenUnits == 0 })
	return s
}

func spoil(t *testing.T, path string, from, to int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < min(to, len(b)); i++ {
		b[i] = 0xa5
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// read gives the error of a statement.
func read(u *Unit, sql string) error {
	return u.Read(ctx, func(c *Conn) error { _, _, err := c.Exec(sql, nil, func(*Row) error { return nil }); return err })
}

// TestDamageIsConfirmedBeforeItIsKnown: a statement that meets damage has SQLite look at
// the whole file; what it says is known until an image is put in the file's place, and
// what can be read is read on. A suspicion that is not confirmed is none.
func TestDamageIsConfirmedBeforeItIsKnown(t *testing.T) {
	s := closedUnit(t, Config{})
	u := acquire(t, s, "acme")
	u.suspect()
	until(t, "it is examined", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return !u.examining })
	if d := s.Damaged(); len(d) > 0 || s.Damage("acme") != nil {
		t.Fatalf("an intact unit is damaged: %v", s.Damage("acme"))
	}
	img := wholeFile(t, u)

	s = closedUnit(t, Config{})
	spoil(t, s.unitPath("acme"), 10*4096, 60*4096)
	u = acquire(t, s, "acme")
	if err := read(u, "SELECT sum(length(a)) FROM t"); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	until(t, "it is known to be damaged", func() bool { return slices.Equal(s.Damaged(), []string{"acme"}) })
	if err := s.Damage("acme"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "force") {
		t.Error(err)
	}
	if err := read(u, "SELECT a FROM s"); err != nil {
		t.Errorf("what is intact is not read: %v", err)
	}
	if _, err := s.Install(ctx, "acme", 7, strings.NewReader(img), ImageInfo{Size: int64(len(img))}); err != nil {
		t.Fatal(err)
	}
	if d := s.Damaged(); len(d) > 0 {
		t.Errorf("after an image it is damaged still: %v", s.Damage("acme"))
	}
}

// TestI10DamageIsNotForgottenAsTheUnitIsClosed, which makes room for another while SQLite
// looks at its file.
func TestI10DamageIsNotForgottenAsTheUnitIsClosed(t *testing.T) {
	s := closedUnit(t, Config{MaxOpen: 1})
	if _, err := s.Create(ctx, "other", 2); err != nil {
		t.Fatal(err)
	}
	spoil(t, s.unitPath("acme"), 10*4096, 60*4096)
	u, release, err := s.Acquire(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if err := read(u, "SELECT sum(length(a)) FROM t"); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	release()
	acquire(t, s, "other")
	if err := s.Damage("acme"); !errors.Is(err, ErrDamaged) {
		t.Errorf("of the damage is known: %v", err)
	}
}

// wholeFile gives a unit as a file.
func wholeFile(t *testing.T, u *Unit) string {
	t.Helper()
	img, err := u.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b strings.Builder
	if _, err := img.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestUnreadableFilesAreDamage: not only those that are none.
func TestUnreadableFilesAreDamage(t *testing.T) {
	s := closedUnit(t, Config{})
	path := s.unitPath("acme")
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Acquire(ctx, "acme"); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if !slices.Equal(s.Damaged(), []string{"acme"}) {
		t.Error(s.Damaged())
	}
}

// TestL7WhatIsDamagedIsKeptAsItIs: where a primary becomes a copy its damaged file goes
// aside with its WAL, whether it can be opened or not; nothing is done to an intact one.
func TestL7WhatIsDamagedIsKeptAsItIs(t *testing.T) {
	for name, damage := range map[string]func(s *Store){
		"cannot be opened": func(s *Store) { spoil(t, s.unitPath("acme"), 0, 100) },
		"can be": func(s *Store) {
			spoil(t, s.unitPath("acme"), 10*4096, 60*4096)
			u, release, err := s.Acquire(ctx, "acme")
			if err != nil {
				t.Fatal(err)
			}
			err = read(u, "SELECT sum(length(a)) FROM t")
			release()
			if err == nil {
				t.Fatal("no damage was met")
			}
			until(t, "it is known, and closed", func() bool { return s.Damage("acme") != nil && s.Stats().OpenUnits == 0 })
		},
	} {
		s := closedUnit(t, Config{})
		if path, damaged, err := s.KeepDamaged(ctx, "acme"); path != "" || damaged || err != nil {
			t.Errorf("an intact one is kept aside: %s %v %v", path, damaged, err)
		}
		damage(s)
		spoilt, _ := os.ReadFile(s.unitPath("acme"))
		if err := os.WriteFile(s.unitPath("acme")+"-wal", []byte("what was in its WAL"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Follow(ctx, "acme", 7, "http://other", CopyOrdinary); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		files, err := s.AsideFiles()
		if err != nil || len(files["acme"]) != 1 || !strings.HasSuffix(files["acme"][0].Path, ".damaged.db") {
			t.Fatalf("%s: %+v %v", name, files, err)
		}
		kept := files["acme"][0].Path
		db, _ := os.ReadFile(kept)
		if wal, _ := os.ReadFile(kept + "-wal"); string(db) != string(spoilt) || string(wal) != "what was in its WAL" {
			t.Errorf("%s: %d bytes of %d are kept, and %q of its WAL", name, len(db), len(spoilt), wal)
		}
		rec, err := s.Get("acme")
		if err != nil || rec.State != Following {
			t.Errorf("%s: %+v %v", name, rec, err)
		}
		if _, err := s.Mark(ctx, "acme"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: it has a mark to go on from: %v", name, err)
		}
		if again, err := filepath.Glob(filepath.Join(s.asideDir(), "*")); err != nil || len(again) != 2 {
			t.Errorf("%s: %v %v", name, again, err)
		}
	}
}

// TestADamagedUnitIsGivenUpUnopened: and none that is open.
func TestADamagedUnitIsGivenUpUnopened(t *testing.T) {
	s := closedUnit(t, Config{})
	give := func(r *Record) error { r.State = Sent; return nil }
	u := acquire(t, s, "acme")
	_, err := s.GiveUpDamaged(ctx, "acme", give)
	wantErr(t, err, ErrConflict)
	if u.Record().State != Active {
		t.Error(u.Record())
	}
	s = closedUnit(t, Config{})
	spoil(t, s.unitPath("acme"), 0, 100)
	if rec, err := s.GiveUpDamaged(ctx, "acme", give); err != nil || rec.State != Sent {
		t.Error(rec, err)
	}
}
