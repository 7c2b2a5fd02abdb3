package controlplane

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

// TestO6NoGrantAndNoPromotionBeforeEveryNodeWasRead: §3.8.3. The server is recovered
// while one of its nodes is silent; the other is asked what it holds, and for nothing
// else, until that one answers.
func TestO6NoGrantAndNoPromotionBeforeEveryNodeWasRead(t *testing.T) {
	s := startGroup(t, 1, func(c *Config) { c.Settings = fsm.Settings{Replicas: 1, AutoFailover: 1000} }).leader()
	nodes := newFakeNodes(t, true, "n1", "n2")
	for i, n := range nodes {
		s.addNode(n, "eu", fmt.Sprintf("z%d", i))
	}
	s.want(s.ask("PUT", "/_shard/tenants/a", `{"node":"n1"}`), 201, "")
	s.until("has a copy", func() bool { return s.ask("GET", "/_shard/tenants/a", "").body["replica"] == "n2" })
	s.kill()
	if _, err := group.Recover(group.RecoverConfig{DataDir: s.config.DataDir, History: 2, Logger: hclog.NewNullLogger()}); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var heard []string
	for _, n := range nodes {
		for _, path := range []string{"/_admin/lease", "/_admin/units", "/_admin/promote", "/_admin/follow", "/_admin/handover"} {
			n.before(path, func(r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, fmt.Sprintf("%s %s %s %s", n.name, r.Method, path, r.Header.Get(proto.HeaderHolder)))
			})
		}
	}
	all := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(heard)
	}
	nodes[1].cut.Store(true)
	s = s.again()
	state := func(node int) string {
		list, _ := s.ask("GET", "/_shard/recovery", "").body["nodes"].([]any)
		if len(list) != 2 {
			return ""
		}
		one, _ := list[node].(map[string]any)
		return fmt.Sprint(one["state"], " ", one["problem"])
	}
	s.until("reads n1", func() bool { return strings.HasPrefix(state(0), "lease_running") })
	s.until("says that n2 is silent", func() bool { return strings.HasPrefix(state(1), "to_be_read node n2") })
	s.until("has waited the longest lease out", func() bool { return s.keeper.WaitedOut() })
	r := s.want(s.ask("PUT", "/_shard/tenants/b", ""), 503, fsm.CodeRecovering)
	if r.header.Get("Retry-After") == "" || s.ask("GET", "/_ready", "").status != 503 || s.subscribed() != 503 {
		t.Errorf("%v", r)
	}
	s.want(s.ask("POST", "/_shard/nodes/n1/failover", `{"force":true}`), 503, fsm.CodeRecovering)
	fencing := "/global 2 " + fmt.Sprint(s.group.Leader().Term)
	for i, h := range all() {
		if !strings.Contains(h, " GET ") || i < 2 && !strings.HasSuffix(h, fencing) {
			t.Errorf("while recovering: %s", h)
		}
	}
	s.want(s.ask("POST", "/_shard/recovery/write-off", `{"node":"n9"}`), 404, fsm.CodeNodeUnknown)

	nodes[1].cut.Store(false)
	s.until("is recovered", func() bool { return s.ask("GET", "/_ready", "").status == 200 })
	s.until("has the tenant promoted again", func() bool {
		p, _ := s.group.State().Placed("a")
		return p.Promoted() && p.Epoch > uint64(fsm.FirstRevision(2))
	})
	grant := func(h string) bool {
		return strings.Contains(h, "POST /_admin/lease") || strings.Contains(h, "promote")
	}
	first := slices.IndexFunc(all(), grant)
	reads := 0
	for _, h := range all()[:max(first, 0)] {
		if strings.HasPrefix(h, "n2 GET /_admin/units") {
			reads++
		}
	}
	if first < 0 || reads == 0 {
		t.Errorf("n2 was read %d times before anything was granted or promoted: %v", reads, all())
	}
	s.want(s.ask("PUT", "/_shard/tenants/b", ""), 201, "")
	s.want(s.ask("POST", "/_shard/recovery/write-off", `{"node":"n1"}`), 409, proto.CodeGroupConflict)
	if r := s.ask("GET", "/_metrics", ""); !strings.Contains(r.text, "domicile_recovering 0") || !strings.Contains(r.text, "domicile_history 2") {
		t.Error("the metrics do not tell of the recovery")
	}
}

// subscribed gives the status of the directory's stream, which does not end.
func (s *testServer) subscribed() int {
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.addr+"/_shard/subscribe", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
