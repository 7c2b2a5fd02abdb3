package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
)

// Image is a copy of a unit on its way out: a plain SQLite file of Size bytes, as of
// Position. Writes go on meanwhile: they go to the WAL, and as long as an image is
// open no checkpoint changes the database file. What a checkpoint could not copy
// before (a reader held it up) is laid over the file's pages from the WAL.
//
// A moving image (MovingImage) holds up no checkpoint, however long it takes: each
// of its pages is as of Position, or as some later commit has left it. With the
// commits after Position put over it, in order, up to End, it is the unit as of End;
// Incoming does that.
type Image struct {
	Size     int64
	PageSize int
	Position Position
	Chain    uint64
	Lineage  Lineage

	u *Unit
	// overlay: page number → offset of its content in the WAL. Of a moving image it is
	// dropped under Unit.folding once all of it is in the database file.
	overlay map[uint32]int64
	moving  bool
	holds   bool // it counts in Unit.images
	sum     hash.Hash
	whole   bool
	closed  bool
}

// imageChunk is how much of an image is in memory at once.
const imageChunk = 256 << 10

// Image begins a copy; Close it. Keep the unit acquired until then.
func (u *Unit) Image(ctx context.Context) (*Image, error) { return u.beginImage(ctx, false) }

// MovingImage begins a moving copy; likewise.
func (u *Unit) MovingImage(ctx context.Context) (*Image, error) { return u.beginImage(ctx, true) }

func (u *Unit) beginImage(ctx context.Context, moving bool) (*Image, error) {
	u.startCheckpoint() // so that little is left to do under the writer
	if err := u.holdCheckpoints(ctx); err != nil {
		return nil, err
	}
	img := &Image{u: u, moving: moving, holds: true, sum: newImageSum(moving)}
	if err := img.begin(ctx); err != nil {
		img.Close()
		return nil, err
	}
	if moving {
		u.mu.Lock()
		if u.moving == nil {
			u.moving = map[*Image]bool{}
		}
		u.moving[img] = true
		u.images--
		img.holds = false
		u.mu.Unlock()
	}
	return img, nil
}

// fold runs a checkpoint, while no page of a moving image is read: what is read is
// never half written, and an offset in the WAL holds as long as its overlay.
func (u *Unit) fold(checkpoint func() (frames, done int, err error)) (frames, done int, err error) {
	u.folding.Lock()
	defer u.folding.Unlock()
	frames, done, err = checkpoint()
	if err != nil || frames != done {
		return frames, done, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for img := range u.moving {
		img.overlay = nil // SQLite may start the WAL over now
	}
	return frames, done, nil
}

// holdCheckpoints lets no checkpoint begin, and waits for the one under way.
func (u *Unit) holdCheckpoints(ctx context.Context) error {
	u.mu.Lock()
	under := u.checking
	if under == nil {
		u.images++
	}
	u.mu.Unlock()
	if under == nil {
		return nil
	}
	select {
	case <-under:
	case <-ctx.Done():
		return u.s.waitedInVain("a checkpoint", ctx)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.checking != nil { // another one began at once
		under := u.checking
		u.mu.Unlock()
		<-under
		u.mu.Lock()
	}
	u.images++
	return nil
}

// begin fixes the image's position, under the writer.
func (i *Image) begin(ctx context.Context) error {
	u := i.u
	if err := u.takeWriter(ctx); err != nil {
		return err
	}
	defer func() { <-u.writer }()
	err := u.goneErr()
	if err == nil {
		err = u.openWriting()
	}
	if err == nil {
		err = u.commits.ready()
	}
	if err == nil {
		err = u.commits.waitDurable(u.commits.pos)
	}
	if err == nil {
		err = i.cover()
	}
	if err == nil && u.dbFile == nil {
		u.dbFile, err = os.Open(u.path)
	}
	if err != nil {
		var ue *UnitError
		if errors.As(err, &ue) {
			return err
		}
		return &UnitError{Unit: u.name, Op: "begin an image", Err: diskError(err)}
	}
	i.Position, i.Chain, i.Lineage = u.commits.pos, u.commits.chain, u.Lineage()
	return nil
}

// internally runs f on the connection that writes, past the sandbox.
func (u *Unit) internally(f func() error) error {
	if u.w != nil && !u.following.Load() {
		return u.w.internally(f)
	}
	return f()
}

// cover checkpoints what can be, and finds the pages that are only in the WAL.
func (i *Image) cover() error {
	u := i.u
	complete, err := u.checkpointUnder(func() {})
	if err != nil {
		return err
	}
	var num [2]int64
	for k, pragma := range []string{"PRAGMA page_size", "PRAGMA page_count"} {
		var text string
		err := u.internally(func() (err error) { text, err = u.writing().queryText(pragma); return err })
		if err == nil {
			num[k], err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return err
		}
	}
	i.PageSize, i.Size = int(num[0]), num[0]*num[1]
	if complete {
		return nil
	}
	i.overlay = map[uint32]int64{}
	t := &u.commits.tail
	for n := 1; n <= t.frames; n++ {
		var b [4]byte
		if _, err := u.commits.wal.ReadAt(b[:], t.offset(n)); err != nil {
			return err
		}
		i.overlay[be32(b[:])] = t.offset(n) + frameHeaderSize
	}
	return nil
}

// WriteTo writes the file to w, once. It fails with ErrGone where the unit
// goes meanwhile, and, but for a moving image, where w takes so long that the WAL
// outgrows 16 times its cap.
func (i *Image) WriteTo(w io.Writer) (written int64, err error) {
	if i.whole || i.closed {
		return 0, fmt.Errorf("image of unit %s: %w", i.u.name, ErrClosed)
	}
	buf := make([]byte, max(imageChunk, i.PageSize))
	for written < i.Size {
		b := buf[:min(int64(len(buf)), i.Size-written)]
		if err := i.readAt(b, written); err != nil {
			return written, err
		}
		if err := i.check(); err != nil {
			return written, err
		}
		i.sum.Write(b)
		n, err := w.Write(b)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	i.whole = true
	return written, nil
}

func (i *Image) readAt(b []byte, off int64) error {
	if i.moving {
		i.u.folding.RLock()
		defer i.u.folding.RUnlock()
	}
	n, err := i.u.dbFile.ReadAt(b, off)
	if err == io.EOF && (i.overlay != nil || i.moving) {
		clear(b[n:]) // pages that were never copied from the WAL, or were cut off since
		err = nil
	}
	ps := int64(i.PageSize)
	for p := int64(0); err == nil && i.overlay != nil && p < int64(len(b)); p += ps {
		if at, ok := i.overlay[uint32((off+p)/ps)+1]; ok {
			_, err = i.u.commits.wal.ReadAt(b[p:p+ps], at)
		}
	}
	if err != nil {
		return &UnitError{Unit: i.u.name, Op: "read an image", Err: diskError(err)}
	}
	return nil
}

// check, called after reading, makes sure that what was read was still fixed.
func (i *Image) check() error {
	if err := i.u.goneErr(); err != nil {
		return err
	}
	if limit := 16 * i.u.s.cfg.MaxWALBytes; !i.moving && i.u.walBytes.Load() > limit {
		return &UnitError{Unit: i.u.name, Op: "read an image", Err: errSlowImage, Hint: "read it faster, or when less is written"}
	}
	return nil
}

var errSlowImage = errors.New("so much was written meanwhile that the write-ahead log outgrew its limit")

// End gives the position up to which commits are to be put over a moving image that
// was written: none of its pages is of a later one. Asked under the writer, as a commit
// may be in the file a moment before it is captured.
func (i *Image) End(ctx context.Context) (Position, error) {
	u := i.u
	if err := u.takeWriter(ctx); err != nil {
		return Position{}, err
	}
	defer func() { <-u.writer }()
	if err := u.commits.ready(); err != nil {
		return Position{}, err
	}
	return u.commits.pos, u.goneErr()
}

// Sum is the hex sum of the file, after WriteTo has returned without error; "" before. It
// is its SHA-256, but for a moving image, which has that of ImageInfo.Moving.
func (i *Image) Sum() string {
	if !i.whole {
		return ""
	}
	return hex.EncodeToString(i.sum.Sum(nil))
}

// Close lets checkpoints go on. A second call does nothing.
func (i *Image) Close() {
	if i.closed {
		return
	}
	i.closed = true
	i.u.mu.Lock()
	defer i.u.mu.Unlock()
	if i.holds {
		i.u.images--
	}
	delete(i.u.moving, i)
}
