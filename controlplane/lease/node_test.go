package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

// testNode keeps the node's side of architecture §3.5, clauses 1, 2, 6 and 9.
type testNode struct {
	clock boottime.Clock
	slow  float64 // real time in a second of its clock; 1: it is right

	mu       sync.Mutex
	down     bool
	noLease  bool
	boots    int
	history  uint64
	term     uint64 // newest heard, kept over restarts
	newest   uint64
	arrived  map[uint64]proto.Grant
	at       map[uint64]time.Duration
	acked    uint64
	deadline time.Duration // under the present holder
	former   time.Duration
	epoch    string
	list     map[fsm.UnitName]fsm.UnitID
	report   proto.CopyReport
	stopping bool
	taken    []proto.Grant // all that were taken
	calls    []time.Duration
	onTake   func() // called with mu held after a grant was taken
}

func newTestNode(clock boottime.Clock) *testNode {
	n := &testNode{clock: clock, slow: 1}
	n.restart()
	return n
}

func (n *testNode) boot() string { return fmt.Sprintf("%p-%d", n, n.boots) }

func (n *testNode) restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boots++
	n.newest, n.acked, n.deadline, n.former, n.epoch, n.list = 0, 0, 0, 0, "", nil
	n.arrived, n.at = make(map[uint64]proto.Grant), make(map[uint64]time.Duration)
}

// fall lets the node answer no more.
func (n *testNode) fall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
}

// mayWrite is called with mu held.
func (n *testNode) mayWrite(u fsm.UnitName) bool {
	_, named := n.list[u]
	return named && n.clock.Now() < max(n.deadline, n.former)
}

func (n *testNode) writes(u fsm.UnitName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mayWrite(u)
}

// take serves one request.
func (n *testNode) take(method, path string, body []byte) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, n.clock.Now())
	if path == "/_admin/copies" && method == http.MethodGet {
		return 200, n.report
	}
	var g proto.Grant
	if err := json.Unmarshal(body, &g); err != nil {
		return 400, map[string]string{"error": err.Error()}
	}
	switch {
	case n.noLease:
		return 409, map[string]string{"code": "takes_no_lease", "error": "no"}
	case g.History < n.history:
		return 409, proto.Holder{Authority: g.Authority, History: n.history, Term: 1}
	case g.Term < n.term:
		return 409, g.Holder
	case g.Term > n.term:
		n.former = max(n.former, n.deadline)
		n.term, n.newest, n.acked, n.deadline = g.Term, 0, 0, 0
		clear(n.at)
	}
	if g.Grant <= n.newest {
		return 409, map[string]any{"code": "stale_grant", "grant": n.newest}
	}
	if g.Boot != "" && g.Boot != n.boot() ||
		g.Primaries == nil && n.epoch != g.Epoch && (g.Base == "" || n.epoch != g.Base) {
		return 412, proto.NotGranted{Error: "no", Epoch: n.epoch, Boot: n.boot()}
	}
	n.apply(&g)
	n.newest = g.Grant
	n.at[g.Grant] = n.clock.Now()
	n.arrived[g.Grant] = g
	n.taken = append(n.taken, g)
	n.acked = max(n.acked, g.Acked)
	if at, ok := n.at[n.acked]; ok {
		n.deadline = max(n.deadline, at+time.Duration(float64(n.arrived[n.acked].MS)*n.slow*float64(time.Millisecond)))
	}
	if n.onTake != nil {
		n.onTake()
	}
	return 200, proto.Granted{Epoch: g.Epoch, Grant: g.Grant, Boot: n.boot(), CopyReport: n.report, Stopping: n.stopping, AwaitsCounted: n.stopping}
}

func (n *testNode) apply(g *proto.Grant) {
	if g.Primaries != nil {
		n.list = make(map[fsm.UnitName]fsm.UnitID)
		for _, u := range *g.Primaries {
			n.list[u.Unit] = u.ID
		}
	} else if n.epoch != g.Epoch {
		for _, u := range g.Remove {
			delete(n.list, u.Unit)
		}
		for _, u := range g.Add {
			n.list[u.Unit] = u.ID
		}
	}
	n.epoch = g.Epoch
}

// network lies between a keeper and its nodes. Its times are drawn from rand,
// or 0 where that is nil.
type network struct {
	rand  *rand.Rand
	mu    sync.Mutex
	nodes map[string]*testNode
	cut   bool // nothing passes
	hole  map[string]bool
	slow  map[string]time.Duration // before an answer sets out
	work  *sync.WaitGroup          // late messages
}

func newNetwork(nodes map[string]*testNode) *network {
	return &network{nodes: nodes, work: new(sync.WaitGroup), hole: make(map[string]bool), slow: make(map[string]time.Duration)}
}

// draw gives the delay of a message and whether it is lost.
func (w *network) draw() (delay time.Duration, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rand == nil {
		return 0, w.cut
	}
	switch p := w.rand.IntN(20); {
	case p < 2:
		return 0, true
	case p < 5:
		delay = time.Duration(w.rand.IntN(700)) * time.Millisecond
	default:
		delay = time.Duration(w.rand.IntN(5000)) * time.Microsecond
	}
	return delay, w.cut
}

func (w *network) line(ctx context.Context, n *fsm.Node) line {
	return &testLine{ctx: ctx, net: w, addr: n.Addr}
}

type testLine struct {
	ctx  context.Context
	net  *network
	addr string
}

func (l *testLine) close() {}

func (l *testLine) call(method, path string, body []byte, timeout time.Duration) (reply, error) {
	l.net.mu.Lock()
	node, hole, slow := l.net.nodes[l.addr], l.net.hole[l.addr], l.net.slow[l.addr]
	l.net.mu.Unlock()
	answer := make(chan reply, 3)
	copies := 1
	if d, _ := l.net.draw(); d > 500*time.Millisecond {
		copies = 2 // it arrives twice
	}
	for range copies {
		delay, lost := l.net.draw()
		if lost || hole {
			continue
		}
		l.net.work.Go(func() {
			pause(context.Background(), delay)
			node.mu.Lock()
			down := node.down
			node.mu.Unlock()
			if down {
				return
			}
			status, body := node.take(method, path, body)
			text, _ := json.Marshal(body)
			delay, lost := l.net.draw()
			if lost {
				return
			}
			pause(context.Background(), slow+delay)
			answer <- reply{status, text}
		})
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case r := <-answer:
		return r, nil
	case <-limit.C:
		return reply{}, fmt.Errorf("no answer within %v", timeout)
	case <-l.ctx.Done():
		return reply{}, l.ctx.Err()
	}
}
