package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/internal/audit"
	"domicile/proto"
)

// TestG2ARegionFollowsTheGlobalDirectoryAndServesItOn: every server of a region has the
// copy, tells of it, streams it, and has it again after a restart without the global group.
func TestG2ARegionFollowsTheGlobalDirectoryAndServesItOn(t *testing.T) {
	r := startRegions(t, 2, "us")
	authority, _ := r.global.leader().ownName()
	for _, s := range r.of["us"].servers {
		var about proto.Group
		s.decode(s.ask("GET", "/_shard/group", ""), &about)
		own, _ := s.ownName()
		if about.Authority != own.Authority || !strings.HasSuffix(own.Authority, "/us") || about.Global == nil ||
			about.Global.Authority != authority.Authority || about.Global.Revision == 0 || about.Global.Problem != "" {
			t.Errorf("%s: %+v, global %+v", s.config.ID, about, about.Global)
		}
		hello := s.greeting("/_shard/subscribe?directory=global")
		if hello.Authority != authority.Authority || hello.History != 1 {
			t.Errorf("the stream of the global directory is %+v", hello)
		}
		if hello = s.greeting("/_shard/subscribe"); hello.Authority != own.Authority {
			t.Errorf("the own stream is %+v", hello)
		}
		s.want(s.ask("GET", "/_shard/subscribe?directory=us", ""), 400, proto.CodeBadRequest)
		if text := s.ask("GET", "/_metrics", "").text; !strings.Contains(text, fmt.Sprintf("\ndomicile_global_directory_revision %d\n", s.globalCopy().Revision())) ||
			!strings.Contains(text, "\ndomicile_global_directory_age_seconds ") {
			t.Errorf("metrics: %s", text)
		}
	}
	g := r.global.leader()
	if hello := g.greeting("/_shard/subscribe?directory=global"); hello.Authority != authority.Authority {
		t.Errorf("a global server streams %+v", hello)
	}
	if about := g.ask("GET", "/_shard/group", ""); strings.Contains(about.text, `"global"`) {
		t.Errorf("a global server tells of a copy: %s", about.text)
	}
	s := r.of["us"].leader()
	was := s.globalCopy().Position()
	r.cut("us")
	for _, s := range r.of["us"].servers {
		r.of["us"].restart(s)
	}
	for _, s := range r.of["us"].servers {
		s.until("has its copy from disk", func() bool { d := s.globalCopy(); return d != nil && d.Position() == was })
		if _, ok := s.globalCopy().Region("us"); !ok {
			t.Errorf("%s: the copy lacks the region", s.config.ID)
		}
	}
}

// TestR4ARegionStaysWithItsGlobalGroup: servers that are started with another one's
// addresses keep what they have, and say so.
func TestR4ARegionStaysWithItsGlobalGroup(t *testing.T) {
	r := startRegions(t, 1, "us")
	other := r.group(1, "")
	s := r.of["us"].servers[0]
	was := s.globalCopy().Position()
	s.config.Global = r.routers(other)
	r.of["us"].restart(s)
	s = r.of["us"].leader()
	s.until("says what is wrong", func() bool {
		var about proto.Group
		s.decode(s.ask("GET", "/_shard/group", ""), &about)
		return about.Global.Authority == was.Authority && strings.Contains(about.Global.Problem, "belongs to "+was.Authority)
	})
	if got := s.globalCopy().Position(); got != was {
		t.Errorf("the copy is %+v, was %+v", got, was)
	}
	if !strings.Contains(s.log.String(), "a global directory is refused") {
		t.Error("the log does not tell")
	}
}

// TestG4AnyServerTakesAnyChange asks servers of each group for changes of each.
func TestG4AnyServerTakesAnyChange(t *testing.T) {
	r := startRegions(t, 2, "us", "tr")
	global, us := r.global.leader(), r.of["us"].leader()
	node := newFakeNode(t, "n1")
	for i, s := range r.all() {
		// A node of us, by the query, by the body, and by whom is asked.
		body := `{"addr":"` + node.addr() + `","token":"` + nodeToken + `","zone":"a"}`
		answer := s.ask("PUT", "/_shard/nodes/n1?region=us", body, "X-Request-Id", "req-1")
		s.want(answer, map[bool]int{true: 201, false: 200}[i == 0], "")
		own, _ := us.ownName()
		if name := answer.header.Get(proto.HeaderDirectory); name != own.String() || answer.header.Get(proto.HeaderRequestID) != "req-1" {
			t.Errorf("%s: the answer is of directory %q, request %q", s.config.ID, name, answer.header.Get(proto.HeaderRequestID))
		}
		s.want(s.ask("PUT", "/_shard/nodes/n1", strings.Replace(body, `"zone"`, `"region":"us","zone"`, 1)), 200, "")
		if n := s.ask("GET", "/_shard/nodes/n1?region=us", ""); n.status != 200 || !strings.Contains(n.text, `"region":"us"`) {
			t.Errorf("%s: %s", s.config.ID, n.text)
		}
		// Regions are the global group's.
		s.want(s.ask("DELETE", "/_shard/regions/nowhere", ""), 404, fsm.CodeRegionUnknown)
		s.want(s.ask("PUT", "/_shard/nodes/n1?region=us", `{"zone":"b"}`, proto.HeaderIdempotencyKey, "once"), 200, "")
		// An unknown tenant is asked of who has every name.
		s.want(s.ask("PUT", "/_shard/tenants/nobody/pin", ""), 404, fsm.CodeTenantUnknown)
		s.want(s.ask("DELETE", "/_shard/nodes/n1?region=tr", ""), 404, fsm.CodeNodeUnknown)
		s.want(s.ask("DELETE", "/_shard/nodes/n1?region=UP", ""), 400, proto.CodeBadRequest)
		s.want(s.ask("GET", "/_shard/moves?region=us", ""), 200, "")
	}
	if _, there := global.group.State().Node("n1"); there {
		t.Error("the node of us is in the global directory")
	}
	// Without a region a name is of who is asked.
	if tr := r.of["tr"].leader().ask("GET", "/_shard/nodes", ""); tr.text != "[]\n" {
		t.Errorf("tr has nodes %s", tr.text)
	}
	us.want(us.ask("GET", "/_shard/nodes/n1", ""), 200, "")
	global.want(global.ask("GET", "/_shard/nodes/n1", ""), 404, fsm.CodeNodeUnknown)
}

// TestO4TheAuditLogTellsWhoAskedTheServerThatRelayed, between groups and within one; but of whom
// its token is refused it takes no word.
func TestO4TheAuditLogTellsWhoAskedTheServerThatRelayed(t *testing.T) {
	dir := t.TempDir()
	r := startRegionsWith(t, 1, func(c *Config) { c.Audit = filepath.Join(dir, string(c.ID)) }, "us")
	us, global := r.of["us"].leader(), r.global.leader()
	us.ask("DELETE", "/_shard/regions/nowhere", "", "X-Request-Id", "relayed")
	global.ask("DELETE", "/_shard/regions/nowhere", "", "X-Request-Id", "asked")
	global.ask("DELETE", "/_shard/regions/nowhere", "", "X-Request-Id", "refused", "Authorization", "Bearer wrong", proto.HeaderOriginPeer, "10.1.2.3", proto.HeaderRelayedBetween, "x/us")
	lines := func(id string) (all []audit.Entry) {
		text, _ := os.ReadFile(filepath.Join(dir, string(global.config.ID)))
		for line := range strings.Lines(string(text)) {
			var e audit.Entry
			if json.Unmarshal([]byte(line), &e) == nil && e.RequestID == id {
				all = append(all, e)
			}
		}
		return all
	}
	for id, origin := range map[string]string{"relayed": "127.0.0.1", "asked": "", "refused": ""} {
		global.until("has written a line", func() bool { return len(lines(id)) == 1 })
		host, _, _ := strings.Cut(lines(id)[0].Origin, ":")
		if host != origin {
			t.Errorf("%s: the origin is %q, want %q", id, lines(id)[0].Origin, origin)
		}
	}
}

// TestG4ARelayEndsAtTheSecondGroup: what was relayed between groups and is not the
// second's is refused, naming whose it is.
func TestG4ARelayEndsAtTheSecondGroup(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	us := r.of["us"].leader()
	for path, owner := range map[string]string{"/_shard/nodes/n1/drain?region=tr": "tr", "/_shard/nodes/n1/drain?region=eu": "global"} {
		refused := us.want(us.ask("POST", path, "", proto.HeaderRelayedBetween, "c9/global"), 409, fsm.CodeNotOwner)
		if refused.body["owner"] != owner {
			t.Errorf("%s: %s", path, refused.text)
		}
	}
	// A region whose routers are another region's goes round once.
	s := r.global.leader()
	if _, _, err := s.group.Propose(t.Context(), proposal(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: r.routers(r.of["tr"])}})); err != nil {
		t.Fatal(err)
	}
	s.want(s.ask("POST", "/_shard/nodes/n1/drain?region=us", ""), 409, fsm.CodeNotOwner)
}

// TestG9ChangesOfAGroupThatIsNotReachedAre503AndChangeNothing, whether connections are
// refused, or open and stay silent; and go through once the link is back.
func TestG9ChangesOfAGroupThatIsNotReachedAre503AndChangeNothing(t *testing.T) {
	for name, cut := range map[string]func(*testRegions){
		"refused": func(r *testRegions) { r.refuse("us") }, "silent": func(r *testRegions) { r.cut("us") },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRegions(t, 1, "us")
			global, us, node := r.global.leader(), r.of["us"].leader(), newFakeNode(t, "n1")
			body := `{"addr":"` + node.addr() + `","token":"` + nodeToken + `"}`
			global.want(global.ask("GET", "/_shard/nodes?region=us", ""), 200, "") // opens a connection
			cut(r)
			before, there := global.directory(), us.directory()
			for _, refused := range []reply{
				global.want(global.ask("PUT", "/_shard/nodes/n1?region=us", body), 503, fsm.CodeRegionUnreachable),
				global.want(global.ask("GET", "/_shard/nodes?region=us", ""), 503, fsm.CodeRegionUnreachable),
				us.want(us.ask("PUT", "/_shard/tenants/acme", ""), 503, proto.CodeGlobalUnreachable),
				us.want(us.ask("DELETE", "/_shard/tenants/acme", ""), 503, proto.CodeGlobalUnreachable),
				us.want(us.ask("DELETE", "/_shard/regions/us", ""), 503, proto.CodeGlobalUnreachable),
			} {
				if refused.header.Get("Retry-After") == "" {
					t.Errorf("no Retry-After: %s", refused.text)
				}
			}
			us.want(us.ask("PUT", "/_shard/nodes/n1", body), 201, "") // its own
			us.want(us.ask("DELETE", "/_shard/nodes/n1", ""), 204, "")
			if global.directory() != before || us.directory() != there {
				t.Error("something has changed")
			}
			r.heal("us")
			global.until("reaches us again", func() bool {
				return global.ask("PUT", "/_shard/nodes/n1?region=us", body).status < 300
			})
			us.until("reaches the global group again", func() bool {
				return us.ask("DELETE", "/_shard/regions/nowhere", "").status == http.StatusNotFound
			})
			if _, there := us.group.State().Node("n1"); !there {
				t.Error("the node is not recorded")
			}
		})
	}
}

// TestG9AServerOfTheGlobalGroupOnThisSideOfACutIsNotTheGlobalGroup: one that answers, and knows
// no leader, has done nothing; where the others are not reached neither is the group. Where
// all of them answer so, it has no leader.
func TestG9AServerOfTheGlobalGroupOnThisSideOfACutIsNotTheGlobalGroup(t *testing.T) {
	r := startRegions(t, 3, "us")
	us := r.of["us"].leader()
	kept := r.global.servers[2]
	for _, s := range r.global.servers[:2] {
		r.links[s].Cut()
		s.kill()
	}
	kept.until("knows no leader", func() bool { return !kept.group.Leader().Known })
	for range 3 { // whichever is asked first
		refused := us.want(us.ask("PUT", "/_shard/tenants/acme", ""), 503, proto.CodeGlobalUnreachable)
		if refused.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %s", refused.text)
		}
	}
	for _, s := range r.global.servers[:2] {
		r.links[s].Reset()
	}
	us.want(us.ask("DELETE", "/_shard/tenants/acme", ""), 503, proto.CodeGlobalUnreachable)
	asked := us.towards(httptest.NewRequest("PUT", "/_shard/tenants/acme", nil))
	resp, err := us.links.ask(t.Context(), "alone", []string{"http://" + kept.addr}, asked, nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !isLeaderless(resp, false) {
		t.Errorf("got %v, %v", resp, err)
	}
}

// TestG9OneServerThatAnswersIsEnough: the others of the group take connections and say
// nothing, as processes that are paused do.
func TestG9OneServerThatAnswersIsEnough(t *testing.T) {
	r := startRegions(t, 3, "us")
	us := r.of["us"].leader()
	for _, s := range r.global.servers[:2] {
		r.links[s].Cut()
	}
	for range 3 {
		list := us.want(us.ask("GET", "/_shard/tenants", ""), 200, "")
		if silent := list.header.Get(proto.HeaderUnreachable); silent != "" {
			t.Errorf("%s counts as unreachable, though one of its servers answers", silent)
		}
	}
	us.want(us.ask("DELETE", "/_shard/regions/nowhere", ""), 404, fsm.CodeRegionUnknown)
}
