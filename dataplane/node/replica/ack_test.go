package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/netfault"
	"domicile/internal/wait"
)

func lagging(n *node, unit string) []string { l, _ := n.r.Report(); return l[unit] }

// With ack=replica a write returns when each in-sync copy has it on disk, and
// not before.
func TestAckReplicaWaitsForInSyncCopies(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	k := src.link()
	src.inSync("acme")
	dst.follow("acme", src, "http://"+k.Addr())
	equal(t, "acme", src, dst)
	src.inSync("acme", dst)
	wait.For(t, "the copy does not lag", func() error { return noneLag(src, "acme") })
	for i := range 20 {
		p := src.must("acme", insert(i))
		if m := dst.mark("acme"); m.Position != p {
			t.Fatalf("acknowledged at %s, the copy has %s", p, m.Position)
		}
	}
	k.Cut()
	done := make(chan error, 1)
	go func() { _, err := src.write("acme", insert(100)); done <- err }()
	wait.For(t, "the silent copy is reported", func() error {
		if l := lagging(src, "acme"); !slices.Equal(l, []string{dst.addr}) {
			return fmt.Errorf("%v", l)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatal("acknowledged without the copy", err)
	default:
	}
	src.inSync("acme") // taken out by the leader
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	k.Heal()
	identical(t, "acme", src, dst)
}

func noneLag(n *node, unit string) error {
	if l := lagging(n, unit); len(l) > 0 {
		return fmt.Errorf("lagging: %v", l)
	}
	return nil
}

// Nothing ends a wait for a silent copy but the word to.
func TestGiveUp(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	src.inSync("acme", dst)
	dst.close()
	done := make(chan error, 2)
	for i := range 2 {
		go func() { _, err := src.write("acme", insert(i)); done <- err }()
	}
	wait.For(t, "the writes wait", func() error {
		if src.r.GiveUp(time.Hour) != 0 {
			t.Fatal("given up early")
		}
		if u := src.mark("acme").Position.Seq; u < 3 {
			return fmt.Errorf("%d", u)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatal(err)
	default:
	}
	wait.For(t, "they are given up", func() error {
		if src.r.GiveUp(0) == 0 && len(done) < 2 {
			return errors.New("none")
		}
		if len(done) < 2 {
			return fmt.Errorf("%d of 2", len(done))
		}
		return nil
	})
	for range 2 {
		if err := <-done; !errors.Is(err, store.ErrUnreplicated) {
			t.Error(err)
		}
	}
	dst.cfg.As, dst.cfg.Token = dst.addr, "secret"
	dst.start()
	if err := dst.r.Resume(); err != nil {
		t.Fatal(err)
	}
	identical(t, "acme", src, dst) // it gets them all the same
	src.must("acme", insert(9))
}

// 3.7.4: after its start a primary is compared with its in-sync copies first.
func TestComparedAfterStart(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	if src.r.Compared("acme") {
		t.Error("compared, and no grant has named it")
	}
	src.inSync("acme")
	if !src.r.Compared("acme") {
		t.Error("no in-sync copy, and not compared")
	}
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	dst.restart(func() { dst.cfg.As, dst.cfg.Token = dst.addr, "secret" })
	src.restart()
	src.inSync("acme", dst)
	if src.r.Compared("acme") {
		t.Error("compared with a copy that was not heard")
	}
	src.r.SetCopies(map[string]Copies{"acme": {All: []string{dst.addr}, InSync: []string{dst.addr}}}, time.Hour)
	if err := noneLag(src, "acme"); err != nil {
		t.Error("it is to be compared with, not taken out:", err)
	}
	if err := dst.r.Resume(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "compared", func() error {
		if !src.r.Compared("acme") {
			return errors.New("no")
		}
		return nil
	})
	src.must("acme", insert(1))
	if l, b := src.r.Report(); len(b) > 0 {
		t.Error(l, b)
	}
}

// 3.7.4: a primary that has lost commits finds them at its copy, and writes
// nothing over them.
func TestCopyIsAhead(t *testing.T) {
	src, dst := pair(t, Config{})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	lose := saved(t, src)
	src.must("acme", insert(1))
	equal(t, "acme", src, dst)
	src.restart(lose) // as a power failure would with sync=normal
	src.inSync("acme", dst)
	s := dst.awaitState("acme", StateAhead)
	t.Log(s.Error)
	if _, behind := src.r.Report(); !slices.Equal(behind["acme"], []string{dst.addr}) {
		t.Error(behind)
	}
	if src.r.Compared("acme") {
		t.Error("compared although a copy has more")
	}
	if files, err := dst.s.AsideFiles(); err != nil || len(files) > 0 {
		t.Error(files, err)
	}
	// Handed over, the copy is the primary and has everything.
	dst.promote(9, "acme")
	src.follow("acme", dst, "")
	identical(t, "acme", dst, src)
	if p := dst.mark("acme").Position; p.Epoch != 9 {
		t.Error(p)
	}
}

// An ahead copy that does not count is overruled by the next commit.
func TestCopyAheadIsOverruled(t *testing.T) {
	src, dst := pair(t, Config{})
	dst.follow("acme", src, "")
	equal(t, "acme", src, dst)
	lose := saved(t, src)
	had := src.must("acme", insert(1))
	equal(t, "acme", src, dst)
	src.restart(lose)
	dst.awaitState("acme", StateAhead)
	src.must("acme", "INSERT INTO t(b) VALUES('another history')")
	identical(t, "acme", src, dst)
	lost := dst.r.Status("acme").Lost
	if lost == nil || lost.To != had {
		t.Errorf("%+v, want up to %s", lost, had)
	}
}

func TestWaitHeld(t *testing.T) {
	src, dst := pair(t, Config{})
	k := src.link()
	dst.follow("acme", src, "http://"+k.Addr())
	equal(t, "acme", src, dst)
	k.Cut()
	p := src.must("acme", insert(1))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := src.r.WaitHeld(gone, "acme", dst.addr, p); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- src.r.WaitHeld(ctx, "acme", dst.addr, p) }()
	k.Heal()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if m := dst.mark("acme"); m.Position != p {
		t.Error(m, p)
	}
}

// promises grants what is not in no.
type promises struct {
	no   []string
	err  error
	from string
	got  []Followed
	d    time.Duration
}

func (p *promises) Promise(_ context.Context, from string, units []Followed, d time.Duration) ([]string, error) {
	p.from, p.got, p.d = from, units, d
	return p.no, p.err
}

// 3.5.10: a promise is asked over the connection, for what is followed there.
func TestPromise(t *testing.T) {
	src := newNode(t, Config{}, store.Config{})
	p := &promises{no: []string{"b"}}
	dst := newNode(t, Config{Promises: p}, store.Config{})
	for _, u := range []string{"a", "b", "c"} {
		src.create(u)
	}
	if _, err := src.r.Promise(ctx, dst.addr, []string{"a"}, time.Second); err == nil {
		t.Error("promised by nobody")
	}
	dst.follow("a", src, "")
	dst.follow("b", src, "")
	dst.awaitState("a", StateFollowing)
	dst.awaitState("b", StateFollowing)
	refused, err := src.r.Promise(ctx, dst.addr, []string{"a", "b", "c"}, 1500*time.Millisecond)
	if err != nil || !slices.Equal(refused, []string{"b", "c"}) {
		t.Error(refused, err)
	}
	if p.from != src.addr || len(p.got) != 2 || p.got[0] != (Followed{"a", 1}) || p.d != 1500*time.Millisecond {
		t.Errorf("%+v", p)
	}
	p.err = errors.New("disk full")
	if refused, err := src.r.Promise(ctx, dst.addr, []string{"a", "b"}, time.Second); err != nil || len(refused) != 2 {
		t.Error(refused, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := src.r.Promise(gone, dst.addr, []string{"a"}, time.Second); err == nil {
		t.Error("no answer was waited for")
	}
}

// TestAWriteIsAnsweredByACopyThatComesBackWithIt: the copy has the commit, and its
// acknowledgement was lost with the connection: what it says when it follows again counts.
func TestAWriteIsAnsweredByACopyThatComesBackWithIt(t *testing.T) {
	src, dst := pair(t, Config{AckReplica: true})
	k := src.link()
	dst.follow("acme", src, "http://"+k.Addr())
	equal(t, "acme", src, dst)
	src.inSync("acme", dst)
	src.must("acme", insert(1))
	k.CutOne(netfault.Forward) // what the copy says
	done := make(chan error, 1)
	go func() { _, err := src.write("acme", insert(2)); done <- err }()
	wait.For(t, "the copy has it", func() error {
		if m := dst.mark("acme"); m.Position.Seq != 3 {
			return fmt.Errorf("%v", m)
		}
		return nil
	})
	k.Reset()
	k.Heal()
	wait.For(t, "the write is answered", func() error {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return nil
		default:
			return fmt.Errorf("%v", src.r.Followers("acme"))
		}
	})
}
