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
	known   map[string]store.Record
}

// maxRecords bounds the memory: beyond it everything is forgotten and read again.
const maxRecords = 20_000

func (r *records) of(u *store.Unit) store.Record {
	r.mu.RLock()
	rec, ok := r.known[u.Name()]
	changes := r.changes
	r.mu.RUnlock()
	if ok {
		return rec
	}
	rec = u.Record()
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes == r.changes {
		if r.known == nil || len(r.known) >= maxRecords {
			r.known = make(map[string]store.Record)
		}
		r.known[rec.Name] = rec
	}
	return rec
}

func (r *records) forget(unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	delete(r.known, unit)
}
