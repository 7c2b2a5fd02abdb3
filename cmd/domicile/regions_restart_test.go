package main

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestFaultsR3ARegionStartsAgainWhileItIsCutOff: every control server and proxy of us is killed and started again while the
// links are down, and say so. Their logs and caches are all that they need: the region's tenants are written,
// the names of others are known (502, never 404), and a name that is nowhere is not called unknown,
// as the global group cannot be asked.
func TestFaultsR3ARegionStartsAgainWhileItIsCutOff(t *testing.T) {
	t.Parallel()
	r, eu, us := startTwoLevels(t, 2, 2)
	began := time.Now()
	createAtHome(t, eu, "eu", "n1", "e0")
	createAtHome(t, us, "us", "us-n1", "u0")
	ask := func(p *testcluster.Process, tenant string) testcluster.Answer {
		return r.Do(http.MethodPost, p.URL+"/t/"+tenant+"/query", `{"sql":"select count(*) from log"}`, "Domicile-Hold", "0")
	}
	for _, p := range us.Proxies {
		awaitAnswer(t, "e0 is read from us", http.StatusOK, func() testcluster.Answer { return ask(p, "e0") })
		awaitAnswer(t, "u0 is read in us", http.StatusOK, func() testcluster.Answer { return ask(p, "u0") })
		awaitCaches(t, p, began)
	}
	r.RefuseRegion("us")
	rec, load := startLoad(t, us, "u0")
	awaitProgress(t, rec, 5, "u0")
	servers := append(append([]*testcluster.Process{}, us.Controls...), us.Proxies...)
	for _, p := range servers {
		p.Kill()
	}
	for _, p := range servers {
		p.Start()
	}
	for _, p := range servers {
		p.AwaitReady()
	}
	awaitProgress(t, rec, 20, "u0")
	for _, p := range us.Proxies {
		awaitAnswer(t, "e0 is known and out of reach", http.StatusBadGateway, func() testcluster.Answer { return ask(p, "e0") })
		if a := ask(p, "nobody"); a.Status != http.StatusServiceUnavailable {
			t.Errorf("a name that only the global group could tell of: %s", a)
		}
	}
	us.Nodes[0].Kill() // the restarted group fails over
	awaitProgress(t, rec, 10, "u0")
	us.Nodes[0].Start()
	us.Nodes[0].AwaitReady()

	r.HealRegion("us")
	for _, p := range us.Proxies {
		awaitAnswer(t, "e0 is read from us again", http.StatusOK, func() testcluster.Answer { return ask(p, "e0") })
		awaitAnswer(t, "nobody is unknown", http.StatusNotFound, func() testcluster.Answer { return ask(p, "nobody") })
	}
	us.AwaitCopiesInSync(1, "u0")
	load.Stop()
	checkLoad(t, rec, us, "u0")
	r.Verify("e0", "u0")
}

// awaitCaches waits until a proxy has written both directories down since a time.
func awaitCaches(t *testing.T, p *testcluster.Process, since time.Time) {
	t.Helper()
	for _, file := range []string{p.Data, p.Data + ".global"} {
		wait.For(t, file+" is written", func() error {
			info, err := os.Stat(file)
			if err == nil && info.ModTime().Before(since) {
				return fmt.Errorf("it is of %v", info.ModTime())
			}
			return err
		})
	}
}
