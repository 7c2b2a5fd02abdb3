package netfault

import (
	"sync"
	"time"
)

// Way is what happens to the connections from one process to another.
type Way struct {
	mu      sync.Mutex
	change  chan struct{} // closed when anything below changes
	cut     [2]bool
	delay   [2]time.Duration
	rate    [2]int64 // bytes a second; 0: as fast as it goes
	garble  [2]int   // chunks of which one bit is to be flipped
	spared  int      // chunks of each connection and direction that are not garbled
	reset   bool
	pairs   map[*pair]struct{}
	carried [2]int64
	tap     func(connection uint64, d Direction, b []byte)
}

// NewWay gives a way on which nothing fails.
func NewWay() *Way {
	return &Way{change: make(chan struct{}), pairs: make(map[*pair]struct{})}
}

// Cut stops both directions, silently.
func (w *Way) Cut() { w.set(func() { w.cut = [2]bool{true, true} }) }

// CutOne stops one direction, silently.
func (w *Way) CutOne(d Direction) { w.set(func() { w.cut[d] = true }) }

// Delay holds every byte of one direction up for d.
func (w *Way) Delay(dir Direction, d time.Duration) { w.set(func() { w.delay[dir] = d }) }

// Bandwidth lets no more bytes a second of one direction through, on each
// connection; 0 ends that.
func (w *Way) Bandwidth(dir Direction, bytes int64) { w.set(func() { w.rate[dir] = bytes }) }

// Garble flips one bit of the next bytes that pass in one direction.
func (w *Way) Garble(dir Direction) { w.set(func() { w.garble[dir]++ }) }

// Spare has Garble leave alone what was read first, so many times, of each
// connection in each direction: a handshake that no checksum covers. Heal does not
// undo it.
func (w *Way) Spare(chunks int) { w.set(func() { w.spared = chunks }) }

// Tap has f see what passes, before it is garbled: the bytes of each connection, which
// has a number of its own, and direction in their order; and nil once, when the
// connection is gone. f may keep nothing of b. Heal does not undo it.
func (w *Way) Tap(f func(connection uint64, d Direction, b []byte)) { w.set(func() { w.tap = f }) }

// Reset breaks every connection and refuses new ones.
func (w *Way) Reset() {
	w.set(func() {
		w.reset = true
		for p := range w.pairs {
			p.close()
		}
	})
}

// Heal undoes everything else.
func (w *Way) Heal() {
	w.set(func() {
		w.cut, w.delay, w.rate, w.garble, w.reset = [2]bool{}, [2]time.Duration{}, [2]int64{}, [2]int{}, false
	})
}

// Carried is the number of bytes that one direction let through so far.
func (w *Way) Carried(d Direction) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.carried[d]
}

func (w *Way) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.change)
	w.change = make(chan struct{})
}

// enter takes a connection; false when it is refused.
func (w *Way) enter(p *pair) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reset {
		w.pairs[p] = struct{}{}
	}
	return !w.reset
}

func (w *Way) leave(p *pair) {
	w.mu.Lock()
	delete(w.pairs, p)
	w.mu.Unlock()
	w.seen(p, Forward, nil)
}

// seen shows the tap what is about to pass.
func (w *Way) seen(p *pair, d Direction, b []byte) {
	w.mu.Lock()
	tap := w.tap
	w.mu.Unlock()
	if tap != nil {
		tap(p.number, d, b)
	}
}

// due takes account of n bytes that are about to pass, the connection's chunk of
// that number in its direction: how long they take at the direction's bandwidth,
// and whether a bit of them is to be flipped.
func (w *Way) due(d Direction, chunk, n int) (takes time.Duration, garbled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.carried[d] += int64(n)
	if w.garble[d] > 0 && chunk >= w.spared {
		w.garble[d]--
		garbled = true
	}
	if w.rate[d] > 0 {
		takes = time.Duration(int64(n) * int64(time.Second) / w.rate[d])
	}
	return takes, garbled
}

// pass waits until a direction is not cut; false when the connection is gone.
func (w *Way) pass(p *pair, d Direction) bool {
	for {
		w.mu.Lock()
		open, change := !w.cut[d], w.change
		w.mu.Unlock()
		if open {
			select {
			case <-p.gone:
				return false
			default:
				return true
			}
		}
		select {
		case <-change:
		case <-p.gone:
			return false
		}
	}
}

// late waits until what was read at at is due.
func (w *Way) late(p *pair, d Direction, at time.Time) bool {
	for {
		w.mu.Lock()
		left, change := w.delay[d]-time.Since(at), w.change
		w.mu.Unlock()
		if left <= 0 {
			return true
		}
		if !p.pause(left, change) {
			return false
		}
	}
}
