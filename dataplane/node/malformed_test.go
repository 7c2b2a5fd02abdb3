package node

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMalformedRequestsChangeNothing sends what is wrong in one way each.
func TestMalformedRequestsChangeNothing(t *testing.T) {
	n := startNode(t, func(c *Config) { c.MaxBody = 1 << 20 })
	n.tenantWithTable("acme")
	n.query("acme", "insert into t (v) values ('a')")
	position := n.want(200, "GET", "/t/acme/", "").body
	units := n.admin(200, "GET", "units", "").body

	const insert = `{"sql":"insert into t (v) values ('x')"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		// Paths.
		{"GET", "/", "", 404, "unknown_route"},
		{"GET", "/nothing", "", 404, "unknown_route"},
		{"GET", "/t", "", 400, "bad_request"},
		{"POST", "/t/ACME/query", insert, 400, "bad_request"},
		{"POST", "/t/..%2facme/query", insert, 400, "bad_request"},
		{"POST", "/t/acme.7/query", insert, 400, "bad_request"},
		{"POST", "/t/" + strings.Repeat("a", 65) + "/query", insert, 400, "bad_request"},
		{"POST", "/t/globex/query", insert, 404, "unknown_tenant"},
		{"POST", "/t/acme/b/0/query", insert, 400, "bad_request"},
		{"POST", "/t/acme/b/x/query", insert, 400, "bad_request"},
		{"POST", "/t/acme/b/7/query", insert, 404, "unknown_tenant"},
		{"POST", "/t/acme/query/more", insert, 404, "unknown_route"},
		{"POST", "/t/acme/v4/pipeline", insert, 404, "unknown_route"},
		{"GET", "/t/acme/v3-protobuf", "", 404, "unknown_route"},
		{"POST", "/t/acme/v2/cursor", "{}", 404, "unknown_route"},
		{"GET", "/t/acme/query", "", 405, "method_not_allowed"},
		{"DELETE", "/t/acme/", "", 405, "method_not_allowed"},
		{"POST", "/t/acme/changes", "", 405, "method_not_allowed"},
		{"POST", "/_health", "", 405, "method_not_allowed"},
		// query.
		{"POST", "/t/acme/query", "", 400, "bad_request"},
		{"POST", "/t/acme/query", "[]", 400, "bad_request"},
		{"POST", "/t/acme/query", insert + "x", 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x')","extra":1}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x')","sql":"select 1"}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":null}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"args":[]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[[1]]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[18446744073709551616]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[1e999]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[01]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":["\ud800"]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", "{\"sql\":\"insert into t (v) values (?)\",\"args\":[\"\xff\"]}", 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[{"base64":"A"}]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[{"base64":"AA==","x":1}]}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[]}`, 400, "ARGS_INVALID"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (?)","args":[1,2]}`, 400, "ARGS_INVALID"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (:a)","args":{"b":1}}`, 400, "ARGS_INVALID"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values (:a)","args":{"a":1,"a":2}}`, 400, "bad_request"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x'); select 1"}`, 400, "SQL_MANY_STATEMENTS"},
		{"POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x')\u0000"}`, 400, "SQL_PARSE_ERROR"},
		{"POST", "/t/acme/query", `{"sql":" "}`, 400, "SQL_NO_STATEMENT"},
		{"POST", "/t/acme/query", `{"sql":"begin"}`, 400, "transaction_control"},
		{"POST", "/t/acme/query", `{"sql":"insrt into t"}`, 400, "SQL_PARSE_ERROR"},
		{"POST", "/t/acme/query", `{"sql":"attach 'other.db' as o"}`, 400, "BLOCKED"},
		{"POST", "/t/acme/query", `{"sql":"pragma journal_mode=delete"}`, 400, "BLOCKED"},
		{"POST", "/t/acme/query", `{"sql":"select load_extension('x')"}`, 400, "BLOCKED"},
		{"POST", "/t/acme/query", `{"sql":"select '` + strings.Repeat("x", 1<<20) + `'"}`, 413, "body_too_large"},
		{"POST", "/t/acme/query", strings.Repeat("[", 1000), 400, "bad_request"},
		// batch.
		{"POST", "/t/acme/batch", `{"statements":[]}`, 400, "bad_request"},
		{"POST", "/t/acme/batch", `{"statements":[` + insert + `],"statements":[]}`, 400, "bad_request"},
		{"POST", "/t/acme/batch", `{"statements":[` + insert + `],"x":1}`, 400, "bad_request"},
		{"POST", "/t/acme/batch", `{"statements":[` + insert + `,{"sql":"commit"}]}`, 400, "transaction_control"},
		{"POST", "/t/acme/batch", `{"statements":[` + insert + `,{"sql":"vacuum"}]}`, 400, "bad_request"},
		{"POST", "/t/acme/batch", `{"statements":[` + insert + `,{"sql":"insert into t (id) values (1)"}]}`, 400, "SQLITE_CONSTRAINT"},
		// Hrana.
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":` + insert + `},{"type":"nothing"}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":` + insert + `},{"type":"execute"}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":` + insert + `},{"type":"execute","stmt":{"sql_id":9}}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":` + insert + `},{"type":"execute","stmt":{"sql":"select 1","sql_id":9}}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"batch","batch":{"steps":[{"stmt":` + insert + `},{"condition":{"type":"ok","step":1},"stmt":` + insert + `}]}}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"baton":"forged","requests":[{"type":"execute","stmt":` + insert + `}]}`, 400, "BATON_INVALID"},
		{"POST", "/t/acme/v2/pipeline", `{"baton":"","requests":[{"type":"execute","stmt":` + insert + `}]}`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"execute","stmt":` + insert + `}]`, 400, "PROTOCOL_ERROR"},
		{"POST", "/t/acme/v3/cursor", `{"batch":{}}`, 400, "PROTOCOL_ERROR"},
		// The admin protocol.
		{"GET", "/_admin/stats", "", 401, "unauthorized"},
	} {
		a := n.do(c.method, c.path, c.body)
		if a.status != c.status || a.code() != c.code {
			t.Errorf("%s %.40s %.90q: %d %s, want %d %s: %.200s", c.method, c.path, c.body, a.status, a.code(), c.status, c.code, a.body)
		}
		if a.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
	if got := n.want(200, "GET", "/t/acme/", "").body; got != position {
		t.Errorf("a malformed request changed something: %s, then %s", position, got)
	}
	if got := n.admin(200, "GET", "units", "").body; got != units {
		t.Errorf("a malformed request changed something: %s, then %s", units, got)
	}
}

// rawHTTP sends bytes and gives the first answer, and whether the connection was closed
// behind it.
func rawHTTP(t *testing.T, n *testNode, request string) (answer, bool) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	closed := resp.Close
	if closed {
		if _, err := br.ReadByte(); err == nil {
			t.Errorf("%.80q: more follows an answer that said close", request)
		}
	}
	return answer{resp.StatusCode, resp.Header, string(body)}, closed
}

func TestMalformedHTTP(t *testing.T) {
	n := startNode(t, func(c *Config) { c.MaxBody = 1 << 20 })
	n.tenantWithTable("acme")
	const body = `{"sql":"insert into t (v) values ('x')"}`
	head := "POST /t/acme/query HTTP/1.1\r\nHost: h\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"not HTTP", "hello\r\n\r\n", 400},
		{"two lengths", head + length + "Content-Length: 3\r\n\r\n" + body, 400},
		{"length and chunks", head + length + "Transfer-Encoding: chunked\r\n\r\n" + body, 400},
		{"a signed length", head + "Content-Length: +3\r\n\r\nabc", 400},
		{"a blank before the colon", head + length + "X-A : 1\r\n\r\n" + body, 400},
		{"a large head", head + length + "X-A: " + strings.Repeat("x", 70<<10) + "\r\n\r\n" + body, 431},
		{"two keys", head + length + "Idempotency-Key: a\r\nidempotency-key: b\r\n\r\n" + body, 400},
		{"two tokens", head + length + "Authorization: a\r\nAuthorization: b\r\n\r\n" + body, 400},
		{"an encoded body", head + length + "Content-Encoding: gzip\r\n\r\n" + body, 415},
		{"a broken chunk", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body, 400},
		{"a large chunked body", head + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat("x", 0x200000) + "\r\n0\r\n\r\n", 413},
		{"a large announced body", head + "Content-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 9000), 413},
	} {
		a, _ := rawHTTP(t, n, c.request)
		if a.status != c.status || a.code() == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %s %v", c.name, a.status, a.body, a.header)
		}
	}
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("rows: %s", got)
	}
}

func TestRequestIDAndHeaders(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	for _, c := range []struct {
		id   string
		kept bool
	}{{"abc def", true}, {strings.Repeat("x", 128), true}, {strings.Repeat("x", 129), false}, {"", false}} {
		a := n.want(200, "GET", "/t/acme/", "", "X-Request-Id", c.id)
		got := a.header.Get("X-Request-Id")
		if c.kept && got != c.id || !c.kept && len(got) != 16 {
			t.Errorf("id %.20q: %q", c.id, got)
		}
		if len(a.header.Values("X-Request-Id")) != 1 || a.header.Get("Server") != "" || len(a.header.Values("Date")) != 1 {
			t.Errorf("%v", a.header)
		}
	}
	a, _ := rawHTTP(t, n, "GET /t/acme/ HTTP/1.1\r\nhost: h\r\nx-request-id: lower\r\n\r\n")
	if a.header.Get("X-Request-Id") != "lower" {
		t.Errorf("header names have a case: %v", a.header)
	}
}

func TestExpectIsAnsweredByTheNode(t *testing.T) {
	n := startNode(t, func(c *Config) { c.MaxBody = 1 << 20 })
	n.tenantWithTable("acme")
	const body = `{"sql":"insert into t (v) values ('x')"}`
	head := func(path, more string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n%sContent-Length: %d\r\n\r\n", path, more, length)
	}
	// The refusal comes without the body having been sent.
	for _, c := range []struct {
		request, code string
		status        int
	}{
		{head("/t/globex/query", "", 100), "unknown_tenant", 404},
		{head("/t/acme/query", "", 2<<20), "body_too_large", 413},
		{head("/_admin/tenants/acme/freeze", "", 10), "unauthorized", 401},
		{strings.Replace(head("/_admin/tenants/acme/file", "Authorization: Bearer "+adminToken+"\r\nDomicile-Holder: "+holder1+"\r\n", 100), "POST", "PUT", 1), "unit_exists", 409},
	} {
		a, closed := rawHTTP(t, n, c.request)
		if a.status != c.status || a.code() != c.code || !closed {
			t.Errorf("%.60q: %d %s closed=%v", c.request, a.status, a.body, closed)
		}
	}
	a, _ := rawHTTP(t, n, head("/t/acme/query", "", len(body))+body)
	if a.status != 100 {
		t.Errorf("want 100 first, have %d", a.status)
	}
	eventually(t, "the insert", func() bool { return n.rows("acme", "select count(*) from t") == "[[1]]" })
}
