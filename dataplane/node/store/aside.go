package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"domicile/internal/durable"
)

// AsideFile is a database that was kept when its branch was given up.
type AsideFile struct {
	Unit     string
	Path     string
	Position Position
	At       time.Time
	Bytes    int64
}

func (s *Store) asideDir() string { return filepath.Join(s.cfg.Dir, "aside") }

// SetAside keeps a copy of what the unit has as a plain SQLite file,
// aside/<unit>@<epoch>-<seq>@<unix ms>.db in the data folder, and gives its
// path and the mark that it has. The unit stays as it is. ErrUnknownUnit,
// ErrNeedsImage, ErrDamaged, ErrDiskFull, ErrIO.
func (s *Store) SetAside(ctx context.Context, unit string) (path string, m Mark, err error) {
	u, release, err := s.Acquire(ctx, unit)
	if err != nil {
		return "", Mark{}, err
	}
	defer release()
	img, err := u.Image(ctx)
	if err != nil {
		return "", Mark{}, err
	}
	defer img.Close()
	m = Mark{img.Position, img.Chain}
	path = filepath.Join(s.asideDir(), asideName(unit, m.Position)+asideSuffix)
	if err := s.writeAside(path, img); err != nil {
		return "", Mark{}, &UnitError{Unit: unit, Op: "keep a file aside", Err: diskError(err), Hint: "check the node's disk"}
	}
	return path, m, nil
}

// Names in aside/ are asideName and one of these.
const (
	asideSuffix   = ".db"
	damagedSuffix = ".damaged.db" // see KeepDamaged
)

func asideName(unit string, p Position) string {
	return fmt.Sprintf("%s@%d-%d@%d", unit, p.Epoch, p.Seq, time.Now().UnixMilli())
}

// makeAside makes the folder where it is not there.
func (s *Store) makeAside() error {
	err := os.Mkdir(s.asideDir(), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(s.cfg.Dir)
}

func (s *Store) writeAside(path string, img *Image) error {
	if err := s.fault(OpAside, img.u.name); err != nil {
		return err
	}
	if err := s.makeAside(); err != nil {
		return err
	}
	// Written in tmp/, which is emptied at start: what is in aside/ is whole.
	tmp := filepath.Join(s.tmpDir(), filepath.Base(path))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = img.WriteTo(f)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = s.fault(OpAside, img.u.name)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// AsideFiles lists the databases that SetAside and KeepDamaged have kept, by unit, oldest
// first.
func (s *Store) AsideFiles() (map[string][]AsideFile, error) {
	entries, err := os.ReadDir(s.asideDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is kept aside: %w", err)
	}
	out := map[string][]AsideFile{}
	for _, e := range entries {
		a, ok := parseAside(e.Name())
		info, err := e.Info()
		if !ok || err != nil {
			continue // someone else's, or removed meanwhile
		}
		a.Path, a.Bytes = filepath.Join(s.asideDir(), e.Name()), info.Size()
		out[a.Unit] = append(out[a.Unit], a)
	}
	for _, files := range out {
		slices.SortFunc(files, func(a, b AsideFile) int { return a.At.Compare(b.At) })
	}
	return out, nil
}

// parseAside reads a name that SetAside or KeepDamaged has given.
func parseAside(name string) (a AsideFile, ok bool) {
	if name, ok = strings.CutSuffix(name, damagedSuffix); !ok {
		name, ok = strings.CutSuffix(name, asideSuffix)
	}
	f := strings.Split(name, "@")
	if !ok || len(f) != 3 || checkName(f[0]) != nil {
		return a, false
	}
	p, err1 := ParsePosition(strings.Replace(f[1], "-", ":", 1))
	ms, err2 := strconv.ParseInt(f[2], 10, 64)
	return AsideFile{Unit: f[0], Position: p, At: time.UnixMilli(ms)}, err1 == nil && err2 == nil
}
