package fsmtest

import (
	"fmt"

	"domicile/fsm"
)

// Large gives a directory of nodes nodes in four regions and of tenants active
// tenants, spread over them, made by applying the entries that a group would
// apply. Their names are in no order.
func Large(nodes, tenants int) *fsm.State { return large(fsm.New(), nodes, tenants) }

// LargeReplicated gives the same with replicas copies of each tenant, syncing,
// spread as C2 spreads them.
func LargeReplicated(nodes, tenants, replicas int) *fsm.State {
	return large(Ready(fsm.Settings{Replicas: uint32(replicas), AutoFailover: 3000}), nodes, tenants)
}

func large(s *fsm.State, nodes, tenants int) *fsm.State {
	rev := s.Revision()
	apply := func(c fsm.Command) fsm.Result {
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1_700_000_000_000 + fsm.Millis(rev), Cmd: c})
		if r.Refusal != nil {
			panic(r.Refusal)
		}
		return r
	}
	if _, begun := s.Scope(); !begun {
		apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "large", History: 1}})
	}
	for i := range nodes {
		region := fsm.RegionName([]string{"eu", "us", "ap", "sa"}[i%4])
		apply(&fsm.PutNode{
			Name: fsm.NodeName(fmt.Sprintf("node-%04d", i)), Addr: ptr(fmt.Sprintf("10.0.%d.%d:8081", i/250, i%250)),
			Token: ptr("token"), Region: &region, Zone: ptr(fsm.ZoneName([]string{"a", "b", "c"}[i%3])),
		})
	}
	for i := range tenants {
		node := fsm.NodeName(fmt.Sprintf("node-%04d", i%nodes))
		r := apply(&fsm.CreateTenant{Name: TenantName(i), Node: &node})
		apply(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	}
	return s
}

// TenantName gives the name of the i-th tenant of Large; the names' order is
// not that of i.
func TenantName(i int) fsm.TenantName {
	return fsm.TenantName(fmt.Sprintf("tenant-%08x", uint32(i)*2654435761))
}
