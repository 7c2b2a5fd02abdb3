package controlplane

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// blockedTold is how many tenants a drain's answer names that cannot leave, and
	// blockedLooked how many units are looked at for them.
	blockedTold   = 20
	blockedLooked = 2000
)

// drainNode begins to empty a node (N7); asked again it tells how far that is.
func (s *Server) drainNode(w http.ResponseWriter, c *change) error {
	name := fsm.NodeName(c.PathValue("node"))
	var body proto.Drain
	if err := c.decode(&body); err != nil {
		return err
	}
	if err := s.namedNode(c, name); err != nil {
		return err
	}
	if !c.replayed && !body.Force {
		if err := s.roomFor(c.Context(), name); err != nil {
			return err
		}
	}
	result, err := s.propose(w, c, &fsm.SetDrain{Node: name, Drain: true, Forced: body.Force})
	if err != nil {
		return err
	}
	s.changes.node(name)
	s.logger.Info("a node is being drained", "node", name, "forced", body.Force)
	n := result.Node
	if now, ok := s.group.State().Node(name); ok && now.Drain != nil {
		n = now
	}
	httpserve.WriteJSON(w, http.StatusAccepted, drainBegun(s.group.State(), n))
	return nil
}

// roomFor refuses a drain whose node holds more than the disks of the nodes take that may
// have it. What is not known refuses nothing.
func (s *Server) roomFor(ctx context.Context, name fsm.NodeName) error {
	state := s.group.State()
	home, ok := state.Node(name)
	if !ok || home.Drain != nil {
		return nil
	}
	var others []*fsm.Node
	for n := range state.Nodes() {
		if _, standby := state.StandbyOf(n.Name); n.Name != name && n.Region == home.Region && !standby && !n.Lost && n.Drain == nil && n.Weight > 0 {
			others = append(others, n)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	free := make([]uint64, len(others))
	var held uint64
	var asked sync.WaitGroup
	asked.Go(func() {
		if stats, err := s.nodes.stats(ctx, at(home)); err == nil {
			held = stats.Disk
		}
	})
	for i, n := range others {
		asked.Go(func() {
			if stats, err := s.nodes.stats(ctx, at(n)); err == nil {
				free[i] = stats.Free
			}
		})
	}
	asked.Wait()
	if len(others) == 0 || slices.Contains(free, 0) {
		return nil // Apply says what is missing, or a disk is not known
	}
	sum := uint64(0)
	for _, f := range free {
		sum += min(f, 1<<60) / uint64(len(others)) // of many large disks the sum would not fit
	}
	if per := (held + held/10) / uint64(len(others)); per <= sum {
		return nil
	}
	e := httpserve.Errorf(proto.Status(fsm.CodeNoRoom), fsm.CodeNoRoom,
		"node %s holds %d bytes, and the other nodes of its region that may hold tenants have too little free on their disks; "+
			"record another node there, make room, or force it, which empties the node as far as that goes", name, held)
	e.Fields = map[string]any{"node": name, "region": home.Region, "held_bytes": held}
	return e
}

// getDrain tells how far a drain is.
func (s *Server) getDrain(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.NodeName(r.PathValue("node"))
	if err := s.nodeRegion(r); err != nil {
		return err
	}
	n, err := draining(state, name)
	switch {
	case err != nil:
		return err
	case !ofRegion(r, n):
		return unknownNode(r, name)
	}
	out := proto.DrainState{DrainBegun: drainBegun(state, n), State: proto.Draining, Force: n.Drain.Forced, Since: timeOf(n.Drain.Since)}
	out.Primaries, out.Copies = state.NodeHolds(name)
	if out.Left == 0 {
		out.State = proto.Drained
	}
	out.Moving, out.Blocked = s.blocked(state, n)
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// draining gives a node that is being drained, or the answer that there is none.
func draining(state *fsm.State, name fsm.NodeName) (*fsm.Node, error) {
	if !fsm.ValidName(string(name)) {
		return nil, badName("node", string(name))
	}
	fields := map[string]string{"node": string(name)}
	n, ok := state.Node(name)
	switch {
	case !ok:
		return nil, refusal(&fsm.Refusal{Code: fsm.CodeNodeUnknown, Text: "no node is called " + string(name), Fields: fields})
	case n.Drain == nil:
		return nil, refusal(&fsm.Refusal{Code: proto.CodeNotDraining, Text: "node " + string(name) + " is not being drained", Fields: fields})
	}
	return n, nil
}

// endDrain ends a drain: the node takes tenants again. What has left it stays away.
func (s *Server) endDrain(w http.ResponseWriter, c *change) error {
	name := fsm.NodeName(c.PathValue("node"))
	if err := c.none(); err != nil {
		return err
	}
	if err := s.namedNode(c, name); err != nil {
		return err
	}
	if !c.replayed {
		if _, err := draining(s.group.State(), name); err != nil {
			return err
		}
	}
	if _, err := s.propose(w, c, &fsm.SetDrain{Node: name}); err != nil {
		return err
	}
	s.changes.everything() // copies may be placed there again
	s.logger.Info("the drain of a node has ended", "node", name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func drainBegun(state *fsm.State, n *fsm.Node) proto.DrainBegun {
	out := proto.DrainBegun{Node: n.Name}
	if n.Drain != nil {
		out.ID, out.Units = n.Drain.ID, int(n.Drain.Units)
	}
	for range state.HeldBy(n.Name) {
		out.Left++
	}
	return out
}

// blocked counts the primaries of a drained node that are on their way, and names units
// that something keeps there.
func (s *Server) blocked(state *fsm.State, n *fsm.Node) (moving int, blocked []proto.TenantFailed) {
	blocked = []proto.TenantFailed{}
	looked := 0
	for u := range state.HeldBy(n.Name) {
		move, moves := state.Move(u.Unit)
		if u.Node == n.Name && (moves || u.State == fsm.UnitMoving) {
			moving++
		}
		if looked++; looked > blockedLooked || len(blocked) == blockedTold {
			continue
		}
		why := ""
		switch {
		case u.Node != n.Name:
			why = copyStays(state, u, n.Name)
		case moves:
			why = move.Problem
		case u.State != fsm.UnitMoving:
			why = s.primaryStays(state, n, u)
		}
		if why != "" {
			tenant, _, _ := u.Unit.Split()
			blocked = append(blocked, proto.TenantFailed{Tenant: tenant, Why: why})
		}
	}
	return moving, blocked
}

// primaryStays says what keeps a primary on a node that is drained, or "".
func (s *Server) primaryStays(state *fsm.State, n *fsm.Node, u *fsm.Placed) string {
	name, _, _ := u.Unit.Split()
	t, ok := state.Tenant(name)
	switch {
	case !ok || u.State == fsm.UnitDeleting:
		return "it is being removed"
	case u.State == fsm.UnitCreating:
		return "it is being created"
	case n.Lost:
		return "node " + string(n.Name) + " was failed over and has not answered since, and the tenant has no copy that could take over"
	case s.isSilent(n.Name):
		return "node " + string(n.Name) + " does not answer"
	case t.Pinned && !n.Drain.Forced:
		return "it is pinned: unpin it, move it by hand, or force the drain"
	case !u.Promoted():
		return "node " + string(n.Name) + " is being promoted for it"
	case slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyInSync && remains(state, c.Node) }):
		return "" // its turn comes
	case state.CopiesWanted(u) == 0:
		_, _, no := state.MayMove(&fsm.BeginMove{Unit: u.Unit, Cause: fsm.CauseDrain, Forced: n.Drain.Forced})
		if no != nil {
			return no.Text
		}
		return ""
	}
	if why := s.unreplicated(state, u); why != "" {
		return "no copy can take it over yet: " + why
	}
	return "its copies are on nodes that are being drained too, or are lost"
}

// isSilent reports whether a node did not answer this leader of late.
func (s *Server) isSilent(n fsm.NodeName) bool {
	st, ok := s.keeper.Node(n)
	return ok && st.Silent
}

// copyStays says what keeps a copy on a node that is drained, or "": nobody else may
// have it.
func copyStays(state *fsm.State, u *fsm.Placed, on fsm.NodeName) string {
	i := slices.IndexFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == on })
	if i < 0 || !u.Copies[i].State.Replica() && u.Copies[i].State != fsm.CopyFormer || slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Replica() && remains(state, c.Node) }) {
		return ""
	}
	tenant, _, _ := u.Unit.Split()
	verdicts, _ := state.Explain(tenant, fsm.RoleReplica)
	if slices.ContainsFunc(verdicts, func(v fsm.Verdict) bool { return v.May && v.Node != on }) {
		return ""
	}
	return "no other node of its region may hold its copy"
}

// remains reports whether a node is neither drained nor lost.
func remains(state *fsm.State, name fsm.NodeName) bool {
	n, ok := state.Node(name)
	return ok && n.Drain == nil && !n.Lost
}
