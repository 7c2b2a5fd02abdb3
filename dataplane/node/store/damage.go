package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"domicile/internal/durable"

	"golang.org/x/sys/unix"
)

// damage is what is known of a damaged unit, until an image was put in its place, it
// was deleted, or it was opened well.
type damage struct {
	err   error
	until time.Time // it is not opened again before: not at each request
	// examined: it is open, and SQLite's own check of the whole file found damage. What
	// can be read of it is served on.
	examined bool
}

const damageLife = 10 * time.Second

// damaged remembers err, if it tells of damage.
func (s *Store) damaged(name string, err error, examined bool) {
	if !errors.Is(err, ErrDamaged) {
		return
	}
	d := damage{err: err, examined: examined}
	if !examined {
		d.until = time.Now().Add(damageLife)
	}
	p := &s.slots
	p.mu.Lock()
	_, known := p.damaged[name]
	p.damaged[name] = d
	p.mu.Unlock()
	if !known {
		s.log.Error("unit is damaged", "unit", name, "err", err)
	}
}

// Damage gives what is known of a unit's damage, nil where none is known: an error that
// Is ErrDamaged.
func (s *Store) Damage(name string) error {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.damaged[name].err
}

// Damaged lists the units whose files are known to be damaged, sorted: those that could
// not be opened when they were asked for, and those of which a statement met damage
// that SQLite's own check has confirmed.
func (s *Store) Damaged() []string {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return slices.Sorted(maps.Keys(s.slots.damaged))
}

// GiveUpDamaged records, by f, that a unit was given up whose file cannot be opened.
// Nobody has it open then, nor opens it while that is recorded. ErrConflict: it is
// open. ErrUnknownUnit, and the errors of f.
func (s *Store) GiveUpDamaged(ctx context.Context, name string, f func(*Record) error) (Record, error) {
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer s.unlockSlot(sl)
	s.slots.mu.Lock()
	open := sl.unit != nil
	s.slots.mu.Unlock()
	if open {
		return Record{}, &UnitError{Unit: name, Op: "give up", Err: fmt.Errorf("%w: it could be opened", ErrConflict)}
	}
	return s.Update(ctx, name, f)
}

// KeepDamaged moves the files of a unit that is damaged aside, as they are:
// aside/<unit>@<epoch>-<seq>@<unix ms>.damaged.db in the data folder, and its -wal, so
// that SQLite's tools can recover what can be read. The position is the last recorded
// one. path is "" where nothing was left of them. False, and no effect, where the unit
// is not damaged.
func (s *Store) KeepDamaged(ctx context.Context, name string) (path string, damaged bool, err error) {
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return "", false, err
	}
	defer s.unlockSlot(sl)
	rec, err := s.loadFinished(name)
	if err != nil || rec == nil || s.lookDamaged(sl, rec) == nil {
		return "", false, err
	}
	s.detach(sl, fmt.Errorf("%w: its damaged file is kept aside", ErrGone))
	path, err = s.keepDamaged(rec)
	return path, err == nil, err
}

// lookDamaged looks at a unit's files, if it is not open, and gives its damage.
func (s *Store) lookDamaged(sl *slot, rec *stored) error {
	s.slots.mu.Lock()
	open := sl.unit != nil
	s.slots.mu.Unlock()
	if !open {
		s.closed.drop(rec.Name)
		if _, err := s.look(rec); errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return s.Damage(rec.Name)
}

// keepDamaged does KeepDamaged for a unit that is closed; the caller has its slot.
func (s *Store) keepDamaged(rec *stored) (string, error) {
	from := s.unitPath(rec.Name)
	at := Position{Epoch: rec.Epoch}
	if p, err := readPos(posPath(from)); err == nil && p != nil {
		at = p.Position
	}
	to := filepath.Join(s.asideDir(), asideName(rec.Name, at)+damagedSuffix)
	err := s.fault(OpAside, rec.Name)
	if err == nil {
		err = s.makeAside()
	}
	kept := ""
	for _, suffix := range []string{"-wal", ""} {
		if err == nil {
			err = os.Rename(from+suffix, to+suffix)
		}
		switch {
		case err == nil:
			kept = to
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		}
	}
	if err == nil && kept != "" {
		err = errors.Join(durable.SyncDir(s.asideDir()), durable.SyncDir(filepath.Dir(from)))
	}
	if err != nil {
		return "", &UnitError{Unit: rec.Name, Op: "keep its damaged file aside", Err: diskError(err), Hint: "check the node's disk"}
	}
	s.closed.drop(rec.Name)
	if kept != "" {
		s.log.Error("a damaged file is kept aside", "unit", rec.Name, "file", kept)
	}
	return kept, nil
}

// suspect has SQLite look at the whole file after a statement has met damage in it: a
// statement's word alone does not give a unit to its copy. The unit is kept open until then,
// as what was met would be forgotten with it.
func (u *Unit) suspect() {
	release, open := u.s.keepOpen(u)
	if !open {
		return
	}
	if !u.beginExamining(release) {
		release()
	}
}

// beginExamining starts the look, unless one runs or the unit goes; then is called after it.
func (u *Unit) beginExamining(then func()) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.examining || u.gone != nil {
		return false
	}
	u.examining = true
	u.tasks.Go(func() {
		defer then()
		err := u.examine()
		u.s.damaged(u.name, err, true)
		u.mu.Lock()
		u.examining = false
		u.mu.Unlock()
	})
	return true
}

// examine gives the damage that SQLite's quick_check finds, nil where there is none or
// the unit is closed meanwhile.
func (u *Unit) examine() error {
	if err := checkFile(u.path); err != nil {
		return u.openError(err)
	}
	r, err := openRaw(u.path, false)
	if err != nil {
		return u.openError(err)
	}
	defer r.close()
	r.config(cfgNoCkptOnClose, 1)
	r.progress = func() bool {
		select {
		case <-u.closed:
			return true
		default:
			return false
		}
	}
	r.installProgress(progressSteps)
	verdict, err := r.queryText("PRAGMA quick_check(1)")
	switch {
	case u.goneErr() != nil:
		return nil
	case err != nil:
		return u.openError(err)
	case verdict != "ok":
		return u.damaged(verdict)
	}
	return nil
}

// checkFile refuses what SQLite would take for a new, empty database, and what cannot
// be read though the process may open files: ErrDamaged.
func checkFile(path string) error {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: its file is missing", ErrDamaged)
	case err != nil:
		return unreadable(err)
	}
	defer f.Close()
	var h [dbHeaderSize]byte
	n, err := f.ReadAt(h[:], 0)
	if err == io.EOF {
		return fmt.Errorf("%w: its file is cut to %d bytes", ErrDamaged, n)
	}
	if err != nil {
		return unreadable(err)
	}
	if _, err := parseDBHeader(h[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// unreadable tells a file that cannot be read from a process that has too many open.
func unreadable(err error) error {
	for _, own := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR} {
		if errors.Is(err, own) {
			return err
		}
	}
	return fmt.Errorf("%w: its file cannot be read: %w", ErrDamaged, err)
}
