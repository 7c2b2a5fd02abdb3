package store

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// work runs random statements of all kinds on a primary.
type work struct {
	r *rand.Rand
	n int
}

func (w *work) step(t testing.TB, u *Unit) {
	t.Helper()
	w.n++
	switch k := w.r.IntN(20); {
	case k < 9:
		write(t, u, fmt.Sprintf("INSERT INTO t(b) VALUES(randomblob(%d))", w.r.IntN(3000)))
	case k < 11:
		write(t, u, fmt.Sprintf("UPDATE t SET b=randomblob(%d) WHERE a%%%d=0", w.r.IntN(600), 2+w.r.IntN(9)))
	case k < 12:
		write(t, u, fmt.Sprintf("DELETE FROM t WHERE a%%%d=1", 2+w.r.IntN(4)))
	case k < 13:
		write(t, u, fmt.Sprintf("CREATE TABLE x%d(a PRIMARY KEY, b)", w.n), fmt.Sprintf("INSERT INTO x%d SELECT a, hex(b) FROM t LIMIT 20", w.n), fmt.Sprintf("CREATE INDEX i%d ON x%d(b)", w.n, w.n))
	case k < 14:
		if rows, _ := query(u, "SELECT name FROM sqlite_schema WHERE name GLOB 'x*' LIMIT 1"); len(rows) == 1 {
			write(t, u, "DROP TABLE "+rows[0][0])
		}
	case k < 15:
		write(t, u, fmt.Sprintf("ALTER TABLE t ADD COLUMN c%d DEFAULT 7", w.n))
	case k < 16:
		write(t, u, "INSERT INTO t(b) VALUES(randomblob(300000))")
	case k < 17: // a spill that is rolled back, and one that stays
		write(t, u, "SAVEPOINT s", "INSERT INTO t(b) SELECT randomblob(20000) FROM (VALUES(1),(2),(3),(4)), t LIMIT 120", "ROLLBACK TO s", "INSERT INTO t(b) VALUES('kept')")
	case k < 18:
		write(t, u, "PRAGMA incremental_vacuum(3)", "INSERT INTO t(b) VALUES(1)")
	case k < 19:
		if err := manual(u, "VACUUM"); err != nil {
			t.Fatal(err)
		}
	default:
		write(t, u, "DELETE FROM t WHERE a%3<2")
	}
}

// vacuumed makes a primary whose file has the given auto_vacuum, and a copy of it.
func vacuumed(t *testing.T, mode int) (*Unit, *source, *Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	r, err := openRaw(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.exec(fmt.Sprintf("PRAGMA auto_vacuum=%d; PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b)", mode)); err != nil {
		t.Fatal(err)
	}
	r.close()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	src := new(source)
	ps := open(t, Config{CheckpointBytes: 150 << 10, Sink: func(u *Unit) Sink { src.u = u; return src }})
	if _, err := ps.Install(ctx, "acme", 7, readerOf(file), ImageInfo{Size: -1}); err != nil {
		t.Fatal(err)
	}
	p := acquire(t, ps, "acme")
	f := follower(t, Config{CheckpointBytes: 100 << 10})
	seed(t, p, f)
	return p, src, f
}

// seed gives a copy an image of a primary.
func seed(t testing.TB, p *Unit, f *Store) {
	t.Helper()
	img, err := p.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		img.WriteTo(w)
		w.Close()
	}()
	defer r.Close()
	_, err = f.Install(ctx, "acme", 7, r, ImageInfo{Size: img.Size, Sum: func() string { <-sent; return img.Sum() },
		Position: img.Position, Chain: img.Chain, Lineage: img.Lineage, State: Following, From: "http://a:1"})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCopyIsTheSameFile: whatever the primary does, applied singly or merged,
// with readers that must see whole transactions meanwhile.
func TestCopyIsTheSameFile(t *testing.T) {
	for mode := range 3 {
		t.Run(fmt.Sprint("auto_vacuum ", mode), func(t *testing.T) {
			p, src, f := vacuumed(t, mode)
			w := work{r: rand.New(rand.NewPCG(1, uint64(mode)))}
			write(t, p, "CREATE TABLE pair(a, b)", "INSERT INTO pair VALUES(50, 50)")
			copyUnit := acquire(t, f, "acme")
			stop := make(chan struct{})
			var wg sync.WaitGroup
			apply(t, f, src.after(copyUnit.Position()))
			for range 2 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						rows, err := query(copyUnit, "SELECT a+b, (SELECT count(*) FROM t WHERE b IS 0) FROM pair")
						if err != nil || rows[0][0] != "100" {
							t.Error("torn: ", rows, err)
							return
						}
					}
				})
			}
			for i := range 80 {
				w.step(t, p)
				write(t, p, fmt.Sprint("UPDATE pair SET a=", i, ", b=100-", i))
				if w.r.IntN(3) == 0 {
					apply(t, f, src.after(copyUnit.Position()))
				}
				if i%40 == 39 {
					apply(t, f, src.after(copyUnit.Position()))
					sameFile(t, p, copyUnit)
				}
			}
			close(stop)
			wg.Wait()
			if got := one(t, copyUnit, "PRAGMA integrity_check"); got != "ok" {
				t.Error(got)
			}
			if f.Stats().Checkpoints == 0 {
				t.Error("no checkpoint on the copy")
			}
		})
	}
}

// snapshots copies a folder at each labelled call.
type snapshots struct {
	dir, to string
	dirs    []string
	on      bool
	mu      sync.Mutex
}

func (s *snapshots) fault(op FileOp, _ string) error {
	if !s.on {
		return nil
	}
	s.mu.Lock() // the WAL and the side record are synced side by side
	defer s.mu.Unlock()
	to := filepath.Join(s.to, fmt.Sprintf("%d-%s", rand.Int64(), op))
	if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
		return err
	}
	s.dirs = append(s.dirs, to)
	return nil
}

// TestCrashOfCopy: at each labelled point of applying, checkpoints and a
// promotion the folder gives the exact mark of something that was there.
func TestCrashOfCopy(t *testing.T) {
	_, p, src := primary(t, Config{})
	snap := snapshots{dir: t.TempDir(), to: t.TempDir()}
	f := follower(t, Config{Dir: snap.dir, CheckpointBytes: 20 << 10, Fault: snap.fault})
	write(t, p, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	for range 12 {
		write(t, p, "INSERT INTO t(b) VALUES(randomblob(5000))")
	}
	all := src.after(Position{})
	marks := map[Mark]bool{{}: true, {all[0].Prev.Position, 0}: true}
	for _, e := range all {
		marks[Mark{e.Position, e.Chain}] = true
	}
	snap.on = true
	u := acquire(t, f, "acme")
	for i := 0; i < len(all); i += 2 {
		apply(t, f, all[i:min(i+2, len(all))])
		u.checkpoint()
	}
	snap.on = false
	check := func(dir string, promoted bool) {
		k := open(t, Config{Dir: dir})
		defer k.Close()
		m, err := k.Mark(ctx, "acme")
		if err != nil || !marks[m] {
			t.Fatalf("%s: %v, %v", dir, m, err)
		}
		ku, release, err := k.Acquire(ctx, "acme")
		if err != nil || ku.Mark() != m {
			t.Fatalf("%s: %v, %v, %v", dir, m, ku.Mark(), err)
		}
		defer release()
		if m.Position.Seq > 0 {
			if n := one(t, ku, "SELECT count(*)+1 FROM t"); n != fmt.Sprint(m.Position.Seq) {
				t.Fatalf("%s: at %v with content %s", dir, m, n)
			}
		}
		if !promoted {
			if got := apply(t, k, all); got != (Mark{all[12].Position, all[12].Chain}) {
				t.Fatalf("%s: %v", dir, got)
			}
			sameFile(t, p, ku)
		}
	}
	for _, dir := range snap.dirs {
		check(dir, false)
	}
	if len(snap.dirs) < 30 {
		t.Fatal("only ", len(snap.dirs))
	}
	snap.dirs, snap.on = nil, true
	promote(t, f, 3)
	end := u.Mark()
	marks[end] = true
	for i := range 6 {
		write(t, u, fmt.Sprintf("INSERT INTO t VALUES(%d, randomblob(5000))", 100+i))
		marks[u.Mark()] = true
		u.checkpoint()
	}
	snap.on = false
	if len(snap.dirs) < 10 {
		t.Fatal("only ", len(snap.dirs))
	}
	for _, dir := range snap.dirs {
		check(dir, true)
	}
	lossOfSideRecord(t, snap.dir)
}

// lossOfSideRecord: what only the side record told is not made up.
func lossOfSideRecord(t *testing.T, _ string) {
	_, p, src := primary(t, Config{})
	dir := t.TempDir()
	f := follower(t, Config{Dir: dir})
	write(t, p, "CREATE TABLE t(a)")
	apply(t, f, src.after(Position{}))
	write(t, p, "INSERT INTO t VALUES(1)")
	apply(t, f, src.after(Position{Seq: 1}))
	dead := t.TempDir()
	if err := os.CopyFS(dead, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(applyPath(filepath.Join(dead, "units", shardOf("acme"), "acme.db")), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, 2*appliedSlot)
	file.ReadAt(b, 0)
	newest := int64(0)
	if a, _ := decodeApplied(b[appliedSlot:]); a.Number == 2 || a.After.Position.Seq == 2 {
		newest = appliedSlot
	}
	file.WriteAt(make([]byte, appliedSize), newest)
	k := open(t, Config{Dir: dead})
	_, err = k.Mark(ctx, "acme")
	wantErr(t, err, ErrNeedsImage)
	_, _, err = k.Acquire(ctx, "acme")
	wantErr(t, err, ErrNeedsImage)
	wantErr(t, k.Promote(ctx, 3, []UnitID{{"acme", 7}})[0], ErrNeedsImage)
	seed(t, p, k)
	sameFile(t, p, acquire(t, k, "acme"))
}

// TestFailedApplyHasNoEffect: at each labelled call.
func TestFailedApplyHasNoEffect(t *testing.T) {
	_, p, src := primary(t, Config{})
	var fail FileOp
	boom := errors.New("boom")
	f := follower(t, Config{Fault: func(op FileOp, _ string) error {
		if op == fail {
			return boom
		}
		return nil
	}})
	write(t, p, "CREATE TABLE t(a)")
	apply(t, f, src.after(Position{}))
	u := acquire(t, f, "acme")
	for i, op := range []FileOp{OpApply, OpCommit, OpSync, OpApply, OpCommit} {
		write(t, p, fmt.Sprint("INSERT INTO t VALUES(", i, ")"))
		write(t, p, fmt.Sprint("INSERT INTO t VALUES(", i, ")"))
		before := u.Mark()
		fail = op
		_, err := f.Apply(ctx, "acme", src.after(before.Position))
		wantErr(t, err, boom)
		if u.Mark() != before || (op != OpSync && errors.Is(err, ErrOutcomeUnknown)) {
			t.Fatal(op, u.Mark(), err)
		}
		fail = ""
		if m := apply(t, f, src.after(before.Position)); m != p.Mark() {
			t.Fatal(m)
		}
		sameFile(t, p, u)
	}
}

// copyChild applies what the parent has prepared in files, and tells each mark.
func copyChild(dir string) {
	from, err := Open(Config{Dir: os.Getenv("STORE_COPY_FROM")})
	check := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	check(err)
	src := new(source)
	from.cfg.Sink = func(u *Unit) Sink { src.u = u; return src }
	s, err := Open(Config{Dir: dir, CheckpointBytes: 30 << 10})
	check(err)
	p, _, err := from.Acquire(ctx, "acme")
	check(err)
	m, err := s.Mark(ctx, "acme")
	check(err)
	if m != p.Mark() {
		fmt.Println("error: the copy is at", m, "the primary at", p.Mark())
		os.Exit(1)
	}
	for i := 0; ; i++ {
		for range 1 + rand.IntN(3) {
			_, err := p.Write(ctx, func(c *Conn) error {
				_, _, err := c.Exec("INSERT INTO t(b) VALUES(randomblob(abs(random())%5000))", nil, nil)
				return err
			})
			check(err)
		}
		m, err := s.Apply(ctx, "acme", src.after(m.Position))
		check(err)
		src.mu.Lock()
		src.entries = nil
		src.mu.Unlock()
		fmt.Println("at", m.Position)
	}
}

// TestKilledCopyKnowsItsMark kills a process with a primary and its copy, again
// and again: what was applied is there, and the copy's mark is one that the
// primary had: what it lacks continues it.
func TestKilledCopyKnowsItsMark(t *testing.T) {
	pdir, fdir := t.TempDir(), t.TempDir()
	ps, p, src := primary(t, Config{Dir: pdir})
	f := follower(t, Config{Dir: fdir})
	write(t, p, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	apply(t, f, src.after(Position{}))
	ps.Close()
	f.Close()
	for range 6 {
		seen := killCopy(t, pdir, fdir, 5+rand.IntN(60))
		ps := open(t, Config{Dir: pdir})
		f := open(t, Config{Dir: fdir})
		m, err := f.Mark(ctx, "acme")
		if err != nil || m.Position.String() == "" || m.Position.Compare(seen) < 0 {
			t.Fatal(m, seen, err)
		}
		pu, fu := acquire(t, ps, "acme"), acquire(t, f, "acme")
		if got := one(t, fu, "SELECT count(*)+1 FROM t"); got != fmt.Sprint(m.Position.Seq) {
			t.Fatalf("at %v with %s", m, got)
		}
		if pm := pu.Mark(); pm.Position == m.Position && pm != m {
			t.Fatal(pm, m)
		}
		seed(t, pu, f)
		sameFile(t, pu, acquire(t, f, "acme"))
		ps.Close()
		f.Close()
	}
}

func killCopy(t *testing.T, pdir, fdir string, lines int) (last Position) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "STORE_COPY_DIR="+fdir, "STORE_COPY_FROM="+pdir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(stdout)
	for n := 0; in.Scan(); n++ {
		at, ok := strings.CutPrefix(in.Text(), "at ")
		if !ok {
			t.Error(in.Text())
			break
		}
		last, _ = ParsePosition(at)
		if n == lines {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	return last
}

// FuzzApply: whatever comes, it is refused without effect or is what the
// primary committed.
func FuzzApply(f *testing.F) {
	f.Add([]byte{}, uint16(0), byte(0))
	f.Add([]byte{1, 2, 3}, uint16(4090), byte(1))
	f.Add([]byte{0, 0, 0, 9}, uint16(28), byte(2))
	_, p, src := primary(f, Config{})
	write(f, p, "CREATE TABLE t(a)")
	write(f, p, "INSERT INTO t VALUES(randomblob(9000))")
	write(f, p, "DELETE FROM t")
	entries := src.after(Position{})
	s := follower(f, Config{})
	apply(f, s, entries[:1])
	f.Fuzz(func(t *testing.T, b []byte, at uint16, what byte) {
		es := slices.Clone(entries[1:])
		e := &es[int(what)%2]
		switch what % 7 {
		case 0, 1:
			e.Pages = slices.Clone(e.Pages)
			pg := &e.Pages[int(what/7)%len(e.Pages)]
			pg.Data = slices.Clone(pg.Data)
			copy(pg.Data[int(at)%len(pg.Data):], b)
			if slices.Equal(pg.Data, entries[1+int(what)%2].Pages[int(what/7)%len(e.Pages)].Data) {
				return
			}
		case 2:
			e.DBPages += uint32(at) + 1
		case 3:
			e.Prev.Chain ^= uint64(at) + 1
		case 4:
			e.Position.Seq += uint64(at) + 1
		case 5:
			e.Pages = slices.Clone(e.Pages)
			e.Pages[0].Number += uint32(at) + 1
		case 6:
			e.Pages = slices.Clone(e.Pages)
			e.Pages[len(e.Pages)-1].Data = b
		}
		before, _ := s.Mark(ctx, "acme")
		if _, err := s.Apply(ctx, "acme", es); err == nil {
			t.Fatal("taken")
		}
		if after, err := s.Mark(ctx, "acme"); after != before {
			t.Fatal(before, after, err)
		}
	})
}
