package group

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"domicile/internal/durable"
)

// keepBefore copies what the folder holds into a folder in it, before a recovery
// changes it, and gives its path. One that is there already stays: it is from
// before the first attempt.
func (f *folder) keepBefore(name string) (string, error) {
	to := f.path(name)
	fail := func(err error) (string, error) {
		return "", f.refuse("what it holds cannot be kept in %s: %v", to, err)
	}
	if _, err := os.Stat(to); err == nil {
		return to, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	tmp := to + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return fail(err)
	}
	for _, part := range []string{formatFile, raftFile, snapshotsDir} {
		if err := copyTree(f.path(part), filepath.Join(tmp, part)); err != nil {
			return fail(err)
		}
	}
	if err := errors.Join(durable.SyncDir(tmp), os.Rename(tmp, to), durable.SyncDir(f.dir)); err != nil {
		return fail(err)
	}
	return to, nil
}

// copyTree copies a file, or a folder with what is in it; one that is not there is
// no error.
func copyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if target := filepath.Join(to, rest); d.IsDir() {
			return os.MkdirAll(target, 0o700)
		} else {
			return copyFile(path, target)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
