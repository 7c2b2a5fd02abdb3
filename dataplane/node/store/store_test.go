package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TORTURE_DIR"); dir != "" {
		tortureChild(dir)
		return
	}
	if dir := os.Getenv("STORE_CRASH_DIR"); dir != "" {
		crashChild(dir)
		return
	}
	if dir := os.Getenv("STORE_COPY_DIR"); dir != "" {
		copyChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// open opens a store in a new folder, or in dir, and closes it with the test.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// unit makes a unit called acme and acquires it for the test.
func unit(t testing.TB, s *Store) *Unit {
	t.Helper()
	if _, err := s.Create(ctx, "acme", 7); err != nil {
		t.Fatal(err)
	}
	return acquire(t, s, "acme")
}

func acquire(t testing.TB, s *Store, name string) *Unit {
	t.Helper()
	u, release, err := s.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return u
}

var ctx = context.Background()

// write runs statements in one transaction.
func write(t testing.TB, u *Unit, sql ...string) Position {
	t.Helper()
	pos, err := u.Write(ctx, func(c *Conn) error {
		for _, q := range sql {
			if _, _, err := c.Exec(q, nil, nil); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

// query gives the rows of a statement on a reader, values as text.
func query(u *Unit, sql string, args ...Value) (rows [][]string, err error) {
	err = u.Read(ctx, func(c *Conn) error {
		_, _, err := c.Exec(sql, args, func(r *Row) error {
			row := make([]string, r.Len())
			for i := range row {
				row[i] = text(r.Value(i))
			}
			rows = append(rows, row)
			return nil
		})
		return err
	})
	return rows, err
}

func text(v Value) string {
	switch v.Type {
	case Integer:
		return fmt.Sprint(v.Int)
	case Float:
		return fmt.Sprint(v.Float)
	case Text:
		return v.Text
	case Blob:
		return fmt.Sprintf("x'%x'", v.Blob)
	}
	return "NULL"
}

func one(t testing.TB, u *Unit, sql string, args ...Value) string {
	t.Helper()
	rows, err := query(u, sql, args...)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 {
		t.Fatalf("%s: %v, %v", sql, rows, err)
	}
	return rows[0][0]
}

func readerOf(b []byte) io.Reader { return bytes.NewReader(b) }

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never happened: ", what)
		}
	}
}

func TestWriteReadReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	u := unit(t, s)
	if p := u.Position(); p != (Position{1, 0}) {
		t.Fatalf("a new unit is at %s", p)
	}
	if p := write(t, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)"); p != (Position{1, 1}) {
		t.Fatalf("first commit at %s", p)
	}
	for i := range 20 {
		if p := write(t, u, fmt.Sprintf("INSERT INTO t(b) VALUES('x%d')", i)); p != (Position{1, uint64(i + 2)}) {
			t.Fatalf("commit %d at %s", i, p)
		}
	}
	if p := write(t, u, "SELECT 1"); p != (Position{1, 21}) {
		t.Fatalf("a write that changes nothing is at %s", p)
	}
	id := s.ID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.unitPath("acme") + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the WAL is there after a clean close: ", err)
	}
	s = open(t, Config{Dir: dir})
	if s.ID() != id || len(id) != 16 {
		t.Fatalf("id %q, then %q", id, s.ID())
	}
	if p, err := s.Position(ctx, "acme"); err != nil || p != (Position{1, 21}) {
		t.Fatalf("position after a restart: %s, %v", p, err)
	}
	u = acquire(t, s, "acme")
	if n := one(t, u, "SELECT count(*) FROM t"); n != "20" {
		t.Fatalf("%s rows", n)
	}
	if p := write(t, u, "DELETE FROM t"); p != (Position{1, 22}) {
		t.Fatalf("next commit at %s", p)
	}
}

func TestCreateDeleteList(t *testing.T) {
	s := open(t, Config{})
	for _, name := range []string{"acme", "acme.12", "b-_9"} {
		r, err := s.Create(ctx, name, 5)
		if err != nil || r != (Record{Name: name, ID: 5, State: Active, Epoch: 1}) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for _, name := range []string{"", "Acme", "a.b", "a.0", "a.01", "a.1.2", ".1", "../x", "a/b", "a\x00"} {
		_, err := s.Create(ctx, name, 1)
		wantErr(t, err, ErrBadName)
	}
	if _, err := s.Create(ctx, "acme", 5); err != nil {
		t.Fatal("the same create again: ", err)
	}
	_, err := s.Create(ctx, "acme", 6)
	wantErr(t, err, ErrWrongID)
	wantErr(t, s.Delete(ctx, "acme", 6), ErrWrongID)
	wantErr(t, s.Delete(ctx, "nobody", 0), ErrUnknownUnit)
	u, release, err := s.Acquire(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.Delete(ctx, "acme", 5); err != nil {
		t.Fatal(err)
	}
	_, err = query(u, "SELECT 1")
	wantErr(t, err, ErrGone)
	_, err = s.Get("acme")
	wantErr(t, err, ErrUnknownUnit)
	_, _, err = s.Acquire(ctx, "acme")
	wantErr(t, err, ErrUnknownUnit)
	list, err := s.List("acme", 1)
	if err != nil || len(list) != 1 || list[0].Name != "acme.12" {
		t.Fatalf("%v, %v", list, err)
	}
	if list, _ = s.List("acme.12", 0); len(list) != 1 || list[0].Name != "b-_9" {
		t.Fatalf("%v", list)
	}
	if _, err := os.Stat(s.unitPath("acme")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the file is there after a delete")
	}
	if _, err := s.Create(ctx, "acme", 8); err != nil {
		t.Fatal(err)
	}
	if p := acquire(t, s, "acme").Position(); p != (Position{1, 0}) {
		t.Fatalf("a unit made anew is at %s", p)
	}
}
