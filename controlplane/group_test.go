package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/client"
	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

// TestServersJoinThroughAnyAndLeave adds a server through a follower, hands it
// leadership, and takes it out again, by the Go client.
func TestServersJoinThroughAnyAndLeave(t *testing.T) {
	g := startGroup(t, 2, nil)
	follower := g.follower()
	g.leader().addNode(newFakeNode(t, "n1"), "eu", "a")
	c3 := start(t, Config{ID: "c3", DataDir: t.TempDir(), Token: adminToken,
		Join: []string{"http://127.0.0.1:1", "http://" + follower.addr}}, "127.0.0.1:0", "127.0.0.1:0")
	c3.until("has joined", func() bool { ok, _ := c3.group.Ready(); return ok })
	if _, ok := c3.group.State().Node("n1"); !ok {
		t.Error("c3 is ready without the directory")
	}
	c, err := client.New(client.Config{Servers: []string{"http://" + follower.addr}, Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	c3.until("is a voter whose address is known", func() bool {
		about, err := c.Group(ctx)
		return err == nil && len(about.Servers) == 3 && about.Servers[2].Voter && about.Servers[2].API == "http://"+c3.addr
	})
	if led, err := c.TransferLeadership(ctx, "c3"); err != nil || led.Leader != "c3" {
		t.Fatalf("transfer: %+v, %v", led, err)
	}
	c3.until("leads", func() bool { ok, _ := c3.group.Ready(); return ok && c3.group.Leader().Self })
	if _, err := c.CreateTenant(ctx, "acme", proto.PutTenant{}); err != nil {
		t.Errorf("create under the new leader: %v", err)
	}
	if _, err := c.TransferLeadership(ctx, follower.config.ID); err != nil {
		t.Fatalf("transfer back: %v", err)
	}
	if err := c.RemoveServer(ctx, "c3"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if err := <-c3.ended; !errors.Is(err, group.ErrRemoved) {
		t.Errorf("the server that was taken out ended with %v", err)
	}
	c3.ended <- nil // kill waits for it
	about, err := c.Group(ctx)
	if err != nil || len(about.Servers) != 2 || about.Cluster == "" {
		t.Errorf("the group is %+v, %v", about, err)
	}
}

// TestG10AGroupOpenedOverAnotherRegionsDirectoryRefusesToStart opens folders
// and joins groups under wrong names.
func TestG10AGroupOpenedOverAnotherRegionsDirectoryRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	g := startGroup(t, 1, func(c *Config) {
		c.Region, c.Global, c.DataDir = "us", []string{"http://127.0.0.1:1"}, filepath.Join(dir, "us")
	})
	us := g.leader()
	us.kill()
	for _, region := range []fsm.RegionName{"", "eu"} {
		config := us.config
		config.Region = region
		if region == "" {
			config.Global = nil
		}
		config.Listener, config.RaftListener = listenOn(t, "127.0.0.1:0"), listenOn(t, "127.0.0.1:0")
		s, err := New(config)
		if err == nil {
			t.Fatalf("region %q was opened over us", region)
		}
		if s != nil || !strings.Contains(err.Error(), "us") {
			t.Errorf("region %q: %v", region, err)
		}
	}
	us = us.again()
	us.until("leads", func() bool { ok, _ := us.group.Ready(); return ok })
	eu := start(t, Config{ID: "x1", Region: "eu", Global: []string{"http://127.0.0.1:1"}, DataDir: t.TempDir(), Token: adminToken, Join: []string{"http://" + us.addr}},
		"127.0.0.1:0", "127.0.0.1:0")
	r := us.ask("POST", "/_shard/group/servers", fmt.Sprintf(`{"id":"x1","raft":%q,"api":"http://%s","region":"eu"}`, eu.config.RaftAdvertise, eu.addr))
	us.want(r, 409, proto.CodeGroupConflict)
	if about := us.ask("GET", "/_shard/group", ""); strings.Contains(about.text, "x1") {
		t.Errorf("a server of eu was added to us: %s", about.text)
	}
	if !us.group.HasDirectory() || eu.group.HasDirectory() {
		t.Error("a server of eu has us's directory")
	}
}

// TestTheDirectoryOutlivesARestart starts a group of one again.
func TestTheDirectoryOutlivesARestart(t *testing.T) {
	g := startGroup(t, 1, nil)
	s := g.leader()
	s.addNode(newFakeNode(t, "n1"), "eu", "a")
	s.want(s.ask("PUT", "/_shard/tenants/acme", ""), 201, "")
	before := s.directory()
	g.restart(s)
	if after := g.leader().directory(); after != before {
		t.Errorf("after a restart\n%s\nbefore\n%s", after, before)
	}
}

// TestAStopEndsStreamsAndAnswersWhatIsUnderWay stops a server as SIGTERM does.
func TestAStopEndsStreamsAndAnswersWhatIsUnderWay(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n := newFakeNode(t, "n1")
	s.addNode(n, "eu", "a")
	streaming := make(chan reply, 2)
	for _, path := range []string{"/_shard/events", "/_shard/subscribe?since=0"} {
		go func() {
			r, _ := s.try("GET", path, "")
			streaming <- r
		}()
	}
	s.until("has two streams", func() bool { return s.streams.Load() == 2 })
	begun, goOn := make(chan struct{}), make(chan struct{})
	n.setFault(hold(begun, goOn))
	created := make(chan reply, 1)
	go func() {
		r, _ := s.try("PUT", "/_shard/tenants/acme", "")
		created <- r
	}()
	<-begun
	s.cancel()
	<-streaming
	<-streaming
	close(goOn)
	if r := <-created; r.status != 201 {
		t.Errorf("the create that was under way: %d %s", r.status, r.text)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	s.ended <- nil // kill waits for it
}

// TestAVersionThatALeaderDoesNotKnowIsNotItsOwn records servers with versions
// that they do not have: a level above the leader's own would be in the next
// snapshot, and no server could start from that.
func TestAVersionThatALeaderDoesNotKnowIsNotItsOwn(t *testing.T) {
	g := startGroup(t, 2, nil)
	leader, follower := g.leader(), g.follower()
	put := func(s *testServer, m *testServer) reply {
		return s.ask("POST", "/_shard/group/members", fmt.Sprintf(
			`{"id":%q,"raft":%q,"api":%q,"version":999}`, m.config.ID, m.config.RaftAdvertise, "http://"+m.addr))
	}
	leader.want(put(follower, follower), 200, "")
	for _, s := range g.servers {
		leader.want(put(s, leader), 409, proto.CodeGroupConflict)
	}
	if level := leader.group.State().Level(); level != fsm.Version {
		t.Errorf("the directory is of version %d now", level)
	}
	// The follower puts right what is recorded of it.
	leader.until("knows the follower as it is", func() bool {
		m, _ := leader.group.State().Member(follower.config.ID)
		return m.Version == fsm.Version
	})
}

// TestAServerIsRemovedOnceByItsKey asks again, as one does whose answer was lost.
func TestAServerIsRemovedOnceByItsKey(t *testing.T) {
	g := startGroup(t, 2, nil)
	leader, follower := g.leader(), g.follower()
	leader.want(leader.ask("POST", "/_shard/group/servers",
		`{"id":"c9","raft":"127.0.0.1:1","api":"http://127.0.0.1:1","voter":false}`), 200, "")
	const path = "/_shard/group/servers/c9"
	for _, s := range []*testServer{leader, follower, leader} {
		if r := s.want(s.ask("DELETE", path, "", proto.HeaderIdempotencyKey, "k"), 200, ""); r.body["id"] != "c9" {
			t.Errorf("answer %s", r.text)
		}
	}
	leader.want(leader.ask("DELETE", path, "{}", proto.HeaderIdempotencyKey, "k"), 422, fsm.CodeKeyReused)
	leader.want(leader.ask("DELETE", path, ""), 404, fsm.CodeMemberUnknown)
}

// TestARefusedTokenOfAJoinNamesItsFlag: what the log says of it.
func TestARefusedTokenOfAJoinNamesItsFlag(t *testing.T) {
	leader := startGroup(t, 1, nil).leader()
	stranger := &Server{config: Config{Join: []string{"http://" + leader.addr}}, peers: leader.peers, joinWait: joinTimeout}
	wrong := "wrong"
	stranger.token.Store(&wrong)
	_, err := stranger.join(t.Context(), group.JoinRequest{})
	if err == nil || !strings.Contains(err.Error(), "--token") {
		t.Errorf("the refusal says %v", err)
	}
}

// TestAServerThatDoesNotAnswerHoldsUpNoJoin has the first address of --join
// accept connections and say nothing, as a paused process does.
func TestAServerThatDoesNotAnswerHoldsUpNoJoin(t *testing.T) {
	g := startGroup(t, 1, nil)
	mute := listenOn(t, "127.0.0.1:0")
	defer mute.Close()
	config := Config{ID: "c2", DataDir: t.TempDir(), Token: adminToken, Timing: calm, Logger: hclog.NewNullLogger(),
		Listener: listenOn(t, "127.0.0.1:0"), RaftListener: listenOn(t, "127.0.0.1:0"),
		Join: []string{"http://" + mute.Addr().String(), "http://" + g.leader().addr}}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.joinWait = 5 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
		_ = s.Close()
	}()
	waitFor(t, "c2 has joined", func() bool { ok, _ := s.group.Ready(); return ok })
}
