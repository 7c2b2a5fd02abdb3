package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// startTwoLevels starts a global group, which keeps region eu itself, and region us with a
// directory of its own: three control servers and two proxies each, and so many nodes.
func startTwoLevels(t *testing.T, nodesEU, nodesUS int) (r *testcluster.Regions, eu, us *testcluster.Cluster) {
	group := testcluster.Options{Controls: 3, Proxies: 2, Faults: true, ControlArgs: faultControlArgs(faultLease), NodeArgs: []string{"--lease"}}
	global, own := group, group
	global.Nodes, own.Nodes = nodesEU, nodesUS
	r = testcluster.StartRegions(t, testcluster.RegionsOptions{Global: global, Regions: map[string]testcluster.Options{"us": own}})
	return r, r.Global, r.Own["us"]
}

// createAtHome creates tenants for the load on a node of a region, through a proxy of it, each
// with a copy in sync.
func createAtHome(t *testing.T, c *testcluster.Cluster, region, node string, names ...string) {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"schema": history.Schema, "region": region, "node": node})
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

// startLoad has clients write and read units through all proxies of a group.
func startLoad(t *testing.T, c *testcluster.Cluster, units ...string) (*history.Recorder, *history.Load) {
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: units, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	t.Cleanup(load.Stop)
	return rec, load
}

// refusal is what a refused request must be.
type refusal struct {
	status int
	code   string
}

// refused fails unless the answer is a refusal, and where it is 503 says when to ask again.
func refused(t *testing.T, what string, a testcluster.Answer, want refusal) {
	t.Helper()
	var got struct{ Code string }
	_ = json.Unmarshal(a.Body, &got)
	if a.Err != nil || a.Status != want.status || got.Code != want.code {
		t.Errorf("%s: %s, want %d %s", what, a, want.status, want.code)
	}
	if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
		t.Errorf("%s: no Retry-After", what)
	}
}

// awaitAnswer asks until the answer has a status.
func awaitAnswer(t *testing.T, what string, status int, ask func() testcluster.Answer) (a testcluster.Answer) {
	t.Helper()
	wait.For(t, what, func() error {
		if a = ask(); a.Err != nil || a.Status != status {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	return a
}

// awaitChange asks for a change until the answer has a status: under one key, and under another
// once it is told that a move was undone, as one is that a node did not answer in time.
func awaitChange(t *testing.T, what string, status int, ask func(key string) testcluster.Answer) testcluster.Answer {
	t.Helper()
	began, tries := time.Now().UnixNano(), 0
	return awaitAnswer(t, what, status, func() testcluster.Answer {
		a := ask(fmt.Sprintf("change-%d-%d", began, tries))
		if refusedAs(a) == "move_undone" {
			tries++
		}
		return a
	})
}

// census is what the groups have: by tenant its home and state, and what nodes hold. Asked
// of the global group and of the region, each for what is its own.
func census(t *testing.T, eu, us *testcluster.Cluster) (lines []string) {
	t.Helper()
	for region, c := range map[string]*testcluster.Cluster{"eu": eu, "us": us} {
		var list []struct{ Name, Region, State string }
		awaitAnswer(t, "the tenants of "+region, http.StatusOK, func() testcluster.Answer {
			a := c.Do(http.MethodGet, c.AnyControl().URL+"/_shard/tenants?limit=1000&region="+region, "")
			if a.Status == http.StatusOK {
				list = nil
				a.Decode(t, &list)
			}
			return a
		})
		for _, x := range list {
			lines = append(lines, fmt.Sprintf("%s: %s in %s, %s", region, x.Name, x.Region, x.State))
		}
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}

// noneOf fails where a node holds one of the units.
func noneOf(t *testing.T, nodes []*testcluster.Process, c *testcluster.Cluster, units ...string) {
	t.Helper()
	for _, n := range nodes {
		if _, ended := n.Ended(); ended {
			continue
		}
		a := c.Do(http.MethodGet, n.URL+"/_admin/units", "")
		for _, u := range units {
			if a.Status != http.StatusOK || strings.Contains(string(a.Body), fmt.Sprintf("%q", u)) {
				t.Errorf("%s holds %s: %s", n, u, a)
			}
		}
	}
}

// checkLoad checks all that a load was answered, against what the units hold at the end.
func checkLoad(t *testing.T, rec *history.Recorder, c *testcluster.Cluster, units ...string) {
	t.Helper()
	var ops []*history.Op
	for _, o := range rec.Ops() {
		if slices.Contains(units, o.Unit) {
			ops = append(ops, o)
		}
	}
	if err := history.Check(ops, finalLogs(t, c, units...), time.Minute); err != nil {
		t.Error(err)
	}
}
