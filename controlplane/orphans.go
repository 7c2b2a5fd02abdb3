package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/controlplane/global"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// orphansEvery is how often, where Config says nothing else, a region's leader compares.
	// What differs is believed the second time: a create or delete may be between the two.
	orphansEvery = time.Minute
	// orphansKept bounds what is told.
	orphansKept = 1000
)

// orphans are the tenants of a region that the global directory does not have as the
// region has them, as its leader found in its term: after one of the two was recovered from
// a backup, or lost what the other has.
type orphans struct {
	mu    sync.Mutex
	seen  map[fsm.TenantName]proto.OrphanedTenant // in the last pass
	found []proto.OrphanedTenant                  // in the last two, by name
}

// keepOrphans looks for orphans while this server leads a region's group, and settles what
// can be: a tenant whose name is free gets it.
func (s *Server) keepOrphans(ctx context.Context, _ uint64) error {
	if s.config.Region == "" {
		return nil
	}
	s.orphans.pass(nil)
	defer s.orphans.pass(nil)
	tick := time.NewTicker(s.config.OrphansEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		d := s.globalCopy()
		up, _ := s.group.State().Upstream()
		if d == nil || d.Position().History != up.History || s.global.Age() > freshFor || s.group.State().Recovering() {
			continue // what it does not tell of may be there
		}
		for _, o := range s.orphans.pass(compareHomes(s.group.State(), d, s.config.Region)) {
			s.logger.Error("the region's directory and the global one differ about a tenant", "tenant", o.Tenant, "kind", o.Kind, "id", o.ID, "home", o.Home)
			s.events.add(proto.Event{Event: proto.EventTenantOrphaned, Tenant: o.Tenant, Problem: o.Kind, Revision: s.group.State().Revision()})
		}
		for _, o := range s.orphans.list() {
			if o.Kind == proto.OrphanUnknown {
				s.registerName(ctx, o)
			}
		}
	}
}

// compareHomes finds the tenants that the two directories do not agree about.
func compareHomes(state *fsm.State, d *global.Directory, own fsm.RegionName) map[fsm.TenantName]proto.OrphanedTenant {
	found := make(map[fsm.TenantName]proto.OrphanedTenant)
	busy := underWay(state, d)
	add := func(o proto.OrphanedTenant) {
		if !busy[o.Tenant] && len(found) < orphansKept {
			found[o.Tenant] = o
		}
	}
	for t := range state.Tenants("", "") {
		p, ok := state.Placed(fsm.UnitName(t.Name))
		if !ok || p.State != fsm.UnitActive || p.Job != 0 {
			continue
		}
		where, known := d.Tenant(t.Name)
		switch region := where.Region; {
		case !known:
			add(proto.OrphanedTenant{Tenant: t.Name, ID: p.ID, Kind: proto.OrphanUnknown})
		case !where.Home || region != own || where.ID != 0 && where.ID != p.ID:
			add(proto.OrphanedTenant{Tenant: t.Name, ID: p.ID, Kind: proto.OrphanElsewhere, Home: &region})
		}
	}
	for name, where := range d.Tenants("", "") {
		if _, here := state.Tenant(name); !here && where.Home && where.Region == own {
			region := where.Region
			add(proto.OrphanedTenant{Tenant: name, Kind: proto.OrphanMissing, Home: &region})
		}
	}
	for j := range state.Unsettled() {
		if where, known := d.Tenant(j.Tenant); !known || where.ID != 0 && where.ID != j.Unit {
			one := proto.OrphanedTenant{Tenant: j.Tenant, ID: j.Unit, Kind: proto.OrphanDeparted}
			if known {
				one.Home = &where.Region
			}
			delete(busy, j.Tenant) // by the task of that move alone
			add(one)
		}
	}
	return found
}

// underWay gives the tenants that a job of the global group may be at.
func underWay(state *fsm.State, d *global.Directory) map[fsm.TenantName]bool {
	busy := make(map[fsm.TenantName]bool)
	for t := range state.Tasks() {
		if fsm.SameHistory(fsm.Revision(t.Job), d.Revision()) {
			busy[t.Tenant] = true // those of older histories are nobody's any more
		}
	}
	return busy
}

// pass takes what a pass has found, and gives what is believed now and was not before.
func (o *orphans) pass(now map[fsm.TenantName]proto.OrphanedTenant) (fresh []proto.OrphanedTenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []proto.OrphanedTenant
	for name, one := range now {
		before, twice := o.seen[name]
		if !twice || before.ID != one.ID || before.Kind != one.Kind {
			continue
		}
		found = append(found, one)
		if !slices.ContainsFunc(o.found, func(old proto.OrphanedTenant) bool {
			return old.Tenant == name && old.ID == one.ID && old.Kind == one.Kind
		}) {
			fresh = append(fresh, one)
		}
	}
	byName := func(a, b proto.OrphanedTenant) int { return strings.Compare(string(a.Tenant), string(b.Tenant)) }
	slices.SortFunc(found, byName)
	slices.SortFunc(fresh, byName)
	o.seen, o.found = now, found
	return fresh
}

func (o *orphans) list() []proto.OrphanedTenant {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]proto.OrphanedTenant{}, o.found...)
}

// registerName has the name of a tenant kept for it. It is asked for as any create in the region
// is: the region answers that it has it, under which id, and so the name is its (§3.9.1).
func (s *Server) registerName(ctx context.Context, o proto.OrphanedTenant) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	region := s.config.Region
	body, err := json.Marshal(proto.PutTenant{Region: &region})
	if err != nil {
		panic("BUG: the body of a create is no JSON: " + err.Error())
	}
	q := s.towards(&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/_shard/tenants/" + string(o.Tenant)}, Header: http.Header{"Content-Type": {"application/json"}}})
	resp, err := s.links.ask(ctx, proto.GlobalScope, s.config.Global, q, body)
	if err != nil {
		s.logger.Warn("the name of a tenant that the global directory does not know was not asked for", "tenant", o.Tenant, "err", err)
		return
	}
	resp.Body.Close()
	s.logger.Info("the name of a tenant that the global directory did not know was asked for", "tenant", o.Tenant, "id", o.ID, "status", resp.StatusCode)
}

// dropOrphan has what is here of a tenant go that has departed, by an operator's word that it
// is not needed: it may be all that there is.
func (s *Server) dropOrphan(w http.ResponseWriter, c *change) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request, "region"); err != nil {
		return err
	}
	name, state := fsm.TenantName(c.PathValue("tenant")), s.group.State()
	if !fsm.ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	home := s.homesNow(state)
	if home == nil && !c.replayed {
		e := unreachable(owner{global: true}, nil)
		e.Text = fmt.Sprintf("whether tenant %s lives elsewhere is asked of the global directory, of which this server has no current copy: nothing was done, ask again once the link is back", name)
		return e
	}
	cmd := &fsm.SettleTask{History: state.GlobalHistory()}
	for j := range state.Unsettled() {
		if j.Tenant != name || home == nil || !s.orphans.has(proto.OrphanedTenant{Tenant: j.Tenant, ID: j.Unit, Kind: proto.OrphanDeparted}) {
			continue
		}
		if _, id, known := home(name); !known || id != 0 && id != j.Unit { // it may be known again since it was listed
			cmd.Job = j.Task
		}
	}
	if cmd.Job == 0 && !c.replayed {
		return refusal(&fsm.Refusal{Code: fsm.CodeTenantUnknown, Fields: map[string]string{"tenant": string(name)},
			Text: fmt.Sprintf("of tenant %s nothing is listed here as departed: GET /_shard/tasks/orphans lists what is, each minute anew; what is listed otherwise is not removed so", name)})
	}
	if _, err := s.propose(w, c, cmd); err != nil {
		return err
	}
	s.logger.Warn("what is left of a tenant that has departed is removed, as an operator asked", "tenant", name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// has reports whether an orphan is believed, wherever its name is.
func (o *orphans) has(one proto.OrphanedTenant) bool {
	return slices.ContainsFunc(o.list(), func(found proto.OrphanedTenant) bool {
		return found.Tenant == one.Tenant && found.ID == one.ID && found.Kind == one.Kind
	})
}

// listOrphans tells what the leader has found.
func (s *Server) listOrphans(w http.ResponseWriter, _ *http.Request, _ *fsm.State) error {
	httpserve.WriteJSON(w, http.StatusOK, s.orphans.list())
	return nil
}
