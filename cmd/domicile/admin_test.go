package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"domicile/internal/testcluster"
)

// commands says by which command of the CLI each route of the admin API is
// asked; "" where it is for programs alone.
var commands = map[string]string{
	"GET /_shard/nodes":                    "nodes list",
	"GET /_shard/nodes/{node}":             "nodes get",
	"PUT /_shard/nodes/{node}":             "nodes put",
	"DELETE /_shard/nodes/{node}":          "nodes delete",
	"POST /_shard/nodes/{node}/failover":   "nodes failover",
	"GET /_shard/tenants/{tenant}/explain": "tenants explain",
	"POST /_shard/replicas":                "replicas repair",
	"POST /_shard/nodes/{node}/drain":      "nodes drain",
	"GET /_shard/nodes/{node}/drain":       "nodes drain",
	"DELETE /_shard/nodes/{node}/drain":    "nodes undrain",
	"POST /_shard/tenants/{tenant}/move":   "tenants move",
	"GET /_shard/moves":                    "moves list",
	"GET /_shard/moves/{move}":             "moves show",
	"DELETE /_shard/moves/{move}":          "moves cancel",
	"POST /_shard/rebalance":               "rebalance",
	"GET /_shard/settings":                 "settings show",
	"PUT /_shard/settings":                 "settings set",
	"GET /_shard/tenants":                  "tenants list",
	"GET /_shard/tenants/{tenant}":         "tenants get",
	"PUT /_shard/tenants/{tenant}":         "tenants create",
	"DELETE /_shard/tenants/{tenant}":      "tenants delete",
	"PUT /_shard/tenants/{tenant}/pin":     "tenants pin",
	"DELETE /_shard/tenants/{tenant}/pin":  "tenants unpin",

	"PUT /_shard/tenants/{tenant}/read-replicas/{region}":    "tenants read-replicas add",
	"DELETE /_shard/tenants/{tenant}/read-replicas/{region}": "tenants read-replicas rm",
	"GET /_shard/regions":                    "regions list",
	"GET /_shard/regions/{region}":           "regions get",
	"PUT /_shard/regions/{region}":           "regions put",
	"DELETE /_shard/regions/{region}":        "regions delete",
	"POST /_shard/regions/{region}/adopt":    "regions adopt",
	"GET /_shard/regions/{region}/adopt":     "regions adopt",
	"POST /_shard/regions/{region}/return":   "regions return",
	"DELETE /_shard/regions/{region}/adopt":  "regions adopt",
	"DELETE /_shard/regions/{region}/return": "regions return",
	"GET /_shard/regions/{region}/return":    "regions return",
	"POST /_shard/intakes/{job}":             "", // between groups
	"GET /_shard/group":                      "group show",
	"POST /_shard/group/servers":             "group add",
	"DELETE /_shard/group/servers/{server}":  "group remove",
	"POST /_shard/group/transfer":            "group transfer",
	"GET /_shard/backup":                     "backup",
	"POST /_shard/restore":                   "restore",
	"GET /_shard/recovery":                   "recovery show",
	"POST /_shard/recovery/write-off":        "recovery write-off",
	"POST /_shard/recovery/adopt":            "recovery adopt",
	"GET /_shard/events":                     "events",
	"GET /_shard/subscribe":                  "",
	"GET /_shard/tasks":                      "regions tasks",
	"GET /_shard/tasks/orphans":              "regions orphans",
	"DELETE /_shard/tasks/orphans/{tenant}":  "regions drop-orphan",
	"POST /_shard/tasks/{job}":               "", // between groups
	"POST /_shard/tasks/census":              "",
	"POST /_shard/group/members":             "",
}

func TestO2EveryAdminRouteHasACommand(t *testing.T) {
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path, routes := "", 0
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^  (/_shard/\S*):`).FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if regexp.MustCompile(`^  \S`).MatchString(line) {
			path = ""
		}
		m := regexp.MustCompile(`^    (get|put|post|delete):`).FindStringSubmatch(line)
		if path == "" || m == nil {
			continue
		}
		routes++
		route := strings.ToUpper(m[1]) + " " + path
		command, known := commands[route]
		if !known {
			t.Errorf("%s has no command: add one, and a line here", route)
		}
		if command == "" {
			continue
		}
		var out bytes.Buffer
		args := append([]string{"admin"}, append(strings.Fields(command), "--help")...)
		if code := run(context.Background(), args, &env{stdout: &out, stderr: &out}); code != 0 || !strings.Contains(out.String(), "Usage: domicile admin "+command) {
			t.Errorf("%s: domicile %s: status %d\n%s", route, strings.Join(args, " "), code, out.String())
		}
	}
	if routes < 15 {
		t.Fatalf("%d routes found in the OpenAPI file; it was not understood", routes)
	}
}

func TestO2ExitStatusTellsFailedFromBadArguments(t *testing.T) {
	t.Setenv("DOMICILE_SERVER", "http://127.0.0.1:1")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, 0, "domicile "},
		{[]string{"--help"}, 0, "Usage: domicile"},
		{[]string{}, 2, "expected one of"},
		{[]string{"nonsense"}, 2, "unexpected argument"},
		{[]string{"node"}, 2, "--data"},
		{[]string{"node", "--data", "x", "--sync", "maybe"}, 2, "sync"},
		{[]string{"control", "--id", "a", "--data", "x", "--bootstrap", "--join", "http://127.0.0.1:1"}, 2, "--bootstrap"},
		{[]string{"control", "--id", "a", "--data", "x", "--region", "us"}, 2, "--global"},
		{[]string{"control", "--id", "a", "--data", "x", "--global", "http://127.0.0.1:1"}, 2, "--region"},
		{[]string{"control", "--id", "a", "--data", "x", "--region", "us", "--global", "nonsense"}, 2, `--global "nonsense"`},
		{[]string{"control", "--id", "a", "--data", "x", "--token", "a", "--token-file", "b"}, 2, "--token-file"},
		{[]string{"node", "--data", "x", "--listen", "0.0.0.0:0"}, 1, "--insecure"},
		{[]string{"proxy", "--control", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"}, 1, "--insecure"},
		{[]string{"control", "--id", "a", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--raft-listen", "0.0.0.0:0"}, 1, "--insecure"},
		{[]string{"admin", "tenants", "create"}, 2, "name"},
		{[]string{"proxy", "--control", "nonsense", "--listen", "127.0.0.1:0"}, 2, `--control "nonsense"`},
		{[]string{"proxy", "--control", "http://127.0.0.1:1,c2", "--listen", "127.0.0.1:0"}, 2, `--control "c2"`},
		{[]string{"proxy", "--control", "ftp://127.0.0.1:1", "--listen", "127.0.0.1:0"}, 2, "http://host:port"},
		{[]string{"control", "--id", "a", "--data", "x", "--join", "http://c1:99999"}, 2, "--join"},
		{[]string{"control", "--id", "a", "--data", "x", "--bootstrap", "--advertise", "c1"}, 2, "--advertise"},
		{[]string{"admin", "--server", "http://c1:8070/_shard", "nodes", "list"}, 2, "--server"},
	} {
		var out bytes.Buffer
		if code := run(context.Background(), c.args, &env{stdout: &out, stderr: &out}); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("domicile %s: status %d, want %d, and a word of %q:\n%s", strings.Join(c.args, " "), code, c.code, c.says, out.String())
		}
	}
}

// TestO2TheCommandLineDoesWhatTheAPIDoes walks through a deployment with the
// CLI alone, in JSON and in tables.
func TestO2TheCommandLineDoesWhatTheAPIDoes(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1})
	t.Setenv("DOMICILE_SERVER", c.Proxies[0].URL)
	t.Setenv("DOMICILE_TOKEN", testcluster.Token)
	admin := func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := run(context.Background(), append([]string{"admin"}, args...), &env{stdout: &out, stderr: &out}); code != want {
			t.Fatalf("domicile admin %s: status %d, want %d\n%s", strings.Join(args, " "), code, want, out.String())
		}
		return out.String()
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in:\n%s", w, text)
			}
		}
	}
	has(admin(0, "nodes"), "NODE", "n1", "n2", "eu", "unleased")
	has(admin(0, "tenants", "create", "acme", "--region", "eu", "--pinned"), "acme", "its replica is on node")
	has(admin(1, "tenants", "create", "acme"), "tenant_exists", "409")
	has(admin(0, "tenants"), "TENANT", "acme", "active", "pinned")
	admin(0, "tenants", "unpin", "acme")
	var one []struct{ Name, Node string }
	if err := json.Unmarshal([]byte(admin(0, "-o", "json", "tenants", "list", "--bytes")), &one); err != nil || len(one) != 1 || one[0].Node == "" {
		t.Errorf("tenants as JSON: %v %v", one, err)
	}
	has(admin(1, "nodes", "delete", one[0].Node), "node_in_use")
	has(admin(1, "nodes", "delete", one[0].Node, "--force"), "node_in_use")
	admin(0, "replicas", "repair")
	has(admin(0, "replicas", "repair"), "every tenant has the copies")
	has(admin(0, "replicas"), "TENANT", "acme", "COPY", "STATE")
	c.AwaitCopiesInSync(1, "acme")
	has(admin(0, "tenants", "explain", "acme", "--for", "replica"), "RANK", "it is the primary", "another zone", "in_sync")
	has(admin(1, "nodes", "failover", one[0].Node), "node_unleased", "force")
	has(admin(0, "nodes", "failover", one[0].Node, "--force"), "acme", "promoted")
	has(admin(0, "settings"), "auto-failover", "replicas", "replication-token")
	has(admin(0, "settings", "set", "--repair-after", "1m"), "repair-after", "1m0s")
	has(admin(1, "settings", "set", "--replicas", "9"), "replicas is 0 to 8")
	has(admin(0, "settings", "set", "--replication-token", "s3cret"), "replication-token  set")
	has(admin(2, "settings", "set", "--replication-token", "s3cret", "--no-replication-token"), "no-replication-token")
	has(admin(0, "settings", "set", "--no-replication-token"), "replication-token  -")
	has(admin(0, "group"), "c1", "leader", "healthy")
	router := routersOf(t, c, c.Controls[0].URL)(1)[0]
	has(admin(1, "regions", "put", "r1", "--routers", "http://127.0.0.1:1"), "region_unreachable")
	has(admin(0, "regions", "put", "r1", "--routers", router+",http://127.0.0.1:1"), "r1 recorded", "not reached: http://127.0.0.1:1")
	has(admin(0, "regions"), "r1", router)
	has(admin(0, "regions", "tasks"), "JOB", "KIND", "TENANT", "STATE")
	has(admin(0, "-o", "json", "regions", "orphans"), "[]")
	has(admin(0, "regions", "orphans", "--help"), "elsewhere", "missing", "departed")
	has(admin(1, "regions", "drop-orphan", "acme", "--yes"), "nothing is listed here as departed")
	has(admin(2, "regions", "drop-orphan", "acme"), "--yes")
	admin(0, "regions", "delete", "r1")
	has(admin(0, "nodes", "get", "n1", "--region", "eu"), "n1")
	has(admin(0, "tenants", "delete", "acme"), "deleted")
	has(admin(1, "tenants", "get", "acme"), "unknown_tenant")
	t.Setenv("DOMICILE_TOKEN", "wrong")
	has(admin(1, "nodes"), "401")
	c.Must(c.Do(http.MethodGet, c.Proxies[0].URL+"/_health", ""), http.StatusOK)
	c.Verify()
}
