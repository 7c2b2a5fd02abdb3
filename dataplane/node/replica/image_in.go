package replica

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"domicile/dataplane/node/store"
)

var (
	errBegunAgain = errors.New("the image was broken off")
	errUnfollowed = errors.New("the unit is not followed any more")
)

// imageIn is an image that comes in: the link's reader puts its chunks in, the
// store reads them.
type imageIn struct {
	image
	pieces chan []byte // closed after the last
	done   chan struct{}

	mu     sync.Mutex
	err    error // why it was broken off
	ended  bool
	sum    string
	rest   []byte          // of the piece being read; the store's goroutine only
	credit func(bytes int) // tells the source what was taken; set before the first read
}

func newImageIn(m image) *imageIn {
	return &imageIn{image: m, pieces: make(chan []byte, imageWindow/chunkSize+1), done: make(chan struct{})}
}

// received takes a chunk, or the end.
func (i *imageIn) received(fr frame) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return nil
	}
	if i.ended {
		return fmt.Errorf("%w: an image goes on after its end", errFrame)
	}
	if fr.kind == frameImaged {
		if len(fr.payload) != 32 {
			return fmt.Errorf("%w: a sum of %d bytes", errFrame, len(fr.payload))
		}
		i.ended, i.sum = true, hex.EncodeToString(fr.payload)
		close(i.pieces)
		return nil
	}
	if len(fr.payload) == 0 {
		return fmt.Errorf("%w: an empty chunk", errFrame)
	}
	select {
	case i.pieces <- fr.payload:
		return nil
	default:
		return fmt.Errorf("%w: more of an image than the window allows", errFrame)
	}
}

// abort makes the store's reading fail.
func (i *imageIn) abort(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil {
		i.err = err
		close(i.done)
	}
}

// Read is the store's.
func (i *imageIn) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		select {
		case <-i.done:
			return 0, i.err
		default:
		}
		select {
		case piece, ok := <-i.pieces:
			if !ok {
				return 0, io.EOF
			}
			i.rest = piece
			i.credit(len(piece))
		case <-i.done:
			return 0, i.err
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// Sum is what the source said, once all was read.
func (i *imageIn) Sum() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sum
}

// takeImage installs an image, in a goroutine of its own; the unit is busy
// until it has ended.
func (f *following) takeImage(e event) {
	i, number := e.image, e.frame.unit
	if !f.current(number) {
		i.abort(errBegunAgain)
		f.rest()
		return
	}
	i.credit = func(n int) { f.l.say(frameTook, number, appendCount(n)) }
	f.l.r.wait.Go(func() {
		defer f.rest()
		defer context.AfterFunc(f.ctx, func() { i.abort(errUnfollowed) })()
		_, err := f.l.r.store.Install(f.ctx, f.unit, f.id, i, store.ImageInfo{Size: i.size, Sum: i.Sum,
			Position: i.at.Position, Chain: i.at.Chain, Lineage: i.lineage, State: store.Following, From: f.l.from})
		f.mu.Lock()
		if f.incoming == i {
			f.incoming = nil
		}
		f.mu.Unlock()
		if err != nil {
			if f.current(number) && !errors.Is(err, errBegunAgain) && !errors.Is(err, errUnfollowed) {
				f.l.leave(number, true)
				f.failed(fmt.Errorf("an image cannot be installed: %w", err), true)
			}
			return
		}
		f.l.r.images.Add(1)
		f.l.r.log.Info("image installed", "unit", f.unit, "node", f.l.from, "position", i.at.Position, "bytes", i.size)
		f.mu.Lock()
		f.fresh = false
		if f.number == number {
			f.state, f.why, f.epoch = StateFollowing, "", max(f.epoch, i.at.Position.Epoch)
		}
		f.mu.Unlock()
		f.l.say(frameAck, number, appendPosition(nil, i.at.Position))
	})
}
