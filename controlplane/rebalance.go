package controlplane

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"domicile/controlplane/loops/balance"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	defaultThreshold = 0.1
	defaultMoves     = 100
	// weighTimeout bounds the wait for the sizes of a node's units, and weighAtOnce how
	// many nodes are asked at once: each may tell of very many.
	weighTimeout = 10 * time.Second
	weighAtOnce  = 8
)

// rebalance plans which tenants go from which nodes to which, so that each node has its
// share of the bytes of its region, and begins that (B3).
func (s *Server) rebalance(w http.ResponseWriter, c *change) error {
	var body proto.Rebalance
	if err := c.decode(&body); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if err := checkRebalance(&body); err != nil {
		return err
	}
	if c.replayed {
		return s.rebalanceAgain(w, c)
	}
	state := s.group.State()
	regions, err := s.regionsToBalance(state, body.Region)
	if err != nil {
		return err
	}
	if state.Recovering() {
		return refusal(&fsm.Refusal{Code: fsm.CodeRecovering, Text: "the directory is being recovered; nothing is moved before that is done"})
	}
	plan, moves := s.planBalance(c.Context(), state, regions, &body)
	if body.DryRun || len(moves) == 0 {
		httpserve.WriteJSON(w, http.StatusOK, plan)
		return nil
	}
	result, err := s.propose(w, c, &fsm.BeginRebalance{Moves: moves})
	if err != nil {
		return err
	}
	s.logger.Info("a rebalance has begun", "move", result.Job.String(), "moves", len(moves))
	plan.ID = result.Job
	httpserve.WriteJSON(w, http.StatusAccepted, plan)
	return nil
}

// rebalanceAgain answers a request whose key began a rebalance.
func (s *Server) rebalanceAgain(w http.ResponseWriter, c *change) error {
	result, err := s.propose(w, c, &fsm.BeginRebalance{})
	if err != nil {
		return err
	}
	state, id := s.group.State(), s.jobOf(c, result)
	out := proto.RebalancePlan{ID: id, Moves: []proto.PlannedMove{}, Nodes: []proto.NodeShare{}, Left: []string{}}
	if j, ok := state.Job(id); ok {
		out.Moves = plannedMoves(state, j)
	}
	httpserve.WriteJSON(w, http.StatusAccepted, out)
	return nil
}

func checkRebalance(body *proto.Rebalance) error {
	if t := body.Threshold; t == nil {
		body.Threshold = new(float64)
		*body.Threshold = defaultThreshold
	} else if !(*t >= 0 && *t <= 10) {
		return badRequest("threshold is a share from 0 to 10 of what a node should hold, such as 0.1")
	}
	if m := body.Max; m == nil {
		body.Max = new(int)
		*body.Max = defaultMoves
	} else if *m < 1 || *m > fsm.MaxRebalance {
		return badRequest("max is a number of moves from 1 to %d", fsm.MaxRebalance)
	}
	return nil
}

// regionsToBalance gives the region that was named, or all that have nodes here.
func (s *Server) regionsToBalance(state *fsm.State, named *fsm.RegionName) ([]fsm.RegionName, error) {
	if named != nil {
		if err := s.ownRegion(*named); err != nil {
			return nil, err
		}
		if !hasNodes(state, *named) {
			return nil, refusal(&fsm.Refusal{Code: fsm.CodeRegionUnknown, Fields: map[string]string{"region": string(*named)},
				Text: "no node is in region " + string(*named) + "; record one there first, or name another region"})
		}
		return []fsm.RegionName{*named}, nil
	}
	var all []fsm.RegionName
	for n := range state.Nodes() {
		if !state.KeepsOwn(n.Region) {
			all = append(all, n.Region)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// planBalance plans region by region: nothing moves from one to another.
func (s *Server) planBalance(ctx context.Context, state *fsm.State, regions []fsm.RegionName, body *proto.Rebalance) (proto.RebalancePlan, []fsm.Target) {
	out := proto.RebalancePlan{Moves: []proto.PlannedMove{}, Nodes: []proto.NodeShare{}, Left: []string{}}
	var targets []fsm.Target
	told := s.weighNodes(ctx, state, regions)
	for _, region := range regions {
		in := balance.Input{Threshold: *body.Threshold, MaxMoves: *body.Max - len(targets)}
		s.balanceInput(&in, state, region, told)
		if in.MaxMoves == 0 {
			out.Left = append(out.Left, "region "+string(region)+" was not looked at: the plan holds as many moves as were asked for")
			continue
		}
		plan := balance.Make(in)
		for _, m := range plan.Moves {
			tenant, _, _ := m.Unit.Split()
			out.Moves = append(out.Moves, proto.PlannedMove{Tenant: tenant, From: m.From, To: m.To, Bytes: m.Bytes, SwitchOver: m.SwitchOver, Why: m.Why})
			targets = append(targets, fsm.Target{Unit: m.Unit, ID: m.ID, Node: m.To})
		}
		for _, n := range plan.Nodes {
			out.Nodes = append(out.Nodes, proto.NodeShare{Node: n.Name, Region: region, Bytes: n.Bytes, Ideal: n.Ideal, After: n.After,
				Units: n.Units, UnitsAfter: n.UnitsAfter, Note: n.Note})
		}
		out.Left = append(out.Left, plan.Left...)
	}
	return out, targets
}

// weighed is what a node told of its units and its disk.
type weighed struct {
	sizes map[fsm.UnitName]uint64 // nil: it did not answer
	free  uint64
}

// weighNodes asks the nodes of regions for the sizes of all that they hold.
func (s *Server) weighNodes(ctx context.Context, state *fsm.State, regions []fsm.RegionName) map[fsm.NodeName]weighed {
	told := make(map[fsm.NodeName]weighed)
	var mu sync.Mutex
	var asked sync.WaitGroup
	turns := make(chan struct{}, weighAtOnce)
	for n := range state.Nodes() {
		if !slices.Contains(regions, n.Region) {
			continue
		}
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, weighTimeout)
			defer cancel()
			one := weighed{}
			if stats, err := s.nodes.stats(ctx, at(n)); err == nil {
				one.free = stats.Free
				one.sizes, _ = s.nodes.sizes(ctx, at(n)) // nil where it does not tell
			}
			mu.Lock()
			defer mu.Unlock()
			told[n.Name] = one
		})
	}
	asked.Wait()
	return told
}

// balanceInput puts together what a plan for a region is made of.
func (s *Server) balanceInput(in *balance.Input, state *fsm.State, region fsm.RegionName, told map[fsm.NodeName]weighed) {
	for n := range state.Nodes() {
		if n.Region != region {
			continue
		}
		node := balance.Node{Name: n.Name, Weight: n.Weight, Zone: n.Zone, Takes: true, Gives: true, Free: told[n.Name].free}
		of, standby := state.StandbyOf(n.Name)
		switch {
		case standby:
			node.Takes, node.Gives, node.Reason = false, false, "it is the standby of "+string(of)
		case n.Lost:
			node.Takes, node.Gives, node.Reason = false, false, "it was failed over and has not answered since"
		case told[n.Name].sizes == nil:
			node.Takes, node.Gives, node.Reason = false, false, "it does not answer: its tenants stay where they are"
		case n.Drain != nil:
			node.Takes, node.Reason = false, "it is being drained"
		case withoutLease(state, n):
			node.Takes, node.Reason = false, "it writes only under a lease, and none is given"
		}
		in.Nodes = append(in.Nodes, node)
		for u := range state.HeldBy(n.Name) {
			if u.Node != n.Name || u.State == fsm.UnitDeleting {
				continue
			}
			bytes, known := told[n.Name].sizes[u.Unit]
			unit := balance.Unit{UnitRef: fsm.UnitRef{Unit: u.Unit, ID: u.ID}, Node: n.Name, Bytes: bytes, Stuck: stuck(state, n, u)}
			if move, ok := state.Move(u.Unit); ok { // it weighs where it will be
				if to, _ := state.Node(move.Targets[0].Node); to == nil || to.Region != region {
					continue
				}
				unit.Node = move.Targets[0].Node
			}
			if !known && unit.Stuck == "" && n.Drain == nil {
				unit.Stuck = "its node does not tell its size"
			}
			for _, c := range u.Copies {
				if c.State == fsm.CopyInSync {
					unit.Copies = append(unit.Copies, c.Node)
				}
			}
			in.Units = append(in.Units, unit)
		}
	}
}

// stuck says why a rebalance does not move a unit, or "".
func stuck(state *fsm.State, n *fsm.Node, u *fsm.Placed) string {
	name, _, _ := u.Unit.Split()
	t, ok := state.Tenant(name)
	_, moving := state.Move(u.Unit)
	switch {
	case !ok || u.State == fsm.UnitCreating:
		return "being created"
	case t.Pinned && (n.Drain == nil || !n.Drain.Forced):
		return "pinned"
	case n.Drain != nil:
		return "" // the drain's
	case moving || u.State == fsm.UnitMoving:
		return "being moved"
	case !u.Promoted():
		return "being failed over"
	}
	return ""
}

// plannedMoves tells of the moves of a rebalance that have not begun.
func plannedMoves(state *fsm.State, j *fsm.Job) []proto.PlannedMove {
	moves := make([]proto.PlannedMove, 0, len(j.Targets))
	for _, t := range j.Targets {
		tenant, _, _ := t.Unit.Split()
		one := proto.PlannedMove{Tenant: tenant, To: t.Node}
		if p, ok := state.Placed(t.Unit); ok && p.ID == t.ID {
			one.From = p.Node
		}
		moves = append(moves, one)
	}
	return moves
}

// describeRebalance tells of a rebalance as of a move.
func (s *Server) describeRebalance(out *proto.Move, state *fsm.State, j *fsm.Job) {
	out.Step = proto.MoveDone
	if j.Ended == 0 {
		out.Step = proto.MoveCopying
		out.Waiting = "for the turns of the moves that have not begun (moves_per_node)"
	}
	if j.Ended == 0 || j.Refusal != nil {
		out.Planned = plannedMoves(state, j)
	}
	// Of its moves the kept ones tell what they copied.
	for m := range state.JobsBegun(fsm.Revision(j.ID)) {
		if m.Kind == fsm.JobMove && m.Group == j.ID {
			out.Bytes += min(m.Bytes, math.MaxUint64-out.Bytes)
		}
	}
}
