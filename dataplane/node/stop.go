package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"domicile/dataplane/node/lease"
	"domicile/dataplane/node/store"
)

// startCopies starts what goes on beside requests until base ends.
func (s *Server) startCopies() {
	s.copying.Go(func() {
		if err := s.replica.Run(s.base); err != nil {
			s.log.Error("replication ended", "err", err)
		}
	})
	s.resumeCopies()
	s.copying.Go(func() { s.settlePromises(s.base) })
	if s.fence.lease != nil {
		s.copying.Go(func() { s.fence.lease.Run(s.base, peers{s}) })
		s.copying.Go(func() { s.watchLease(s.base) })
	}
}

// resumeCopies follows on what was followed before the start, whether or not there is a
// control plane to say whom (C6, L10, L11): where that has changed meanwhile, its next
// call points the copies elsewhere.
func (s *Server) resumeCopies() {
	all, err := s.store.List("", 0)
	if err == nil {
		followed := map[string]bool{}
		for _, rec := range all {
			if rec.State.IsCopy() {
				followed[rec.From] = true
			}
		}
		err = errors.Join(s.kept.keepSources(followed), s.replica.ResumeUnits(all))
	}
	if err != nil {
		s.log.Error("units that were followed before the start wait until the control plane says whom", "err", err)
	}
}

// settlePromises forgets promises made before the start once they have run out.
func (s *Server) settlePromises(ctx context.Context) {
	const again = time.Minute // also for promises that are made later
	for {
		wait, err := s.promises.Settle()
		if err != nil {
			s.log.Warn("promises are kept longer than they run", "err", err)
		}
		if wait == 0 {
			wait = again
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// handAllOver tells the control plane, in the answers to its grants, or about copies,
// that the node is about to stop, and goes on serving until it writes no unit that a copy
// could take over and no write waits for a copy here, the control plane is silent, or
// DrainTimeout has passed (L11).
func (s *Server) handAllOver() {
	if s.cfg.KeepUnits {
		return
	}
	s.counted.hasCopies = s.holdsCopies()
	s.stopping.Store(true)
	defer s.tellKept()
	if !s.toHandOver() {
		return
	}
	s.log.Info("stopping: units are handed over first, and copies are taken out")
	limit := time.NewTimer(s.cfg.DrainTimeout)
	defer limit.Stop()
	tick := time.NewTicker(handOverTick)
	defer tick.Stop()
	for s.toHandOver() {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		}
	}
}

// tellKept says which units this node still writes though it stops: they have no copy in
// sync, or the control plane did not have them handed over in time.
func (s *Server) tellKept() {
	const named = 20
	var first []string
	count := 0
	all, err := s.store.List("", 0)
	if err != nil {
		return
	}
	for _, rec := range all {
		if rec.State == store.Active && s.writes(&rec) {
			if count++; count <= named {
				first = append(first, rec.Name)
			}
		}
	}
	if count > 0 {
		s.log.Warn("stopping with units that were not handed over: they cannot be reached until the node is back, or they are failed over", "units", count, "first", first)
	}
}

// writes reports whether the node is a unit's primary as far as it knows: what its list
// names, or where it takes no lease, all that is active.
func (s *Server) writes(rec *store.Record) bool {
	if s.fence.lease == nil {
		return true
	}
	u, named := s.fence.lease.Unit(rec.Name)
	return named && (u.ID == 0 || u.ID == rec.ID)
}

// awaitQuiet goes on serving while each answer asks for its connection to be closed,
// until no request for a tenant has come for a moment: a connection that is closed while a request
// is on its way leaves its client without knowing what became of it, and those that are
// in use close by themselves this way.
func (s *Server) awaitQuiet() {
	s.served.Store(time.Now().UnixNano())
	limit := time.NewTimer(min(quietLimit, s.cfg.DrainTimeout))
	defer limit.Stop()
	tick := time.NewTicker(handOverTick)
	defer tick.Stop()
	for time.Since(time.Unix(0, s.served.Load())) < quietFor {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		}
	}
}

// quietFor is longer than a proxy takes to hear of a flip; quietLimit bounds the wait
// where requests go on coming, for units that no copy could take over.
const (
	quietFor   = 250 * time.Millisecond
	quietLimit = 2 * time.Second
)

const handOverTick = 10 * time.Millisecond

// counted is how many units' writes wait for copies on this node, as the control plane
// tells it from when it knows that the node stops.
type counted struct {
	hasCopies bool // set before stopping is, and constant from then on
	mu        sync.Mutex
	told      bool
	units     int
	untold    int // grants that did not tell
}

func (c *counted) take(units *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if units == nil {
		c.untold++
		return
	}
	c.told, c.units = true, *units
}

// maxUntold is after how many grants a control plane is taken for one that does not tell:
// the first of a leader comes before it has heard that the node stops.
const maxUntold = 3

// waits reports whether writes elsewhere wait for copies here, or may.
func (c *counted) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		return c.hasCopies && c.untold < maxUntold
	}
	return c.units > 0
}

func (s *Server) holdsCopies() bool {
	all, err := s.store.List("", 0)
	return err == nil && slices.ContainsFunc(all, func(rec store.Record) bool { return rec.State == store.Following })
}

// toHandOver reports whether a unit that is written here has a copy in sync, or one that
// is written elsewhere counts on a copy here.
func (s *Server) toHandOver() bool {
	if s.fence.lease == nil {
		return s.followed()
	}
	if !s.fence.lease.Current() {
		return false
	}
	if s.counted.waits() {
		return true
	}
	found := false
	s.fence.lease.Units(func(u lease.Unit) bool {
		if len(u.InSync) > 0 {
			rec, err := s.store.Get(u.Name)
			found = err == nil && rec.State != store.Following
		}
		return !found
	})
	return found
}

// askedPatience is for how long a node that takes no lease waits for the control plane,
// which asks it once a second.
const askedPatience = 3 * time.Second

// followed reports, for a node that takes no lease, whether a copy lacks nothing of a
// unit that is written here, and the control plane is there to hand it over.
func (s *Server) followed() bool {
	if time.Since(time.Unix(0, s.asked.Load())) > askedPatience {
		return false
	}
	following, lagging, _ := s.replica.ReportFollowers(copiesPatience)
	for unit, copies := range following {
		if len(copies) <= len(lagging[unit]) {
			continue
		}
		if rec, err := s.store.Get(unit); err == nil && rec.State == store.Active {
			return true
		}
	}
	return false
}
