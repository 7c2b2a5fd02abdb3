package main

import (
	"fmt"
	"testing"
	"time"

	"domicile/internal/history"
)

// TestM3AHundredMovesAtOnceFailNoRequest: tenants of each node are moved to the next one,
// all at once, so that moves cross, and back again; some of them under load. Each waits for
// its turn, none fails, no request fails, and nothing is left where they were.
func TestM3AHundredMovesAtOnceFailNoRequest(t *testing.T) {
	c := faultCluster(t, 4, usualLease)
	names := tenantNames("h", 50)
	for n := range 4 {
		var own []string
		for i := n; i < len(names); i += 4 {
			own = append(own, names[i])
		}
		createReplicated(t, c, fmt.Sprintf("n%d", 1+n), own...)
	}
	loaded := names[:8]
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: loaded, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, loaded...)
	for round := range 2 {
		begin, ids := time.Now(), make(map[string]uint64)
		for i, name := range names {
			ids[name] = beginMove(t, c, name, fmt.Sprintf(`{"to":"n%d","wait":false}`, 1+(i+round+1)%4))
		}
		for name, id := range ids {
			if j := awaitMoved(t, c, id); j.Outcome != "done" && j.Step != "cleaning" {
				t.Errorf("the move of %s: %+v", name, j)
			}
		}
		t.Logf("%d moves took %v", len(ids), time.Since(begin))
	}
	awaitProgress(t, rec, 10, loaded...)
	load.Stop()
	noneFailed(t, rec.Ops())
	if err := history.Check(rec.Ops(), finalLogs(t, c, loaded...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}
