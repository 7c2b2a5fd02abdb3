package stream

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto"
)

// Config configures a Hub. Zero values are the defaults in brackets.
type Config struct {
	Logger hclog.Logger
	// Age tells how old this server's directory may be: the time since its leader's
	// last word. The greeting and each heartbeat carry it, so that subscribers know
	// how old their copy is. Nil: 0.
	Age func() time.Duration
	// Deltas and DeltaBytes bound the ring [16384, 32 MiB].
	Deltas     int
	DeltaBytes int
	// Heartbeat is the time between two heartbeats of a stream [1s].
	Heartbeat time.Duration
	// WriteWait is the time that a subscriber has to take a write [10s].
	WriteWait time.Duration
	// Linger is how long an encoded whole directory is kept for the next one
	// who asks [5s].
	Linger time.Duration
}

// Directory is what a Hub streams: a directory at one revision, which does not change.
type Directory interface {
	Revision() fsm.Revision
	// Owner says whose directory it is, and of which history; false while it may not be
	// shown to subscribers.
	Owner() (authority string, history uint64, ok bool)
	// Project yields the events that build it from an empty one.
	Project() iter.Seq[fsm.Event]
}

// Own is a group's own directory as its Hub streams it.
func Own(s *fsm.State) Directory { return own{s} }

type own struct{ *fsm.State }

// Owner tells nothing of what is being recovered: it may be older than what
// subscribers have.
func (o own) Owner() (string, uint64, bool) {
	scope, ok := o.Scope()
	return scope.Authority(), scope.History, ok && !o.Recovering()
}

func (o own) Project() iter.Seq[fsm.Event] { return fsm.Project(o.State) }

// Hub is the stream of a directory that a server has. It implements http.Handler.
type Hub struct {
	cfg    Config
	closed chan struct{}
	work   sync.WaitGroup // encoders

	subscribers atomic.Int64

	mu      sync.Mutex
	state   Directory // nil until there is a directory
	ring    []delta
	first   uint64        // sequence number of ring[0]
	bytes   int           // of the ring
	epoch   uint64        // counts Resets: cursors do not outlive one
	changed chan struct{} // closed with the next change
	whole   *whole        // the newest encoding, nil when it is out of use
	shut    bool
}

// delta is one published stretch of revisions.
type delta struct {
	prev, rev fsm.Revision
	events    []fsm.Event
	frame     []byte
}

func (d *delta) size() int { return 2*len(d.frame) + 128 }

// New returns a Hub without a directory.
func New(cfg Config) *Hub {
	cfg.Deltas = cmp.Or(cfg.Deltas, 16384)
	cfg.DeltaBytes = cmp.Or(cfg.DeltaBytes, 32<<20)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, time.Second)
	cfg.WriteWait = cmp.Or(cfg.WriteWait, 10*time.Second)
	cfg.Linger = cmp.Or(cfg.Linger, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Age == nil {
		cfg.Age = func() time.Duration { return 0 }
	}
	return &Hub{cfg: cfg, closed: make(chan struct{}), changed: make(chan struct{})}
}

// Subscribers is the number of streams that are open.
func (h *Hub) Subscribers() int { return int(h.subscribers.Load()) }

// Close ends every stream and waits for what the Hub started.
func (h *Hub) Close() {
	h.mu.Lock()
	if !h.shut {
		h.shut = true
		close(h.closed)
	}
	h.mu.Unlock()
	h.work.Wait()
}

// Publish appends what led from revision prev to state. It is called in the
// order of the log, never blocks, and keeps events, which must not change.
func (h *Hub) Publish(prev fsm.Revision, events []fsm.Event, state Directory) {
	d := delta{prev: prev, rev: state.Revision(), events: events}
	var err error
	d.frame, err = proto.EncodeFrame(&proto.Delta{Prev: d.prev, Revision: d.rev, Events: events})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || h.state != nil && h.state.Revision() != prev {
		// Too large for one frame, or not what follows: nobody can be taken
		// over it but by a whole directory.
		h.cfg.Logger.Error("a change cannot be streamed: subscribers get the whole directory", "revision", d.rev, "err", err)
		h.restart(state)
		return
	}
	h.state = state
	h.ring = append(h.ring, d)
	h.bytes += d.size()
	h.trim()
	h.tell()
}

// Reset replaces the directory by one that came whole: every subscriber
// begins again.
func (h *Hub) Reset(state Directory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restart(state)
}

func (h *Hub) restart(state Directory) {
	h.first += uint64(len(h.ring))
	h.ring, h.bytes, h.state, h.whole = nil, 0, state, nil
	h.epoch++
	h.tell()
}

// trim keeps the ring in its bounds.
func (h *Hub) trim() {
	drop := 0
	for len(h.ring)-drop > h.cfg.Deltas || h.bytes > h.cfg.DeltaBytes && len(h.ring)-drop > 1 {
		h.bytes -= h.ring[drop].size()
		drop++
	}
	if drop == 0 {
		return
	}
	h.first += uint64(drop)
	clear(h.ring[:drop])
	h.ring = h.ring[drop:]
	if h.whole != nil && h.whole.state.Revision() < h.ring[0].prev {
		h.whole = nil
	}
}

func (h *Hub) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// cursor is where a subscriber stands.
type cursor struct {
	epoch uint64
	next  uint64       // sequence number of the next delta
	rev   fsm.Revision // what it holds
}

// seek finds the place of a subscriber that holds revision rev. inside is set
// when it stands in the middle of the next delta. Not found: it needs a whole
// directory.
func (h *Hub) seek(rev fsm.Revision) (c cursor, inside, found bool) {
	c = cursor{epoch: h.epoch, rev: rev}
	if rev == h.state.Revision() {
		c.next = h.first + uint64(len(h.ring))
		return c, false, true
	}
	i, _ := slices.BinarySearchFunc(h.ring, rev, func(d delta, rev fsm.Revision) int {
		if d.rev <= rev {
			return -1
		}
		return 1
	})
	if i == len(h.ring) || h.ring[i].prev > rev {
		return c, false, false
	}
	c.next = h.first + uint64(i)
	return c, h.ring[i].prev != rev, true
}

// batch bounds how much is written to a subscriber at once.
const batch = 256 << 10

// after gives the frames after c, and c after them; or, where there are none,
// a channel that is closed with the next. lost is set when the ring has
// overtaken c.
func (h *Hub) after(c cursor) (frames [][]byte, next cursor, changed <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.epoch != h.epoch || c.next < h.first {
		return nil, c, nil, true
	}
	size := 0
	for i := c.next - h.first; i < uint64(len(h.ring)) && size < batch; i++ {
		d := &h.ring[i]
		if d.prev != c.rev { // stands inside of it
			frame, err := proto.EncodeFrame(&proto.Delta{Prev: c.rev, Revision: d.rev, Events: d.events})
			if err != nil {
				return nil, c, nil, true
			}
			frames = append(frames, frame)
		} else {
			frames = append(frames, d.frame)
		}
		size += len(d.frame)
		c.next, c.rev = c.next+1, d.rev
	}
	return frames, c, h.changed, false
}
