package node

import (
	"fmt"
	"strings"
	"testing"

	"domicile/proto"
)

// goOver gives the node from one authority to another by a job.
func goOver(from, next string, job, call int) string {
	holder := func(h string) string {
		p := strings.Fields(h)
		return fmt.Sprintf(`"authority":%q,"history":%s,"term":%s`, p[0], p[1], p[2])
	}
	return fmt.Sprintf(`{%s,"next":{%s},"job":%d,"call":%d}`, holder(from), holder(next), job, call)
}

func TestG2ANodeGoesOverOnceAndALateRepeatDoesNothing(t *testing.T) {
	dir := t.TempDir()
	run := func() *testNode { return startNode(t, func(c *Config) { c.Store.Dir = dir }) }
	n := run()
	const global, us = "c1/global 1 5", "c2/us 1 3"
	n.admin(201, "PUT", "tenants/acme", `{"id":1}`, "Domicile-Holder", global)
	n.admin(200, "POST", "holder", goOver(global, us, 10, 70))
	n.admin(200, "POST", "holder", goOver(global, us, 10, 71)) // its answer was lost
	n.admin(409, "PUT", "tenants/late", `{"id":2}`, "Domicile-Holder", global)
	n.admin(409, "PUT", "tenants/late", `{"id":2}`, "Domicile-Holder", us, proto.HeaderCall, "69")
	n.admin(201, "PUT", "tenants/next", `{"id":2}`, "Domicile-Holder", us, proto.HeaderCall, "70")

	n.admin(200, "POST", "holder", goOver(us, global, 4, 900))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = run()
	if a := n.admin(409, "POST", "holder", goOver(global, us, 10, 70)); a.code() != string(proto.CodeStaleCall) || !strings.Contains(a.body, `"c1/global"`) {
		t.Errorf("a late repeat: %s", a.body)
	}
	n.admin(409, "POST", "holder", goOver("c1/global 1 6", us, 10, 70)) // by the next leader
	n.admin(200, "POST", "holder", goOver(us, global, 4, 900))
	if a := n.admin(409, "DELETE", "tenants/next", "", "Domicile-Holder", global, proto.HeaderCall, "899", "Domicile-Unit-Id", "2"); a.code() != string(proto.CodeStaleCall) {
		t.Errorf("a call of the first time under that leader: %s", a.body)
	}
	n.admin(204, "DELETE", "tenants/next", "", "Domicile-Holder", global, proto.HeaderCall, "901", "Domicile-Unit-Id", "2")
	n.admin(200, "POST", "holder", goOver(global, us, 40, 0))
}
