package controlplane

import (
	"context"
	"slices"
	"sync"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
)

// Times of asking nodes for their usage.
const (
	usageFresh  = 1 * time.Second // a create asks no more often
	silentFresh = 5 * time.Second // and a node that did not answer less often still
	usageEvery  = 10 * time.Second
)

// usage is what nodes told this server of themselves of late. It is a cache:
// the directory records what matters.
type usage struct {
	mu   sync.Mutex // held while nodes are asked: those who come meanwhile use the answers
	told map[fsm.NodeName]toldUsage
}

type toldUsage struct {
	at    time.Time
	addr  string
	bytes uint64
	ok    bool
}

func (t toldUsage) fresh(n *fsm.Node, now time.Time) bool {
	limit := usageFresh
	if !t.ok {
		limit = silentFresh
	}
	return t.addr == n.Addr && now.Sub(t.at) < limit
}

// refresh asks those of nodes of whom nothing fresh is known, in parallel,
// for at most statsTimeout. It gives the silent ones, and the usage that is
// not what the directory records.
func (u *usage) refresh(ctx context.Context, client *nodeClient, nodes []*fsm.Node) (silent []fsm.NodeName, changed []fsm.NodeUsage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	answers := make([]toldUsage, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		if t, ok := u.told[n.Name]; ok && t.fresh(n, time.Now()) {
			answers[i] = t
			continue
		}
		asked.Go(func() {
			stats, err := client.stats(ctx, at(n))
			answers[i] = toldUsage{at: time.Now(), addr: n.Addr, bytes: stats.Disk, ok: err == nil}
		})
	}
	asked.Wait()
	for i, n := range nodes {
		u.told[n.Name] = answers[i]
		switch {
		case !answers[i].ok:
			silent = append(silent, n.Name)
		case answers[i].bytes != n.Usage.Bytes:
			changed = append(changed, fsm.NodeUsage{Node: n.Name, Bytes: answers[i].bytes})
		}
	}
	return silent, changed
}

// forget drops what is known of nodes that are not recorded any more.
func (u *usage) forget(state *fsm.State) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.told {
		if _, ok := state.Node(name); !ok {
			delete(u.told, name)
		}
	}
}

// weigh makes the directory know how full the nodes are that a create may
// choose from, and notes those that are silent. A create that names its node
// needs neither.
func (s *Server) weigh(ctx context.Context, cmd *fsm.CreateTenant) error {
	state := s.group.State()
	if _, taken := state.Tenant(cmd.Name); taken {
		return nil
	}
	if cmd.Node != nil {
		if n, ok := state.Node(*cmd.Node); ok && withoutLease(state, n) {
			return unwritable(n.Name, startOtherwise)
		}
		return nil
	}
	all := candidates(state, cmd.Region)
	nodes := slices.DeleteFunc(slices.Clone(all), func(n *fsm.Node) bool { return withoutLease(state, n) })
	switch {
	case len(all) == 0:
		return nil // Apply says what is missing
	case len(nodes) == 0:
		return unwritable(all[0].Name, startOtherwise)
	}
	silent, changed := s.usage.refresh(ctx, s.nodes, nodes)
	if len(silent) < len(nodes) {
		cmd.Silent = silent
		for _, n := range all {
			if withoutLease(state, n) {
				cmd.Silent = append(cmd.Silent, n.Name) // passed over, as one that does not answer
			}
		}
	}
	// Where none answered in so short a time they may all be busy: the choice
	// is made without knowing, and the node chosen is given longer to answer.
	if err := s.recordUsage(ctx, changed, 0); err != nil {
		// Usage is a hint, so nothing that the client asked for was begun: its
		// outcome is known, whatever became of the hint.
		return errNoLeader()
	}
	return nil
}

// withoutLease reports whether what is placed on n could not be written: it takes
// leases, and the group gives none.
func withoutLease(state *fsm.State, n *fsm.Node) bool {
	return n.Lease == fsm.LeaseTaken && state.Settings().AutoFailover == 0
}

// startOtherwise says what makes a node writable that takes leases where none are given.
const startOtherwise = "start it without --lease, or give leases a length (PUT /_shard/settings, CLI: admin settings --auto-failover)"

// candidates are the nodes that a create which names none may be placed on:
// the same as Apply's choice.
func candidates(state *fsm.State, region *fsm.RegionName) []*fsm.Node {
	if region == nil {
		region = state.Settings().DefaultRegion
	}
	var nodes []*fsm.Node
	for n := range state.Nodes() {
		if _, standby := state.StandbyOf(n.Name); standby || n.Weight == 0 || region != nil && n.Region != *region {
			continue
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// usagePerEntry bounds an entry of usage far below what an entry may hold,
// however many nodes there are.
const usagePerEntry = 500

func (s *Server) recordUsage(ctx context.Context, changed []fsm.NodeUsage, decided uint64) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	for part := range slices.Chunk(changed, usagePerEntry) {
		if _, _, err := s.group.Propose(ctx, group.Proposal{Decided: decided, Cmd: &fsm.RecordUsage{Usage: part}}); err != nil {
			return err
		}
	}
	return nil
}

// keepUsage records what the nodes hold, again and again, while this server
// leads.
func (s *Server) keepUsage(ctx context.Context, term uint64) error {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		state := s.group.State()
		s.usage.forget(state)
		var nodes []*fsm.Node
		for n := range state.Nodes() {
			nodes = append(nodes, n)
		}
		_, changed := s.usage.refresh(ctx, s.nodes, nodes)
		if err := s.recordUsage(ctx, changed, term); err != nil {
			s.logger.Debug("usage of nodes was not recorded", "term", term, "err", err)
		}
	}
}
