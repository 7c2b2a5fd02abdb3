package node

import (
	"strings"
	"testing"
	"time"
)

// TestO6AReadByARecoveredGroupFencesTheOlderHistory: from the first read on the node
// takes nothing of what came before, and tells when the lease that it has left is over.
func TestO6AReadByARecoveredGroupFencesTheOlderHistory(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.lease(`["acme"]`)
	n.query("acme", "create table t (v)")
	if a := n.admin(200, "GET", "lease", ""); strings.Contains(a.body, `"left_ms":0`) {
		t.Errorf("%s", a.body)
	}
	n.grant(200, n.next-1, "") // a read that names no holder changes nothing
	for _, read := range []string{"lease", "units"} {
		n.admin(400, "GET", read, "", "Domicile-Holder", "c1/global 2")
		n.admin(200, "GET", read, "", "Domicile-Holder", "c1/global 2 1")
		if a := n.grant(409, n.next-1, ""); a.code() != "holder_newer" || !strings.Contains(a.body, `"history":2`) {
			t.Errorf("an older grant after a read of the %s: %s", read, a.body)
		}
		n.admin(409, "POST", "promote", `{"tenants":["acme"],"epoch":"900","authority":"c1/global","history":1,"term":99}`)
		n.admin(409, "GET", read, "", "Domicile-Holder", "c1/global 1 99")
		if a := n.admin(409, "GET", read, "", "Domicile-Holder", "c2/global 9 1"); !strings.Contains(a.body, `"authority":"c1/global"`) {
			t.Errorf("%s", a.body)
		}
	}
	n.query("acme", "insert into t values (1)") // clause 6
	n.clock.Advance(60*time.Second - time.Microsecond)
	if a := n.admin(200, "GET", "lease", "", "Domicile-Holder", "c1/global 2 1"); strings.Contains(a.body, `"left_ms":0`) {
		t.Errorf("with a moment left: %s", a.body)
	}
	n.clock.Advance(time.Second)
	if a := n.admin(200, "GET", "lease", "", "Domicile-Holder", "c1/global 2 1"); !strings.Contains(a.body, `"left_ms":0`) {
		t.Errorf("%s", a.body)
	}
	n.want(503, "POST", "/t/acme/query", insert)
}

// TestO6ANodeWithoutLeaseIsFencedByARead, and says that it takes none.
func TestO6ANodeWithoutLeaseIsFencedByARead(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	if a := n.admin(409, "GET", "lease", "", "Domicile-Holder", "c1/global 2 1"); a.code() != "takes_no_lease" {
		t.Errorf("%s", a.body)
	}
	if a := n.admin(409, "POST", "tenants/acme/freeze", `{"authority":"c1/global","history":1,"term":9}`); a.code() != "holder_newer" {
		t.Errorf("%s", a.body)
	}
}
