package controlplane

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// TestG3WhatARegionIsRecordedWith: routers are asked whose they are, and a region that
// something is of is not forgotten.
func TestG3WhatARegionIsRecordedWith(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	s := r.global.leader()
	us, tr := r.routers(r.of["us"])[0], r.routers(r.of["tr"])[0]
	other := r.group(1, "") // another global group
	stranger := newFakeRouter(t, other.leader(), "us")
	outsider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserve.WriteError(w, httpserve.Errorf(401, proto.CodeUnauthorized, "no"))
	}))
	t.Cleanup(outsider.Close)
	own, _ := r.of["us"].leader().ownName()
	body := func(routers ...string) string { return `{"routers":["` + strings.Join(routers, `","`) + `"]}` }
	for name, c := range map[string]struct {
		body   string
		status int
		code   proto.Code
		says   string
	}{
		"none":                      {`{"routers":[]}`, 400, proto.CodeBadRequest, "routers"},
		"no address":                {body("us"), 400, proto.CodeBadRequest, "us"},
		"named twice":               {body(us, us+"/"), 400, proto.CodeBadRequest, "twice"},
		"of another region":         {body(tr), 409, fsm.CodeRegionMismatch, "is of region tr"},
		"one of another region":     {body(us, tr), 409, fsm.CodeRegionMismatch, "is of region tr"},
		"the global group's":        {body("http://" + newFakeProxy(t, s.addr)), 409, fsm.CodeRegionMismatch, "leads to the global group"},
		"a control server":          {body("http://" + r.of["us"].leader().addr), 409, fsm.CodeRegionMismatch, "is a control server"},
		"one is a control server":   {body(us, "http://"+r.of["us"].leader().addr), 409, fsm.CodeRegionMismatch, "name proxies of region us"},
		"of another global group":   {body(stranger), 409, fsm.CodeRegionMismatch, "another global one"},
		"of two groups":             {body(us, newFakeRouter(t, s, "us")), 409, fsm.CodeRegionMismatch, "a region has one group"},
		"that do not answer":        {body("http://127.0.0.1:1"), 503, fsm.CodeRegionUnreachable, "nothing was recorded"},
		"that have another token":   {body(outsider.URL), 503, fsm.CodeRegionUnreachable, "401"},
		"one answers, one does not": {body(us, "http://127.0.0.1:1"), 200, "", `"unreachable":["http://127.0.0.1:1"]`},
		"one answers":               {body(us), 200, "", `{"name":"us","routers":["` + us + `"],"authority":"` + own.Authority + `"}`},
		"of another group of us":    {body(newFakeRouter(t, s, "us")), 409, fsm.CodeRegionMismatch, own.Authority},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.directory()
			answer := s.ask("PUT", "/_shard/regions/us", c.body)
			if answer.status != c.status || answer.code() != string(c.code) || !strings.Contains(answer.text, c.says) {
				t.Errorf("%d %s", answer.status, answer.text)
			}
			if c.status >= 300 && s.directory() != before {
				t.Error("something was recorded")
			}
		})
	}
	// Through a server of a region it is the same.
	there := r.of["tr"].leader()
	there.want(there.ask("PUT", "/_shard/regions/us", body(us)), 200, "")
	if listed := there.ask("GET", "/_shard/regions", ""); !strings.Contains(listed.text, us) || !strings.Contains(listed.text, tr) {
		t.Errorf("a region's server lists %s", listed.text)
	}
	there.want(there.ask("GET", "/_shard/regions/nowhere", ""), 404, fsm.CodeRegionUnknown)

	r.of["us"].leader().addNode(newFakeNode(t, "n1"), "us", "a")
	s.want(s.ask("DELETE", "/_shard/regions/us", ""), 409, fsm.CodeRegionInUse) // it has a node
	r.create("us", "acme")
	s.want(s.ask("DELETE", "/_shard/regions/us", ""), 409, fsm.CodeRegionInUse) // and is a home
	s.want(s.ask("DELETE", "/_shard/regions/tr", ""), 204, "")
	there.until("hears of it", func() bool { return there.ask("GET", "/_shard/regions/tr", "").status == 404 })
}

// TestG3AnotherGroupOfARegionsNameIsNeverTakenForIt: it does not know the region's tenants,
// and would answer that they are gone. Where the recorded routers lead to it all the same, it
// refuses what is meant for the other, and nothing changes.
func TestG3AnotherGroupOfARegionsNameIsNeverTakenForIt(t *testing.T) {
	r := startRegions(t, 1, "us")
	s, us := r.global.leader(), r.of["us"].leader()
	us.addNode(newFakeNode(t, "n1"), "us", "a")
	r.create("us", "acme")
	other := r.group(1, "us")
	impostor, routers := other.leader(), r.routers(other)
	own, _ := us.ownName()
	its, _ := impostor.ownName()
	before, there := s.directory(), impostor.directory()
	var refused reply
	s.until("is refused", func() bool { // it has to meet the global directory first
		refused = s.ask("PUT", "/_shard/regions/us", `{"routers":["`+routers[0]+`"]}`)
		return refused.status == 409 && refused.body["recorded"] != nil
	})
	if refused.code() != string(fsm.CodeRegionMismatch) || refused.body["recorded"] != own.Authority || refused.body["authority"] != its.Authority {
		t.Errorf("refused with %s", refused.text)
	}
	if s.directory() != before {
		t.Error("something was recorded")
	}
	s.propose(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: routers}}) // a proxy was given to other servers
	deleted := s.want(s.ask("DELETE", "/_shard/tenants/acme", ""), 409, fsm.CodeScope)
	if !strings.Contains(deleted.text, own.Authority) || !strings.Contains(deleted.text, its.Authority) {
		t.Errorf("refused with %s", deleted.text)
	}
	s.want(s.ask("PUT", "/_shard/tenants/hooli", `{"region":"us"}`), 409, fsm.CodeScope)
	s.want(s.ask("POST", "/_shard/intakes/7", `{"to":"","to_authority":"`+own.Authority+`"}`), 409, fsm.CodeScope)
	s.want(s.ask("GET", "/_shard/regions/us", ""), 200, "")
	if _, kept := s.group.State().Tenant("acme"); !kept || impostor.directory() != there {
		t.Errorf("its name is kept: %v; the other group has changed: %v", kept, impostor.directory() != there)
	}
	s.want(s.ask("PUT", "/_shard/regions/us", `{"routers":["`+r.routers(r.of["us"])[0]+`"]}`), 200, "")
	s.want(s.ask("DELETE", "/_shard/tenants/acme", ""), 204, "")
}

// TestG2ANodeBelongsToOneGroup: one that another group holds is not recorded, and one that
// was recorded before is granted nothing, and shown as what it is.
func TestG2ANodeBelongsToOneGroup(t *testing.T) {
	r := startRegionsWith(t, 1, func(c *Config) { c.Settings.AutoFailover = 1000 }, "us")
	us, global := r.of["us"].leader(), r.global.leader()
	held := newFakeNodes(t, true, "n1")[0]
	us.addNode(held, "us", "a")
	us.until("holds it", func() bool { return held.holderIs(us) })
	record := `{"addr":"` + held.addr() + `","token":"` + nodeToken + `","region":"eu"}`
	before := global.directory()
	refused := global.want(global.ask("PUT", "/_shard/nodes/n1", record), 409, proto.CodeNodeElsewhere)
	if own, _ := us.ownName(); refused.body["authority"] != own.Authority || global.directory() != before {
		t.Errorf("refused with %s", refused.text)
	}
	// Recorded all the same, as when both did so at once.
	addr, token, region := held.addr(), nodeToken, fsm.RegionName("eu")
	global.propose(&fsm.PutNode{Name: "n1", Addr: &addr, Token: &token, Region: &region})
	global.until("shows whose it is", func() bool {
		n := global.ask("GET", "/_shard/nodes/n1", "")
		problem, _ := n.body["problem"].(string)
		return strings.Contains(problem, "recorded in two directories")
	})
	global.until("logs it", func() bool { return strings.Contains(global.log.String(), "a node is another group's") })
	if !held.holderIs(us) {
		t.Error("the node has changed hands")
	}
	if n := us.ask("GET", "/_shard/nodes/n1", ""); n.body["problem"] != nil {
		t.Errorf("its own group says %s", n.text)
	}
}

// holderIs reports whether the newest holder that the node has heard is of s's group.
func (n *fakeNode) holderIs(s *testServer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, _ := s.ownName()
	return n.holder.Authority == own.Authority
}
