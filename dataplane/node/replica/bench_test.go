package replica

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/dataplane/node/store"
)

// lags collects how long after its capture each commit was on the follower's disk.
type lags struct {
	mu sync.Mutex
	d  []time.Duration
}

func (l *lags) add(d time.Duration) {
	l.mu.Lock()
	l.d = append(l.d, d)
	l.mu.Unlock()
}

func (l *lags) report(b *testing.B) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.d) == 0 {
		return
	}
	slices.Sort(l.d)
	b.ReportMetric(float64(l.d[len(l.d)/2].Microseconds()), "lag-p50-µs")
	b.ReportMetric(float64(l.d[len(l.d)*99/100].Microseconds()), "lag-p99-µs")
}

func benchPair(b *testing.B, cfg Config, sync store.Sync) (src, dst *node) {
	src, dst = newNode(b, cfg, store.Config{Sync: sync}), newNode(b, Config{}, store.Config{Sync: sync})
	src.create("acme")
	src.must("acme", "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
	dst.follow("acme", src, "")
	dst.awaitState("acme", StateFollowing)
	equal(b, "acme", src, dst)
	return src, dst
}

// writer gives a function that commits one row.
func (n *node) writer(b *testing.B) (write func(), release func()) {
	u, release, err := n.s.Acquire(ctx, "acme")
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := u.Write(ctx, func(c *store.Conn) error {
			_, _, err := c.Exec("INSERT INTO t(b) VALUES('some text that a row has')", nil, nil)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}, release
}

var syncs = map[string]store.Sync{"full": store.SyncFull, "normal": store.SyncNormal}

// BenchmarkLag commits 1,000 times a second; lag is from a commit's capture to
// its acknowledgement by the follower, by one clock.
func BenchmarkLag(b *testing.B) {
	for name, sync := range syncs {
		b.Run(name, func(b *testing.B) {
			var l lags
			src, _ := benchPair(b, Config{ObserveAck: l.add}, sync)
			write, release := src.writer(b)
			defer release()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
				write()
			}
			l.report(b)
		})
	}
}

// BenchmarkAckReplica is one client whose writes wait for the copy.
func BenchmarkAckReplica(b *testing.B) {
	for name, sync := range syncs {
		b.Run(name, func(b *testing.B) {
			src, dst := benchPair(b, Config{AckReplica: true}, sync)
			src.inSync("acme", dst)
			write, release := src.writer(b)
			defer release()
			for b.Loop() {
				write()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
		})
	}
}

// BenchmarkAckReplica64 is 64 clients whose writes wait for the copy.
func BenchmarkAckReplica64(b *testing.B) {
	for name, sync := range syncs {
		b.Run(name, func(b *testing.B) {
			src, dst := benchPair(b, Config{AckReplica: true}, sync)
			src.inSync("acme", dst)
			write, release := src.writer(b)
			defer release()
			b.SetParallelism(32)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					write()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
		})
	}
}

// BenchmarkCatchUp lets a copy that was away fetch b.N commits.
func BenchmarkCatchUp(b *testing.B) {
	src, dst := benchPair(b, Config{RingBytes: 1 << 30, MemoryBytes: 2 << 30}, store.SyncNormal)
	write, release := src.writer(b)
	defer release()
	images := dst.r.Images()
	k := src.link()
	dst.follow("acme", src, "http://"+k.Addr())
	dst.awaitState("acme", StateFollowing)
	dst.r.Unfollow("acme")
	b.StopTimer()
	for range b.N {
		write()
	}
	b.StartTimer()
	dst.follow("acme", src, "")
	equal(b, "acme", src, dst)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
	b.ReportMetric(float64(dst.r.Images()-images), "images")
}

// BenchmarkImage sends a unit's file to a copy that has nothing.
func BenchmarkImage(b *testing.B) {
	const mib = 128
	src, dst := newNode(b, Config{}, store.Config{Sync: store.SyncNormal}), newNode(b, Config{}, store.Config{Sync: store.SyncNormal})
	src.big("large", mib)
	b.SetBytes(mib << 20)
	n := 0
	for b.Loop() {
		dst.follow("large", src, "")
		equal(b, "large", src, dst)
		b.StopTimer()
		dst.r.Unfollow("large")
		if err := dst.s.Delete(ctx, "large", 0); err != nil {
			b.Fatal(err)
		}
		n++
		b.StartTimer()
	}
	b.ReportMetric(float64(n), "images")
}

// BenchmarkCapture is what a follower costs a writer that does not wait for it.
func BenchmarkCapture(b *testing.B) {
	for _, followers := range []int{0, 1} {
		b.Run(fmt.Sprint(followers), func(b *testing.B) {
			src, dst := benchPair(b, Config{}, store.SyncNormal)
			if followers == 0 {
				dst.r.Unfollow("acme")
				src.r.feed("acme").recording.Store(false)
			}
			write, release := src.writer(b)
			defer release()
			for b.Loop() {
				write()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
		})
	}
}
