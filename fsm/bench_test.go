package fsm_test

import (
	"flag"
	"runtime"
	"syscall"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// -large sets another size for a quick look.
var large = flag.Int("large", 1_000_000, "tenants of the directory in benchmarks")

const largeNodes = 100

// BenchmarkApply creates tenants in a directory of a million: an operation is
// one command, a create or the step that ends it; each batch of 64 is followed
// by a snapshot, as a group that serves reads takes one.
func BenchmarkApply(b *testing.B) {
	for _, placed := range []struct {
		name string
		by   bool
	}{{"NodeGiven", true}, {"NodeChosen", false}} {
		b.Run(placed.name, func(b *testing.B) {
			s := fsmtest.Large(largeNodes, *large)
			node := fsm.NodeName("node-0007")
			names := make([]fsm.TenantName, b.N)
			for i := range names {
				names[i] = fsmtest.TenantName(*large + i)
			}
			rev, created := s.Revision(), make([]fsm.JobID, 0, 32)
			runtime.GC()
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			for i := 0; i < b.N; i++ {
				rev++
				e := fsm.Entry{Revision: rev, Term: 1, At: 1_700_000_000_000}
				if i%64 < 32 {
					c := &fsm.CreateTenant{Name: names[i]}
					if placed.by {
						c.Node = &node
					}
					e.Cmd = c
				} else {
					e.Cmd = &fsm.AdvanceJob{ID: created[i%32], From: fsm.StepMake, To: fsm.StepDone}
				}
				r, _ := s.Apply(e)
				if r.Refusal != nil {
					b.Fatal(r.Refusal)
				}
				if i%64 < 32 {
					created = append(created, r.Job)
				}
				if i%64 == 63 {
					s.Snapshot()
					created = created[:0]
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkMemory tells what a directory of a million tenants takes, after a
// collection.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		before := heap()
		s := fsmtest.Large(largeNodes, *large)
		b.ReportMetric(float64(heap()-before)/float64(*large), "B/tenant")
		runtime.KeepAlive(s)
	}
}

// cpu is the time that the process's threads have run, the collector's
// included: steadier than the clock on a machine that is shared.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkSnapshot(b *testing.B) {
	s := fsmtest.Large(largeNodes, *large)
	b.ResetTimer()
	for range b.N {
		s.Snapshot()
	}
}

func BenchmarkCheck(b *testing.B) {
	s := fsmtest.Large(largeNodes, *large)
	b.ResetTimer()
	for range b.N {
		if err := fsm.Check(s); err != nil {
			b.Fatal(err)
		}
	}
}
