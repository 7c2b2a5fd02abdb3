package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

func TestATokenIsAskedFor(t *testing.T) {
	audit := t.TempDir() + "/audit.log"
	s := startGroup(t, 1, func(c *Config) { c.Audit = audit }).leader()
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"/_shard/nodes", "", 401}, {"/_shard/nodes", "Bearer wrong", 401}, {"/_shard/nodes", adminToken, 401},
		{"/_shard/nodes", "Basic " + adminToken, 401}, {"/_shard/nodes", "bearer " + adminToken, 200},
		{"/_shard/nowhere", "Bearer wrong", 401}, {"/_metrics", "", 401}, {"/_metrics", "Bearer " + adminToken, 200},
		{"/_health", "", 200}, {"/_ready", "", 200}, {"/nowhere", "", 404},
	} {
		r := s.ask("GET", c.path, "", "Authorization", c.token)
		if r.status != c.status || (c.status == 401) != (r.header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s with %q: %d %v", c.path, c.token, r.status, r.header)
		}
		if strings.HasPrefix(c.path, "/_shard/") && r.header.Get(proto.HeaderRevision) == "" {
			t.Errorf("%s: no revision", c.path)
		}
	}
	s.SetToken("another")
	if r := s.ask("GET", "/_shard/nodes", ""); r.status != 401 {
		t.Errorf("the old token is taken: %d", r.status)
	}
	s.ask("PUT", "/_shard/tenants/a", "", "Authorization", "Bearer another", "X-Request-Id", "audited")
	s.until("has written the audit log", func() bool {
		text, _ := os.ReadFile(audit)
		return strings.Contains(string(text), `"event":"refused_token","method":"GET","path":"/_shard/nodes","http_status":401,"peer":"127.0.0.1"`) &&
			strings.Contains(string(text), `"event":"change","method":"PUT","path":"/_shard/tenants/a","http_status":409,"peer":"127.0.0.1","request_id":"audited"`) &&
			!strings.Contains(string(text), "wrong")
	})
}

func TestEveryAnswerCarriesARequestIDAndItReachesTheNode(t *testing.T) {
	g := startGroup(t, 2, nil)
	n := newFakeNode(t, "n1")
	g.leader().addNode(n, "eu", "a")
	s := g.follower()
	for given, kept := range map[string]bool{"mine": true, "with space": true, "": false, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "ü": false, "a\tb": false} {
		r := s.ask("GET", "/_shard/nodes", "", "X-Request-Id", given)
		id := r.header.Get("X-Request-Id")
		if (id == given) != kept || !kept && (len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "") {
			t.Errorf("given %q, answered %q", given, id)
		}
	}
	r := s.want(s.ask("PUT", "/_shard/tenants/a", "", "X-Request-Id", "follow-me"), 201, "")
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.header.Get("X-Request-Id") != "follow-me" || len(n.ids) != 1 || n.ids[0] != "follow-me" {
		t.Errorf("answered with %q, the node saw %q", r.header.Get("X-Request-Id"), n.ids)
	}
}

func TestAnIdempotencyKeyAnswersWhatTheFirstDid(t *testing.T) {
	g := startGroup(t, 2, nil)
	leader, other := g.leader(), g.follower()
	n := newFakeNode(t, "n1")
	leader.addNode(n, "eu", "a")
	leader.addNode(newFakeNode(t, "u1"), "us", "a")
	key := func(k string) []string { return []string{proto.HeaderIdempotencyKey, k} }
	n9 := newFakeNode(t, "n9")
	node := fmt.Sprintf(`{"addr":%q,"token":%q}`, n9.addr(), nodeToken)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/_shard/nodes/n9", node, 201},
		{"PUT", "/_shard/tenants/a", `{"node":"n1"}`, 201},
		{"PUT", "/_shard/tenants/a", `{"region":"eu"}`, 409},
		{"PUT", "/_shard/tenants/a/read-replicas/us", ``, 201},
		{"DELETE", "/_shard/tenants/a/read-replicas/us", ``, 204},
		{"PUT", "/_shard/tenants/refused", `{"node":"n1","schema":"syntax error"}`, 400},
		{"PUT", "/_shard/tenants/a/pin", ``, 200},
		{"DELETE", "/_shard/tenants/a/pin", ``, 200},
		{"PUT", "/_shard/regions/far", `{"routers":["` + newFakeRouter(t, leader, "far") + `"]}`, 201},
		{"DELETE", "/_shard/regions/far", ``, 204},
		{"DELETE", "/_shard/tenants/a", ``, 204},
		{"DELETE", "/_shard/nodes/n9", ``, 204},
	} {
		k := c.method + " " + c.path + c.body
		first := leader.ask(c.method, c.path, c.body, key(k)...)
		if first.status != c.status {
			t.Fatalf("%s: %d %s, want %d", k, first.status, first.text, c.status)
		}
		calls := n.changes()
		for _, s := range []*testServer{leader, other} {
			again := s.ask(c.method, c.path, c.body, key(k)...)
			if again.status != first.status || again.text != first.text {
				t.Errorf("%s: %d %s, first was %d %s", k, again.status, again.text, first.status, first.text)
			}
			s.want(s.ask(c.method, c.path, c.body+" ", key(k)...), 422, fsm.CodeKeyReused)
			s.want(s.ask("PUT", "/_shard/tenants/another", c.body, key(k)...), 422, fsm.CodeKeyReused)
		}
		if c.status != 400 && n.changes() != calls { // an undo may still be on its way
			t.Errorf("%s: the node was called again", k)
		}
	}
	// A key needs no silent node to answer again.
	n9.Close()
	leader.want(leader.ask("PUT", "/_shard/nodes/n9", node, key("PUT /_shard/nodes/n9"+node)...), 201, "")
	for _, bad := range []string{"", strings.Repeat("k", 257), "ü"} {
		leader.want(leader.ask("PUT", "/_shard/tenants/b", "", key(bad)...), 400, proto.CodeBadRequest)
	}
}

func TestAChangeIsRelayedOnceAndReadWhereItWasAsked(t *testing.T) {
	g := startGroup(t, 3, nil)
	leader, follower := g.leader(), g.follower()
	n := newFakeNode(t, "n1")
	follower.addNode(n, "eu", "a")
	for i := range 20 {
		name := fmt.Sprint("/_shard/tenants/t", i)
		r := follower.want(follower.ask("PUT", name, ""), 201, "")
		if r.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", r.header)
		}
		follower.want(follower.ask("GET", name, ""), 200, "")
		follower.want(follower.ask("DELETE", name, ""), 204, "")
		follower.want(follower.ask("GET", name, ""), 404, fsm.CodeTenantUnknown)
	}
	r := follower.want(follower.ask("PUT", "/_shard/tenants/x", "", proto.HeaderRelayed, "1"), 409, proto.CodeNotLeader)
	if r.body["leader"] != "http://"+leader.addr {
		t.Errorf("the answer names %v, want %s", r.body["leader"], leader.addr)
	}
	leader.want(leader.ask("PUT", "/_shard/tenants/x", "", proto.HeaderRelayed, "1"), 201, "")
	if r := follower.ask("GET", "/_shard/group", ""); strings.Count(r.text, `"healthy":true`) != 3 || r.body["leader"] != string(leader.config.ID) {
		t.Errorf("a follower tells of the group: %s", r.text)
	}
	// The token is checked before anything is relayed.
	if r := follower.ask("PUT", "/_shard/tenants/y", "", "Authorization", "Bearer wrong"); r.status != 401 {
		t.Errorf("a wrong token: %d", r.status)
	}
	// Without a leader nothing happens, and it is said so.
	leader.kill()
	for _, s := range g.servers {
		if s != leader && s != follower {
			s.kill()
		}
	}
	follower.until("has no leader", func() bool { return !follower.group.Leader().Known })
	r = follower.want(follower.ask("PUT", "/_shard/tenants/z", ""), 503, proto.CodeNoLeader)
	if r.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", r.header.Get("Retry-After"))
	}
	follower.want(follower.ask("GET", "/_shard/tenants/x", ""), 200, "") // reads go on
	follower.want(follower.ask("GET", "/_shard/tenants/x?consistent", ""), 503, proto.CodeNoLeader)
	if r := follower.ask("GET", "/_ready", ""); r.status != 503 {
		t.Errorf("/_ready is %d without a leader", r.status)
	}
}

func TestAConsistentReadSeesEveryAcknowledgedChange(t *testing.T) {
	g := startGroup(t, 3, nil)
	g.leader().addNode(newFakeNode(t, "n1"), "eu", "a")
	for i := range 10 {
		name := fmt.Sprint("/_shard/tenants/t", i)
		g.servers[i%3].want(g.servers[i%3].ask("PUT", name, ""), 201, "")
		for k := range g.servers {
			g.servers[k].want(g.servers[k].ask("GET", name+"?consistent", ""), 200, "")
		}
	}
}

// TestT4WithoutADirectoryNothingIsUnknown asks a server that has joined no
// group yet.
func TestT4WithoutADirectoryNothingIsUnknown(t *testing.T) {
	t.Parallel()
	nobody := listenOn(t, "127.0.0.1:0")
	nobody.Close()
	s := start(t, Config{ID: "c1", DataDir: t.TempDir(), Token: adminToken, Join: []string{"http://" + nobody.Addr().String()}},
		"127.0.0.1:0", "127.0.0.1:0")
	for _, path := range []string{"/_shard/tenants/a", "/_shard/tenants", "/_shard/nodes", "/_shard/regions", "/_shard/subscribe", "/_ready"} {
		r := s.ask("GET", path, "")
		if r.status != 503 || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, r.status, r.text)
		}
	}
	s.want(s.ask("DELETE", "/_shard/tenants/a", ""), 503, proto.CodeNoLeader)
	s.want(s.ask("GET", "/_health", ""), 200, "")
	s.want(s.ask("GET", "/_shard/group", ""), 200, "")
	if r := s.ask("GET", "/_metrics", ""); r.status != 200 {
		t.Errorf("/_metrics: %d", r.status)
	}
}

// TestEventsAreStreamedAsTheyHappen follows a tenant's life.
func TestEventsAreStreamedAsTheyHappen(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	req, _ := http.NewRequest("GET", "http://"+s.addr+"/_shard/events", nil)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %q", ct)
	}
	s.addNode(newFakeNode(t, "n1"), "eu", "a")
	s.want(s.ask("PUT", "/_shard/tenants/a", ""), 201, "")
	s.want(s.ask("DELETE", "/_shard/tenants/a", ""), 204, "")
	s.want(s.ask("DELETE", "/_shard/nodes/n1", ""), 204, "")
	var got []string
	for lines := bufio.NewScanner(resp.Body); len(got) < 4 && lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e proto.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event != proto.EventLeaderChanged {
			got = append(got, fmt.Sprint(e.Event, " ", e.Node, e.Tenant))
		}
	}
	want := "node_recorded n1,tenant_created n1a,tenant_deleted a,node_deleted n1"
	if strings.Join(got, ",") != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

func TestMetricsTellOfNodesAndNameNoTenant(t *testing.T) {
	s := startGroup(t, 1, func(c *Config) { c.Build, c.Settings.Replicas = "v-test", 1 }).leader()
	s.addNode(newFakeNode(t, "n1"), "eu", "a")
	s.want(s.ask("PUT", "/_shard/tenants/sekret-name", ""), 201, "")
	s.ask("GET", "/_shard/tenants/nobody", "")
	text := s.ask("GET", "/_metrics", "").text
	for _, want := range []string{
		`domicile_nodes{state="unleased"} 1`, `domicile_tenants{node="n1"} 1`, `domicile_replicas{node="n1"} 0`,
		`domicile_nodes{state="lost"} 0`, `domicile_unreplicated_units 1`, `domicile_same_zone_copies{region="eu"} 0`,
		`domicile_failovers_total{outcome="done"} 0`, `domicile_failover_duration_seconds_count 0`, `domicile_requests_total{class="2xx",route="put_tenant"} 1`,
		`domicile_requests_total{class="4xx",route="get_tenant"} 1`, `domicile_request_duration_seconds_count{route="put_node"} 1`,
		`version="v-test"`, `go_goroutines`, `process_open_fds`, `domicile_raft_leader`, `domicile_directory_revision`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "sekret") {
		t.Error("a tenant is named")
	}
}

// TestARelayedChangeDoesNotWaitForALeaderThatIsNone has the leader's API accept
// and say nothing, as a paused process does, until another server leads.
func TestARelayedChangeDoesNotWaitForALeaderThatIsNone(t *testing.T) {
	g := startGroup(t, 3, nil)
	relayed, paused := make(chan bool, 1), atomic.Bool{}
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: g.servers[0].addr})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if paused.Load() && r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body) // without this it would not hear of the end
			relayed <- true
			<-r.Context().Done()
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	g.servers[0].config.API = front.URL
	g.restart(g.servers[0])
	leader, follower := g.servers[0], g.servers[1]
	follower.until("is led by the server behind the front", func() bool {
		if s := g.leader(); s != leader {
			_ = s.group.Transfer(context.Background(), leader.config.ID)
		}
		return follower.group.Leader().API == front.URL
	})
	paused.Store(true)
	answer := make(chan reply, 1)
	go func() { answer <- follower.ask("PUT", "/_shard/nodes/n1?region=eu", "") }()
	<-relayed
	if err := leader.group.Transfer(context.Background(), "c3"); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-answer:
		follower.want(r, 503, proto.CodeOutcomeUnknown)
	case <-time.After(relayTimeout / 2):
		t.Fatal("the change still waits for the old leader")
	}
}
