package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// A homedPoint is where the leader of one of the two groups dies that a create or delete
// in a region takes. Step is about the proposal that takes that group's job there; the
// others are about a call of the region to its node.
type homedPoint struct {
	point
	region bool // it is the region's leader that dies
}

// homedPoints are those of both sides.
func homedPoints() []homedPoint {
	var all []homedPoint
	for _, p := range points {
		all = append(all, homedPoint{p, true})
		if p.step == fsm.StepSchema {
			continue // the global group's job has no such step
		}
		all = append(all, homedPoint{p, false})
	}
	return all
}

// TestG5I8TheLeaderOfEitherSideDiesBetweenAnyTwoSteps: after it the name is held or free in
// both directories alike, the tenant is in one place, and nodes hold nothing else.
func TestG5I8TheLeaderOfEitherSideDiesBetweenAnyTwoSteps(t *testing.T) {
	r := startRegions(t, 1, "us")
	node := r.withNode("us", "n1", "a")
	for i, p := range homedPoints() {
		side := map[bool]string{true: "region", false: "global group"}[p.region]
		t.Run(side+": "+p.name, func(t *testing.T) { r.dieAt(t, node, p, fsm.TenantName(fmt.Sprintf("t%d", i))) })
	}
}

// dieAt has the leader of one side die at a point.
func (r *testRegions) dieAt(t *testing.T, node *fakeNode, p homedPoint, name fsm.TenantName) {
	r.at(t)
	g, victims := r.global.leader(), r.side(p)
	victim := victims.leader()
	request := p.request(g, name)
	c := &crash{killed: make(chan struct{})}
	over := r.reaching(node, p, name, func() { c.kill(victim) })
	_, _ = g.try(request[0], request[1], request[2], request[3:]...)
	c.await(t)
	over()
	r.restart(victims, victim)
	r.agree(map[fsm.RegionName][]*fakeNode{"us": {node}})
	checkOutcome(t, r.of["us"].leader(), node, p.point, name)
}

// at has what fails from now on fail a test.
func (r *testRegions) at(t *testing.T) { r.t, r.global.t, r.of["us"].t = t, t, t }

// side is the group in which a point is.
func (r *testRegions) side(p homedPoint) *testGroup {
	if p.region {
		return r.of["us"]
	}
	return r.global
}

// request is what a point is a point of, asked of the global group, which has what is to be
// deleted: method, path, body and headers.
func (p point) request(g *testServer, name fsm.TenantName) []string {
	path := "/_shard/tenants/" + string(name)
	if p.remove {
		g.want(g.ask("PUT", path, `{"region":"us"}`), 201, "")
		return []string{"DELETE", path, "", proto.HeaderIdempotencyKey, "delete " + string(name)}
	}
	return []string{"PUT", path, fmt.Sprintf(`{"region":"us","schema":%q}`, p.schema), proto.HeaderIdempotencyKey, "create " + string(name)}
}

// reaching has do called whenever a point is come to, until over is.
func (r *testRegions) reaching(node *fakeNode, p homedPoint, name fsm.TenantName, do func()) (over func()) {
	hit := func(q *http.Request) bool {
		return q.Method == p.method && strings.HasSuffix(q.URL.Path, string(name)+p.suffix)
	}
	at := r.side(p).leader()
	if p.step != 0 {
		at.interrupted(func(cmd fsm.Command) {
			if a, ok := cmd.(*fsm.AdvanceJob); ok && a.To == p.step {
				do()
			}
		})
	}
	node.setFault(func(_ http.ResponseWriter, q *http.Request) bool {
		if p.method != "" && !p.after && hit(q) {
			do()
		}
		return false
	})
	node.setAfter(func(q *http.Request) {
		if p.after && hit(q) {
			do()
		}
	})
	return func() {
		at.interrupted(func(fsm.Command) {})
		node.setFault(nil)
		node.setAfter(nil)
	}
}

// TestG5G9TheLinkIsCutBetweenAnyTwoSteps: the region goes on, or does not, and its answer is
// lost. Whoever asked is told, or told 503; meanwhile nobody is given the name. Healed, the name is held
// or free in both directories alike; and the same request, asked again, does what it did not yet. A cut that
// is silent, which takes seconds to be found out, is made at every sixth point.
func TestG5G9TheLinkIsCutBetweenAnyTwoSteps(t *testing.T) {
	for _, c := range []struct {
		name  string
		cut   func(*testRegions)
		every int
	}{{"refused", func(r *testRegions) { r.refuse("us") }, 1}, {"silent", func(r *testRegions) { r.cut("us") }, 6}} {
		t.Run(c.name, func(t *testing.T) {
			r := startRegions(t, 1, "us")
			node := r.withNode("us", "n1", "a")
			all := homedPoints()
			for i := 0; i < len(all); i += c.every {
				p := all[i]
				side := map[bool]string{true: "region", false: "global group"}[p.region]
				t.Run(side+": "+p.name, func(t *testing.T) { r.cutAt(t, node, p, c.cut, fsm.TenantName(fmt.Sprintf("t%d", i))) })
			}
		})
	}
}

// cutAt has the link cut at a point.
func (r *testRegions) cutAt(t *testing.T, node *fakeNode, p homedPoint, cut func(*testRegions), name fsm.TenantName) {
	r.at(t)
	g, nodes := r.global.leader(), map[fsm.RegionName][]*fakeNode{"us": {node}}
	request := p.request(g, name)
	ask := func() reply { return g.ask(request[0], request[1], request[2], request[3:]...) }
	done := map[bool]int{true: 204, false: 201}[p.remove]
	if p.schema == "syntax error" {
		done = 400
	}
	var once sync.Once
	reached := make(chan struct{})
	over := r.reaching(node, p, name, func() { once.Do(func() { cut(r); close(reached) }) })
	defer over()
	defer r.heal("us")
	told := ask()
	select {
	case <-reached: // it may come after the answer, as undoing does
	case <-time.After(30 * time.Second):
		t.Fatalf("answered %d %s, and the point was not come to", told.status, told.text)
	}
	if told.status != done && (told.status != 503 || told.header.Get("Retry-After") == "") {
		t.Errorf("told %d %s, want %d, or 503 and when to ask again", told.status, told.text, done)
	}
	if another := g.ask("PUT", "/_shard/tenants/"+string(name), `{"region":"us"}`); another.status < 400 {
		t.Errorf("the name was given to another: %s", another.text)
	}
	r.heal("us")
	r.agree(nodes)
	if told.status == 503 {
		g.until("goes through", func() bool { told = ask(); return told.status != 503 })
		if told.status != done && !(p.remove && told.status == 404) {
			t.Errorf("asked again: %d %s, want %d", told.status, told.text, done)
		}
		r.agree(nodes)
	} else {
		g.until("reaches us again", func() bool { return g.ask("GET", "/_shard/nodes?region=us", "").status == 200 })
	}
	checkOutcome(t, r.of["us"].leader(), node, p.point, name)
}

// restart kills a server and starts it again behind its link.
func (r *testRegions) restart(g *testGroup, s *testServer) {
	link := r.links[s]
	delete(r.links, s)
	g.restart(s)
	for _, now := range g.servers {
		if now.addr == s.addr {
			r.links[now] = link
		}
	}
}

// TestG5ACreateThatIsToldAgainDoesNotSayThatNothingWasDone: the tenant is there, and who leads
// now was not told where; its region is not reached to say so.
func TestG5ACreateThatIsToldAgainDoesNotSayThatNothingWasDone(t *testing.T) {
	r := startRegions(t, 1, "us")
	nodes := map[fsm.RegionName][]*fakeNode{"us": {r.withNode("us", "n1", "a")}}
	create := func() reply {
		g := r.global.leader()
		return g.ask("PUT", "/_shard/tenants/acme", `{"region":"us"}`, proto.HeaderIdempotencyKey, "k1")
	}
	r.global.leader().want(create(), 201, "")
	r.restart(r.global, r.global.leader())
	r.cut("us")
	if told := create(); told.status != 503 || told.code() != string(proto.CodeCreatePending) || told.header.Get("Retry-After") == "" {
		t.Errorf("told again: %s", told.text)
	}
	r.heal("us")
	r.global.leader().until("reaches us again", func() bool { return create().status == 201 })
	r.agree(nodes)
}
