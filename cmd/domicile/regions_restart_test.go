package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"

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
	createAtHome(t, eu, "eu", "n1", "abroad")
	createAtHome(t, us, "us", "us-n1", "at-home")
	ask := func(p *testcluster.Process, tenant string) testcluster.Answer {
		return r.Do(http.MethodPost, p.URL+"/t/"+tenant+"/query", `{"sql":"select count(*) from log"}`, "Domicile-Hold", "0")
	}
	for _, p := range us.Proxies {
		awaitAnswer(t, "abroad is read from us", http.StatusOK, func() testcluster.Answer { return ask(p, "abroad") })
		awaitAnswer(t, "at-home is read in us", http.StatusOK, func() testcluster.Answer { return ask(p, "at-home") })
		awaitKept(t, p.Data, "at-home")
		awaitKept(t, p.Data+".global", "abroad")
	}
	r.RefuseRegion("us")
	rec, load := startLoad(t, us, "at-home")
	awaitProgress(t, rec, 5, "at-home")
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
	awaitProgress(t, rec, 20, "at-home")
	for _, p := range us.Proxies {
		awaitAnswer(t, "abroad is known and out of reach", http.StatusBadGateway, func() testcluster.Answer { return ask(p, "abroad") })
		if a := ask(p, "nobody"); a.Status != http.StatusServiceUnavailable {
			t.Errorf("a name that only the global group could tell of: %s", a)
		}
	}
	us.Nodes[0].Kill() // the restarted group fails over
	awaitProgress(t, rec, 10, "at-home")
	us.Nodes[0].Start()
	us.Nodes[0].AwaitReady()

	r.HealRegion("us")
	for _, p := range us.Proxies {
		awaitAnswer(t, "abroad is read from us again", http.StatusOK, func() testcluster.Answer { return ask(p, "abroad") })
		awaitAnswer(t, "nobody is unknown", http.StatusNotFound, func() testcluster.Answer { return ask(p, "nobody") })
	}
	us.AwaitCopiesInSync(1, "at-home")
	load.Stop()
	checkLoad(t, rec, us, "at-home")
	r.Verify("abroad", "at-home")
}

// awaitKept waits until a tenant is in the copy of a directory that a proxy keeps in a file.
func awaitKept(t *testing.T, file, tenant string) {
	t.Helper()
	wait.For(t, tenant+" is in "+file, func() error {
		kept, err := os.ReadFile(file)
		if err == nil && !bytes.Contains(kept, []byte(tenant)) {
			return fmt.Errorf("%d bytes are without it", len(kept))
		}
		return err
	})
}
