package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func exec1(sql string) func(*Conn) error {
	return func(c *Conn) error { _, _, err := c.Exec(sql, nil, nil); return err }
}

func begin(t testing.TB, u *Unit, mode Mode) *Tx {
	t.Helper()
	tx, err := u.Begin(ctx, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Rollback)
	return tx
}

func TestInteractiveTransactions(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	tx := begin(t, u, WriteTx)
	for range 3 {
		if err := tx.Do(ctx, exec1("INSERT INTO t VALUES(1)")); err != nil || !tx.InTransaction() {
			t.Fatal(err)
		}
	}
	if n := one(t, u, "SELECT count(*) FROM t"); n != "0" {
		t.Fatalf("%s rows are seen before the commit", n)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := u.Write(short, exec1("INSERT INTO t VALUES(2)"))
	wantErr(t, err, ErrInterrupted)
	wantErr(t, err, context.DeadlineExceeded)
	p, err := tx.Commit(ctx)
	if err != nil || p.Seq != 2 || u.Position() != p || tx.InTransaction() {
		t.Fatal(p, err)
	}
	wantErr(t, tx.Do(ctx, exec1("SELECT 1")), ErrClosed)
	_, err = tx.Commit(ctx)
	wantErr(t, err, ErrClosed)
	tx.Rollback()

	snap := begin(t, u, ReadTx)
	count := func() (n int64) {
		if err := snap.Do(ctx, func(c *Conn) error {
			_, _, err := c.Exec("SELECT count(*) FROM t", nil, func(r *Row) error { n = r.Int64(0); return nil })
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := count()
	insert(u)
	if again := count(); again != first || first != 3 {
		t.Fatalf("a read transaction sees %d, then %d", first, again)
	}
	wantErr(t, snap.Do(ctx, exec1("INSERT INTO t VALUES(1)")), ErrReadOnly)
}

// A client that drives its transaction by SQL keeps the writer as long as one
// is open, and loses it with the last COMMIT.
func TestManualTransactions(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	for _, script := range [][]string{
		{"BEGIN IMMEDIATE", "CREATE TABLE a(x)", "COMMIT"},
		{"BEGIN", "CREATE TABLE b(x)", "END TRANSACTION"},
		{"SAVEPOINT s", "CREATE TABLE c(x)", "RELEASE s"},
		{"BEGIN", "CREATE TABLE d(x)", "ROLLBACK"},
	} {
		tx := begin(t, u, Manual)
		for i, sql := range script {
			if err := tx.Do(ctx, exec1(sql)); err != nil {
				t.Fatal(sql, err)
			}
			if want := i < len(script)-1; tx.InTransaction() != want {
				t.Fatalf("after %s: InTransaction is %v", sql, !want)
			}
		}
		wantErr(t, tx.Do(ctx, exec1("SELECT 1")), ErrClosed)
	}
	if n := one(t, u, "SELECT group_concat(name) FROM sqlite_schema"); n != "a,b,c" || u.Position().Seq != 3 {
		t.Fatal(n, u.Position())
	}
	// Statements that commit one by one: each is a commit; a failure keeps the ones before.
	err := manual(u, "INSERT INTO a VALUES(1); INSERT INTO a VALUES(2); SELECT nosuch")
	var e *SQLError
	if !errors.As(err, &e) || e.Name != "SQLITE_ERROR" || e.Offset != 7 {
		t.Fatalf("%+v", err)
	}
	if u.Position().Seq != 5 {
		t.Fatal(u.Position())
	}
}

func TestKilledTransaction(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	late := errors.New("open for too long")
	idle := begin(t, u, WriteTx)
	if err := idle.Do(ctx, exec1("INSERT INTO t VALUES(1)")); err != nil {
		t.Fatal(err)
	}
	idle.Kill(late)
	for _, err := range []error{idle.Do(ctx, exec1("SELECT 1")), idle.Killed()} {
		wantErr(t, err, ErrKilled)
		wantErr(t, err, late)
	}
	_, err := idle.Commit(ctx)
	wantErr(t, err, ErrKilled)

	running := begin(t, u, WriteTx)
	done := make(chan error)
	started := make(chan struct{})
	go func() {
		done <- running.Do(ctx, func(c *Conn) error {
			exec1("INSERT INTO t VALUES(1)")(c)
			close(started)
			return exec1(endless)(c)
		})
	}()
	<-started
	running.Kill(late)
	err = <-done
	wantErr(t, err, ErrInterrupted)
	wantErr(t, err, late)
	if n := one(t, u, "SELECT count(*) FROM t"); n != "0" {
		t.Fatal(n, " rows stayed")
	}
	if _, err := insert(u); err != nil {
		t.Fatal("the writer was not given back: ", err)
	}
}

const endless = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"

func TestDeadlineInterrupts(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	for _, run := range []func(context.Context) error{
		func(c context.Context) error { return u.Read(c, exec1(endless)) },
		func(c context.Context) error { _, err := u.Write(c, exec1(endless)); return err },
		func(c context.Context) error {
			_, err := u.Write(c, exec1("INSERT INTO t SELECT i FROM (WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n) SELECT i FROM n)"))
			return err
		},
	} {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		err := run(short)
		cancel()
		wantErr(t, err, ErrInterrupted)
		wantErr(t, err, context.DeadlineExceeded)
	}
	if n := one(t, u, "SELECT count(*) FROM t"); n != "0" || s.Stats().Interrupts != 3 {
		t.Fatal(n, s.Stats().Interrupts)
	}
}

func TestFreeze(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var last Position
	for range 8 {
		wg.Go(func() {
			for {
				p, err := insert(u)
				if err != nil {
					wantErrIn(t, err, ErrFrozen)
					return
				}
				mu.Lock()
				if p.Compare(last) > 0 {
					last = p
				}
				mu.Unlock()
			}
		})
	}
	until(t, "writes", func() bool { return u.Position().Seq > 50 })
	pos, err := u.Freeze(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if pos != last || pos != u.Position() {
		t.Fatalf("frozen at %s, last acknowledged %s, durable %s", pos, last, u.Position())
	}
	left, at := u.Frozen()
	if left <= 0 || left > time.Minute || at != pos {
		t.Fatal(left, at)
	}
	if again, err := u.Freeze(ctx, time.Hour); err != nil || again != pos {
		t.Fatal(again, err)
	}
	var frozen *FrozenError
	if _, err := insert(u); !errors.As(err, &frozen) || frozen.Left < time.Minute {
		t.Fatal(err)
	}
	if _, err := query(u, "SELECT count(*) FROM t"); err != nil {
		t.Fatal("reads must go on: ", err)
	}
	if !u.Thaw() || u.Thaw() {
		t.Fatal("thaw")
	}
	if p, err := insert(u); err != nil || p.Seq != pos.Seq+1 {
		t.Fatal(p, err)
	}
	if _, err := u.Freeze(ctx, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	until(t, "it thaws by itself", func() bool { _, err := insert(u); return err == nil })
}

func wantErrIn(t *testing.T, err, want error) {
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

// A freeze waits for an open transaction until its context ends; then the
// transaction is killed with a clear error.
func TestFreezeDrains(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	tx := begin(t, u, WriteTx)
	tx.Do(ctx, exec1("INSERT INTO t VALUES(1)"))
	frozen := make(chan Position)
	go func() { p, _ := u.Freeze(ctx, time.Minute); frozen <- p }()
	until(t, "the gate closes", func() bool { return errors.Is(u.mayWrite(), ErrFrozen) })
	p, err := tx.Commit(ctx) // it may finish
	if err != nil || <-frozen != p {
		t.Fatal(p, err)
	}
	u.Thaw()

	for _, busy := range []bool{false, true} {
		tx = begin(t, u, WriteTx)
		done := make(chan error, 1)
		if busy {
			go func() { done <- tx.Do(ctx, exec1(endless)) }()
		}
		drain, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		got, err := u.Freeze(drain, time.Minute)
		cancel()
		if err != nil || got != p {
			t.Fatal(got, err)
		}
		wantErr(t, tx.Do(ctx, exec1("SELECT 1")), ErrKilled)
		wantErr(t, tx.Killed(), errFrozenTx)
		if busy {
			wantErr(t, <-done, errFrozenTx)
		}
		u.Thaw()
	}
}

// Freezes, thaws and writes at once: no write is acknowledged while frozen.
func TestFreezeRaces(t *testing.T) {
	s := open(t, Config{Sync: SyncNormal})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := insert(u); err != nil && !errors.Is(err, ErrFrozen) {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 200 {
		pos, err := u.Freeze(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if now := u.Position(); now != pos {
				t.Fatalf("round %d: frozen at %s, now %s", i, pos, now)
			}
		}
		u.Thaw()
		at := u.Position().Seq
		until(t, "writes go on", func() bool { return u.Position().Seq > at })
	}
	close(stop)
	wg.Wait()
	if n := one(t, u, "SELECT count(*)+1 FROM t"); n != fmt.Sprint(u.Position().Seq) {
		t.Fatal(n, u.Position())
	}
}

// A write that was let in before a freeze, and gets the writer after it, is
// refused then.
func TestFreezeRefusesLateWriter(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	before := u.Position()
	u.writer <- struct{}{}
	late := make(chan error)
	go func() { _, err := insert(u); late <- err }()
	until(t, "it waits for the writer", func() bool {
		buf := make([]byte, 1<<16)
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "takeWriter")
	})
	u.mu.Lock()
	u.gate = gate{until: time.Now().Add(time.Minute)}
	u.mu.Unlock()
	<-u.writer
	wantErr(t, <-late, ErrFrozen)
	if u.Position() != before {
		t.Fatal(u.Position())
	}
}

func TestSetEpoch(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	wantErr(t, u.SetEpoch(ctx, 1), ErrConflict)
	if err := u.SetEpoch(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if p, err := insert(u); err != nil || p != (Position{5, 2}) {
		t.Fatal(p, err)
	}
	s.Close()
	s = open(t, Config{Dir: dir})
	if p, _ := s.Position(ctx, "acme"); p != (Position{5, 2}) {
		t.Fatal(p)
	}
	if r, _ := s.Get("acme"); r.Epoch != 5 {
		t.Fatal(r)
	}
}
