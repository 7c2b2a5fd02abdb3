package controlplane

import (
	"net/http"
	"slices"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// putReader asks for a read replica of a tenant in another region (C8).
func (s *Server) putReader(w http.ResponseWriter, c *change) error {
	cmd, err := readerCommand(c)
	if err != nil {
		return err
	}
	cmd.Wanted = true
	if !c.replayed {
		// A node that does not answer gets it when it does, if none that answers is there.
		nodes := candidates(s.group.State(), &cmd.Region)
		cmd.Silent, _ = s.usage.refresh(c.Context(), s.nodes, nodes)
	}
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return err
	}
	out := proto.ReadReplicaPut{Tenant: cmd.Tenant, ReadReplica: proto.ReadReplica{Region: cmd.Region, State: proto.ReaderUnplaced}}
	state := s.group.State()
	if result.Placed != nil {
		if p, ok := state.Placed(result.Placed.Unit); ok && p.ID == result.Placed.ID {
			all := readersOf(state, p)
			if i := slices.IndexFunc(all, func(r proto.ReadReplica) bool { return r.Region == cmd.Region }); i >= 0 {
				out.ReadReplica = all[i]
			}
		}
	}
	status := http.StatusOK
	if result.Created {
		status = http.StatusCreated
	}
	httpserve.WriteJSON(w, status, out)
	return nil
}

// deleteReader asks for it no longer: it takes no more reads, and is removed from its node
// after the grace.
func (s *Server) deleteReader(w http.ResponseWriter, c *change) error {
	cmd, err := readerCommand(c)
	if err != nil {
		return err
	}
	if _, err := s.propose(w, c, cmd); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readerCommand reads what the path names.
func readerCommand(c *change) (*fsm.SetReader, error) {
	if err := c.none(); err != nil {
		return nil, err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return nil, err
	}
	cmd := &fsm.SetReader{Tenant: fsm.TenantName(c.PathValue("tenant")), Region: fsm.RegionName(c.PathValue("region"))}
	switch {
	case !fsm.ValidName(string(cmd.Tenant)):
		return nil, badName("tenant", string(cmd.Tenant))
	case cmd.Region != "" && !fsm.ValidName(string(cmd.Region)): // "" is the unnamed region (N4)
		return nil, badName("region", string(cmd.Region))
	}
	return cmd, nil
}

// readersOf tells of the read replicas of a unit that were asked for.
func readersOf(state *fsm.State, p *fsm.Placed) []proto.ReadReplica {
	var all []proto.ReadReplica
	for _, r := range state.Readers(p) {
		one := proto.ReadReplica{Region: r.Region, Node: r.Node, State: proto.ReaderFollowing, Why: r.Why}
		switch {
		case r.Home:
			one.State = proto.ReaderHome
		case r.Node == "":
			one.State = proto.ReaderUnplaced
		case r.Lost:
			one.State = proto.ReaderLost
		}
		all = append(all, one)
	}
	return all
}
