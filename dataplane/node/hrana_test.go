package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// pipe is a client of Hrana over HTTP for tests: one stream.
type pipe struct {
	n     *testNode
	path  string
	baton *string
}

type pipeResult struct {
	Type     string
	Response struct {
		Type   string
		Result json.RawMessage
	}
	Error *struct{ Message, Code string }
}

// send sends requests on the stream, each a JSON text, and gives the results.
func (p *pipe) send(requests ...string) []pipeResult {
	p.n.t.Helper()
	a := p.raw(requests...)
	if a.status != 200 {
		p.n.t.Fatalf("pipeline: %d %s", a.status, a.body)
	}
	var r struct {
		Baton   *string
		Results []pipeResult
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		p.n.t.Fatalf("%v: %s", err, a.body)
	}
	if len(r.Results) != len(requests) {
		p.n.t.Fatalf("%d results for %d requests: %s", len(r.Results), len(requests), a.body)
	}
	p.baton = r.Baton
	return r.Results
}

func (p *pipe) raw(requests ...string) answer {
	p.n.t.Helper()
	baton := "null"
	if p.baton != nil {
		baton = `"` + *p.baton + `"`
	}
	return p.n.do("POST", p.path, `{"baton":`+baton+`,"requests":[`+strings.Join(requests, ",")+`]}`)
}

func execSQL(sql string) string {
	text, _ := json.Marshal(sql) // a string is always encodable
	return `{"type":"execute","stmt":{"sql":` + string(text) + `}}`
}

// ok asserts that all results are without error.
func ok(t *testing.T, results []pipeResult) []pipeResult {
	t.Helper()
	for i, r := range results {
		if r.Error != nil {
			t.Fatalf("result %d: %+v", i, *r.Error)
		}
	}
	return results
}

func failed(t *testing.T, r pipeResult, code string) {
	t.Helper()
	if r.Error == nil || r.Error.Code != code {
		t.Fatalf("want an error %s, have %+v %s", code, r.Error, r.Response.Result)
	}
}

const closing = `{"type":"close"}`

func TestPipelineExecute(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	for _, path := range []string{"/t/acme/v2/pipeline", "/t/acme/db/v3/pipeline"} {
		p := &pipe{n: n, path: path}
		r := ok(t, p.send(`{"type":"execute","stmt":{"sql":"select ?, ?, ?, ?, ?","args":[
			{"type":"null"},{"type":"integer","value":"9007199254740993"},{"type":"float","value":2},{"type":"text","value":"x\"y"},{"type":"blob","base64":"AAH/"}]}}`, closing))
		want := `{"cols":[{"name":"?","decltype":null},{"name":"?","decltype":null},{"name":"?","decltype":null},{"name":"?","decltype":null},{"name":"?","decltype":null}],` +
			`"rows":[[{"type":"null"},{"type":"integer","value":"9007199254740993"},{"type":"float","value":2.0},{"type":"text","value":"x\"y"},{"type":"blob","base64":"AAH/"}]],` +
			`"affected_row_count":0,"last_insert_rowid":null,`
		if got := string(r[0].Response.Result); !strings.HasPrefix(got, want) {
			t.Errorf("%s", got)
		}
		if p.baton != nil {
			t.Errorf("a closed stream has a baton")
		}
	}
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	r := ok(t, p.send(`{"type":"execute","stmt":{"sql":"insert into t (v) values (:v)","named_args":[{"name":"v","value":{"type":"text","value":"a"}}]}}`, execSQL("select id, v from t")))
	if got := string(r[0].Response.Result); !strings.Contains(got, `"affected_row_count":1,"last_insert_rowid":"1"`) {
		t.Errorf("%s", got)
	}
	if got := string(r[1].Response.Result); !strings.Contains(got, `{"name":"id","decltype":"integer"}`) && !strings.Contains(got, `{"name":"id","decltype":"INTEGER"}`) {
		t.Errorf("%s", got)
	}
	if p.baton == nil {
		t.Errorf("an open stream has no baton")
	}
}

func TestPipelineErrors(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	for _, c := range []struct{ request, code string }{
		{execSQL("selec 1"), "SQL_PARSE_ERROR"},
		{execSQL("select 1; select 2"), "SQL_MANY_STATEMENTS"},
		{execSQL(" -- nothing"), "SQL_NO_STATEMENT"},
		{execSQL("select foo"), "SQL_INPUT_ERROR"},
		{execSQL("insert into t (id) values (1), (1)"), "SQLITE_CONSTRAINT"},
		{execSQL("attach 'x' as y"), "BLOCKED"},
		{execSQL("vacuum into 'x'"), "BLOCKED"},
		{execSQL("pragma synchronous=off"), "BLOCKED"},
		{execSQL("commit"), "SQLITE_ERROR"},
		{execSQL("rollback"), "SQLITE_ERROR"},
		{`{"type":"execute","stmt":{"sql":"select ?"}}`, "ARGS_INVALID"},
		{`{"type":"execute","stmt":{"sql":"select 1","args":[{"type":"null"}]}}`, "ARGS_INVALID"},
		{`{"type":"execute","stmt":{"sql":"select :a","named_args":[{"name":"b","value":{"type":"null"}}]}}`, "ARGS_INVALID"},
		{`{"type":"execute","stmt":{"sql":"select ?","args":[{"type":"null"}],"named_args":[{"name":"b","value":{"type":"null"}}]}}`, "ARGS_BOTH_POSITIONAL_AND_NAMED"},
		{`{"type":"sequence","sql":"create table u (a); selec"}`, "SQL_PARSE_ERROR"},
		{`{"type":"describe","sql":"select foo"}`, "SQL_INPUT_ERROR"},
		{`{"type":"store_sql","sql_id":1,"sql":"` + strings.Repeat("x", 70_000) + `"}`, "SQL_STORE_TOO_LARGE"},
		{execSQL("with recursive c(x) as (select 1 union all select x+1 from c) select x, hex(zeroblob(1000)) from c limit 100000"), "RESPONSE_TOO_LARGE"},
	} {
		p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
		r := p.send(c.request, execSQL("select 1"), closing)
		if r[0].Error == nil || r[0].Error.Code != c.code {
			t.Errorf("%.60s: want %s, have %+v %.100s", c.request, c.code, r[0].Error, r[0].Response.Result)
		}
		if c.code != "RESPONSE_TOO_LARGE" && r[1].Error != nil {
			t.Errorf("%.60s: what follows an error is executed too: %+v", c.request, r[1].Error)
		}
	}
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("rows: %s", got)
	}
}

func TestPipelineBatchConditions(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	step := func(sql, cond string) string {
		if cond != "" {
			cond = `,"condition":` + cond
		}
		return fmt.Sprintf(`{"stmt":{"sql":%q}%s}`, sql, cond)
	}
	batch := func(steps ...string) string {
		return `{"type":"batch","batch":{"steps":[` + strings.Join(steps, ",") + `]}}`
	}
	p := &pipe{n: n, path: "/t/acme/v3/pipeline"}
	r := ok(t, p.send(batch(
		step("begin immediate", ""),
		step("insert into t values (1, 'a')", `{"type":"ok","step":0}`),
		step("insert into t values (1, 'b')", `{"type":"ok","step":1}`),
		step("commit", `{"type":"ok","step":2}`),
		step("rollback", `{"type":"not","cond":{"type":"ok","step":3}}`),
		step("select 1", `{"type":"and","conds":[{"type":"error","step":2},{"type":"is_autocommit"},{"type":"or","conds":[{"type":"ok","step":3},{"type":"ok","step":4}]}]}`),
		step("select 2", `{"type":"or","conds":[]}`),
		step("select 3", `{"type":"and","conds":[]}`),
	), closing))
	var b struct {
		Results []any `json:"step_results"`
		Errors  []any `json:"step_errors"`
	}
	if err := json.Unmarshal(r[0].Response.Result, &b); err != nil {
		t.Fatal(err)
	}
	got := ""
	for i := range b.Results {
		switch {
		case b.Results[i] != nil && b.Errors[i] == nil:
			got += "o"
		case b.Errors[i] != nil && b.Results[i] == nil:
			got += "e"
		case b.Results[i] == nil && b.Errors[i] == nil:
			got += "-"
		}
	}
	if got != "ooe-oo-o" {
		t.Errorf("steps %s: %s", got, r[0].Response.Result)
	}
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("rows: %s", got)
	}
}

func TestTransactionOverSeveralRequests(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(`{"type":"store_sql","sql_id":1,"sql":"insert into t (v) values (?)"}`,
		`{"type":"batch","batch":{"steps":[{"stmt":{"sql":"begin"}},{"stmt":{"sql_id":1,"args":[{"type":"text","value":"a"}]}}]}}`))
	ok(t, p.send(`{"type":"execute","stmt":{"sql_id":1,"args":[{"type":"text","value":"b"}]}}`))
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("others see the transaction: %s", got)
	}
	first := *p.baton
	ok(t, p.send(execSQL("commit"), `{"type":"close_sql","sql_id":1}`))
	if got := n.rows("acme", "select group_concat(v) from t"); got != `[["a,b"]]` {
		t.Errorf("%s", got)
	}
	p.baton = &first
	if a := p.raw(execSQL("select 1")); a.status != 400 {
		t.Errorf("a baton was used twice: %d %s", a.status, a.body)
	}
	q := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, q.send(execSQL("begin immediate"), execSQL("insert into t (v) values ('c')")))
	ok(t, q.send(closing))
	if got := n.rows("acme", "select count(*) from t"); got != "[[2]]" {
		t.Errorf("closing a stream does not roll back: %s", got)
	}
	if kept := n.s.streams.Kept(); kept != 0 {
		t.Errorf("%d streams are kept", kept)
	}
}

func TestReadTransactionSeesOneState(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(execSQL("BEGIN TRANSACTION READONLY"), execSQL("select count(*) from t")))
	n.query("acme", "insert into t (v) values ('a')") // it does not hold the writer
	r := p.send(execSQL("select count(*) from t"), execSQL("insert into t (v) values ('b')"), execSQL("COMMIT"), execSQL("select count(*) from t"))
	if got := string(r[0].Response.Result); !strings.Contains(got, `"value":"0"`) {
		t.Errorf("the transaction sees a later state: %s", got)
	}
	failed(t, r[1], "SQLITE_READONLY")
	if got := string(r[3].Response.Result); !strings.Contains(got, `"value":"1"`) {
		t.Errorf("%s", got)
	}
}

func TestMigrationWithForeignKeysOff(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(`{"type":"sequence","sql":"create table p (id integer primary key); create table c (p references p(id)); insert into p values (1); insert into c values (1);"}`, closing))
	r := ok(t, p.send(`{"type":"batch","batch":{"steps":[
		{"stmt":{"sql":"PRAGMA foreign_keys=off"}},{"stmt":{"sql":"begin"}},{"stmt":{"sql":"delete from p"}},
		{"stmt":{"sql":"commit"}},{"stmt":{"sql":"PRAGMA foreign_keys=on"}},{"stmt":{"sql":"insert into c values (9)"}}]}}`, closing))
	got := string(r[0].Response.Result)
	if want := `"step_errors":[null,null,null,null,null,{`; !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
	failed(t, p.send(execSQL("insert into c values (5)"), closing)[0], "SQLITE_CONSTRAINT")
}

func TestDescribeAndAutocommit(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	p := &pipe{n: n, path: "/t/acme/v3/pipeline"}
	a := p.raw(`{"type":"describe","sql":"select id, v from t where id = :id and v = ?"}`, `{"type":"get_autocommit"}`, execSQL("begin"), `{"type":"get_autocommit"}`, closing)
	for _, want := range []string{
		`"params":[{"name":":id"},{"name":null}]`, `{"name":"v","decltype":"`, `"is_explain":false,"is_readonly":true`,
		`"is_autocommit":true`, `"is_autocommit":false`,
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is missing: %s", want, a.body)
		}
	}
	a = n.do("POST", "/t/acme/v2/pipeline", `{"requests":[{"type":"get_autocommit"}]}`)
	if a.status != 400 {
		t.Errorf("version 2 has no get_autocommit: %d %s", a.status, a.body)
	}
}

func TestBatonOutlivesTheNodeThatGaveIt(t *testing.T) {
	secret := func(c *Config) { c.ReplicationToken = "the nodes' secret" }
	a, b := startNode(t, secret), startNode(t, secret)
	a.tenantWithTable("acme")
	b.tenantWithTable("acme")
	p := &pipe{n: a, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(execSQL("select 1")))
	p.n = b
	ok(t, p.send(execSQL("insert into t (v) values ('a')")))

	p.n = a
	ok(t, p.send(execSQL("begin")))
	p.n = b
	if got := p.raw(execSQL("insert into t (v) values ('b')")); got.status != 400 || got.code() != "STREAM_EXPIRED" {
		t.Errorf("a transaction's baton on another node: %d %s", got.status, got.body)
	}
	stranger := startNode(t, nil)
	stranger.tenantWithTable("acme")
	p = &pipe{n: a, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(execSQL("select 1")))
	p.n = stranger
	if got := p.raw(execSQL("select 1")); got.status != 400 || got.code() != "BATON_INVALID" {
		t.Errorf("a baton of another key: %d %s", got.status, got.body)
	}
	b.create("globex", 2)
	p.n, p.path = b, "/t/globex/v2/pipeline"
	if got := p.raw(execSQL("select 1")); got.status != 400 || got.code() != "BATON_INVALID" {
		t.Errorf("a baton of another unit: %d %s", got.status, got.body)
	}
}

func TestFreezeEndsTransactions(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	ok(t, p.send(execSQL("begin immediate"), execSQL("insert into t (v) values ('a')")))
	n.admin(200, "POST", "tenants/acme/freeze", `{"ms":200}`, "Domicile-Holder", holder1)
	if got := p.raw(execSQL("commit")); got.status != 400 || got.code() != "STREAM_EXPIRED" {
		t.Errorf("%d %s", got.status, got.body)
	}
	n.admin(200, "POST", "tenants/acme/thaw", ``)
	if got := n.rows("acme", "select count(*) from t"); got != "[[0]]" {
		t.Errorf("rows: %s", got)
	}
}

func TestRefusedPipelineHasNoEffect(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.admin(200, "POST", "tenants/acme/freeze", `{"ms":60000}`, "Domicile-Holder", holder1)
	p := &pipe{n: n, path: "/t/acme/v2/pipeline"}
	a := p.raw(execSQL("select 1"), execSQL("insert into t (v) values ('a')"), closing)
	if a.status != 503 || a.code() != "transfer_in_progress" || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", a.status, a.body)
	}
	ok(t, p.send(execSQL("select count(*) from t"), closing))
}
