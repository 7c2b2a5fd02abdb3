package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// faultLease is the length of leases in the tests of faults; usualLease is the default, for
// those that want no request to fail: on a full machine a node, a copy or a leader may stand
// still for longer than a short one.
const (
	faultLease = time.Second
	usualLease = 3 * faultLease
)

// patientProxy are arguments of proxies where no request may fail and nothing is cut off: one
// that stands still itself takes whom it connects to for out of reach.
var patientProxy = []string{"--connect-timeout", "5s"}

func faultCluster(t *testing.T, nodes int, lease time.Duration, nodeArgs ...string) *testcluster.Cluster {
	return testcluster.Start(t, testcluster.Options{
		Controls: 3, Nodes: nodes, Proxies: 2, Faults: true,
		ControlArgs: faultControlArgs(lease),
		NodeArgs:    append([]string{"--lease"}, nodeArgs...),
	})
}

func faultControlArgs(lease time.Duration) []string {
	return []string{"--auto-failover", lease.String(), "--repair-after", "1s", "--remove-after", "200ms"}
}

// createReplicated creates tenants for the load, each with a copy in sync.
func createReplicated(t *testing.T, c *testcluster.Cluster, node string, names ...string) {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"schema": history.Schema, "node": node})
	if node == "" {
		body, _ = json.Marshal(map[string]string{"schema": history.Schema})
	}
	for _, name := range names {
		wait.For(t, "tenant "+name+" is created", func() error {
			a := c.Do(http.MethodPut, c.Proxies[0].URL+"/_shard/tenants/"+name, string(body), "Idempotency-Key", "create-"+name)
			if a.Status != http.StatusCreated {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	c.AwaitCopiesInSync(1, names...)
}

func proxyURLs(c *testcluster.Cluster) (urls []string) {
	for _, p := range c.Proxies {
		urls = append(urls, p.URL)
	}
	return urls
}

// awaitProgress waits until each unit has had n more writes acknowledged.
func awaitProgress(t *testing.T, r *history.Recorder, n int, units ...string) {
	t.Helper()
	before := map[string]int{}
	for _, u := range units {
		before[u] = r.Acked(u)
	}
	for _, u := range units {
		wait.For(t, "writes of "+u+" are acknowledged", func() error {
			if now := r.Acked(u); now < before[u]+n {
				return fmt.Errorf("%d since", now-before[u])
			}
			return nil
		})
	}
}

// finalLogs reads what the units hold at the end.
func finalLogs(t *testing.T, c *testcluster.Cluster, units ...string) history.Logs {
	t.Helper()
	logs := history.Logs{}
	for _, u := range units {
		wait.For(t, "the log of "+u+" is read", func() error {
			a := c.Do(http.MethodPost, c.Proxies[0].URL+"/t/"+u+"/query", `{"sql":"`+history.LogQuery+`"}`)
			if a.Status != http.StatusOK {
				return fmt.Errorf("%s", a)
			}
			var got struct{ Rows [][]int64 }
			a.Decode(t, &got)
			for _, r := range got.Rows {
				logs[u] = append(logs[u], history.Register{Last: r[0], Count: r[1]})
			}
			return nil
		})
	}
	return logs
}

// noneFailed checks that no operation since failed.
func noneFailed(t *testing.T, ops []*history.Op) {
	t.Helper()
	failed := 0
	for _, o := range ops {
		if o.Outcome != history.OK {
			if failed++; failed <= 5 {
				t.Errorf("a %s of %s failed (%s, %v to %v): %s", o.Kind, o.Unit, o.Outcome, o.Begin, o.End, o.Why)
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d operations failed", failed, len(ops))
	}
}

func tenantNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%d", prefix, i))
	}
	return names
}

// TestFaultsL10ControlPlaneKilledUnderLoad: the kill of the leader, and then of
// all control servers for several leases, fails no request of a replicated
// tenant.
func TestFaultsL10ControlPlaneKilledUnderLoad(t *testing.T) {
	// Five election timeouts or more: a change of leader stops no write (§3.5.6).
	const lease = usualLease
	c := faultCluster(t, 3, lease)
	names := tenantNames("k", 4)
	createReplicated(t, c, "", names...)
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	c.Leader().Kill()
	pass(2 * lease)
	awaitProgress(t, rec, 10, names...)
	for _, p := range c.Controls {
		p.Kill()
	}
	pass(5 * lease)
	awaitProgress(t, rec, 10, names...)
	for _, p := range c.Controls {
		p.Start()
	}
	for _, p := range c.Controls {
		p.AwaitReady()
	}
	awaitProgress(t, rec, 10, names...)
	pass(2 * lease)
	load.Stop()
	noneFailed(t, rec.Ops())
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}

// TestFaultsL11CleanStopUnderLoad: SIGTERM of a node hands its units over, and
// fails no request; started again it gets copies again.
func TestFaultsL11CleanStopUnderLoad(t *testing.T) {
	c := faultCluster(t, 3, usualLease)
	names := tenantNames("s", 6)
	createReplicated(t, c, "n1", names...)
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Stop()
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Start()
	c.Nodes[0].AwaitReady()
	c.AwaitCopiesInSync(1, names...)
	awaitProgress(t, rec, 10, names...)
	load.Stop()
	noneFailed(t, rec.Ops())
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}

// TestFaultsI1CutOffNodeStopsFirst: a node with ten tenants that is cut off from control servers,
// copies and proxies, but not from a client that talks to it directly, stops
// acknowledging before any other node starts, and the tenants are written again
// on their copies. With --ack primary, so that nothing but the lease stops it.
func TestFaultsI1CutOffNodeStopsFirst(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 2, faultLease, "--ack", "primary")
	names := tenantNames("d", 10)
	createReplicated(t, c, "n1", names...)
	var silent, again []time.Duration
	at, other := c.Nodes[0], c.Nodes[1]
	for run := range faultRuns(2) {
		rec := history.NewRecorder()
		config := history.LoadConfig{Recorder: rec, Units: names, Proxies: []string{at.URL}, Clients: 1, Pause: time.Millisecond, Timeout: 5 * time.Second, FirstID: int64(run+1) * 2_000_000}
		direct := history.Start(config)
		config.Proxies, config.FirstID = proxyURLs(c), config.FirstID+1_000_000
		load := history.Start(config)
		awaitProgress(t, rec, 10, names...)
		cut := rec.Now()
		c.Isolate(at)
		for _, u := range names {
			awaitPrimary(t, c, u, other.ID)
		}
		awaitProgress(t, rec, 5, names...)
		c.Heal()
		direct.Stop()
		load.Stop()
		if err := history.OneWriter(rec.Ops()); err != nil {
			t.Errorf("run %d: %v", run, err)
		}
		stopped, began := turnover(rec.Ops(), cut)
		silent, again = append(silent, stopped), append(again, began)
		c.AwaitCopiesInSync(1, names...)
		at, other = other, at
	}
	slices.Sort(silent)
	slices.Sort(again)
	t.Logf("%d runs; the node's last acknowledgement came %v to %v (median %v) after the cut, the first of the last tenant elsewhere %v to %v (median %v)", len(again),
		silent[0], silent[len(silent)-1], silent[len(silent)/2], again[0], again[len(again)-1], again[len(again)/2])
	c.Verify(names...)
}

// turnover tells when, after a cut, the last write of the branches that there were
// was acknowledged, and when every unit had one of a newer branch.
func turnover(ops []*history.Op, cut time.Duration) (stopped, began time.Duration) {
	epochs, first := map[string]uint64{}, map[string]time.Duration{}
	for _, o := range ops {
		if o.Outcome == history.OK && o.End <= cut {
			epochs[o.Unit] = max(epochs[o.Unit], o.Position.Epoch)
		}
	}
	for _, o := range ops {
		switch after := o.End - cut; {
		case o.Outcome != history.OK || after <= 0:
		case o.Position.Epoch <= epochs[o.Unit]:
			stopped = max(stopped, after)
		case first[o.Unit] == 0 || after < first[o.Unit]:
			first[o.Unit] = after
		}
	}
	for _, d := range first {
		began = max(began, d)
	}
	return stopped.Round(time.Millisecond), began.Round(time.Millisecond)
}

// awaitPrimary waits until the directory places a tenant on a node.
func awaitPrimary(t *testing.T, c *testcluster.Cluster, tenant, node string) {
	t.Helper()
	wait.For(t, tenant+" is on "+node, func() error {
		var got struct{ Node, State string }
		a := c.Do(http.MethodGet, c.Controls[0].URL+"/_shard/tenants/"+tenant, "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		if a.Decode(t, &got); got.Node != node {
			return fmt.Errorf("it is on %s, %s", got.Node, got.State)
		}
		return nil
	})
}

// pass lets time go by that belongs to what is tested: a lease that runs out.
func pass(d time.Duration) { <-time.After(d) }

// loadPause is the time between a client's answer and its next request: three times as long
// in an ordinary run, where the load takes most of the machine, as where faults are made
// for long.
func loadPause() time.Duration {
	if longRun() {
		return 5 * time.Millisecond
	}
	return 15 * time.Millisecond
}

// longRun reports whether DOMICILE_FAULT_TIME is given.
func longRun() bool { return os.Getenv("DOMICILE_FAULT_TIME") != "" }

// faultTime is how long faults are made at random: DOMICILE_FAULT_TIME.
func faultTime(t *testing.T) time.Duration {
	if v := os.Getenv("DOMICILE_FAULT_TIME"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("DOMICILE_FAULT_TIME: %v", err)
		}
		return d
	}
	return time.Minute
}

// faultSeed is DOMICILE_FAULT_SEED, or any.
func faultSeed(t *testing.T) uint64 {
	if v := os.Getenv("DOMICILE_FAULT_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("DOMICILE_FAULT_SEED: %v", err)
		}
		return n
	}
	return rand.Uint64()
}

// faultFirstRound is DOMICILE_FAULT_ROUND, or 0: a round can be repeated without
// those before it.
func faultFirstRound(t *testing.T) int {
	v := os.Getenv("DOMICILE_FAULT_ROUND")
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("DOMICILE_FAULT_ROUND: %v", err)
	}
	return n
}

// faultRuns is DOMICILE_FAULT_RUNS, or usual.
func faultRuns(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("DOMICILE_FAULT_RUNS")); err == nil && n > 0 {
		return n
	}
	return usual
}
