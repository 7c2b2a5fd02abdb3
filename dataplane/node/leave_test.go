package node

import (
	"fmt"
	"strings"
	"testing"

	"domicile/dataplane/node/store"
	"domicile/proto"
)

// TestM9ARemovedCopyIsRememberedAndCutsNoRead: a read that runs is waited for; afterwards
// the node says where the unit went, also after a restart, and forgets it with the unit.
func TestM9ARemovedCopyIsRememberedAndCutsNoRead(t *testing.T) {
	p, f := startPair(t)
	at := p.want(200, "POST", "/t/acme/query", insert).header.Get("Domicile-Position")
	handover := fmt.Sprintf(`{"job":"17","ms":5000,"units":[{"unit":"acme","id":1,"node":"n2","addr":%q}],"authority":"c1/global","history":1,"term":1}`, f.url)
	if a := p.admin(200, "POST", "handover", handover); !strings.Contains(a.body, at) {
		t.Fatal(a.body)
	}
	remove := func(status int) answer {
		t.Helper()
		return p.admin(status, "DELETE", "tenants/acme", "", proto.HeaderHolder, holder1, proto.HeaderUnitID, "1", proto.HeaderRemoval, proto.RemovalCopy)
	}
	u, release, err := p.s.store.Acquire(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := u.Begin(t.Context(), store.ReadTx)
	if err != nil {
		t.Fatal(err)
	}
	if a := remove(503); a.code() != "in_use" || a.header.Get("Retry-After") == "" {
		t.Errorf("%s", a.body)
	}
	tx.Rollback()
	release()
	remove(204)
	gone := func(where string) {
		t.Helper()
		for _, headers := range [][]string{nil, {"Domicile-Route", "acme 5"}} {
			if a := p.want(421, "POST", "/t/acme/query", `{"sql":"select 1"}`, headers...); a.code() != "misdirected" || !strings.Contains(a.body, where) {
				t.Errorf("%s", a.body)
			}
		}
	}
	gone(fmt.Sprintf(`"destination":{"addr":%q,"node":"n2"}`, f.url))
	p.want(404, "POST", "/t/never/query", `{"sql":"select 1"}`)
	p = p.again()
	gone(f.url)
	p.create("acme", 9)
	p.admin(204, "DELETE", "tenants/acme", "", proto.HeaderHolder, holder1)
	p.want(404, "POST", "/t/acme/query", `{"sql":"select 1"}`)
	// A copy that is removed says whom it followed.
	f.admin(204, "DELETE", "tenants/acme", "", proto.HeaderHolder, holder1, proto.HeaderRemoval, proto.RemovalCopy)
	if a := f.want(421, "GET", "/t/acme/", ""); !strings.Contains(a.body, `"destination":{"addr":"http://`) {
		t.Errorf("%s", a.body)
	}
}
