package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"domicile/internal/durable"
)

// ImageInfo describes an image that comes in.
type ImageInfo struct {
	Size int64 // bytes, negative where unknown
	// Sum is called after the last byte was read, and gives the hex sum
	// that the sender stated; nil or "": not stated. It is a SHA-256, or, of a Moving
	// image, XXH3 of 128 bits with as many zeros behind it.
	Sum    func() string
	Moving bool
	// Position of the image. Zero, for an operator's file: a unit that is
	// replaced goes on from its position plus one, a new one begins at 1:1.
	Position Position
	Chain    uint64  // that of Position
	Lineage  Lineage // up to Position; nil: one branch, Position's epoch
	State    State   // of the unit from now on; "": as it was, Active for a new one
	// From: the peer that sent the image (Record.From). SQLite's own check of
	// the whole file is left out where Sum is stated too: the peer serves these
	// very bytes itself, and a check takes as long as receiving them.
	From string
}

// Install makes a unit from a SQLite file, or replaces one. Nothing changes
// unless all of it arrived, it matches size and sum, and it passes SQLite's own
// check (ErrBadImage otherwise). The users of a unit that is replaced get
// ErrGone. id is compared with that of a unit that is there, unless 0:
// ErrWrongID. ErrDiskFull, ErrIO.
func (s *Store) Install(ctx context.Context, name string, id uint64, r io.Reader, info ImageInfo) (Record, error) {
	in, err := s.Receive(name, id, info)
	if err != nil {
		return Record{}, err
	}
	defer in.Close()
	if info.Size >= 0 {
		r = io.LimitReader(r, info.Size+1)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{in}, r, make([]byte, imageChunk)); err != nil {
		return Record{}, in.failed(err)
	}
	return in.Install(ctx)
}

func installable(old *stored, name string, id uint64) error {
	if old != nil && id != 0 && old.ID != id && old.Intent != creating && old.Intent != deleting {
		return &UnitError{Unit: name, Op: "install", Err: ErrWrongID, Hint: fmt.Sprintf("the one here has id %d", old.ID)}
	}
	return nil
}

// removeImage removes what is left in tmp/: nothing where it was put in its place.
func removeImage(tmp string) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".pos"} {
		os.Remove(tmp + suffix)
	}
}

// checkImage lets SQLite look at the whole file (unless it is a peer's, as it
// was sent), and makes it a WAL database.
func (s *Store) checkImage(ctx context.Context, tmp string, peers bool) error {
	if err := checkImageHeader(tmp); err != nil {
		return err
	}
	r, err := openRaw(tmp, false)
	if err != nil {
		return badImage(err)
	}
	r.progress = func() bool { return ctx.Err() != nil }
	r.installProgress(progressSteps)
	r.config(cfgDefensive, 1)
	r.config(cfgTrustedSchema, 0)
	verdict, mode := "ok", ""
	if !peers {
		verdict, err = r.queryText("PRAGMA quick_check(1)")
	}
	if err == nil && verdict == "ok" {
		mode, err = r.queryText("PRAGMA journal_mode=WAL")
	}
	r.close()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	case err != nil:
		return badImage(err)
	case verdict != "ok":
		return fmt.Errorf("%w: %s; send an intact one", ErrBadImage, verdict)
	case mode != "wal":
		return fmt.Errorf("%w: it cannot be used in WAL mode", ErrBadImage)
	}
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// badImage takes what SQLite says for the image's fault, unless it is the disk's.
func badImage(err error) error {
	if errors.Is(err, ErrDiskFull) || errors.Is(err, ErrIO) {
		return err
	}
	return fmt.Errorf("%w: %w; send an intact SQLite file", ErrBadImage, err)
}

func checkImageHeader(tmp string) error {
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var b [dbHeaderSize]byte
	if _, err := io.ReadFull(f, b[:]); err != nil {
		return fmt.Errorf("%w: %d bytes are too few for a SQLite file", ErrBadImage, st.Size())
	}
	h, err := parseDBHeader(b[:])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	if ps := int64(h.pageSize); st.Size()%ps != 0 || (h.pages != 0 && int64(h.pages)*ps != st.Size()) {
		return fmt.Errorf("%w: %d bytes for %d pages of %d: it is cut, or changes are missing (its -wal file)", ErrBadImage, st.Size(), h.pages, ps)
	}
	return nil
}

// replace puts a checked image in the unit's place. Once that is intended by
// the unit's record, a failure leaves it to be finished later.
func (s *Store) replace(ctx context.Context, name string, id uint64, tmp string, info ImageInfo) (_ Record, intended bool, err error) {
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return Record{}, false, err
	}
	defer s.unlockSlot(sl)
	old, err := s.loadFinished(name)
	if err != nil {
		return Record{}, false, err
	}
	if err := installable(old, name, id); err != nil {
		return Record{}, false, err
	}
	rec := s.installed(sl, old, id, name, &info)
	rec.Image = filepath.Base(tmp)
	err = s.makeShard(filepath.Dir(s.unitPath(name)))
	if err == nil {
		p := posRecord{Position: info.Position, Chain: info.Chain, Clean: true}
		err = durable.ReplaceText(tmp+".pos", p.encode()) // makes the image's name in tmp/ durable too
	}
	if err != nil {
		return Record{}, false, &UnitError{Unit: name, Op: "install", Err: diskError(err)}
	}
	if err := s.putRecord(&rec); err != nil {
		return Record{}, true, err // it may have been written all the same
	}
	s.detach(sl, fmt.Errorf("%w: it was replaced by another image", ErrGone))
	if err := s.placeImage(&rec); err != nil {
		return Record{}, true, err
	}
	return rec.Record, true, nil
}

// installed is the record to be, and sets the position in info.
func (s *Store) installed(sl *slot, old *stored, id uint64, name string, info *ImageInfo) stored {
	rec := stored{Record: Record{Name: name, ID: id, State: Active}}
	if old != nil {
		rec = *old
	}
	switch {
	case !info.Position.IsZero():
	case old != nil:
		info.Position = s.positionToReplace(sl, old)
		info.Position.Epoch = max(info.Position.Epoch, 1) // a copy that held nothing
	default:
		info.Position = Position{Epoch: 1, Seq: 1}
	}
	switch {
	case len(info.Lineage) > 0:
		rec.Lineage = info.Lineage.upTo(info.Position.Seq)
	case rec.lineage().Has(info.Position):
		rec.Lineage = rec.lineage()
	default:
		rec.Lineage = Lineage{{Epoch: info.Position.Epoch}}
	}
	if info.State != "" && !(info.State.IsCopy() && rec.State.IsCopy()) { // a copy stays of its kind
		rec.State = info.State
	}
	if info.From != "" || !rec.State.IsCopy() {
		rec.From = info.From
	}
	info.Position = rec.Lineage.place(info.Position)
	rec.Empty, rec.Base = false, nil
	rec.Epoch, rec.Intent = info.Position.Epoch, installing
	return rec
}

// positionToReplace is one past the position of the unit in the slot, which is
// closed for it.
func (s *Store) positionToReplace(sl *slot, old *stored) Position {
	s.detach(sl, fmt.Errorf("%w: it is being replaced by another image", ErrGone))
	if at, err := s.look(old); err == nil {
		at.Position.Seq++
		return at.Position
	}
	// Its commits cannot be counted: damaged.
	pos := Position{Epoch: old.Epoch}
	if p, err := readPos(posPath(s.unitPath(old.Name))); err == nil && p != nil {
		pos = p.Position
	}
	pos.Seq += foreignJump
	return pos
}

// loadFinished is load, after what a record intends was done.
func (s *Store) loadFinished(name string) (*stored, error) {
	r, err := s.load(name)
	if err != nil || r == nil || r.Intent == "" {
		return r, err
	}
	if err := s.finish(r); err != nil {
		return nil, err
	}
	return s.load(name)
}

// placeImage does, or goes on with, the last step of an install. The old WAL
// goes first: SQLite would apply it to the new database.
func (s *Store) placeImage(rec *stored) error {
	tmp, path := filepath.Join(s.tmpDir(), rec.Image), s.unitPath(rec.Name)
	err := s.fault(OpRename, rec.Name)
	if err == nil {
		err = renameImage(tmp, path)
	}
	if err != nil {
		return &UnitError{Unit: rec.Name, Op: "put an image in its place", Err: diskError(err), Hint: "it is tried again when the unit is asked for, or at the next start"}
	}
	s.forget(rec.Name)
	rec.Intent, rec.Image = "", ""
	return s.putRecord(rec)
}

func renameImage(tmp, path string) error {
	if _, err := os.Stat(tmp); errors.Is(err, fs.ErrNotExist) {
		return nil // it was renamed before a crash
	}
	for _, f := range []string{path + "-wal", path + "-shm", path + "-journal", applyPath(path)} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(tmp+".pos", posPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
