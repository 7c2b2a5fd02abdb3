package group

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// fsyncTime is the median-like mean of appending 200 bytes and syncing them, to
// compare commits with.
func fsyncTime(b *testing.B) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const n = 200
	begin := time.Now()
	for range n {
		f.Write(make([]byte, 200))
		f.Sync()
	}
	return time.Since(begin) / n
}

func benchCommit(b *testing.B, servers, clients int) {
	c := startCluster(b, servers, nil)
	sync := fsyncTime(b)
	var n atomic.Int64
	b.SetParallelism(max(clients/runtime.GOMAXPROCS(0), 1))
	b.ResetTimer()
	run := func() {
		c.proposeAs("", putRegion(fmt.Sprintf("r%d", n.Add(1)%100)))
	}
	if clients == 1 {
		for b.Loop() {
			run()
		}
	} else {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				run()
			}
		})
	}
	b.ReportMetric(float64(sync.Microseconds()), "µs/fsync")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

func BenchmarkCommitOneClientThreeServers(b *testing.B) { benchCommit(b, 3, 1) }
func BenchmarkCommit64ClientsThreeServers(b *testing.B) { benchCommit(b, 3, 64) }
func BenchmarkCommitOneClientOneServer(b *testing.B)    { benchCommit(b, 1, 1) }

// million is a directory of n tenants.
func million(b *testing.B, n int) *fsm.State {
	b.Helper()
	s := fsm.New()
	rev := fsm.Revision(0)
	apply := func(cmd fsm.Command) {
		rev++
		if r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1, Cmd: cmd}); r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
	}
	apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c1", History: 1}})
	for i := range 10 {
		addr, token, weight := fmt.Sprintf("10.0.0.%d:80", i), "t", uint32(1)
		apply(&fsm.PutNode{Name: fsm.NodeName(fmt.Sprintf("n%d", i)), Addr: &addr, Token: &token, Weight: &weight})
	}
	for i := range n {
		node := fsm.NodeName(fmt.Sprintf("n%d", i%10))
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1, Cmd: &fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("tenant-%d", i)), Node: &node}})
		if r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
		job := r.Job
		apply(&fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	}
	return s
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkMillionTenants tells the figures of a server with 1,000,000 tenants:
// its memory, how long a snapshot holds the log up, and takes, and a start
// from one.
func BenchmarkMillionTenants(b *testing.B) {
	empty := heap()
	s := million(b, 1_000_000)
	full := heap() - empty
	m := newMachine(&Config{ID: "s1", Logger: logger()}, &folder{dir: b.TempDir()})
	m.state = s
	m.published.Store(s.Snapshot())
	file, err := os.Create(filepath.Join(b.TempDir(), "snapshot"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	var hold, save, load time.Duration
	for b.Loop() {
		begin := time.Now()
		snap, err := m.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		hold += time.Since(begin)
		begin = time.Now()
		file.Seek(0, io.SeekStart)
		if err := proto.WriteSnapshot(file, snap.(*savedState).state); err != nil {
			b.Fatal(err)
		}
		save += time.Since(begin)
		begin = time.Now()
		file.Seek(0, io.SeekStart)
		if err := m.Restore(file); err != nil {
			b.Fatal(err)
		}
		load += time.Since(begin)
		file, _ = os.OpenFile(file.Name(), os.O_RDWR, 0)
	}
	n := float64(b.N)
	b.ReportMetric(full, "MB-heap")
	b.ReportMetric(float64(hold.Microseconds())/n, "µs/hold")
	b.ReportMetric(float64(save.Milliseconds())/n, "ms/save")
	b.ReportMetric(float64(load.Milliseconds())/n, "ms/load")
}
