package main

import (
	"net/http"
	"os"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// codeOf is the "code" of a negative answer.
func codeOf(t *testing.T, a testcluster.Answer) string {
	t.Helper()
	var e struct{ Code string }
	a.Decode(t, &e)
	return e.Code
}

// wipe ends a node, removes its data folder and starts it again.
func wipe(t *testing.T, n *testcluster.Process) {
	t.Helper()
	n.Kill()
	if err := os.RemoveAll(n.Data); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.AwaitReady()
}

// TestT4ATenantThatItsNodeLostIsNever404: a tenant that the directory has, on a node
// that has lost its folder, is 503 through a proxy, for reads and writes; a tenant that
// there is not, and a path that the data API has not, are 404 as ever.
func TestT4ATenantThatItsNodeLostIsNever404(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1})
	proxy, node := c.Proxies[0].URL, c.Nodes[0]
	c.Must(c.Do(http.MethodPut, proxy+"/_shard/tenants/acme", `{"schema":"create table log (n integer)"}`), http.StatusCreated)
	ask := func(hold string, url string) testcluster.Answer {
		return c.Do(http.MethodPost, url, `{"sql":"select 1"}`, "Domicile-Hold", hold)
	}
	c.Must(ask("0", proxy+"/t/acme/query"), http.StatusOK)
	wipe(t, node)
	for _, hold := range []string{"0", "200"} {
		wait.For(t, "the proxy reaches the node again", func() error {
			if a := ask(hold, proxy+"/t/acme/query"); a.Status != http.StatusBadGateway {
				return nil
			}
			return os.ErrDeadlineExceeded
		})
		a := c.Must(ask(hold, proxy+"/t/acme/query"), http.StatusServiceUnavailable)
		if code := codeOf(t, a); code != "misdirected" || a.Header.Get("Retry-After") == "" {
			t.Errorf("held for %s ms: %s, Retry-After %q", hold, a, a.Header.Get("Retry-After"))
		}
		c.Must(c.Do(http.MethodPost, proxy+"/t/acme/v2/pipeline", `{"requests":[]}`, "Domicile-Hold", hold), http.StatusServiceUnavailable)
	}
	for url, code := range map[string]string{
		proxy + "/t/globex/query":  "unknown_tenant",
		proxy + "/t/acme/nothing":  "unknown_route",
		node.URL + "/t/acme/query": "unknown_tenant", // nobody said that it is here
	} {
		if a := c.Must(ask("0", url), http.StatusNotFound); codeOf(t, a) != code {
			t.Errorf("%s: %s, want %s", url, a, code)
		}
	}
}
