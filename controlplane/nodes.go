package controlplane

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"domicile/controlplane/lease"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// putNode records a node or changes one (N1 to N5).
func (s *Server) putNode(w http.ResponseWriter, c *change) error {
	name := fsm.NodeName(c.PathValue("node"))
	var put proto.PutNode
	if err := c.decode(&put); err != nil {
		return err
	}
	if err := checkNode(name, &put); err != nil {
		return err
	}
	if !c.replayed {
		if err := s.changesDirectory(name, put.Region); err != nil {
			return err
		}
	}
	if err := s.nodeQuery(c.Request, put.Region); err != nil {
		return err
	}
	cmd := &fsm.PutNode{Name: name, Addr: put.Addr, Token: put.Token, Region: put.Region,
		Zone: put.Zone, Standby: put.Standby, Weight: put.Weight, Exclusive: true}
	if !c.replayed {
		if err := s.askNode(c.Context(), s.group.State(), cmd); err != nil {
			return s.standbyElsewhere(c, cmd, err)
		}
	}
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return s.standbyElsewhere(c, cmd, err)
	}
	status, text := http.StatusOK, "node changed"
	if result.Created {
		status, text = http.StatusCreated, "node recorded"
	}
	n := result.Node
	s.logger.Info(text, "node", n.Name, "addr", n.Addr, "region", string(n.Region), "zone", string(n.Zone))
	if standby, ok := s.group.State().Node(n.Standby); ok && n.Zone != "" && standby.Zone == n.Zone {
		// Accepted all the same (C5): a zone that is lost takes both with it.
		s.logger.Warn("a node's standby is in its own zone", "node", n.Name, "standby", standby.Name, "zone", string(n.Zone))
	}
	unreplicated := []fsm.TenantName{}
	if put.Standby != nil && !result.Replayed {
		unreplicated = s.pairUp(c.Context(), n)
	}
	httpserve.WriteJSON(w, status, proto.NodeRecorded{
		Node: n.Name, Addr: n.Addr, Region: n.Region, Zone: n.Zone, Unreplicated: unreplicated})
	return nil
}

// checkNode refuses what no node can have, and brings its address into the
// form that is recorded.
func checkNode(name fsm.NodeName, put *proto.PutNode) error {
	switch {
	case !fsm.ValidName(string(name)):
		return badName("node", string(name))
	case put.Region != nil && *put.Region != "" && !fsm.ValidName(string(*put.Region)):
		return badName("region", string(*put.Region))
	case put.Zone != nil && *put.Zone != "" && !fsm.ValidName(string(*put.Zone)):
		return badName("zone", string(*put.Zone))
	case put.Standby != nil && *put.Standby != "" && !fsm.ValidName(string(*put.Standby)):
		return badName("standby", string(*put.Standby))
	case put.Token != nil && !tokenOK(*put.Token):
		return badRequest("the token is empty, or is not printable ASCII without spaces")
	}
	if put.Addr != nil {
		addr, err := nodeAddress(*put.Addr)
		if err != nil {
			return badRequest("addr %v", err)
		}
		put.Addr = &addr
	}
	return nil
}

func badName(what, name string) error {
	if len(name) > 2*fsm.MaxName {
		name = name[:2*fsm.MaxName] + "…"
	}
	return badRequest("%q is not the name of a %s: use 1 to 64 of a-z, 0-9, _ and -", name, what)
}

// tokenOK reports whether a token can be sent in a header.
func tokenOK(token string) bool {
	for i := 0; i < len(token); i++ {
		if token[i] <= 0x20 || token[i] >= 0x7f {
			return false
		}
	}
	return token != ""
}

// askNode asks a node before it is recorded (N5): a new one, and one whose
// address or token changes. The command then carries both as they were asked,
// so that what is recorded is what answered.
func (s *Server) askNode(ctx context.Context, state *fsm.State, cmd *fsm.PutNode) error {
	recorded, known := state.Node(cmd.Name)
	if known && cmd.Addr == nil && cmd.Token == nil {
		return nil
	}
	addr, token := cmd.Addr, cmd.Token
	if known && addr == nil {
		addr = &recorded.Addr
	}
	if known && token == nil {
		token = &recorded.Token
	}
	in := ""
	if !s.alone(state) {
		in = " in the directory of " + s.own().String()
	}
	switch {
	case addr == nil && token == nil:
		return badRequest("node %s is not recorded yet%s: its addr and its token are missing (CLI: --addr, --node-token)", cmd.Name, in)
	case addr == nil:
		return badRequest("node %s is not recorded yet%s: its addr is missing (CLI: --addr)", cmd.Name, in)
	case token == nil:
		return badRequest("node %s is not recorded yet%s: its token is missing (CLI: --node-token)", cmd.Name, in)
	}
	if err := standbyKnown(state, cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	stats, err := s.nodes.stats(ctx, nodeAt{name: cmd.Name, addr: *addr, token: *token})
	if err != nil {
		return err
	}
	if own, _ := s.ownName(); stats.Holder != nil && stats.Holder.Authority != own.Authority {
		return nodeElsewhere(cmd.Name, stats.Holder.Authority)
	}
	if stats.Lease && state.Settings().AutoFailover == 0 {
		return unwritable(cmd.Name, startOtherwise)
	}
	if other, ok := s.sameProcess(ctx, state, cmd.Name, stats.Boot); ok {
		return refusal(fsm.AddressTaken(cmd.Name, other))
	}
	cmd.Addr, cmd.Token = addr, token
	return nil
}

// nodeElsewhere refuses a node that belongs to another group (architecture §3.8.2).
func nodeElsewhere(name fsm.NodeName, authority string) error {
	e := httpserve.Errorf(proto.Status(proto.CodeNodeElsewhere), proto.CodeNodeElsewhere,
		"node %s belongs to %s and obeys no other group; nothing was recorded: it is given over by that group alone (regions adopt, return), "+
			"or by an operator's word on the node", name, authority)
	e.Fields = map[string]any{"node": name, "authority": authority}
	return e
}

// sameProcess finds another node that is the process boot: it asks all that are
// recorded, within statsTimeout. Apply sees that two have the same address, and not
// that two addresses lead to the same place.
func (s *Server) sameProcess(ctx context.Context, state *fsm.State, name fsm.NodeName, boot string) (fsm.NodeName, bool) {
	if boot == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	var asked sync.WaitGroup
	var found atomic.Pointer[fsm.Node]
	for n := range state.Nodes() {
		if n.Name == name {
			continue
		}
		asked.Go(func() {
			if told, err := s.nodes.stats(ctx, at(n)); err == nil && told.Boot == boot {
				found.Store(n)
			}
		})
	}
	asked.Wait()
	if n := found.Load(); n != nil {
		return n.Name, true
	}
	return "", false
}

// standbyKnown tells of an unknown standby before the node is asked.
func standbyKnown(state *fsm.State, cmd *fsm.PutNode) error {
	if cmd.Standby == nil || *cmd.Standby == "" || *cmd.Standby == cmd.Name {
		return nil
	}
	if _, ok := state.Node(*cmd.Standby); !ok {
		return refusal(&fsm.Refusal{Code: fsm.CodeStandbyUnknown,
			Text:   "no node is called " + string(*cmd.Standby) + "; record the standby first",
			Fields: map[string]string{"standby": string(*cmd.Standby)}})
	}
	return nil
}

// nodeQuery reads ?region=, which says whose directory a node's name belongs
// to. A region that keeps its own directory is not this one's to change.
func (s *Server) nodeQuery(r *http.Request, body *fsm.RegionName) error {
	query, err := parseQuery(r, "region")
	if err != nil {
		return err
	}
	if query.Has("region") {
		return s.ownRegion(fsm.RegionName(query.Get("region")))
	}
	if body != nil {
		return s.ownRegion(*body)
	}
	return nil
}

// namedNode checks what changes of a recorded node have in common: its name, and ?region=,
// where it must be: a node of another region has another one's name.
func (s *Server) namedNode(c *change, name fsm.NodeName) error {
	if err := s.nodeQuery(c.Request, nil); err != nil {
		return err
	}
	if !fsm.ValidName(string(name)) {
		return badName("node", string(name))
	}
	if n, ok := s.group.State().Node(name); ok && !c.replayed && !ofRegion(c.Request, n) {
		return unknownNode(c.Request, name)
	}
	return nil
}

// ofRegion reports whether a node is of the region of ?region=, where that is given.
func ofRegion(r *http.Request, n *fsm.Node) bool {
	query := r.URL.Query()
	return !query.Has("region") || fsm.RegionName(query.Get("region")) == n.Region
}

func unknownNode(r *http.Request, name fsm.NodeName) error {
	in := ""
	if query := r.URL.Query(); query.Has("region") {
		in = " in region " + strconv.Quote(query.Get("region"))
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeNodeUnknown, Text: "no node is called " + string(name) + in, Fields: map[string]string{"node": string(name)}})
}

// nodeRegion refuses a read that asks for the nodes of another directory.
func (s *Server) nodeRegion(r *http.Request) error {
	query := r.URL.Query()
	if !query.Has("region") {
		return nil
	}
	return s.ownRegion(fsm.RegionName(query.Get("region")))
}

func (s *Server) ownRegion(region fsm.RegionName) error {
	if region != "" && !fsm.ValidName(string(region)) {
		return badName("region", string(region))
	}
	if s.group.State().KeepsOwn(region) {
		return refusal(&fsm.Refusal{Code: fsm.CodeRegionElsewhere,
			Text:   "region " + string(region) + " keeps its own directory; ask a server or proxy of that region",
			Fields: map[string]string{"region": string(region)}})
	}
	return nil
}

// deleteNode forgets a node that holds nothing (N6), or writes one off.
func (s *Server) deleteNode(w http.ResponseWriter, c *change) error {
	var body proto.DeleteNode
	if err := c.decode(&body); err != nil {
		return err
	}
	name := fsm.NodeName(c.PathValue("node"))
	if err := s.namedNode(c, name); err != nil {
		return err
	}
	if _, err := s.propose(w, c, &fsm.DeleteNode{Name: name, Force: body.Force}); err != nil {
		return err
	}
	s.logger.Info("node deleted", "node", name, "written_off", body.Force)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listNodes(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	if err := s.nodeRegion(r); err != nil {
		return err
	}
	nodes := []proto.Node{}
	for n := range state.Nodes() {
		if ofRegion(r, n) {
			nodes = append(nodes, s.describeNode(state, n))
		}
	}
	httpserve.WriteJSON(w, http.StatusOK, nodes)
	return nil
}

func (s *Server) getNode(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.NodeName(r.PathValue("node"))
	if !fsm.ValidName(string(name)) {
		return badName("node", string(name))
	}
	if err := s.nodeRegion(r); err != nil {
		return err
	}
	n, ok := state.Node(name)
	if !ok || !ofRegion(r, n) {
		return unknownNode(r, name)
	}
	httpserve.WriteJSON(w, http.StatusOK, s.describeNode(state, n))
	return nil
}

func (s *Server) describeNode(state *fsm.State, n *fsm.Node) proto.Node {
	primaries, copies := state.NodeHolds(n.Name)
	status, known := s.keeper.Node(n.Name)
	out := proto.Node{Name: n.Name, Addr: n.Addr, Region: n.Region, Zone: n.Zone, Weight: n.Weight,
		Standby: n.Standby, State: nodeState(state, n, status, known), Tenants: primaries, Replicas: copies, Bytes: n.Usage.Bytes}
	var left int64
	if out.State == proto.NodeUp || out.State == proto.NodeDraining && known {
		left = status.LeftMS
	}
	if out.State != proto.NodeUnknown {
		out.LeaseLeftMS = &left
	}
	if known && status.Silent {
		out.Problem = status.Problem
	}
	return out
}

// nodeState is the state of a node. known says that status is what the leader knows
// of its lease, which no other server does.
func nodeState(state *fsm.State, n *fsm.Node, status lease.Status, known bool) proto.NodeState {
	leased := n.Lease == fsm.LeaseTaken && state.Settings().AutoFailover > 0
	switch {
	case n.Lost:
		return proto.NodeLost
	case n.Drain != nil && !(leased && known && (status.Expired || status.Lapsed)):
		return proto.NodeDraining
	case !leased:
		return proto.NodeUnleased
	case !known:
		return proto.NodeUnknown
	case status.Expired || status.Lapsed:
		return proto.NodeLapsed
	}
	return proto.NodeUp
}
