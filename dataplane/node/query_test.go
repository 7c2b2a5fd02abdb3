package node

import (
	"strings"
	"testing"
)

func TestQueryRoundTripsValues(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 7)
	for _, c := range []struct{ args, want string }{
		{`[null]`, `[[null]]`},
		{`[true]`, `[[1]]`},
		{`[false]`, `[[0]]`},
		{`[9007199254740993]`, `[[9007199254740993]]`},
		{`[9223372036854775807]`, `[[9223372036854775807]]`},
		{`[-9223372036854775808]`, `[[-9223372036854775808]]`},
		{`[1.0]`, `[[1.0]]`},
		{`[1e300]`, `[[1e+300]]`},
		{`[0.1]`, `[[0.1]]`},
		{`["it's \"quoted\" \u0000 🏠 \n"]`, `[["it's \"quoted\" \u0000 🏠 \n"]]`},
		{`[""]`, `[[""]]`},
		{`[{"base64":"AAECAw=="}]`, `[[{"base64":"AAECAw=="}]]`},
		{`[{"base64":"AAECAw"}]`, `[[{"base64":"AAECAw=="}]]`},
		{`[{"base64":""}]`, `[[{"base64":""}]]`},
	} {
		a := n.want(200, "POST", "/t/acme/query", `{"sql":"select ?","args":`+c.args+`}`)
		if !strings.Contains(a.body, `"rows":`+c.want+`,`) {
			t.Errorf("%s: %s", c.args, a.body)
		}
	}
	a := n.want(200, "POST", "/t/acme/query", `{"args":{"a":1,":b":2,"@c":3},"sql":"select :a, :b, @c as x"}`)
	if want := `{"columns":[":a",":b","x"],"rows":[[1,2,3]],"rows_affected":0,"last_insert_rowid":null,"position":"1:0"}` + "\n"; a.body != want {
		t.Errorf("%s", a.body)
	}
}

func TestQueryWritesAndItsPosition(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	a := n.want(200, "POST", "//t//acme//query", `{"sql":"insert into t (v) values (?), (?)","args":["a","b"]}`)
	if want := `{"columns":[],"rows":[],"rows_affected":2,"last_insert_rowid":2,"position":"1:2"}` + "\n"; a.body != want {
		t.Errorf("%s", a.body)
	}
	if p := a.header.Get("Domicile-Position"); p != "1:2" {
		t.Errorf("Domicile-Position %q", p)
	}
	a = n.want(200, "POST", "/t/acme/db/query", `{"sql":"select v from t order by id"}`, "Domicile-After", "1:2")
	if !strings.Contains(a.body, `"rows":[["a"],["b"]]`) {
		t.Errorf("%s", a.body)
	}
	a = n.want(200, "POST", "/t/acme/query", `{"sql":"update t set v = 'c' where id = 1 returning id, v"}`)
	if !strings.Contains(a.body, `"rows":[[1,"c"]],"rows_affected":1`) {
		t.Errorf("%s", a.body)
	}
	n.query("acme", "vacuum")
	if got := n.rows("acme", "pragma table_info(t)"); !strings.Contains(got, `"id"`) {
		t.Errorf("table_info: %s", got)
	}
	a = n.want(200, "GET", "/t/acme/", "")
	if !strings.Contains(a.body, `"name":"acme"`) || !strings.Contains(a.body, `"role":"primary"`) || !strings.Contains(a.body, `"position":"1:`) {
		t.Errorf("%s", a.body)
	}
}

func TestBatchIsAllOrNothing(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	a := n.want(200, "POST", "/t/acme/batch", `{"statements":[{"sql":"insert into t (v) values ('a')"},{"sql":"select count(*) as n from t"}]}`)
	if want := `{"results":[{"columns":[],"rows":[],"rows_affected":1,"last_insert_rowid":1},{"columns":["n"],"rows":[[1]],"rows_affected":0,"last_insert_rowid":null}],"position":"1:2"}` + "\n"; a.body != want {
		t.Errorf("%s", a.body)
	}
	a = n.want(400, "POST", "/t/acme/batch", `{"statements":[{"sql":"insert into t (v) values ('b')"},{"sql":"insert into t (id) values (1)"}]}`)
	if a.code() != "SQLITE_CONSTRAINT" || !strings.Contains(a.body, `"statement":1`) {
		t.Errorf("%s", a.body)
	}
	if got := n.rows("acme", "select count(*) from t"); got != "[[1]]" {
		t.Errorf("rows after a failed batch: %s", got)
	}
}
