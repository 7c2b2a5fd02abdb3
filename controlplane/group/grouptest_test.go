package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/internal/netfault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for a condition.
const patience = 30 * time.Second

func logger() hclog.Logger {
	level := hclog.Off
	if s := os.Getenv("GROUP_TEST_LOG"); s != "" {
		level = hclog.LevelFromString(s)
	}
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: os.Stderr})
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(2 * time.Millisecond) // poll
	}
}

// member is one server of a cluster under test.
type member struct {
	c      *cluster
	cfg    Config
	hooks  hooks
	addr   string // where its Raft really listens, the same after restarts
	mu     sync.Mutex
	g      *Group // written by the test's goroutine, under mu
	cancel context.CancelFunc
	ran    chan error
	feed   *recorder
	told   func(Feed) Feed // if set: what stands before feed
}

// cluster is a group of servers in this process whose links can be cut.
type cluster struct {
	t       testing.TB
	timing  Timing
	members []*member
	mu      sync.Mutex
	links   map[[2]string]*netfault.Link // from id, to address
}

func newCluster3(t testing.TB) *cluster { return startCluster(t, 3, nil) }

// startCluster starts n servers; adjust may change each one's Config first.
func startCluster(t testing.TB, n int, adjust func(*member)) *cluster {
	t.Helper()
	if p, ok := t.(*testing.T); ok {
		p.Parallel() // most of the time is waiting for elections
	}
	c := &cluster{t: t, links: make(map[[2]string]*netfault.Link)}
	if n == 1 { // nothing can go wrong between servers
		c.timing.Heartbeat, c.timing.Election = 40*time.Millisecond, 40*time.Millisecond
	}
	t.TempDir() // before what is cleaned up earlier than it: the servers in it
	t.Cleanup(c.close)
	for i := range n {
		m := c.newMember(fmt.Sprintf("s%d", i+1))
		m.cfg.Bootstrap = i == 0
		if adjust != nil {
			adjust(m)
		}
		m.start()
	}
	c.awaitVoters(n)
	return c
}

func (c *cluster) newMember(id string) *member {
	m := &member{c: c}
	m.cfg = Config{
		ID: fsm.MemberID(id), DataDir: filepath.Join(c.t.TempDir(), id), API: "http://" + id + ".test",
		Logger: logger().Named(id), Timing: c.timing,
		Settings: fsm.Settings{Replicas: 1},
	}
	m.cfg.Join = c.join
	m.cfg.Relay = func(ctx context.Context, leader Leader, p Proposal) (fsm.Result, fsm.Revision, error) {
		if l := c.byID(leader.ID); l != nil && l.group() != nil {
			return l.group().Propose(ctx, p)
		}
		return fsm.Result{}, 0, ErrNoLeader
	}
	m.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		return dialTCP(ctx, c.link(id, addr).Addr())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, m)
	return m
}

// all is for goroutines other than the test's.
func (c *cluster) all() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*member(nil), c.members...)
}

// join asks every server, as the admin API does.
func (c *cluster) join(ctx context.Context, req JoinRequest) (JoinAnswer, error) {
	err := error(ErrNoLeader)
	for _, m := range c.all() {
		g := m.group()
		if g == nil || !g.leads() {
			continue
		}
		var a JoinAnswer
		if a, err = g.AddServer(ctx, AddRequest{JoinRequest: req, CheckRegion: true}); err == nil {
			return a, nil
		}
	}
	return JoinAnswer{}, err
}

func (c *cluster) link(from, addr string) *netfault.Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[[2]string{from, addr}]
	if l == nil {
		var err error
		if l, err = netfault.New(addr); err != nil {
			c.t.Error(err)
			return nil
		}
		c.links[[2]string{from, addr}] = l
	}
	return l
}

// isolate applies f to every link to and from m.
func (c *cluster) isolate(m *member, f func(*netfault.Link)) {
	for _, o := range c.members {
		if o != m {
			f(c.link(string(m.cfg.ID), o.addr))
			f(c.link(string(o.cfg.ID), m.addr))
		}
	}
}

func (c *cluster) cut(m *member)  { c.isolate(m, (*netfault.Link).Cut) }
func (c *cluster) heal(m *member) { c.isolate(m, (*netfault.Link).Heal) }

func (m *member) open() error {
	addr := m.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	// While it was down, a connection of another test may have been given its port.
	for deadline := time.Now().Add(patience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); l, err = net.Listen("tcp", addr) {
		<-time.After(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	m.addr = l.Addr().String()
	m.feed = &recorder{}
	cfg := m.cfg
	cfg.Listener, cfg.Feed = l, m.feed
	if m.told != nil {
		cfg.Feed = m.told(m.feed)
	}
	g, err := open(cfg, m.hooks)
	if err != nil {
		return err
	}
	m.set(g)
	return nil
}

func (m *member) set(g *Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.g = g
}

// group is for goroutines other than the test's.
func (m *member) group() *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.g
}

func (m *member) start() {
	m.c.t.Helper()
	if err := m.open(); err != nil {
		m.c.t.Fatal(err)
	}
	m.run()
}

func (m *member) run() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.ran = cancel, make(chan error, 1)
	g := m.g
	go func() { m.ran <- g.Run(ctx) }()
}

// stop ends it cleanly and returns Run's error.
func (m *member) stop() error {
	if m.g == nil {
		return nil
	}
	m.cancel()
	err := <-m.ran
	g := m.g
	m.set(nil)
	if closed := g.Close(); closed != nil {
		m.c.t.Errorf("%s: close: %v", m.cfg.ID, closed)
	}
	return err
}

// kill ends it as a crash would, as far as the others can see: it cannot hand
// anything over.
func (m *member) kill() {
	m.c.isolate(m, (*netfault.Link).Reset)
	m.stop()
	m.c.isolate(m, (*netfault.Link).Heal)
}

func (c *cluster) killAndRestart(m *member) {
	m.kill()
	c.leader()
	m.start()
}

func (c *cluster) close() {
	for _, m := range c.members {
		if err := m.stop(); err != nil {
			c.t.Errorf("%s: run: %v", m.cfg.ID, err)
		}
	}
	for _, l := range c.links {
		l.Close()
	}
}

func (c *cluster) byID(id fsm.MemberID) *member {
	for _, m := range c.all() {
		if m.cfg.ID == id {
			return m
		}
	}
	return nil
}

// leader waits for one that can take proposals, among the running servers but
// those of but.
func (c *cluster) leader(but ...*member) *member {
	c.t.Helper()
	var leader *member
	eventually(c.t, "a leader that is ready", func() bool {
		for _, m := range c.members {
			if m.g == nil || contains(but, m) || !m.g.leads() {
				continue
			}
			if ok, _ := m.g.Ready(); ok {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

func contains(list []*member, m *member) bool {
	for _, o := range list {
		if o == m {
			return true
		}
	}
	return false
}

func (c *cluster) follower() *member {
	c.t.Helper()
	leader := c.leader()
	for _, m := range c.members {
		if m != leader && m.g != nil {
			return m
		}
	}
	c.t.Fatal("no follower")
	return nil
}

func (c *cluster) awaitVoters(n int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d voters that are recorded and ready", n), func() bool {
		for _, m := range c.members {
			if m.g == nil {
				continue
			}
			ready, _ := m.g.Ready()
			members := 0
			for range m.g.State().Members() {
				members++
			}
			if !ready || len(m.g.voters()) != n || members != n {
				return false
			}
		}
		return true
	})
}

// propose asks whoever leads until the answer is certain.
func (c *cluster) propose(key string, cmd fsm.Command) fsm.Result {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, m := range c.members {
			if m.g == nil || !m.g.leads() {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			result, _, err := m.g.Propose(ctx, Proposal{Key: key, Fingerprint: key, Cmd: cmd})
			cancel()
			if err == nil {
				return result
			}
		}
		<-time.After(5 * time.Millisecond) // no leader at the moment
	}
	c.t.Fatalf("not proposed within %v: %T", patience, cmd)
	return fsm.Result{}
}

func putRegion(name string) fsm.Command {
	return &fsm.PutRegion{Region: fsm.Region{Name: fsm.RegionName(name), Routers: []string{"http://" + name}}}
}

func hasRegion(g *Group, name string) bool {
	_, ok := g.State().Region(fsm.RegionName(name))
	return ok
}

var _ io.Closer = (*Group)(nil)

// proposeAs is propose for goroutines: nil when it gave up.
func (c *cluster) proposeAs(key string, cmd fsm.Command) *fsm.Result {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, m := range c.all() {
			g := m.group()
			if g == nil || !g.leads() {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			result, _, err := g.Propose(ctx, Proposal{Key: key, Fingerprint: key, Cmd: cmd})
			cancel()
			if err == nil {
				return &result
			}
		}
		<-time.After(5 * time.Millisecond) // no leader at the moment
	}
	c.t.Errorf("not proposed within %v: %T", patience, cmd)
	return nil
}

// joinAsReader joins as a non-voter for good.
func (c *cluster) joinAsReader(ctx context.Context, req JoinRequest) (JoinAnswer, error) {
	for _, m := range c.all() {
		if g := m.group(); g != nil && g.leads() {
			return g.AddServer(ctx, AddRequest{JoinRequest: req, NonVoter: true})
		}
	}
	return JoinAnswer{}, ErrNoLeader
}
