package replica

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ends is a wire at each end of a pipe.
func ends(a, b *wire) (ctxErr func() (error, error)) {
	var errs [2]error
	var g sync.WaitGroup
	g.Go(func() { errs[0] = a.run(ctx) })
	g.Go(func() { errs[1] = b.run(ctx) })
	return func() (error, error) { g.Wait(); return errs[0], errs[1] }
}

func testWire(c net.Conn, handle func(frame) error) *wire {
	w := newWire(c)
	w.handle, w.beat = handle, func() []byte { return encodeBeat(0) }
	return w
}

// Heartbeats keep an idle connection; without them it is broken after three
// seconds, on the side that hears nothing.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c1, c2 := net.Pipe()
		var mu sync.Mutex
		beats := 0
		count := func(frame) error { mu.Lock(); defer mu.Unlock(); beats++; return nil }
		a, b := testWire(c1, count), testWire(c2, count)
		wait := ends(a, b)
		time.Sleep(10*time.Second + beatEvery/2)
		mu.Lock()
		if beats < 19 || beats > 21 {
			t.Error(beats)
		}
		mu.Unlock()
		a.fail(io.EOF)
		wait()

		c1, c2 = net.Pipe()
		silent := testWire(c1, count)
		began := time.Now()
		go io.Copy(io.Discard, c2) // hears, and says nothing
		if err := silent.run(ctx); !errors.Is(err, errSilent) {
			t.Error(err)
		}
		if d := time.Since(began); d != silence {
			t.Error(d)
		}
		c2.Close()
	})
}

// A frame that does not verify ends the connection.
func TestGarbledFrameEndsTheConnection(t *testing.T) {
	c1, c2 := net.Pipe()
	w := testWire(c1, func(frame) error { return nil })
	go func() {
		b := appendFrame(nil, frameAck, 1, make([]byte, 16))
		b[12] ^= 4
		c2.Write(b)
		io.Copy(io.Discard, c2)
		c2.Close()
	}()
	if err := w.run(ctx); !errors.Is(err, errFrame) {
		t.Error(err)
	}
}

// A peer that does not read holds nobody up for ever.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c1, c2 := net.Pipe()
		w := testWire(c1, func(frame) error { return nil })
		var peer sync.WaitGroup
		peer.Go(func() { // says something, and reads nothing
			for {
				if _, err := c2.Write(appendFrame(nil, frameBeat, 0, encodeBeat(0))); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		w.send(frameAck, 1, make([]byte, 16))
		var timeout net.Error
		if err := w.run(ctx); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error(err)
		}
		c2.Close()
		peer.Wait()
	})
}

// Control frames go before everything that waits, in order.
func TestControlGoesFirst(t *testing.T) {
	c1, c2 := net.Pipe()
	var got []string
	reader := testWire(c2, func(f frame) error {
		if got = append(got, fmt.Sprint(f.kind, f.unit)); len(got) == 4 {
			return io.EOF
		}
		return nil
	})
	w := testWire(c1, func(frame) error { return nil })
	left := 2
	w.fill = func(b []byte) []byte {
		if left > 0 {
			b = appendFrame(b, frameEntry, uint32(left))
			left--
		}
		return b
	}
	w.send(frameEnd, 7)
	w.send(frameStart, 8)
	ends(w, reader)()
	if fmt.Sprint(got) != "[22 7 17 8 18 2 18 1]" {
		t.Error(got)
	}
}

// A copy that is told of a new primary before that is promoted asks again within
// milliseconds, as writes wait for it, and seldom where it is never promoted.
func TestACopyAsksAgainSoonWhereItsSourceIsAboutToBePromoted(t *testing.T) {
	var waited time.Duration
	tries := 0
	for ; waited < 100*time.Millisecond; tries++ {
		waited += endNotPrimary.pause(tries)
	}
	if tries < 5 || endNotPrimary.pause(1000) != 5*time.Second {
		t.Errorf("%d tries in %v, at last every %v", tries, waited, endNotPrimary.pause(1000))
	}
	if endFailed.pause(0) != backoff(0) || endFailed.pause(3) != backoff(3) {
		t.Error("other ends are tried again as everything is")
	}
}
