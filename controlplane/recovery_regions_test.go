package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// raw asks the server, as an operator, for what is no JSON.
func (s *testServer) raw(method, path string, body []byte) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, text, err)
	}
	return text
}

// restored starts the only server of the global group anew, of a backup, at its address.
func (r *testRegions) restored(backup []byte) *testServer {
	r.t.Helper()
	old := r.global.servers[0]
	old.kill()
	config := old.config
	config.DataDir = r.t.TempDir()
	s := start(r.t, config, old.addr, old.config.RaftAdvertise)
	r.global.servers[0] = s
	r.links[s] = r.links[old]
	s.until("leads", func() bool { return s.group.Leader().Self && s.group.HasDirectory() })
	s.raw("POST", "/_shard/restore", backup)
	return s
}

// TestI1ARestoredGlobalDirectoryGoesByWhatTheRegionsHave: tenants that were made, deleted,
// and made again elsewhere since the backup. A region that is cut off is waited for.
func TestI1ARestoredGlobalDirectoryGoesByWhatTheRegionsHave(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	r.withNode("us", "u1", "a")
	r.withNode("tr", "t1", "a")
	g := r.global.leader()
	in := func(region string) string { return fmt.Sprintf(`{"region":%q}`, region) }
	for _, name := range []string{"stays", "gone", "again"} {
		g.want(g.ask("PUT", "/_shard/tenants/"+name, in("us")), 201, "")
	}
	backup := g.raw("GET", "/_shard/backup", nil)
	g.want(g.ask("PUT", "/_shard/tenants/new", in("tr")), 201, "")
	g.want(g.ask("DELETE", "/_shard/tenants/gone", ""), 204, "")
	g.want(g.ask("DELETE", "/_shard/tenants/again", ""), 204, "")
	g.want(g.ask("PUT", "/_shard/tenants/again", in("tr")), 201, "")
	again, _ := g.group.State().Tenant("again")

	r.cut("tr")
	g = r.restored(backup)
	for _, s := range r.global.servers {
		r.links[s].Heal() // tr alone is not reached
	}
	recovery := func() (out proto.Recovery) {
		g.decode(g.ask("GET", "/_shard/recovery", ""), &out)
		return out
	}
	shows := func(want string) func() bool {
		return func() bool {
			text := ""
			for _, n := range recovery().Regions {
				text += fmt.Sprintf("%s %s %d %v; ", n.Region, n.State, n.Tenants, n.Problem != "")
			}
			return text == want
		}
	}
	g.until("has read us, and waits for tr", shows("tr to_be_read 0 true; us read 1 false; "))
	if up, _ := r.of["us"].leader().group.State().Upstream(); up.History != 2 {
		t.Errorf("us heeds %+v", up)
	}
	old := proto.CensusCall{To: "us", Authority: g.authority(), History: 1}
	us := r.of["us"].leader()
	us.want(us.ask("POST", "/_shard/tasks/census", fmt.Sprintf(`{"to":"us","authority":%q,"history":1}`, old.Authority)), 409, fsm.CodeStale)
	us.want(us.ask("POST", "/_shard/tasks/census", fmt.Sprintf(`{"to":"tr","authority":%q,"history":2}`, old.Authority)), 409, fsm.CodeScope)
	us.want(us.ask("POST", "/_shard/tasks/census", `{"to":"us","authority":"other/global","history":2}`), 409, fsm.CodeScope)
	g.want(g.ask("POST", "/_shard/tasks/census", fmt.Sprintf(`{"to":"","authority":%q,"history":2}`, old.Authority)), 409, fsm.CodeScope)
	g.want(g.ask("POST", "/_shard/recovery/write-off", `{"region":"eu"}`), 404, fsm.CodeRegionUnknown)
	g.want(g.ask("POST", "/_shard/recovery/write-off", `{"region":"eu","node":"n1"}`), 400, fsm.CodeBadRequest)
	g.want(g.ask("PUT", "/_shard/tenants/new", in("us")), 503, fsm.CodeRecovering)

	r.heal("tr")
	g.until("is recovered", func() bool { return !recovery().Recovering })
	if out := recovery(); out.Rehomed != 2 || out.Lost != 1 || out.History != 2 {
		t.Errorf("%+v", out)
	}
	for name, want := range map[fsm.TenantName]string{"stays": "us", "new": "tr", "again": "tr", "gone": "us"} {
		if home, _ := g.group.State().TenantRegion(name); string(home) != want {
			t.Errorf("%s is of %q, want %q", name, home, want)
		}
	}
	if got, _ := g.group.State().Tenant("again"); got.Claim != again.Claim {
		t.Errorf("again has id %d, want %d", got.Claim, again.Claim)
	}
	r.settled()
	for _, s := range r.all() {
		for name, want := range map[string]int{"stays": 200, "new": 200, "again": 200} {
			if got := s.ask("GET", "/_shard/tenants/"+name, ""); got.status != want {
				t.Errorf("%s of %s: %v", name, s.config.ID, got)
			}
		}
	}
	if out := recovery(); len(out.LostUnits) != 1 || out.LostUnits[0].Tenant != "gone" {
		t.Errorf("lost are %v", out.LostUnits)
	}
	g.want(g.ask("PUT", "/_shard/tenants/gone", in("tr")), 409, fsm.CodeTenantExists)
	g.want(g.ask("DELETE", "/_shard/tenants/gone", ""), 204, "")
	g.want(g.ask("PUT", "/_shard/tenants/gone", in("tr")), 201, "")
	g.want(g.ask("PUT", "/_shard/tenants/new", in("us")), 409, fsm.CodeTenantExists)
}

// authority is the name of the server's group.
func (s *testServer) authority() string { name, _ := s.ownName(); return name.Authority }

// TestG5ATenantThatIsNotMadeAfterItWasReadIsToldAndDeleted: the region had begun to make it
// when the global directory was recovered, and has undone that since.
func TestG5ATenantThatIsNotMadeAfterItWasReadIsToldAndDeleted(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.OrphansEvery = 20 * time.Millisecond }, "us")
	node := r.withNode("us", "u1", "a")
	backup := r.global.leader().raw("GET", "/_shard/backup", nil)
	read := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(read) })
	defer goOn()
	node.set(func() {
		node.fault = func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodPut {
				return false
			}
			<-read
			httpserve.WriteError(w, httpserve.Errorf(507, "disk_full", "no room"))
			return true
		}
	})
	r.claim("us", "not-made")
	us := r.of["us"].leader()
	us.until("begins to make it", func() bool { _, ok := us.group.State().Placed("not-made"); return ok })
	g := r.restored(backup)
	g.until("is recovered", func() bool { return g.group.State().Recovery() != nil && !g.group.State().Recovering() })
	goOn()
	us.until("has undone it", func() bool { _, ok := us.group.State().Tenant("not-made"); return !ok })
	node.set(func() { node.fault = nil })
	us.until("tells that it is missing", func() bool {
		return strings.Contains(us.ask("GET", "/_shard/tasks/orphans", "").text, `{"tenant":"not-made","kind":"missing","home":"us"}`)
	})
	g.want(g.ask("PUT", "/_shard/tenants/not-made", `{"region":"us"}`), 409, fsm.CodeTenantExists)
	g.want(g.ask("DELETE", "/_shard/tenants/not-made", ""), 204, "")
	g.want(g.ask("PUT", "/_shard/tenants/not-made", `{"region":"us"}`), 201, "")
}
