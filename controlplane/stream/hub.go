package stream

import (
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto"
)

// Config configures a Hub. Zero values are the defaults in brackets.
type Config struct {
	Logger     hclog.Logger
	RingCount  int           // deltas kept for followers that come back [65,536]
	RingBytes  int           // and their encoded bytes at most [64 MiB]
	Heartbeat  time.Duration // when nothing is committed [1s]
	WriteLimit time.Duration // that one write to a follower may take; then it is cut off [10s]
	KeepWhole  time.Duration // that an encoded snapshot is kept for others [30s]
}

// Hub is fed by the group that applies the log, and serves followers. Publish
// and Reset are called by one goroutine; everything else by any.
type Hub struct {
	cfg Config

	mu      sync.Mutex
	state   *fsm.State // nil before the first Publish or Reset
	ring    []delta    // oldest first; ring[i].prev == ring[i-1].revision
	bytes   int
	epoch   uint64        // of the ring: grows with Reset
	changed chan struct{} // closed and replaced with each change
	whole   *whole        // last encoded snapshot, while it is kept
	closed  bool
}

// delta is one batch of committed entries.
type delta struct {
	prev, revision fsm.Revision
	events         []fsm.Event
	frame          []byte
}

// New makes a Hub.
func New(cfg Config) *Hub {
	if cfg.RingCount == 0 {
		cfg.RingCount = 1 << 16
	}
	if cfg.RingBytes == 0 {
		cfg.RingBytes = 64 << 20
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.WriteLimit == 0 {
		cfg.WriteLimit = 10 * time.Second
	}
	if cfg.KeepWhole == 0 {
		cfg.KeepWhole = 30 * time.Second
	}
	return &Hub{cfg: cfg, changed: make(chan struct{})}
}

// Publish tells of a batch that led from the state at prev to state. It keeps
// no reference to events.
func (h *Hub) Publish(prev fsm.Revision, events []fsm.Event, state *fsm.State) {
	d := delta{prev: prev, revision: state.Revision(), events: append([]fsm.Event(nil), events...)}
	frame, err := proto.EncodeFrame(&proto.Delta{Prev: d.prev, Revision: d.revision, Events: d.events})
	if err != nil {
		// Too much for a frame: followers take it as part of a snapshot.
		h.cfg.Logger.Warn("change too large for a delta; followers load the directory anew", "revision", d.revision, "err", err)
		h.Reset(state)
		return
	}
	d.frame = frame
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.ring); n > 0 && h.ring[n-1].revision != prev {
		h.clearLocked()
	}
	h.state = state
	h.ring = append(h.ring, d)
	h.bytes += len(frame)
	drop := 0
	for drop < len(h.ring)-1 && (len(h.ring)-drop > h.cfg.RingCount || h.bytes > h.cfg.RingBytes) {
		h.bytes -= len(h.ring[drop].frame)
		h.ring[drop] = delta{}
		drop++
	}
	h.ring = h.ring[drop:]
	h.wakeLocked()
}

// Reset tells that state came from elsewhere than the deltas: every follower
// begins anew.
func (h *Hub) Reset(state *fsm.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
	h.clearLocked()
	h.wakeLocked()
}

// Close ends every follower's stream, and every later one at once.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.whole = nil
	h.wakeLocked()
}

func (h *Hub) clearLocked() {
	h.ring, h.bytes, h.whole = nil, 0, nil
	h.epoch++
}

func (h *Hub) wakeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// reachesLocked tells whether the ring leads from revision to the newest.
func (h *Hub) reachesLocked(revision fsm.Revision) bool {
	if h.state == nil || revision > h.state.Revision() {
		return false
	}
	if revision == h.state.Revision() {
		return true
	}
	return len(h.ring) > 0 && h.ring[0].prev <= revision
}

// afterLocked gives the frames that lead from revision to the newest, not more
// than some; false where the ring does not reach back that far.
func (h *Hub) afterLocked(revision fsm.Revision, some [][]byte) ([][]byte, fsm.Revision, bool) {
	if !h.reachesLocked(revision) {
		return nil, 0, false
	}
	first := sort.Search(len(h.ring), func(i int) bool { return h.ring[i].revision > revision })
	at := revision
	for _, d := range h.ring[first:] {
		if len(some) == cap(some) {
			break
		}
		frame := d.frame
		if d.prev < revision {
			var err error
			if frame, err = proto.EncodeFrame(&proto.Delta{Prev: revision, Revision: d.revision, Events: d.events}); err != nil {
				return nil, 0, false
			}
		}
		some, at = append(some, frame), d.revision
	}
	return some, at, true
}
