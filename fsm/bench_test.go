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
		name            string
		by              bool
		nodes, replicas int
	}{
		{"NodeGiven", true, largeNodes, 0}, {"NodeChosen", false, largeNodes, 0}, {"Replicated", true, largeNodes, 1},
		{"ReplicatedFewNodes", false, 12, 1}, {"ReplicatedThousandNodes", false, 1000, 1},
	} {
		b.Run(placed.name, func(b *testing.B) {
			s := fsmtest.LargeReplicated(placed.nodes, *large, placed.replicas)
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

// BenchmarkFailOver flips all of a node's units, of which each has an in-sync
// copy, in one entry: an operation is one unit.
func BenchmarkFailOver(b *testing.B) {
	s := fsmtest.LargeReplicated(largeNodes, *large, 1)
	at, rev := fsm.NodeName("node-0000"), s.Revision()
	apply := func(c fsm.Command) fsm.Result {
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1_700_000_000_000, Cmd: c})
		if r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
		return r
	}
	apply(&fsm.SetNodeLease{Node: at, Lease: fsm.LeaseTaken})
	for _, step := range [][2]fsm.CopyState{{fsm.CopySyncing, fsm.CopyJoining}, {fsm.CopyJoining, fsm.CopyInSync}} {
		all := &fsm.ChangeCopies{}
		for p := range s.HeldBy(at) {
			if p.Node == at {
				all.Changes = append(all.Changes, fsm.CopyChange{
					UnitRef: fsm.UnitRef{Unit: p.Unit, ID: p.ID}, Epoch: p.Epoch, Node: p.Copies[0].Node, From: step[0], To: step[1],
				})
			}
		}
		apply(all)
	}
	flips := 0
	s.Snapshot()
	b.ResetTimer()
	for range b.N {
		flips += len(apply(&fsm.FailOver{Node: at, Cause: fsm.CauseLapsed}).Flips)
	}
	if flips == 0 {
		b.Fatal("nothing flipped")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(flips), "ns/unit")
}

// BenchmarkSetReplicas asks every unit of a million for another copy.
func BenchmarkSetReplicas(b *testing.B) {
	s := fsmtest.LargeReplicated(largeNodes, *large, 0)
	rev := s.Revision()
	b.ResetTimer()
	for i := range b.N {
		rev++
		s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1_700_000_000_000, Cmd: &fsm.SetSettings{Settings: fsm.Settings{Replicas: uint32(1 - i%2)}}})
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
