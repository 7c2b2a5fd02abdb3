package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace has the file at path, which the owner alone may read, hold what write writes. When
// it returns nil that is on disk; when it does not, the file is as it was. What a crash leaves
// beside it (path.new) the next Replace overwrites; one path has one writer at a time.
func Replace(path string, write func(io.Writer) error) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceText is Replace by what is at hand.
func ReplaceText(path string, text []byte) error {
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// SyncDir puts the names of a folder's files on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
