package controlplane

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const nodeToken = "node-secret-token"

// fakeNode speaks the few routes of the node's admin protocol that the control
// plane calls, keeps units in memory, and fails where a test tells it to.
type fakeNode struct {
	*httptest.Server
	name fsm.NodeName

	mu       sync.Mutex
	units    map[fsm.UnitName]fsm.UnitID
	schemas  map[fsm.UnitName][]string // SQL run on the unit since it was made
	bytes    uint64
	free     uint64                  // of its disk; 0: it does not tell
	sizes    map[fsm.UnitName]uint64 // of units that are not of the usual size
	holder   proto.Holder
	ids      []string          // X-Request-Id of changing calls
	calls    int               // changing calls
	followed map[toldIn]uint64 // numbers of the newest calls to follow
	numbers  []string          // and the numbers of all calls but grants
	fakeLease
	// fault, if set, runs before a changing call is served and may answer or
	// hang it: true means that it is done with.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// after runs when a changing call has had its effect, before it is answered.
	after func(r *http.Request)
}

func newFakeNode(t *testing.T, name fsm.NodeName) *fakeNode {
	n := &fakeNode{name: name, units: map[fsm.UnitName]fsm.UnitID{}, schemas: map[fsm.UnitName][]string{}, followed: map[toldIn]uint64{}}
	n.fakeLease = newFakeLease(name)
	n.Server = httptest.NewServer(n)
	t.Cleanup(func() { n.CloseClientConnections(); n.Close() })
	return n
}

func (n *fakeNode) addr() string { return strings.TrimPrefix(n.URL, "http://") }

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.cut.Load() {
		panic(http.ErrAbortHandler)
	}
	if r.Header.Get("Authorization") != "Bearer "+nodeToken {
		httpserve.WriteError(w, httpserve.Errorf(401, "unauthorized", "wrong token"))
		return
	}
	if r.Method != http.MethodGet && r.URL.Path != "/_admin/lease" {
		n.set(func() { n.numbers = append(n.numbers, r.Header.Get(proto.HeaderCall)) })
	}
	switch {
	case r.URL.Path == "/_admin/stats":
		n.mu.Lock()
		defer n.mu.Unlock()
		told := proto.NodeStats{Tenants: uint64(len(n.units)), Disk: n.bytes, Boot: n.boot, Lease: n.leased, Free: n.free}
		if n.holder.Authority != "" {
			holder := n.holder
			told.Holder = &holder
		}
		httpserve.WriteJSON(w, 200, told)
		return
	case r.URL.Path == "/_admin/sizes":
		n.mu.Lock()
		defer n.mu.Unlock()
		sizes := map[fsm.UnitName]uint64{}
		for u := range n.units {
			sizes[u] = n.size(u)
		}
		httpserve.WriteJSON(w, 200, sizes)
		return
	}
	if n.serveCopies(w, r) {
		return
	}
	n.mu.Lock()
	fault, after := n.fault, n.after
	if r.Method != http.MethodGet {
		n.calls++
	}
	n.ids = append(n.ids, r.Header.Get(proto.HeaderRequestID))
	n.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	status, body := n.change(r)
	if after != nil {
		after(r)
	}
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	httpserve.WriteJSON(w, status, body)
}

// size gives the bytes of a unit; it is called with the lock held.
func (n *fakeNode) size(u fsm.UnitName) uint64 {
	if size, ok := n.sizes[u]; ok {
		return size
	}
	return 4096
}

// change serves a changing call.
func (n *fakeNode) change(r *http.Request) (int, any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	unit := fsm.UnitName(strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/_admin/tenants/"), "/schema"))
	var made proto.MakeUnit
	var schema proto.RunSchema
	var holder proto.Holder
	switch r.Method {
	case http.MethodPut:
		_ = json.NewDecoder(r.Body).Decode(&made)
		holder = made.Holder
	case http.MethodPost:
		_ = json.NewDecoder(r.Body).Decode(&schema)
		holder = schema.Holder
	case http.MethodDelete:
		holder, _ = proto.ParseHolder(r.Header.Get(proto.HeaderHolder))
	}
	if status, body := n.hold(holder); status != 0 {
		return status, body
	}
	held, ok := n.units[unit]
	switch r.Method {
	case http.MethodPut:
		if ok && held != made.ID {
			return 409, map[string]any{"error": "another unit", "code": "unit_exists", "id": held}
		}
		n.units[unit] = made.ID
		return 201, proto.UnitMade{Created: unit}
	case http.MethodPost:
		if strings.Contains(schema.SQL, "syntax error") {
			return 400, map[string]string{"error": "near \"syntax\": syntax error", "code": "SQLITE_ERROR"}
		}
		if len(n.schemas[unit]) > 0 {
			return 400, map[string]string{"error": "table exists", "code": "SQLITE_ERROR"}
		}
		n.schemas[unit] = append(n.schemas[unit], schema.SQL)
		return 200, proto.SchemaRun{Position: "1:1"}
	default:
		if !ok {
			return 404, map[string]string{"error": "not here", "code": "unknown_tenant"}
		}
		if r.Header.Get(proto.HeaderUnitID) != strconv.FormatUint(uint64(held), 10) {
			return 409, map[string]any{"error": "another unit", "code": "unit_exists", "id": held}
		}
		if newest := n.followed[toldIn{unit, holder.Term}]; callOf(r) < newest {
			return 409, map[string]any{"error": "a later call was taken already", "code": proto.CodeStaleCall, "call": newest}
		}
		delete(n.units, unit)
		delete(n.schemas, unit)
		delete(n.follows, unit)
		return http.StatusNoContent, nil
	}
}

// hold takes the holder of a call, or answers one that is not the newest.
func (n *fakeNode) hold(holder proto.Holder) (int, any) {
	if holder.Authority == "" {
		return 400, map[string]string{"error": "no holder", "code": "holder_required"}
	}
	if n.holder.Authority != "" && (n.holder.Authority != holder.Authority || n.holder.Newer(holder)) {
		return 409, n.holder
	}
	n.holder = holder
	return 0, nil
}

func (n *fakeNode) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
}

func (n *fakeNode) setAfter(f func(r *http.Request)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.after = f
}

func (n *fakeNode) setBytes(b uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bytes = b
}

// held gives the units that the node holds.
func (n *fakeNode) held() map[fsm.UnitName]fsm.UnitID {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[fsm.UnitName]fsm.UnitID{}
	for u, id := range n.units {
		out[u] = id
	}
	return out
}

func (n *fakeNode) ran(u fsm.UnitName) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.schemas[u])
}

// calledBy gives the numbers of the calls that the node was sent, as they came.
func (n *fakeNode) calledBy() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.numbers)
}

func (n *fakeNode) changes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// hold is a fault that tells of a call, and lets it go on when told to.
func hold(begun chan<- struct{}, goOn <-chan struct{}) func(http.ResponseWriter, *http.Request) bool {
	var once sync.Once
	return func(http.ResponseWriter, *http.Request) bool {
		once.Do(func() { close(begun) })
		<-goOn
		return false
	}
}
