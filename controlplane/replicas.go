package controlplane

import (
	"context"
	"net/http"
	"slices"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Waits of a repair by hand.
const (
	repairTimeout = 15 * time.Second
	pairTimeout   = 5 * time.Second
)

// repair places copies that are missing or badly placed, whatever the grace,
// and waits until they are in sync (C6).
func (s *Server) repair(w http.ResponseWriter, c *change) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	state := s.group.State()
	units := lacking(state)
	s.changes.repair(s.now() + fsm.Millis(repairTimeout.Milliseconds()))
	out := proto.Replicated{Replicated: []proto.TenantReplica{}, Failed: []proto.TenantFailed{}}
	ctx, cancel := context.WithTimeout(c.Context(), repairTimeout)
	defer cancel()
	state = s.waitUnits(ctx, units, func(state *fsm.State, u *fsm.Placed) bool { return whole(state, u) || hopeless(state, u) })
	for _, ref := range units {
		u, ok := state.Placed(ref.Unit)
		if !ok || u.ID != ref.ID {
			continue
		}
		tenant, _, _ := u.Unit.Split()
		if whole(state, u) {
			out.Replicated = append(out.Replicated, proto.TenantReplica{Tenant: tenant, Replica: replicaOf(u)})
			continue
		}
		out.Failed = append(out.Failed, proto.TenantFailed{Tenant: tenant, Why: s.whyLacking(state, u)})
	}
	status := http.StatusOK
	if len(out.Failed) > 0 {
		status = http.StatusBadGateway
	}
	setRevision(w, state.Revision())
	httpserve.WriteJSON(w, status, out)
	return nil
}

// lacking gives the served units that do not have the copies that they should.
func lacking(state *fsm.State) []fsm.UnitRef {
	var units []fsm.UnitRef
	for t := range state.Tenants("", "") {
		for u := range state.TenantUnits(t.Name) {
			if u.State != fsm.UnitActive || whole(state, u) {
				continue
			}
			units = append(units, fsm.UnitRef{Unit: u.Unit, ID: u.ID})
		}
	}
	return units
}

// whole reports whether a unit has the copies that it should, where it should,
// all in sync.
func whole(state *fsm.State, u *fsm.Placed) bool {
	if u.Lacks != 0 || !u.Promoted() {
		return false
	}
	if slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Replica() && c.State != fsm.CopyInSync }) {
		return false
	}
	_, better := state.BetterCopy(u)
	return !better
}

// hopeless reports whether no node may take a copy that a unit lacks.
func hopeless(state *fsm.State, u *fsm.Placed) bool {
	if u.Lacks == 0 || u.State != fsm.UnitActive {
		return u.State != fsm.UnitActive
	}
	tenant, _, _ := u.Unit.Split()
	verdicts, _ := state.Explain(tenant, fsm.RoleReplica)
	return !slices.ContainsFunc(verdicts, func(v fsm.Verdict) bool { return v.May && !v.Copy.Follows() }) &&
		!slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Replica() && c.State != fsm.CopyInSync })
}

// replicaOf is the node of the copy that is told of a unit: one in sync, else
// one that follows, else "".
func replicaOf(u *fsm.Placed) fsm.NodeName {
	best := fsm.Copy{}
	for _, c := range u.Copies {
		if c.State.Replica() && (best.Node == "" || c.State == fsm.CopyInSync && best.State != fsm.CopyInSync) {
			best = c
		}
	}
	return best.Node
}

func (s *Server) whyLacking(state *fsm.State, u *fsm.Placed) string {
	if why := state.Unreplicated(u); why != "" {
		return why
	}
	if why := s.trouble(state, u); why != "" {
		return why
	}
	if !hopeless(state, u) {
		return "its copy on node " + string(replicaOf(u)) + " is not in sync yet; the work goes on"
	}
	return "no further node of its region may hold a copy"
}

// waitUnits waits until each unit is as ok says, or ctx ends, and gives the
// state at which it stopped waiting.
func (s *Server) waitUnits(ctx context.Context, units []fsm.UnitRef, ok func(*fsm.State, *fsm.Placed) bool) *fsm.State {
	for {
		state := s.group.State()
		units = slices.DeleteFunc(slices.Clone(units), func(r fsm.UnitRef) bool {
			u, there := state.Placed(r.Unit)
			return !there || u.ID != r.ID || ok(state, u)
		})
		if len(units) == 0 || s.group.WaitRevision(ctx, state.Revision()+1) != nil {
			return s.group.State()
		}
	}
}

// pairUp waits until the units of a node that was given a standby have their
// copies there, and names those that have not (the planner goes on).
func (s *Server) pairUp(ctx context.Context, n *fsm.Node) []fsm.TenantName {
	missing := []fsm.TenantName{}
	if n.Standby == "" {
		return missing
	}
	ctx, cancel := context.WithTimeout(ctx, pairTimeout)
	defer cancel()
	var units []fsm.UnitRef
	for u := range s.group.State().HeldBy(n.Name) {
		if u.Node == n.Name && u.State == fsm.UnitActive {
			units = append(units, fsm.UnitRef{Unit: u.Unit, ID: u.ID})
		}
	}
	s.changes.repair(s.now() + fsm.Millis(pairTimeout.Milliseconds()))
	has := func(_ *fsm.State, u *fsm.Placed) bool { return u.Node != n.Name || follows(u, n.Standby) }
	state := s.waitUnits(ctx, units, has)
	for _, r := range units {
		if u, ok := state.Placed(r.Unit); ok && u.ID == r.ID && !has(state, u) {
			tenant, _, _ := r.Unit.Split()
			missing = append(missing, tenant)
		}
	}
	return missing
}

// explain tells of each node whether it may hold a tenant, and why.
func (s *Server) explain(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.TenantName(r.PathValue("tenant"))
	if !fsm.ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	role := fsm.RolePrimary
	switch what := r.URL.Query().Get("for"); what {
	case "", "primary":
	case "replica":
		role = fsm.RoleReplica
	default:
		return badRequest("for is primary or replica, not %q", what)
	}
	if _, ok := state.Tenant(name); !ok {
		return refusal(&fsm.Refusal{Code: fsm.CodeTenantUnknown, Text: "no tenant is called " + string(name),
			Fields: map[string]string{"tenant": string(name)}})
	}
	verdicts, ok := state.Explain(name, role)
	if !ok {
		return refusal(&fsm.Refusal{Code: fsm.CodeRegionElsewhere, Text: "tenant " + string(name) +
			" is not placed by this directory; ask a server or proxy of its region", Fields: map[string]string{"tenant": string(name)}})
	}
	out := make([]proto.Verdict, 0, len(verdicts))
	for _, v := range verdicts {
		line := proto.Verdict{Node: v.Node, May: v.May, Rank: v.Rank, Why: v.Why}
		switch {
		case v.Primary:
			line.Holds = "primary"
		case v.Copy != 0:
			line.Holds = v.Copy.String()
		}
		if u, ok := state.Placed(fsm.UnitName(name)); ok && v.Copy.Follows() {
			if why := s.refusedTo(state, u, v.Node); why != "" {
				line.Why += "; its primary refuses to be followed by it: " + why
			}
		}
		out = append(out, line)
	}
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}
