package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

const adminToken = "admin-secret-token"

// fast are timings for tests of changes of leader.
var fast = group.Timing{Heartbeat: 150 * time.Millisecond, Election: 150 * time.Millisecond, LeaderLease: 100 * time.Millisecond}

// calm are timings for all others, so that a busy machine changes no leader.
var calm = group.Timing{Heartbeat: time.Second, Election: time.Second}

// failover makes a group's timings fast.
func failover(c *Config) { c.Timing = fast }

// testServer is a control server that runs.
type testServer struct {
	*Server
	t      *testing.T
	config Config
	addr   string
	ctx    context.Context // ends when the server was told to stop
	cancel context.CancelFunc
	ended  chan error
	log    *syncBuffer
	dead   atomic.Bool
}

// testGroup is a group of them.
type testGroup struct {
	t       *testing.T
	servers []*testServer
}

func listenOn(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs a server; raft and api are addresses, or "127.0.0.1:0".
func start(t *testing.T, config Config, api, raft string) *testServer {
	t.Helper()
	log := &syncBuffer{}
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})
	config.Listener, config.RaftListener = listenOn(t, api), listenOn(t, raft)
	config.RaftAdvertise = config.RaftListener.Addr().String()
	config.Registry = nil
	if config.Timing == (group.Timing{}) {
		config.Timing = calm
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &testServer{Server: server, t: t, config: config, addr: config.Listener.Addr().String(),
		ctx: ctx, cancel: cancel, ended: make(chan error, 1), log: log}
	go func() { s.ended <- server.Run(ctx) }()
	t.Cleanup(s.kill)
	return s
}

// kill ends a server as a crash would: without handing anything over.
func (s *testServer) kill() {
	if s.dead.Swap(true) {
		return
	}
	s.giveUp()
	if err := s.group.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	s.cancel()
	<-s.ended
	_ = s.Close()
}

// interrupted has f called before the executor proposes something.
func (s *testServer) interrupted(f func(fsm.Command)) { s.jobs.interrupt.Store(&f) }

// again starts a server that was killed from its folder.
func (s *testServer) again() *testServer {
	s.t.Helper()
	return start(s.t, s.config, s.addr, s.config.RaftAdvertise)
}

// startGroup runs n servers of one group.
func startGroup(t *testing.T, n int, change func(*Config)) *testGroup {
	t.Helper()
	t.Parallel()
	g := &testGroup{t: t}
	dir := t.TempDir()
	for i := range n {
		config := Config{ID: fsm.MemberID(fmt.Sprintf("c%d", i+1)), DataDir: filepath.Join(dir, fmt.Sprint(i)),
			Token: adminToken, Bootstrap: i == 0}
		if i > 0 {
			config.Join = []string{"http://" + g.servers[0].addr}
		}
		if n == 1 {
			config.Timing = fast // nobody else could lead
		}
		if change != nil {
			change(&config)
		}
		g.servers = append(g.servers, start(t, config, "127.0.0.1:0", "127.0.0.1:0"))
	}
	g.settled()
	return g
}

// settled waits until every server is ready and knows the others.
func (g *testGroup) settled() {
	g.t.Helper()
	for _, s := range g.servers {
		s.until("is ready and knows every server", func() bool {
			ready, _ := s.group.Ready()
			members := 0
			for m := range s.group.State().Members() {
				if m.API != "" {
					members++
				}
			}
			return ready && members == len(g.servers) && s.group.Leader().API != ""
		})
	}
}

// until waits for a condition.
func (s *testServer) until(what string, ok func() bool) {
	s.t.Helper()
	waitFor(s.t, string(s.config.ID)+" "+what, ok)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// leader waits for a live server that leads and is ready.
func (g *testGroup) leader() *testServer {
	g.t.Helper()
	var found *testServer
	waitFor(g.t, "the group has a leader", func() bool {
		for _, s := range g.servers {
			if s.dead.Load() {
				continue
			}
			if ready, _ := s.group.Ready(); ready && s.group.Leader().Self {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

func (g *testGroup) follower() *testServer {
	leader := g.leader()
	for _, s := range g.servers {
		if s != leader && !s.dead.Load() {
			return s
		}
	}
	g.t.Fatal("the group has no follower")
	return nil
}

// restart kills a server and starts it again.
func (g *testGroup) restart(s *testServer) {
	s.kill()
	for i := range g.servers {
		if g.servers[i] == s {
			g.servers[i] = s.again()
		}
	}
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (r reply) code() string { c, _ := r.body["code"].(string); return c }

// ask sends a request with the token; more are header names and values.
func (s *testServer) ask(method, path, body string, more ...string) reply {
	s.t.Helper()
	r, err := s.try(method, path, body, more...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (s *testServer) try(method, path, body string, more ...string) (reply, error) {
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	for i := 0; i < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&r.body) // lists stay text
	return r, nil
}

// want checks status and code of an answer.
func (s *testServer) want(r reply, status int, code proto.Code) reply {
	s.t.Helper()
	if r.status != status || r.code() != string(code) {
		s.t.Fatalf("answer %d %q, want %d %q: %s", r.status, r.code(), status, code, r.text)
	}
	return r
}

// addNode records a fake node.
func (s *testServer) addNode(n *fakeNode, region, zone string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"addr":%q,"token":%q,"region":%q,"zone":%q}`, n.addr(), nodeToken, region, zone)
	s.want(s.ask("PUT", "/_shard/nodes/"+string(n.name), body), 201, "")
}

// directory is the state without its revision, for comparing.
func (s *testServer) directory() string {
	var b strings.Builder
	state := s.group.State()
	for n := range state.Nodes() {
		record := *n
		record.Usage = fsm.Usage{}
		fmt.Fprintf(&b, "%+v\n", record)
	}
	for t := range state.Tenants("", "") {
		fmt.Fprintf(&b, "%+v\n", *t)
		for p := range state.TenantUnits(t.Name) {
			fmt.Fprintf(&b, "%+v\n", *p)
		}
	}
	for r := range state.Regions() {
		fmt.Fprintf(&b, "%+v\n", *r)
	}
	for m := range state.Members() {
		fmt.Fprintf(&b, "%+v\n", *m)
	}
	for j := range state.RunningJobs() {
		fmt.Fprintf(&b, "%+v\n", *j)
	}
	return b.String()
}
