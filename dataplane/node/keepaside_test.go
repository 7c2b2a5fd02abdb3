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

// TestL7NothingIsKeptOfWhatItsPrimaryHas: a former primary that lost nothing holds a part
// of its unit's history, which ends at the fork or before. Found by killing a node of idle
// tenants: each time a whole copy of each was left under aside/, and told as a loss.
func TestL7NothingIsKeptOfWhatItsPrimaryHas(t *testing.T) {
	for text, kept := range map[string]bool{
		"":               true,
		"1:2 1:0":        false, // the same branch
		"1:1 1:0":        true,  // the primary lacks commit 2
		"40:2 1:0 40:2":  false, // forked at this node's last commit
		"40:9 1:0 40:3 ": false, // after it
		"40:9 1:0 40:1":  true,  // before it: commit 2 was lost, whatever the primary wrote since
		"40:9 40:0":      true,  // a history that is not told of
	} {
		n := startNode(t, nil)
		n.tenantWithTable("acme")
		n.query("acme", "insert into t (v) values ('x')")
		a := n.admin(204, "DELETE", "tenants/acme", "", proto.HeaderHolder, "c1/global 1 1", proto.HeaderUnitID, "1",
			proto.HeaderRemoval, proto.RemovalCopy, proto.HeaderLives, text)
		if file := a.header.Get(proto.HeaderAside); (file != "") != kept {
			t.Errorf("%q: %q is kept", text, file)
		}
	}
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	n.admin(400, "DELETE", "tenants/acme", "", proto.HeaderHolder, "c1/global 1 1", proto.HeaderUnitID, "1",
		proto.HeaderRemoval, proto.RemovalCopy, proto.HeaderLives, "1:2 1")
	n.query("acme", "insert into t (v) values ('goes on')")
}

// TestL7WhatWasReleasedIsKeptWhereTheUnitLivesOnWithoutIt: the target of a move was lost
// before it was promoted, and a copy that was behind it took its place. Found by a review:
// with --ack primary acknowledged writes went without a word.
func TestL7WhatWasReleasedIsKeptWhereTheUnitLivesOnWithoutIt(t *testing.T) {
	for text, kept := range map[string]bool{"": false, "40:9 1:0 40:2": false, "41:9 1:0 41:1": true} {
		n := startNode(t, nil)
		n.tenantWithTable("acme")
		at := n.want(200, "POST", "/t/acme/query", insert).header.Get("Domicile-Position")
		by := `"authority":"c1/global","history":1,"term":1}`
		n.admin(200, "POST", "tenants/acme/freeze", `{"ms":60000,`+by)
		n.admin(200, "POST", "tenants/acme/release", `{"job":"7","position":"`+at+`","destination":{"node":"n2","addr":"http://127.0.0.1:1"},`+by)
		a := n.admin(204, "DELETE", "tenants/acme", "", proto.HeaderHolder, "c1/global 1 1", proto.HeaderUnitID, "1",
			proto.HeaderRemoval, proto.RemovalCopy, proto.HeaderLives, text)
		if file := a.header.Get(proto.HeaderAside); (file != "") != kept {
			t.Errorf("%q: %q is kept", text, file)
		}
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
