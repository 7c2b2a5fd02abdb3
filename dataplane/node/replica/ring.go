package replica

import (
	"slices"
	"sync"
	"time"

	"domicile/dataplane/node/store"
)

// entry is one commit as it goes over the wire.
type entry struct {
	at       time.Time // of its capture
	pos      store.Position
	chain    uint64
	previous store.Mark
	payload  []byte // of its frame; shared, never changed
}

// ring holds a unit's newest entries, without a gap. Its owner's lock protects it.
type ring struct {
	entries []*entry
	first   int // index of the oldest; those before it are nil
	bytes   int
}

func (g *ring) len() int { return len(g.entries) - g.first }

func (g *ring) oldest() *entry { return g.entries[g.first] }

// add appends an entry; one that does not follow on the newest begins anew.
// It gives the entries and bytes that this freed.
func (g *ring) add(e *entry) (entries, freed int) {
	if g.len() > 0 {
		if last := g.entries[len(g.entries)-1]; last.pos.Seq+1 != e.pos.Seq || last.chain != e.previous.Chain {
			entries, freed = g.clear()
		}
	}
	if g.first > 64 && g.first > len(g.entries)/2 {
		g.entries = append(make([]*entry, 0, g.len()+16), g.entries[g.first:]...)
		g.first = 0
	}
	g.entries = append(g.entries, e)
	g.bytes += len(e.payload)
	return entries, freed
}

// drop forgets the oldest entry.
func (g *ring) drop() (freed int) {
	freed = len(g.oldest().payload)
	g.entries[g.first] = nil
	g.first++
	g.bytes -= freed
	return freed
}

func (g *ring) clear() (entries, freed int) {
	entries, freed = g.len(), g.bytes
	*g = ring{}
	return entries, freed
}

// after gives the entry that follows commit number seq, nil where it is not kept.
func (g *ring) after(seq uint64) *entry {
	if g.len() == 0 || seq+1 < g.oldest().pos.Seq {
		return nil
	}
	i := seq + 1 - g.oldest().pos.Seq
	if i >= uint64(g.len()) {
		return nil
	}
	return g.entries[g.first+int(i)]
}

// memory bounds what all rings hold: when it is too much, the oldest entries of
// the node go first.
type memory struct {
	limit int

	mu    sync.Mutex
	bytes int
	live  int    // entries in the rings
	order []kept // what was added, oldest first, also what has gone since
}

// kept names an entry.
type kept struct {
	f   *feed
	seq uint64
}

// gone reports whether the entry was dropped since.
func (k kept) gone() bool { return k.seq < k.f.kept.Load() }

// add counts an entry in and others out, and gives those that have to go; they
// are counted out when they do. Called without a feed's lock.
func (m *memory) add(f *feed, seq uint64, n int) (over []kept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += n
	m.live++
	m.order = append(m.order, kept{f, seq})
	if len(m.order) > 2*m.live+1024 {
		m.order = slices.DeleteFunc(m.order, kept.gone)
	}
	for m.bytes > m.limit && len(m.order) > 1 && len(over) < 8 {
		k := m.order[0]
		m.order[0] = kept{}
		if m.order = m.order[1:]; !k.gone() {
			over = append(over, k)
		}
	}
	return over
}

func (m *memory) free(entries, bytes int) {
	if entries == 0 {
		return
	}
	m.mu.Lock()
	m.live -= entries
	m.bytes -= bytes
	m.mu.Unlock()
}
