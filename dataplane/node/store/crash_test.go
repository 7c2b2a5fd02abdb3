package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

const crashed = 99 // exit status of a child that died where it was told to

// crashChild makes, replaces and deletes units, and dies at the n-th labelled
// file call.
func crashChild(dir string) {
	at, _ := strconv.Atoi(os.Getenv("STORE_CRASH_AT"))
	n := 0
	s, err := Open(Config{Dir: dir, Fault: func(FileOp, string) error {
		if n++; n == at {
			os.Exit(crashed)
		}
		return nil
	}})
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	check(err)
	file, err := os.ReadFile(os.Getenv("STORE_CRASH_IMAGE"))
	check(err)
	n = 0
	ctx := context.Background()
	_, err = s.Create(ctx, "made", 1)
	check(err)
	_, err = s.Install(ctx, "replaced", 0, bytes.NewReader(file), ImageInfo{Size: -1})
	check(err)
	_, err = s.Install(ctx, "installed", 3, bytes.NewReader(file), ImageInfo{Size: -1})
	check(err)
	check(s.Delete(ctx, "deleted", 4))
	check(s.Close())
}

// TestCrashLeavesOldOrNew kills the process at each labelled file call of
// create, install and delete: each unit is then as before or as after.
func TestCrashLeavesOldOrNew(t *testing.T) {
	base := open(t, Config{})
	u := unit(t, base)
	write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES('new')")
	file, _ := image(t, u)
	imagePath := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(imagePath, file, 0o600); err != nil {
		t.Fatal(err)
	}
	before := t.TempDir()
	s := open(t, Config{Dir: before})
	for _, name := range []string{"replaced", "deleted"} {
		if _, err := s.Create(ctx, name, 4); err != nil {
			t.Fatal(err)
		}
		u, release, _ := s.Acquire(ctx, name)
		write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES('old')")
		write(t, u, "CREATE TABLE filler(a)")
		release()
	}
	s.Close()
	for at := 1; ; at++ {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(before)); err != nil {
			t.Fatal(err)
		}
		exe, _ := os.Executable()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "STORE_CRASH_DIR="+dir, "STORE_CRASH_IMAGE="+imagePath, fmt.Sprint("STORE_CRASH_AT=", at))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == crashed) {
			t.Fatalf("child: %v %s", err, out)
		}
		afterCrash(t, open(t, Config{Dir: dir}), at)
		if err == nil {
			if at < 12 {
				t.Fatalf("only %d labelled calls", at)
			}
			return
		}
	}
}

func afterCrash(t *testing.T, s *Store, at int) {
	t.Helper()
	state := func(name string) string {
		u, release, err := s.Acquire(ctx, name)
		if errors.Is(err, ErrUnknownUnit) {
			if _, err := os.Stat(s.unitPath(name)); err == nil {
				t.Errorf("crash at call %d: %s is unknown, its file is there", at, name)
			}
			return "absent"
		}
		if err != nil {
			t.Errorf("crash at call %d: %v", at, err)
			return "damaged"
		}
		defer release()
		rows, err := query(u, "SELECT a FROM t")
		if err != nil {
			rows = [][]string{{"empty"}}
		}
		return fmt.Sprint(rows[0][0], "@", u.Position())
	}
	want := map[string][]string{
		"made": {"absent", "empty@1:0"}, "installed": {"absent", "new@1:1"},
		"replaced": {"old@1:2", "new@1:3"}, "deleted": {"old@1:2", "absent"},
	}
	for name, either := range want {
		if got := state(name); got != either[0] && got != either[1] {
			t.Errorf("crash at call %d: %s is %q, want one of %q", at, name, got, either)
		}
	}
	if left := tmpFiles(t, s); len(left) != 0 {
		t.Errorf("crash at call %d: left behind: %v", at, left)
	}
}

func TestDataFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dir: dir})
	wantErr(t, err, ErrFormat)
	for _, format := range []string{"", "something else", "domicile-node 2 0123456789abcdef\n", "domicile-node 1 short\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "format"), []byte(format), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Open(Config{Dir: dir})
		wantErr(t, err, ErrFormat)
	}
	s := open(t, Config{})
	_, err = Open(Config{Dir: s.cfg.Dir})
	wantErr(t, err, ErrLocked)
}

func TestRecordsAndHolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	unit(t, s)
	no := errors.New("no")
	_, err := s.Update(ctx, "acme", func(r *Record) error { r.State = Garbage; return no })
	wantErr(t, err, no)
	r, err := s.Update(ctx, "acme", func(r *Record) error {
		r.State, r.Job, r.Destination, r.ID, r.Name, r.Epoch = Sent, "j1", "eu2", 99, "x", 99
		return nil
	})
	if want := (Record{Name: "acme", ID: 7, State: Sent, Epoch: 1, Job: "j1", Destination: "eu2"}); err != nil || r != want {
		t.Fatal(r, err)
	}
	h := Holder{"c1/global", 1, 5}
	wantErr(t, s.SetHolder(h, h), ErrConflict)
	if err := s.SetHolder(Holder{}, h); err != nil {
		t.Fatal(err)
	}
	wantErr(t, s.SetHolder(Holder{}, Holder{"c2", 1, 1}), ErrConflict)
	s.Close()
	s = open(t, Config{Dir: dir})
	if got := s.Holder(); got != h {
		t.Fatal(got)
	}
	if got, _ := s.Get("acme"); got != r {
		t.Fatal(got)
	}
}
