package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// diskSync times fdatasync after a write of 4 KiB each, in milliseconds, with
// nothing else of this program running: what a commit costs at least.
func diskSync(dir string) (s sample, err error) {
	f, err := os.Create(filepath.Join(dir, "disk-sync"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	for i := range 200 {
		if _, err := f.WriteAt(page, int64(i)*4096); err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		s = append(s, millis(time.Since(begin)))
	}
	return s, nil
}
