package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func image(t testing.TB, u *Unit) (file []byte, info ImageInfo) {
	t.Helper()
	img, err := u.Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	n, err := img.WriteTo(&b)
	if err != nil || n != img.Size {
		t.Fatal(n, img.Size, err)
	}
	sum := img.Sum()
	return b.Bytes(), ImageInfo{Size: n, Sum: func() string { return sum }, Position: img.Position}
}

// An image taken while writers and a long reader are at work holds exactly the
// commits up to its position, and goes in again.
func TestImageUnderLoad(t *testing.T) {
	s := open(t, Config{CheckpointBytes: 64 << 10})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(k INTEGER PRIMARY KEY, pad)")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := u.Write(ctx, func(c *Conn) error {
					_, _, err := c.Exec("INSERT INTO t(pad) VALUES(randomblob(?))", []Value{IntValue(rand.Int64N(3000))}, nil)
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range 4 {
		until(t, "writes", func() bool { return u.Position().Seq > uint64(100*(round+1)) })
		var reader *Tx
		if round%2 == 1 { // holds the checkpoint up: the image needs pages from the WAL
			var err error
			if reader, err = u.Begin(ctx, ReadTx); err != nil {
				t.Fatal(err)
			}
			reader.Do(ctx, func(c *Conn) error { _, _, err := c.Exec("SELECT count(*) FROM t", nil, nil); return err })
			at := u.Position().Seq
			until(t, "more writes", func() bool { return u.Position().Seq > at+20 })
		}
		file, info := image(t, u)
		if reader != nil {
			reader.Rollback()
		}
		name := fmt.Sprint("copy", round)
		rec, err := s.Install(ctx, name, 9, bytes.NewReader(file), info)
		if err != nil || rec.State != Active || rec.Epoch != 1 || rec.ID != 9 {
			t.Fatal(rec, err)
		}
		c := acquire(t, s, name)
		if c.Position() != info.Position {
			t.Fatalf("installed at %s, taken at %s", c.Position(), info.Position)
		}
		if n := one(t, c, "SELECT count(*)+1 FROM t"); n != fmt.Sprint(info.Position.Seq) {
			t.Fatalf("%s commits in an image of %s", n, info.Position)
		}
		if v := one(t, c, "PRAGMA integrity_check"); v != "ok" {
			t.Fatal(v)
		}
		if p := write(t, c, "INSERT INTO t(pad) VALUES(1)"); p.Seq != info.Position.Seq+1 {
			t.Fatalf("the copy goes on at %s", p)
		}
	}
}

func tmpFiles(t testing.TB, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.tmpDir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A cut or altered image is refused, and leaves everything as it was.
func TestBadImagesLeaveNothing(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a, b)", "CREATE INDEX i ON t(a)")
	for i := range 40 {
		write(t, u, fmt.Sprintf("INSERT INTO t VALUES(%d, hex(randomblob(300)))", i))
	}
	file, info := image(t, u)
	before := u.Position()
	plain := ImageInfo{Size: -1} // no length, no sum: as an operator's plain file
	attempts := map[string]func() (io.Reader, ImageInfo){}
	for _, cut := range []int{0, 1, 15, 99, 100, 511, 4095, 4096, 4097, len(file) / 2, len(file) - 4096, len(file) - 1} {
		attempts[fmt.Sprint("cut at ", cut)] = func() (io.Reader, ImageInfo) { return bytes.NewReader(file[:cut]), info }
		attempts[fmt.Sprint("cut at ", cut, ", nothing stated")] = func() (io.Reader, ImageInfo) { return bytes.NewReader(file[:cut]), plain }
	}
	for range 30 {
		at := rand.IntN(len(file))
		attempts[fmt.Sprint("altered at ", at)] = func() (io.Reader, ImageInfo) {
			bad := bytes.Clone(file)
			bad[at] ^= 1 << rand.IntN(8)
			return bytes.NewReader(bad), info
		}
	}
	attempts["longer"] = func() (io.Reader, ImageInfo) { return bytes.NewReader(append(bytes.Clone(file), 0)), info }
	attempts["a page too long"] = func() (io.Reader, ImageInfo) {
		return bytes.NewReader(append(bytes.Clone(file), make([]byte, 4096)...)), plain
	}
	attempts["not SQLite"] = func() (io.Reader, ImageInfo) { return bytes.NewReader(bytes.Repeat([]byte("no"), 8192)), plain }
	attempts["bad page size"] = func() (io.Reader, ImageInfo) {
		bad := bytes.Clone(file)
		bad[16], bad[17] = 3, 0
		return bytes.NewReader(bad), plain
	}
	attempts["page of another kind"] = func() (io.Reader, ImageInfo) {
		bad := bytes.Clone(file)
		clear(bad[4096 : 2*4096])
		return bytes.NewReader(bad), plain
	}
	for what, attempt := range attempts {
		for _, name := range []string{"acme", "fresh"} {
			r, info := attempt()
			_, err := s.Install(ctx, name, 7, r, info)
			if !errors.Is(err, ErrBadImage) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	broken := errors.New("connection lost")
	_, err := s.Install(ctx, "fresh", 7, io.MultiReader(bytes.NewReader(file[:5000]), &failing{broken}), info)
	wantErr(t, err, broken)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Install(cancelled, "fresh", 7, bytes.NewReader(file), info)
	wantErr(t, err, context.Canceled)
	if left := tmpFiles(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := s.Get("fresh"); !errors.Is(err, ErrUnknownUnit) {
		t.Error("a unit was made: ", err)
	}
	if n := one(t, u, "SELECT count(*) FROM t"); n != "40" || u.Position() != before {
		t.Errorf("%s rows at %s", n, u.Position())
	}
	_, err = s.Install(ctx, "acme", 8, bytes.NewReader(file), info)
	wantErr(t, err, ErrWrongID)
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// An operator's file, made by any SQLite in any journal mode and page size,
// replaces a unit: positions go on, users of the old one are told.
func TestInstallReplaces(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE old(a)")
	sub := make(chan error, 1)
	go func() {
		for _, err := range u.Changes(ctx, Position{}) {
			sub <- err
		}
	}()
	for _, pageSize := range []int{512, 1024, 65536} {
		path := filepath.Join(t.TempDir(), "op.db")
		r, err := openRaw(path, true)
		if err != nil {
			t.Fatal(err)
		}
		err = r.exec(fmt.Sprintf("PRAGMA page_size=%d; CREATE TABLE t(a); INSERT INTO t VALUES(%d)", pageSize, pageSize))
		r.close()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := s.Position(ctx, "acme")
		rec, err := s.Install(ctx, "acme", 0, f, ImageInfo{Size: -1})
		f.Close()
		if err != nil || rec.ID != 7 {
			t.Fatal(rec, err)
		}
		n := acquire(t, s, "acme")
		if got := one(t, n, "SELECT a FROM t"); got != fmt.Sprint(pageSize) {
			t.Fatalf("reads %s", got)
		}
		if p := n.Position(); p != (Position{1, before.Seq + 1}) {
			t.Fatalf("from %s to %s", before, p)
		}
		if p := write(t, n, "INSERT INTO t VALUES(2)"); p.Seq != before.Seq+2 {
			t.Fatal(p)
		}
	}
	wantErr(t, <-sub, ErrGone)
	_, err := u.Write(ctx, func(*Conn) error { return nil })
	wantErr(t, err, ErrGone)
}
