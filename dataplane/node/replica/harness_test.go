package replica

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"domicile/dataplane/node/store"
	"domicile/internal/netfault"
	"domicile/internal/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// node is a store and its Replicator behind a server that upgrades.
type node struct {
	t    testing.TB
	dir  string
	cfg  Config
	scfg store.Config

	r      *Replicator
	s      *store.Store
	addr   string // as the directory records it; stays over a restart
	server *http.Server
	serves sync.WaitGroup
	stop   context.CancelFunc
	ran    chan struct{}
}

func newNode(t testing.TB, cfg Config, scfg store.Config) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), cfg: cfg, scfg: scfg}
	n.start()
	t.Cleanup(n.close)
	return n
}

// start starts the node; again after close: where its files have it.
func (n *node) start() {
	n.t.Helper()
	n.r = New(n.cfg)
	c := n.scfg
	c.Dir, c.Sink = filepath.Join(n.dir, "data"), n.r.Sink
	var err error
	if n.s, err = store.Open(c); err != nil {
		n.t.Fatal(err)
	}
	if err := n.r.Bind(n.s, n.dir); err != nil {
		n.t.Fatal(err)
	}
	listen := "127.0.0.1:0"
	if n.addr != "" {
		listen = n.addr[len("http://"):]
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		n.t.Fatal(err)
	}
	n.addr = "http://" + l.Addr().String()
	n.server = &http.Server{Handler: http.HandlerFunc(n.upgrade)}
	n.serves.Go(func() { n.server.Serve(l) })
	run, stop := context.WithCancel(ctx)
	n.stop, n.ran = stop, make(chan struct{})
	go func() { n.r.Run(run); close(n.ran) }()
}

func (n *node) upgrade(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != Path || req.Header.Get("Upgrade") != Protocol || req.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	n.serves.Add(1)
	defer n.serves.Done()
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
	n.r.ServeUpgrade(&buffered{conn, bufio.NewReader(rw)}, req.Header.Get(HeaderAs))
}

func (n *node) close() {
	if n.stop == nil {
		return
	}
	n.stop()
	<-n.ran
	n.server.Close()
	n.serves.Wait()
	n.s.Close()
	n.stop = nil
}

func (n *node) restart(change ...func()) {
	n.close()
	for _, f := range change {
		f()
	}
	n.start()
}

// link is another way to the node, that can fail.
func (n *node) link() *netfault.Link {
	n.t.Helper()
	k, err := netfault.New(n.addr[len("http://"):])
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(k.Close)
	return k
}

func (n *node) create(name string) {
	n.t.Helper()
	if _, err := n.s.Create(ctx, name, 7); err != nil {
		n.t.Fatal(err)
	}
}

// write runs statements in one transaction.
func (n *node) write(name string, sql ...string) (store.Position, error) {
	u, release, err := n.s.Acquire(ctx, name)
	if err != nil {
		return store.Position{}, err
	}
	defer release()
	return u.Write(ctx, func(c *store.Conn) error {
		for _, q := range sql {
			if _, _, err := c.Exec(q, nil, nil); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
}

func (n *node) must(name string, sql ...string) store.Position {
	n.t.Helper()
	p, err := n.write(name, sql...)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// alone runs a statement that no transaction may be around.
func (n *node) alone(name, sql string) {
	n.t.Helper()
	u, release, err := n.s.Acquire(ctx, name)
	if err != nil {
		n.t.Fatal(err)
	}
	defer release()
	tx, err := u.Begin(ctx, store.Manual)
	if err != nil {
		n.t.Fatal(err)
	}
	defer tx.Rollback() // VACUUM has committed by itself
	if err := tx.Do(ctx, func(c *store.Conn) error { _, _, err := c.Exec(sql, nil, nil); return err }); err != nil {
		n.t.Fatal(sql, err)
	}
}

// follow lets n follow src, by way of a link if from is not "".
func (n *node) follow(name string, src *node, from string) {
	n.t.Helper()
	if from == "" {
		from = src.addr
	}
	rec, err := src.s.Get(name)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.r.Follow(ctx, name, rec.ID, rec.Epoch, store.CopyOrdinary, from, n.addr, "secret"); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) promote(epoch uint64, names ...string) {
	n.t.Helper()
	var units []store.UnitID
	for _, name := range names {
		n.r.Unfollow(name)
		units = append(units, store.UnitID{Name: name})
	}
	for i, err := range n.s.Promote(ctx, epoch, units) {
		if err != nil {
			n.t.Fatal(names[i], err)
		}
	}
	n.r.Promoted(names)
}

func (n *node) mark(name string) store.Mark {
	m, err := n.s.Mark(ctx, name)
	if err != nil {
		n.t.Error(err)
	}
	return m
}

// equal waits until the copies have what src has, by mark.
func equal(t testing.TB, name string, src *node, copies ...*node) {
	t.Helper()
	for _, c := range copies {
		wait.For(t, "copy is equal", func() error {
			want, err1 := src.s.Mark(ctx, name)
			got, err2 := c.s.Mark(ctx, name)
			if err1 != nil || err2 != nil || want != got {
				return fmt.Errorf("%s: source %v %v, copy %v %v, %+v", name, want, err1, got, err2, c.r.Status(name))
			}
			return nil
		})
	}
}

// identical compares files, byte by byte but for SQLite's change counters.
func identical(t testing.TB, name string, nodes ...*node) {
	t.Helper()
	equal(t, name, nodes[0], nodes[1:]...)
	want := nodes[0].file(name)
	for _, n := range nodes[1:] {
		got := n.file(name)
		if !bytes.Equal(want, got) {
			at := 0
			for at < min(len(want), len(got)) && want[at] == got[at] {
				at++
			}
			t.Errorf("unit %s: %d and %d bytes, different at %d", name, len(want), len(got), at)
		}
	}
}

func (n *node) file(name string) []byte {
	n.t.Helper()
	u, release, err := n.s.Acquire(ctx, name)
	if err != nil {
		n.t.Fatal(err)
	}
	defer release()
	img, err := u.Image(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	if _, err := img.WriteTo(&b); err != nil {
		n.t.Fatal(err)
	}
	// sqlite.org/fileformat2.html: change counter, version-valid-for and version number
	clear(b.Bytes()[24:28])
	clear(b.Bytes()[92:100])
	return b.Bytes()
}

func (n *node) awaitState(name, state string) Status {
	n.t.Helper()
	var s Status
	wait.For(n.t, "state "+state, func() error {
		if s = n.r.Status(name); s.State != state {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return s
}

// inSync makes the copies count.
func (n *node) inSync(name string, copies ...*node) {
	c := Copies{}
	for _, k := range copies {
		c.All = append(c.All, k.addr)
	}
	c.InSync = c.All
	n.r.SetCopies(map[string]Copies{name: c}, 50*time.Millisecond)
}

// background runs f until the test, or the returned function, ends it.
func background(t testing.TB, f func(stop <-chan struct{})) (end func()) {
	stop := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() { f(stop) })
	var once sync.Once
	end = func() { once.Do(func() { close(stop) }); g.Wait() }
	t.Cleanup(end)
	return end
}

func contains(s, sub string) bool { return bytes.Contains([]byte(s), []byte(sub)) }

// rows gives f the first column of each row.
func (n *node) rows(sql string, f func(int64)) {
	n.t.Helper()
	u, release, err := n.s.Acquire(ctx, "acme")
	if err != nil {
		n.t.Fatal(err)
	}
	defer release()
	err = u.Read(ctx, func(c *store.Conn) error {
		_, _, err := c.Exec(sql, nil, func(r *store.Row) error { f(r.Value(0).Int); return nil })
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}
