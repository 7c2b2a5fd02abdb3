package netfault

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every byte on every connection.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func link(t *testing.T) (*Link, net.Conn) {
	t.Helper()
	l, err := New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	say(t, c, "hello")
	hear(t, c, "hello")
	return l, c
}

func say(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// silent asserts that nothing is to be read, now and for a moment.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
		t.Fatalf("read %d bytes, %v, want silence", n, err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func TestCutIsSilentAndHeals(t *testing.T) {
	l, c := link(t)
	l.Cut()
	say(t, c, "lost?")
	silent(t, c)
	d, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	say(t, d, "new")
	silent(t, d)
	l.Heal()
	hear(t, c, "lost?")
	hear(t, d, "new")
}

func TestCutOneStopsOneDirection(t *testing.T) {
	l, c := link(t)
	before := l.Carried(Forward)
	l.CutOne(Backward)
	say(t, c, "there")
	silent(t, c)
	if got := l.Carried(Forward) - before; got != 5 {
		t.Fatalf("%d bytes went forward, want 5", got)
	}
	l.Heal()
	hear(t, c, "there")
}

func TestDelayHoldsBytesUpAndKeepsTheirOrder(t *testing.T) {
	l, c := link(t)
	l.Delay(Forward, time.Hour)
	say(t, c, "one ")
	say(t, c, "two")
	silent(t, c)
	l.Delay(Forward, time.Millisecond)
	hear(t, c, "one two")
}

func TestResetBreaksConnections(t *testing.T) {
	l, c := link(t)
	l.Reset()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("read: %v, want a broken connection", err)
	}
	if d, err := net.Dial("tcp", l.Addr()); err == nil {
		d.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := d.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Fatalf("read: %v, want a refusal", err)
		}
		d.Close()
	}
	l.Heal()
	d, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	say(t, d, "again")
	hear(t, d, "again")
}

func TestGarbleFlipsOneBit(t *testing.T) {
	l, c := link(t)
	l.Garble(Forward)
	say(t, c, "abc")
	hear(t, c, "ajc")
	say(t, c, "abc")
	hear(t, c, "abc")
}

func TestGarbleSparesWhatComesFirst(t *testing.T) {
	l, c := link(t)
	l.Spare(2) // link has said one thing
	l.Garble(Forward)
	say(t, c, "abc")
	hear(t, c, "abc")
	say(t, c, "abc")
	hear(t, c, "ajc")
}

func TestBandwidthHoldsBytesUp(t *testing.T) {
	l, c := link(t)
	l.Bandwidth(Forward, 1)
	say(t, c, "a long word that takes a while")
	silent(t, c)
}

// TestGateTellsDiallersApart: one dialler is cut off, the other is not.
func TestGateTellsDiallersApart(t *testing.T) {
	cut, open := NewWay(), NewWay()
	var n atomic.Int32
	l, err := NewGate("127.0.0.1:0", echo(t), func(net.Conn) *Way {
		if n.Add(1) == 1 {
			return cut
		}
		return open
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	var conns [2]net.Conn
	for i := range conns {
		if conns[i], err = net.Dial("tcp", l.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
		say(t, conns[i], "hello")
		hear(t, conns[i], "hello")
	}
	cut.Cut()
	say(t, conns[0], "one")
	say(t, conns[1], "two")
	hear(t, conns[1], "two")
	silent(t, conns[0])
}

// TestDiallersAreNamedHoweverManyDialAtOnce: each connection is named after the process that
// has it open, and one that is closed already after none.
func TestDiallersAreNamedHoweverManyDialAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := func() (mine, far net.Conn) {
		if mine, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if far, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mine.Close(); far.Close() })
		return mine, far
	}
	var d Diallers
	_, before := accepted()
	if name := d.Name(before); name != "" {
		t.Errorf("named %q before there was a name", name)
	}
	d.Runs("another", os.Getppid())
	d.Runs("this", os.Getpid())
	gone, closed := accepted()
	var names sync.WaitGroup
	for range 200 {
		_, far := accepted()
		names.Go(func() {
			if name := d.Name(far); name != "this" {
				t.Errorf("named %q", name)
			}
		})
	}
	gone.Close()
	names.Go(func() {
		if name := d.Name(closed); name != "" {
			t.Errorf("a closed connection is named %q", name)
		}
	})
	names.Wait()
}

// TestTapSeesWhatPasses: in order, each way, what was garbled as it was sent; and the end.
func TestTapSeesWhatPasses(t *testing.T) {
	l, err := New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	var mu sync.Mutex
	var seen [2][]byte
	ended := make(chan uint64, 1)
	l.Tap(func(n uint64, d Direction, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if seen[d] = append(seen[d], b...); b == nil {
			ended <- n
		}
	})
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	say(t, c, "one ")
	hear(t, c, "one ")
	l.Garble(Backward)
	say(t, c, "two")
	hear(t, c, "t\x7fo")
	c.Close()
	<-ended
	if string(seen[Forward]) != "one two" || string(seen[Backward]) != "one two" {
		t.Errorf("the tap saw %q", seen)
	}
}
