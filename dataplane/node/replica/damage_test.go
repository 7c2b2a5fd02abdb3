package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// path is a unit's file.
func (n *node) path(name string) string {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.dir, "data", "units", "*", name+".db"))
	if err != nil || len(found) != 1 {
		n.t.Fatal(found, err)
	}
	return found[0]
}

func spoil(t *testing.T, path string, from, to int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < min(to, len(b)); i++ {
		b[i] = 0xa5
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func imagesCame(n *node, want uint64) error {
	if have := n.r.Images(); have != want {
		return fmt.Errorf("%d images came, want %d", have, want)
	}
	return nil
}

const big = "INSERT INTO t(b) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100) SELECT hex(randomblob(2000)) FROM n"

// TestACopyAlteredWhileItWasStopped is refused with a reason, and an image takes its
// place by itself, whatever was done to its files; nothing is lost, and the source and
// other units notice nothing.
func TestACopyAlteredWhileItWasStopped(t *testing.T) {
	for name, alter := range map[string]func(t *testing.T, path string){
		"header":          func(t *testing.T, path string) { spoil(t, path, 0, 100) },
		"missing":         func(t *testing.T, path string) { os.Remove(path) },
		"cut":             func(t *testing.T, path string) { os.Truncate(path, 50) },
		"position record": func(t *testing.T, path string) { spoil(t, strings.TrimSuffix(path, ".db")+".pos", 20, 30) },
		"an older WAL": func(t *testing.T, path string) {
			os.Remove(path + "-wal")
			os.WriteFile(path+"-wal", []byte(strings.Repeat("x", 5000)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := pair(t, Config{AckReplica: true})
			dst.follow("acme", src, "")
			src.must("acme", big)
			equal(t, "acme", src, dst)
			wait.For(t, "the copy's image is counted", func() error { return imagesCame(dst, 1) })
			dst.close()
			alter(t, dst.path("acme"))
			src.must("acme", insert(1)) // the copy does not count
			dst.start()
			dst.r.introduce(dst.addr, src.addr, "secret")
			if err := dst.r.Resume(); err != nil {
				t.Fatal(err)
			}
			identical(t, "acme", src, dst)
			wait.For(t, "an image has come again", func() error { return imagesCame(dst, 1) })
			src.inSync("acme", dst)
			src.must("acme", insert(2))
			identical(t, "acme", src, dst)
		})
	}
}

// TestACopyAlteredWhileItRuns: a read of the copy meets the damage, or an entry does not
// find its file: an image takes its place by itself.
func TestACopyAlteredWhileItRuns(t *testing.T) {
	closing := store.Config{IdleClose: 20 * time.Millisecond}
	begin := func(t *testing.T) (src, dst *node) {
		src, dst = pair(t, Config{})
		dst.restart(func() { dst.scfg = closing })
		dst.follow("acme", src, "")
		src.must("acme", big)
		equal(t, "acme", src, dst)
		wait.For(t, "the copy is closed", func() error {
			if n := dst.s.Stats().OpenUnits; n > 0 {
				return fmt.Errorf("%d are open", n)
			}
			return nil
		})
		return src, dst
	}
	t.Run("its header", func(t *testing.T) {
		src, dst := begin(t)
		spoil(t, dst.path("acme"), 0, 100)
		src.must("acme", insert(1))
		identical(t, "acme", src, dst)
	})
	t.Run("a page", func(t *testing.T) {
		src, dst := begin(t)
		spoil(t, dst.path("acme"), 4096*10, 4096*40)
		u, release, err := dst.s.Acquire(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		err = u.Read(ctx, func(c *store.Conn) error {
			_, _, err := c.Exec("SELECT sum(length(b)) FROM t", nil, func(*store.Row) error { return nil })
			return err
		})
		release()
		if !errors.Is(err, store.ErrDamaged) {
			t.Fatal(err)
		}
		wait.For(t, "the damage is known", func() error {
			if dst.s.Damage("acme") == nil {
				return errors.New("it is not")
			}
			return nil
		})
		dst.r.mend() // as Run does every few seconds
		wait.For(t, "an image has come", func() error { return dst.s.Damage("acme") })
		identical(t, "acme", src, dst)
	})
}

// TestAChecksumThatDiffersStopsTheFollower: an entry whose content is not what its chain
// says is not applied; the copy says so, keeps what it has, and takes an image.
func TestAChecksumThatDiffersStopsTheFollower(t *testing.T) {
	src, dst := pair(t, Config{})
	k := src.link()
	dst.follow("acme", src, "http://"+k.Addr())
	before := src.must("acme", insert(1))
	equal(t, "acme", src, dst)
	images := dst.r.Images()
	k.Reset()
	src.must("acme", insert(2))
	f := src.r.feed("acme")
	f.mu.Lock()
	e := f.ring.after(before.Seq)
	e.payload[len(e.payload)-1] ^= 1 // of the last page
	f.mu.Unlock()
	told := make(chan string, 1)
	end := background(t, func(stop <-chan struct{}) {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if s := dst.r.Status("acme"); strings.Contains(s.Error, "entry") {
				select {
				case told <- s.Error:
				default:
				}
				if p := dst.mark("acme").Position; p.Compare(before) < 0 {
					t.Errorf("the copy went back to %s", p)
				}
			}
		}
	})
	k.Heal()
	wait.For(t, "an image has come", func() error {
		if dst.r.Images() == images {
			return fmt.Errorf("%+v", dst.r.Status("acme"))
		}
		return nil
	})
	end()
	select {
	case why := <-told:
		t.Log(why)
	default:
		t.Error("the copy did not say that an entry was altered")
	}
	identical(t, "acme", src, dst)
}

// TestTheCopyThatIsFurthestAheadIsNamedFirst: and a handover to a copy that is ahead does
// not wait (architecture §3.7.4); to one whose history was left it does.
func TestTheCopyThatIsFurthestAheadIsNamedFirst(t *testing.T) {
	src, one := pair(t, Config{})
	two := newNode(t, Config{}, store.Config{})
	if two.addr < one.addr { // by address it comes second
		one, two = two, one
	}
	k := src.link()
	one.follow("acme", src, "http://"+k.Addr())
	two.follow("acme", src, "")
	equal(t, "acme", src, one, two)
	lose := saved(t, src)
	at := src.mark("acme").Position
	src.must("acme", insert(1))
	equal(t, "acme", src, one, two)
	k.Cut()
	src.must("acme", insert(2))
	equal(t, "acme", src, two)
	src.restart(lose)
	k.Reset() // what is under way to one does not arrive after all
	k.Heal()
	src.inSync("acme", one, two)
	for _, n := range []*node{one, two} {
		n.awaitState("acme", StateAhead)
	}
	if _, behind := src.r.Report(); !slices.Equal(behind["acme"], []string{two.addr, one.addr}) {
		t.Errorf("%v, want %s first, then %s", behind, two.addr, one.addr)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, n := range []*node{one, two} {
		if err := src.r.WaitHeld(short, "acme", n.addr, at); err != nil {
			t.Error(err)
		}
	}
	two.promote(9, "acme")
	src.follow("acme", two, "")
	one.follow("acme", two, "")
	identical(t, "acme", two, src, one)
}
