package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// moved takes a moving image of p into f while step is called between its pieces, with
// the commits mixed into its bytes, and gives what came of it.
func moved(t testing.TB, p *Unit, src *source, f *Store, rnd *rand.Rand, step func(), spoil func(in *Incoming, b []byte) error) (Record, error) {
	t.Helper()
	img, err := p.MovingImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	in, err := f.Receive("acme", 7, ImageInfo{Size: img.Size, Sum: img.Sum, Moving: true, Position: img.Position, Chain: img.Chain, Lineage: img.Lineage, State: Following, From: "http://a:1"})
	if err != nil {
		return Record{}, err
	}
	defer in.Close()
	feed := func(share int) error { // some of the commits that are there
		for _, e := range src.after(in.Mark().Position) {
			if rnd.IntN(100) >= share {
				return nil
			}
			if err := in.Apply(&e); err != nil {
				return err
			}
		}
		return nil
	}
	var waiting []byte // read already, and not arrived
	arrive := func() error {
		if spoil != nil {
			if err := spoil(in, waiting); err != nil {
				return err
			}
		}
		_, err := in.Write(waiting)
		waiting = nil
		return err
	}
	_, err = img.WriteTo(writerFunc(func(b []byte) (int, error) {
		for n := 0; n < len(b); {
			k := min(len(b)-n, 1+rnd.IntN(20<<10))
			waiting = append(waiting, b[n:n+k]...)
			n += k
			step()
			if err := feed(80); err != nil {
				return n, err
			}
			if rnd.IntN(3) > 0 {
				if err := arrive(); err != nil {
					return n, err
				}
			}
		}
		return len(b), nil
	}))
	if err == nil {
		err = arrive()
	}
	if err != nil {
		return Record{}, err
	}
	end, err := img.End(ctx)
	if err != nil {
		return Record{}, err
	}
	for in.Mark().Position.Seq < end.Seq {
		if err := feed(100); err != nil {
			return Record{}, err
		}
	}
	return in.Install(ctx)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestMovingImageIsTheUnitAtItsEnd: whatever is written meanwhile, the file grows and
// shrinks, checkpoints run, and a reader keeps pages in the WAL; the commits come before
// and behind the bytes of the pages that they change.
func TestMovingImageIsTheUnitAtItsEnd(t *testing.T) {
	for mode := range 3 {
		t.Run(fmt.Sprint("auto_vacuum ", mode), func(t *testing.T) {
			p, src, _ := vacuumed(t, mode)
			p.s.cfg.CheckpointBytes = 30 << 10
			rnd := rand.New(rand.NewPCG(2, uint64(mode)))
			w := work{r: rnd}
			for range 60 {
				w.step(t, p)
			}
			for round := range 6 {
				var reader *Tx
				if round%2 == 1 {
					var err error
					if reader, err = p.Begin(ctx, ReadTx); err != nil {
						t.Fatal(err)
					}
					reader.Do(ctx, func(c *Conn) error { _, _, err := c.Exec("SELECT count(*) FROM t", nil, nil); return err })
					w.step(t, p)
				}
				f := follower(t, Config{})
				steps := 0
				_, err := moved(t, p, src, f, rnd, func() {
					if steps++; steps%3 == 0 {
						w.step(t, p)
					}
					if steps == 20 && reader != nil {
						reader.Rollback()
						reader = nil
					}
				}, nil)
				if reader != nil {
					reader.Rollback()
				}
				if err != nil {
					t.Fatal(err)
				}
				u := acquire(t, f, "acme")
				apply(t, f, src.after(u.Position()))
				sameFile(t, p, u)
				if v := one(t, u, "PRAGMA integrity_check"); v != "ok" {
					t.Fatal(v)
				}
				f.Close()
			}
		})
	}
}

// TestMovingImageHoldsNoCheckpointUp: and what was to be read from the WAL is read from
// the file once SQLite may have started the WAL over.
func TestMovingImageHoldsNoCheckpointUp(t *testing.T) {
	s, p, src := primary(t, Config{CheckpointBytes: 100 << 10})
	write(t, p, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	for range 300 {
		write(t, p, "INSERT INTO t(b) VALUES(randomblob(4000))")
	}
	until(t, "a checkpoint", func() bool { return s.Stats().Checkpoints > 5 })
	reader, err := p.Begin(ctx, ReadTx)
	if err != nil {
		t.Fatal(err)
	}
	reader.Do(ctx, func(c *Conn) error { _, _, err := c.Exec("SELECT count(*) FROM t", nil, nil); return err })
	write(t, p, "UPDATE t SET b=randomblob(3999) WHERE a>250") // stays in the WAL
	first := true
	f := follower(t, Config{})
	_, err = moved(t, p, src, f, rand.New(rand.NewPCG(5, 6)), func() {
		if !first {
			return
		}
		first = false
		reader.Rollback()
		before := s.Stats().Checkpoints
		until(t, "a checkpoint", func() bool {
			write(t, p, "UPDATE t SET b=randomblob(3998) WHERE a<40")
			return s.Stats().Checkpoints > before+2
		})
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := acquire(t, f, "acme")
	apply(t, f, src.after(u.Position()))
	sameFile(t, p, u)
}

// TestMovingImageThatIsSpoiledLeavesNothing: cut short, altered on the way, without a
// commit, with one that was altered, or on a disk that is full.
func TestMovingImageThatIsSpoiledLeavesNothing(t *testing.T) {
	_, p, src := primary(t, Config{CheckpointBytes: 30 << 10})
	write(t, p, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	for range 40 {
		write(t, p, "INSERT INTO t(b) VALUES(randomblob(9000))")
	}
	full := false
	for name, c := range map[string]struct {
		spoil func(*Incoming, []byte) error
		want  error
	}{
		"altered": {func(in *Incoming, b []byte) error {
			if in.Bytes() > 100<<10 && len(b) > 0 {
				b[len(b)/2] ^= 1
			}
			return nil
		}, ErrBadImage},
		"cut": {func(in *Incoming, _ []byte) error {
			if in.Bytes() > 100<<10 {
				_, err := in.Install(ctx)
				return err
			}
			return nil
		}, ErrBadImage},
		"a commit is missing": {func(in *Incoming, _ []byte) error {
			if es := src.after(in.Mark().Position); len(es) > 1 {
				return in.Apply(&es[1])
			}
			return nil
		}, ErrGap},
		"a commit is altered": {func(in *Incoming, _ []byte) error {
			if es := src.after(in.Mark().Position); len(es) > 0 {
				e := es[0]
				e.Pages = append([]EntryPage(nil), e.Pages...)
				e.Pages[0].Data = append([]byte(nil), e.Pages[0].Data...)
				e.Pages[0].Data[200] ^= 1
				return in.Apply(&e)
			}
			return nil
		}, ErrBadEntry},
		"a commit of another history": {func(in *Incoming, _ []byte) error {
			if es := src.after(in.Mark().Position); len(es) > 0 {
				e := es[0]
				e.Prev.Chain++
				return in.Apply(&e)
			}
			return nil
		}, ErrForked},
		"a full disk": {func(in *Incoming, _ []byte) error { full = in.Bytes() > 100<<10; return nil }, ErrDiskFull},
	} {
		t.Run(name, func(t *testing.T) {
			full = false
			f := follower(t, Config{Fault: func(op FileOp, _ string) error {
				if full && op == OpImage {
					return &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}
				}
				return nil
			}})
			_, err := moved(t, p, src, f, rand.New(rand.NewPCG(3, 4)), func() { write(t, p, "INSERT INTO t(b) VALUES(randomblob(2000))") }, c.spoil)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if left := tmpFiles(t, f); len(left) != 0 {
				t.Error(left)
			}
			if m, err := f.Mark(ctx, "acme"); err != nil || m != (Mark{}) {
				t.Error(m, err)
			}
		})
	}
}

// TestAnImageThatTheDiskHasNoRoomForIsRefused before its first byte.
func TestAnImageThatTheDiskHasNoRoomForIsRefused(t *testing.T) {
	s := open(t, Config{})
	free, err := s.Free()
	if err != nil || free == 0 {
		t.Fatal(free, err)
	}
	_, err = s.Install(ctx, "acme", 7, readerOf(nil), ImageInfo{Size: 1 << 60})
	if !errors.Is(err, ErrDiskFull) {
		t.Error(err)
	}
	if left := tmpFiles(t, s); len(left) != 0 {
		t.Error(left)
	}
}

// TestMovingImageEndIsAskedUnderTheWriter: an image's end is no earlier than what a
// checkpoint may have put into the file.
func TestMovingImageEndIsAskedUnderTheWriter(t *testing.T) {
	_, p, _ := primary(t, Config{})
	write(t, p, "CREATE TABLE t(a)")
	img, err := p.MovingImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if _, err := img.WriteTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	p.writer <- struct{}{}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := img.End(soon); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.writer
	if at, err := img.End(ctx); err != nil || at != p.Position() {
		t.Error(at, err)
	}
}
