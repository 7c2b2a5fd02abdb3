package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// adminCLI gives a function that runs the operator's CLI through a proxy, wants a status,
// and gives what it printed.
func adminCLI(t *testing.T, c *testcluster.Cluster) func(status int, args ...string) string {
	t.Helper()
	t.Setenv("DOMICILE_SERVER", c.Proxies[0].URL)
	t.Setenv("DOMICILE_TOKEN", testcluster.Token)
	return func(status int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := run(context.Background(), append([]string{"admin"}, args...), &env{stdout: &out, stderr: &out}); code != status {
			t.Fatalf("domicile admin %s: status %d, want %d\n%s", strings.Join(args, " "), code, status, out.String())
		}
		return out.String()
	}
}

// like fails unless the whole of a text is as a pattern says.
func like(t *testing.T, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(`^(?s:` + pattern + `)$`).MatchString(text) {
		t.Errorf("printed\n%s\nwhich is not like\n%s", text, pattern)
	}
}

// region puts nodes that hold nothing into another region.
func intoRegion(c *testcluster.Cluster, region string, nodes ...*testcluster.Process) {
	for _, n := range nodes {
		c.Must(c.Do(http.MethodPut, c.Proxies[0].URL+"/_shard/nodes/"+n.ID, fmt.Sprintf(`{"region":%q}`, region)), http.StatusOK)
	}
}

// TestO2M1TenantsAreMovedByHand with real processes: within the region and to another one,
// by name and by region, with what was written; bad input changes nothing.
func TestO2M1TenantsAreMovedByHand(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 5, Proxies: 1, NodeArgs: []string{"--lease"},
		ControlArgs: []string{"--remove-after", "100ms", "--repair-after", "100ms"}})
	intoRegion(c, "us", c.Nodes[3], c.Nodes[4])
	admin := adminCLI(t, c)
	admin(0, "tenants", "create", "acme", "--node", "n1")
	url := c.Proxies[0].URL + "/t/acme/query"
	c.Must(c.Do(http.MethodPost, url, `{"sql":"CREATE TABLE t (n INTEGER)"}`), http.StatusOK)
	rows := 0
	stays := func() {
		t.Helper()
		rows++
		c.Must(c.Do(http.MethodPost, url, fmt.Sprintf(`{"sql":"INSERT INTO t VALUES (%d)"}`, rows)), http.StatusOK)
		a := c.Must(c.Do(http.MethodPost, url, `{"sql":"SELECT count(*) FROM t"}`), http.StatusOK)
		if want := fmt.Sprintf(`"rows":[[%d]]`, rows); !strings.Contains(string(a.Body), want) {
			t.Errorf("no %s in %s", want, a.Body)
		}
	}
	stays()
	to := "n3"
	if home(t, c, "acme").Replica == "n3" {
		to = "n2"
	}
	const measured = `tenant acme moved from node %s to %s, region "%s"( \(\S+ \S+\))?, in \S+; writes waited \d+\S*m?s\nits replica is on node \w+\n`
	like(t, admin(0, "tenants", "move", "acme", "--to", to), `(move .*\n)*`+fmt.Sprintf(measured, "n1", to, "eu"))
	stays()
	like(t, admin(0, "tenants", "move", "acme", "--region", "us"), `(move .*\n)*`+fmt.Sprintf(measured, to, `n[45]`, "us"))
	stays()
	var moved proto.TenantMoved
	if text := admin(0, "-o", "json", "tenants", "move", "acme", "--to", "n1", "--region", "eu"); json.Unmarshal([]byte(text), &moved) != nil || moved.To != "n1" || moved.PauseMS == nil {
		t.Errorf("as JSON: %s", text)
	}
	stays()
	for _, bad := range []struct {
		status int
		says   string
		args   []string
	}{
		{2, "--to NODE", []string{"tenants", "move", "acme"}},
		{1, "already_there", []string{"tenants", "move", "acme", "--to", "n1"}},
		{1, "name the region", []string{"tenants", "move", "acme", "--to", "n4"}},
		{1, "unknown_node", []string{"tenants", "move", "acme", "--to", "n9"}},
		{1, "unknown_region", []string{"tenants", "move", "acme", "--region", "mars"}},
		{1, "unknown_tenant", []string{"tenants", "move", "nobody", "--to", "n2"}},
		{1, "unknown_move", []string{"moves", "show", "1"}},
		{1, "unknown_move", []string{"moves", "cancel", "1"}},
		{1, "move_", []string{"moves", "cancel", moved.ID.String()}},
	} {
		if text := admin(bad.status, bad.args...); !strings.Contains(text, bad.says) {
			t.Errorf("%v: no %q in %s", bad.args, bad.says, text)
		}
	}
	if text := admin(0, "tenants", "move", "acme", "--to", "n2", "--wait=false"); !strings.Contains(text, "moves watch") {
		t.Errorf("not waited for: %s", text)
	}
	var list []proto.Move
	if err := json.Unmarshal([]byte(admin(0, "-o", "json", "moves", "--tenant", "acme")), &list); err != nil || len(list) != 4 {
		t.Fatalf("moves: %v %v", list, err)
	}
	like(t, admin(0, "moves", "watch", list[0].ID.String()), `(move .*\n)*MOVE +TENANT +FROM +TO +STATE +BYTES +PAUSE +CAUSE +STARTED +NOTE\n`+
		list[0].ID.String()+` +acme +n1 +n2 +(cleaning|done) .* \d+\S*s +move +\S+ +-\n`)
	stays()
	wait.For(t, "every move has ended", func() error {
		if text := admin(0, "moves", "list", "--active"); strings.Count(text, "\n") > 1 {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	like(t, admin(0, "moves", "--node", "n4"), `MOVE .*\n(\d+ +acme .*done.*\n)*`)
	c.Verify("acme")
}

func home(t *testing.T, c *testcluster.Cluster, tenant string) (out proto.Tenant) {
	t.Helper()
	c.Must(c.Do(http.MethodGet, c.Proxies[0].URL+"/_shard/tenants/"+tenant, ""), http.StatusOK).Decode(t, &out)
	return out
}

// TestO2N7B3ANodeIsEmptiedAndFilledAgain with real processes: drained with its progress
// shown, ended, and filled by a rebalance that was looked at before; a pinned tenant stays.
func TestO2N7B3ANodeIsEmptiedAndFilledAgain(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 3, Proxies: 1, NodeArgs: []string{"--lease"},
		ControlArgs: []string{"--remove-after", "100ms", "--repair-after", "100ms"}})
	admin := adminCLI(t, c)
	var names []string
	for i := range 9 {
		names = append(names, fmt.Sprint("t", i))
		admin(0, "tenants", "create", names[i], "--node", "n1")
	}
	c.AwaitCopiesInSync(1, names...)
	admin(0, "tenants", "pin", "t0")
	like(t, admin(0, "nodes", "drain", "n1"), `node n1 is being drained; see: domicile admin nodes drain n1 --show\n`)
	wait.For(t, "only the pinned one is left", func() error {
		if text := admin(0, "nodes", "drain", "n1", "--show"); !strings.Contains(text, "node n1 holds 1 tenant (0 on the way), 0 copies\n") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	like(t, admin(0, "nodes", "drain", "n1", "--show"), `node n1 holds 1 tenant \(0 on the way\), 0 copies\nTENANT +WHY IT STAYS\nt0 +it is pinned: .*\n`)
	if text := admin(0, "nodes", "get", "n1"); !strings.Contains(text, "draining") {
		t.Errorf("the node: %s", text)
	}
	admin(0, "tenants", "unpin", "t0")
	like(t, admin(0, "nodes", "drain", "n1", "--wait"), `(node n1 holds .*\n)*node n1 is drained: nothing is left on it\n`)
	c.Verify(names...)
	like(t, admin(0, "nodes", "undrain", "n1"), `node n1 takes tenants again; .*\n`)
	if text := admin(1, "nodes", "undrain", "n1"); !strings.Contains(text, "not_draining") {
		t.Errorf("ended twice: %s", text)
	}
	dry := admin(0, "rebalance", "--dry-run")
	like(t, dry, `NODE +REGION +BYTES +SHARE +BYTES AFTER +TENANTS +TENANTS AFTER +NOTE\nn1 +eu .*\nn2 .*\nn3 .*\n\nTENANT +FROM +TO +BYTES +HOW +WHY\n(t\d .*share.*\n)+.*\d moves? would be made\n`)
	before := len(units(t, c, "n1"))
	like(t, admin(0, "rebalance", "--wait"), `NODE .*rebalance \d+ has begun: \d moves?; watch it with: domicile admin moves watch \d+\n(rebalance .*\n)*MOVE .*done.*\n`)
	wait.For(t, "the node is filled again", func() error {
		if have := len(units(t, c, "n1")); have != 3 || before != 0 {
			return fmt.Errorf("it holds %d, held %d", have, before)
		}
		return nil
	})
	like(t, admin(0, "rebalance"), `NODE .*\n\nnothing is to be moved\n`)
	wait.For(t, "every move has ended", func() error {
		if text := admin(0, "moves", "--active"); strings.Count(text, "\n") > 1 {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	c.AwaitCopiesInSync(1, names...)
	c.Verify(names...)
}

// units gives the tenants whose primary is on a node.
func units(t *testing.T, c *testcluster.Cluster, node string) (names []string) {
	t.Helper()
	var list []proto.Tenant
	c.Must(c.Do(http.MethodGet, c.Proxies[0].URL+"/_shard/tenants", ""), http.StatusOK).Decode(t, &list)
	for _, x := range list {
		if string(x.Node) == node {
			names = append(names, string(x.Name))
		}
	}
	return names
}
