package replica

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"domicile/dataplane/node/store"
)

// saved gives a function that puts the node's data folder back to what it is now.
func saved(t *testing.T, n *node) (restore func()) {
	t.Helper()
	data, copied := filepath.Join(n.dir, "data"), filepath.Join(t.TempDir(), "copy")
	n.restart()
	n.close()
	if out, err := exec.Command("cp", "-a", data, copied).CombinedOutput(); err != nil {
		t.Fatal(string(out), err)
	}
	n.start()
	return func() {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", copied, data).CombinedOutput(); err != nil {
			t.Fatal(string(out), err)
		}
	}
}

// An old primary that comes back with commits after the fork keeps them aside,
// tells what it lost, and is the same file as the new primary's.
func TestOldPrimaryReturns(t *testing.T) {
	old, next := pair(t, Config{})
	k := old.link()
	next.follow("acme", old, "http://"+k.Addr())
	shared := old.must("acme", insert(1))
	equal(t, "acme", old, next)
	k.Reset()
	old.must("acme", "INSERT INTO t(b) VALUES('only here')")
	lost := old.must("acme", insert(2))
	next.promote(7, "acme")
	next.must("acme", insert(3))

	old.follow("acme", next, "")
	identical(t, "acme", next, old)
	check := func() {
		t.Helper()
		got := old.r.Status("acme").Lost
		if got == nil || got.From != shared || got.To != lost {
			t.Fatalf("%+v, want %s to %s", got, shared, lost)
		}
		files, err := old.s.AsideFiles()
		if err != nil || len(files["acme"]) != 1 || files["acme"][0].Position != lost {
			t.Fatal(files, err)
		}
	}
	check()
	old.restart(func() { old.cfg.As, old.cfg.Token = old.addr, "secret" })
	check() // it is durable
	if err := old.r.Resume(); err != nil {
		t.Fatal(err)
	}
	next.must("acme", insert(4))
	identical(t, "acme", next, old)
	check()
}

// One that has nothing of its own comes back by entries.
func TestOldPrimaryReturnsWithNothingLost(t *testing.T) {
	old, next := pair(t, Config{})
	next.follow("acme", old, "")
	next.awaitState("acme", StateFollowing)
	for i := range 10 {
		old.must("acme", insert(i))
	}
	equal(t, "acme", old, next)
	next.promote(7, "acme")
	images := old.r.Images()
	old.follow("acme", next, "")
	equal(t, "acme", next, old) // the new epoch without a commit
	next.must("acme", insert(11))
	identical(t, "acme", next, old)
	if old.r.Images() != images || old.r.Status("acme").Lost != nil {
		t.Error("an image came", old.r.Status("acme").Lost)
	}
}

// After a failover the other copy goes on from the new primary without an
// image, even where it is a few commits behind.
func TestSecondCopyGoesOnFromTheNewPrimary(t *testing.T) {
	old, next := pair(t, Config{})
	third := newNode(t, Config{}, store.Config{})
	k := old.link()
	next.follow("acme", old, "")
	third.follow("acme", old, "http://"+k.Addr())
	for _, n := range []*node{next, third} {
		n.awaitState("acme", StateFollowing)
		equal(t, "acme", old, n)
	}
	images := third.r.Images()
	k.Reset()
	for i := range 5 {
		old.must("acme", insert(i))
	}
	equal(t, "acme", old, next)
	next.promote(7, "acme")
	third.follow("acme", next, "")
	next.must("acme", insert(9))
	identical(t, "acme", next, third)
	if third.r.Images() != images {
		t.Error("an image was taken")
	}
}

// A unit with another history at the same position is found out by its chain,
// kept aside, and replaced.
func TestOtherHistoryAtTheSamePosition(t *testing.T) {
	src, dst := pair(t, Config{})
	other := newNode(t, Config{}, store.Config{})
	other.create("acme")
	other.must("acme", "CREATE TABLE u(x)")
	if a, b := src.mark("acme"), other.mark("acme"); a.Position != b.Position || a.Chain == b.Chain {
		t.Fatal(a, b)
	}
	dst.follow("acme", other, "")
	equal(t, "acme", other, dst)
	dst.follow("acme", src, "")
	identical(t, "acme", src, dst)
	if l := dst.r.Status("acme").Lost; l == nil || l.To != other.mark("acme").Position {
		t.Errorf("%+v", l)
	}
	src.must("acme", insert(1))
	identical(t, "acme", src, dst)
}
