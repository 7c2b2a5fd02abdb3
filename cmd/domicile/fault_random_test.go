package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	at, lasts time.Duration // since the beginning of the round
	kind      string        // kill, pause, isolate, cut or one way
	on, from  *testcluster.Process
}

func (f fault) String() string {
	s := fmt.Sprintf("%v %s %s", f.at.Round(time.Millisecond), f.kind, f.on.ID)
	if f.from != nil {
		s += " from " + f.from.ID
	}
	return s + fmt.Sprintf(" for %v", f.lasts.Round(time.Millisecond))
}

// faultPlan draws the faults of one round: one after another or two at a time.
func faultPlan(r *rand.Rand, c *testcluster.Cluster, lasts time.Duration) (plan []fault) {
	all := c.All()
	for at := time.Duration(r.Int64N(int64(time.Second))); at < lasts; at += time.Duration(r.Int64N(int64(2 * time.Second))) {
		f := fault{at: at, on: all[r.IntN(len(all))], lasts: 200*time.Millisecond + time.Duration(r.Int64N(int64(3*faultLease)))}
		if r.IntN(2) == 0 { // nodes most of all
			f.on = c.Nodes[r.IntN(len(c.Nodes))]
		}
		switch f.kind = []string{"kill", "pause", "isolate", "cut", "one way"}[r.IntN(5)]; f.kind {
		case "cut", "one way":
			for f.from = f.on; f.from == f.on; {
				f.from = all[r.IntN(len(all))]
			}
		}
		f.lasts = min(f.lasts, max(lasts-at, 200*time.Millisecond))
		plan = append(plan, f)
	}
	return plan
}

// runFaults makes the faults of a plan and undoes each when its time is over;
// cuts are undone all at once when none of them lasts.
func runFaults(t *testing.T, c *testcluster.Cluster, plan []fault) {
	type event struct {
		at    time.Duration
		fault fault
		ends  bool
	}
	var events []event
	for _, f := range plan {
		events = append(events, event{f.at, f, false}, event{f.at + f.lasts, f, true})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	begin, cuts := time.Now(), 0
	down := map[*testcluster.Process]int{}
	for _, e := range events {
		pass(e.at - time.Since(begin))
		f := e.fault
		switch f.kind {
		case "kill", "pause":
			switch {
			case !e.ends:
				if down[f.on]++; down[f.on] > 1 {
					continue // it is down already
				}
				if f.kind == "kill" {
					f.on.Kill()
				} else {
					f.on.Pause()
				}
			default:
				if down[f.on]--; down[f.on] > 0 {
					continue
				}
				if _, ended := f.on.Ended(); ended {
					f.on.Start()
				} else {
					f.on.Resume()
				}
			}
		default:
			if e.ends {
				if cuts--; cuts == 0 {
					c.Heal()
				}
				continue
			}
			cuts++
			switch f.kind {
			case "isolate":
				c.Isolate(f.on)
			case "cut":
				c.Cut(f.on, f.from)
			case "one way":
				c.CutOneWay(f.from, f.on)
			}
		}
	}
	c.Heal()
	for _, p := range c.All() {
		p.AwaitReady()
	}
}

// TestFaultsAtRandom: kill -9, pauses beyond the lease, cuts both ways and one
// way, of control servers, nodes and proxies, in the order that a seed gives,
// under load, with every checker; after each round all goes on and the copies
// are equal. DOMICILE_FAULT_TIME and DOMICILE_FAULT_SEED.
func TestFaultsAtRandom(t *testing.T) {
	if testing.Short() || os.Getenv("DOMICILE_FAULT_TIME") == "" {
		t.Skip("make test-fault runs it, for as long as DOMICILE_FAULT_TIME says")
	}
	seed, lasts := faultSeed(t), faultTime(t)
	t.Logf("DOMICILE_FAULT_SEED=%d for %v", seed, lasts)
	r := rand.New(rand.NewPCG(seed, 0))
	c := faultCluster(t, 3, faultLease)
	const round = 12 * time.Second
	var ok, refused, unknown, faults, rounds int
	for begin := time.Now(); time.Since(begin) < lasts && !t.Failed(); rounds++ {
		names := tenantNames(fmt.Sprintf("r%d-", rounds), 3)
		createReplicated(t, c, "", names...)
		plan := faultPlan(r, c, round)
		rec := history.NewRecorder()
		load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 4, Pause: 10 * time.Millisecond, Timeout: 5 * time.Second, Reads: true, Seed: seed + uint64(rounds)})
		func() {
			defer load.Stop()
			runFaults(t, c, plan)
			awaitProgress(t, rec, 10, names...)
			c.AwaitCopiesInSync(1, names...)
		}()
		ops := rec.Ops()
		if err := history.Check(ops, finalLogs(t, c, names...), time.Minute); err != nil {
			t.Errorf("round %d: %v", rounds, err)
		}
		c.Verify(names...)
		for _, name := range names {
			c.Must(c.Do(http.MethodDelete, c.Proxies[0].URL+"/_shard/tenants/"+name, ""), http.StatusNoContent)
		}
		a, b, d := history.Counts(ops)
		ok, refused, unknown, faults = ok+a, refused+b, unknown+d, faults+len(plan)
		if t.Failed() {
			t.Logf("round %d: %d ok, %d refused, %d unknown; faults: %v", rounds, a, b, d, plan)
		}
	}
	t.Logf("seed %d: %d rounds, %d faults, %d operations answered, %d refused, %d unknown", seed, rounds, faults, ok, refused, unknown)
}
