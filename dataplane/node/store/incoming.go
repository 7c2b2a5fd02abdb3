package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Incoming is an image on its way in: a file in tmp/, which is emptied at start, that
// becomes the unit's with Install. Of a moving image the commits after its position are
// put into the same file as they come, in any order with its bytes: a page that a
// commit has given is not overwritten by older bytes. One goroutine uses it.
type Incoming struct {
	s    *Store
	unit string
	id   uint64
	info ImageInfo
	tmp  string
	f    *os.File
	got  int64 // bytes of the image so far
	sum  hash.Hash

	// Of an image that commits are put over.
	head     [dbHeaderSize]byte // the image's first bytes
	pageSize int                // 0: no commit came yet
	at       Mark               // the last commit, or the image's
	lineage  Lineage
	pages    uint32   // of the database at it
	over     []uint64 // a bit for each page of the image that a commit gave before its bytes came
	buf      []byte   // a page

	unsynced int64      // bytes written since the last sync began
	syncing  chan error // of the sync under way; nil: none
	broken   error      // a sync failed
	placed   bool       // what becomes of the file is the record's matter
}

// syncEvery is after how many bytes the disk is set to work: what is left at the end
// is little then, and so is what the commits of other units wait for, whose syncs the file
// system may put behind it. maxUnsynced is how far the disk may be behind.
const (
	syncEvery   = 4 << 20
	maxUnsynced = 4 * syncEvery
)

// Receive begins to take in an image; Close it. An image for another unit, or one that
// the disk has no room for, is refused before its first byte. Errors are Install's.
func (s *Store) Receive(unit string, id uint64, info ImageInfo) (*Incoming, error) {
	if err := checkName(unit); err != nil {
		return nil, err
	}
	if old, err := s.load(unit); err != nil {
		return nil, err
	} else if err := installable(old, unit, id); err != nil {
		return nil, err
	}
	in := &Incoming{s: s, unit: unit, id: id, info: info, sum: newImageSum(info.Moving), at: Mark{info.Position, info.Chain}, lineage: info.Lineage,
		tmp: filepath.Join(s.tmpDir(), unit+"."+rand.Text()+".img")}
	err := s.fault(OpImage, unit)
	if err == nil {
		err = s.room(info.Size)
	}
	if err == nil {
		in.f, err = os.OpenFile(in.tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, in.failed(err)
	}
	return in, nil
}

// room refuses what the disk has no room for.
func (s *Store) room(size int64) error {
	free, err := s.Free()
	if err != nil || free == 0 || size <= 0 || uint64(size) <= free {
		return nil // writing will tell
	}
	return fmt.Errorf("%w: the image has %d bytes, %d are free", ErrDiskFull, size, free)
}

// Free gives the bytes that the data folder's file system has left for this process; 0
// where it does not say.
func (s *Store) Free() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err != nil {
		return 0, fmt.Errorf("look at the file system of %s: %w", s.cfg.Dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

func (in *Incoming) failed(err error) error {
	if _, told := errors.AsType[*UnitError](err); told {
		return err
	}
	return &UnitError{Unit: in.unit, Op: "take in an image", Err: diskError(err)}
}

// Write takes the next bytes of the image.
func (in *Incoming) Write(p []byte) (int, error) {
	if err := in.s.fault(OpImage, in.unit); err != nil {
		return 0, in.failed(err)
	}
	in.sum.Write(p)
	if in.got < dbHeaderSize {
		copy(in.head[in.got:], p)
	}
	err := in.put(p, in.got)
	if err == nil {
		in.got += int64(len(p))
		err = in.wrote(len(p))
	}
	if err != nil {
		return 0, in.failed(err)
	}
	return len(p), nil
}

// put writes the image's bytes at off, but those of pages that a commit gave.
func (in *Incoming) put(p []byte, off int64) error {
	if in.over == nil {
		_, err := in.f.WriteAt(p, off)
		return err
	}
	ps := int64(in.pageSize)
	for len(p) > 0 { // runs of pages that are to be written, or not
		skip, n := in.given(off/ps), int64(0)
		for n < int64(len(p)) && in.given((off+n)/ps) == skip {
			n = min((off+n)/ps*ps+ps-off, int64(len(p)))
		}
		if !skip {
			if _, err := in.f.WriteAt(p[:n], off); err != nil {
				return err
			}
		}
		p, off = p[n:], off+n
	}
	return nil
}

// given reports whether a commit gave the page of that index.
func (in *Incoming) given(page int64) bool {
	return page/64 < int64(len(in.over)) && in.over[page/64]&(1<<(page%64)) != 0
}

// wrote has the disk begin with what was written.
func (in *Incoming) wrote(n int) error {
	if in.unsynced += int64(n); in.unsynced < syncEvery {
		return nil
	}
	if in.unsynced >= maxUnsynced && in.syncing != nil {
		in.syncing, in.broken = nil, errors.Join(in.broken, <-in.syncing)
	}
	select {
	case err := <-in.syncing:
		in.syncing, in.broken = nil, errors.Join(in.broken, err)
	default:
	}
	if in.syncing == nil && in.broken == nil {
		in.unsynced = 0
		in.syncing = make(chan error, 1)
		go func(f *os.File, done chan<- error) { done <- unix.Fdatasync(int(f.Fd())) }(in.f, in.syncing)
	}
	return in.broken
}

// Sync returns when what was written so far is on disk; another goroutine may write
// meanwhile.
func (in *Incoming) Sync() error { return unix.Fdatasync(int(in.f.Fd())) }

// Mark is that of the last commit that was put over the image, or the image's.
func (in *Incoming) Mark() Mark { return in.at }

// Bytes of the image that have come.
func (in *Incoming) Bytes() int64 { return in.got }

// Apply puts the next commit over the image. ErrGap, ErrForked, ErrBadEntry, and no
// effect; ErrDiskFull, ErrIO.
func (in *Incoming) Apply(e *Entry) error {
	err := in.next(e)
	if err == nil {
		err = in.lay(e)
	}
	if err != nil {
		return in.failed(err)
	}
	if l := in.lineage; len(l) > 0 && l[len(l)-1].Epoch < e.Position.Epoch {
		in.lineage = l.branch(e.Position.Epoch, e.Prev.Position.Seq)
	}
	in.at = Mark{e.Position, e.Chain}
	if err := in.wrote(len(e.Pages) * e.PageSize); err != nil {
		return in.failed(err)
	}
	return nil
}

// next verifies that e is the commit after the last one, whole and unaltered.
func (in *Incoming) next(e *Entry) error {
	prev := e.Prev.Position
	switch {
	case prev.Seq+1 != e.Position.Seq, prev.Epoch > e.Position.Epoch, prev.Epoch == 0, !validPageSize(e.PageSize), in.info.Size < 0:
		return fmt.Errorf("%w: %s after %s, pages of %d bytes", ErrBadEntry, e.Position, prev, e.PageSize)
	case prev.Seq != in.at.Position.Seq:
		return fmt.Errorf("%w: entry %s, the image is at %s", ErrGap, e.Position, in.at.Position)
	case e.Prev.Chain != in.at.Chain, prev.Epoch < in.at.Position.Epoch:
		return fmt.Errorf("%w: entry %s follows %s (%x), the image is at %s (%x)", ErrForked, e.Position, prev, e.Prev.Chain, in.at.Position, in.at.Chain)
	}
	if in.pageSize == 0 {
		if in.info.Size/int64(e.PageSize) >= 1<<32 {
			return fmt.Errorf("%w: pages of %d bytes in an image of %d", ErrBadEntry, e.PageSize, in.info.Size)
		}
		in.pageSize, in.buf = e.PageSize, make([]byte, e.PageSize)
		in.pages = uint32(in.info.Size / int64(e.PageSize))
		in.over = make([]uint64, in.pages/64+1)
	}
	return e.intact(in.pageSize, nil, in.buf)
}

// lay writes the pages of a verified commit.
func (in *Incoming) lay(e *Entry) error {
	patches, size, err := merge([]Entry{*e}, in.pages)
	if err != nil {
		return err
	}
	if err := in.s.fault(OpImage, in.unit); err != nil {
		return err
	}
	ps := int64(in.pageSize)
	for i := range patches {
		clear(in.buf)
		if p := &patches[i]; p.entry != nil {
			if err := p.entry.content(p.index, in.buf); err != nil {
				return err
			}
		}
		page := int64(patches[i].number) - 1
		if _, err := in.f.WriteAt(in.buf, page*ps); err != nil {
			return err
		}
		if (page+1)*ps > in.got && page/64 < int64(len(in.over)) {
			in.over[page/64] |= 1 << (page % 64)
		}
	}
	in.pages = size
	return nil
}

// whole compares length and sum. It reports whether the sender had stated the sum.
func (in *Incoming) whole() (matched bool, err error) {
	if in.info.Size >= 0 && in.got != in.info.Size {
		return false, fmt.Errorf("%w: %d bytes came, %d were announced; send it again", ErrBadImage, in.got, in.info.Size)
	}
	want := ""
	if in.info.Sum != nil {
		want = in.info.Sum()
	}
	if got := hex.EncodeToString(in.sum.Sum(nil)); want != "" && !strings.EqualFold(want, got) {
		return false, fmt.Errorf("%w: its sum is %s, %s was stated; send it again", ErrBadImage, got, want)
	}
	if in.pageSize == 0 {
		return want != "", nil
	}
	if h, err := parseDBHeader(in.head[:]); err != nil || h.pageSize != in.pageSize {
		return false, fmt.Errorf("%w: its pages are not of %d bytes as those of its commits (%v)", ErrBadImage, in.pageSize, err)
	}
	return want != "", in.f.Truncate(int64(in.pages) * int64(in.pageSize))
}

// Install puts the image in the unit's place, at the mark that it has: see
// Store.Install. It is called once.
func (in *Incoming) Install(ctx context.Context) (Record, error) {
	matched, err := in.whole()
	if err == nil {
		err = in.s.checkImage(ctx, in.tmp, matched && in.info.From != "")
	}
	if err == nil {
		err = in.settled()
	}
	info := in.info
	info.Position, info.Chain, info.Lineage = in.at.Position, in.at.Chain, in.lineage
	if err == nil && len(info.Lineage) > 0 && (!info.Lineage.valid() || !info.Lineage.Has(info.Position)) {
		err = fmt.Errorf("%w: its lineage %v does not lead to %s", ErrBadImage, info.Lineage, info.Position)
	}
	if err != nil {
		return Record{}, in.failed(err)
	}
	if info.Position.IsZero() {
		info.Chain = binary.LittleEndian.Uint64(in.sum.Sum(nil)) // an operator's file begins a history of its own
	}
	rec, intended, err := in.s.replace(ctx, in.unit, in.id, in.tmp, info)
	in.placed = intended
	return rec, err
}

// settled awaits the sync under way.
func (in *Incoming) settled() error {
	if in.syncing != nil {
		in.broken = errors.Join(in.broken, <-in.syncing)
		in.syncing = nil
	}
	return in.broken
}

// Close lets go of the image, and removes what did not become a unit.
func (in *Incoming) Close() {
	// A sync that failed was told of, or is of a file that goes.
	_ = in.settled()
	_ = in.f.Close()
	if !in.placed {
		removeImage(in.tmp)
	}
}
