package controlplane

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// membershipTimeout bounds a change of the group's servers.
const membershipTimeout = 20 * time.Second

// leaderSays bounds how long the leader is waited for when a follower is asked
// for the health of the group.
const leaderSays = time.Second

// leaderLook is how often a server that has handed leadership over looks.
const leaderLook = 2 * time.Millisecond

// getGroup tells of the group as this server sees it; the health of the others
// is the leader's to know, and asked of it. It answers without a directory or a
// leader: it is what an operator looks at then.
func (s *Server) getGroup(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	status := s.group.Status()
	out := proto.Group{Region: status.Region, ID: status.ID, Cluster: status.Cluster, Term: status.Term,
		Index: status.Applied, Servers: []proto.Server{}}
	if name, ok := s.ownName(); ok {
		out.Authority, out.History = name.Authority, name.History
	}
	out.Global = s.describeGlobal()
	if status.Leader.Known {
		out.Leader = status.Leader.ID
	}
	healthy := s.healthAtLeader(r, status.Leader)
	for _, server := range status.Servers {
		out.Servers = append(out.Servers, proto.Server{ID: server.ID, Raft: server.Raft, API: server.API,
			Voter: server.Voter, Healthy: server.Healthy || !server.Known && healthy[server.ID]})
	}
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// healthAtLeader gives the health of the servers as the leader sees it, or
// nothing where this server leads or the leader does not answer.
func (s *Server) healthAtLeader(r *http.Request, leader group.Leader) map[fsm.MemberID]bool {
	if !leader.Known || leader.Self || leader.API == "" || r.Header.Get(proto.HeaderRelayed) != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), leaderSays)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, leader.API+"/_shard/group", nil)
	if err != nil {
		return nil
	}
	req.Header.Set("Authorization", r.Header.Get("Authorization"))
	req.Header.Set(proto.HeaderRelayed, "1")
	resp, err := s.peers.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var there proto.Group
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, maxNodeAnswer)).Decode(&there) != nil {
		return nil
	}
	healthy := make(map[fsm.MemberID]bool)
	for _, server := range there.Servers {
		healthy[server.ID] = server.Healthy
	}
	return healthy
}

// addServer adds a server to the group, or changes its vote or addresses.
func (s *Server) addServer(w http.ResponseWriter, c *change) error {
	var add proto.AddServer
	if err := c.decode(&add); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	req, err := addRequest(&add)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), membershipTimeout)
	defer cancel()
	answer, err := s.group.AddServer(ctx, req)
	if err != nil {
		return s.groupError(err)
	}
	s.logger.Info("server added to the group", "server", add.ID, "raft", add.Raft)
	httpserve.WriteJSON(w, http.StatusOK, proto.ServerAdded{ID: add.ID, Cluster: answer.Cluster, Index: answer.Index})
	return nil
}

func addRequest(add *proto.AddServer) (group.AddRequest, error) {
	if !fsm.ValidName(string(add.ID)) {
		return group.AddRequest{}, badName("server", string(add.ID))
	}
	raft, err := nodeAddress(add.Raft)
	if err != nil || strings.Contains(raft, "://") {
		return group.AddRequest{}, badRequest("raft %q: want host:port", add.Raft)
	}
	api, err := routerAddress(add.API)
	if err != nil {
		return group.AddRequest{}, badRequest("api %v", err)
	}
	req := group.AddRequest{NonVoter: add.Voter != nil && !*add.Voter, CheckRegion: add.Region != nil}
	req.ID, req.Raft, req.API, req.Version, req.Empty = add.ID, raft, api, add.Version, add.Empty
	if req.Version == 0 {
		req.Version = fsm.Version
	}
	if add.Region != nil {
		req.Region = *add.Region
	}
	return req, nil
}

// removeServer takes a server out of the group.
func (s *Server) removeServer(w http.ResponseWriter, c *change) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	id := fsm.MemberID(c.PathValue("server"))
	if !fsm.ValidName(string(id)) {
		return badName("server", string(id))
	}
	if !s.isServer(id) && !c.replayed {
		return refusal(&fsm.Refusal{Code: fsm.CodeMemberUnknown, Text: "no server of the group has the id " + string(id),
			Fields: map[string]string{"server": string(id)}})
	}
	if _, later := s.group.State().Member(id); c.replayed && later {
		// What was removed under this key is gone; this one has joined since.
		httpserve.WriteJSON(w, http.StatusOK, proto.ServerRemoved{ID: id})
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), membershipTimeout)
	defer cancel()
	if err := s.group.RemoveServer(ctx, group.RemoveRequest{ID: id, Key: c.key, Fingerprint: c.fingerprint}); err != nil {
		return s.groupError(err)
	}
	s.logger.Info("server removed from the group", "server", id)
	httpserve.WriteJSON(w, http.StatusOK, proto.ServerRemoved{ID: id})
	return nil
}

func (s *Server) isServer(id fsm.MemberID) bool {
	for _, server := range s.group.Status().Servers {
		if server.ID == id {
			return true
		}
	}
	return false
}

// transfer hands leadership to another server.
func (s *Server) transfer(w http.ResponseWriter, c *change) error {
	var to proto.Transfer
	if err := c.decode(&to); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if to.ID != "" {
		if !fsm.ValidName(string(to.ID)) {
			return badName("server", string(to.ID))
		}
		if !s.isServer(to.ID) {
			return refusal(&fsm.Refusal{Code: fsm.CodeMemberUnknown, Text: "no server of the group has the id " + string(to.ID),
				Fields: map[string]string{"server": string(to.ID)}})
		}
	}
	ctx, cancel := context.WithTimeout(c.Context(), membershipTimeout)
	defer cancel()
	if err := s.group.Transfer(ctx, to.ID); err != nil {
		return s.groupError(err)
	}
	httpserve.WriteJSON(w, http.StatusOK, proto.Led{Leader: s.nextLeader(ctx)})
	return nil
}

// nextLeader waits until this server, which has just handed leadership over,
// hears who leads.
func (s *Server) nextLeader(ctx context.Context) fsm.MemberID {
	ctx, cancel := context.WithTimeout(ctx, leaderSays)
	defer cancel()
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for {
		if leader := s.group.Leader(); leader.Known {
			return leader.ID
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "" // handed over, and nobody leads yet
		}
	}
}

// putMember records a server of the group: each has the leader do so when it
// starts with another address or version.
func (s *Server) putMember(w http.ResponseWriter, c *change) error {
	var put proto.PutMember
	if err := c.decode(&put); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !fsm.ValidName(string(put.ID)) || !s.isServer(put.ID) {
		return refusal(&fsm.Refusal{Code: fsm.CodeMemberUnknown, Text: "this is not a server of the group: add it first",
			Fields: map[string]string{"server": string(put.ID)}})
	}
	member := fsm.Member{ID: put.ID, Raft: put.Raft, API: put.API, Version: put.Version}
	if _, err := s.propose(w, c, &fsm.PutMember{Member: member}); err != nil {
		return err
	}
	httpserve.WriteJSON(w, http.StatusOK, put)
	return nil
}
