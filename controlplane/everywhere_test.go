package controlplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// create makes a tenant in a region that keeps its own directory.
func (r *testRegions) create(region fsm.RegionName, name fsm.TenantName) {
	r.t.Helper()
	global := r.global.leader()
	global.want(global.ask("PUT", "/_shard/tenants/"+string(name), fmt.Sprintf(`{"region":%q}`, region)), 201, "")
}

// lose has a region's directory lose a tenant, as one that is recovered from a backup does.
func (r *testRegions) lose(region fsm.RegionName, name fsm.TenantName) {
	r.t.Helper()
	global, there := r.global.leader(), r.of[region].leader()
	tenant, _ := global.group.State().Tenant(name)
	there.propose(&fsm.BeginTask{Origin: r.origin(), Job: fsm.JobID(global.group.State().Revision()), Kind: fsm.TaskDelete, Tenant: name, ID: tenant.Claim})
	there.until("has lost "+string(name), func() bool { _, ok := there.group.State().Tenant(name); return !ok })
}

// claim takes a name for a tenant of a region, and no more.
func (r *testRegions) claim(region fsm.RegionName, name fsm.TenantName) fsm.JobID {
	r.t.Helper()
	return r.global.leader().propose(&fsm.CreateTenant{Name: name, Region: &region}).Job
}

func (s *testServer) propose(cmd fsm.Command) fsm.Result {
	s.t.Helper()
	result, _, err := s.group.Propose(s.t.Context(), proposal(cmd))
	if err != nil || result.Refusal != nil {
		s.t.Fatalf("%T: %+v, %v", cmd, result.Refusal, err)
	}
	return result
}

// populated are three directories with a node and some tenants each: eu's in the global
// one. Names lie among each other.
func populated(t *testing.T, servers int) *testRegions {
	r := startRegions(t, servers, "us", "tr")
	r.global.leader().addNode(newFakeNode(t, "eu1"), "eu", "a")
	for region, g := range r.of {
		g.leader().addNode(newFakeNode(t, fsm.NodeName(region+"1")), string(region), "a")
	}
	global := r.global.leader()
	for _, name := range []string{"a-eu", "e-eu"} {
		global.want(global.ask("PUT", "/_shard/tenants/"+name, `{"region":"eu"}`), 201, "")
	}
	for _, name := range []string{"b-us", "d-us", "f-us"} {
		r.create("us", fsm.TenantName(name))
	}
	r.create("tr", "c-tr")
	r.settled()
	return r
}

// names gives the names of a list and how it tells of each: by its node, or by what it
// says where it has none.
func names(t *testing.T, answer reply) []string {
	t.Helper()
	var list []proto.Tenant
	if err := json.Unmarshal([]byte(answer.text), &list); answer.status != 200 || err != nil {
		t.Fatalf("%d %s: %v", answer.status, answer.text, err)
	}
	out := []string{}
	for _, one := range list {
		at := string(one.Node)
		if at == "" {
			at = one.State
		}
		if one.Unreachable {
			at += "!"
		}
		out = append(out, fmt.Sprintf("%s@%s/%s", one.Name, one.Region, at))
	}
	return out
}

// all gives a list, page by page.
func (s *testServer) allPages(path string) []string {
	s.t.Helper()
	var all []string
	for pages := 0; ; pages++ {
		answer := s.ask("GET", path, "")
		page := names(s.t, answer)
		all = append(all, page...)
		link := answer.header.Get("Link")
		if link == "" {
			return all
		}
		if pages > 50 || len(page) == 0 && pages > 20 {
			s.t.Fatalf("the list does not end: %v", all)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
}

var everyone = []string{"a-eu@eu/eu1", "b-us@us/us1", "c-tr@tr/tr1", "d-us@us/us1", "e-eu@eu/eu1", "f-us@us/us1"}

// TestT3TenantsAreToldOfTheSameEverywhere: the list, by region and in pages, and each
// tenant, by every server of every group.
func TestT3TenantsAreToldOfTheSameEverywhere(t *testing.T) {
	r := populated(t, 2)
	first := r.global.leader()
	for _, s := range r.all() {
		for path, want := range map[string][]string{
			"/_shard/tenants":                   everyone,
			"/_shard/tenants?region=us":         {everyone[1], everyone[3], everyone[5]},
			"/_shard/tenants?region=eu":         {everyone[0], everyone[4]},
			"/_shard/tenants?region=nowhere":    {},
			"/_shard/tenants?prefix=c":          {everyone[2]},
			"/_shard/tenants?after=c-tr":        everyone[3:],
			"/_shard/tenants?consistent=1":      everyone,
			"/_shard/tenants?limit=2&after=a-e": everyone[:2],
		} {
			answer := s.ask("GET", path, "")
			if got := names(t, answer); !slices.Equal(got, want) || answer.header.Get(proto.HeaderUnreachable) != "" {
				t.Errorf("%s %s: %v, want %v", s.config.ID, path, got, want)
			}
		}
		for _, limit := range []string{"1", "2", "3", "5"} {
			if got := s.allPages("/_shard/tenants?limit=" + limit); !slices.Equal(got, everyone) {
				t.Errorf("%s: in pages of %s %v", s.config.ID, limit, got)
			}
		}
		if sized := s.ask("GET", "/_shard/tenants?bytes=1", ""); strings.Count(sized.text, `"bytes":4096`) != len(everyone) {
			t.Errorf("%s: sizes %s", s.config.ID, sized.text)
		}
		for _, one := range everyone {
			path := "/_shard/tenants/" + one[:4]
			want := first.want(first.ask("GET", path, ""), 200, "")
			if got := s.ask("GET", path, ""); got.status != 200 || got.text != want.text {
				t.Errorf("%s: %s %s, and %s says %s", s.config.ID, path, got.text, first.config.ID, want.text)
			}
			if got := s.ask("GET", path+"?consistent=1", ""); got.text != want.text {
				t.Errorf("%s: %s, asked of the leader, %s", s.config.ID, path, got.text)
			}
			explained := s.want(s.ask("GET", path+"/explain", ""), 200, "")
			if !strings.Contains(explained.text, one[strings.Index(one, "/")+1:]) {
				t.Errorf("%s: %s", s.config.ID, explained.text)
			}
		}
		for _, query := range []string{"", "?consistent=1"} {
			unknown := s.want(s.ask("GET", "/_shard/tenants/nobody"+query, ""), 404, fsm.CodeTenantUnknown)
			if also := unknown.header.Get(proto.HeaderAlso); (s.config.Region != "") != strings.Contains(also, "/global ") {
				t.Errorf("%s: a region's server says of what it does not know %q", s.config.ID, also)
			}
		}
		s.want(s.ask("PUT", "/_shard/tenants/b-us/pin", ""), 200, "")
		s.want(s.ask("DELETE", "/_shard/tenants/a-eu/pin", ""), 200, "")
	}
	if p, ok := r.of["us"].leader().group.State().Tenant("b-us"); !ok || !p.Pinned {
		t.Error("the tenant of us is not pinned there")
	}
}

// TestG9WhatCouldNotBeAskedIsSaid: a region that is cut off from the global group has its
// tenants listed by name, and lists those of the global group so. The link to tr is whole.
func TestG9WhatCouldNotBeAskedIsSaid(t *testing.T) {
	r := populated(t, 1)
	r.cut("us")
	gone := []string{everyone[0], "b-us@us/unknown!", everyone[2], "d-us@us/unknown!", everyone[4], "f-us@us/unknown!"}
	inside := []string{"a-eu@eu/unknown!", everyone[1], everyone[2], everyone[3], "e-eu@eu/unknown!", everyone[5]}
	global, us := r.global.leader(), r.of["us"].leader()
	for path, want := range map[string][]string{
		"/_shard/tenants": gone, "/_shard/tenants?region=us": {gone[1], gone[3], gone[5]}, "/_shard/tenants?prefix=d": {gone[3]}, "/_shard/tenants?after=d-us": gone[4:],
	} {
		answer := global.ask("GET", path, "")
		if got := names(t, answer); !slices.Equal(got, want) || answer.header.Get(proto.HeaderUnreachable) != "us" {
			t.Errorf("%s: %v, unreachable %q, want %v", path, got, answer.header.Get(proto.HeaderUnreachable), want)
		}
	}
	if got := global.allPages("/_shard/tenants?limit=1"); !slices.Equal(got, gone) {
		t.Errorf("in pages: %v", got)
	}
	if got := us.allPages("/_shard/tenants?limit=2"); !slices.Equal(got, inside) {
		t.Errorf("within the region: %v, want %v", got, inside)
	}
	if got := us.allPages("/_shard/tenants?region=us"); !slices.Equal(got, []string{everyone[1], everyone[3], everyone[5]}) {
		t.Errorf("its own: %v", got)
	}
	one := global.want(global.ask("GET", "/_shard/tenants/b-us", ""), 200, "")
	if one.body["unreachable"] != true || one.body["region"] != "us" || one.body["state"] != proto.TenantUnknown || one.header.Get(proto.HeaderUnreachable) != "us" {
		t.Errorf("a tenant of the cut region: %s", one.text)
	}
	if own := us.want(us.ask("GET", "/_shard/tenants/b-us?consistent=1", ""), 200, ""); own.body["node"] != "us1" {
		t.Errorf("within the region: %s", own.text)
	}
	// What the cut region does not know may have been made since (T4).
	us.want(us.ask("GET", "/_shard/tenants/nobody?consistent=1", ""), 503, proto.CodeDirectoryUnavailable)
	us.until("says so of every read once its copy is old", func() bool {
		return us.ask("GET", "/_shard/tenants/nobody", "").code() == string(proto.CodeDirectoryUnavailable)
	})
	r.heal("us")
	for _, s := range []*testServer{global, us} {
		s.until("asks everyone again", func() bool { return slices.Equal(names(t, s.ask("GET", "/_shard/tenants", "")), everyone) })
	}
	us.until("knows again who is not there", func() bool { return us.ask("GET", "/_shard/tenants/nobody", "").status == 404 })
}

// TestG5ANameThatIsReservedIsToldOfOnceItsRegionHasIt, and one whose home does not have it
// is on its way, not unknown (G6).
func TestG5ANameThatIsReservedIsToldOfOnceItsRegionHasIt(t *testing.T) {
	r := populated(t, 1)
	r.cut("us") // so that it is not made
	r.claim("us", "new")
	r.global.leader().want(r.global.leader().ask("GET", "/_shard/tenants/new", ""), 404, fsm.CodeTenantUnknown)
	tr := r.of["tr"].leader()
	tr.want(tr.ask("GET", "/_shard/tenants/new", ""), 503, proto.CodeDirectoryUnavailable) // the link to the global group is cut, too
	r.heal("us")
	tr.until("reaches the others again", func() bool {
		return slices.Equal(names(t, tr.ask("GET", "/_shard/tenants?prefix=b", "")), everyone[1:2])
	})
	// Its home is us, which does not have it.
	r.create("us", "way")
	r.lose("us", "way")
	r.settled()
	for _, s := range r.all() {
		s.until("tells that it is on its way", func() bool {
			one := s.ask("GET", "/_shard/tenants/way", "")
			return one.status == 200 && one.body["state"] == "moving" && one.body["region"] == "us" && one.body["unreachable"] == nil
		})
		if got := names(t, s.ask("GET", "/_shard/tenants?prefix=way", "")); !slices.Equal(got, []string{"way@us/moving"}) {
			t.Errorf("%s lists it as %v", s.config.ID, got)
		}
	}
}

// TestT4ARegionWithoutTheGlobalDirectoryCallsNothingUnknown: a region's first server that
// has never reached the global group.
func TestT4ARegionWithoutTheGlobalDirectoryCallsNothingUnknown(t *testing.T) {
	g := startGroup(t, 1, func(c *Config) { c.Region, c.Global = "us", []string{"http://127.0.0.1:1"} })
	s := g.leader()
	for _, path := range []string{"/_shard/tenants", "/_shard/tenants/acme", "/_shard/tenants/acme?consistent=1", "/_shard/regions", "/_shard/nodes?region=eu"} {
		s.want(s.ask("GET", path, ""), 503, proto.CodeDirectoryUnavailable)
	}
	s.want(s.ask("GET", "/_shard/nodes", ""), 200, "")
	s.want(s.ask("GET", "/_shard/nodes?region=us", ""), 200, "")
	if hello := s.ask("GET", "/_shard/subscribe?directory=global", ""); hello.status != 503 {
		t.Errorf("%d %s", hello.status, hello.text)
	}
}
