package replica

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/dataplane/node/store"
)

// imageOut is an image on its way to a follower.
type imageOut struct {
	ctx    context.Context
	cancel context.CancelFunc
	window int

	mu      sync.Mutex
	piece   []byte // is to be written next; nil: none
	under   int    // bytes sent and not taken yet
	changed chan struct{}
}

var (
	errFellBehind = errors.New("more was written meanwhile than is kept")
	errLeft       = errors.New("the follower has left")
)

// wantImage puts b in line for an image; with feed.mu held.
func (s *session) wantImage(b *sub) {
	s.mu.Lock()
	if s.subs[b.number] == b {
		s.waiting = append(s.waiting, b)
	}
	s.mu.Unlock()
	s.nextImage(0)
}

// nextImage begins images while there is room for them; ended is how many have
// ended.
func (s *session) nextImage(ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imaging -= ended
	for s.subs != nil && s.imaging < s.r.cfg.Images && len(s.waiting) > 0 {
		b := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.imaging++
		s.images.Go(func() {
			defer s.nextImage(1)
			s.sendImage(b)
		})
	}
}

// sendImage sends an image, and lets entries follow.
func (s *session) sendImage(b *sub) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	i := &imageOut{ctx: ctx, cancel: cancel, window: imageWindow, changed: make(chan struct{}, 1)}
	if b.asked.beside {
		i.window = besideWindow
	}
	b.f.mu.Lock()
	if b.state != subImaging {
		b.f.mu.Unlock()
		return
	}
	b.image = i
	b.f.mu.Unlock()
	err := s.stream(ctx, b, i)
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.image = nil
	switch {
	case b.state != subImaging || s.ctx.Err() != nil:
	case errors.Is(err, errFellBehind):
		s.r.log.Info("an image was given up", "unit", b.f.unit, "node", s.as, "err", err)
		b.fellBehind()
	case err != nil:
		s.r.log.Warn("an image cannot be sent", "unit", b.f.unit, "node", s.as, "err", err)
		s.finish(b, endFailed, err.Error())
		if p := b.f.peers[s.as]; p != nil && p.sub == b {
			b.f.left(p)
		}
	case b.asked.beside:
		b.ready()
	default:
		b.state = subStreaming
		b.ready()
	}
}

// stream sends the image's frames: to a follower that takes entries beside it a moving
// one, which holds up nothing here and is whole with the entries up to its end.
func (s *session) stream(ctx context.Context, b *sub, i *imageOut) error {
	u, release, err := s.r.store.Acquire(ctx, b.f.unit)
	if err != nil {
		return err
	}
	defer release()
	begin := u.Image
	if b.asked.beside {
		begin = u.MovingImage
	}
	img, err := begin(ctx)
	if err != nil {
		return err
	}
	defer img.Close()
	at := store.Mark{Position: img.Position, Chain: img.Chain}
	b.f.mu.Lock()
	if b.state != subImaging {
		b.f.mu.Unlock()
		return errLeft
	}
	if at.Position.Seq > b.f.captured.Position.Seq || b.f.captured == (store.Mark{}) {
		b.f.captured = at
	}
	b.next = img.Position.Seq + 1
	b.beside = b.asked.beside
	b.say(frameImage, (&image{img.Size, at, img.Lineage, b.asked.beside}).encode())
	b.f.mu.Unlock()
	if _, err := img.WriteTo(&imageWriter{b, i}); err != nil {
		return err
	}
	sum, err := hex.DecodeString(img.Sum())
	if err != nil {
		return err
	}
	if b.asked.beside {
		end, err := img.End(ctx)
		if err != nil {
			return err
		}
		sum = appendPosition(sum, end)
	}
	b.f.mu.Lock()
	b.say(frameImaged, sum)
	b.imaged = b.beside // its acknowledgement may come at once
	b.f.mu.Unlock()
	return nil
}

// imageWriter cuts what an image writes into chunks.
type imageWriter struct {
	b *sub
	i *imageOut
}

// Write returns when all of p is in the connection's hands.
func (w *imageWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		c := p[n:min(len(p), n+chunkSize)]
		if err := w.put(c); err != nil {
			return n, err
		}
		n += len(c)
	}
	return n, nil
}

func (w *imageWriter) put(p []byte) error {
	f := w.b.f
	f.mu.Lock()
	fell := w.b.next <= f.captured.Position.Seq && f.ring.after(w.b.next-1) == nil
	f.mu.Unlock()
	if fell {
		return errFellBehind // the rest would be of no use
	}
	i := w.i
	if err := i.await(func() bool { return i.under+len(p) <= i.window }); err != nil {
		return err
	}
	i.mu.Lock()
	i.piece = p
	i.under += len(p)
	i.mu.Unlock()
	w.b.s.enqueueChunk(w.b)
	return i.await(func() bool { return i.piece == nil })
}

// await returns when f, asked with mu held, holds.
func (i *imageOut) await(f func() bool) error {
	for {
		i.mu.Lock()
		ok := f()
		if !ok && i.ctx.Err() != nil {
			i.piece = nil // its memory is the image's
			defer i.mu.Unlock()
			return errLeft
		}
		i.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-i.changed:
		case <-i.ctx.Done():
		}
	}
}

func (i *imageOut) change(f func()) {
	i.mu.Lock()
	f()
	i.mu.Unlock()
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

func (s *session) enqueueChunk(b *sub) {
	s.mu.Lock()
	if s.subs[b.number] == b {
		s.chunks = append(s.chunks, b)
	}
	s.mu.Unlock()
	s.w.poke()
}

// emitChunk adds the next piece of b's image.
func (b *sub) emitChunk(out []byte) []byte {
	b.f.mu.Lock()
	i := b.image
	out = append(out, b.out...)
	b.out = nil
	b.f.mu.Unlock()
	if i == nil {
		return out
	}
	i.change(func() {
		if i.piece != nil {
			out = appendFrame(out, frameChunk, b.number, i.piece)
			i.piece = nil
		}
	})
	return out
}

// imageTaken notes what the follower has written of its image.
func (b *sub) imageTaken(n int64) (err error) {
	b.f.mu.Lock()
	i := b.image
	b.f.mu.Unlock()
	if i == nil {
		return nil
	}
	i.change(func() {
		if i.under -= int(min(n, besideWindow)); i.under < 0 {
			err = fmt.Errorf("%w: more of the image of unit %s was taken than was sent", errFrame, b.f.unit)
		}
	})
	return err
}

// backoff gives the pause before try number n, from 0: 100 ms, doubling to 5 s.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n, 6), 5*time.Second)
}

// pause is backoff after an end. A source that does not write the unit is most likely
// about to: a copy is told of the new primary while that is being promoted, and what is
// written there first waits for the copy. So it begins with 2 ms.
func (c endCode) pause(n int) time.Duration {
	if c == endNotPrimary {
		return min(2*time.Millisecond<<min(n, 12), 5*time.Second)
	}
	return backoff(n)
}
