package node

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestOnlyChangesOfRowsAreCounted: what a statement does inside moves SQLite's counts,
// and says nothing of rows that it changed.
func TestOnlyChangesOfRowsAreCounted(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 7)
	const none = `"rows_affected":0,"last_insert_rowid":null`
	for _, c := range []struct{ sql, want string }{
		{"create table t (id integer primary key, v)", none},
		{"insert into t (v) values ('a'), ('b')", `"rows_affected":2,"last_insert_rowid":2`},
		{"/* a */ with x(v) as (values ('c')) insert into t (v) select v from x", `"rows_affected":1,"last_insert_rowid":3`},
		{"replace into t values (3, 'd')", `"rows_affected":1,"last_insert_rowid":3`},
		{"update t set v = 'e' where id > 1", `"rows_affected":2,`},
		{"select * from t where id = 9", none},
		{"create table copy as select * from t", none},
		{"create index i on t (v)", none},
		{"create virtual table words using fts5(w)", none},
		{"insert into words values ('hello')", `"rows_affected":1,"last_insert_rowid":1`},
		{"select count(*) from words where words match 'hello'", none},
		{"analyze", none},
		{"vacuum", none},
		{"drop table words", none},
		{"pragma user_version = 3", none},
		{"delete from t", `"rows_affected":3,`},
	} {
		a := n.want(200, "POST", "/t/acme/query", `{"sql":"`+c.sql+`"}`)
		if !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %s", c.sql, a.body)
		}
	}
	a := n.want(200, "POST", "/t/acme/batch", `{"statements":[{"sql":"insert into t (v) values ('a')"},{"sql":"create table u as select * from t"},{"sql":"drop table u"}]}`)
	if strings.Count(a.body, none) != 2 {
		t.Errorf("%s", a.body)
	}
	a = n.want(200, "POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":{"sql":"insert into t (v) values ('a')"}},{"type":"execute","stmt":{"sql":"create table u as select * from t"}},{"type":"close"}]}`)
	if !strings.Contains(a.body, `"affected_row_count":0,"last_insert_rowid":null`) {
		t.Errorf("%s", a.body)
	}
}

// TestAnswersReadWell: no HTML escaping, error before code, a newline at the end, a
// date, and texts that say where to go on.
func TestAnswersReadWell(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	for _, c := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"POST", "/t/acme/query", `{"sql":"select a<b & c from t"}`, 400, `{"error":"no such column: a"`},
		{"POST", "/t/acme/query", `{"sql":"select '<&>' as \"<x>\""}`, 200, `{"columns":["<x>"],"rows":[["<&>"]]`},
		{"POST", "/t/acme/query", `{"sql":"select 1; select 2"}`, 400, "POST …/batch"},
		{"POST", "/t/acme/query", `{"sql":"select 1; select 2"}`, 400, `a sequence request of POST …/v2/pipeline","code":"SQL_MANY_STATEMENTS"}`},
		{"POST", "/t/acme/query", `{"sql":"begin"}`, 400, "POST …/v2/pipeline"},
		{"POST", "/t/acme/query", `{"<sql>":""}`, 400, `{"error":"`},
		{"POST", "/t/acme/batch", `{"statements":[{"sql":"select 1"},{"sql":"oops"}]}`, 400, `"code":"SQL_PARSE_ERROR","statement":1}`},
		{"GET", "/t/nobody/", "", 404, `{"error":"this node has no tenant nobody;`},
		{"GET", "/t/nobody/b/3/", "", 404, `this node has no bucket 3 of tenant nobody;`},
		{"GET", "/", "", 404, `this is a node and serves the data API`},
		{"GET", "/t/acme/", "", 200, `"name":"acme"`},
		{"GET", "/_health", "", 200, "{"},
	} {
		a := n.want(c.status, c.method, c.path, c.body)
		if !strings.Contains(a.body, c.has) || !strings.HasSuffix(a.body, "}\n") || strings.Contains(a.body, `\u00`) {
			t.Errorf("%s %s %s: %q", c.method, c.path, c.body, a.body)
		}
		if at, err := http.ParseTime(a.header.Get("Date")); err != nil || time.Since(at) > time.Hour {
			t.Errorf("%s %s: Date %q", c.method, c.path, a.header.Get("Date"))
		}
	}
}

// TestWebSocketsAreToldWhatToUse: before a token is asked for, which such a client
// sends once it is connected.
func TestWebSocketsAreToldWhatToUse(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Tokens.HTTP = "app" })
	n.create("acme", 7)
	for _, path := range []string{"/t/acme/db", "/t/acme", "/t/acme/db/v2/pipeline"} {
		a := n.want(426, "GET", path, "", "Upgrade", "WebSocket", "Connection", "Upgrade", "Sec-WebSocket-Key", "k")
		if a.code() != "upgrade_unsupported" || a.header.Get("Upgrade") != "HTTP/1.1" || !strings.Contains(a.body, "give the client an http:// or https:// address") {
			t.Errorf("%s: %q, Upgrade %q", path, a.body, a.header.Get("Upgrade"))
		}
	}
	n.want(401, "GET", "/t/acme/db", "", "Upgrade", "h2c", "Connection", "Upgrade")
}
