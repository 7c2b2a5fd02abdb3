package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// TestL1L2NoLeasesWhereNodesWriteOnlyUnderOne: without leases such nodes write nothing,
// so that each way to come to that is refused, or is what an operator asked for.
func TestL1L2NoLeasesWhereNodesWriteOnlyUnderOne(t *testing.T) {
	s, _ := startLeased(t, 1500, 0, true, "n1/a")
	s.create(1, "n1")
	s.until("it is recorded that the node takes leases", func() bool {
		n, ok := s.group.State().Node("n1")
		return ok && n.Lease == fsm.LeaseTaken
	})
	r := s.want(s.ask("PUT", "/_shard/settings", `{"auto_failover_ms":0}`), 409, fsm.CodeNodeLeased)
	if r.body["node"] != "n1" || s.group.State().Settings().AutoFailover != 1500 {
		t.Errorf("answer %s; settings %+v", r.text, s.group.State().Settings())
	}
	s.want(s.ask("PUT", "/_shard/settings", `{"auto_failover_ms":0,"force":true}`), 200, "")
	s.want(s.ask("PUT", "/_shard/settings", `{"auto_failover_ms":0,"replicas":1}`), 200, "") // it changes nothing more
	for _, body := range []string{``, `{"node":"n1"}`} {
		if r := s.want(s.ask("PUT", "/_shard/tenants/new", body), 409, fsm.CodeNodeLeased); r.body["node"] != "n1" {
			t.Errorf("a create with %s is answered with %s", body, r.text)
		}
	}
	s.want(s.ask("GET", "/_shard/tenants/new", ""), 404, fsm.CodeTenantUnknown)
	another := newFakeNodes(t, true, "n2")[0]
	put := fmt.Sprintf(`{"addr":%q,"token":%q}`, another.addr(), nodeToken)
	s.want(s.ask("PUT", "/_shard/nodes/n2", put), 409, fsm.CodeNodeLeased)
	another.set(func() { another.leased = false })
	s.want(s.ask("PUT", "/_shard/nodes/n2", put), 201, "")
	if r := s.want(s.ask("PUT", "/_shard/tenants/new", ``), 201, ""); r.body["node"] != "n2" {
		t.Errorf("it is placed on %v, which writes nothing", r.body["node"])
	}
	if r := s.want(s.ask("POST", "/_shard/nodes/n1/failover", ""), 409, fsm.CodeNodeUnleased); !strings.Contains(r.text, "takes leases and is given none") {
		t.Errorf("a failover is refused with %s", r.text)
	}
}
