package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// orphansTimeout bounds the wait for what nodes hold.
const orphansTimeout = 10 * time.Second

// showRecovery keeps what is shown of a recovery, and tells that one runs, and that
// it has ended.
func (s *shift) showRecovery(state *fsm.State, now fsm.Millis) {
	v, ok := s.memory.Recovery(state, now)
	if !ok {
		s.recovery.Store(nil)
		return
	}
	if s.recovery.Swap(&v) == nil {
		r := state.Recovery()
		scope, _ := state.Scope()
		s.logger.Warn("the directory is being recovered: every node is read before anything is granted", "history", scope.History, "cause", r.Cause.String(), "term", s.term)
		s.events.add(proto.Event{Event: proto.EventRecoveryBegan, Term: s.term, Revision: state.Revision()})
	}
}

func (s *shift) recovered() {
	state := s.group.State()
	r := state.Recovery()
	s.logger.Warn("the directory was recovered", "units", r.Units, "moved", r.Moved, "lost", r.Lost, "rehomed", r.Rehomed, "written_off", r.WrittenOff, "written_off_regions", r.WrittenOffRegions)
	s.events.add(proto.Event{Event: proto.EventRecoveryEnded, Term: s.term, Revision: state.Revision()})
}

// getRecovery tells of the directory's last recovery. Once it has ended, the nodes
// are asked what they hold that the directory does not know.
func (s *Server) getRecovery(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	scope, _ := state.Scope()
	out := proto.Recovery{Recovering: state.Recovering(), History: scope.History}
	if last := state.Recovery(); last != nil {
		describeRecovery(&out, last)
		if v := s.jobs.recovery.Load(); v != nil {
			describeView(&out, v)
		} else if s.group.Leader().Self && !last.Running() {
			ctx, cancel := context.WithTimeout(r.Context(), orphansTimeout)
			defer cancel()
			s.lookForOrphans(ctx, state, &out)
		}
	}
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

func describeRecovery(out *proto.Recovery, r *fsm.Recovery) {
	out.Cause, out.Began, out.Ended, out.Raised = r.Cause.String(), int64(r.Began), int64(r.Ended), r.Raised
	out.WrittenOff, out.Units, out.Moved, out.Lost = r.WrittenOff, r.Units, r.Moved, r.Lost
	out.WrittenOffRegions, out.Rehomed = r.WrittenOffRegions, r.Rehomed
	for _, u := range r.LostUnits {
		tenant, _, _ := u.Unit.Split()
		out.LostUnits = append(out.LostUnits, proto.LostUnit{Tenant: tenant, Unit: u.Unit, ID: u.ID})
	}
}

func describeView(out *proto.Recovery, v *loops.RecoveryView) {
	out.Problem = v.Problem
	for _, n := range v.Nodes {
		out.Nodes = append(out.Nodes, proto.RecoveryNode{Node: n.Node, State: string(n.State), LeftMS: n.LeftMS, Problem: n.Problem})
	}
	for _, g := range v.Regions {
		out.Regions = append(out.Regions, proto.RecoveryRegion{Region: g.Region, State: string(g.State), Tenants: g.Tenants, Problem: g.Problem})
	}
	for _, o := range v.Orphans {
		out.Orphans = append(out.Orphans, describeOrphan(&o))
	}
	for _, o := range v.Damaged {
		out.Damaged = append(out.Damaged, describeOrphan(&o))
	}
}

func describeOrphan(o *loops.Orphan) proto.Orphan {
	d := proto.Orphan{Unit: o.Unit, ID: o.ID, Node: o.Node, Position: fmt.Sprintf("%d:%d", o.Epoch, o.Seq), Role: "replica", Problem: o.Problem}
	if o.Primary {
		d.Role = "primary"
	}
	return d
}

// homesAge is how old a region's copy of the global directory may be where its own is being
// recovered.
const homesAge = 5 * time.Second

// tenantsElsewhere tells a recovery of a region's directory which tenants have moved away meanwhile:
// what the region's nodes hold of these is not theirs to write (I1). A copy that may be from
// before one moved tells nothing: the global group is waited for, or written off.
func (s *Server) tenantsElsewhere() *loops.Homes {
	if s.global == nil || len(s.config.Global) == 0 {
		return nil
	}
	const orWithout = "; or write it off (region global), so that the region goes by the copy that it has kept: only where no tenant has moved away from here since that is from"
	d := s.globalCopy()
	up, _ := s.group.State().Upstream()
	forgone := s.group.State().Recovery().WithoutRegion(fsm.GlobalGroup)
	switch {
	case d == nil && forgone:
		return nil
	case d == nil:
		return &loops.Homes{Problem: "this server has no copy of the global directory, which says which tenants have moved to other regions: a server of --global has to be reached" + orWithout}
	case d.Position().History < up.History && !forgone:
		return &loops.Homes{Problem: "the global directory was recovered, and this server's copy is from before: what it says of where tenants live may be over. " +
			"Where the global directory is being recovered at this time, and waits for this region, write this region off there"}
	case s.global.Age() > homesAge && !forgone:
		return &loops.Homes{Problem: "the global directory, which says which tenants have moved to other regions, is asked for anew: a server of --global has to be reached" + orWithout}
	}
	current := s.global.Age() <= homesAge
	here := func(t fsm.TenantName, id fsm.UnitID) bool {
		where, known := d.Tenant(t)
		return current && known && where.Home && where.Region == s.config.Region && where.ID == id
	}
	return &loops.Homes{Here: here, Elsewhere: func(t fsm.TenantName, id fsm.UnitID, held bool) bool {
		where, known := d.Tenant(t)
		switch {
		case !known: // deleted since; unless it was just made, and its name is not told of yet
			task, made := s.group.State().Task(fsm.JobID(id))
			return current && !(held && made && task.Kind == fsm.TaskCreate)
		case where.Home && where.Region == s.config.Region:
			return current && where.ID != 0 && where.ID != id // made again
		}
		return true
	}}
}

// globalNames tells the executor of a region what its copy of the global directory says.
func (s *Server) globalNames() *loops.Names {
	d := s.globalCopy()
	if d == nil {
		return nil
	}
	asOf := s.now() - fsm.Millis(s.global.Age().Milliseconds()) - 1
	return &loops.Names{History: d.Position().History, AsOf: asOf, Home: func(t fsm.TenantName, id fsm.UnitID) (here, known bool) {
		where, known := d.Tenant(t)
		known = known && (where.ID == 0 || where.ID == id)
		return known && where.Home && where.Region == s.config.Region, known
	}}
}

// mayAdopt says why a region does not take a tenant in that its nodes hold: names are the
// global group's, and one of another home is written there.
func (s *Server) mayAdopt(name fsm.TenantName, id fsm.UnitID) error {
	if s.global == nil || len(s.config.Global) == 0 {
		return nil
	}
	d := s.globalCopy()
	if d == nil {
		return errNoGlobal()
	}
	where, known := d.Tenant(name)
	up, _ := s.group.State().Upstream()
	switch {
	case s.global.Age() > homesAge || d.Position().History < up.History:
		e := unreachable(owner{global: true}, nil)
		e.Text = fmt.Sprintf("whether tenant %s lives here is asked of the global directory, of which this server has an old copy alone: it may have moved away, or been deleted, since; nothing was done, ask again once the link is back", name)
		return e
	case known && where.Home && where.Region == s.config.Region && (where.ID == 0 || where.ID == id):
		return nil
	case known && where.Home && where.Region == s.config.Region:
		return refusal(&fsm.Refusal{Code: fsm.CodeTenantExists, Fields: map[string]string{"tenant": string(name)},
			Text: fmt.Sprintf("tenant %s has id %d by the global directory: under id %d it was deleted", name, where.ID, id)})
	case known:
		return refusal(&fsm.Refusal{Code: fsm.CodeRegionElsewhere, Fields: map[string]string{"tenant": string(name), "region": string(where.Region)},
			Text: fmt.Sprintf("tenant %s lives in region %q by the global directory: what a node of this region holds is from before", name, where.Region)})
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeTenantUnknown, Fields: map[string]string{"tenant": string(name)},
		Text: fmt.Sprintf("the global directory has no tenant %s: it was deleted, or the global directory is from before", name)})
}

// lookForOrphans asks every node what it holds.
func (s *Server) lookForOrphans(ctx context.Context, state *fsm.State, out *proto.Recovery) {
	held, unread := s.heldByAll(ctx, state)
	regional := s.config.Region != "" // ids are the global directory's
	out.Unread = unread
	for _, h := range held {
		if p, ok := state.Placed(h.Unit); ok && p.ID == h.ID && placedOn(p, h.node) {
			continue
		}
		if regional || fsm.Revision(h.ID) < state.Recovery().ID {
			out.Orphans = append(out.Orphans, proto.Orphan{Unit: h.Unit, ID: h.ID, Node: h.node, Position: h.Position, Role: h.Role, Problem: h.Error})
		}
	}
}

func placedOn(p *fsm.Placed, n fsm.NodeName) bool {
	return p.Node == n || slices.ContainsFunc(p.Copies, func(c fsm.Copy) bool { return c.Node == n })
}

// heldOn is a unit on a node.
type heldOn struct {
	proto.HeldUnit
	node fsm.NodeName
}

// heldByAll asks every node what it holds; it names those that did not answer.
func (s *Server) heldByAll(ctx context.Context, state *fsm.State) (all []heldOn, unread []fsm.NodeName) {
	var mu sync.Mutex
	var work sync.WaitGroup
	for n := range state.Nodes() {
		work.Go(func() {
			call := nodeCall{nodes: s.nodes, node: at(n)}
			held, _, ok := call.held(ctx, orphansTimeout)
			mu.Lock()
			defer mu.Unlock()
			if !ok {
				unread = append(unread, n.Name)
			}
			for _, h := range held {
				all = append(all, heldOn{h, n.Name})
			}
		})
	}
	work.Wait()
	slices.Sort(unread)
	slices.SortFunc(all, func(a, b heldOn) int {
		return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.node, b.node))
	})
	return all, unread
}

// forgoNode takes an operator's word that the recovery goes on without a node, or a region.
func (s *Server) forgoNode(w http.ResponseWriter, c *change) error {
	var body proto.RecoveryWriteOff
	if err := c.decode(&body); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if (body.Node == "") == (body.Region == "") {
		return badRequest("give node, or region")
	}
	state := s.group.State()
	if !state.Recovering() && !c.replayed {
		return errNotRecovering()
	}
	if _, err := s.propose(w, c, &fsm.ForgoNode{Recovery: state.Recovery().ID, Node: body.Node, Region: body.Region}); err != nil {
		return err
	}
	s.logger.Warn("a node or region was written off for the recovery", "node", body.Node, "region", body.Region)
	httpserve.WriteJSON(w, http.StatusOK, body)
	return nil
}

func errNotRecovering() error {
	return httpserve.Errorf(http.StatusConflict, proto.CodeGroupConflict, "the directory is not being recovered")
}

// adopt takes a unit into the directory that a node holds and no entry knows of.
func (s *Server) adopt(w http.ResponseWriter, c *change) error {
	var body proto.Adopt
	if err := c.decode(&body); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	cmd := &fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: fsm.UnitName(body.Tenant), ID: body.ID}, Node: body.Node}
	ctx, cancel := context.WithTimeout(c.Context(), 2*orphansTimeout)
	defer cancel()
	if !c.replayed {
		if err := s.mayAdopt(body.Tenant, body.ID); err != nil {
			return err
		}
		held, _ := s.heldByAll(ctx, s.group.State())
		there := false
		for _, h := range held {
			if epoch, _, ok := parsePosition(h.Position); ok && h.Unit == cmd.Unit && h.ID == cmd.ID {
				cmd.Epoch = max(cmd.Epoch, epoch)
			}
			switch {
			case h.Unit != cmd.Unit || h.ID != cmd.ID:
			case h.node == cmd.Node:
				there = h.Error == ""
			default:
				cmd.Others = append(cmd.Others, h.node)
			}
		}
		if !there {
			return refusal(&fsm.Refusal{Code: fsm.CodeTenantUnknown, Fields: map[string]string{"node": string(body.Node), "tenant": string(body.Tenant)},
				Text: fmt.Sprintf("node %s does not answer that it holds %s under id %d; GET /_shard/recovery lists what can be adopted", body.Node, body.Tenant, body.ID)})
		}
	}
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return err
	}
	s.logger.Warn("a tenant was adopted", "tenant", body.Tenant, "node", body.Node)
	s.waitUnits(ctx, []fsm.UnitRef{cmd.UnitRef}, func(_ *fsm.State, u *fsm.Placed) bool { return u.Promoted() })
	if err := s.writable(c, body.Tenant); err != nil {
		return err
	}
	httpserve.WriteJSON(w, http.StatusCreated, describeCreated(s.group.State(), result))
	return nil
}
