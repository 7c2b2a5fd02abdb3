package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestFaultsAtRandomOverRegions: three regions, one kept by the global group, under load
// through the proxies of all of them and past these at every node, while tenants are moved
// within regions and between them, created and deleted; faults of every kind (faultKinds,
// regionFaultKinds) in the order that a seed gives, with every checker. After each round the links are
// healed, and all goes on. One short round, unless DOMICILE_FAULT_TIME says how long.
func TestFaultsAtRandomOverRegions(t *testing.T) {
	if testing.Short() {
		t.Skip("a deployment of three regions")
	}
	seed, lasts, round := faultSeed(t), time.Duration(0), 8*time.Second
	group := testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1, ControlArgs: faultControlArgs(faultLease), NodeArgs: []string{"--lease"}}
	if longRun() {
		lasts, round, group.Controls = faultTime(t), 15*time.Second, 3
	} else {
		t.Parallel()
	}
	if n, err := strconv.Atoi(os.Getenv("DOMICILE_FAULT_CONTROLS")); err == nil {
		group.Controls = n
	}
	t.Logf("DOMICILE_FAULT_SEED=%d DOMICILE_FAULT_CONTROLS=%d for %v", seed, group.Controls, lasts)
	global := group
	if global.Faults = true; lasts > 0 {
		global.Disks = testcluster.WantDisks
	}
	r := testcluster.StartRegions(t, testcluster.RegionsOptions{Global: global, Regions: map[string]testcluster.Options{"us": group, "tr": group}})
	x := newFaultRun(t, r.Whole())
	x.r = r
	var ok, refused, unknown, rounds int
	for begin := time.Now(); (rounds == 0 || time.Since(begin) < lasts) && !t.Failed(); rounds++ {
		a, b, d := faultRoundOverRegions(t, x, seed, faultFirstRound(t)+rounds, round)
		ok, refused, unknown = ok+a, refused+b, unknown+d
	}
	t.Logf("seed %d: %d rounds, %d operations answered, %d refused, %d unknown; faults that took place: %v; not to be made here: %d", seed, rounds, ok, refused, unknown, x.made, x.over)
}

// faultRegions are the regions of that deployment.
var faultRegions = []string{"eu", "tr", "us"}

// firstDirect is the number of the first client that goes past the proxies, to any node.
const firstDirect = 1000

// faultRoundOverRegions is one round: its plan follows from seed and number alone.
func faultRoundOverRegions(t *testing.T, x *faultRun, seed uint64, number int, lasts time.Duration) (ok, refused, unknown int) {
	r, names := x.r, tenantNames(fmt.Sprintf("r%d-", number), 3)
	plan := faultPlan(rand.New(rand.NewPCG(seed, uint64(number))), x.c, lasts, faultRegions...)
	rec := history.NewRecorder()
	defer func() {
		if ok, refused, unknown = history.Counts(rec.Ops()); t.Failed() {
			t.Logf("round %d of seed %d: %d ok, %d refused, %d unknown; faults: %v", number, seed, ok, refused, unknown, plan)
		}
	}()
	for i, name := range names {
		createIn(t, r, faultRegions[i], name)
		r.In(faultRegions[i]).AwaitCopiesInSync(1, name)
	}
	awaitKnown(t, r, names...)
	config := history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(x.c), Clients: 3, Pause: 10 * time.Millisecond, Timeout: 5 * time.Second, Reads: true, Seed: seed + uint64(number)}
	load := history.Start(config)
	config.Proxies, config.Clients, config.FirstID, config.FirstClient = nil, 1, 1_000_000, firstDirect
	for _, n := range x.c.Nodes {
		config.Proxies = append(config.Proxies, n.URL)
	}
	direct := history.Start(config)
	func() {
		defer load.Stop()
		defer direct.Stop()
		m := startRegionMover(t, r, rand.New(rand.NewPCG(seed, ^uint64(number))), number, names...)
		x.run(plan)
		m.stop()
		awaitProgress(t, rec, 10, names...)
		awaitReplicated(t, r, names...)
	}()
	if err := errors.Join(history.Check(rec.Ops(), finalLogs(t, x.c, names...), time.Minute), neverAnswered(rec.Ops())); err != nil {
		t.Errorf("round %d: %v", number, err)
	}
	r.Verify(names...)
	awaitOnly(t, r, names...)
	for _, name := range names {
		deleteTenant(t, r.Global, name)
	}
	awaitNoTasks(t, r)
	return ok, refused, unknown
}

// awaitKnown waits until every proxy serves the tenants.
func awaitKnown(t *testing.T, r *testcluster.Regions, names ...string) {
	t.Helper()
	for _, p := range r.Whole().Proxies {
		for _, name := range names {
			wait.For(t, p.Name+" serves "+name, func() error {
				if a := r.Do(http.MethodPost, p.URL+"/t/"+name+"/query", `{"sql":"select 1"}`); a.Status != http.StatusOK {
					return fmt.Errorf("%s", a)
				}
				return nil
			})
		}
	}
}

// neverAnswered checks that no client was told by a proxy that a tenant that is there is
// not, or that it should have asked elsewhere.
func neverAnswered(ops []*history.Op) error {
	var errs []error
	for _, o := range ops {
		if status, _, _ := strings.Cut(o.Why, " "); o.Client < firstDirect && (status == "404" || status == "421" || status == "401") && len(errs) < 5 {
			errs = append(errs, fmt.Errorf("a %s of %s, %v to %v, was answered %s", o.Kind, o.Unit, o.Begin, o.End, o.Why))
		}
	}
	return errors.Join(errs...)
}

// awaitReplicated waits until each tenant has a copy in sync, wherever it lives now.
func awaitReplicated(t *testing.T, r *testcluster.Regions, names ...string) {
	t.Helper()
	for _, name := range names {
		var at struct{ Region string }
		wait.For(t, name+" is told of", func() error {
			a := r.Do(http.MethodGet, r.Global.Proxies[0].URL+"/_shard/tenants/"+name+"?consistent=1", "")
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &at) != nil || at.Region == "" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
		r.In(at.Region).AwaitCopiesInSync(1, name)
	}
}

// awaitOnly waits until no tenant is left but those, wherever it is asked.
func awaitOnly(t *testing.T, r *testcluster.Regions, names ...string) {
	t.Helper()
	for _, p := range slices.Concat(r.Whole().Controls, r.Whole().Proxies) {
		wait.For(t, p.Name+" lists the tenants of the load and no others", func() error {
			a := r.Do(http.MethodGet, p.URL+"/_shard/tenants?limit=1000&consistent=1", "")
			var list []struct{ Name string }
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &list) != nil {
				return fmt.Errorf("%s", a)
			}
			var have []string
			for _, x := range list {
				have = append(have, x.Name)
			}
			if slices.Sort(have); !slices.Equal(have, names) {
				return fmt.Errorf("%v", have)
			}
			return nil
		})
	}
}

// awaitNoTasks waits until no group does anything for another.
func awaitNoTasks(t *testing.T, r *testcluster.Regions) {
	t.Helper()
	for _, region := range faultRegions {
		wait.For(t, "nothing is under way in "+region+" for another group", func() error {
			a := r.Do(http.MethodGet, r.In(region).AnyControl().URL+"/_shard/tasks?consistent=1", "")
			var tasks []struct{ Done, Forgone bool }
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &tasks) != nil {
				return fmt.Errorf("%s", a)
			}
			for _, x := range tasks {
				if !x.Done && !x.Forgone {
					return fmt.Errorf("%s", a)
				}
			}
			return nil
		})
	}
}

// deleteTenant deletes a tenant, however often it takes.
func deleteTenant(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	wait.For(t, name+" is deleted", func() error {
		a := c.DoWithin(moverPatience, http.MethodDelete, c.Proxies[0].URL+"/_shard/tenants/"+name, "")
		if a.Status != http.StatusNoContent && a.Status != http.StatusNotFound {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}
