package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestHolderTable(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1) // by c1/global 1 1
	h := func(authority string, history, term int) string {
		return fmt.Sprintf(`"authority":%q,"history":%d,"term":%d`, authority, history, term)
	}
	for _, c := range []struct {
		name, body, header string
		status             int
		code               string
	}{
		{"none", `{"ms":1000}`, "", 400, "holder_required"},
		{"an authority alone", `{"ms":1000,"authority":"c1/global"}`, "", 400, "bad_request"},
		{"a term alone", `{"ms":1000,"term":5}`, "", 400, "bad_request"},
		{"the same", `{"ms":1000,` + h("c1/global", 1, 1) + `}`, "", 200, ""},
		{"the same, by header", `{"ms":1000}`, "c1/global 1 1", 200, ""},
		{"two that differ", `{"ms":1000,` + h("c1/global", 1, 1) + `}`, "c1/global 1 2", 400, "bad_request"},
		{"a malformed header", `{"ms":1000}`, "c1/global 1", 400, "bad_request"},
		{"a negative term", `{"ms":1000,` + h("c1/global", 1, -1) + `}`, "", 400, "bad_request"},
		{"a newer term", `{"ms":1000,` + h("c1/global", 1, 4) + `}`, "", 200, ""},
		{"an older term", `{"ms":1000,` + h("c1/global", 1, 3) + `}`, "", 409, "holder_newer"},
		{"a newer history, a lower term", `{"ms":1000,` + h("c1/global", 2, 1) + `}`, "", 200, ""},
		{"an older history, a higher term", `{"ms":1000,` + h("c1/global", 1, 9) + `}`, "", 409, "holder_newer"},
		{"another authority", `{"ms":1000,` + h("c2/global", 9, 9) + `}`, "", 409, "holder_newer"},
		{"a bad ms", `{"ms":0,` + h("c1/global", 3, 1) + `}`, "", 400, "bad_request"},
		{"a malformed call of a newer one does not count", `{"ms":1000,"x":1,` + h("c1/global", 9, 1) + `}`, "", 400, "bad_request"},
		{"so this one is still the newest", `{"ms":1000,` + h("c1/global", 2, 1) + `}`, "", 200, ""},
	} {
		headers := []string{"Authorization", "Bearer " + adminToken}
		if c.header != "" {
			headers = append(headers, "Domicile-Holder", c.header)
		}
		a := n.do("POST", "/_admin/tenants/acme/freeze", c.body, headers...)
		if a.status != c.status || a.code() != c.code {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
		if a.status == 409 && (!strings.Contains(a.body, `"authority":"c1/global"`) || !strings.Contains(a.body, `"history":`) || !strings.Contains(a.body, `"term":`)) {
			t.Errorf("%s: the holder is not named: %s", c.name, a.body)
		}
	}
	for _, call := range [][2]string{
		{"PUT", "tenants/globex"}, {"DELETE", "tenants/acme"}, {"POST", "tenants/acme/freeze"}, {"POST", "tenants/acme/release"},
		{"POST", "tenants/acme/schema"}, {"PUT", "tenants/globex/file"}, {"POST", "tenants/acme/thaw"},
	} {
		body := map[string]string{"tenants/globex": `{"id":5}`, "tenants/acme/release": `{"job":"1","position":"1:0","destination":{"node":"n","addr":"http://h"}}`, "tenants/acme/schema": `{"sql":"create table x (a)"}`}[call[1]]
		n.admin(409, call[0], call[1], body, "Domicile-Holder", "c1/global 1 9", "Domicile-Unit-Id", "1")
	}
	n.admin(409, "POST", "tenants/acme/query", `{"sql":"create table x (a)"}`, "Domicile-Holder", "c1/global 1 9")
	n.admin(400, "POST", "tenants/acme/query", `{"sql":"create table x (a)"}`)
	n.admin(200, "POST", "tenants/acme/query", `{"sql":"select 1"}`)
	n.admin(200, "POST", "tenants/acme/thaw", "") // by hand
}

func TestI5NewestHolderOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	at := func(c *Config) { c.Store.Dir = dir }
	n := startNode(t, at)
	n.admin(201, "PUT", "tenants/acme", `{"id":1}`, "Domicile-Holder", "c1/eu 3 7")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, at)
	n.admin(409, "DELETE", "tenants/acme", "", "Domicile-Holder", "c1/eu 3 6")
	a := n.admin(200, "POST", "holder", `{"authority":"c1/eu","history":3,"term":7,"next":{"authority":"c1/global","history":1,"term":2}}`)
	if !strings.Contains(a.body, `"authority":"c1/global"`) {
		t.Errorf("%s", a.body)
	}
	n.admin(200, "POST", "holder", `{"authority":"c1/eu","history":3,"term":7,"next":{"authority":"c1/global","history":1,"term":2}}`) // the answer was lost
	n.admin(409, "DELETE", "tenants/acme", "", "Domicile-Holder", "c1/eu 3 8")
	n.admin(204, "DELETE", "tenants/acme", "", "Domicile-Holder", "c1/global 1 2")
}

func TestUnitLifecycle(t *testing.T) {
	n := startNode(t, nil)
	by := []string{"Domicile-Holder", holder1}
	n.admin(400, "PUT", "tenants/acme", `{}`, by...)
	n.admin(400, "PUT", "tenants/Acme", `{"id":7}`, by...)
	n.admin(400, "PUT", "tenants/acme.0", `{"id":7}`, by...)
	n.admin(400, "PUT", "tenants/acme", `{"id":"7"}`, by...)
	n.admin(400, "PUT", "tenants/acme", `{"id":7,"x":1}`, by...)
	n.admin(400, "PUT", "tenants/acme", `[]`, by...)
	if a := n.admin(201, "PUT", "tenants/acme", `{"id":7}`, by...); a.body != `{"created":"acme"}`+"\n" {
		t.Errorf("%s", a.body)
	}
	n.query("acme", "create table t (v)")
	n.admin(201, "PUT", "tenants/acme", `{"id":7}`, by...) // asked again
	if a := n.admin(409, "PUT", "tenants/acme", `{"id":8}`, by...); !strings.Contains(a.body, `"id":7`) || a.code() != "unit_exists" {
		t.Errorf("%s", a.body)
	}
	n.rows("acme", "select * from t")
	n.admin(201, "PUT", "tenants/acme.12", `{"id":9}`, by...)
	n.want(200, "POST", "/t/acme/b/12/db/query", `{"sql":"create table b (v)"}`)
	if a := n.want(200, "GET", "/t/acme/b/12", ""); !strings.Contains(a.body, `"bucket":12`) {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(200, "GET", "tenants", ""); a.body != `["acme","acme.12"]`+"\n" {
		t.Errorf("%s", a.body)
	}
	var sizes map[string]int64
	if a := n.admin(200, "GET", "sizes", ""); json.Unmarshal([]byte(a.body), &sizes) != nil || len(sizes) != 2 || sizes["acme"] < 4096 {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(200, "GET", "stats", ""); !strings.Contains(a.body, `"tenants":2`) || !strings.Contains(a.body, `"open":2`) {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(200, "GET", "open", ""); !strings.Contains(a.body, `"name":"acme.12"`) {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(200, "GET", "units", ""); !strings.Contains(a.body, `{"unit":"acme","id":7,"state":"active","role":"primary","position":"1:1","bytes":`) {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(409, "DELETE", "tenants/acme", "", append(by, "Domicile-Unit-Id", "6")...); a.code() != "wrong_unit_id" {
		t.Errorf("%s", a.body)
	}
	n.admin(400, "DELETE", "tenants/acme", "", append(by, "Domicile-Unit-Id", "x")...)
	n.admin(204, "DELETE", "tenants/acme", "", append(by, "Domicile-Unit-Id", "7")...)
	n.admin(404, "DELETE", "tenants/acme", "", append(by, "Domicile-Unit-Id", "7")...)
	n.want(404, "GET", "/t/acme/", "")
	n.admin(201, "PUT", "tenants/acme", `{"id":20}`, by...)
	if got := n.rows("acme", "select count(*) from sqlite_schema"); got != "[[0]]" {
		t.Errorf("a new unit of an old name holds %s", got)
	}
}

func TestSchemaIsAllOrNothing(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	by := []string{"Domicile-Holder", holder1}
	if a := n.admin(400, "POST", "tenants/acme/schema", `{"sql":"create table a (x); create table a (x)"}`, by...); !strings.Contains(a.body, `"statement":1`) {
		t.Errorf("%s", a.body)
	}
	n.admin(400, "POST", "tenants/acme/schema", `{"sql":"create table a (x); commit"}`, by...)
	if a := n.admin(200, "POST", "tenants/acme/schema", `{"sql":"create table a (x); -- two\ncreate trigger tr after insert on a begin delete from a where x = 0; end;\n"}`, by...); a.body != `{"position":"1:1"}`+"\n" {
		t.Errorf("%s", a.body)
	}
	if got := n.rows("acme", "select count(*) from sqlite_schema"); got != "[[2]]" {
		t.Errorf("%s", got)
	}
}

func TestFreezeReleaseThaw(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	by := []string{"Domicile-Holder", holder1}
	release := func(job, position string) string {
		return fmt.Sprintf(`{"job":%q,"position":%q,"destination":{"node":"eu2","addr":"http://10.0.0.2:8081"}}`, job, position)
	}
	n.admin(409, "POST", "tenants/acme/release", release("j1", "1:1"), by...) // not frozen
	if a := n.admin(200, "POST", "tenants/acme/freeze", `{"ms":60000}`, by...); a.body != `{"frozen":true,"position":"1:1"}`+"\n" {
		t.Errorf("%s", a.body)
	}
	a := n.want(503, "POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x')"}`)
	if a.code() != "transfer_in_progress" || a.header.Get("Retry-After") != "1" {
		t.Errorf("%s %v", a.body, a.header)
	}
	n.rows("acme", "select * from t") // reads go on
	n.rows("acme", "pragma table_info(t)")
	n.admin(409, "POST", "tenants/acme/release", release("j1", "1:2"), by...)
	n.admin(400, "POST", "tenants/acme/release", `{"job":"j1","position":"1:1"}`, by...)
	if a := n.admin(200, "POST", "tenants/acme/release", release("j1", "1:1"), by...); a.body != `{"position":"1:1","released":true}`+"\n" {
		t.Errorf("%s", a.body)
	}
	n.admin(200, "POST", "tenants/acme/release", release("j1", "1:1"), by...)
	n.admin(409, "POST", "tenants/acme/release", release("j2", "1:1"), by...)
	for _, sql := range []string{"select 1", "insert into t (v) values ('x')"} {
		a := n.want(421, "POST", "/t/acme/query", fmt.Sprintf(`{"sql":%q}`, sql))
		if a.code() != "misdirected" || !strings.Contains(a.body, `"destination":{"addr":"http://10.0.0.2:8081","node":"eu2"}`) || !strings.Contains(a.body, `"unit":"acme"`) {
			t.Errorf("%s", a.body)
		}
	}
	n.admin(409, "POST", "tenants/acme/freeze", `{"ms":1000}`, by...)
	n.admin(409, "POST", "tenants/acme/thaw", `{"job":"j2"}`, by...)
	n.admin(200, "POST", "tenants/acme/thaw", `{"job":"j1"}`, by...)
	n.query("acme", "insert into t (v) values ('x')")
	if a := n.admin(200, "GET", "tenants/acme/position", ""); a.body != `{"position":"1:2","id":1,"branches":[{"epoch":1,"from":0}]}`+"\n" {
		t.Errorf("%s", a.body)
	}
}

func TestM6FreezeThawsByItself(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.admin(200, "POST", "tenants/acme/freeze", `{"ms":50}`, "Domicile-Holder", holder1)
	eventually(t, "the thaw", func() bool {
		return n.do("POST", "/t/acme/query", `{"sql":"insert into t (v) values ('x')"}`).status == 200
	})
}

func TestFileComesAndGoes(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.query("acme", "with recursive c(x) as (select 1 union all select x+1 from c limit 20000) insert into t select x, 'value ' || x from c")
	file := n.admin(200, "GET", "tenants/acme/file", "")
	if !strings.HasPrefix(file.body, "SQLite format 3\x00") || file.header.Get("Domicile-Position") != "1:2" {
		t.Fatalf("%d bytes, %v", len(file.body), file.header)
	}
	by := []string{"Domicile-Holder", holder1, "Domicile-Unit-Id", "5"}
	n.admin(400, "PUT", "tenants/copy/file", file.body[:len(file.body)/2], by...)
	n.admin(400, "PUT", "tenants/copy/file", "not a database", by...)
	n.admin(400, "PUT", "tenants/copy/file", file.body, "Domicile-Holder", holder1)
	n.want(404, "GET", "/t/copy/", "")
	n.admin(201, "PUT", "tenants/copy/file", file.body, by...)
	n.admin(409, "PUT", "tenants/copy/file", file.body, by...)
	if got := n.rows("copy", "select count(*), max(v) from t"); got != `[[20000,"value 9999"]]` {
		t.Errorf("%s", got)
	}
	n.query("copy", "insert into t (v) values ('x')")
}

// Test382AnIncompleteHolderTiesTheNodeToNobody sends a fresh node first calls whose
// maker is not told whole: none of them counts, and any authority may have it after.
func Test382AnIncompleteHolderTiesTheNodeToNobody(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Lease = true })
	for _, h := range []string{
		`"authority":"c1"`, `"authority":"c1/global"`, `"authority":"c1/global","history":1`, `"authority":"c1/global","term":1`,
		`"authority":"c1","history":1,"term":1`, `"authority":"/global","history":1,"term":1`, `"authority":"c1/","history":1,"term":1`,
		`"authority":"c1/EU","history":1,"term":1`, `"authority":"c 1/eu","history":1,"term":1`, `"history":1,"term":1`,
	} {
		for _, call := range [][3]string{
			{"PUT", "tenants/acme", `{"id":9,` + h + `}`},
			{"POST", "lease", `{"ms":1000,"epoch":"e","primaries":[],"grant":1,"acked":0,` + h + `}`},
			{"POST", "holder", `{"authority":"c1/eu","history":1,"term":1,"next":{` + h + `}}`},
		} {
			if a := n.admin(400, call[0], call[1], call[2]); a.code() != "bad_request" {
				t.Errorf("%s %s of %s: %s", call[0], call[1], h, a.body)
			}
		}
	}
	for _, h := range []string{"c1 1 1", "c1/global 0 1", "c1/global 1 0"} {
		n.admin(400, "PUT", "tenants/acme", `{"id":9}`, "Domicile-Holder", h)
	}
	n.admin(201, "PUT", "tenants/acme", `{"id":9}`, "Domicile-Holder", "c2/eu 1 1")
}
