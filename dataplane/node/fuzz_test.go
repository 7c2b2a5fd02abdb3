package node

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzQueryBody: any body of query and batch is refused as malformed, or is an object
// of JSON whose statements were all read.
func FuzzQueryBody(f *testing.F) {
	for _, seed := range []string{
		`{"sql":"select ?","args":[1,2.5,"x",null,true,{"base64":"AA=="}]}`, `{"args":{"a":1},"sql":"select :a"}`,
		`{"statements":[{"sql":"select 1"},{"sql":"select 2","args":[]}]}`, `{}`, `{"sql":1}`, `{"sql":"a","args":{"a":1,"a":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		var q query
		q.scan.Reset(body)
		q.parseStatement(&q.scan, nil)
		q.scan.End()
		if q.scan.Err() == nil && !json.Valid(body) {
			t.Fatalf("what is not JSON was taken: %q", body)
		}
		q = query{}
		statements, err := q.parseBatch(body)
		if err == nil && (len(statements) == 0 || !json.Valid(body)) {
			t.Fatalf("taken as a batch: %q", body)
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
	})
}

// FuzzDataPath: a path gives a valid unit, or says why not.
func FuzzDataPath(f *testing.F) {
	for _, seed := range []string{"acme/query", "/acme//db/v2/pipeline", "acme/b/7/v3/cursor", "../x", "acme/b/00", "acme/b", "%61cme"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, path []byte) {
		p := parseDataPath(path)
		if p.bad != "" {
			return
		}
		if !validName(p.tenant) || bytes.ContainsAny([]byte(p.unit()), "/%") {
			t.Fatalf("%q: tenant %q", path, p.tenant)
		}
	})
}

// FuzzAdminBody: any body of any changing admin call by a holder that is older is
// refused and changes nothing.
func FuzzAdminBody(f *testing.F) {
	n := startNode(f, nil)
	n.tenantWithTable("acme")
	n.admin(200, "POST", "tenants/acme/freeze", `{"ms":1}`, "Domicile-Holder", "c1/global 5 5")
	eventually(f, "the thaw", func() bool { return !n.s.store.Frozen("acme") })
	before := n.admin(200, "GET", "units", "").body
	calls := [][2]string{{"PUT", "tenants/new"}, {"POST", "tenants/acme/freeze"}, {"POST", "tenants/acme/release"}, {"POST", "tenants/acme/schema"}, {"POST", "tenants/acme/query"}}
	for i := range calls {
		f.Add(uint8(i), []byte(`{"ms":10}`))
		f.Add(uint8(i), []byte(`{"id":3,"authority":"c1/global","history":5,"term":4}`))
		f.Add(uint8(i), []byte(`{"sql":"drop table t","authority":"c1/global","history":1,"term":9}`))
		f.Add(uint8(i), []byte(`{"job":"j","position":"1:1","destination":{"node":"n","addr":"a"},"term":1}`))
	}
	f.Fuzz(func(t *testing.T, call uint8, body []byte) {
		n := *n
		n.t = t
		c := calls[int(call)%len(calls)]
		a := n.do(c[0], "/_admin/"+c[1], string(body), "Authorization", "Bearer "+adminToken, "Domicile-Holder", "c1/global 5 4")
		if a.status < 400 && c[1] != "tenants/acme/query" || a.status >= 500 {
			t.Fatalf("%v %q: %d %s", c, body, a.status, a.body)
		}
		if got := n.admin(200, "GET", "units", "").body; got != before {
			t.Fatalf("%v %q: %s, then %s", c, body, before, got)
		}
	})
}
