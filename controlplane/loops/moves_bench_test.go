package loops

import (
	"syscall"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

const benchTenants = 100_000

// bench is a directory of 100,000 tenants on 100 nodes that all answer, and a leader that
// has looked at all of it.
func bench(replicas int) (*fsm.State, *Memory, *News) {
	s := fsmtest.LargeReplicated(100, benchTenants, replicas)
	m, news := NewMemory(s.Revision()), &News{Nodes: map[fsm.NodeName]*NodeNews{}}
	for n := range s.Nodes() {
		news.Nodes[n.Name] = &NodeNews{Lease: fsm.LeaseTaken, Answered: true, List: s.ListRevision(n.Name)}
	}
	for now := fsm.Millis(1); now < 40; now++ {
		calm(Next(s, m, news, now), m)
	}
	return s, m, news
}

// calm notes that what was planned has been done, and nothing came of it.
func calm(p Plan, m *Memory) {
	for _, a := range p.Calls {
		m.Begin(a)
	}
	for _, c := range p.Proposals {
		m.Propose(c)
	}
}

func apply(b *testing.B, s *fsm.State, cmd fsm.Command) fsm.Result {
	r, _ := s.Apply(fsm.Entry{Revision: s.Revision() + 1, Term: 1, At: s.Now() + 1, Cmd: cmd})
	if r.Refusal != nil {
		b.Fatal(r.Refusal)
	}
	return r
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNext is a round of the planners in which nothing has changed but the time.
func BenchmarkNext(b *testing.B) {
	one := fsm.NodeName("node-0004")
	for _, of := range []struct {
		name     string
		replicas int
		begin    func(*fsm.State)
	}{
		{"Idle", 0, func(*fsm.State) {}},
		{"DrainOfAThousand", 0, func(s *fsm.State) { apply(b, s, &fsm.SetDrain{Node: one, Drain: true}) }},
		{"DrainOfPinned", 0, func(s *fsm.State) {
			apply(b, s, &fsm.SetDrain{Node: one, Drain: true})
			for u := range s.HeldBy(one) {
				name, _, _ := u.Unit.Split()
				apply(b, s, &fsm.SetPin{Tenant: name, Pinned: true})
			}
		}},
		{"DrainOfFiftyThousandPinned", 0, func(s *fsm.State) {
			for i := range benchTenants / 2 {
				r := apply(b, s, &fsm.CreateTenant{Name: fsmtest.TenantName(benchTenants + i), Node: &one, Pinned: true})
				apply(b, s, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
			}
			apply(b, s, &fsm.SetDrain{Node: one, Drain: true})
		}},
		{"ThousandQueuedMoves", 0, func(s *fsm.State) {
			begun := 0
			for u := range s.HeldBy(one) {
				apply(b, s, &fsm.BeginMove{Unit: u.Unit, To: "node-0008", Cause: fsm.CauseMove})
				begun++
			}
			if begun < 1000 {
				b.Fatal(begun)
			}
		}},
		{"RebalanceOfAThousand", 0, func(s *fsm.State) {
			var plan []fsm.Target
			for u := range s.HeldBy(one) {
				if len(plan) < fsm.MaxRebalance {
					plan = append(plan, fsm.Target{Unit: u.Unit, ID: u.ID, Node: "node-0008"})
				}
			}
			apply(b, s, &fsm.BeginRebalance{Moves: plan})
		}},
	} {
		b.Run(of.name, func(b *testing.B) {
			s, m, news := bench(of.replicas)
			of.begin(s)
			for now := fsm.Millis(40); now < 60; now++ {
				calm(Next(s, m, news, now), m)
			}
			b.ResetTimer()
			before := cpu()
			for i := 0; i < b.N; i++ {
				Next(s, m, news, fsm.Millis(60+i))
			}
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}
