package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/dataplane/node/store"
)

// following is the follower's side of a unit. What happens to it is put into
// an inbox by the link's reader and done by one worker at a time, in order.
type following struct {
	l    *link
	unit string
	id   uint64
	// lineage is the source's, as it last said; the worker's.
	lineage store.Lineage
	ctx     context.Context // ends with Unfollow
	stop    context.CancelFunc

	mu       sync.Mutex
	epoch    uint64 // the source's branch, at least
	kind     store.CopyKind
	asked    store.CopyKind // as which the source was asked last
	state    string         // see the constants State…
	why      string
	number   uint32 // on the present connection; 0: not asked
	fresh    bool   // an image is needed
	tries    int    // failures in a row
	timer    *time.Timer
	inbox    []event
	queued   bool          // a worker will look at the inbox
	busy     bool          // one does, or an image comes
	idle     chan struct{} // closed when nobody is busy any more; nil: nobody waits
	ended    bool
	incoming *imageIn // the image whose bytes the reader gets
}

// States of a unit that is followed.
const (
	StateConnecting = "connecting" // there is no connection to the source
	StateAsking     = "asking"     // the source has not answered yet
	StateFollowing  = "following"
	StateImage      = "image"   // an image comes
	StateAhead      = "ahead"   // this node has what the source lacks, and waits
	StateStopped    = "stopped" // refused or failed; it is tried again
)

type eventKind int

const (
	eventAsk   eventKind = iota // tell the source where the unit stands
	eventFrame                  // start or entry
	eventImage                  // an image has begun
)

type event struct {
	kind  eventKind
	frame frame
	image *imageIn
}

// post puts an event into the inbox.
func (f *following) post(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if e.kind == eventAsk {
		for _, old := range f.inbox {
			if old.kind == eventAsk {
				return
			}
		}
	}
	f.inbox = append(f.inbox, e)
	f.schedule()
}

// schedule asks for a worker; with mu held.
func (f *following) schedule() {
	if !f.queued && !f.busy && len(f.inbox) > 0 {
		f.queued = true
		f.l.r.pool.put(f.work)
	}
}

// received takes a frame for the unit from the link's reader.
func (f *following) received(fr frame) error {
	switch fr.kind {
	case frameStart:
		f.clear(false)
	case frameImage:
		m, err := decodeImage(fr.payload)
		if err != nil {
			return err
		}
		i := newImageIn(m, f.l.gave)
		f.mu.Lock()
		if f.incoming != nil {
			f.incoming.abort(errBegunAgain)
		}
		f.incoming = i
		f.mu.Unlock()
		f.post(event{kind: eventImage, frame: fr, image: i})
		return nil
	case frameChunk, frameImaged:
		f.mu.Lock()
		i := f.incoming
		f.mu.Unlock()
		if i == nil {
			return nil // given up here
		}
		_, err := i.received(fr)
		return err
	case frameEntry:
		f.mu.Lock()
		i := f.incoming
		f.mu.Unlock()
		if i == nil {
			break
		}
		if taken, err := i.received(fr); taken || err != nil {
			return err
		}
	case frameEnd:
		m, err := decodeEnd(fr.payload)
		if err != nil {
			return err
		}
		f.l.leave(fr.unit, false)
		f.clear(true)
		f.stopped(fmt.Errorf("the source does not feed it: %s", m.text), false, m.code.pause)
		return nil
	}
	f.post(event{kind: eventFrame, frame: fr})
	return nil
}

// clear drops what came and was not done, and aborts an image that comes.
func (f *following) clear(all bool) {
	f.mu.Lock()
	bytes := 0
	kept := f.inbox[:0]
	for _, e := range f.inbox {
		switch {
		case e.kind == eventAsk && !all:
			kept = append(kept, e)
		case e.frame.kind == frameEntry:
			bytes += len(e.frame.payload)
		}
	}
	clear(f.inbox[len(kept):])
	f.inbox = kept
	if f.incoming != nil {
		f.incoming.abort(errBegunAgain)
		f.incoming = nil
	}
	f.mu.Unlock()
	f.l.gave(bytes)
}

// disconnect notes that the connection is gone.
func (f *following) disconnect() {
	f.clear(true)
	f.mu.Lock()
	f.number = 0
	f.stopTimer()
	if f.state == StateFollowing || f.state == StateImage || f.state == StateAsking {
		f.state = StateConnecting
	}
	f.mu.Unlock()
}

// failed notes why the unit is not followed, and asks again later; fresh: for
// an image.
func (f *following) failed(err error, fresh bool) { f.stopped(err, fresh, backoff) }

// stopped is failed, with the pause before each try.
func (f *following) stopped(err error, fresh bool, pause func(tries int) time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if f.why != err.Error() {
		f.l.r.log.Warn("unit is not followed", "unit", f.unit, "node", f.l.from, "err", err)
	}
	f.state, f.why, f.number = StateStopped, err.Error(), 0
	f.fresh = f.fresh || fresh
	f.stopTimer()
	f.timer = time.AfterFunc(pause(f.tries), func() { f.post(event{kind: eventAsk}) })
	f.tries++
}

func (f *following) stopTimer() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// mend has an image sent of each copy whose file is known to be damaged: its source has
// everything.
func (r *Replicator) mend() {
	for _, unit := range r.store.Damaged() {
		r.mu.Lock()
		f := r.following[unit]
		r.mu.Unlock()
		if f == nil {
			continue
		}
		f.mu.Lock()
		news := !f.fresh && f.incoming == nil
		f.fresh = true
		f.mu.Unlock()
		if news {
			f.l.r.log.Warn("a damaged copy is replaced by an image", "unit", unit, "node", f.l.from, "err", r.store.Damage(unit))
			f.post(event{kind: eventAsk})
		}
	}
}

// fed gives the epoch of the source's branch where entries come in.
func (f *following) fed() (epoch uint64, ok bool) {
	if f == nil {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.state == StateFollowing && f.number != 0 && !f.ended
}

// end stops following and returns when nothing is done to the unit any more.
func (f *following) end() {
	f.mu.Lock()
	f.ended = true
	f.stopTimer()
	number := f.number
	f.mu.Unlock()
	f.stop()
	f.l.leave(number, true)
	f.clear(true)
	f.mu.Lock()
	var idle chan struct{}
	if f.busy {
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		idle = f.idle
	}
	f.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// rest ends a worker's, or an image's, turn.
func (f *following) rest() {
	f.mu.Lock()
	f.busy = false
	if f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
	f.schedule()
	f.mu.Unlock()
}

// follow makes the follower's side of a unit; with r.mu held.
func (r *Replicator) newFollowing(unit string, id, epoch uint64, from string, kind store.CopyKind) *following {
	l := r.links[from]
	if l == nil {
		l = r.newLink(from)
	}
	f := &following{l: l, unit: unit, id: id, epoch: epoch, kind: kind, state: StateConnecting}
	f.ctx, f.stop = context.WithCancel(r.ctx)
	r.following[unit] = f
	l.mu.Lock()
	l.units[unit] = f
	connected := l.w != nil
	l.mu.Unlock()
	if connected {
		f.post(event{kind: eventAsk})
	}
	return f
}

// Unfollow ends the following of a unit and returns when nothing is applied to
// it any more: before it is promoted or deleted. The store's record stays.
func (r *Replicator) Unfollow(unit string) {
	r.mu.Lock()
	f := r.following[unit]
	delete(r.following, unit)
	r.mu.Unlock()
	if f == nil {
		return
	}
	f.end()
	r.mu.Lock()
	f.l.mu.Lock()
	if f.l.units[unit] == f {
		delete(f.l.units, unit)
	}
	last := len(f.l.units) == 0
	f.l.mu.Unlock()
	if last && r.links[f.l.from] == f.l {
		delete(r.links, f.l.from)
		f.l.cancel()
	}
	r.mu.Unlock()
}

// Follow makes the unit a copy of from's, durably (store.Follow), and begins to
// follow, or points it at another source. epoch is that of the branch that the
// source writes: an older one is not followed. as is this node's own address, which
// holds for all units from now on; token is what from is shown. It may be repeated, and
// makes the copy one of another kind so, which keeps what it has. Errors are the store's.
func (r *Replicator) Follow(ctx context.Context, unit string, id, epoch uint64, kind store.CopyKind, from, as, token string) error {
	r.introduce(as, from, token)
	r.mu.Lock()
	f := r.following[unit]
	r.mu.Unlock()
	if f != nil && f.l.from == from && f.id == id {
		if err := f.become(ctx, kind); err != nil {
			return err
		}
		f.mu.Lock()
		newer := epoch > f.epoch || kind != f.kind
		f.epoch, f.kind = max(f.epoch, epoch), kind
		again := newer || f.state == StateStopped
		f.mu.Unlock()
		if again {
			f.post(event{kind: eventAsk})
		}
		return nil
	}
	r.Unfollow(unit)
	_, err := r.store.Follow(ctx, unit, id, from, kind)
	r.Ended([]string{unit})
	if err != nil && !isNeedsImage(err) && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.following[unit] == nil { // else a call beside this one was first
		r.newFollowing(unit, id, epoch, from, kind)
	}
	return nil
}

// become makes the unit's record that of a copy of that kind, which goes on from what
// it has; the source hears of it with the next ask.
func (f *following) become(ctx context.Context, kind store.CopyKind) error {
	f.mu.Lock()
	same := f.kind == kind
	f.mu.Unlock()
	if same {
		return nil
	}
	_, err := f.l.r.store.Follow(ctx, f.unit, f.id, f.l.from, kind)
	if err != nil && !isNeedsImage(err) && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	return nil
}

// introduce takes what this node shows to a source.
func (r *Replicator) introduce(as, from, token string) {
	r.mu.Lock()
	var links []*link
	for addr, l := range r.links {
		if as != r.as || addr == from && token != r.shown(from) {
			links = append(links, l)
		}
	}
	r.as, r.tokens[from] = as, token
	r.mu.Unlock()
	for _, l := range links {
		l.nudge()
	}
}

// shown is the token for a source; called with mu held.
func (r *Replicator) shown(from string) string {
	if token, ok := r.tokens[from]; ok {
		return token
	}
	return r.cfg.Token
}

// self is what this node shows to a source; "" for as while it is not known.
func (r *Replicator) self(from string) (as, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, told := r.tokens[from]; !told && r.cfg.Token == "" {
		return "", "" // the control plane will say
	}
	return r.as, r.shown(from)
}

// Resume follows again what the store's records say was followed.
func (r *Replicator) Resume() error {
	all, err := r.store.List("", 0)
	if err != nil {
		return err
	}
	return r.ResumeUnits(all)
}

// ResumeUnits follows again those of the records that are copies', after Unfollow.
func (r *Replicator) ResumeUnits(records []store.Record) error {
	epochs, err := r.store.ToldEpochs()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range records {
		if rec.State.IsCopy() && rec.From != "" && r.following[rec.Name] == nil {
			r.newFollowing(rec.Name, rec.ID, max(rec.Epoch, epochs[rec.Name]), rec.From, rec.Kind())
		}
	}
	return nil
}
