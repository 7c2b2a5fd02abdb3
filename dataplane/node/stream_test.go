package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// cursorEntries runs a cursor and gives its entries.
func cursorEntries(t *testing.T, a answer) []map[string]any {
	t.Helper()
	var entries []map[string]any
	for line := range strings.Lines(a.body) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %.100s", err, line)
		}
		entries = append(entries, e)
	}
	return entries
}

func kinds(entries []map[string]any) string {
	var all []string
	for _, e := range entries {
		if kind, ok := e["type"].(string); ok {
			all = append(all, kind)
		} else {
			all = append(all, "baton")
		}
	}
	return strings.Join(all, " ")
}

func TestCursor(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	a := n.want(200, "POST", "/t/acme/v3/cursor", `{"batch":{"steps":[
		{"stmt":{"sql":"insert into t (v) values ('a'), ('b') returning id"}},
		{"stmt":{"sql":"insert into t (id) values (1)"}},
		{"stmt":{"sql":"select v from t"},"condition":{"type":"error","step":1}},
		{"stmt":{"sql":"select 1"},"condition":{"type":"ok","step":1}}]}}`)
	entries := cursorEntries(t, a)
	if got, want := kinds(entries), "baton step_begin row row step_end step_error step_begin row row step_end"; got != want {
		t.Fatalf("%s: %s", got, a.body)
	}
	if entries[4]["affected_row_count"] != 2.0 || entries[4]["last_insert_rowid"] != "2" {
		t.Errorf("%v", entries[4])
	}
	// The baton goes on, by pipeline and by cursor; a transaction lasts over it.
	baton := entries[0]["baton"].(string)
	a = n.want(200, "POST", "/t/acme/v3/cursor", fmt.Sprintf(`{"baton":%q,"batch":{"steps":[{"stmt":{"sql":"begin"}},{"stmt":{"sql":"delete from t"}}]}}`, baton))
	baton = cursorEntries(t, a)[0]["baton"].(string)
	if got := n.rows("acme", "select count(*) from t"); got != "[[2]]" {
		t.Errorf("%s", got)
	}
	p := &pipe{n: n, path: "/t/acme/v3/pipeline", baton: &baton}
	ok(t, p.send(execSQL("commit"), closing))
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("%s", got)
	}
}

func TestCursorStreamsWhatIsTooLargeForAPipeline(t *testing.T) {
	n := startNode(t, func(c *Config) { c.MaxResponse = 1 << 20 })
	n.tenantWithTable("acme")
	many := `with recursive c(x) as (select 1 union all select x+1 from c limit 60000) select x, hex(zeroblob(20)) from c`
	a := n.want(200, "POST", "/t/acme/v3/cursor", fmt.Sprintf(`{"batch":{"steps":[{"stmt":{"sql":%q}}]}}`, many))
	if got := strings.Count(a.body, `{"type":"row"`); got != 60000 || !strings.Contains(a.body[len(a.body)-300:], "step_end") {
		t.Errorf("%d rows", got)
	}
	// One that writes holds its rows back until it is done, and is undone beyond the limit.
	insert := `with recursive c(x) as (select 1 union all select x+1 from c limit 60000) insert into t (v) select hex(zeroblob(20)) from c returning v`
	a = n.want(200, "POST", "/t/acme/v3/cursor", fmt.Sprintf(`{"batch":{"steps":[{"stmt":{"sql":%q}}]}}`, insert))
	if got := kinds(cursorEntries(t, a)); got != "baton step_error" || !strings.Contains(a.body, "RESPONSE_TOO_LARGE") {
		t.Errorf("%s", got)
	}
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("%s", got)
	}
}

func TestCursorEndsWithItsReader(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	endless := `{"batch":{"steps":[{"stmt":{"sql":"with recursive c(x) as (select 1 union all select x+1 from c) select x from c"}}]}}`
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", n.url+"/t/acme/v3/cursor", strings.NewReader(endless))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	done := make(chan struct{})
	go func() { n.s.bodies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the cursor goes on without a reader")
	}
}

// TestCursorsThatAreNotReadEnd: they hold all the connections that their unit's reads have.
func TestCursorsThatAreNotReadEnd(t *testing.T) {
	n := startNode(t, func(c *Config) {
		c.TransactionTimeout, c.RequestTimeout = 20*time.Millisecond, 5*time.Second
		c.Store.Readers = 2
	})
	n.tenantWithTable("acme")
	endless := `{"batch":{"steps":[{"stmt":{"sql":"with recursive c(x) as (select 1 union all select x+1 from c) select x from c"}}]}}`
	for range 2 {
		resp, err := n.client.Post(n.url+"/t/acme/v3/cursor", "", strings.NewReader(endless))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	if got := n.rows("acme", "select 1"); got != "[[1]]" {
		t.Error(got)
	}
}

// events opens a stream of changes.
func (n *testNode) events(path string, headers ...string) (*bufio.Reader, func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", n.url+path, nil)
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
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		n.t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	return bufio.NewReader(resp.Body), func() { cancel(); resp.Body.Close() }
}

// nextEvent reads up to the end of an event, comments left out.
func nextEvent(t *testing.T, br *bufio.Reader) string {
	t.Helper()
	event := ""
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("%v behind %q", err, event)
		}
		switch {
		case line == "\n" && event != "":
			return event
		case line != "\n" && line[0] != ':':
			event += line
		}
	}
}

func TestChanges(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.query("acme", "insert into t (v) values ('a')")
	fromStart, stop := n.events("/t/acme/changes?after=1:0")
	defer stop()
	fromNow, stop2 := n.events("/t/acme/changes")
	defer stop2()
	n.query("acme", "insert into t (v) values ('b')")
	for i, want := range []string{"1:1", "1:2", "1:3"} {
		e := nextEvent(t, fromStart)
		if !strings.HasPrefix(e, "id: "+want+"\ndata: {\"position\":\""+want+"\",\"bytes\":") {
			t.Errorf("event %d: %s", i, e)
		}
	}
	if e := nextEvent(t, fromNow); !strings.HasPrefix(e, "id: 1:3\n") {
		t.Errorf("%s", e)
	}
	back, stop3 := n.events("/t/acme/changes", "Last-Event-ID", "1:2")
	defer stop3()
	if e := nextEvent(t, back); !strings.HasPrefix(e, "id: 1:3\n") {
		t.Errorf("%s", e)
	}
	n.want(400, "GET", "/t/acme/changes?after=x", "")
	n.want(409, "GET", "/t/acme/changes?after=1:9", "")
	n.admin(204, "DELETE", "tenants/acme", "", "Domicile-Holder", holder1)
	for _, br := range []*bufio.Reader{fromStart, fromNow, back} {
		if e := nextEvent(t, br); !strings.HasPrefix(e, "event: error\ndata: {\"error\":\"") || !strings.Contains(e, `,"code":"unit_gone"}`) {
			t.Errorf("%s", e)
		}
	}
	n.want(404, "GET", "/t/acme/changes", "")
}

func TestReadAfterPosition(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.want(400, "POST", "/t/acme/query", `{"sql":"select 1"}`, "Domicile-After", "soon")
	done := make(chan answer)
	go func() {
		done <- n.do("POST", "/t/acme/query", `{"sql":"select count(*) from t"}`, "Domicile-After", "1:2")
	}()
	n.query("acme", "insert into t (v) values ('a')")
	if a := <-done; a.status != 200 || !strings.Contains(a.body, "[[1]]") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestL11CleanStop(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(execSQL("begin immediate"), execSQL("insert into t (v) values ('never')")))
	br, stop := n.events("/t/acme/changes")
	defer stop()
	stopped := make(chan error)
	go func() { stopped <- n.stop() }()
	if e := nextEvent(t, br); !strings.Contains(e, "event: error\n") || !strings.Contains(e, "shutting_down") {
		t.Errorf("%s", e)
	}
	if err := <-stopped; err != nil {
		t.Errorf("%v", err)
	}
}

func TestMetricsAndHealth(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme-corp")
	n.want(404, "POST", "/t/other/query", `{"sql":"select 1"}`)
	n.want(200, "GET", "/_health", "")
	n.want(200, "GET", "/_ready", "")
	n.want(401, "GET", "/_metrics", "")
	a := n.want(200, "GET", "/_metrics", "", "Authorization", "Bearer "+adminToken)
	for _, want := range []string{
		`domicile_requests_total{class="2xx",route="query"} 1`, `domicile_requests_total{class="4xx",route="query"} 1`,
		`domicile_requests_total{class="2xx",route="admin"} 1`, `domicile_request_duration_seconds_count{route="query"} 2`,
		"domicile_open_units 1", "domicile_commits_total 1", "domicile_fsync_duration_seconds_bucket", `domicile_build_info{`, "go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(a.body, "acme") {
		t.Error("a label names a tenant")
	}
}
