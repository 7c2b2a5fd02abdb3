package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// killed gives a copy of a folder as a killed process leaves it: one unit, whose
// only commits are in its WAL.
func killed(t *testing.T) string {
	t.Helper()
	s := open(t, Config{})
	write(t, unit(t, s), "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLostRecordIsNotBegunAnew: without the record of its units a folder is refused.
func TestLostRecordIsNotBegunAnew(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		dir := killed(t)
		path := filepath.Join(dir, "units.bolt")
		if err := lose(path); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "units.bolt") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFileWithoutRecordIsKept: a unit whose record was lost is not made anew over its data.
func TestFileWithoutRecordIsKept(t *testing.T) {
	s := open(t, Config{Dir: killed(t)})
	if err := s.dropRecord(&stored{Record: Record{Name: "acme"}}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Create(ctx, "acme", 8)
	wantErr(t, err, ErrDamaged)
	file, err := os.ReadFile(s.unitPath("acme"))
	if err != nil || len(file) == 0 {
		t.Errorf("%d bytes left, %v", len(file), err)
	}
	if wal, err := os.ReadFile(s.unitPath("acme") + "-wal"); err != nil || len(wal) < walHeaderSize {
		t.Errorf("%d bytes of its WAL left, %v", len(wal), err)
	}
}

// TestWALThatIsNoneIsDamage: SQLite would take it for empty and forget its commits.
func TestWALThatIsNoneIsDamage(t *testing.T) {
	for name, damage := range map[string]func(wal []byte){
		"zeros":     func(wal []byte) { clear(wal) },
		"one bit":   func(wal []byte) { wal[17] ^= 1 },
		"its magic": func(wal []byte) { copy(wal, "text") },
	} {
		s := open(t, Config{Dir: killed(t)})
		path := s.unitPath("acme") + "-wal"
		wal, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damage(wal)
		if err := os.WriteFile(path, wal, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, release, err := s.Acquire(ctx, "acme"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				release()
			}
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(wal) {
			t.Errorf("%s: the WAL was changed (%v)", name, err)
		}
	}
}
