package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// crash kills the leader once, from wherever it is called.
type crash struct {
	once   sync.Once
	killed chan struct{}
}

func (c *crash) kill(s *testServer) {
	c.once.Do(func() {
		// The group's own goroutines may be waiting for the caller: Raft is
		// stopped here, the rest beside it.
		go func() { s.kill(); close(c.killed) }()
		<-s.ctx.Done()
	})
}

// await waits until that was done, and says so where the point is never come to.
func (c *crash) await(t *testing.T) {
	t.Helper()
	waitFor(t, "a server dies at the point", func() bool {
		select {
		case <-c.killed:
			return true
		default:
			return false
		}
	})
}

// A point is where the leader dies. before and after are about calls to the
// node, with this method on a path with this suffix; step about the proposal
// that takes a job there.
type point struct {
	name   string
	method string
	suffix string
	after  bool
	step   fsm.JobStep
	// what is being done
	schema string
	remove bool
	// gone: the outcome must be that the tenant is not there
	gone bool
}

var points = []point{
	{name: "create, before the node makes it", method: "PUT"},
	{name: "create, after the node made it", method: "PUT", after: true},
	{name: "create, before it is recorded as done", step: fsm.StepDone},
	{name: "create with schema, after the node made it", method: "PUT", after: true, schema: "CREATE TABLE a(b)"},
	{name: "create with schema, before the schema is next", step: fsm.StepSchema, schema: "CREATE TABLE a(b)"},
	{name: "create with schema, before it runs", method: "POST", suffix: "/schema", schema: "CREATE TABLE a(b)"},
	{name: "create with schema, after it ran", method: "POST", suffix: "/schema", after: true, schema: "CREATE TABLE a(b)"},
	{name: "create with schema, before it is recorded as done", step: fsm.StepDone, schema: "CREATE TABLE a(b)"},
	{name: "create undone, before the refusal is recorded", step: fsm.StepUndo, schema: "syntax error", gone: true},
	{name: "create undone, before the node removes it", method: "DELETE", schema: "syntax error", gone: true},
	{name: "create undone, after the node removed it", method: "DELETE", after: true, schema: "syntax error", gone: true},
	{name: "create undone, before it is recorded as done", step: fsm.StepDone, schema: "syntax error", gone: true},
	{name: "delete, before the node removes it", method: "DELETE", remove: true, gone: true},
	{name: "delete, after the node removed it", method: "DELETE", after: true, remove: true, gone: true},
	{name: "delete, before it is recorded as done", step: fsm.StepDone, remove: true, gone: true},
}

// TestT5I8TheLeaderDiesBetweenAnyTwoStepsOfAJob kills the leader at each point
// of creates and deletes: the next leader finishes or undoes the job, nothing
// stays on the node that the directory does not know, and a schema runs once.
func TestT5I8TheLeaderDiesBetweenAnyTwoStepsOfAJob(t *testing.T) {
	g := startGroup(t, 3, failover)
	node := newFakeNode(t, "n1")
	g.leader().addNode(node, "eu", "a")
	for i, p := range points {
		t.Run(p.name, func(t *testing.T) { dieAt(t, g, node, p, fmt.Sprintf("t%d", i)) })
	}
}

func dieAt(t *testing.T, g *testGroup, node *fakeNode, p point, name string) {
	g.t = t
	leader := g.leader()
	path := "/_shard/tenants/" + name
	if p.remove {
		leader.want(leader.ask("PUT", path, ""), 201, "")
	}
	c := &crash{killed: make(chan struct{})}
	hit := func(r *http.Request) bool {
		return r.Method == p.method && strings.HasSuffix(r.URL.Path, name+p.suffix)
	}
	if p.step != 0 {
		leader.interrupted(func(cmd fsm.Command) {
			if a, ok := cmd.(*fsm.AdvanceJob); ok && a.To == p.step {
				c.kill(leader)
			}
		})
	}
	node.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if p.method == "" || p.after || !hit(r) {
			return false
		}
		c.kill(leader)
		select {
		case <-r.Context().Done(): // the leader is dead and has hung up
			return true
		default:
			return false
		}
	})
	node.setAfter(func(r *http.Request) {
		if p.after && hit(r) {
			c.kill(leader)
		}
	})
	if p.remove {
		_, _ = leader.try("DELETE", path, "")
	} else {
		_, _ = leader.try("PUT", path, fmt.Sprintf(`{"schema":%q}`, p.schema))
	}
	c.await(t)
	node.setFault(nil)
	node.setAfter(nil)
	g.restart(leader)
	next := g.leader()
	next.until("has no job left", func() bool {
		for range next.group.State().RunningJobs() {
			return false
		}
		return true
	})
	checkOutcome(t, next, node, p, fsm.TenantName(name))
}

func checkOutcome(t *testing.T, s *testServer, node *fakeNode, p point, name fsm.TenantName) {
	t.Helper()
	placed, there := s.group.State().Placed(fsm.UnitName(name))
	id, held := node.held()[fsm.UnitName(name)]
	if there != held || there && (placed.ID != id || placed.State != fsm.UnitActive) {
		t.Errorf("directory has %+v, node holds %v %d", placed, held, id)
	}
	if there == p.gone {
		t.Errorf("the tenant is there: %v", there)
	}
	want := 0
	if there && p.schema != "" {
		want = 1
	}
	if ran := node.ran(fsm.UnitName(name)); ran != want {
		t.Errorf("the schema ran %d times, want %d", ran, want)
	}
}

// TestEveryAcknowledgedCreateIsThereOnce kills the leader while 200 creates are
// under way, each asked again with its key until it has an answer.
func TestEveryAcknowledgedCreateIsThereOnce(t *testing.T) {
	g := startGroup(t, 3, failover)
	nodes := []*fakeNode{newFakeNode(t, "n1"), newFakeNode(t, "n2")}
	leader := g.leader()
	for _, n := range nodes {
		leader.addNode(n, "eu", "a")
	}
	const creates = 200
	answers := make([]reply, creates)
	var work sync.WaitGroup
	var some sync.WaitGroup
	some.Add(creates / 4)
	for i := range creates {
		work.Go(func() {
			at := g.servers[i%3]
			for try := 0; answers[i].status == 0 || answers[i].status == 503; try++ {
				if r, err := at.try("PUT", fmt.Sprintf("/_shard/tenants/t%d", i), "", proto.HeaderIdempotencyKey, fmt.Sprint("k", i)); err == nil {
					answers[i] = r
				}
				if try == 0 && i < creates/4 {
					some.Done()
				}
				at = g.servers[(i+try)%3]
			}
		})
	}
	some.Wait()
	leader.kill()
	work.Wait()
	g.restart(leader)
	next := g.leader()
	next.until("has no job left", func() bool {
		for range next.group.State().RunningJobs() {
			return false
		}
		return true
	})
	state := next.group.State()
	held := len(nodes[0].held()) + len(nodes[1].held())
	if held != creates || state.CountTenants() != creates {
		t.Errorf("%d units on nodes, %d tenants in the directory, want %d", held, state.CountTenants(), creates)
	}
	for i, a := range answers {
		unit := fsm.UnitName(fmt.Sprint("t", i))
		if a.status != 201 {
			t.Errorf("%s: answer %d %s", unit, a.status, a.text)
			continue
		}
		p, ok := state.Placed(unit)
		if !ok || string(p.Node) != a.body["node"] {
			t.Errorf("%s: answered %v, directory has %+v", unit, a.body, p)
			continue
		}
		for _, n := range nodes {
			if id, ok := n.held()[unit]; ok != (n.name == p.Node) || ok && id != p.ID {
				t.Errorf("%s: node %s holds it %v as %d, directory has %+v", unit, n.name, ok, id, p)
			}
		}
	}
}
