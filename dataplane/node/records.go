package node

import (
	"sync"

	"domicile/dataplane/node/store"
)

// records keeps the units' records in memory: the fence looks at one several times in
// each request. Whatever changes a record says so with forget, before the unit's gate
// is opened again; so the fence, asked under the writer, never sees an old one.
type records struct {
	mu      sync.RWMutex
	changes uint64 // counts forget, so that a record read before it is not kept after it
	known   map[string]known
}

// known is what is kept of a unit.
type known struct {
	store.Record
	compared bool // architecture §3.7.4; once true it stays so until the state changes
}

// maxRecords bounds the memory: beyond it everything is forgotten and read again.
const maxRecords = 20_000

func (r *records) of(u *store.Unit) store.Record {
	r.mu.RLock()
	k, ok := r.known[u.Name()]
	changes := r.changes
	r.mu.RUnlock()
	if ok {
		return k.Record
	}
	rec := u.Record()
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes == r.changes {
		if r.known == nil || len(r.known) >= maxRecords {
			r.known = make(map[string]known)
		}
		r.known[rec.Name] = known{Record: rec}
	}
	return rec
}

// compared asks until the answer is yes.
func (r *records) compared(unit string, ask func(string) bool) bool {
	r.mu.RLock()
	yes := r.known[unit].compared
	changes := r.changes
	r.mu.RUnlock()
	if yes {
		return true
	}
	if !ask(unit) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.known[unit]; ok && changes == r.changes {
		k.compared = true
		r.known[unit] = k
	}
	return true
}

func (r *records) forget(unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	delete(r.known, unit)
}
