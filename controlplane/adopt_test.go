package controlplane

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// goOver serves a node's /_admin/holder.
func (n *fakeNode) goOver(w http.ResponseWriter, r *http.Request) {
	var body proto.HandOver
	_ = json.NewDecoder(r.Body).Decode(&body)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holder.Authority != body.Next.Authority {
		if status, answer := n.hold(body.Holder); status != 0 {
			httpserve.WriteJSON(w, status, answer)
			return
		}
		n.holder = body.Next
	}
	httpserve.WriteJSON(w, 200, n.holder)
}

// handing is a global directory with nodes n1 and n2 of region us, whose own group has none
// yet, and tenants a and b there. The nodes go over to another authority once ready is set.
func handing(t *testing.T) (r *testRegions, nodes []*fakeNode, ready *atomic.Bool) {
	return handingWithin(t, 0)
}

// handingWithin is handing, where a hand-over is undone after that long.
func handingWithin(t *testing.T, within time.Duration, others ...fsm.RegionName) (r *testRegions, nodes []*fakeNode, ready *atomic.Bool) {
	r = startRegionsWith(t, 1, func(c *Config) {
		c.Settings, c.GiveWithin = fsm.Settings{Replicas: 1, AutoFailover: 1000}, within
	}, append(others, "us")...)
	global := r.global.leader()
	global.want(global.ask("DELETE", "/_shard/regions/us", ""), 204, "")
	nodes, ready = newFakeNodes(t, true, "n1", "n2"), new(atomic.Bool)
	for i, n := range nodes {
		n.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/_admin/holder" {
				return false
			}
			if ready.Load() {
				n.goOver(w, r)
			} else {
				httpserve.WriteError(w, httpserve.Errorf(503, "busy", "not now"))
			}
			return true
		})
		global.addNode(n, "us", fmt.Sprintf("z%d", i))
	}
	for _, name := range []string{"a", "b"} {
		global.want(global.ask("PUT", "/_shard/tenants/"+name, `{"node":"n1"}`), 201, "")
		global.until("has a copy of "+name, func() bool { return global.ask("GET", "/_shard/tenants/"+name, "").body["replica"] == "n2" })
	}
	r.record("us")
	r.settled()
	return r, nodes, ready
}

// backup is the group's directory as it is now.
func (s *testServer) backup() string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.addr+"/_shard/backup", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	file, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%d %s %v", resp.StatusCode, file, err)
	}
	return string(file)
}

// restored starts a server in the place of one that was lost with its folder, from a backup.
func (g *testGroup) restored(s *testServer, file string) *testServer {
	s.t.Helper()
	next := g.anew(s)
	next.want(next.ask("POST", "/_shard/restore", file), 200, "")
	return next
}

// anew starts a server in the place of one that was lost with its folder.
func (g *testGroup) anew(s *testServer) *testServer {
	s.t.Helper()
	s.kill()
	config := s.config
	config.DataDir = filepath.Join(s.t.TempDir(), "new")
	next := start(s.t, config, s.addr, "127.0.0.1:0")
	g.servers = []*testServer{next}
	next.until("has recorded what it begins with", func() bool { // a restore in the middle of that ends it
		state := next.group.State()
		m, _ := state.Member(config.ID)
		up, _ := state.Upstream()
		return m != nil && m.API != "" && (up.Authority != "" || config.Region == "") && next.ask("GET", "/_ready", "").status == 200
	})
	return next
}

func (s *testServer) handOver(how string) string {
	return s.ask("GET", "/_shard/regions/us/"+how, "").text
}

// TestG2I1ATakerThatWasRestoredIsGivenTheRegionAgain: the region's group has taken the region
// over, and is lost with all that it knew of that before its nodes have gone over. What was
// given is told of again, in its recovery, which reads every node.
func TestG2I1ATakerThatWasRestoredIsGivenTheRegionAgain(t *testing.T) {
	r, nodes, ready := handing(t)
	global, us := r.global.leader(), r.of["us"].leader()
	file := us.backup()
	global.want(global.ask("POST", "/_shard/regions/us/adopt", ""), 202, "")
	global.until("has given the region", func() bool { return strings.Contains(global.handOver("adopt"), `"step":"nodes"`) })
	if now := global.handOver("adopt"); !strings.Contains(now, `"nodes":2`) {
		t.Errorf("the job shows %s", now)
	}
	us = r.of["us"].restored(us, file)
	us.until("has the nodes, and waits for them", func() bool {
		return us.group.State().Recovering() && strings.Contains(us.ask("GET", "/_shard/recovery", "").text, `"node":"n2"`)
	})
	if us.subscribed() != 503 {
		t.Error("a directory that is being recovered is shown")
	}
	ready.Store(true)
	global.until("has ended the hand-over", func() bool { return strings.Contains(global.handOver("adopt"), `"outcome":"done"`) })
	us.until("is recovered", func() bool { return us.ask("GET", "/_ready", "").status == 200 })
	scope, _ := us.group.State().Scope()
	for _, name := range []string{"a", "b"} {
		us.until("serves "+name, func() bool {
			p, ok := us.group.State().Placed(fsm.UnitName(name))
			return ok && p.Promoted() && p.Epoch > uint64(fsm.FirstRevision(2))
		})
	}
	for _, n := range nodes {
		n.mu.Lock()
		if n.holder.Authority != scope.Authority() || n.holder.History != 2 {
			t.Errorf("%s is held by %+v", n.name, n.holder)
		}
		n.mu.Unlock()
	}
	if left := global.ask("GET", "/_shard/nodes", "").text; left != "[]\n" {
		t.Errorf("the global directory has %s", left)
	}
}

// TestG2I1AGiverThatLostWhatItGaveLearnsItBeforeItTakesAnythingOver: the global group is
// restored as it was when it had begun to hand the region over, which the region's group has
// taken since.
func TestG2I1AGiverThatLostWhatItGaveLearnsItBeforeItTakesAnythingOver(t *testing.T) {
	r, nodes, ready := handing(t)
	global, us := r.global.leader(), r.of["us"].leader()
	before, err := proto.ReadSnapshot(strings.NewReader(global.backup()))
	if err != nil {
		t.Fatal(err)
	}
	begun := global.want(global.ask("POST", "/_shard/regions/us/adopt", ""), 202, "")
	job := fsm.Revision(begun.body["id"].(float64))
	global.until("has given the region", func() bool { return strings.Contains(global.handOver("adopt"), `"step":"nodes"`) })
	if result, _ := before.Apply(fsm.Entry{Revision: job, At: before.Now(), Term: 1, Cmd: &fsm.BeginGive{Region: "us"}}); result.Refusal != nil {
		t.Fatal(result.Refusal)
	}
	var file strings.Builder
	if err := proto.WriteSnapshot(&file, before); err != nil {
		t.Fatal(err)
	}
	global = r.global.restored(global, file.String())
	ready.Store(true)
	global.until("has ended the hand-over", func() bool { return strings.Contains(global.handOver("adopt"), `"outcome":"done"`) })
	global.until("is recovered", func() bool { return global.ask("GET", "/_ready", "").status == 200 })
	if left := global.ask("GET", "/_shard/nodes", "").text; left != "[]\n" {
		t.Errorf("the global directory has %s", left)
	}
	scope, _ := us.group.State().Scope()
	for _, name := range []string{"a", "b"} {
		home, _ := global.group.State().Tenant(fsm.TenantName(name))
		p, ok := us.group.State().Placed(fsm.UnitName(name))
		if !home.HasHome || home.Home != "us" || !ok || home.Claim != p.ID {
			t.Errorf("%s is %+v in the global directory, %+v in that of its region", name, home, p)
		}
	}
	for _, n := range nodes {
		n.mu.Lock()
		if n.holder.Authority != scope.Authority() {
			t.Errorf("%s is held by %+v", n.name, n.holder)
		}
		n.mu.Unlock()
	}
}

// TestG2I1AGlobalGroupThatWasRestoredIsGivenTheRegionAgain, as a region's group is, though it is
// from before the region began to come back.
func TestG2I1AGlobalGroupThatWasRestoredIsGivenTheRegionAgain(t *testing.T) {
	r, nodes, ready := handing(t)
	global, us := r.global.leader(), r.of["us"].leader()
	ready.Store(true)
	global.want(global.ask("POST", "/_shard/regions/us/adopt", ""), 202, "")
	global.until("has handed the region over", func() bool { return strings.Contains(global.handOver("adopt"), `"outcome":"done"`) })
	us.until("has both of the tenants replicated", func() bool { return us.group.State().Unready("us") == nil })
	file := global.backup()
	us.want(us.ask("PUT", "/_shard/tenants/later", `{"region":"us"}`), 201, "")
	ready.Store(false)
	us.want(us.ask("POST", "/_shard/regions/us/return", ""), 202, "")
	us.until("has given the region back", func() bool { return strings.Contains(us.handOver("return"), `"step":"nodes"`) })
	global = r.global.restored(global, file)
	global.until("has the nodes, and waits for them", func() bool {
		return global.group.State().Recovering() && strings.Contains(global.ask("GET", "/_shard/recovery", "").text, `"node":"n2"`)
	})
	ready.Store(true)
	us.until("has ended the hand-over", func() bool { return strings.Contains(us.handOver("return"), `"outcome":"done"`) })
	global.until("is recovered", func() bool { return global.ask("GET", "/_ready", "").status == 200 })
	for _, name := range []string{"a", "b", "later"} {
		global.until("serves "+name, func() bool {
			p, ok := global.group.State().Placed(fsm.UnitName(name))
			return ok && p.Promoted()
		})
	}
	scope, _ := global.group.State().Scope()
	for _, n := range nodes {
		n.mu.Lock()
		if n.holder.Authority != scope.Authority() || n.holder.History != 2 {
			t.Errorf("%s is held by %+v", n.name, n.holder)
		}
		n.mu.Unlock()
	}
}

// TestG2AHandOverThatWaitsForWhatWaitsForItIsUndone: the global group has begun to move a tenant out of
// the region, which has not heard of it, and begins nothing while it is being handed over.
func TestG2AHandOverThatWaitsForWhatWaitsForItIsUndone(t *testing.T) {
	r, _, ready := handingWithin(t, 2*time.Second, "eu")
	r.withNode("eu", "e1", "a")
	global, us := r.global.leader(), r.of["us"].leader()
	ready.Store(true)
	global.want(global.ask("POST", "/_shard/regions/us/adopt", ""), 202, "")
	global.until("has handed the region over", func() bool { return strings.Contains(global.handOver("adopt"), `"outcome":"done"`) })
	us.until("has both of the tenants replicated", func() bool { return us.group.State().Unready("us") == nil })
	r.links[us].Cut() // the global group does not reach it, but it the global group
	if _, _, err := global.group.Propose(t.Context(), proposal(&fsm.BeginRelocation{Tenant: "a", Region: "eu"})); err != nil {
		t.Fatal(err)
	}
	us.want(us.ask("POST", "/_shard/regions/us/return", ""), 202, "")
	r.links[us].Heal()
	us.until("gives up handing the region over", func() bool { return strings.Contains(us.handOver("return"), `"outcome":"undone"`) })
	if how := us.handOver("return"); !strings.Contains(how, "a has work under way") {
		t.Errorf("it does not tell what was in the way: %s", how)
	}
}
