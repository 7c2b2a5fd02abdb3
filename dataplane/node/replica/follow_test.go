package replica

import (
	"fmt"
	"net/http"
	"testing"

	"domicile/dataplane/node/store"
	"domicile/internal/netfault"
	"domicile/internal/wait"
)

func pair(t *testing.T, cfg Config) (src, dst *node) {
	src, dst = newNode(t, cfg, store.Config{}), newNode(t, cfg, store.Config{})
	src.create("acme")
	src.must("acme", "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
	return src, dst
}

func insert(i int) string { return fmt.Sprintf("INSERT INTO t(b) VALUES('row %d')", i) }

// A copy begins with an image, goes on with entries, and is the same file.
func TestFollow(t *testing.T) {
	src, dst := pair(t, Config{})
	dst.follow("acme", src, "")
	dst.awaitState("acme", StateFollowing)
	for i := range 50 {
		src.must("acme", insert(i))
	}
	src.must("acme", "CREATE INDEX i ON t(b)", "DELETE FROM t WHERE a % 3 = 0")
	identical(t, "acme", src, dst)
	if got := src.r.Followers("acme"); len(got) != 1 || got[0] != dst.addr {
		t.Error(got)
	}
	if p, ok := src.r.Holds("acme", dst.addr); !ok || p != src.mark("acme").Position {
		wait.For(t, "the copy's position is told", func() error {
			if p, ok = src.r.Holds("acme", dst.addr); !ok || p != src.mark("acme").Position {
				return fmt.Errorf("%v %v", p, ok)
			}
			return nil
		})
	}
	// A repeated follow changes nothing, an unfollowed unit stands still.
	dst.follow("acme", src, "")
	dst.r.Unfollow("acme")
	at := dst.mark("acme")
	src.must("acme", insert(1000))
	if got := dst.mark("acme"); got != at {
		t.Error(got, at)
	}
	if s := dst.r.Status("acme"); s.From != "" {
		t.Error(s)
	}
}

// After a restart of either side a copy goes on by entries, not by an image.
func TestResume(t *testing.T) {
	src, dst := pair(t, Config{})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	dst.restart(func() {
		for i := range 20 {
			src.must("acme", insert(i))
		}
		dst.cfg.As, dst.cfg.Token = dst.addr, "secret"
	})
	if err := dst.r.Resume(); err != nil {
		t.Fatal(err)
	}
	identical(t, "acme", src, dst)
	src.restart()
	src.must("acme", insert(99))
	identical(t, "acme", src, dst)
	if n := dst.r.images.Load(); n != 0 {
		t.Errorf("%d images", n)
	}
}

// What the ring has dropped is made good by an image.
func TestFellBehindRing(t *testing.T) {
	src, dst := pair(t, Config{RingBytes: 100 << 10})
	k := src.link()
	dst.follow("acme", src, "http://"+k.Addr())
	dst.awaitState("acme", StateFollowing)
	equal(t, "acme", src, dst)
	was := dst.r.images.Load()
	k.Reset()
	for i := range 200 {
		src.must("acme", insert(i))
	}
	k.Heal()
	identical(t, "acme", src, dst)
	if dst.r.images.Load() == was {
		t.Error("no image")
	}
	if f := src.r.feed("acme"); f.ring.bytes > 100<<10 {
		t.Error(f.ring.bytes)
	}
}

// A commit too large for an entry ends in an image, and following goes on.
func TestCommitLargerThanAnEntry(t *testing.T) {
	src, dst := pair(t, Config{})
	dst.follow("acme", src, "")
	dst.awaitState("acme", StateFollowing)
	src.must("acme", "CREATE TABLE big(b BLOB)")
	src.must("acme", "INSERT INTO big WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 30) SELECT randomblob(400000) FROM n")
	src.must("acme", insert(1))
	src.alone("acme", "VACUUM")
	src.must("acme", insert(2))
	identical(t, "acme", src, dst)
	src.must("acme", insert(3))
	identical(t, "acme", src, dst)
}

// A link that is cut silently is noticed, whichever way is cut.
func TestHalfOpenLinks(t *testing.T) {
	for _, d := range []netfault.Direction{netfault.Forward, netfault.Backward} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			src, dst := pair(t, Config{})
			k := src.link()
			dst.follow("acme", src, "http://"+k.Addr())
			equal(t, "acme", src, dst)
			k.CutOne(d)
			src.must("acme", insert(1))
			wait.For(t, "the source notices", func() error {
				if f := src.r.Followers("acme"); len(f) != 0 {
					return fmt.Errorf("%v", f)
				}
				return nil
			})
			wait.For(t, "the follower notices", func() error {
				if s := dst.r.Status("acme"); s.State != StateConnecting || s.Error == "" {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
			k.Heal()
			identical(t, "acme", src, dst)
		})
	}
}

// What a source refuses is told, and tried again.
func TestRefusals(t *testing.T) {
	src, dst := pair(t, Config{})
	follow := func(unit string, id, epoch uint64) {
		t.Helper()
		if err := dst.r.Follow(ctx, unit, id, epoch, store.CopyOrdinary, src.addr, dst.addr, "secret"); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(unit, why string) {
		t.Helper()
		s := dst.awaitState(unit, StateStopped)
		t.Log(s.Error)
		if s.From != src.addr || s.Error == "" {
			t.Error(s)
		}
	}
	follow("nobody", 3, 1)
	refused("nobody", "unknown")
	follow("acme", 8, 1)
	refused("acme", "id")
	src.create("late")
	follow("late", 7, 5)
	refused("late", "epoch")
	for i, err := range src.s.Promote(ctx, 5, []store.UnitID{{Name: "late"}}) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	src.r.Promoted([]string{"late"})
	dst.awaitState("late", StateFollowing)
	src.create("nobody2")
	if _, err := src.s.Create(ctx, "nobody", 3); err != nil {
		t.Fatal(err)
	}
	dst.awaitState("nobody", StateFollowing)
	// A unit that is given up feeds nobody.
	if _, err := src.s.Update(ctx, "late", func(r *store.Record) error { r.State = store.Sent; return nil }); err != nil {
		t.Fatal(err)
	}
	src.r.Ended([]string{"late"})
	refused("late", "not primary")
}

func TestWrongToken(t *testing.T) {
	src, dst := pair(t, Config{})
	if err := dst.r.Follow(ctx, "acme", 7, 1, store.CopyOrdinary, src.addr, dst.addr, "wrong"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the refusal is told", func() error {
		if s := dst.r.Status("acme"); s.State != StateConnecting || !contains(s.Error, http.StatusText(http.StatusUnauthorized)) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	dst.follow("acme", src, "") // with the right one
	identical(t, "acme", src, dst)
}

// A copy that asks while its new primary is being promoted is sent away to ask again at
// once, not as after a failure: writes wait for it.
func TestACopyAsksWhileItsPrimaryIsPromoted(t *testing.T) {
	n := newNode(t, Config{}, store.Config{})
	n.create("acme")
	n.must("acme", "CREATE TABLE t(a)")
	rec, err := n.s.Get("acme")
	if err != nil {
		t.Fatal(err)
	}
	s, b := &session{r: n.r}, &sub{asked: follow{name: "acme", id: rec.ID}}
	promoted := make(chan struct{})
	go func() {
		defer close(promoted)
		for epoch := uint64(2); epoch < 200; epoch++ {
			n.promote(epoch, "acme")
		}
	}()
	for {
		if code, _, _, err := s.lookAt(t.Context(), b); err != nil && code != endNotPrimary {
			t.Errorf("it is told %v, with code %d", err, code)
		}
		select {
		case <-promoted:
			return
		default:
		}
	}
}
