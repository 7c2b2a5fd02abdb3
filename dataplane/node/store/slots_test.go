package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

func fill(t testing.TB, s *Store, n int) []string {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("u%03d", i)
		if _, err := s.Create(ctx, names[i], 1); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// No more units are open than allowed; those in use are never closed.
func TestMaxOpen(t *testing.T) {
	s := open(t, Config{MaxOpen: 3})
	names := fill(t, s, 12)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 40 {
				name := names[rand.IntN(len(names))]
				u, release, err := s.Acquire(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = u.Write(ctx, exec1("CREATE TABLE IF NOT EXISTS t(a)"))
				if err == nil {
					_, err = insert(u)
				}
				if n := s.Stats().OpenUnits; n > 3 {
					t.Errorf("%d are open", n)
				}
				release()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var releases []func()
	for _, name := range names[:3] {
		_, release, err := s.Acquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, _, err := s.Acquire(short, names[5])
	wantErr(t, err, ErrTooManyOpen)
	go releases[0]()
	_, release, err := s.Acquire(ctx, names[5])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(releases[1:], release) {
		r()
	}
	total := 0
	for _, name := range names {
		p, err := s.Position(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Seq > 0 {
			total += int(p.Seq) - 1
		}
	}
	if total != 240 {
		t.Fatalf("%d of 240 writes", total)
	}
}

func TestIdleClose(t *testing.T) {
	s := open(t, Config{IdleClose: 20 * time.Millisecond})
	if _, err := s.Create(ctx, "acme", 1); err != nil {
		t.Fatal(err)
	}
	u, release, err := s.Acquire(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	write(t, u, "CREATE TABLE t(a)")
	release()
	until(t, "it closes", func() bool { return s.Stats().OpenUnits == 0 })
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(s.unitPath("acme") + suffix); err == nil {
			t.Errorf("%s stays", suffix)
		}
	}
	if p := acquire(t, s, "acme").Position(); p.Seq != 1 {
		t.Fatal(p)
	}
}

// A damaged unit gives a typed error, is never reset, and hurts no other.
func TestDamagedUnits(t *testing.T) {
	s := open(t, Config{})
	names := fill(t, s, 8)
	for _, name := range names {
		u, release, err := s.Acquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES(hex(randomblob(20000)))")
		release()
	}
	dir := s.cfg.Dir
	s.Close()
	damage := []func(path string) error{
		os.Remove,
		func(p string) error { return os.Truncate(p, 0) },
		func(p string) error { return os.Truncate(p, 50) },
		func(p string) error { return os.Truncate(p, 4096) },
		func(p string) error { return os.Truncate(p, 5000) },
		func(p string) error { return os.WriteFile(p, make([]byte, 40960), 0o600) },
		func(p string) error { return os.WriteFile(p, []byte("this is a text, not a database. "), 0o600) },
	}
	s = open(t, Config{Dir: dir})
	for i, f := range damage {
		path := s.unitPath(names[i])
		if err := f(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		var first error
		for range 3 {
			_, _, err := s.Acquire(ctx, names[i])
			var ue *UnitError
			if !errors.Is(err, ErrDamaged) || !errors.As(err, &ue) || ue.Unit != names[i] || ue.Hint == "" {
				t.Fatalf("damage %d: %v", i, err)
			}
			if first != nil && err != first {
				t.Errorf("damage %d: opened again at once", i)
			}
			first = err
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("damage %d: the file was changed", i)
		}
	}
	good := acquire(t, s, names[7])
	if one(t, good, "SELECT count(*) FROM t") != "1" {
		t.Error("another unit is hurt")
	}
	// An intact copy in its place mends it.
	file, _ := image(t, good)
	if _, err := s.Install(ctx, names[0], 0, readerOf(file), ImageInfo{Size: -1}); err != nil {
		t.Fatal(err)
	}
	if p := acquire(t, s, names[0]).Position(); p.Seq < 1 {
		t.Fatal(p)
	}
	// Damage within a file that opens: the statement that meets it says so.
	path := s.unitPath(names[6])
	if _, err := s.Install(ctx, names[6], 0, readerOf(file), ImageInfo{Size: -1}); err != nil {
		t.Fatal(err)
	}
	f, _ := os.OpenFile(path, os.O_WRONLY, 0)
	f.WriteAt(make([]byte, 4096), 4096)
	f.Close()
	_, err := query(acquire(t, s, names[6]), "SELECT * FROM t")
	wantErr(t, err, ErrDamaged)
}

func TestSizes(t *testing.T) {
	s := open(t, Config{})
	names := fill(t, s, 5)
	u := acquire(t, s, names[2])
	write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES(zeroblob(100000))")
	got := map[string]int64{}
	for name, n := range s.Sizes() {
		got[name] = n
	}
	if len(got) != 5 || got[names[0]] != 4096 || got[names[2]] < 200000 || got[names[2]] != u.Bytes() {
		t.Fatal(got)
	}
	if n, err := s.Bytes("nobody"); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

// Units opened, written, replaced, deleted and listed by many at once.
func TestLifecycleRaces(t *testing.T) {
	s := open(t, Config{MaxOpen: 4, IdleClose: 30 * time.Millisecond})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	file, _ := image(t, u)
	names := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 30 {
				name := names[rand.IntN(3)]
				var err error
				switch rand.IntN(6) {
				case 0:
					_, err = s.Create(ctx, name, 0)
				case 1:
					err = s.Delete(ctx, name, 0)
				case 2:
					_, err = s.Install(ctx, name, 0, readerOf(file), ImageInfo{Size: -1})
				default:
					u, release, aerr := s.Acquire(ctx, name)
					if err = aerr; err != nil {
						break
					}
					_, err = u.Write(ctx, exec1("CREATE TABLE IF NOT EXISTS t(a)"))
					if err == nil {
						_, err = insert(u)
					}
					if err == nil && i%2 == 0 {
						_, err = query(u, "SELECT count(*) FROM t")
					}
					release()
				}
				if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrUnknownUnit) && !errors.Is(err, ErrGone) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
