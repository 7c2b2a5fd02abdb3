package controlplane

import (
	"math"
	"net/http"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Bounds of settings.
const (
	maxReplicas = 8
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
		RemoveAfterMS: int64(s.RemoveAfter), DefaultRegion: s.DefaultRegion, HasReplicationToken: s.ReplicationToken != ""}
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
	settings, err := changedSettings(s.group.State().Settings(), &put)
	if err != nil {
		return err
	}
	if _, err := s.propose(w, c, &fsm.SetSettings{Settings: settings}); err != nil {
		return err
	}
	s.changes.everything()
	s.warnOfLease(settings)
	s.logger.Info("settings changed", "replicas", settings.Replicas, "auto_failover_ms", uint64(settings.AutoFailover))
	httpserve.WriteJSON(w, http.StatusOK, describeSettings(s.group.State().Settings()))
	return nil
}

func changedSettings(now fsm.Settings, put *proto.PutSettings) (fsm.Settings, error) {
	span := func(to *fsm.Millis, ms *int64, name string, least, most time.Duration) error {
		if ms == nil {
			return nil
		}
		if *ms != 0 && (*ms < least.Milliseconds() || *ms > most.Milliseconds()) {
			return badRequest("%s is 0, or %d to %d", name, least.Milliseconds(), most.Milliseconds())
		}
		*to = fsm.Millis(*ms)
		return nil
	}
	for _, err := range []error{
		span(&now.AutoFailover, put.AutoFailoverMS, "auto_failover_ms", minLease, maxLease),
		span(&now.RepairAfter, put.RepairAfterMS, "repair_after_ms", 1, maxGrace),
		span(&now.RemoveAfter, put.RemoveAfterMS, "remove_after_ms", 1, maxGrace),
	} {
		if err != nil {
			return now, err
		}
	}
	switch {
	case put.Replicas != nil && *put.Replicas > maxReplicas:
		return now, badRequest("replicas is 0 to %d", maxReplicas)
	case put.NoDefaultRegion && put.DefaultRegion != nil:
		return now, badRequest("default_region and no_default_region are given; give one")
	case put.DefaultRegion != nil && *put.DefaultRegion != "" && !fsm.ValidName(string(*put.DefaultRegion)):
		return now, badName("region", string(*put.DefaultRegion))
	case put.ReplicationToken != nil && *put.ReplicationToken != "" && !tokenOK(*put.ReplicationToken):
		return now, badRequest("the replication token is not printable ASCII without spaces")
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
	return now, nil
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
