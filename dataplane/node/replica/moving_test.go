package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// imagePair makes a source that keeps few entries, with a large unit, and a follower that
// calls step before it writes anything of an image.
func imagePair(t *testing.T, mib int, step func(src *node) error) (src, dst *node) {
	src = newNode(t, Config{RingBytes: 2 << 20}, store.Config{Sync: store.SyncNormal, CheckpointBytes: 1 << 20})
	src.big("acme", mib)
	dst = newNode(t, Config{}, store.Config{Sync: store.SyncNormal, Fault: func(op store.FileOp, _ string) error {
		if op == store.OpImage {
			return step(src)
		}
		return nil
	}})
	return src, dst
}

// left gives what lies in the node's tmp folder.
func (n *node) left() (names []string) {
	entries, err := os.ReadDir(filepath.Join(n.dir, "data", "tmp"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestM2AnImageConvergesHoweverMuchIsWritten: a commit for every second thing that the
// follower writes, in all more than the source keeps.
func TestM2AnImageConvergesHoweverMuchIsWritten(t *testing.T) {
	writes, calls := 0, 0
	src, dst := imagePair(t, 48, func(src *node) error {
		if calls++; calls%2 == 0 {
			return nil
		}
		writes++
		src.must("acme", "INSERT INTO t(b) VALUES(hex(randomblob(10000)))", fmt.Sprintf("UPDATE big SET b=zeroblob(5000+a) WHERE rowid=%d", writes%40+1))
		return nil
	})
	src.must("acme", "ALTER TABLE big ADD COLUMN a DEFAULT 7")
	dst.follow("acme", src, "")
	dst.awaitState("acme", StateFollowing)
	identical(t, "acme", src, dst)
	if got := dst.r.Images(); got != 1 || writes*20<<10 < src.cfg.RingBytes*3/2 {
		t.Errorf("%d images, %d writes", got, writes)
	}
	src.must("acme", insert(1))
	identical(t, "acme", src, dst)
	if got := dst.r.Images(); got != 1 || len(dst.left()) != 0 {
		t.Errorf("%d images, left: %v", got, dst.left())
	}
}

// TestM2AnImageThatIsCutIsNoCopy: the connection breaks when part of it is there.
func TestM2AnImageThatIsCutIsNoCopy(t *testing.T) {
	var step func(*node) error
	calls := 0
	src, dst := imagePair(t, 8, func(src *node) error { calls++; return step(src) })
	k := src.link()
	step = func(src *node) error {
		if calls == 12 {
			k.Reset()
			k.Heal()
		}
		return nil
	}
	dst.follow("acme", src, "http://"+k.Addr())
	identical(t, "acme", src, dst)
	if got := dst.r.Images(); got != 1 || calls < 12+8*4 || len(dst.left()) != 0 {
		t.Errorf("%d images in %d pieces, left: %v", got, calls, dst.left())
	}
}

// TestAFullDiskEndsAnImage: nothing is left of it, its follower tells why, and it comes
// once there is room.
func TestAFullDiskEndsAnImage(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	calls := 0
	src, dst := imagePair(t, 8, func(*node) error {
		if calls++; calls > 5 && full.Load() {
			return &os.PathError{Op: "write", Path: "image", Err: unix.ENOSPC}
		}
		return nil
	})
	dst.follow("acme", src, "")
	s := dst.awaitState("acme", StateStopped)
	if !contains(s.Error, store.ErrDiskFull.Error()) || len(dst.left()) != 0 {
		t.Errorf("%+v, left: %v", s, dst.left())
	}
	if m := dst.mark("acme"); m != (store.Mark{}) {
		t.Error(m)
	}
	src.must("acme", insert(1))
	full.Store(false)
	identical(t, "acme", src, dst)
}

// TestATargetStaysOneThroughAnImage; and a reader, which is of no account to its source.
func TestATargetStaysOneThroughAnImage(t *testing.T) {
	src, dst := imagePair(t, 2, func(*node) error { return nil })
	for kind, state := range map[store.CopyKind]store.State{store.CopyTarget: store.Receiving, store.CopyReader: store.Following} {
		if err := dst.r.Follow(ctx, "acme", 7, 1, kind, src.addr, dst.addr, "secret"); err != nil {
			t.Fatal(err)
		}
		equal(t, "acme", src, dst)
		rec, err := dst.s.Get("acme")
		if err != nil || rec.State != state || rec.Kind() != kind || rec.From != src.addr {
			t.Errorf("%+v %v", rec, err)
		}
		wait.For(t, "the source knows", func() error {
			if src.r.Targets("acme") != (kind == store.CopyTarget) {
				return fmt.Errorf("%v", kind)
			}
			return nil
		})
		dst.r.Unfollow("acme")
		if err := dst.s.Delete(ctx, "acme", 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := dst.r.Images(); got != 2 {
		t.Errorf("%d images", got)
	}
}
