package group

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// used gives a member whose folder holds a group of one, stopped, with a
// snapshot and a log after it.
func used(t *testing.T) *member {
	t.Helper()
	c := startCluster(t, 1, nil)
	m := c.members[0]
	c.propose("", putRegion("eu"))
	if err := m.g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.propose("", putRegion("us"))
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	return m
}

// refused opens the folder and wants a refusal that says all of words, and that
// nothing in the folder changes.
func refused(t *testing.T, m *member, words ...string) {
	t.Helper()
	before := contents(t, m.cfg.DataDir)
	err := m.open()
	var folder *FolderError
	if !errors.As(err, &folder) {
		t.Fatalf("open: %v, want a refusal of the folder", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	after := contents(t, m.cfg.DataDir)
	for name, text := range before {
		if filepath.Base(name) == raftFile && !strings.Contains(err.Error(), raftFile) {
			continue // it was opened and locked: bbolt counts that
		}
		if after[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		all[p] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A group opened over another region's directory refuses to start.
func TestG10AnotherRegionsDirectoryIsRefused(t *testing.T) {
	m := used(t)
	m.cfg.Region = "us"
	refused(t, m, `region "us"`, "all regions")
}

func TestFolderOfAnotherServerIsRefused(t *testing.T) {
	m := used(t)
	m.cfg.ID = "s9"
	refused(t, m, `"s1"`, `"s9"`)
}

func TestFolderOfANewerVersionIsRefused(t *testing.T) {
	m := used(t)
	rewriteFormat(t, m, func(f *format) { f.Format = formatVersion + 1 })
	refused(t, m, "newer version")
}

// The folder says one group and its log holds another's.
func TestDirectoryOfAnotherGroupIsRefused(t *testing.T) {
	m := used(t)
	rewriteFormat(t, m, func(f *format) { f.Cluster = "0123456789abcdef" })
	refused(t, m, "0123456789abcdef")
}

func rewriteFormat(t *testing.T, m *member, change func(*format)) {
	t.Helper()
	name := filepath.Join(m.cfg.DataDir, formatFile)
	var f format
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	change(&f)
	if text, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedFoldersAreRefused(t *testing.T) {
	snapshot := func(t *testing.T, m *member, file string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(m.cfg.DataDir, snapshotsDir, "*", file))
		if err != nil || len(found) != 1 {
			t.Fatalf("snapshots: %v, %v", found, err)
		}
		return found[0]
	}
	in := func(m *member, name string) string { return filepath.Join(m.cfg.DataDir, name) }
	for name, test := range map[string]struct {
		damage func(t *testing.T, m *member)
		says   string
	}{
		"format garbled":     {func(t *testing.T, m *member) { overwrite(t, in(m, formatFile), "{") }, "damaged"},
		"format gone":        {func(t *testing.T, m *member) { remove(t, in(m, formatFile)) }, "whose it is"},
		"log gone":           {func(t *testing.T, m *member) { remove(t, in(m, raftFile)) }, "is gone"},
		"log empty":          {func(t *testing.T, m *member) { truncate(t, in(m, raftFile), 0) }, "damaged"},
		"log cut short":      {func(t *testing.T, m *member) { truncate(t, in(m, raftFile), 12000) }, "cut short"},
		"log no log":         {func(t *testing.T, m *member) { overwrite(t, in(m, raftFile), strings.Repeat("x", 40000)) }, "damaged"},
		"snapshot garbled":   {func(t *testing.T, m *member) { overwrite(t, snapshot(t, m, "state.bin"), "x") }, "damaged"},
		"snapshot cut short": {func(t *testing.T, m *member) { truncate(t, snapshot(t, m, "state.bin"), 30) }, "damaged"},
		"snapshot no meta":   {func(t *testing.T, m *member) { overwrite(t, snapshot(t, m, "meta.json"), "{") }, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			m := used(t)
			test.damage(t, m)
			refused(t, m, test.says)
		})
	}
}

func overwrite(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

// A log that begins after the snapshot's end lacks entries.
func TestALostSnapshotIsRefused(t *testing.T) {
	f := &folder{dir: "d"}
	logs := raft.NewInmemStore()
	if err := logs.StoreLog(&raft.Log{Index: 10, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := checkContiguous(f, logs, 9); err != nil {
		t.Errorf("from 10 after 9: %v", err)
	}
	if err := checkContiguous(f, logs, 8); err == nil {
		t.Error("from 10 after 8: taken")
	}
}

func TestTwoProcessesDoNotShareAFolder(t *testing.T) {
	c := startCluster(t, 1, nil)
	other := c.newMember("s1")
	other.cfg.DataDir = c.members[0].cfg.DataDir
	if err := other.open(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("open: %v", err)
	}
}

func TestFolderIsClosedToOthersAndSwept(t *testing.T) {
	m := used(t)
	left := filepath.Join(m.cfg.DataDir, snapshotsDir, "1-2-3.tmp")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.cfg.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.start()
	if info, err := os.Stat(m.cfg.DataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, name := range []string{formatFile, raftFile} {
		if info, err := os.Stat(filepath.Join(m.cfg.DataDir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("leavings of a snapshot: %v", err)
	}
}

// A founder that stopped at any point of its first start founds the group when
// it is started again.
func TestFoundingIsDoneAgainAfterACrash(t *testing.T) {
	for name, at := range map[string]func(t *testing.T, f *folder){
		"nothing but the format": func(t *testing.T, f *folder) {
			if err := f.save(f.format); err != nil {
				t.Fatal(err)
			}
		},
		"a log without entries": func(t *testing.T, f *folder) { openAndClose(t, f, false) },
		"a term without entries": func(t *testing.T, f *folder) {
			openAndClose(t, f, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t: t}
			m := c.newMember("s1")
			m.cfg.Bootstrap = true
			f, err := openFolder(m.cfg.DataDir, "s1", "")
			if err != nil {
				t.Fatal(err)
			}
			at(t, f)
			m.start()
			defer c.close()
			c.awaitVoters(1)
		})
	}
}

func openAndClose(t *testing.T, f *folder, term bool) {
	t.Helper()
	m := newMachine(&Config{ID: "s1", Logger: logger()}, f)
	d, err := openDisk(f, m, logger())
	if err != nil {
		t.Fatal(err)
	}
	if term {
		next := f.format
		next.Founder, next.Cluster = true, newCluster()
		if err := f.save(next); err != nil {
			t.Fatal(err)
		}
		if err := d.votes.SetUint64(keyCurrentTerm, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}

// Term and candidate of a vote are on disk both or not at all, wherever the
// process dies.
func TestVoteIsWrittenWhole(t *testing.T) {
	f := &folder{dir: t.TempDir()}
	open := func() (*voteStore, func()) {
		bolt, err := openBolt(f)
		if err != nil {
			t.Fatal(err)
		}
		return &voteStore{StableStore: bolt}, func() { bolt.Close() }
	}
	s, end := open()
	if _, err := s.GetUint64(keyVoteTerm); err == nil || err.Error() != "not found" {
		t.Errorf("no vote yet: %v", err)
	}
	vote := func(term uint64, who string, crash bool) {
		if err := s.SetUint64(keyVoteTerm, term); err != nil {
			t.Fatal(err)
		}
		if !crash {
			if err := s.Set(keyVoteCand, []byte(who)); err != nil {
				t.Fatal(err)
			}
		}
		end() // the process dies
		s, end = open()
	}
	want := func(term uint64, who string) {
		t.Helper()
		gotTerm, err := s.GetUint64(keyVoteTerm)
		gotWho, err2 := s.Get(keyVoteCand)
		if err := errors.Join(err, err2); err != nil || gotTerm != term || string(gotWho) != who {
			t.Errorf("vote of term %d for %q, %v, want %d for %q", gotTerm, gotWho, err, term, who)
		}
	}
	vote(3, "a", false)
	want(3, "a")
	vote(4, "b", true)
	want(3, "a")
	vote(4, "b", false)
	want(4, "b")
	end()
}

// A server that cannot write its term waits for its disk, and can be stopped.
func TestTermWaitsForTheDisk(t *testing.T) {
	broken := &failingStable{err: errors.New("no space")}
	s := &voteStore{StableStore: broken}
	done := make(chan error, 1)
	go func() { done <- s.SetUint64(keyCurrentTerm, 7) }()
	eventually(t, "it tries again", func() bool { return broken.tries() > 2 })
	broken.set(nil)
	if err := <-done; err != nil {
		t.Errorf("once there is space: %v", err)
	}
	broken.set(errors.New("no space"))
	go func() { done <- s.SetUint64(keyCurrentTerm, 8) }()
	s.closing.Store(true)
	<-done
	if err := s.Set(keyVoteCand, []byte("a")); err == nil {
		t.Error("a vote is written while the server stops")
	}
}
