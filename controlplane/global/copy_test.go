package global

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/controlplane/stream"
	"domicile/fsm"
	"domicile/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond) // poll
	}
}

// group is a global group whose directory is streamed.
type group struct {
	*httptest.Server
	hub   *stream.Hub
	state *fsm.State
	rev   fsm.Revision
}

func newGroup(t *testing.T, cluster string, region fsm.RegionName, history uint64) *group {
	g := &group{hub: stream.New(stream.Config{Heartbeat: 20 * time.Millisecond}), state: fsm.New()}
	g.Server = httptest.NewServer(g.hub)
	t.Cleanup(func() { g.hub.Close(); g.Close() })
	g.do(t, &fsm.Bootstrap{Scope: fsm.Scope{Cluster: cluster, Region: region, History: history}})
	return g
}

func (g *group) do(t *testing.T, cmd fsm.Command) fsm.Revision {
	t.Helper()
	prev := g.rev
	g.rev += 10
	result, events := g.state.Apply(fsm.Entry{Revision: g.rev, Term: 1, At: 1, Cmd: cmd})
	if result.Refusal != nil {
		t.Fatal(result.Refusal.Text)
	}
	if snapshot := stream.Own(g.state.Snapshot()); prev == 0 {
		g.hub.Reset(snapshot)
	} else {
		g.hub.Publish(prev, events, snapshot)
	}
	return g.rev
}

func (g *group) region(t *testing.T, name fsm.RegionName) fsm.Revision {
	t.Helper()
	return g.do(t, &fsm.PutRegion{Region: fsm.Region{Name: name, Routers: []string{"http://" + string(name) + ":1"}}})
}

// record is what the region's own directory says of its global group.
type record struct {
	mu    sync.Mutex
	bound proto.DirectoryName
	binds int
}

func (r *record) get() (proto.DirectoryName, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bound, r.bound.Authority != ""
}

func (r *record) bind(_ context.Context, to proto.DirectoryName) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound = to
	r.binds++
	return nil
}

// running is a copy that runs, and what ends it.
func running(t *testing.T, r *record, path string, servers ...string) (*Copy, func()) {
	t.Helper()
	c := New(Config{URLs: servers, Token: func() string { return "" }, Path: path, Logger: hclog.NewNullLogger(),
		Started: func(context.Context) error { return nil }, Bound: r.get, Bind: r.bind})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(end)
	return c, end
}

func (c *Copy) at() fsm.Revision {
	if d := c.Directory(); d != nil {
		return d.Revision()
	}
	return 0
}

func TestG2ACopyFollowsItsGlobalGroupAndOutlivesIt(t *testing.T) {
	g, r, path := newGroup(t, "c1", "", 1), &record{}, filepath.Join(t.TempDir(), "global")
	rev := g.region(t, "us")
	c, end := running(t, r, path, g.URL)
	eventually(t, "it has the directory", func() bool { return c.at() == rev })
	if bound, _ := r.get(); bound != (proto.DirectoryName{Authority: "c1/global", History: 1}) || r.binds != 1 {
		t.Errorf("bound to %+v, %d times", bound, r.binds)
	}
	rev = g.region(t, "tr")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Wait(ctx, "c1/global", rev); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Directory().Region("tr"); !ok || c.Problem() != "" || c.Age() > time.Minute {
		t.Errorf("region %v, problem %q, age %v", ok, c.Problem(), c.Age())
	}
	end()
	g.hub.Close()
	g.Close()
	again, end := running(t, r, path, g.URL)
	eventually(t, "a server that starts without the global group has it from disk", func() bool { return again.at() == rev })
	eventually(t, "it says that nobody answers", func() bool { return again.Problem() != "" })
	if again.Age() < 0 || again.Age() > time.Minute {
		t.Errorf("age %v", again.Age())
	}
	end()

	r.bound = proto.DirectoryName{Authority: "c2/global", History: 1}
	other, _ := running(t, r, path, g.URL)
	eventually(t, "it looked for a server", func() bool { return other.Problem() != "" })
	if other.Directory() != nil {
		t.Error("a cache of another group is used")
	}
}

func TestR4ACopyOfAnotherGroupOrOfAnOlderHistoryIsRefused(t *testing.T) {
	for name, from := range map[string]struct {
		cluster string
		region  fsm.RegionName
		history uint64
		says    string
	}{
		"another group":    {"c2", "", 9, "belongs to c1/global"},
		"a region's group": {"c1", "us", 9, "no global one"},
		"an older history": {"c1", "", 1, "has met history 2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, from.cluster, from.region, from.history)
			r := &record{bound: proto.DirectoryName{Authority: "c1/global", History: 2}}
			c, _ := running(t, r, filepath.Join(t.TempDir(), "global"), g.URL)
			eventually(t, "it is refused", func() bool { return strings.Contains(c.Problem(), from.says) })
			if c.Directory() != nil || r.binds != 0 {
				t.Errorf("it holds %+v, bound %d times", c.Directory(), r.binds)
			}
		})
	}
}

// TestR4AShorterCopyThanTheOneHeldIsRefused: a global server that lost part of its log.
func TestR4AShorterCopyThanTheOneHeldIsRefused(t *testing.T) {
	g, r, path := newGroup(t, "c1", "", 1), &record{}, filepath.Join(t.TempDir(), "global")
	g.region(t, "us")
	rev := g.region(t, "tr")
	c, end := running(t, r, path, g.URL)
	eventually(t, "it has the directory", func() bool { return c.at() == rev })
	end()
	shorter := newGroup(t, "c1", "", 1)
	shorter.region(t, "us")
	c, _ = running(t, r, path, shorter.URL)
	eventually(t, "it was asked", func() bool { return c.Problem() != "" })
	if c.at() != rev {
		t.Errorf("it is at %d, want %d", c.at(), rev)
	}
}

func TestR4ARecoveredGlobalDirectoryIsTakenAndItsHistoryRecorded(t *testing.T) {
	g := newGroup(t, "c1", "", 3)
	r := &record{bound: proto.DirectoryName{Authority: "c1/global", History: 2}}
	c, _ := running(t, r, filepath.Join(t.TempDir(), "global"), g.URL)
	eventually(t, "it has the directory", func() bool { return c.at() != 0 })
	if bound, _ := r.get(); bound.History != 3 {
		t.Errorf("bound to %+v", bound)
	}
}

// TestI9AServerThatStartsWhileTheGlobalDirectoryIsRecoveredGoesByWhatItKept: the region was
// read for that recovery, and has met the newer history, of which nothing is shown yet. A
// server of the former history is refused nevertheless.
func TestI9AServerThatStartsWhileTheGlobalDirectoryIsRecoveredGoesByWhatItKept(t *testing.T) {
	g, r, path := newGroup(t, "c1", "", 1), &record{}, filepath.Join(t.TempDir(), "global")
	rev := g.region(t, "us")
	c, end := running(t, r, path, g.URL)
	eventually(t, "it has the directory", func() bool { return c.at() == rev })
	end()
	r.bound.History = 2
	c, end = running(t, r, path, g.URL)
	eventually(t, "the former group is refused", func() bool { return strings.Contains(c.Problem(), "has met history 2") })
	if d := c.Directory(); d == nil || d.Position().History != 1 || d.Revision() != rev {
		t.Fatalf("it has %+v", d)
	}
	end()
	g = newGroup(t, "c1", "", 2)
	g.region(t, "us")
	c, _ = running(t, r, path, g.URL)
	eventually(t, "it takes the recovered directory", func() bool { d := c.Directory(); return d != nil && d.Position().History == 2 })
}

// TestACopyThatCannotBeRecordedIsNotTaken: a follower of the region's group whose leader
// does not answer.
func TestACopyThatCannotBeRecordedIsNotTaken(t *testing.T) {
	g := newGroup(t, "c1", "", 1)
	c := New(Config{URLs: []string{g.URL}, Token: func() string { return "" }, Path: filepath.Join(t.TempDir(), "global"), Logger: hclog.NewNullLogger(),
		Started: func(context.Context) error { return nil }, Bound: (&record{}).get,
		Bind: func(context.Context, proto.DirectoryName) error { return errors.New("no leader") }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "it says so", func() bool { return c.Problem() == "no leader" })
	cancel()
	if err := <-done; err != nil || c.Directory() != nil {
		t.Errorf("%v, holds %+v", err, c.Directory())
	}
}
