package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// moveRegions is a deployment of the global group, which keeps eu, and the groups of us and
// tr; each region has two zones.
func moveRegions(t *testing.T, lease time.Duration, replicas string, proxyArgs ...string) *testcluster.Regions {
	t.Helper()
	group := testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1, NodeArgs: []string{"--lease"}, ProxyArgs: proxyArgs,
		ControlArgs: append(faultControlArgs(lease), "--replicas", replicas)}
	global := group
	global.Faults = true
	return testcluster.StartRegions(t, testcluster.RegionsOptions{Global: global, Regions: map[string]testcluster.Options{"us": group, "tr": group}})
}

// createIn makes a tenant in a region.
func createIn(t *testing.T, r *testcluster.Regions, region, name string) {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"schema": history.Schema, "region": region})
	wait.For(t, "tenant "+name+" is created", func() error {
		a := r.Do(http.MethodPut, r.Global.Proxies[0].URL+"/_shard/tenants/"+name, string(body), "Idempotency-Key", "create-"+name)
		if a.Status != http.StatusCreated {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// moveTo moves a tenant to a region, asked of a process, and gives what that tells.
func moveTo(t *testing.T, r *testcluster.Regions, by *testcluster.Process, name, region string) proto.TenantMoved {
	t.Helper()
	moved, _ := movedTo(t, r, by, name, region)
	return moved
}

// movedTo gives the whole answer, too.
func movedTo(t *testing.T, r *testcluster.Regions, by *testcluster.Process, name, region string) (moved proto.TenantMoved, a testcluster.Answer) {
	t.Helper()
	a = awaitChange(t, "tenant "+name+" is moved to "+region, http.StatusOK, func(key string) testcluster.Answer {
		return r.Do(http.MethodPost, by.URL+"/_shard/tenants/"+name+"/move", `{"region":"`+region+`"}`, "Idempotency-Key", key)
	})
	if a.Decode(t, &moved); string(moved.Region) != region {
		t.Errorf("moved to %s: %+v", region, moved)
	}
	return moved, a
}

// noMoves waits until no move runs in the global directory.
func noMoves(t *testing.T, r *testcluster.Regions) {
	t.Helper()
	wait.For(t, "every move between directories has ended", func() error {
		a := r.Do(http.MethodGet, r.Global.AnyControl().URL+"/_shard/moves?active=1&consistent=1", "")
		if a.Status != http.StatusOK || string(a.Body) != "[]\n" && string(a.Body) != "[]" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// TestM1M4R21ATenantGoesFromRegionToRegionInUse: between regions that keep their own
// directory and one that the global group keeps, to and fro, under load through the proxies
// of all regions: no request fails, nothing is lost, and nothing is left elsewhere.
func TestM1M4R21ATenantGoesFromRegionToRegionInUse(t *testing.T) {
	r := moveRegions(t, usualLease, "1", patientProxy...)
	createIn(t, r, "us", "acme")
	createIn(t, r, "eu", "beta")
	var proxies []string
	for _, c := range []*testcluster.Cluster{r.Global, r.Own["us"], r.Own["tr"]} {
		proxies = append(proxies, proxyURLs(c)...)
	}
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: []string{"acme", "beta"}, Proxies: proxies, Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, "acme", "beta")
	for i, to := range []string{"tr", "eu", "us"} {
		by := []*testcluster.Process{r.Own["us"].Proxies[0], r.Global.Proxies[0], r.Own["tr"].Controls[0]}[i]
		m, a := movedTo(t, r, by, "acme", to)
		also := map[string]string{"tr": "/tr", "eu": "/tr", "us": "/us"}[to]
		if at, ok := proto.ParseAlso(a.Header.Get(proto.HeaderAlso)); !ok || !strings.HasSuffix(at.Authority, also) {
			t.Errorf("the answer tells of the directory %q, too, want that of %s", a.Header.Get(proto.HeaderAlso), also)
		}
		t.Logf("acme went from %s to %s in %s: %d ms, pause %v ms, replica %q %q", m.From, m.To, m.Region, m.MS, deref(m.PauseMS), m.ReplicaOn, m.Unreplicated)
		awaitProgress(t, rec, 10, "acme")
		noMoves(t, r)
	}
	moveTo(t, r, r.Global.Proxies[0], "beta", "us")
	awaitProgress(t, rec, 10, "acme", "beta")
	load.Stop()
	noneFailed(t, rec.Ops())
	if err := history.Check(rec.Ops(), finalLogs(t, r.Global, "acme", "beta"), time.Minute); err != nil {
		t.Error(err)
	}
	noMoves(t, r)
	movesAreToldOf(t, r)
	r.Verify("acme", "beta")
}

// movesAreToldOf: what has gone from or to a region its own group tells of, under the number of
// the global group's move, too. A move that was undone, and done anew, counts for none.
func movesAreToldOf(t *testing.T, r *testcluster.Regions) {
	t.Helper()
	list := func(c *testcluster.Cluster) (all []proto.Move) {
		r.Must(r.Do(http.MethodGet, c.AnyControl().URL+"/_shard/moves", ""), http.StatusOK).Decode(t, &all)
		return all
	}
	known := map[fsm.JobID]proto.Move{}
	for _, m := range list(r.Global) {
		if m.Of != 0 {
			t.Errorf("the global group tells of a part of a move: %+v", m)
		}
		known[m.ID] = m
	}
	for region, want := range map[string]int{"us": 3, "tr": 2} {
		parts := slices.DeleteFunc(list(r.Own[region]), func(m proto.Move) bool {
			return known[m.Of].Outcome == proto.MoveWasUndone && m.Outcome != proto.MoveWasDone
		})
		for _, m := range parts {
			of, ok := known[m.Of]
			if !ok || m.Kind != proto.KindMove || m.Tenant != of.Tenant || m.Outcome != proto.MoveWasDone || m.From != of.From && m.To != of.To {
				t.Errorf("%s tells of %+v, the global group of %+v", region, m, of)
			}
		}
		if len(parts) != want {
			t.Errorf("%s tells of %d moves, want %d", region, len(parts), want)
		}
	}
}

func deref(ms *uint64) uint64 {
	if ms == nil {
		return 0
	}
	return *ms
}
