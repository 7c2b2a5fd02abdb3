package proxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// BenchmarkHoldAndRelease holds as many requests of one unit as it may, each on a
// connection of its own, and releases them by a change of the table.
func BenchmarkHoldAndRelease(b *testing.B) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	n := int(min(defaultHoldLimits.perUnit, int64(limit.Cur-1500)/2)) // both ends are here
	var under, most atomic.Int64
	node := func(name string, h http.HandlerFunc) fsm.Event {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		srv := &http.Server{Handler: h}
		go srv.Serve(ln)
		b.Cleanup(func() { srv.Close() })
		return fsm.Event{Node: &fsm.NodeInfo{Name: fsm.NodeName(name), Addr: ln.Addr().String()}}
	}
	n1 := node("n1", misdirected)
	n2 := node("n2", func(w http.ResponseWriter, r *http.Request) {
		if now := under.Add(1); now > most.Load() {
			most.Store(now)
		}
		w.Write([]byte("ok"))
		under.Add(-1)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Config{Listener: ln, Logger: hclog.NewNullLogger(), Hold: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	place := func(rev fsm.Revision, node string) {
		edit := newTable().edit(rev, p.dir.newEdit())
		if err := edit.applyAll([]fsm.Event{n1, n2, placed("acme", node)}); err != nil {
			b.Fatal(err)
		}
		p.dir.publish(edit.seal(position(rev)), nil, true)
	}
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			b.Fatal(err)
		}
		defer conns[i].Close()
	}
	rev := fsm.Revision(1)
	for b.Loop() {
		place(rev, "n1")
		before := memory()
		for i, c := range conns {
			fmt.Fprintf(c, "GET /t/acme/ HTTP/1.1\r\nHost: h\r\n\r\n")
			if i == 0 {
				waitFor(func() bool { return p.holds.open.Load() == 1 })
			}
		}
		waitFor(func() bool { return p.holds.now.Load() >= int64(n)-1 })
		b.ReportMetric(float64(memory()-before)/float64(n), "B/held")
		var wg sync.WaitGroup
		failed := atomic.Int64{}
		began, cpu := time.Now(), processTime()
		place(rev+1, "n2")
		for _, c := range conns {
			wg.Go(func() {
				resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
				if err != nil || resp.StatusCode != 200 {
					failed.Add(1)
					return
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/release")
		b.ReportMetric(float64((processTime()-cpu).Microseconds())/float64(n), "cpu-us/request")
		b.ReportMetric(float64(most.Load()), "at-once")
		b.ReportMetric(float64(n), "held")
		if failed.Load() > 0 {
			b.Errorf("%d of %d failed", failed.Load(), n)
		}
		rev += 2
	}
}

func waitFor(ok func() bool) {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		<-poll.C
	}
}

func memory() uint64 {
	runtime.GC()
	runtime.GC() // what pools keep is gone after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIsAnythingHeld is what holding costs a request of a unit of which nothing
// is held: with nothing held at all, and with another unit's.
func BenchmarkIsAnythingHeld(b *testing.B) {
	up := new(http1.Upstream)
	for _, others := range []int{0, 10} {
		b.Run(fmt.Sprint(others, " queues"), func(b *testing.B) {
			h := newHolds(func([]byte) spot { return spot{placed: true, up: up} }, defaultHoldLimits)
			for i := range others {
				h.newQueue(fmt.Sprint("other", i))
			}
			unit := []byte("tenant-4711")
			b.ReportAllocs()
			for b.Loop() {
				if h.any(unit) {
					h.gates(unit, true)
				}
			}
		})
	}
}
