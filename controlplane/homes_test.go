package controlplane

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// agree waits until no job runs and no task is open in any group, and checks that the
// directories agree about every tenant, and that nodes hold what these say and nothing
// else (architecture §3.9.1).
func (r *testRegions) agree(nodes map[fsm.RegionName][]*fakeNode) {
	r.t.Helper()
	g := r.global.leader()
	g.until("has no job left", func() bool {
		for range g.group.State().RunningJobs() {
			return false
		}
		return true
	})
	homes := map[fsm.TenantName]*fsm.Tenant{}
	for t := range g.group.State().Tenants("", "") {
		homes[t.Name] = t
		if !t.HasHome || t.Reserved || t.Job != 0 {
			r.t.Errorf("the global directory has %+v", *t)
		}
	}
	lives := 0
	for region, of := range r.of {
		s := of.leader()
		s.until("has no job left", func() bool {
			for range s.group.State().RunningJobs() {
				return false
			}
			return true
		})
		state := s.group.State()
		want := map[fsm.UnitName]fsm.UnitID{}
		for t := range state.Tenants("", "") {
			p, ok := state.Placed(fsm.UnitName(t.Name))
			home := homes[t.Name]
			if !ok || p.State != fsm.UnitActive || home == nil || home.Home != region || home.Claim != p.ID {
				r.t.Errorf("%s has %+v, and the global directory %+v", region, p, home)
			}
			want[p.Unit] = p.ID
			lives++
		}
		for _, n := range nodes[region] {
			for unit, id := range n.held() {
				p, ok := state.Placed(unit)
				if !ok || p.Node != n.name && !hasCopy(p, n.name) || p.ID != id {
					r.t.Errorf("%s holds %s %d, which is not there", n.name, unit, id)
				}
			}
		}
	}
	if lives != len(homes) {
		r.t.Errorf("%d tenants live in regions, and the global directory has %d names", lives, len(homes))
	}
}

func hasCopy(p *fsm.Placed, n fsm.NodeName) bool {
	for _, c := range p.Copies {
		if c.Node == n {
			return true
		}
	}
	return false
}

// TestG5T2ATenantIsCreatedAndDeletedInARegionThroughAnyServer: the answers are those of any
// create and delete, wherever they are asked for.
func TestG5T2ATenantIsCreatedAndDeletedInARegionThroughAnyServer(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	n1, n2 := r.withNode("us", "n1", "a"), r.withNode("us", "n2", "b")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {n1, n2}, "tr": {r.withNode("tr", "n1", "a")}}
	for i, s := range r.all() {
		path := fmt.Sprintf("/_shard/tenants/t%d", i)
		made := s.want(s.ask("PUT", path, `{"region":"us","schema":"CREATE TABLE a(b)","pinned":true}`, proto.HeaderIdempotencyKey, path), 201, "")
		node, replica := made.body["node"], made.body["replica_on"]
		if made.body["tenant"] != path[len("/_shard/tenants/"):] || made.body["region"] != "us" || node == nil || (replica == nil) == (made.body["unreplicated"] == nil) {
			t.Errorf("made: %s", made.text)
		}
		also, ok := proto.ParseAlso(made.header.Get(proto.HeaderAlso))
		if us, _ := r.of["us"].leader().ownName(); !ok || also.Authority != us.Authority || also.Revision == 0 {
			t.Errorf("Domicile-Also is %q", made.header.Get(proto.HeaderAlso))
		}
		again := s.want(s.ask("PUT", path, `{"region":"us","schema":"CREATE TABLE a(b)","pinned":true}`, proto.HeaderIdempotencyKey, path), 201, "")
		if again.body["node"] != node {
			t.Errorf("the same key answers %s, first %s", again.text, made.text)
		}
		s.want(s.ask("PUT", path, `{"region":"tr"}`), 409, fsm.CodeTenantExists)
		if unit := fsm.UnitName(path[len("/_shard/tenants/"):]); n1.ran(unit)+n2.ran(unit) != 1 {
			t.Errorf("the schema of %s ran %d times", unit, n1.ran(unit)+n2.ran(unit))
		}
		if tenant, ok := r.of["us"].leader().group.State().Tenant(fsm.TenantName(path[len("/_shard/tenants/"):])); !ok || !tenant.Pinned {
			t.Errorf("the region has %+v", tenant)
		}
		s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/b%d", i), `{"region":"us","node":"n1"}`), 201, "")
		s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/c%d", i), `{"region":"us","node":"n9"}`), 404, fsm.CodeNodeUnknown)
		s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/d%d", i), `{"region":"us","schema":"syntax error"}`), 400, fsm.CodeSchemaRefused)
		s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/c%d", i), `{"region":"mars"}`), 404, fsm.CodeRegionUnknown)
	}
	r.agree(nodes)
	for i, s := range r.all() {
		path := fmt.Sprintf("/_shard/tenants/t%d", i)
		s.want(s.ask("DELETE", path, "", proto.HeaderIdempotencyKey, "d"+path), 204, "")
		s.want(s.ask("DELETE", path, "", proto.HeaderIdempotencyKey, "d"+path), 204, "")
		s.want(s.ask("DELETE", path, ""), 404, fsm.CodeTenantUnknown)
	}
	r.agree(nodes)
}

// TestT2WhereATenantGoesThatNamesNoRegion: to the default region, else to the region that
// was asked, where the global group places nothing itself.
func TestT2WhereATenantGoesThatNamesNoRegion(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {r.withNode("us", "n1", "a")}, "tr": {r.withNode("tr", "n1", "a")}}
	g, tr := r.global.leader(), r.of["tr"].leader()
	g.want(g.ask("PUT", "/_shard/tenants/a", "", proto.HeaderOriginRegion, "us"), 409, fsm.CodeNoNode) // a client's own word
	if made := tr.want(tr.ask("PUT", "/_shard/tenants/a", ""), 201, ""); made.body["region"] != "tr" {
		t.Errorf("made: %s", made.text)
	}
	settings := g.ask("GET", "/_shard/settings", "")
	g.want(settings, 200, "")
	g.want(g.ask("PUT", "/_shard/settings", `{"default_region":"us"}`), 200, "")
	for _, s := range []*testServer{g, tr} {
		if made := s.want(s.ask("PUT", "/_shard/tenants/b-"+string(s.config.ID), ""), 201, ""); made.body["region"] != "us" {
			t.Errorf("made: %s", made.text)
		}
	}
	r.agree(nodes)
}

// TestG5ConcurrentCreatesOfOneNameOneWins, from two regions at once.
func TestG5ConcurrentCreatesOfOneNameOneWins(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {r.withNode("us", "n1", "a")}, "tr": {r.withNode("tr", "n1", "a")}}
	for i := range 5 {
		answers := make([]reply, 4)
		var work sync.WaitGroup
		for n := range answers {
			region := []fsm.RegionName{"us", "tr"}[n%2]
			work.Go(func() {
				s := r.of[region].servers[0]
				answers[n] = s.ask("PUT", fmt.Sprintf("/_shard/tenants/t%d", i), fmt.Sprintf(`{"region":%q}`, region))
			})
		}
		work.Wait()
		won := 0
		for _, a := range answers {
			switch {
			case a.status == 201:
				won++
			case a.code() != string(fsm.CodeTenantExists) && a.code() != string(fsm.CodeRegionUnreachable):
				t.Errorf("%d %s", a.status, a.text)
			}
		}
		if won != 1 {
			t.Errorf("%d creates of one name were answered 201", won)
		}
	}
	r.agree(nodes)
}

// TestG5ATenantThatTheRegionHasKeepsItsName, though the global directory did not know it.
func TestG5ATenantThatTheRegionHasKeepsItsName(t *testing.T) {
	r := startRegions(t, 1, "us")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {r.withNode("us", "n1", "a")}}
	g, us := r.global.leader(), r.of["us"].leader()
	// A name that the global directory has lost, as one that is recovered from a backup does.
	from, region := r.origin(), fsm.RegionName("us")
	us.want(us.callTask(1000, proto.TaskCall{Call: proto.TaskBegin, To: "us", Authority: from.Authority, History: from.History, Floor: 1,
		Kind: "create", Tenant: "acme", ID: 1000, Region: &region}), 200, "")
	g.want(g.ask("PUT", "/_shard/tenants/acme", `{"region":"us"}`), 409, fsm.CodeTenantExists)
	g.until("keeps the name for it", func() bool {
		now, ok := g.group.State().Tenant("acme")
		return ok && now.Claim == 1000 && now.Job == 0 && !now.Reserved
	})
	r.agree(nodes)
}

// TestR16R17G9ARegionThatIsNotReachedLeavesNothingBehind: creates and deletes are 503 and
// change nothing on either side, whether nothing gets there or nothing comes back; they go
// through once the link is back, under the same key.
func TestR16R17G9ARegionThatIsNotReachedLeavesNothingBehind(t *testing.T) {
	for name, cut := range map[string]func(*testRegions){
		"refused": func(r *testRegions) { r.refuse("us") }, "silent": func(r *testRegions) { r.cut("us") },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRegions(t, 1, "us")
			nodes := map[fsm.RegionName][]*fakeNode{"us": {r.withNode("us", "n1", "a")}}
			g, us := r.global.leader(), r.of["us"].leader()
			g.want(g.ask("PUT", "/_shard/tenants/old", `{"region":"us"}`), 201, "")
			cut(r)
			before, there := g.directory(), us.directory()
			create := []string{"PUT", "/_shard/tenants/acme", `{"region":"us"}`, proto.HeaderIdempotencyKey, "k1"}
			remove := []string{"DELETE", "/_shard/tenants/old", "", proto.HeaderIdempotencyKey, "k2"}
			for range 3 {
				for _, c := range [][]string{create, remove} {
					if refused := g.want(g.ask(c[0], c[1], c[2], c[3:]...), 503, fsm.CodeRegionUnreachable); refused.header.Get("Retry-After") == "" {
						t.Errorf("no Retry-After: %s", refused.text)
					}
				}
			}
			if now := g.directory(); now != before || us.directory() != there {
				t.Errorf("something has changed:\n%s\n%s", before, now)
			}
			r.heal("us")
			for i, c := range [][]string{create, remove} {
				var answer reply
				g.until("reaches us again", func() bool { answer = g.ask(c[0], c[1], c[2], c[3:]...); return answer.status != 503 })
				g.want(answer, []int{201, 204}[i], "")
			}
			r.agree(nodes)
		})
	}
}

// TestG5ALostAnswerIsAskedForAgain: the region has done it, and its answer does not arrive.
// The name stays reserved: 503 to another create, and nothing is told of it.
func TestG5ALostAnswerIsAskedForAgain(t *testing.T) {
	r := startRegions(t, 1, "us")
	node := r.withNode("us", "n1", "a")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {node}}
	g, us := r.global.leader(), r.of["us"].leader()
	link := r.links[us]
	node.setAfter(func(*http.Request) { link.Cut() })
	made := g.ask("PUT", "/_shard/tenants/acme", `{"region":"us"}`, proto.HeaderIdempotencyKey, "k1")
	g.want(made, 503, proto.CodeCreatePending)
	node.setAfter(nil)
	if p, ok := us.group.State().Placed("acme"); !ok || p.State != fsm.UnitActive {
		t.Fatalf("the region has %+v", p)
	}
	if now, ok := g.group.State().Tenant("acme"); !ok || !now.Reserved {
		t.Errorf("the name is %+v", now)
	}
	g.want(g.ask("PUT", "/_shard/tenants/acme", `{"region":"us"}`), 503, fsm.CodeRegionUnreachable)
	link.Heal()
	var again reply
	g.until("hears the region's answer", func() bool {
		again = g.ask("PUT", "/_shard/tenants/acme", `{"region":"us"}`, proto.HeaderIdempotencyKey, "k1")
		return again.status != 503
	})
	g.want(again, 201, "")
	r.agree(nodes)

	node.setAfter(func(*http.Request) { link.Cut() })
	g.want(g.ask("DELETE", "/_shard/tenants/acme", ""), 503, proto.CodeDeletePending)
	node.setAfter(nil)
	link.Heal()
	g.until("hears that it is gone", func() bool { _, there := g.group.State().Tenant("acme"); return !there })
	r.agree(nodes)
}
