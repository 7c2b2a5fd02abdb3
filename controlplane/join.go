package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"domicile/client"
	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

// joinTimeout bounds how long one server is waited for: longer than it may take
// to take another one in.
const joinTimeout = membershipTimeout + 10*time.Second

// join asks the servers of an existing group, one after the other, to add this
// one. The group calls it again until it succeeds.
func (s *Server) join(ctx context.Context, req group.JoinRequest) (group.JoinAnswer, error) {
	region := req.Region
	var errs []error
	for _, server := range s.config.Join {
		c, err := s.peer(server)
		if err != nil {
			return group.JoinAnswer{}, err
		}
		asking, cancel := context.WithTimeout(ctx, s.joinWait) // one may be paused
		added, err := c.AddServer(asking, proto.AddServer{ID: req.ID, Raft: req.Raft, API: req.API,
			Region: &region, Version: req.Version, Empty: req.Empty})
		cancel()
		if err == nil {
			return group.JoinAnswer{Cluster: added.Cluster, Index: added.Index}, nil
		}
		errs = append(errs, fmt.Errorf("join through %s: %w", server, tokenRefused(err)))
	}
	return group.JoinAnswer{}, errors.Join(errs...)
}

// tokenRefused says of a refused token whose it is.
func tokenRefused(err error) error {
	var said *client.Error
	if errors.As(err, &said) && said.Status == http.StatusUnauthorized {
		return fmt.Errorf("the token of --token is refused: give this server the group's token: %w", err)
	}
	return err
}

// record has the leader propose this server's own record.
func (s *Server) record(ctx context.Context, leader group.Leader, p group.Proposal) (fsm.Result, fsm.Revision, error) {
	put, ok := p.Cmd.(*fsm.PutMember)
	if !ok {
		return fsm.Result{}, 0, fmt.Errorf("a server proposes nothing but its record through the leader, not %T", p.Cmd)
	}
	c, err := s.peer(leader.API)
	if err != nil {
		return fsm.Result{}, 0, err
	}
	m := put.Member
	revision, err := c.PutMember(ctx, proto.PutMember{ID: m.ID, Raft: m.Raft, API: m.API, Version: m.Version})
	var said *client.Error
	if errors.As(err, &said) && (said.Status == 400 || said.Status == 409) && said.Code != proto.CodeNotLeader {
		return fsm.Result{Refusal: &fsm.Refusal{Code: said.Code, Text: said.Text}}, 0, nil
	}
	return fsm.Result{}, revision, err
}

// peer is a client of one server of a group, which asks once: those who use it
// ask again themselves.
func (s *Server) peer(server string) (*client.Client, error) {
	return client.New(client.Config{Servers: []string{server}, Token: *s.token.Load(), RetryFor: -1, Transport: s.peers.Transport})
}
