package controlplane

import (
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// TestG5OrphansAreFoundToldAndSettled: a tenant that a region has and the global directory
// does not know gets its name; one whose name is elsewhere is left as it is, and told, as
// is a name without its tenant.
func TestG5OrphansAreFoundToldAndSettled(t *testing.T) {
	r := startRegions(t, 1, "us", "tr")
	node := r.withNode("us", "n1", "a")
	r.withNode("tr", "n1", "a")
	us := r.of["us"].leader()
	us.config.OrphansEvery = 20 * time.Millisecond
	r.restart(r.of["us"], us)
	us = r.of["us"].leader()
	// Jobs that the global group has forgotten: their numbers are those of entries of another kind.
	from, region := r.origin(), fsm.RegionName("us")
	for job, name := range map[fsm.JobID]fsm.TenantName{2: "acme", 3: "other"} {
		us.want(us.callTask(job, proto.TaskCall{Call: proto.TaskBegin, To: "us", Authority: from.Authority, History: from.History, Floor: 1,
			Kind: "create", Tenant: name, ID: fsm.UnitID(job), Region: &region}), 200, "")
	}
	r.create("tr", "other")
	r.create("us", "gone")
	r.create("us", "well") // says that jobs 2 and 3 have ended
	g := r.global.leader()
	g.until("has the name of the tenant, as its region has it", func() bool {
		acme, ok := g.group.State().Tenant("acme")
		return ok && acme.Claim == 2 && acme.Home == "us" && !acme.Reserved && acme.Job == 0
	})
	r.lose("us", "gone")
	r.create("us", "last") // says that all jobs before it have ended
	us.until("finds what it cannot settle", func() bool {
		list := us.ask("GET", "/_shard/tasks/orphans", "").text
		return strings.Contains(list, `{"tenant":"other","id":3,"kind":"elsewhere","home":"tr"}`) &&
			strings.Contains(list, `{"tenant":"gone","kind":"missing","home":"us"}`) && !strings.Contains(list, "acme") && !strings.Contains(list, "well")
	})
	if held := node.held(); held["acme"] != 2 || held["other"] != 3 {
		t.Errorf("the node holds %v", held)
	}
	told := func(tenant string) int {
		return strings.Count(us.log.String(), "differ about a tenant: tenant="+tenant)
	}
	us.until("tells of both in its log", func() bool { return told("other") > 0 && told("gone") > 0 })
	if told("other") != 1 || told("gone") != 1 {
		t.Error("the log does not tell once of each")
	}
	g.want(g.ask("DELETE", "/_shard/tenants/acme", ""), 204, "")
}
