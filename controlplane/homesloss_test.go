package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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

func (r *testRegions) dieAt(t *testing.T, node *fakeNode, p homedPoint, name fsm.TenantName) {
	r.t = t
	victims := r.global
	if p.region {
		victims = r.of["us"]
	}
	r.global.t, r.of["us"].t = t, t
	g, victim := r.global.leader(), victims.leader()
	path := "/_shard/tenants/" + string(name)
	if p.remove {
		g.want(g.ask("PUT", path, `{"region":"us"}`), 201, "")
	}
	c := &crash{killed: make(chan struct{})}
	hit := func(q *http.Request) bool {
		return q.Method == p.method && strings.HasSuffix(q.URL.Path, string(name)+p.suffix)
	}
	if p.step != 0 {
		victim.interrupted(func(cmd fsm.Command) {
			if a, ok := cmd.(*fsm.AdvanceJob); ok && a.To == p.step {
				c.kill(victim)
			}
		})
	}
	node.setFault(func(_ http.ResponseWriter, q *http.Request) bool {
		if p.method != "" && !p.after && hit(q) {
			c.kill(victim)
		}
		return false
	})
	node.setAfter(func(q *http.Request) {
		if p.after && hit(q) {
			c.kill(victim)
		}
	})
	if p.remove {
		_, _ = g.try("DELETE", path, "")
	} else {
		_, _ = g.try("PUT", path, fmt.Sprintf(`{"region":"us","schema":%q}`, p.schema))
	}
	<-c.killed
	node.setFault(nil)
	node.setAfter(nil)
	r.restart(victims, victim)
	r.agree(map[fsm.RegionName][]*fakeNode{"us": {node}})
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
