package testcluster

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Where processes have disks of their own (Options.Disks), each is a file with
// an ext4 in it, mounted over the process's data folder: it fills up as a disk
// does, and syncs reach what is below.

// ballast is the file that fills a disk up.
const ballast = "ballast"

func mayMount() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	for _, program := range []string{"mkfs.ext4", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	return nil
}

// mountDisk makes a disk of that size in dir, and gives the data folder on it.
func mountDisk(t testing.TB, dir string, megabytes int64) string {
	t.Helper()
	image := dir + ".disk"
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, megabytes<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, bytes.TrimSpace(out))
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return filepath.Join(dir, "data")
}

// HasDisk reports whether the process has a disk of its own.
func (p *Process) HasDisk() bool { return p.disk }

// FillDisk fills the process's disk up, to the last byte.
func (p *Process) FillDisk() {
	p.t.Helper()
	if !p.disk {
		p.t.Fatalf("%s has no disk of its own: the deployment was started without Options.Disks", p.Name)
	}
	f, err := os.OpenFile(p.ballast(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		p.t.Fatal(err)
	}
	defer f.Close()
	for chunk := 1 << 20; chunk > 0; {
		switch _, err := f.Write(make([]byte, chunk)); {
		case errors.Is(err, syscall.ENOSPC):
			chunk /= 2
		case err != nil:
			p.t.Fatal(err)
		}
	}
}

// FreeDisk undoes FillDisk.
func (p *Process) FreeDisk() {
	p.t.Helper()
	if err := os.Remove(p.ballast()); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
}

func (p *Process) ballast() string { return filepath.Join(filepath.Dir(p.Data), ballast) }

// diskFor gives a process's data folder, on a disk of its own where that was
// asked for.
func (c *Cluster) diskFor(id string, megabytes int64) (data string, own bool) {
	c.t.Helper()
	dir := filepath.Join(c.dir, id)
	if !c.disks {
		return dir, false
	}
	return mountDisk(c.t, dir, megabytes), true
}

// checkDisks skips a test that asks for disks where it may not have any; unless
// they are only wanted.
func checkDisks(t testing.TB, o Options) (disks bool) {
	if o.Disks == NoDisks {
		return false
	}
	err := mayMount()
	if err != nil && o.Disks == NeedDisks {
		t.Skipf("disks of their own need root, mkfs.ext4 and mount: %v", err)
	}
	return err == nil
}
