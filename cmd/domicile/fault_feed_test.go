package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/wait"
)

// TestFaultsL9GarbledAndCutFeeds: what is garbled on a replication connection, of
// the entries or of their acknowledgements, is found by its sum and ends the
// connection; a feed that is slow or cut holds writes up no longer than until its
// copy is taken out. Nothing is lost, and in the end the copies are equal.
func TestFaultsL9GarbledAndCutFeeds(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 2, faultLease)
	if !c.Bytewise() {
		t.Skip("a network of namespaces garbles nothing")
	}
	names := tenantNames("g", 3)
	createReplicated(t, c, "n1", names...)
	source, follower := c.Nodes[0], c.Nodes[1]
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	// Whoever receives it tells of it in its log.
	for _, way := range []struct{ from, to int }{{0, 1}, {1, 0}} {
		from, to := c.Nodes[way.from], c.Nodes[way.to]
		wait.For(t, to.Name+" finds a garbled frame", func() error {
			c.Garble(from, to)
			pass(20 * time.Millisecond)
			if !strings.Contains(to.Log(), "bad frame: the sum of one") {
				return errors.New("it has told of none")
			}
			return nil
		})
		c.Heal()
		c.AwaitCopiesInSync(1, names...)
		awaitProgress(t, rec, 10, names...)
	}
	c.Slow(source, follower, 1<<10)
	pass(2 * faultLease)
	awaitProgress(t, rec, 10, names...)
	c.Cut(source, follower)
	pass(2 * faultLease)
	awaitProgress(t, rec, 10, names...)
	c.Heal()
	c.AwaitCopiesInSync(1, names...)
	awaitProgress(t, rec, 10, names...)
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}
