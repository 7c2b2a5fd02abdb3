package main

import (
	"net/http"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
)

// TestFaultsI1ForceWaitsForALeaseThatStillRuns: leases are given up in the settings
// while a node that is cut off still holds one, and writes. It is failed over by force
// to a node that needs none: nobody else writes before its lease has run out.
func TestFaultsI1ForceWaitsForALeaseThatStillRuns(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	c := testcluster.Start(t, testcluster.Options{
		Controls: 3, Nodes: 1, Proxies: 2, Faults: true,
		ControlArgs: faultControlArgs(lease),
		NodeArgs:    []string{"--lease", "--ack", "primary"},
	})
	c.AddNode("z2", "--ack", "primary")
	names := tenantNames("f", 2)
	createReplicated(t, c, "n1", names...)
	rec := history.NewRecorder()
	config := history.LoadConfig{Recorder: rec, Units: names, Proxies: []string{c.Nodes[0].URL}, Clients: 1, Pause: time.Millisecond, Timeout: 5 * time.Second, FirstID: 2_000_000}
	direct := history.Start(config)
	defer direct.Stop()
	config.Proxies, config.FirstID = []string{c.Nodes[1].URL}, 3_000_000
	other := history.Start(config) // which refuses them until it is promoted
	defer other.Stop()
	awaitProgress(t, rec, 10, names...)
	c.Isolate(c.Nodes[0])
	control := c.Leader().URL + "/_shard/"
	for _, change := range [][3]string{
		{http.MethodPut, "settings", `{"auto_failover_ms":0,"force":true}`},
		{http.MethodPost, "nodes/n1/failover", `{"force":true}`},
	} {
		awaitAnswer(t, change[1]+" is taken", http.StatusOK, func() testcluster.Answer { return c.Do(change[0], control+change[1], change[2]) })
	}
	pass(lease)
	direct.Stop()
	awaitProgress(t, rec, 10, names...) // of the new primary
	other.Stop()
	if err := history.OneWriter(rec.Ops()); err != nil {
		t.Error(err)
	}
	c.Heal()
	c.AwaitCopiesInSync(1, names...)
	c.Verify(names...)
}
