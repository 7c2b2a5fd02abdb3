package node

import (
	"context"
	"sync"
)

// watchers are the streams of changes that are open, by unit: they end when the unit is
// given up, so that their readers go on where it is then.
type watchers struct {
	mu  sync.Mutex
	all map[string]map[*context.CancelCauseFunc]bool
}

// add gives a context for a stream of the unit; done is called at its end.
func (w *watchers) add(parent context.Context, unit string) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[string]map[*context.CancelCauseFunc]bool)
	}
	if w.all[unit] == nil {
		w.all[unit] = make(map[*context.CancelCauseFunc]bool)
	}
	w.all[unit][&cancel] = true
	return ctx, func() {
		w.mu.Lock()
		delete(w.all[unit], &cancel)
		if len(w.all[unit]) == 0 {
			delete(w.all, unit)
		}
		w.mu.Unlock()
		cancel(nil)
	}
}

// end ends the unit's streams.
func (w *watchers) end(unit string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for cancel := range w.all[unit] {
		(*cancel)(why)
	}
}
