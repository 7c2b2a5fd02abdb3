package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
)

// TestFaultsAtRandom: faults of every kind (faultKinds), of control servers, nodes
// and proxies, in the order that a seed gives, under load, while tenants are moved and
// nodes drained, with every checker;
// after each round all goes on and the copies are equal. DOMICILE_FAULT_TIME,
// DOMICILE_FAULT_SEED, DOMICILE_FAULT_ROUND; docs/faults.md says how to read and repeat a run.
func TestFaultsAtRandom(t *testing.T) {
	if testing.Short() || !longRun() {
		t.Skip("make test-fault runs it, for as long as DOMICILE_FAULT_TIME says")
	}
	seed, lasts := faultSeed(t), faultTime(t)
	t.Logf("DOMICILE_FAULT_SEED=%d for %v", seed, lasts)
	c := testcluster.Start(t, testcluster.Options{
		Controls: 3, Nodes: 3, Proxies: 2, Faults: true, Disks: testcluster.WantDisks,
		ControlArgs: faultControlArgs(faultLease), NodeArgs: []string{"--lease"},
	})
	x := newFaultRun(t, c)
	var ok, refused, unknown, rounds int
	for begin := time.Now(); time.Since(begin) < lasts && !t.Failed(); rounds++ {
		a, b, d := faultRound(t, x, seed, faultFirstRound(t)+rounds)
		ok, refused, unknown = ok+a, refused+b, unknown+d
	}
	t.Logf("seed %d: %d rounds, %d operations answered, %d refused, %d unknown; faults that took place: %v; not to be made here: %d", seed, rounds, ok, refused, unknown, x.made, x.over)
}

// faultRound is one round: its plan follows from seed and number alone.
func faultRound(t *testing.T, x *faultRun, seed uint64, number int) (ok, refused, unknown int) {
	const round = 12 * time.Second
	c := x.c
	names := tenantNames(fmt.Sprintf("r%d-", number), 3)
	plan := faultPlan(rand.New(rand.NewPCG(seed, uint64(number))), c, round)
	rec := history.NewRecorder()
	defer func() {
		if ok, refused, unknown = history.Counts(rec.Ops()); t.Failed() {
			t.Logf("round %d of seed %d: %d ok, %d refused, %d unknown; faults: %v", number, seed, ok, refused, unknown, plan)
		}
	}()
	createReplicated(t, c, "", names...)
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 4, Pause: 10 * time.Millisecond, Timeout: 5 * time.Second, Reads: true, Seed: seed + uint64(number)})
	func() {
		defer load.Stop()
		moves := startMover(t, c, rand.New(rand.NewPCG(seed, ^uint64(number))), names...)
		x.run(plan)
		moves.stop()
		awaitProgress(t, rec, 10, names...)
		c.AwaitCopiesInSync(1, names...)
	}()
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Errorf("round %d: %v", number, err)
	}
	c.Verify(names...)
	for _, name := range names {
		deleteTenant(t, c, name)
	}
	return ok, refused, unknown
}
