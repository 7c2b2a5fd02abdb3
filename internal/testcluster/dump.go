package testcluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// keepEnv names a folder in which a deployment's data and whole logs are, and
// stay where its test fails.
const keepEnv = "DOMICILE_FAULT_KEEP"

// folder gives the deployment's folder.
func folder(t testing.TB) string {
	keep := os.Getenv(keepEnv)
	if keep == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "_"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after every process has ended
		if t.Failed() {
			t.Logf("data and logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

// wholeLog gives the file that a process's log goes to, beside the end of it
// that is kept in memory; nil where none was asked for.
func (c *Cluster) wholeLog(id string) *os.File {
	if os.Getenv(keepEnv) == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(c.dir, id+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { f.Close() })
	return f
}

// dumpWhenFailed prints what the deployment says of itself before its processes
// are ended: what the directory records, what the nodes hold, who leads.
func (c *Cluster) dumpWhenFailed() {
	if !c.t.Failed() {
		return
	}
	var b strings.Builder
	ask := func(p *Process, path string) {
		token := Token
		if slices.Contains(c.Nodes, p) {
			token = NodeToken
		}
		a := do(context.Background(), quick, http.MethodGet, p.URL+path, "", "Authorization", "Bearer "+token)
		fmt.Fprintf(&b, "%s GET %s: %s\n", p.ID, path, a)
	}
	var tenants []tenantLine
	for _, p := range c.Controls {
		ask(p, "/_shard/group")
	}
	for _, p := range c.Controls {
		if t, err := listTenants(p); err == nil {
			tenants = t
			ask(p, "/_shard/tenants?limit=1000")
			ask(p, "/_shard/nodes")
			ask(p, "/_shard/settings")
			for _, x := range tenants {
				ask(p, "/_shard/tenants/"+x.Name)
				ask(p, "/_shard/tenants/"+x.Name+"/explain?for=replica")
			}
			break
		}
	}
	for _, p := range c.Nodes {
		ask(p, "/_ready")
		ask(p, "/_admin/units")
		ask(p, "/_admin/lease")
	}
	for _, p := range c.Proxies {
		ask(p, "/_ready")
		for _, x := range tenants {
			a := do(context.Background(), quick, http.MethodPost, p.URL+"/t/"+x.Name+"/query", `{"sql":"select 1"}`)
			fmt.Fprintf(&b, "%s reads %s: %s %v\n", p.ID, x.Name, a, a.Header)
		}
	}
	for _, p := range c.Controls {
		ask(p, "/_metrics")
	}
	c.t.Logf("the deployment, before its end:\n%s", b.String())
}
