package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"domicile/dataplane/node/store"
)

// link is this node's connection to one source, for all units that it follows
// from there.
type link struct {
	r      *Replicator
	from   string
	cancel context.CancelFunc
	kick   chan struct{} // holds a token when there is news for run

	mu       sync.Mutex
	units    map[string]*following
	numbers  map[uint32]*following // of the present connection
	number   uint32                // the newest; never used twice
	w        *wire                 // nil: not connected
	why      string                // why it is not
	refused  string                // why its source refuses it, or ""
	held     int                   // bytes of entries received and not applied
	beat     time.Time             // when the source's heartbeat came
	age      time.Duration         // what it said
	heardAny bool                  // a frame came on the present connection
}

// heldLimit is what a source that keeps to the windows never reaches.
const heldLimit = 2*wireWindow + 2*maxEntry

// newLink starts a link; with r.mu held.
func (r *Replicator) newLink(from string) *link {
	ctx, cancel := context.WithCancel(r.ctx)
	l := &link{r: r, from: from, cancel: cancel, kick: make(chan struct{}, 1), units: map[string]*following{},
		beat: time.Now(), why: "not connected yet"}
	r.links[from] = l
	if !r.ended {
		r.wait.Go(func() { l.run(ctx) })
	}
	return l
}

// run dials until ctx ends.
func (l *link) run(ctx context.Context) {
	defer l.cancel()
	for tries := 0; ; {
		as, token := l.r.self(l.from)
		if as == "" {
			if !l.pause(ctx, -1) {
				return
			}
			continue
		}
		began := time.Now()
		conn, err := l.r.connect(ctx, l.from, as, token)
		if err == nil {
			err = l.speak(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		if l.lost(err) && time.Since(began) > beatEvery {
			tries = 0
			continue // it worked: at once, as after a change at the source
		}
		if tries == 0 {
			l.r.log.Warn("source cannot be followed", "node", l.from, "err", err)
		}
		if !l.pause(ctx, min(backoff(tries), connectPause)) {
			return
		}
		tries++
	}
}

// pause waits for d, for ever if negative; a kick ends it.
func (l *link) pause(ctx context.Context, d time.Duration) bool {
	var after <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
	case <-l.kick:
	case <-ctx.Done():
		return false
	}
	return true
}

func (l *link) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// speak follows all units over a connection until that breaks.
func (l *link) speak(ctx context.Context, conn net.Conn) error {
	w := newWire(conn)
	w.handle, w.beat = l.received, func() []byte { return encodeBeat(0) }
	l.mu.Lock()
	l.w, l.numbers, l.heardAny, l.why, l.refused = w, map[uint32]*following{}, false, "", ""
	units := make([]*following, 0, len(l.units))
	for _, f := range l.units {
		units = append(units, f)
	}
	l.mu.Unlock()
	l.r.log.Info("following", "node", l.from, "units", len(units))
	for _, f := range units {
		f.post(event{kind: eventAsk})
	}
	return w.run(ctx)
}

// lost notes that the connection is gone; heard: something had come over it.
func (l *link) lost(err error) (heard bool) {
	l.mu.Lock()
	heard = l.heardAny
	l.w, l.numbers, l.heardAny, l.why = nil, nil, false, err.Error()
	l.refused = ""
	if refused, ok := errors.AsType[*refusedError](err); ok {
		l.refused = refused.text
	}
	units := make([]*following, 0, len(l.units))
	for _, f := range l.units {
		units = append(units, f)
	}
	l.mu.Unlock()
	for _, f := range units {
		f.disconnect()
	}
	if heard && l.r.ctx.Err() == nil {
		l.r.log.Warn("connection to the source was lost", "node", l.from, "err", err)
	}
	return heard
}

func (l *link) received(f frame) error {
	l.mu.Lock()
	l.heardAny = true
	u := l.numbers[f.unit]
	if f.kind == frameEntry && u != nil {
		if l.held += len(f.payload); l.held > heldLimit {
			defer l.mu.Unlock()
			return fmt.Errorf("%w: more entries than the window allows", errFrame)
		}
	}
	l.mu.Unlock()
	switch f.kind {
	case frameBeat:
		age, err := decodeBeat(f.payload)
		l.mu.Lock()
		l.beat, l.age = time.Now(), age
		l.mu.Unlock()
		return err
	case framePromise:
		m, err := decodePromise(f.kind, f.payload)
		if err == nil {
			l.r.pool.put(func(ctx context.Context) { l.promise(ctx, m) })
		}
		return err
	case frameStart, frameEntry, frameImage, frameChunk, frameImaged, frameEnd:
		if u == nil {
			return nil // it was left meanwhile
		}
		return u.received(f)
	}
	return fmt.Errorf("%w: one of type %d from a source", errFrame, f.kind)
}

// gave counts entries out.
func (l *link) gave(n int) {
	l.mu.Lock()
	l.held -= n
	l.mu.Unlock()
}

// ask sends where a unit stands, under a new number; 0: not connected.
func (l *link) ask(f *following, m follow) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil || l.units[f.unit] != f {
		return 0
	}
	l.number++
	l.numbers[l.number] = f
	l.w.send(frameFollow, l.number, m.encode())
	return l.number
}

// say sends a frame for a unit, if its number is of the present connection.
func (l *link) say(t frameType, number uint32, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil && l.numbers[number] != nil {
		l.w.send(t, number, payload)
	}
}

// leave ends a number; tell: the source does not know yet.
func (l *link) leave(number uint32, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil || l.numbers[number] == nil {
		return
	}
	delete(l.numbers, number)
	if tell {
		l.w.send(frameUnfollow, number)
	}
}

// promise answers a source that asks for one.
func (l *link) promise(ctx context.Context, m promise) {
	var list []Followed
	var refused []string
	l.mu.Lock()
	w := l.w
	units := make([]*following, len(m.names))
	for i, name := range m.names {
		units[i] = l.units[name]
	}
	l.mu.Unlock()
	for i, name := range m.names {
		if epoch, ok := units[i].fed(); ok {
			list = append(list, Followed{name, epoch})
		} else {
			refused = append(refused, name)
		}
	}
	err := errors.New("this node makes no promises")
	if p := l.r.cfg.Promises; p != nil && len(list) > 0 {
		var no []string
		no, err = p.Promise(ctx, l.from, list, time.Duration(m.ms)*time.Millisecond)
		refused = append(refused, no...)
	}
	if err != nil && len(list) > 0 {
		l.r.log.Warn("no promise was made", "node", l.from, "err", err)
		refused = m.names
	}
	slices.Sort(refused)
	if w != nil {
		w.send(framePromised, 0, (&promise{seq: m.seq, names: refused}).encode())
	}
}

// Lag gives, by source, how far behind this node is: zero while all units that
// it follows from there were equal lately. It is the age, by the source's clock,
// of the oldest commit that this node has not acknowledged, as the source told
// in its last heartbeat, and, where that is silent, the time since it.
func (r *Replicator) Lag() map[string]time.Duration {
	r.mu.Lock()
	links := make([]*link, 0, len(r.links))
	for _, l := range r.links {
		links = append(links, l)
	}
	r.mu.Unlock()
	lag := map[string]time.Duration{}
	for _, l := range links {
		l.mu.Lock()
		lag[l.from] = l.age
		if since := time.Since(l.beat); l.w == nil || since > 2*beatEvery {
			lag[l.from] += since
		}
		l.mu.Unlock()
	}
	return lag
}

// Refused tells, by its address, why a source refuses to be followed.
func (r *Replicator) Refused() map[string]string {
	r.mu.Lock()
	links := make([]*link, 0, len(r.links))
	for _, l := range r.links {
		links = append(links, l)
	}
	r.mu.Unlock()
	all := map[string]string{}
	for _, l := range links {
		l.mu.Lock()
		if l.refused != "" {
			all[l.from] = l.refused
		}
		l.mu.Unlock()
	}
	return all
}

// Status tells how a unit that is followed stands.
func (r *Replicator) Status(unit string) Status {
	r.mu.Lock()
	f := r.following[unit]
	lost := r.lost.of(unit)
	r.mu.Unlock()
	s := Status{Lost: lost}
	if f == nil {
		return s
	}
	f.l.mu.Lock()
	connected, why := f.l.w != nil, f.l.why
	f.l.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.From, s.State, s.Error = f.l.from, f.state, f.why
	if i := f.incoming; i != nil {
		s.Image = &Progress{i.progress(), i.size}
	}
	if !connected {
		s.State, s.Error = StateConnecting, why
	}
	return s
}

// Lost is what this node gave up when it came back to its source's branch: the
// commits after From, up to To, which are in the file Aside.
type Lost struct {
	From  store.Position `json:"from"`
	To    store.Position `json:"to"`
	Aside string         `json:"aside"` // in the data folder
	chain uint64         // that of To
}
