package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"domicile/dataplane/node/store"
)

// session is a follower's connection, at the source.
type session struct {
	r   *Replicator
	w   *wire
	as  string
	ctx context.Context // ends with the connection

	images sync.WaitGroup

	mu       sync.Mutex
	subs     map[uint32]*sub
	entries  []*sub // in line to send entries
	chunks   []*sub // in line to send a piece of an image
	waiting  []*sub // for an image's turn
	imaging  int    // images on their way
	inflight int
	asked    map[uint64]chan promise // by number
	number   uint64                  // of the newest promise
}

// maxSubs bounds what a connection is remembered for.
const maxSubs = 1 << 20

var errServed = errors.New("the same follower has connected anew")

// ServeUpgrade speaks to the follower with the address as on a connection that
// was upgraded to Protocol; the caller has checked the token. It returns, with
// the connection closed, when that breaks or Run's context has ended.
func (r *Replicator) ServeUpgrade(conn net.Conn, as string) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	s := &session{r: r, w: newWire(conn), as: as, ctx: ctx, subs: map[uint32]*sub{}, asked: map[uint64]chan promise{}}
	s.w.handle, s.w.fill, s.w.beat = s.received, s.fill, func() []byte { return encodeBeat(s.age()) }
	r.mu.Lock()
	old := r.sessions[as]
	r.sessions[as] = s
	r.mu.Unlock()
	if old != nil {
		old.w.fail(errServed)
	}
	r.log.Debug("follower connected", "node", as)
	err := s.w.run(ctx)
	cancel(err)
	s.close()
	s.images.Wait()
	if r.ctx.Err() == nil {
		r.log.Info("follower disconnected", "node", as, "err", err)
	}
	r.changed()
}

// close ends all of the session's subs.
func (s *session) close() {
	s.r.mu.Lock()
	if s.r.sessions[s.as] == s {
		delete(s.r.sessions, s.as)
	}
	s.r.mu.Unlock()
	s.mu.Lock()
	subs := s.subs
	s.subs, s.waiting, s.entries, s.chunks = nil, nil, nil, nil
	for _, c := range s.asked {
		close(c)
	}
	s.asked = nil
	s.mu.Unlock()
	for _, b := range subs {
		b.f.mu.Lock()
		if p := b.f.peers[s.as]; p != nil && p.sub == b {
			b.f.left(p)
		}
		b.state = subEnded
		b.f.mu.Unlock()
	}
}

func (s *session) received(f frame) error {
	switch f.kind {
	case frameFollow:
		return s.follow(f)
	case frameUnfollow:
		s.drop(f.unit)
	case frameAck:
		at, err := decodePosition(f.kind, f.payload)
		if b := s.sub(f.unit); b != nil && err == nil {
			err = b.ack(at)
		}
		return err
	case frameWrote:
		at, err := decodePosition(f.kind, f.payload)
		if b := s.sub(f.unit); b != nil && err == nil {
			err = b.wrote(at)
		}
		return err
	case frameTook:
		n, err := decodeCount(f.kind, f.payload)
		if b := s.sub(f.unit); b != nil && err == nil {
			err = b.imageTaken(n)
		}
		return err
	case framePromised:
		return s.promised(f)
	case frameBeat:
		_, err := decodeBeat(f.payload)
		return err
	default:
		return fmt.Errorf("%w: one of type %d from a follower", errFrame, f.kind)
	}
	return nil
}

// follow takes up a unit; its files are looked at by a worker.
func (s *session) follow(f frame) error {
	m, err := decodeFollow(f.payload)
	if err != nil {
		return err
	}
	b := &sub{s: s, f: s.r.feed(m.name), number: f.unit, asked: m}
	s.mu.Lock()
	if s.subs == nil || len(s.subs) >= maxSubs || s.subs[f.unit] != nil || f.unit == 0 {
		defer s.mu.Unlock()
		return fmt.Errorf("%w: unit number %d cannot be used", errFrame, f.unit)
	}
	s.subs[f.unit] = b
	s.mu.Unlock()
	s.r.pool.put(func(ctx context.Context) { s.setUp(ctx, b) })
	return nil
}

func (s *session) sub(number uint32) *sub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[number]
}

// drop forgets a sub that the follower has left.
func (s *session) drop(number uint32) {
	b := s.sub(number)
	if b == nil {
		return
	}
	b.f.mu.Lock()
	s.release(b)
	if p := b.f.peers[s.as]; p != nil && p.sub == b {
		b.f.left(p)
	}
	b.state = subEnded
	b.f.mu.Unlock()
	s.r.changed()
}

// finish ends a sub and tells the follower why; with feed.mu held.
func (s *session) finish(b *sub, code endCode, text string) {
	s.release(b)
	b.state = subEnded
	s.w.send(frameEnd, b.number, (&end{code, text}).encode())
}

// release forgets a sub; with feed.mu held.
func (s *session) release(b *sub) {
	b.empty()
	if b.image != nil {
		b.image.cancel()
	}
	s.mu.Lock()
	if s.subs[b.number] == b {
		delete(s.subs, b.number)
	}
	s.mu.Unlock()
}

// setUp finds out how a sub goes on.
func (s *session) setUp(ctx context.Context, b *sub) {
	f := b.f
	f.mu.Lock()
	round := f.round
	f.awaited = true
	f.recording.Store(true) // before the mark is read: what comes after it is kept
	f.mu.Unlock()
	code, mark, lineage, err := s.lookAt(ctx, b)
	f.mu.Lock()
	defer s.r.changed()
	defer func() {
		// What it has may be all that a write waits for: its acknowledgement was lost
		// with an earlier connection.
		u, at := f.advance()
		f.mu.Unlock()
		if u != nil {
			u.Acknowledge(at)
		}
	}()
	if b.state == subEnded {
		return
	}
	if err == nil && f.round != round {
		code, err = endNotPrimary, errors.New("the unit changed hands")
	}
	if err != nil {
		s.finish(b, code, err.Error())
		return
	}
	if mark.Position.Seq > f.captured.Position.Seq || f.captured == (store.Mark{}) {
		f.captured = mark // no commit was seen since the unit was opened
	}
	if f.lineage == nil {
		f.lineage = lineage
	}
	p := f.peer(s.as)
	if old := p.sub; old != nil {
		if old.s == s {
			s.finish(old, endFailed, "the unit was followed anew")
		} else {
			old.s.release(old)
		}
		old.state = subEnded
	}
	p.sub, p.reader = b, b.asked.kind == store.CopyReader
	b.begin()
}

// lookAt reads where the unit is here, and refuses one that is not written here.
func (s *session) lookAt(ctx context.Context, b *sub) (code endCode, m store.Mark, l store.Lineage, err error) {
	st, name := s.r.store, b.asked.name
	rec, err := st.Get(name)
	switch {
	case errors.Is(err, store.ErrUnknownUnit):
		return endUnknown, m, nil, err
	case err != nil:
		return endFailed, m, nil, err
	case rec.ID != b.asked.id:
		return endWrongID, m, nil, fmt.Errorf("the unit here has id %d, the follower's has %d", rec.ID, b.asked.id)
	case rec.State != store.Active && rec.State != store.Pinned && rec.State != store.Sending:
		return endNotPrimary, m, nil, fmt.Errorf("the unit is %s here", rec.State)
	}
	if m, err = st.Mark(ctx, name); err == nil {
		l, err = st.Lineage(name)
	}
	if err == nil && (len(l) == 0 || validLineage(l, m.Position) != nil) {
		// Most likely it is being promoted just now.
		return endNotPrimary, m, nil, fmt.Errorf("the unit's branches %v do not lead to its position %s", l, m.Position)
	}
	return endFailed, m, l, err
}

func (s *session) enqueue(b *sub) {
	s.mu.Lock()
	if !b.queued && s.subs[b.number] == b {
		b.queued = true
		s.entries = append(s.entries, b)
	}
	s.mu.Unlock()
	s.w.poke()
}

// room reports whether the connection's window is open.
func (s *session) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inflight < wireWindow
}

func (s *session) took(n int) {
	s.mu.Lock()
	s.inflight += n
	s.mu.Unlock()
}

// gave opens the window by n bytes.
func (s *session) gave(n int) {
	s.mu.Lock()
	shut := s.inflight >= wireWindow
	s.inflight -= n
	shut = shut && s.inflight < wireWindow
	s.mu.Unlock()
	if shut {
		s.w.poke()
	}
}

// fill takes units in turn: entries first, then one piece of one image, so that
// neither waits for more than a batch of the other.
func (s *session) fill(b []byte) []byte {
	for len(b) < batchSize {
		s.mu.Lock()
		if len(s.entries) == 0 || s.inflight >= wireWindow {
			s.mu.Unlock()
			break
		}
		u := s.entries[0]
		s.entries[0] = nil
		s.entries, u.queued = s.entries[1:], false
		s.mu.Unlock()
		var more bool
		if b, more = u.emit(b); more || !s.room() {
			s.enqueue(u)
		}
	}
	s.mu.Lock()
	var u *sub
	if len(s.chunks) > 0 {
		u, s.chunks = s.chunks[0], s.chunks[1:]
	}
	s.mu.Unlock()
	if u != nil {
		b = u.emitChunk(b)
	}
	return b
}

// age is that of the oldest commit which the follower has not acknowledged.
func (s *session) age() (age time.Duration) {
	s.mu.Lock()
	subs := make([]*sub, 0, len(s.subs))
	for _, b := range s.subs {
		subs = append(subs, b)
	}
	s.mu.Unlock()
	now := time.Now()
	for _, b := range subs {
		b.f.mu.Lock()
		if p := b.f.peers[s.as]; p != nil && p.sub == b && !p.owes.IsZero() {
			age = max(age, now.Sub(p.owes))
		}
		b.f.mu.Unlock()
	}
	return age
}
