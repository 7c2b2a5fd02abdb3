package controlplane

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Bounds of settings.
const (
	maxReplicas     = 8
	maxMovesPerNode = 64
	// minLease leaves a renewal, a sixth of a lease, more than a slow disk takes.
	minLease = 100 * time.Millisecond
	maxLease = time.Hour
	maxGrace = 30 * 24 * time.Hour
)

// getSettings tells the group's settings, which flags only seed.
func (s *Server) getSettings(w http.ResponseWriter, _ *http.Request, state *fsm.State) error {
	httpserve.WriteJSON(w, http.StatusOK, describeSettings(state.Settings()))
	return nil
}

func describeSettings(s fsm.Settings) proto.Settings {
	return proto.Settings{Replicas: s.Replicas, AutoFailoverMS: int64(s.AutoFailover), RepairAfterMS: int64(s.RepairAfter),
		RemoveAfterMS: int64(s.RemoveAfter), DefaultRegion: s.DefaultRegion, HasReplicationToken: s.ReplicationToken != "",
		MovesPerNode: movesPerNode(s)}
}

// putSettings changes those settings that the body names.
func (s *Server) putSettings(w http.ResponseWriter, c *change) error {
	var put proto.PutSettings
	if err := c.decode(&put); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	state := s.group.State()
	settings, err := changedSettings(state.Settings(), &put)
	if err != nil {
		return err
	}
	if n, ok := leaseTaker(state, settings.AutoFailover); ok && !put.Force && state.Settings().AutoFailover > 0 && !c.replayed {
		return unwritable(n.Name, "its tenants would stop writing within a lease; start such nodes without --lease first, or ask again with force")
	}
	if _, err := s.propose(w, c, &fsm.SetSettings{Settings: settings}); err != nil {
		return err
	}
	s.changes.everything()
	s.warnOfLease(settings)
	if r := settings.DefaultRegion; put.DefaultRegion != nil && !hasNodes(s.group.State(), *r) {
		s.logger.Warn("no node is recorded in the default region: a tenant that names no region cannot be created until one is", "region", string(*r))
	}
	s.logger.Info("settings changed", "replicas", settings.Replicas, "auto_failover_ms", uint64(settings.AutoFailover))
	httpserve.WriteJSON(w, http.StatusOK, describeSettings(s.group.State().Settings()))
	return nil
}

// changedSettings gives the settings as put changes them.
func changedSettings(now fsm.Settings, put *proto.PutSettings) (fsm.Settings, error) {
	for _, span := range []struct {
		to *fsm.Millis
		ms *int64
	}{{&now.AutoFailover, put.AutoFailoverMS}, {&now.RepairAfter, put.RepairAfterMS}, {&now.RemoveAfter, put.RemoveAfterMS}} {
		if span.ms != nil {
			*span.to = fsm.Millis(*span.ms)
		}
	}
	if put.NoDefaultRegion && put.DefaultRegion != nil {
		return now, badRequest("default_region and no_default_region are given; give one")
	}
	if put.MovesPerNode != nil {
		if *put.MovesPerNode == 0 {
			return now, badRequest("moves_per_node is 1 to %d", maxMovesPerNode)
		}
		now.MovesPerNode = *put.MovesPerNode
	}
	if put.Replicas != nil {
		now.Replicas = *put.Replicas
	}
	if put.DefaultRegion != nil || put.NoDefaultRegion {
		now.DefaultRegion = put.DefaultRegion
	}
	if put.ReplicationToken != nil {
		now.ReplicationToken = *put.ReplicationToken
	}
	if err := CheckSettings(now); err != nil {
		return now, badRequest("%v", err)
	}
	return now, nil
}

func hasNodes(state *fsm.State, r fsm.RegionName) bool {
	for n := range state.Nodes() {
		if n.Region == r {
			return true
		}
	}
	return false
}

// leaseTaker gives a node that could not write under leases of a length: it takes
// them, and the length is 0.
func leaseTaker(state *fsm.State, lease fsm.Millis) (*fsm.Node, bool) {
	if lease > 0 {
		return nil, false
	}
	for n := range state.Nodes() {
		if n.Lease == fsm.LeaseTaken {
			return n, true
		}
	}
	return nil, false
}

// unwritable refuses what would leave a node's tenants without writes (L2).
func unwritable(n fsm.NodeName, what string) error {
	return refusal(&fsm.Refusal{Code: fsm.CodeNodeLeased, Fields: map[string]string{"node": string(n)},
		Text: "node " + string(n) + " was started with --lease and writes only under a lease, and auto_failover_ms 0 gives none: " + what})
}

// CheckSettings returns why a group cannot have settings, or nil.
func CheckSettings(s fsm.Settings) error {
	span := func(ms fsm.Millis, least, most time.Duration) bool {
		return ms == 0 || ms >= fsm.Millis(least.Milliseconds()) && ms <= fsm.Millis(most.Milliseconds())
	}
	switch {
	case s.Replicas > maxReplicas:
		return fmt.Errorf("replicas is 0 to %d", maxReplicas)
	case s.MovesPerNode > maxMovesPerNode:
		return fmt.Errorf("moves_per_node is 1 to %d", maxMovesPerNode)
	case !span(s.AutoFailover, minLease, maxLease):
		return fmt.Errorf("the length of leases (auto-failover) is 0, or %v to %v", minLease, maxLease)
	case !span(s.RepairAfter, time.Millisecond, maxGrace), !span(s.RemoveAfter, time.Millisecond, maxGrace):
		return fmt.Errorf("a grace (repair-after, remove-after) is at most %v, and not negative", maxGrace)
	case s.DefaultRegion != nil && *s.DefaultRegion != "" && !fsm.ValidName(string(*s.DefaultRegion)):
		return fmt.Errorf("%q is not the name of a region: use 1 to 64 of a-z, 0-9, _ and -", *s.DefaultRegion)
	case s.DefaultRegion != nil && *s.DefaultRegion == proto.GlobalScope:
		return fmt.Errorf("no region is called %s: that is the global group's name", *s.DefaultRegion)
	case s.ReplicationToken != "" && !tokenOK(s.ReplicationToken):
		return errors.New("the replication token is not printable ASCII without spaces")
	}
	return nil
}

// electionTimeouts is how many election timeouts a lease has to last for a
// change of leader to stop no write (architecture §3.5.6).
const electionTimeouts = 5

// warnOfLease tells of leases so short that a change of leader stops writes for
// a moment.
func (s *Server) warnOfLease(settings fsm.Settings) {
	least := electionTimeouts * s.election()
	lease := time.Duration(min(int64(settings.AutoFailover), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	if lease > 0 && lease < least {
		s.logger.Warn("leases are shorter than five election timeouts: a change of leader may hold writes for a moment",
			"auto_failover", lease.String(), "five_election_timeouts", least.String())
	}
}

// election is the election timeout that this server runs with.
func (s *Server) election() time.Duration {
	if t := s.config.Timing.Heartbeat; t > 0 {
		return t
	}
	return 350 * time.Millisecond // package group's default
}
