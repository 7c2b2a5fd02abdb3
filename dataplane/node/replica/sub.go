package replica

import (
	"fmt"
	"time"

	"domicile/dataplane/node/store"
)

// Windows bound what a follower has to hold: bytes of entries that it was sent
// and has not acknowledged, for each unit and for the connection, and of an
// image. One frame more may be under way.
const (
	unitWindow  = 2 << 20
	wireWindow  = 32 << 20
	imageWindow = 4 * chunkSize
	// besideWindow is that of an image to a follower that takes entries beside it.
	besideWindow = 16 * chunkSize
	// quantum is how much of one unit goes before it is another's turn.
	quantum = 64 << 10
)

type subState int

const (
	subStarting  subState = iota // its position is being looked at
	subAhead                     // it has more: nothing is sent
	subImaging                   // an image is sent, or waits its turn, or is not in place yet
	subStreaming                 // entries are sent
	subEnded
)

// sub is one follower of one unit.
type sub struct {
	s      *session
	f      *feed
	number uint32
	asked  follow

	// Under feed.mu:
	state    subState
	next     uint64 // number of the commit that it gets next
	sent     []sentEntry
	inflight int
	image    *imageOut
	beside   bool   // entries go beside the image
	imaged   bool   // all of the image went; the follower's acknowledgement ends it
	out      []byte // frames of its own that go before anything else

	// Under session.mu:
	queued bool
}

// sentEntry is an entry that is not acknowledged yet.
type sentEntry struct {
	seq   uint64
	bytes int
	at    time.Time
}

// ready puts the sub in line where it has something that it may send; with
// feed.mu held.
func (b *sub) ready() {
	if b.fed() && b.next <= b.f.captured.Position.Seq && (b.inflight < unitWindow || b.inflight == 0) {
		b.s.enqueue(b)
	}
}

// fed reports whether entries are sent; with feed.mu held.
func (b *sub) fed() bool { return b.state == subStreaming || b.state == subImaging && b.beside }

// empty forgets what was sent and not acknowledged; with feed.mu held.
func (b *sub) empty() {
	b.s.gave(b.inflight)
	b.inflight, b.sent = 0, nil
}

// say puts a frame in line; the unit's frames keep their order. With feed.mu held.
func (b *sub) say(t frameType, payload []byte) {
	b.out = appendFrame(b.out, t, b.number, payload)
	b.s.enqueue(b)
}

// emit adds its next entries to out, a quantum of them; more: it has others.
func (b *sub) emit(out []byte) (_ []byte, more bool) {
	f := b.f
	f.mu.Lock()
	defer f.mu.Unlock()
	out = append(out, b.out...)
	b.out = nil
	for began := len(out); b.fed() && b.next <= f.captured.Position.Seq; {
		if b.inflight >= unitWindow || !b.s.room() {
			return out, false // an acknowledgement brings it back
		}
		if len(out)-began >= quantum {
			return out, true
		}
		e := f.ring.after(b.next - 1)
		if e == nil {
			b.fellBehind()
			return out, false
		}
		out = appendFrame(out, frameEntry, b.number, e.payload)
		b.next++
		b.sent = append(b.sent, sentEntry{e.pos.Seq, len(e.payload), e.at})
		b.inflight += len(e.payload)
		b.s.took(len(e.payload))
	}
	return out, false
}

// fellBehind ends the sub, as what comes next is not kept any more; with feed.mu held.
// The follower asks again, under another number: what it says of what it was sent
// before may still be under way.
func (b *sub) fellBehind() {
	b.s.finish(b, endFailed, errFellBehind.Error())
	if p := b.f.peers[b.s.as]; p != nil && p.sub == b {
		b.f.left(p)
	}
}

// wrote notes what the follower has written beside its image.
func (b *sub) wrote(at store.Position) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	switch {
	case b.state == subEnded, !b.fed():
		return nil
	case at.Seq >= b.next:
		return fmt.Errorf("%w: unit %s is written up to %s, which was not sent", errFrame, b.f.unit, at)
	}
	b.s.gave(b.arrived(at.Seq, nil))
	b.ready()
	return nil
}

// arrived drops what was sent up to that commit, and gives its bytes, which are for
// session.gave; with feed.mu held.
func (b *sub) arrived(seq uint64, each func(sentEntry)) (bytes int) {
	n := 0
	for n < len(b.sent) && b.sent[n].seq <= seq {
		bytes += b.sent[n].bytes
		if each != nil {
			each(b.sent[n])
		}
		n++
	}
	if b.sent = b.sent[n:]; len(b.sent) == 0 {
		b.sent = nil
	}
	b.inflight -= bytes
	return bytes
}

// ack notes what the follower has on disk.
func (b *sub) ack(at store.Position) error {
	f := b.f
	f.mu.Lock()
	if b.state == subImaging && b.imaged {
		b.state, b.beside, b.imaged = subStreaming, false, false
	}
	if b.state != subStreaming {
		defer f.mu.Unlock()
		if b.state == subEnded {
			return nil
		}
		return fmt.Errorf("%w: unit %s is acknowledged while it is not fed", errFrame, f.unit)
	}
	if at.Seq >= b.next || !onLineage(f.lineage, f.captured.Position.Seq, at) {
		defer f.mu.Unlock()
		return fmt.Errorf("%w: unit %s is acknowledged up to %s, which was not sent", errFrame, f.unit, at)
	}
	bytes := b.arrived(at.Seq, func(e sentEntry) {
		if observe := f.r.cfg.ObserveAck; observe != nil {
			observe(time.Since(e.at))
		}
	})
	p := f.peers[b.s.as]
	news := p.owes.IsZero()
	f.tookBy(p, at)
	news = !news && p.owes.IsZero() || p.seen.IsZero()
	p.seen = time.Now()
	b.ready()
	u, acked := f.advance()
	f.mu.Unlock()
	b.s.gave(bytes)
	if u != nil {
		u.Acknowledge(acked)
	}
	if news {
		f.r.changed()
	}
	return nil
}

// begin decides how the follower goes on from where it said it stands; with
// feed.mu held and the feed's mark and lineage known.
func (b *sub) begin() {
	f, m, p := b.f, b.asked.mark, b.f.peers[b.s.as]
	at := f.captured
	p.told, p.holds, p.ahead = true, false, false
	if p.owes.IsZero() {
		p.owes = time.Now()
	}
	defer f.moves()
	switch {
	case b.asked.epoch > at.Position.Epoch:
		p.told = false
		b.s.finish(b, endOldEpoch, fmt.Sprintf("this node writes %s, the follower wants epoch %d", at.Position, b.asked.epoch))
		f.left(p)
	case b.asked.image || m.Position.IsZero():
		b.beginImage(startImage)
	case m.Position.Epoch > at.Position.Epoch,
		m.Position.Epoch == at.Position.Epoch && m.Position.Seq > at.Position.Seq && !f.wrote:
		p.ahead = true
		b.state = subAhead
		b.say(frameStart, (&start{startAhead, at, f.lineage}).encode())
		f.r.log.Warn("a copy has commits that its primary lacks", "unit", f.unit, "node", b.s.as, "copy", m.Position, "position", at.Position)
	case !onLineage(f.lineage, at.Position.Seq, m.Position):
		b.beginImage(startImage)
	default:
		b.resume(m, at)
	}
}

// resume goes on from m, a point of the lineage, if that can be.
func (b *sub) resume(m, at store.Mark) {
	f := b.f
	e := f.ring.after(m.Position.Seq)
	switch {
	case m.Position.Seq == at.Position.Seq && m.Chain != at.Chain, e != nil && e.previous.Chain != m.Chain:
		b.beginImage(startOther)
	case m.Position.Seq < at.Position.Seq && e == nil:
		b.beginImage(startImage)
	default:
		b.state, b.next = subStreaming, m.Position.Seq+1
		f.tookBy(f.peers[b.s.as], m.Position)
		b.say(frameStart, (&start{startOn, at, f.lineage}).encode())
		b.ready()
	}
}

// beginImage lets an image be sent, when it is its turn; with feed.mu held.
func (b *sub) beginImage(kind startKind) {
	b.state, b.beside, b.imaged = subImaging, false, false
	b.empty()
	if p := b.f.peers[b.s.as]; p != nil {
		p.holds = false // until it has told what it has
	}
	b.say(frameStart, (&start{kind, b.f.captured, b.f.lineage}).encode())
	b.s.wantImage(b)
}
