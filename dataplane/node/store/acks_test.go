package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"
)

// heldUnit is a unit whose commits are acknowledged by hand.
func heldUnit(t *testing.T) (*Store, *Unit, *source) {
	s, u, src := primary(t, Config{})
	write(t, u, "CREATE TABLE t(a)")
	src.mu.Lock()
	src.hold = true
	src.mu.Unlock()
	return s, u, src
}

// start begins a write whose answer comes later.
func start(t *testing.T, u *Unit, sql string) chan error {
	t.Helper()
	at := u.Mark().Position
	done := make(chan error, 1)
	go func() {
		_, err := u.Write(ctx, func(c *Conn) error {
			_, _, err := c.Exec(sql, nil, nil)
			return err
		})
		done <- err
	}()
	until(t, "a commit", func() bool { return u.Mark().Position != at })
	return done
}

// TestSinkAcknowledges: a write returns, and is told of, when the sink says so.
func TestSinkAcknowledges(t *testing.T) {
	_, u, _ := heldUnit(t)
	before := u.Position()
	done := start(t, u, "INSERT INTO t VALUES(1)")
	select {
	case err := <-done:
		t.Fatal("returned without an acknowledgement: ", err)
	default:
	}
	seen := u.Seen()
	if u.Position() != before || seen != (Position{1, 2}) {
		t.Fatal(u.Position(), seen)
	}
	short, cancel := context.WithCancel(ctx)
	read := make(chan error, 1)
	go func() { read <- u.AwaitAcknowledged(short, seen) }()
	cancel()
	wantErr(t, <-read, context.Canceled)
	go func() { read <- u.AwaitAcknowledged(ctx, seen) }()
	u.Acknowledge(seen)
	wantErr(t, <-done, nil)
	wantErr(t, <-read, nil)
	if u.Position() != seen {
		t.Fatal(u.Position())
	}
	u.Acknowledge(before) // changes nothing
	wantErr(t, u.AwaitAcknowledged(ctx, seen), nil)
}

func TestGivenUpWrite(t *testing.T) {
	s, u, _ := heldUnit(t)
	why := errors.New("the copy is silent")
	done := start(t, u, "INSERT INTO t VALUES(1)")
	u.GiveUp(why)
	err := <-done
	wantErr(t, err, ErrUnreplicated)
	wantErr(t, err, why)
	wantErr(t, u.AwaitAcknowledged(ctx, u.Seen()), ErrUnreplicated)
	done = start(t, u, "INSERT INTO t VALUES(2)") // waits anew
	select {
	case err := <-done:
		t.Fatal(err)
	default:
	}
	u.Acknowledge(u.Seen())
	wantErr(t, <-done, nil)
	done = start(t, u, "INSERT INTO t VALUES(3)")
	if err := s.Delete(ctx, "acme", 7); err != nil {
		t.Fatal(err)
	}
	err = <-done
	wantErr(t, err, ErrUnreplicated)
	wantErr(t, err, ErrGone)
}

// TestOpenedUnitIsNotTakenForAcknowledged: after a start the sink decides on
// what was in the files.
func TestOpenedUnitIsNotTakenForAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	write(t, unit(t, s), "CREATE TABLE t(a)")
	s.Close()
	src := &source{hold: true}
	s = open(t, Config{Dir: dir, Sink: func(u *Unit) Sink { src.u = u; return src }})
	u := acquire(t, s, "acme")
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	wantErr(t, u.AwaitAcknowledged(short, u.Seen()), context.DeadlineExceeded)
	if p := u.Position(); !p.IsZero() {
		t.Fatal("acknowledged at once: ", p)
	}
	changes := make(chan Change, 1)
	go func() {
		for c, err := range u.Changes(ctx, Position{}) {
			if err == nil {
				changes <- c
			}
		}
		close(changes)
	}()
	u.Acknowledge(Position{1, 1})
	wantErr(t, u.AwaitAcknowledged(ctx, u.Seen()), nil)
	done := start(t, u, "INSERT INTO t VALUES(1)")
	u.Acknowledge(Position{1, 2})
	wantErr(t, <-done, nil)
	if c := <-changes; c.Position != (Position{1, 2}) {
		t.Fatal(c)
	}
	s.Close()
	<-changes
}

// TestReadSeesAtMostSeen: a snapshot is never beyond what Seen gives after it.
func TestReadSeesAtMostSeen(t *testing.T) {
	s := open(t, Config{Sync: SyncNormal})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(n)", "INSERT INTO t VALUES(1)")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			write(t, u, fmt.Sprint("UPDATE t SET n=", n))
			if n%300 == 0 {
				if err := manual(u, "VACUUM"); err != nil {
					t.Error(err)
				}
				n++ // VACUUM is a commit too
				write(t, u, fmt.Sprint("UPDATE t SET n=", n+1))
				n++
			}
		}
	}()
	for range 3000 {
		n, _ := strconv.ParseUint(one(t, u, "SELECT n FROM t"), 10, 64)
		if seen := u.Seen(); seen.Seq < n {
			t.Fatal(n, " was read, seen ", seen)
		}
	}
	close(stop)
	<-ended
}
