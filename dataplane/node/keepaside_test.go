package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/proto"
)

// TestL7WhatAFormerPrimaryHoldsIsKeptWhenItIsRemoved: a unit that lives on elsewhere is
// taken off the node that was its primary, which nobody compared with the present one.
// What that node alone has acknowledged must stay readable and be told. Found by an
// attack: fifty acknowledged writes were removed without a word.
func TestL7WhatAFormerPrimaryHoldsIsKeptWhenItIsRemoved(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.query("acme", "insert into t (v) values ('mine alone')")
	n.create("bare", 2)
	remove := func(unit, id string, more ...string) answer {
		return n.admin(204, "DELETE", "tenants/"+unit, "", append([]string{
			proto.HeaderHolder, "c1/global 1 1", proto.HeaderUnitID, id}, more...)...)
	}
	file := remove("acme", "1", proto.HeaderRemoval, proto.RemovalCopy).header.Get(proto.HeaderAside)
	kept, err := os.ReadFile(filepath.Join(n.s.cfg.Store.Dir, "aside", file))
	if err != nil || !strings.Contains(string(kept), "mine alone") {
		t.Errorf("what is kept in %q: %d bytes, %v", file, len(kept), err)
	}
	// Nothing is kept of what holds nothing, or of a tenant that was deleted.
	if a := remove("bare", "2", proto.HeaderRemoval, proto.RemovalCopy); a.header.Get(proto.HeaderAside) != "" {
		t.Errorf("an empty unit was kept: %v", a.header)
	}
	n.create("gone", 3)
	n.query("gone", "create table t (v text)")
	if a := remove("gone", "3"); a.header.Get(proto.HeaderAside) != "" {
		t.Errorf("a deleted tenant was kept: %v", a.header)
	}
}

// TestALateRemovalOfACopyMeetsNoPrimary: a call that takes a copy away may arrive when
// the node has become the unit's primary.
func TestALateRemovalOfACopyMeetsNoPrimary(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.lease(`[{"unit":"acme","id":1}]`)
	n.query("acme", "create table t (id integer primary key, v text)")
	if a := n.admin(409, "DELETE", "tenants/acme", "", proto.HeaderHolder, "c1/global 1 1", proto.HeaderUnitID, "1",
		proto.HeaderRemoval, proto.RemovalCopy); a.code() != codeWrongState {
		t.Errorf("%s", a.body)
	}
	n.want(200, "POST", "/t/acme/query", insert)
}
