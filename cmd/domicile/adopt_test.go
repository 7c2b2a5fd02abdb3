package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// writers write rows to tenants through proxies, without a pause, until they are stopped.
type writers struct {
	stop    atomic.Bool
	work    sync.WaitGroup
	mu      sync.Mutex
	rows    map[string]int // acknowledged
	refused []string
}

func writing(r *testcluster.Regions, tenants []string, through ...*testcluster.Process) *writers {
	w := &writers{rows: map[string]int{}}
	for i, tenant := range tenants {
		url := through[i%len(through)].URL + "/t/" + tenant + "/query"
		w.work.Go(func() {
			for n := 0; !w.stop.Load(); n++ {
				a := r.Do(http.MethodPost, url, fmt.Sprintf(`{"sql":"INSERT INTO t VALUES (%d)"}`, n))
				w.mu.Lock()
				if a.Status == http.StatusOK {
					w.rows[tenant]++
				} else {
					w.refused = append(w.refused, tenant+": "+a.String())
				}
				w.mu.Unlock()
			}
		})
	}
	return w
}

func (w *writers) written() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rows := range w.rows {
		n += rows
	}
	return n
}

// end stops them, and wants no write refused and none lost.
func (w *writers) end(t *testing.T, r *testcluster.Regions, through *testcluster.Process) {
	t.Helper()
	w.stop.Store(true)
	w.work.Wait()
	if len(w.refused) > 0 {
		t.Errorf("%d writes failed, of %d: %s …", len(w.refused), w.written(), w.refused[0])
	}
	for tenant, rows := range w.rows {
		a := r.Must(r.Do(http.MethodPost, through.URL+"/t/"+tenant+"/query", `{"sql":"SELECT count(*) FROM t"}`), http.StatusOK)
		if !strings.Contains(string(a.Body), fmt.Sprintf("[[%d]]", rows)) {
			t.Errorf("%s has %s, %d rows were acknowledged", tenant, a.Body, rows)
		}
	}
}

// handOver has a region handed over through a process and waits until it was: anew where it
// is undone, as the other group did not answer.
func handOver(t *testing.T, r *testcluster.Regions, through *testcluster.Process, how string) {
	t.Helper()
	url := through.URL + "/_shard/regions/us/" + how
	for done := false; !done; {
		var begun, job proto.RegionHandOver
		awaitChange(t, "the hand-over has begun: "+how, http.StatusAccepted, func(key string) testcluster.Answer {
			return r.Do(http.MethodPost, url, "", "Idempotency-Key", key)
		}).Decode(t, &begun)
		wait.For(t, "the hand-over has ended: "+how, func() error {
			a := r.Do(http.MethodGet, url, "")
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &job) != nil || job.ID != begun.ID || job.Outcome == "" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
		if done = job.Outcome == "done"; !done && !strings.HasSuffix(string(job.Code), "_unreachable") {
			t.Fatalf("the hand-over was undone: %+v", job)
		}
	}
}

// TestG2ARegionIsHandedOverUnderLoadAndComesBack with real processes: nothing is refused, and
// nothing lost, in either direction.
func TestG2ARegionIsHandedOverUnderLoadAndComesBack(t *testing.T) {
	r := testcluster.StartRegions(t, testcluster.RegionsOptions{
		Global:  testcluster.Options{Controls: 1, Nodes: 3, Proxies: 1, NodeArgs: []string{"--lease"}, ProxyArgs: patientProxy},
		Regions: map[string]testcluster.Options{"us": {Controls: 1, Proxies: 1, ProxyArgs: patientProxy}},
	})
	global, us := r.Global, r.Own["us"]
	r.Must(r.Do(http.MethodDelete, global.AnyControl().URL+"/_shard/regions/us", ""), http.StatusNoContent)
	intoRegion(global, "us", global.Nodes[1], global.Nodes[2])
	var tenants []string
	for i := range 6 {
		tenant := fmt.Sprintf("t%d", i)
		tenants = append(tenants, tenant)
		r.Must(r.Do(http.MethodPut, global.Proxies[0].URL+"/_shard/tenants/"+tenant, `{"region":"us"}`), http.StatusCreated)
		r.Must(r.Do(http.MethodPost, global.Proxies[0].URL+"/t/"+tenant+"/query", `{"sql":"CREATE TABLE t (n INTEGER)"}`), http.StatusOK)
	}
	r.RecordRouters("us")
	for _, how := range []string{proto.HandOverAdopt, proto.HandOverReturn, proto.HandOverAdopt} {
		if how == proto.HandOverAdopt {
			r.RecordRouters("us")
		}
		load := writing(r, tenants, global.Proxies[0], us.Proxies[0])
		enough := func(n int) {
			from := load.written()
			wait.For(t, "writes go on", func() error {
				if now := load.written(); now < from+n {
					return fmt.Errorf("%d", now-from)
				}
				return nil
			})
		}
		enough(50)
		handOver(t, r, us.Proxies[0], how)
		enough(200)
		load.end(t, r, global.Proxies[0])
		for _, tenant := range tenants {
			r.Must(r.Do(http.MethodPost, us.Proxies[0].URL+"/t/"+tenant+"/query", `{"sql":"DELETE FROM t"}`), http.StatusOK)
		}
		nodes := r.Must(r.Do(http.MethodGet, us.AnyControl().URL+"/_shard/nodes", ""), http.StatusOK)
		if here := strings.Contains(string(nodes.Body), global.Nodes[1].ID); here != (how == proto.HandOverAdopt) {
			t.Fatalf("after %s the region's directory has %s", how, nodes.Body)
		}
	}
}
