package replica

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// big makes a unit whose file has about that many MiB.
func (n *node) big(name string, mib int) {
	n.t.Helper()
	n.create(name)
	n.must(name, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)", "CREATE TABLE big(b BLOB)")
	for range mib {
		n.must(name, "INSERT INTO big VALUES(zeroblob(524288)), (zeroblob(524288))")
	}
}

// fakeSession is a session whose frames are looked at, not sent.
func fakeSession(r *Replicator) *session {
	return &session{r: r, w: newWire(nil), as: "x", ctx: ctx, subs: map[uint32]*sub{}, asked: map[uint64]chan promise{}}
}

// However many bytes of one unit wait, another's entry goes within a bounded
// number of bytes: a batch of entries, a quantum for each unit before it, and
// one piece of an image.
func TestBusyUnitDelaysNoOther(t *testing.T) {
	r := New(Config{})
	s := fakeSession(r)
	busy := addSub(s, 1, "busy", 400, 8<<10)
	small := addSub(s, 2, "small", 1, 4096)
	img := addSub(s, 3, "image", 0, 0)
	img.state, img.image = subImaging, &imageOut{ctx: ctx, piece: make([]byte, chunkSize), changed: make(chan struct{}, 1)}
	s.chunks = append(s.chunks, img)
	busy.f.mu.Lock()
	busy.ready()
	busy.f.mu.Unlock()
	small.f.mu.Lock()
	small.ready()
	small.f.mu.Unlock()
	out := s.fill(nil)
	before, frames := 0, 0
	for {
		f, rest := cutFrame(t, out)
		out = rest
		if f.unit == 2 {
			break
		}
		before += len(f.payload)
		frames++
	}
	if limit := quantum + 9<<10; before > limit {
		t.Errorf("%d bytes in %d frames went before the other unit's", before, frames)
	}
	// An image's piece comes once in a batch, however much else there is.
	chunks, total := 0, 0
	for len(out) > 0 {
		var f frame
		f, out = cutFrame(t, out)
		total += len(f.payload)
		if f.kind == frameChunk {
			chunks++
		}
	}
	if chunks != 1 || total > batchSize+chunkSize+16<<10 {
		t.Errorf("%d pieces, %d bytes", chunks, total)
	}
	// The unit that is not acknowledged stops at its window.
	for n := len(s.fill(nil)); n > 0; n = len(s.fill(nil)) {
		if busy.inflight > unitWindow+9<<10 {
			t.Fatal(busy.inflight)
		}
	}
	if busy.inflight < unitWindow {
		t.Error(busy.inflight)
	}
	if err := busy.ack(store.Position{Epoch: 1, Seq: 100}); err != nil {
		t.Fatal(err)
	}
	if len(s.fill(nil)) == 0 {
		t.Error("an acknowledgement opened no window")
	}
	if err := busy.ack(store.Position{Epoch: 1, Seq: 401}); !errors.Is(err, errFrame) {
		t.Error("what was not sent was acknowledged", err)
	}
}

// addSub makes a follower that lacks n entries.
func addSub(s *session, number uint32, unit string, n, size int) *sub {
	f := s.r.feed(unit)
	f.lineage = store.Lineage{{Epoch: 1}}
	for i := range n {
		e := testEntry(1, uint64(i+1), size, 1)
		f.ring.add(e)
		f.captured = store.Mark{Position: e.pos, Chain: e.chain}
	}
	b := &sub{s: s, f: f, number: number, state: subStreaming, next: 1}
	s.subs[number] = b
	f.peer(s.as).sub = b
	return b
}

func cutFrame(t *testing.T, b []byte) (frame, []byte) {
	t.Helper()
	r := &cutter{b}
	f, err := readFrame(r)
	if err != nil {
		t.Fatal(err)
	}
	return f, r.b
}

type cutter struct{ b []byte }

func (c *cutter) Read(p []byte) (int, error) {
	n := copy(p, c.b)
	c.b = c.b[n:]
	return n, nil
}

// While a large image goes over, other units' writes are acknowledged, and
// memory is bounded by the windows.
func TestLargeImage(t *testing.T) {
	mib := 200
	if testing.Short() {
		mib = 48
	}
	src, dst := newNode(t, Config{}, store.Config{Sync: store.SyncNormal}), newNode(t, Config{}, store.Config{Sync: store.SyncNormal})
	src.big("large", mib)
	src.create("small")
	src.must("small", "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
	dst.follow("small", src, "")
	equal(t, "small", src, dst)
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base, peak := m.HeapAlloc, m.HeapAlloc
	images := dst.r.Images()
	dst.follow("large", src, "")
	acked, writes := atomic.Uint64{}, 0
	for dst.r.Images() == images {
		p := src.must("small", insert(writes))
		if err := src.r.WaitHeld(ctx, "small", dst.addr, p); err != nil {
			t.Fatal(err)
		}
		if dst.r.Status("large").State == StateImage {
			acked.Add(1)
		}
		src.must("large", insert(writes))
		writes++
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}
	t.Logf("%d MiB, %d of %d writes acknowledged meanwhile, %d MiB of heap more than before", mib, acked.Load(), writes, (peak-base)>>20)
	if acked.Load() == 0 {
		t.Error("no write was acknowledged during the image")
	}
	if peak > base+64<<20 {
		t.Errorf("%d MiB of heap", (peak-base)>>20)
	}
	identical(t, "large", src, dst)
}

// More images than may be on their way take turns.
func TestImagesTakeTurns(t *testing.T) {
	src, dst := newNode(t, Config{Images: 2}, store.Config{Sync: store.SyncNormal}), newNode(t, Config{}, store.Config{Sync: store.SyncNormal})
	const units = 9
	for i := range units {
		src.big(fmt.Sprintf("u%d", i), 2)
	}
	for i := range units {
		dst.follow(fmt.Sprintf("u%d", i), src, "")
	}
	wait.For(t, "all are there", func() error {
		src.r.mu.Lock()
		defer src.r.mu.Unlock()
		for _, s := range src.r.sessions {
			s.mu.Lock()
			n := s.imaging
			s.mu.Unlock()
			if n > 2 {
				t.Fatalf("%d images at once", n)
			}
		}
		if n := dst.r.Images(); n < units {
			return fmt.Errorf("%d of %d", n, units)
		}
		return nil
	})
	for i := range units {
		identical(t, fmt.Sprintf("u%d", i), src, dst)
	}
}

// The node's memory for entries is bounded, and the oldest go first.
func TestMemoryOfAllRings(t *testing.T) {
	r := New(Config{MemoryBytes: 1 << 20})
	for i := range 3000 {
		f := r.feed(fmt.Sprintf("u%d", i%7))
		e := testEntry(1, uint64(i/7+1), 4096, 1)
		f.mu.Lock()
		entries, bytes := f.ring.add(e)
		f.kept.Store(f.ring.oldest().pos.Seq)
		f.mu.Unlock()
		r.memory.free(entries, bytes)
		r.evict(r.memory.add(f, e.pos.Seq, len(e.payload)))
	}
	total := 0
	for unit, f := range r.allFeeds() {
		total += f.ring.bytes
		if f.ring.len() == 0 || f.ring.oldest().pos.Seq < 350 {
			t.Error(unit, f.ring.len())
		}
	}
	if total > 1<<20 || total < 1<<19 || total != r.memory.bytes {
		t.Error(total, r.memory.bytes)
	}
	if n := len(r.memory.order); n > 3*r.memory.live+1100 {
		t.Errorf("%d remembered, %d kept", n, r.memory.live)
	}
}
