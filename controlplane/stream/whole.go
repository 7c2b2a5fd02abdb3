package stream

import (
	"sync"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// whole is a snapshot of the directory in frames, encoded by the first follower
// that asks and shared with those that ask meanwhile.
type whole struct {
	revision fsm.Revision
	once     sync.Once
	state    *fsm.State // nil once encoded
	frames   [][]byte
	err      error
}

func (w *whole) encode() ([][]byte, error) {
	w.once.Do(func() {
		w.err = proto.StreamSnapshot(w.state, func(frame []byte) error {
			w.frames = append(w.frames, frame)
			return nil
		})
		w.state = nil
	})
	return w.frames, w.err
}

// wholeLocked gives a snapshot from which the ring leads on: the kept one, or a
// new one that is kept for a while.
func (h *Hub) wholeLocked() *whole {
	if h.whole != nil && h.reachesLocked(h.whole.revision) {
		return h.whole
	}
	w := &whole{revision: h.state.Revision(), state: h.state}
	h.whole = w
	time.AfterFunc(h.cfg.KeepWhole, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.whole == w {
			h.whole = nil
		}
	})
	return w
}
