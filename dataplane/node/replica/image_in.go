package replica

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"domicile/dataplane/node/store"
)

var (
	errBegunAgain = errors.New("the image was broken off")
	errUnfollowed = errors.New("the unit is not followed any more")
)

// imageIn is an image that comes in: the link's reader puts its frames in, and takeImage
// gives them to the store. The source bounds what waits by its windows.
type imageIn struct {
	image
	gave func(bytes int) // tells the link of entries that are done with

	mu     sync.Mutex
	frames []frame       // chunks and entries, as they came
	chunks int           // bytes of them
	news   chan struct{} // holds a token when there is something for takeImage
	err    error         // why it was broken off
	ended  bool
	end    imaged
	shut   bool  // entries are not taken any more
	bytes  int64 // of the image, written
}

func newImageIn(m image, gave func(int)) *imageIn {
	return &imageIn{image: m, gave: gave, news: make(chan struct{}, 1)}
}

// received takes a chunk, an entry, or the end. taken is false for an entry that is to be
// applied once the image is in its place.
func (i *imageIn) received(fr frame) (taken bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case fr.kind == frameEntry && i.shut:
		return false, nil
	case i.err != nil:
		if fr.kind == frameEntry {
			i.gave(len(fr.payload))
		}
		return true, nil
	case fr.kind == frameEntry:
	case i.ended:
		return true, fmt.Errorf("%w: an image goes on after its end", errFrame)
	case fr.kind == frameImaged:
		if i.end, err = decodeImaged(fr.payload); err != nil {
			return true, err
		}
		i.ended, i.shut = true, i.end.end.IsZero()
		i.wake()
		return true, nil
	case len(fr.payload) == 0:
		return true, fmt.Errorf("%w: an empty chunk", errFrame)
	default:
		if i.chunks += len(fr.payload); i.chunks > besideWindow+chunkSize {
			return true, fmt.Errorf("%w: more of an image than the window allows", errFrame)
		}
	}
	i.frames = append(i.frames, fr)
	i.wake()
	return true, nil
}

func (i *imageIn) wake() {
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// abort ends it.
func (i *imageIn) abort(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return
	}
	i.err = err
	for _, fr := range i.frames {
		if fr.kind == frameEntry {
			i.gave(len(fr.payload))
		}
	}
	i.frames = nil
	i.wake()
}

// take gives what has come, and whether the end has. Once it is shut nothing more comes.
func (i *imageIn) take(shut bool) (frames []frame, ended bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	frames, i.frames = i.frames, nil
	i.shut = i.shut || shut
	return frames, i.ended, i.err
}

// progress gives the bytes that were written.
func (i *imageIn) progress() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.bytes
}

func (i *imageIn) sum() string { return hex.EncodeToString(i.end.sum[:]) }

// takeImage installs an image, in a goroutine of its own; the unit is busy
// until it has ended.
func (f *following) takeImage(e event) {
	i, number := e.image, e.frame.unit
	if !f.current(number) {
		i.abort(errBegunAgain)
		f.rest()
		return
	}
	f.l.r.wait.Go(func() {
		defer f.rest()
		defer context.AfterFunc(f.ctx, func() { i.abort(errUnfollowed) })()
		at, err := f.install(i, number)
		i.abort(errBegunAgain) // nothing of it is left to be done
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
		f.l.r.log.Info("image installed", "unit", f.unit, "node", f.l.from, "position", at.Position, "bytes", i.size)
		f.mu.Lock()
		f.fresh = false
		if f.number == number {
			f.state, f.why, f.epoch = StateFollowing, "", max(f.epoch, at.Position.Epoch)
		}
		f.mu.Unlock()
		f.l.say(frameAck, number, appendPosition(nil, at.Position))
	})
}

// install takes the image in and puts it in its place. Once it is whole it is synced
// while entries go on coming, as that may take as long as the ring holds entries for;
// what they add meanwhile is little.
func (f *following) install(i *imageIn, number uint32) (store.Mark, error) {
	in, err := f.l.r.store.Receive(f.unit, f.id, store.ImageInfo{Size: i.size, Sum: i.sum, Moving: i.moving,
		Position: i.at.Position, Chain: i.at.Chain, Lineage: i.lineage, State: store.Following, From: f.l.from})
	if err != nil {
		return store.Mark{}, err
	}
	defer in.Close()
	for whole := false; !whole; {
		<-i.news
		ended, err := f.lay(i, in, number, false)
		if err != nil {
			return store.Mark{}, err
		}
		whole = ended && in.Mark().Position.Seq >= i.end.end.Seq
	}
	synced := make(chan error, 1)
	go func() { synced <- in.Sync() }()
	for waiting := true; waiting; {
		select {
		case err = <-synced:
			waiting = false
		case <-i.news:
			if _, lerr := f.lay(i, in, number, false); lerr != nil {
				return store.Mark{}, errors.Join(lerr, <-synced)
			}
		}
	}
	if err != nil {
		return store.Mark{}, err
	}
	if _, err := f.lay(i, in, number, true); err != nil {
		return store.Mark{}, err
	}
	if _, err := in.Install(f.ctx); err != nil {
		return store.Mark{}, err
	}
	return in.Mark(), nil
}

// lay writes what has come, and tells the source of it.
func (f *following) lay(i *imageIn, in *store.Incoming, number uint32, shut bool) (ended bool, err error) {
	frames, ended, err := i.take(shut)
	if err != nil {
		return false, err
	}
	wrote := false
	for k, fr := range frames {
		switch {
		case err != nil:
		case fr.kind == frameEntry:
			var e store.Entry
			if e, err = decodeEntry(fr.payload); err == nil {
				err = in.Apply(&e)
			}
			wrote = true
		default:
			_, err = in.Write(fr.payload)
			i.mu.Lock()
			i.chunks -= len(fr.payload)
			i.bytes = in.Bytes()
			i.mu.Unlock()
			f.l.say(frameTook, number, appendCount(len(fr.payload)))
		}
		if fr.kind == frameEntry {
			i.gave(len(fr.payload))
		}
		frames[k].done()
	}
	if wrote && err == nil {
		f.l.say(frameWrote, number, appendPosition(nil, in.Mark().Position))
	}
	return ended, err
}
