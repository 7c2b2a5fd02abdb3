package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	beatEvery = time.Second
	// silence after which a connection is taken for broken: a peer that lives
	// says something each second.
	silence = 3 * time.Second
	// writePatience is how long the peer may take for one piece of pieceSize: its
	// reader never waits for a disk, so only the network can be slow.
	writePatience = 10 * time.Second
	pieceSize     = 64 << 10
	batchSize     = 256 << 10
)

// errSilent: nothing was heard for too long.
var errSilent = fmt.Errorf("nothing heard for %v", silence)

// wire is a connection that carries frames both ways: one goroutine reads and
// hands each frame to handle, which must not wait for anything slow; another
// writes whatever there is whenever it is woken.
type wire struct {
	conn   net.Conn
	handle func(frame) error
	// fill adds frames to b, about batchSize of them at most; nil: control only.
	fill func(b []byte) []byte
	// beat is the payload of a heartbeat.
	beat func() []byte

	wake chan struct{} // holds a token while there may be something to write

	mu      sync.Mutex
	control []byte // frames that go first
	err     error  // why the connection is closed
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, wake: make(chan struct{}, 1)}
}

// send queues a frame ahead of what fill gives.
func (w *wire) send(t frameType, unit uint32, payload ...[]byte) {
	w.mu.Lock()
	w.control = appendFrame(w.control, t, unit, payload...)
	w.mu.Unlock()
	w.poke()
}

func (w *wire) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// fail closes the connection; the first reason is kept.
func (w *wire) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.conn.Close()
}

// run carries frames until the connection breaks, a frame is bad, or ctx ends,
// and says why. The connection is closed then and both goroutines have ended.
func (w *wire) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.fail(context.Cause(ctx)) })
	defer stop()
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := w.write(done); err != nil {
			w.fail(err)
		}
	})
	w.fail(w.read())
	close(done)
	writer.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *wire) read() error {
	r := bufio.NewReaderSize(&alive{conn: w.conn}, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		if err := w.handle(f); err != nil {
			return err
		}
	}
}

// alive reads from a connection that has to say something now and then.
type alive struct {
	conn    net.Conn
	renewed time.Time
}

func (a *alive) Read(b []byte) (int, error) {
	// Set rarely: the deadline costs more than the read of a small frame.
	if now := time.Now(); now.Sub(a.renewed) > silence/10 {
		if err := a.conn.SetReadDeadline(now.Add(silence)); err != nil {
			return 0, err
		}
		a.renewed = now
	}
	n, err := a.conn.Read(b)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = errSilent
	}
	return n, err
}

func (w *wire) write(done <-chan struct{}) error {
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	var buf []byte
	for {
		select {
		case <-done:
			return nil
		case <-w.wake:
		case <-beats.C:
			w.send(frameBeat, 0, w.beat())
		}
		for {
			if buf = w.next(buf[:0]); len(buf) == 0 {
				break
			}
			if err := w.writeAll(buf); err != nil {
				return err
			}
		}
		if cap(buf) > 4*batchSize { // after an exceptionally large entry
			buf = nil
		}
	}
}

// next gathers what is to be written.
func (w *wire) next(b []byte) []byte {
	w.mu.Lock()
	b = append(b, w.control...)
	if w.control = w.control[:0]; cap(w.control) > batchSize {
		w.control = nil
	}
	w.mu.Unlock()
	if w.fill != nil {
		b = w.fill(b)
	}
	return b
}

func (w *wire) writeAll(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceSize)
		if err := w.conn.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
			return err
		}
		if _, err := w.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
