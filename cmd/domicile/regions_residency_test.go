package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestI2NodesOfTwoRegionsTalkOnlyOfWhatMovesOrIsReadThere: one directory for both regions. Verify looks at
// every byte that nodes of different regions sent each other.
func TestI2NodesOfTwoRegionsTalkOnlyOfWhatMovesOrIsReadThere(t *testing.T) {
	t.Parallel()
	r := testcluster.StartRegions(t, testcluster.RegionsOptions{Global: testcluster.Options{
		Controls: 1, Nodes: 2, Proxies: 1, Faults: true, ControlArgs: faultControlArgs(usualLease), NodeArgs: []string{"--lease"},
	}})
	c := r.Global
	c.AddNodeIn("us", "z1", "--lease")
	c.AddNodeIn("us", "z2", "--lease")
	createReplicated(t, c, "n1", "stays", "read", "moves")
	proxy := c.Proxies[0].URL
	write := func(tenant string) {
		c.Must(c.Do(http.MethodPost, proxy+"/t/"+tenant+"/query", `{"sql":"update register set count = count + 1"}`), http.StatusOK)
	}
	write("stays")
	if seen := r.Crossed(); len(seen) > 0 {
		t.Errorf("passed between regions: %v", seen)
	}
	c.Must(c.Do(http.MethodPut, proxy+"/_shard/tenants/read/read-replicas/us", ""), http.StatusCreated)
	c.Must(c.Do(http.MethodPost, proxy+"/_shard/tenants/moves/move", `{"region":"us"}`), http.StatusOK)
	for _, tenant := range []string{"stays", "read", "moves"} {
		write(tenant)
	}
	wait.For(t, "the move has ended", func() error {
		a := c.Do(http.MethodGet, proxy+"/_shard/moves?active=1", "")
		if a.Status != http.StatusOK || strings.Contains(string(a.Body), `"moves"`) && !strings.Contains(string(a.Body), `"ended"`) {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	if r.Bytewise() {
		wait.For(t, "what may pass between regions has", func() error {
			if seen := r.Crossed(); seen["read"] == 0 || seen["moves"] == 0 {
				return fmt.Errorf("%v", seen)
			}
			return nil
		})
	}
	if seen := r.Crossed(); seen["stays"] > 0 {
		t.Errorf("passed between regions: %v", seen)
	}
	r.Verify("stays", "read", "moves")
}
