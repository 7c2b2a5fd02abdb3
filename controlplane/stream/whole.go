package stream

import (
	"errors"
	"sync"
	"time"

	"domicile/proto"
)

var errClosed = errors.New("the stream is closed")

// whole is a whole directory that is encoded, or being encoded, for any number
// of subscribers.
type whole struct {
	state Directory
	users int // under the hub's lock

	mu      sync.Mutex
	frames  [][]byte
	done    bool
	err     error
	changed chan struct{}
}

// wholeFor gives a whole directory, and the place after it. One that was
// encoded lately serves as long as the ring goes on from there.
func (h *Hub) wholeFor() (*whole, cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whole != nil {
		if c, _, found := h.seek(h.whole.state.Revision()); found {
			h.whole.users++
			return h.whole, c
		}
	}
	w := &whole{state: h.state, users: 1, changed: make(chan struct{})}
	h.whole = w
	c, _, _ := h.seek(w.state.Revision())
	if h.shut {
		w.finish(errClosed)
		return w, c
	}
	h.work.Go(func() { w.encode(h.closed) })
	return w, c
}

// leave ends one use. The last user's encoding is kept for a moment.
func (h *Hub) leave(w *whole) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.users--; w.users > 0 || h.whole != w || h.shut {
		return
	}
	time.AfterFunc(h.cfg.Linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.whole == w && w.users == 0 {
			h.whole = nil
		}
	})
}

func (w *whole) encode(closed <-chan struct{}) {
	w.finish(proto.StreamEvents(w.state.Revision(), w.state.Project(), func(frame []byte) error {
		select {
		case <-closed:
			return errClosed
		default:
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.frames = append(w.frames, frame)
		w.tell()
		return nil
	}))
}

func (w *whole) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.err = true, err
	w.tell()
}

func (w *whole) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// from gives the frames from the i-th on that are there; changed is closed with
// the next one. done is set once these are the last.
func (w *whole) from(i int) (frames [][]byte, done bool, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames[i:len(w.frames):len(w.frames)], w.done, w.changed, w.err
}
