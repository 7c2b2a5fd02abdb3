package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// fakeLease is the part of a fake node that is about leases and copies: it keeps
// to the lease rule by its own clock, and follows at once whom it is told to.
type fakeLease struct {
	peers  *fakePeers // nil: it is alone
	leased bool       // it takes leases
	cut    atomic.Bool

	boot     string
	epoch    string
	list     map[fsm.UnitName]fsm.UnitID
	copies   map[fsm.UnitName][]string
	arrivals map[uint64]time.Time
	until    time.Time

	follows  map[fsm.UnitName]proto.FollowUnit
	from     map[fsm.UnitName]string
	lagging  map[fsm.UnitName]bool // its copies of these lack writes
	sent     map[fsm.UnitName]string
	promoted map[fsm.UnitName]string // epochs
	written  map[fsm.UnitName]time.Time
	lost     map[fsm.UnitName]*proto.PositionRange
	damaged  map[fsm.UnitName]bool
	stopping bool
	refused  map[string]string // who refuses to be followed by it, and why
	position string
	hook     map[string]func(*http.Request) // run before a route is served
	promised int64                          // ms left of a promise, told once
	told     []string
}

// fakePeers finds fake nodes by the address that the directory records.
type fakePeers struct {
	// across is held, before its own lock, by a node that looks at its peers: two
	// that look at each other would wait for ever.
	across sync.Mutex
	mu     sync.Mutex
	node   map[string]*fakeNode
}

func newFakeLease(name fsm.NodeName) fakeLease {
	return fakeLease{boot: string(name) + "-1", position: "1:1", hook: map[string]func(*http.Request){}, list: map[fsm.UnitName]fsm.UnitID{}, copies: map[fsm.UnitName][]string{},
		arrivals: map[uint64]time.Time{}, follows: map[fsm.UnitName]proto.FollowUnit{}, from: map[fsm.UnitName]string{},
		lagging: map[fsm.UnitName]bool{}, sent: map[fsm.UnitName]string{}, promoted: map[fsm.UnitName]string{},
		written: map[fsm.UnitName]time.Time{}, lost: map[fsm.UnitName]*proto.PositionRange{}, damaged: map[fsm.UnitName]bool{}}
}

// newFakeNodes makes nodes that know each other; leased says that they take
// leases.
func newFakeNodes(t *testing.T, leased bool, names ...fsm.NodeName) []*fakeNode {
	peers := &fakePeers{node: map[string]*fakeNode{}}
	var nodes []*fakeNode
	for _, name := range names {
		n := newFakeNode(t, name)
		n.leased, n.peers = leased, peers
		peers.node["http://"+n.addr()] = n
		nodes = append(nodes, n)
	}
	return nodes
}

// serveCopies serves the routes about leases and copies; false for another.
func (n *fakeNode) serveCopies(w http.ResponseWriter, r *http.Request) bool {
	n.mu.Lock()
	hook := n.hook[r.URL.Path]
	n.mu.Unlock()
	if hook != nil {
		hook(r)
	}
	var status int
	var body any
	switch r.Method + " " + r.URL.Path {
	case "POST /_admin/lease":
		var g proto.Grant
		_ = json.NewDecoder(r.Body).Decode(&g)
		status, body = n.grant(&g)
	case "GET /_admin/copies":
		status, body = n.report()
	case "GET /_admin/lease", "GET /_admin/units":
		status, body = n.read(r)
	case "POST /_admin/follow":
		var f proto.FollowUnits
		_ = json.NewDecoder(r.Body).Decode(&f)
		n.hear(r, &f)
		status, body = n.follow(&f)
	case "POST /_admin/promote":
		var p proto.Promote
		_ = json.NewDecoder(r.Body).Decode(&p)
		status, body = n.promote(&p)
	case "POST /_admin/handover":
		var h proto.Handover
		_ = json.NewDecoder(r.Body).Decode(&h)
		status, body = n.handover(&h)
	case "POST /_admin/thaw":
		var h proto.Thaw
		_ = json.NewDecoder(r.Body).Decode(&h)
		status, body = n.thaw(&h)
	default:
		return false
	}
	httpserve.WriteJSON(w, status, body)
	return true
}

// hear keeps the number of the newest call that has a unit followed, so that a removal
// which was sent before it is known for late, as a node does (dataplane/node/told.go).
func (n *fakeNode) hear(r *http.Request, f *proto.FollowUnits) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, u := range f.Units {
		at := toldIn{u.Unit, f.Term}
		n.followed[at] = max(n.followed[at], callOf(r))
	}
}

// toldIn is a unit, and the term whose leader said something of it: each counts its calls.
type toldIn struct {
	unit fsm.UnitName
	term uint64
}

// callOf gives the number of a call, 0 for none.
func callOf(r *http.Request) uint64 {
	number, _ := strconv.ParseUint(r.Header.Get(proto.HeaderCall), 10, 64)
	return number
}

func (n *fakeNode) grant(g *proto.Grant) (int, any) {
	defer n.peers.look()()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.leased {
		return 409, map[string]string{"error": "takes no lease", "code": "takes_no_lease"}
	}
	if status, body := n.hold(g.Holder); status != 0 {
		return status, body
	}
	if g.Boot != "" && g.Boot != n.boot || g.Primaries == nil && g.Base == "" && g.Epoch != n.epoch || g.Base != "" && g.Base != n.epoch {
		return 412, proto.NotGranted{Error: "not this list", Epoch: n.epoch, Boot: n.boot}
	}
	put := func(items []proto.UnitItem) {
		for _, i := range items {
			n.list[i.Unit], n.copies[i.Unit] = i.ID, g.Copies[i.Unit]
		}
	}
	if g.Primaries != nil {
		clear(n.list)
		put(*g.Primaries)
	}
	put(g.Add)
	for _, i := range g.Remove {
		delete(n.list, i.Unit)
	}
	n.epoch = g.Epoch
	n.arrivals[g.Grant] = time.Now()
	if at, ok := n.arrivals[g.Acked]; ok && g.Acked > 0 {
		n.until = at.Add(time.Duration(g.MS) * time.Millisecond)
	}
	granted := proto.Granted{Epoch: n.epoch, LeftMS: max(time.Until(n.until).Milliseconds(), 0), Grant: g.Grant, Boot: n.boot,
		Ack: proto.AckReplica, Stopping: n.stopping, Refused: n.refused}
	granted.Lagging = map[fsm.UnitName][]string{}
	for u := range n.list {
		if _, held := n.units[u]; !held {
			granted.Missing = append(granted.Missing, u)
		} else if n.damaged[u] {
			granted.Damaged = append(granted.Damaged, u)
		}
		for _, addr := range n.copies[u] {
			if !n.inSync(u, addr) {
				granted.Lagging[u] = append(granted.Lagging[u], addr)
			}
		}
	}
	return 200, granted
}

// look lets one node at a time look at its peers.
func (p *fakePeers) look() (done func()) {
	if p == nil {
		return func() {}
	}
	p.across.Lock()
	return p.across.Unlock
}

// inSync reports whether the node at addr follows n for u and lacks nothing. It
// is called with n's lock held.
func (n *fakeNode) inSync(u fsm.UnitName, addr string) bool {
	peer := n.peers.at(addr)
	if peer == nil || peer.cut.Load() {
		return false
	}
	if peer == n {
		return false
	}
	peer.mu.Lock()
	defer peer.mu.Unlock()
	return peer.from[u] == "http://"+n.addr() && !peer.lagging[u]
}

func (p *fakePeers) at(addr string) *fakeNode {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node[addr]
}

func (n *fakeNode) report() (int, any) {
	defer n.peers.look()()
	n.mu.Lock()
	defer n.mu.Unlock()
	following := map[fsm.UnitName][]string{}
	if n.peers != nil {
		for addr := range n.peers.node {
			for u := range n.units {
				if n.inSync(u, addr) {
					following[u] = append(following[u], addr)
				}
			}
		}
	}
	return 200, map[string]any{"following": following, "boot": n.boot, "stopping": n.stopping}
}

// read answers a read, which may name who recovers the directory. No lease is left.
func (n *fakeNode) read(r *http.Request) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text := r.Header.Get(proto.HeaderHolder); text != "" {
		holder, _ := proto.ParseHolder(text)
		if status, body := n.hold(holder); status != 0 {
			return status, body
		}
	}
	if r.URL.Path == "/_admin/units" {
		return n.listUnits()
	}
	if !n.leased {
		return 409, map[string]string{"error": "takes no lease", "code": "takes_no_lease"}
	}
	left := int64(0)
	return 200, proto.LeaseState{LeftMS: &left}
}

func (n *fakeNode) listUnits() (int, any) {
	held := []proto.HeldUnit{}
	for u, id := range n.units {
		h := proto.HeldUnit{Unit: u, ID: id, State: "active", Role: "primary", Position: n.position, Bytes: int64(n.size(u)), Lost: n.lost[u], Damaged: n.damaged[u]}
		if _, ok := n.follows[u]; ok {
			h.State, h.Role, h.Follows = "following", "replica", true
		}
		held = append(held, h)
	}
	return 200, held
}

func (n *fakeNode) follow(f *proto.FollowUnits) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if status, body := n.hold(f.Holder); status != 0 {
		return status, body
	}
	answer := proto.FollowingUnits{Following: []fsm.UnitName{}, Failed: []proto.FailedUnit{}}
	for _, u := range f.Units {
		if held, ok := n.units[u.Unit]; ok && held != u.ID {
			answer.Failed = append(answer.Failed, proto.FailedUnit{Tenant: u.Unit, Why: "another unit"})
			continue
		}
		n.units[u.Unit], n.follows[u.Unit], n.from[u.Unit] = u.ID, u, f.From
		delete(n.sent, u.Unit)
		delete(n.damaged, u.Unit)
		answer.Following = append(answer.Following, u.Unit)
	}
	n.told = append(n.told, fmt.Sprintf("follow %d of %s", len(f.Units), f.From))
	if f.As != "http://"+n.addr() || f.Token == "" {
		n.told = append(n.told, "as "+f.As)
	}
	return 200, answer
}

func (n *fakeNode) promote(p *proto.Promote) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if status, body := n.hold(p.Holder); status != 0 {
		return status, body
	}
	answer := proto.Promoted{Promoted: []proto.PromotedUnit{}, Failed: []proto.FailedUnit{}}
	left := n.promised
	n.promised = 0
	for _, u := range p.Tenants {
		switch held, ok := n.units[u.Unit]; {
		case !ok || held != u.ID:
			answer.Failed = append(answer.Failed, proto.FailedUnit{Tenant: u.Unit, Why: "not here"})
		case left > 0:
			answer.Failed = append(answer.Failed, proto.FailedUnit{Tenant: u.Unit, Why: "promised", Code: proto.CodePromised, LeftMS: left})
		default:
			delete(n.follows, u.Unit)
			delete(n.from, u.Unit)
			n.promoted[u.Unit] = p.Epoch
			answer.Promoted = append(answer.Promoted, proto.PromotedUnit{Tenant: u.Unit, Position: p.Epoch + ":1"})
		}
	}
	n.told = append(n.told, fmt.Sprintf("promote %d", len(p.Tenants)))
	return 200, answer
}

func (n *fakeNode) handover(h *proto.Handover) (int, any) {
	defer n.peers.look()()
	n.mu.Lock()
	defer n.mu.Unlock()
	if status, body := n.hold(h.Holder); status != 0 {
		return status, body
	}
	answer := proto.HandedOver{Released: []proto.PromotedUnit{}, Failed: []proto.FailedUnit{}}
	for _, u := range h.Units {
		if _, held := n.units[u.Unit]; !held {
			answer.Failed = append(answer.Failed, proto.FailedUnit{Tenant: u.Unit, Why: "not here", Code: fsm.CodeTenantUnknown})
			continue
		}
		if n.sent[u.Unit] != h.Job && !n.inSync(u.Unit, u.Addr) && !(h.Forced && n.damaged[u.Unit]) {
			answer.Failed = append(answer.Failed, proto.FailedUnit{Tenant: u.Unit, Why: "the copy does not follow"})
			continue
		}
		n.sent[u.Unit] = h.Job
		answer.Released = append(answer.Released, proto.PromotedUnit{Tenant: u.Unit, Position: "1:1"})
	}
	n.told = append(n.told, fmt.Sprintf("handover %d", len(h.Units)))
	return 200, answer
}

func (n *fakeNode) thaw(h *proto.Thaw) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if status, body := n.hold(h.Holder); status != 0 {
		return status, body
	}
	for _, u := range h.Units {
		if n.sent[u.Unit] == h.Job {
			delete(n.sent, u.Unit)
		}
	}
	n.told = append(n.told, fmt.Sprintf("thaw %d", len(h.Units)))
	return 200, map[string]any{}
}

// mayWrite says whether the node would take a write of u now.
func (n *fakeNode) mayWrite(u fsm.UnitName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, held := n.units[u]
	_, follows := n.follows[u]
	if !held || follows || n.sent[u] != "" {
		return false
	}
	if !n.leased {
		return true
	}
	return n.list[u] == id && time.Now().Before(n.until)
}

// was tells whether the node was told something.
func (n *fakeNode) was(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.told, what)
}

// set changes something of the node under its lock.
func (n *fakeNode) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// before has f run before a route is served.
func (n *fakeNode) before(path string, f func(*http.Request)) {
	n.set(func() { n.hook[path] = f })
}

// event and fsmRange are short for tests.
type event = proto.Event

func fsmRange(from, to string) proto.PositionRange { return proto.PositionRange{From: from, To: to} }
