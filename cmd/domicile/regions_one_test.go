package main

import (
	"net/http"
	"strings"
	"testing"

	"domicile/internal/testcluster"
)

// TestG1OneDirectoryServesEveryRegion: no group has a region of its own. Each proxy sends each
// tenant's requests to its node, in whichever region that is: there is nobody in between, as no region has routers.
func TestG1OneDirectoryServesEveryRegion(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 2, ControlArgs: faultControlArgs(usualLease), NodeArgs: []string{"--lease"}})
	far := c.AddNodeIn("us", "z1", "--lease")
	where := map[string]string{"near": c.Nodes[0].ID, "far": far.ID}
	for tenant, node := range where {
		body := `{"node":"` + node + `","schema":"create table t (n integer); insert into t values (0)"}`
		c.Must(c.Do(http.MethodPut, c.Proxies[0].URL+"/_shard/tenants/"+tenant, body), http.StatusCreated)
	}
	for tenant := range where {
		for _, p := range c.Proxies {
			c.Must(c.Do(http.MethodPost, p.URL+"/t/"+tenant+"/query", `{"sql":"update t set n = n + 1"}`), http.StatusOK)
		}
		a := c.Must(c.Do(http.MethodPost, c.Proxies[1].URL+"/t/"+tenant+"/query", `{"sql":"select n from t"}`), http.StatusOK)
		if !strings.Contains(string(a.Body), "2") {
			t.Errorf("%s was written by both proxies, and has %s", tenant, a.Body)
		}
	}
	one := c.Must(c.Do(http.MethodGet, c.Proxies[0].URL+"/_shard/tenants/far", ""), http.StatusOK)
	if !strings.Contains(string(one.Body), `"region":"us"`) {
		t.Errorf("far lives in %s", one.Body)
	}
	if a := c.Must(c.Do(http.MethodGet, c.Proxies[0].URL+"/_shard/regions", ""), http.StatusOK); strings.Contains(string(a.Body), "routers") {
		t.Errorf("regions with routers: %s", a.Body)
	}
	c.Verify("near", "far")
}
