package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
)

// records is a directory that tests change, entry by entry.
type records struct {
	settings fsm.Settings
	nodes    map[fsm.NodeName]*fsm.Node
	units    map[fsm.UnitName]*fsm.Placed
}

// testLog is the log of a group: the committed states, and who leads.
type testLog struct {
	t     *testing.T
	mu    sync.Mutex
	now   records
	state *fsm.State
	lists map[fsm.NodeName]fsm.Revision
	term  uint64 // of the present leader
	ids   fsm.UnitID
	moved chan struct{}
}

func newTestLog(t *testing.T, lease fsm.Millis, nodes ...*fsm.Node) *testLog {
	g := &testLog{t: t, term: 1, moved: make(chan struct{}), lists: make(map[fsm.NodeName]fsm.Revision),
		now: records{settings: fsm.Settings{AutoFailover: lease, LongestLease: lease},
			nodes: make(map[fsm.NodeName]*fsm.Node), units: make(map[fsm.UnitName]*fsm.Placed)}}
	g.change(func(r *records, rev fsm.Revision) {
		for i, n := range nodes {
			n.ID = fsm.NodeID(i + 1)
			r.nodes[n.Name] = n
			g.lists[n.Name] = rev
		}
	})
	return g
}

func leased(name fsm.NodeName) *fsm.Node {
	return &fsm.Node{Name: name, Addr: string(name) + ":1", Token: "secret", Lease: fsm.LeaseTaken}
}

// change applies an entry and returns its revision. The lists of the nodes in
// touched have changed.
func (g *testLog) change(f func(r *records, rev fsm.Revision), touched ...fsm.NodeName) fsm.Revision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.apply(f, touched...)
}

func (g *testLog) apply(f func(r *records, rev fsm.Revision), touched ...fsm.NodeName) fsm.Revision {
	rev := fsm.Revision(100_000) // nodes and units are older
	if g.state != nil {
		rev = g.state.Revision() + 1
	}
	f(&g.now, rev)
	for _, n := range touched {
		g.lists[n] = rev
	}
	var err error
	if g.state, err = g.now.build(rev, g.lists); err != nil {
		panic(err)
	}
	close(g.moved)
	g.moved = make(chan struct{})
	return rev
}

func (r *records) build(rev fsm.Revision, lists map[fsm.NodeName]fsm.Revision) (*fsm.State, error) {
	b, err := fsm.NewBuilder(fsm.Meta{Revision: rev, Level: fsm.Version, Settings: r.settings,
		Scope: fsm.Scope{Cluster: "c", Region: "eu", History: 1}})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if err := b.AddNode(r.nodes[name], lists[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.units)) {
		p := *r.units[name]
		if err := b.AddTenant(&fsm.Tenant{Name: fsm.TenantName(name)}, &p); err != nil {
			return nil, err
		}
	}
	return b.State()
}

func unit(name string, id uint64, on fsm.NodeName, copies ...fsm.Copy) *fsm.Placed {
	return &fsm.Placed{Unit: fsm.UnitName(name), ID: fsm.UnitID(id), Node: on, State: fsm.UnitActive, Epoch: 1, Copies: copies}
}

// member is the group as one server sees it.
type member struct {
	*testLog
	term uint64 // in which it leads, as it believes
	// cut is the state that a deposed leader stopped at; nil: it follows.
	cut     *fsm.State
	confirm func(ctx context.Context) error // nil: at once
	checks  int
}

func (m *member) State() *fsm.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		return m.cut
	}
	return m.state
}

func (m *member) WaitRevision(ctx context.Context, rev fsm.Revision) error {
	for {
		m.mu.Lock()
		state, moved := m.state, m.moved
		if m.cut != nil {
			state, moved = m.cut, nil
		}
		m.mu.Unlock()
		if state.Revision() >= rev {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errDeposed = errors.New("another server leads")

func (m *member) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.testLog.term == m.term
}

func (m *member) Confirm(ctx context.Context) (uint64, error) {
	m.mu.Lock()
	m.checks++
	m.mu.Unlock()
	if m.confirm != nil {
		if err := m.confirm(ctx); err != nil {
			return 0, err
		}
	} else if !m.leads() {
		return 0, errDeposed
	}
	return m.term, nil
}

func quiet() hclog.Logger { return hclog.NewNullLogger() }

// run starts a keeper's term, and returns what ends it and waits.
func run(k *Keeper, term uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx, term)
	}()
	return func() {
		cancel()
		<-done
	}
}
