package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/node/store"
)

const adminToken = "admin-token"

// testNode is a node on loopback with real files.
type testNode struct {
	t      testing.TB
	s      *Server
	url    string
	client *http.Client
	audit  *lockedBuffer
	stop   func() error // stops it cleanly, once
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startNode runs a node whose configuration edit may change. It is stopped with the test.
func startNode(t testing.TB, edit func(*Config)) *testNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, url: "http://" + ln.Addr().String(), audit: &lockedBuffer{}}
	cfg := Config{
		Listener: ln, Logger: hclog.NewNullLogger(), Audit: n.audit, Version: "test",
		Store:  store.Config{Dir: t.TempDir(), Sync: store.SyncNormal},
		Tokens: Tokens{Admin: adminToken},
	}
	if edit != nil {
		edit(&cfg)
	}
	if n.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	n.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.s.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		n.client.CloseIdleConnections()
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Errorf("the node did not stop cleanly: %v", err)
		}
	})
	return n
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the body's "code".
func (a answer) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &e) // no code is ""
	return e.Code
}

// do sends a request; headers are pairs of name and value.
func (n *testNode) do(method, path, body string, headers ...string) answer {
	n.t.Helper()
	req, err := http.NewRequest(method, n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := n.client.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// want sends a request that must be answered with a status.
func (n *testNode) want(status int, method, path, body string, headers ...string) answer {
	n.t.Helper()
	a := n.do(method, path, body, headers...)
	if a.status != status {
		n.t.Fatalf("%s %s %s: status %d, want %d: %s", method, path, body, a.status, status, a.body)
	}
	return a
}

// admin sends an admin call with the token and, where the body has none, no holder.
func (n *testNode) admin(status int, method, path, body string, headers ...string) answer {
	n.t.Helper()
	return n.want(status, method, "/_admin/"+path, body, append(headers, "Authorization", "Bearer "+adminToken)...)
}

const holder1 = "c1/global 1 1"

// create makes a unit.
func (n *testNode) create(unit string, id int) {
	n.t.Helper()
	n.admin(201, "PUT", "tenants/"+unit, fmt.Sprintf(`{"id":%d,"authority":"c1/global","history":1,"term":1}`, id))
}

// query runs a statement that must succeed and gives the answer's body.
func (n *testNode) query(unit, sql string, args ...any) string {
	n.t.Helper()
	body := map[string]any{"sql": sql}
	if args != nil {
		body["args"] = args
	}
	text, err := json.Marshal(body)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.want(200, "POST", "/t/"+unit+"/query", string(text)).body
}

// rows runs a statement and gives its rows as text.
func (n *testNode) rows(unit, sql string, args ...any) string {
	n.t.Helper()
	var r struct{ Rows json.RawMessage }
	if err := json.Unmarshal([]byte(n.query(unit, sql, args...)), &r); err != nil {
		n.t.Fatal(err)
	}
	return string(r.Rows)
}

// tenantWithTable makes a tenant with an empty table t(id, v).
func (n *testNode) tenantWithTable(unit string) {
	n.t.Helper()
	n.create(unit, 1)
	n.query(unit, "create table t (id integer primary key, v text)")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not come about", what)
		}
	}
}
