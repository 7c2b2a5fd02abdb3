package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/client"
	"domicile/fsm"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

func adminClient(t *testing.T, c *testcluster.Cluster) *client.Client {
	t.Helper()
	var servers []string
	for _, p := range c.Controls {
		servers = append(servers, p.URL)
	}
	cl, err := client.New(client.Config{Servers: servers, Token: testcluster.Token, RetryFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// writer writes rows to a tenant through a proxy and reads them until it is
// stopped; a request that fails is a failure of the test.
type writer struct {
	t       *testing.T
	c       *testcluster.Cluster
	url     string
	acked   atomic.Int64
	stopped context.CancelFunc
	done    sync.WaitGroup
}

func startWriter(t *testing.T, c *testcluster.Cluster, url string) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{t: t, c: c, url: url, stopped: cancel}
	w.done.Go(func() {
		for ctx.Err() == nil {
			a := c.Do(http.MethodPost, url+"/query", fmt.Sprintf(`{"sql":"insert into log values (%d)"}`, w.acked.Load()+1))
			if a.Err != nil || a.Status != http.StatusOK {
				t.Errorf("a write through the proxy failed: %s", a)
				return
			}
			w.acked.Add(1)
			if a := c.Do(http.MethodPost, url+"/query", `{"sql":"select count(*) from log"}`); a.Err != nil || a.Status != http.StatusOK {
				t.Errorf("a read through the proxy failed: %s", a)
				return
			}
		}
	})
	return w
}

// stop ends the load and checks that each acknowledged row is there once.
func (w *writer) stop() {
	w.t.Helper()
	w.stopped()
	w.done.Wait()
	var got struct{ Rows [][]int64 }
	w.c.Must(w.c.Do(http.MethodPost, w.url+"/query", `{"sql":"select count(*), count(distinct rowid), max(n) from log"}`), 200).Decode(w.t, &got)
	if n := w.acked.Load(); n == 0 || got.Rows[0][0] != n || got.Rows[0][2] != n {
		w.t.Errorf("%d writes were acknowledged; the tenant holds count, distinct, max = %v", n, got.Rows)
	}
}

// TestI3KillTheLeaderDuringCreates: kill -9 of the leader in the middle of 200
// concurrent creates loses no acknowledged tenant, makes none twice and leaves
// none on a node, and the data path sees nothing of it.
func TestI3KillTheLeaderDuringCreates(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 3, Nodes: 3, Proxies: 1})
	c.Must(c.Do(http.MethodPut, c.Proxies[0].URL+"/_shard/tenants/steady", `{"schema":"create table log (n integer)"}`), http.StatusCreated)
	load := startWriter(t, c, c.Proxies[0].URL+"/t/steady")
	cl := adminClient(t, c)
	leader := c.Leader()

	const creates = 200
	var wg sync.WaitGroup
	var acknowledged atomic.Int64
	half := make(chan struct{})
	for i := range creates {
		wg.Go(func() {
			name := fsm.TenantName(fmt.Sprintf("k%03d", i))
			if _, err := cl.CreateTenant(context.Background(), name, proto.PutTenant{}); err != nil {
				t.Errorf("create %s: %v", name, err)
				return
			}
			if acknowledged.Add(1) == 40 {
				close(half)
			}
		})
	}
	<-half
	leader.Kill()
	wg.Wait()
	leader.Start()
	leader.AwaitReady()
	load.stop()
	names := []string{"steady"}
	for i := range creates {
		names = append(names, fmt.Sprintf("k%03d", i))
	}
	c.Verify(names...)
}

// TestR3DataPathWithoutControlPlane: with every control server killed reads
// and writes go on, and a proxy restarted with its cache file forwards.
func TestR3DataPathWithoutControlPlane(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 3, Nodes: 2, Proxies: 1})
	proxy := c.Proxies[0]
	c.Must(c.Do(http.MethodPut, proxy.URL+"/_shard/tenants/acme", `{"schema":"create table log (n integer)"}`), http.StatusCreated)
	awaitKept(t, proxy.Data, "acme")
	load := startWriter(t, c, proxy.URL+"/t/acme")
	for _, p := range c.Controls {
		p.Kill()
	}
	before := load.acked.Load()
	wait.For(t, "writes go on without a control plane", func() error {
		if now := load.acked.Load(); now < before+50 {
			return fmt.Errorf("%d writes since", now-before)
		}
		return nil
	})
	load.stop()

	proxy.Kill()
	proxy.Start()
	wait.For(t, "the restarted proxy forwards from its cache", func() error {
		a := c.Do(http.MethodPost, proxy.URL+"/t/acme/query", `{"sql":"insert into log values (0)"}`)
		if a.Err != nil || a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	// A tenant that its copy does not know is not said to be unknown (T4).
	if a := c.Do(http.MethodGet, proxy.URL+"/t/other/", ""); a.Status != http.StatusServiceUnavailable {
		t.Errorf("an unknown tenant with no control server to ask: got %s, want 503", a)
	}
	for _, p := range c.Controls {
		p.Start()
	}
	for _, p := range c.Controls {
		p.AwaitReady()
	}
	c.Verify("acme")
}

// TestI8RestartOfEverything: a deployment that was killed whole comes back with
// all that was acknowledged.
func TestI8RestartOfEverything(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 3, Nodes: 2, Proxies: 1})
	var names []string
	for i := range 10 {
		name := fmt.Sprintf("t%d", i)
		names = append(names, name)
		c.Must(c.Do(http.MethodPut, c.Proxies[0].URL+"/_shard/tenants/"+name, `{"schema":"create table log (n integer)"}`), http.StatusCreated)
		c.Must(c.Do(http.MethodPost, c.Proxies[0].URL+"/t/"+name+"/query", `{"sql":"insert into log values (42)"}`), http.StatusOK)
	}
	all := append(append(append([]*testcluster.Process{}, c.Controls...), c.Nodes...), c.Proxies...)
	for _, p := range all {
		p.Kill()
	}
	for _, p := range all {
		p.Start()
	}
	for _, p := range all {
		p.AwaitReady()
	}
	c.Verify(names...)
	for _, name := range names {
		var got struct{ Rows [][]int64 }
		c.Must(c.Do(http.MethodPost, c.Proxies[0].URL+"/t/"+name+"/query", `{"sql":"select n from log"}`), http.StatusOK).Decode(t, &got)
		if len(got.Rows) != 1 || got.Rows[0][0] != 42 {
			t.Errorf("tenant %s holds %v", name, got.Rows)
		}
	}
}
