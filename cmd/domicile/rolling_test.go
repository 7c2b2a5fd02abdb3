package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// balanced sends each client's requests to the proxy that the client was given to, and
// to the other where nobody listens there: what stands before proxies does that much.
type balanced struct {
	other map[string]string // host:port of the other proxy
	hc    http.RoundTripper
	moved atomic.Int64 // requests that went to the other proxy
}

func (b *balanced) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	at := req.URL.Host
	for tries := 0; ; tries++ {
		sent := req.Clone(req.Context())
		sent.URL.Host, sent.Host, sent.Body = at, "", io.NopCloser(bytes.NewReader(body))
		resp, err := b.hc.RoundTrip(sent)
		if e := (*net.OpError)(nil); err == nil || tries > 0 || !errors.As(err, &e) || e.Op != "dial" {
			return resp, err
		}
		at = b.other[at]
		b.moved.Add(1)
	}
}

// rollingTenants is DOMICILE_ROLLING_TENANTS, or what a test run has time for.
func rollingTenants(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("DOMICILE_ROLLING_TENANTS")); err == nil && n > 0 {
		return n
	}
	if testing.Short() {
		return 20
	}
	return 100
}

// TestL11RollingRestartUnderLoad: each process of a deployment is stopped and started
// again, one after another, each once the system says that it is whole, while clients
// read and write every tenant through both proxies: no request fails, and nothing is lost.
func TestL11RollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 3, Nodes: 6, Proxies: 2,
		// Long leases: where tests share a machine the group may be without a leader for seconds.
		ControlArgs: []string{"--auto-failover", "10s"}, NodeArgs: []string{"--lease"}, ProxyArgs: patientProxy})
	names := tenantNames("r", rollingTenants(t))
	createReplicated(t, c, "", names...)
	rec := history.NewRecorder()
	hosts := [2]string{strings.TrimPrefix(c.Proxies[0].URL, "http://"), strings.TrimPrefix(c.Proxies[1].URL, "http://")}
	lb := &balanced{other: map[string]string{hosts[0]: hosts[1], hosts[1]: hosts[0]},
		// A proxy that stops ends connections that have been unused for half a second, which a client
		// that stands still would meet in the moment in which it sends something.
		hc: &http.Transport{MaxIdleConnsPerHost: len(names), IdleConnTimeout: 250 * time.Millisecond}}
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 1, Pause: 200 * time.Millisecond,
		Timeout: 30 * time.Second, Reads: true, Seed: 1, Transport: lb})
	defer load.Stop()
	awaitProgress(t, rec, 2, names...)
	// The node that is the last to be restarted holds copies alone then: once more.
	for _, p := range append(c.All(), c.Nodes[len(c.Nodes)-1]) {
		begin := time.Now()
		p.Stop()
		if code, _ := p.Ended(); code != 0 {
			t.Errorf("%s ended with status %d", p.Name, code)
		}
		stopped, moved := time.Since(begin), lb.moved.Load()
		awaitProgress(t, rec, 1, names...) // without it
		if slices.Contains(c.Proxies, p) {
			wait.For(t, "clients move to the other proxy", func() error {
				if lb.moved.Load() == moved {
					return errors.New("none has")
				}
				return nil
			})
		}
		p.Start()
		p.AwaitReady()
		c.AwaitVoters()
		c.AwaitCopiesInSync(1, names...)
		t.Logf("%s: stopped after %v, the deployment was whole after %v", p.Name, stopped.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	}
	awaitProgress(t, rec, 2, names...)
	load.Stop()
	if ops := rec.Ops(); len(ops) > 0 {
		noneFailed(t, ops)
		t.Logf("%d operations, %d of them moved to the other proxy", len(ops), lb.moved.Load())
	}
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}
