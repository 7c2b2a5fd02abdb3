package replica

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"domicile/dataplane/node/store"
)

// feed is the source's side of a unit: its newest entries, who follows, what
// each copy has on disk, and from that what is acknowledged. Lock order: feed,
// then session, then memory.
type feed struct {
	r    *Replicator
	unit string

	recording atomic.Bool   // commits are kept as entries
	kept      atomic.Uint64 // number of the oldest commit that may be kept

	mu       sync.Mutex
	open     *store.Unit // the newest opening of the unit; nil: not open as a primary
	round    uint64      // counts the times that all following ended
	lineage  store.Lineage
	captured store.Mark // of the newest commit; zero: not known yet
	wrote    bool       // a commit was captured since the node's start
	durable  store.Position
	acked    store.Position // acknowledged to the store
	owed     time.Time      // since when captured commits wait to be acknowledged; zero: none
	ring     ring
	peers    map[string]*peer // by address
	listed   bool             // the newest grant names the unit
	unnamed  bool             // a grant has named it no longer, and none has again since
	compared bool
	awaited  bool          // somebody followed, or may soon, and goes on from what is kept
	idle     time.Time     // since when nobody needs the ring; zero: somebody does
	moved    chan struct{} // closed when a peer's position changes; nil: nobody waits
}

// peer is a node that follows the unit, or ought to.
type peer struct {
	addr   string
	copy   bool // the newest grant names it
	counts bool // and its acknowledgement is needed
	reader bool // it follows, or did, to be read alone: it is never promoted
	sub    *sub // nil: it does not follow
	told   bool // it has told its position since this node's start
	ahead  bool // and that is of a history that goes on from what this node has
	// held is what it has on disk, on this node's lineage; holds: known.
	held  store.Position
	holds bool
	owes  time.Time // since when it lacks a captured commit; zero: it lacks none
	away  time.Time // since when it does not follow, or was named
	seen  time.Time // when it was last following
}

func (f *feed) peer(addr string) *peer {
	p := f.peers[addr]
	if p == nil {
		p = &peer{addr: addr, away: time.Now()}
		f.peers[addr] = p
	}
	return p
}

// sink is what the store gives one opening's commits to.
type sink struct {
	f *feed
	u *store.Unit
}

// Captured keeps a commit and ships it; it is called under the unit's writer.
func (s *sink) Captured(c *store.Commit, read func(i int, page []byte) error) {
	f := s.f
	var e *entry
	if f.recording.Load() && entrySize(c) <= maxEntry {
		var err error
		if e, err = encodeEntry(c, read); err != nil {
			f.r.log.Warn("a commit cannot be read back for its copies: they take an image", "unit", f.unit, "err", err)
		}
	}
	f.mu.Lock()
	if f.wrote = true; f.open != s.u {
		f.open, f.acked = s.u, store.Position{}
	}
	f.captured = store.Mark{Position: c.Position, Chain: c.Chain}
	now := time.Now()
	if f.owed.IsZero() {
		f.owed = now
	}
	for _, p := range f.peers {
		if p.owes.IsZero() {
			p.owes = now
		}
	}
	entries, bytes := 0, 0
	if e == nil {
		entries, bytes = f.forget() // a gap: who needs what came before takes an image
	} else {
		entries, bytes = f.ring.add(e)
		for f.ring.bytes > f.r.cfg.RingBytes && f.ring.len() > 1 {
			entries, bytes = entries+1, bytes+f.ring.drop()
		}
		f.kept.Store(f.ring.oldest().pos.Seq)
	}
	f.wake()
	f.mu.Unlock()
	f.r.memory.free(entries, bytes)
	if e != nil {
		f.r.evict(f.r.memory.add(f, e.pos.Seq, len(e.payload)))
	}
}

// evict drops entries that the node has no memory for.
func (r *Replicator) evict(over []kept) {
	for _, k := range over {
		f, entries, bytes := k.f, 0, 0
		f.mu.Lock()
		for f.ring.len() > 0 && f.ring.oldest().pos.Seq <= k.seq {
			entries, bytes = entries+1, bytes+f.ring.drop()
		}
		f.kept.Store(k.seq + 1)
		f.mu.Unlock()
		r.memory.free(entries, bytes)
	}
}

// forget drops the ring; with mu held. What it gives is for memory.free.
func (f *feed) forget() (entries, bytes int) {
	f.kept.Store(1<<64 - 1)
	return f.ring.clear()
}

// wake lets the followers' sessions send; with mu held.
func (f *feed) wake() {
	for _, p := range f.peers {
		switch {
		case p.sub == nil:
		case p.sub.fed():
			p.sub.ready()
		case p.sub.state == subAhead && p.sub.asked.mark.Position.Epoch == f.captured.Position.Epoch:
			// What it has more was not waited for: it is another history now.
			p.sub.s.finish(p.sub, endFailed, "the unit is written on without what the copy has")
			f.left(p)
		}
	}
}

// Durable is told what is on disk here.
func (s *sink) Durable(p store.Position) {
	f := s.f
	f.mu.Lock()
	if f.open != s.u {
		// Newly opened. What is known of the unit goes on, unless another file
		// was put in its place.
		if f.open != nil && !f.captured.Position.IsZero() && f.captured.Position != p {
			f.restart(endFailed, "the unit was replaced")
		}
		f.open, f.durable, f.acked = s.u, p, store.Position{}
	}
	if p.Compare(f.durable) > 0 {
		f.durable = p
	}
	u, at := f.advance()
	f.mu.Unlock()
	if u != nil {
		u.Acknowledge(at)
	}
}

// advance works out what is acknowledged, and gives it where that is more than
// before; with mu held.
func (f *feed) advance() (u *store.Unit, at store.Position) {
	at = f.durable
	if f.r.cfg.AckReplica {
		if f.unnamed {
			// It may be written elsewhere: what no copy has stays local until this
			// node hears what became of the unit (3.5.7).
			return nil, at
		}
		for _, p := range f.peers {
			switch {
			case !p.counts:
			case !p.holds:
				return nil, at
			case p.held.Seq < at.Seq:
				at = p.held
			}
		}
	}
	if at.Compare(f.acked) <= 0 || f.open == nil {
		return nil, at
	}
	f.acked = at
	switch e := f.ring.after(at.Seq); {
	case at.Seq >= f.captured.Position.Seq:
		f.owed = time.Time{}
	case e != nil:
		f.owed = e.at
	default:
		f.owed = time.Now()
	}
	return f.open, at
}

// tookBy notes what a follower has on disk; with mu held.
func (f *feed) tookBy(p *peer, at store.Position) {
	p.held, p.holds, p.told, p.ahead = at, true, true, false
	switch e := f.ring.after(at.Seq); {
	case at.Seq >= f.captured.Position.Seq:
		p.owes = time.Time{}
	case e != nil:
		p.owes = e.at
	case p.owes.IsZero():
		p.owes = time.Now()
	}
	f.moves()
}

// moves wakes who waits for a peer's position; with mu held.
func (f *feed) moves() {
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// restart ends all following: the unit's history here is no longer what it was,
// or this node is its primary no longer. With mu held.
func (f *feed) restart(code endCode, text string) {
	f.round++
	for _, p := range f.peers {
		if p.sub != nil {
			p.sub.s.finish(p.sub, code, text)
			f.left(p)
		}
		p.holds, p.told, p.ahead = false, false, false
	}
	// The ring stays: what follows on it may be asked for, and what does not
	// clears it.
	f.captured, f.lineage, f.wrote = store.Mark{}, nil, false
	f.moves()
}

// ringOfCopy bounds the entries kept of a unit that is followed.
const ringOfCopy = 1 << 20

// applied keeps entries that were applied to this node's copy: if it is
// promoted, the other copies go on from there without an image.
func (f *feed) applied(es []*entry) {
	for _, e := range es {
		f.mu.Lock()
		entries, bytes := f.ring.add(e)
		for f.ring.bytes > ringOfCopy && f.ring.len() > 1 {
			entries, bytes = entries+1, bytes+f.ring.drop()
		}
		f.kept.Store(f.ring.oldest().pos.Seq)
		f.mu.Unlock()
		f.r.memory.free(entries, bytes)
		f.r.evict(f.r.memory.add(f, e.pos.Seq, len(e.payload)))
	}
}

// left notes that a peer does not follow any more; with mu held.
func (f *feed) left(p *peer) {
	if p.sub == nil {
		return
	}
	now := time.Now()
	p.sub.state = subEnded
	p.sub, p.away, p.seen = nil, now, now
	if !p.copy && !p.told {
		delete(f.peers, p.addr)
	}
	f.moves()
}

// needed reports whether entries are to be kept; with mu held.
func (f *feed) needed() bool {
	for _, p := range f.peers {
		if p.copy || p.sub != nil {
			return true
		}
	}
	return false
}

// feed gives the unit's feed, made if need be.
func (r *Replicator) feed(unit string) *feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.feeds[unit]
	if f == nil {
		f = &feed{r: r, unit: unit, peers: map[string]*peer{}}
		f.recording.Store(true) // until tend finds that nobody comes
		r.feeds[unit] = f
	}
	return f
}

// known gives the unit's feed where there is one.
func (r *Replicator) known(unit string) *feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feeds[unit]
}

func (r *Replicator) allFeeds() map[string]*feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.feeds)
}

// ringGrace is how long entries are kept after the last follower has left: it
// may come back.
const ringGrace = 30 * time.Second

// tend drops what nobody has needed for a while.
func (r *Replicator) tend(now time.Time) {
	for _, f := range r.allFeeds() {
		if !f.recording.Load() {
			continue
		}
		f.mu.Lock()
		switch {
		case f.needed():
			f.idle = time.Time{}
		case f.idle.IsZero():
			f.idle = now
		case now.Sub(f.idle) > ringGrace:
			f.recording.Store(false)
			f.idle, f.awaited = time.Time{}, false
			r.memory.free(f.forget())
		}
		f.mu.Unlock()
	}
}
