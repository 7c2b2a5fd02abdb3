package controlplane

import (
	"context"
	"slices"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

// A region that a recovery of the global directory went on without, or that was recovered
// itself without that directory, may have as its own a tenant that another group has. The
// global directory says whose it is. Where the group that it names has it indeed, as that says
// itself, the other one yields it (I1); else it may be all that there is, and is kept. In the
// same way a group learns that a tenant is promoted where it lives, which has departed in a
// move of before a recovery, so that what is left here may go (I10).

// homesEvery is how often a leader asks other groups about such tenants while there are any.
const homesEvery = time.Second

// doubt is about a tenant that lives elsewhere by the global directory, and of which this
// group has something.
type doubt struct {
	u     fsm.UnitRef
	epoch uint64    // of one that is this group's own, as it was seen before the other is asked
	left  fsm.JobID // that has departed: the job of the global directory; else 0
}

// homeOf says whose a tenant is by the global directory, under which id; false where it has
// no such name.
type homeOf func(fsm.TenantName) (o owner, id fsm.UnitID, known bool)

// keepToHomes is the leader's duty.
func (s *Server) keepToHomes(ctx context.Context, term uint64) error {
	var found []fsm.TenantName // that may be in doubt
	var met uint64             // history of the global directory by which they were looked for
	var at time.Time
	for ; ctx.Err() == nil; pause(ctx, homesEvery) {
		state := s.group.State()
		home := s.homesNow(state)
		if home == nil {
			continue
		}
		if h := state.GlobalHistory(); h != met || time.Since(at) >= s.config.OrphansEvery {
			found, met, at = s.elsewhere(state, home), h, time.Now()
		}
		doubts := s.doubts(state, home, found)
		for o, about := range doubts {
			for some := range slices.Chunk(about, censusPage) {
				s.askHome(ctx, term, state, o, some)
			}
		}
	}
	return nil
}

// homesNow gives what the global directory says now; nil where what is known of it may be
// over.
func (s *Server) homesNow(state *fsm.State) homeOf {
	if scope, ok := state.Scope(); !ok || state.Recovering() {
		return nil
	} else if scope.Region == "" {
		return func(name fsm.TenantName) (owner, fsm.UnitID, bool) {
			t, known := state.Tenant(name)
			if known && t.HasHome {
				return owner{region: t.Home}, t.Claim, true
			}
			return s.own(), 0, known
		}
	}
	d := s.globalCopy()
	if d == nil || d.Position().History != state.GlobalHistory() || s.global.Age() > freshFor {
		return nil
	}
	return func(name fsm.TenantName) (owner, fsm.UnitID, bool) {
		where, known := d.Tenant(name)
		if known && where.Home {
			return owner{region: where.Region}, where.ID, true
		}
		return owner{global: true}, where.ID, known
	}
}

// elsewhere finds this group's own tenants that live elsewhere.
func (s *Server) elsewhere(state *fsm.State, home homeOf) (found []fsm.TenantName) {
	if s.config.Region == "" {
		return nil // what it says of where they live is so
	}
	for t := range state.Tenants("", "") {
		if o, _, known := home(t.Name); known && o != s.own() {
			found = append(found, t.Name)
		}
	}
	return found
}

// doubts gives what other groups are to be asked about.
func (s *Server) doubts(state *fsm.State, home homeOf, found []fsm.TenantName) map[owner][]doubt {
	all := make(map[owner][]doubt)
	for _, name := range found {
		p, ok := state.Placed(fsm.UnitName(name))
		o, id, known := home(name)
		if ok && known && o != s.own() && id == p.ID && p.State == fsm.UnitActive {
			all[o] = append(all[o], doubt{u: fsm.UnitRef{Unit: p.Unit, ID: p.ID}, epoch: p.Epoch})
		}
	}
	for j := range state.Unsettled() {
		if o, id, known := home(j.Tenant); known && o != s.own() && id == j.Unit {
			all[o] = append(all[o], doubt{u: fsm.UnitRef{Unit: fsm.UnitName(j.Tenant), ID: j.Unit}, left: j.Task})
		}
	}
	return all
}

// askHome asks a group about tenants that live there, and records what follows of those that
// a node of it has to write. What was seen in state was so before the answer was given.
func (s *Server) askHome(ctx context.Context, term uint64, state *fsm.State, o owner, about []doubt) {
	call := proto.CensusCall{To: o.region, Authority: globalAuthority(state), History: state.GlobalHistory()}
	for _, d := range about {
		call.Only = append(call.Only, fsm.TenantName(d.u.Unit))
	}
	page, failed := s.readCensus(ctx, o, &call)
	if failed != nil {
		s.logger.Debug("another group was not asked about tenants that live there", "group", o.String(), "tenants", len(about), "err", failed.Refusal)
		return
	}
	written := make(map[fsm.UnitRef]bool)
	for _, t := range page.Tenants {
		c := claimOf(t)
		written[fsm.UnitRef{Unit: fsm.UnitName(c.Tenant), ID: c.ID}] = c.How == fsm.ClaimOwn && c.Promoted
	}
	for _, d := range about {
		if written[d.u] {
			s.keepToHome(ctx, term, state, o, d)
		}
	}
}

// globalAuthority names the global group, which this one is or belongs to.
func globalAuthority(state *fsm.State) string {
	scope, _ := state.Scope()
	if scope.Region == "" {
		return scope.Authority()
	}
	up, _ := state.Upstream()
	return up.Authority
}

// keepToHome yields a tenant, or lets what has departed go. A move within this directory is
// cancelled first.
func (s *Server) keepToHome(ctx context.Context, term uint64, state *fsm.State, o owner, d doubt) {
	var cmd fsm.Command = &fsm.YieldTenant{UnitRef: d.u, Epoch: d.epoch, History: state.GlobalHistory()}
	if d.left != 0 {
		cmd = &fsm.SettleTask{Job: d.left, History: state.GlobalHistory()}
	} else if j, moves := state.Move(d.u.Unit); moves && j.Kind == fsm.JobMove {
		cmd = &fsm.CancelMove{ID: j.ID, Reason: "the tenant lives in " + o.String() + " by the global directory, and is written there"}
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	result, rev, err := s.group.Propose(ctx, group.Proposal{Decided: term, Cmd: cmd})
	if err != nil || result.Refusal != nil {
		s.logger.Debug("what is here of a tenant that lives elsewhere was not given up yet", "tenant", d.u.Unit, "err", err, "refusal", result.Refusal)
		return
	}
	if _, ok := cmd.(*fsm.YieldTenant); ok {
		s.logger.Error("two groups had a tenant as their own; it lives elsewhere by the global directory, and was given up here: nodes keep aside what they were written of it", "tenant", d.u.Unit, "id", d.u.ID, "lives_in", o.String())
		s.events.add(proto.Event{Event: proto.EventTenantOrphaned, Tenant: fsm.TenantName(d.u.Unit), Problem: proto.OrphanYielded, Revision: rev})
	}
}
