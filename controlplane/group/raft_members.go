package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"domicile/fsm"
)

// catchUpLag is how many entries a server may lack to be given a vote.
const catchUpLag = 64

func (g *Group) configuration() ([]raft.Server, uint64) {
	f := g.raft.GetConfiguration()
	if f.Error() != nil {
		return nil, 0
	}
	return f.Configuration().Servers, f.Index()
}

func (g *Group) voters() []raft.Server {
	servers, _ := g.configuration()
	return slices.DeleteFunc(slices.Clone(servers), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
}

// Status describes the group as this server sees it.
func (g *Group) Status() Status {
	ready, reason := g.Ready()
	leader := g.Leader()
	return Status{
		ID: g.cfg.ID, Region: g.cfg.Region, Cluster: clusterOf(g.clusterID()),
		Leader: leader, Term: leader.Term,
		Index: g.raft.CommitIndex(), Applied: g.raft.AppliedIndex(), Revision: g.State().Revision(),
		Pending: g.pending.count(), Ready: ready, Reason: reason, Servers: g.servers(),
	}
}

func (g *Group) servers() []Server {
	configured, _ := g.configuration()
	state, leader, leads := g.State(), g.Leader(), g.leads()
	list := make([]Server, 0, len(configured))
	for _, c := range configured {
		s := Server{
			ID: fsm.MemberID(c.ID), Raft: string(c.Address), Voter: c.Suffrage == raft.Voter,
			Leader: leader.Known && leader.ID == fsm.MemberID(c.ID),
		}
		if m, ok := state.Member(s.ID); ok {
			s.API = m.API
		}
		switch {
		case s.ID == g.cfg.ID:
			s.Known, s.Healthy, s.Index = true, !g.machine.dead(), g.raft.LastIndex()
		case leads:
			p, looping := g.peers.look(c.ID)
			s.Known, s.Index, s.SnapshotLoop = true, p.index, looping
			s.LastContact = time.Since(p.answered)
			s.Healthy = !p.answered.IsZero() && s.LastContact < g.cfg.Timing.Heartbeat
		case s.Leader:
			s.Known, s.Healthy = true, true
			s.LastContact = time.Since(g.raft.LastContact())
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}

func (g *Group) server(id fsm.MemberID) (Server, bool) {
	for _, s := range g.servers() {
		if s.ID == id {
			return s, true
		}
	}
	return Server{}, false
}

// AddServer adds a server to the group, on the leader: as a non-voter first,
// and as a voter once its log has caught up. It answers the Raft index from
// which on the server belongs to the group. Adding one that is there already is
// no error; it is one if it says that its folder is empty while it has a vote,
// if its id has another address whose server answers, or if its address is
// another server's. When ctx ends before the server has caught up, it stays a
// non-voter: ask again. A voter is not made a non-voter by it.
func (g *Group) AddServer(ctx context.Context, req AddRequest) (JoinAnswer, error) {
	if err := g.mustLead(); err != nil {
		return JoinAnswer{}, err
	}
	g.members.Lock()
	defer g.members.Unlock()
	if g.State().Recovering() {
		return JoinAnswer{}, &MembershipError{ID: req.ID, Retry: true, Text: "the directory is being recovered, by this server alone; servers are added once that is done"}
	}
	if err := g.checkAdd(req); err != nil {
		return JoinAnswer{}, err
	}
	servers, index := g.configuration()
	known := false
	for _, s := range servers {
		if s.ID != raft.ServerID(req.ID) {
			continue
		}
		known = s.Address == raft.ServerAddress(req.Raft)
		if known && (s.Suffrage == raft.Voter || req.NonVoter) {
			return JoinAnswer{Cluster: g.clusterID(), Index: g.raft.CommitIndex()}, nil
		}
		if s.Suffrage == raft.Voter { // its address has changed
			return g.setServer(ctx, req, index, true)
		}
	}
	answer := JoinAnswer{Cluster: g.clusterID(), Index: g.raft.CommitIndex()}
	var err error
	if !known {
		if answer, err = g.setServer(ctx, req, index, false); err != nil || req.NonVoter {
			return answer, err
		}
	}
	if err := g.awaitCaughtUp(ctx, req.ID); err != nil {
		return JoinAnswer{}, err
	}
	_, index = g.configuration()
	if _, err := g.setServer(ctx, req, index, true); err != nil {
		return JoinAnswer{}, err
	}
	g.logger.Info("server added", "server", req.ID)
	return answer, nil
}

func (g *Group) checkAdd(req AddRequest) error {
	refuse := func(text string, args ...any) error {
		return &MembershipError{ID: req.ID, Text: fmt.Sprintf(text, args...)}
	}
	if !fsm.ValidName(string(req.ID)) {
		return refuse("%q cannot name a server: names are [a-z0-9_-], 1 to 64 characters", req.ID)
	}
	if req.Raft == "" {
		return refuse("the server's Raft address is missing")
	}
	if req.CheckRegion && req.Region != g.cfg.Region {
		return refuse("this group keeps the directory of %s, server %s was started for %s", nameRegion(g.cfg.Region), req.ID, nameRegion(req.Region))
	}
	for _, s := range g.servers() {
		switch {
		case s.ID != req.ID && s.Raft == req.Raft:
			return refuse("address %s is that of server %s; remove that server first", req.Raft, s.ID)
		case s.ID == req.ID && req.Empty && s.Voter:
			return refuse("server %s has a vote in this group, and its folder is now empty: it has lost what it promised; remove it first, then let it join again", s.ID)
		case s.ID == req.ID && s.Raft != req.Raft && s.Healthy:
			return refuse("server %s answers at %s, so that %s is another server; give that one another id", s.ID, s.Raft, req.Raft)
		}
	}
	return nil
}

// setServer commits a server's place in the group, unless the group has changed
// since index.
func (g *Group) setServer(ctx context.Context, req AddRequest, index uint64, vote bool) (JoinAnswer, error) {
	change := g.raft.AddNonvoter
	if vote {
		change = g.raft.AddVoter
	}
	f := change(raft.ServerID(req.ID), raft.ServerAddress(req.Raft), index, g.enqueueWait(ctx))
	if err := g.changed(ctx, f); err != nil {
		return JoinAnswer{}, err
	}
	return JoinAnswer{Cluster: g.clusterID(), Index: f.Index()}, nil
}

// changed waits for a change of the configuration, and gives its errors a
// meaning. A second one is refused while one is under way.
func (g *Group) changed(ctx context.Context, f raft.IndexFuture) error {
	err := await(ctx, g.ended, f.Error)
	if err != nil && strings.Contains(err.Error(), "configuration changed since") {
		return &MembershipError{Text: "the group's servers were changed at the same time; look, and ask again", Retry: true}
	}
	return g.explain(err)
}

// awaitCaughtUp returns once a server answers and its log is at most catchUpLag
// behind, twice in a row.
func (g *Group) awaitCaughtUp(ctx context.Context, id fsm.MemberID) error {
	tick := time.NewTicker(g.cfg.Timing.Heartbeat / 4)
	defer tick.Stop()
	for steady := 0; steady < 2; {
		select {
		case <-tick.C:
		case <-g.ended:
			return ErrClosed
		case <-ctx.Done():
			s, _ := g.server(id)
			return &MembershipError{ID: id, Retry: true, Text: fmt.Sprintf("server %s was added without a vote: it has not caught up yet (answering: %t, its log ends at %d of %d); ask again", id, s.Healthy, s.Index, g.raft.LastIndex())}
		}
		if !g.leads() {
			return g.mustLead()
		}
		s, ok := g.server(id)
		if !ok {
			return &MembershipError{ID: id, Text: fmt.Sprintf("server %s was removed while it was being added", id)}
		}
		if s.Healthy && s.Index+catchUpLag >= g.raft.LastIndex() {
			steady++
		} else {
			steady = 0
		}
	}
	return nil
}

// RemoveServer takes a server out of the group, on the leader: its vote, its
// record in the directory (by which it learns of it and refuses to start
// again), then itself. A leader that is to be removed hands over first and
// answers NotLeaderError. Removing one that is not there is no error. It is
// refused where those that remain could not commit.
func (g *Group) RemoveServer(ctx context.Context, req RemoveRequest) error {
	id := req.ID
	if err := g.mustLead(); err != nil {
		return err
	}
	g.members.Lock()
	defer g.members.Unlock()
	s, ok := g.server(id)
	if !ok {
		return nil
	}
	if err := g.checkRemove(s); err != nil {
		return err
	}
	if id == g.cfg.ID {
		if err := g.Transfer(ctx, ""); err != nil {
			return err
		}
		return g.mustLead()
	}
	_, index := g.configuration()
	if s.Voter {
		f := g.raft.DemoteVoter(raft.ServerID(id), index, g.enqueueWait(ctx))
		if err := g.changed(ctx, f); err != nil {
			return err
		}
	}
	if err := g.tellRemoved(ctx, req); err != nil {
		return err
	}
	_, index = g.configuration()
	f := g.raft.RemoveServer(raft.ServerID(id), index, g.enqueueWait(ctx))
	if err := g.changed(ctx, f); err != nil {
		return err
	}
	g.logger.Info("server removed", "server", id)
	if g.cfg.Removed != nil {
		g.cfg.Removed(ctx, s)
	}
	return nil
}

// checkRemove refuses to leave a group that cannot commit.
func (g *Group) checkRemove(leaving Server) error {
	if !leaving.Voter {
		return nil
	}
	voters, healthy := 0, 0
	for _, s := range g.servers() {
		if s.Voter && s.ID != leaving.ID {
			voters++
			if s.Healthy {
				healthy++
			}
		}
	}
	switch {
	case voters == 0:
		return &MembershipError{ID: leaving.ID, Text: fmt.Sprintf("server %s is the last one with a vote; add another first", leaving.ID)}
	case healthy <= voters/2:
		return &MembershipError{ID: leaving.ID, Retry: true, Text: fmt.Sprintf("without server %s only %d of %d voters would answer, so that nothing could be committed; bring one back or add one first", leaving.ID, healthy, voters)}
	}
	return nil
}

// tellRemoved takes a server's record out of the directory, and waits a moment
// for that to reach it.
func (g *Group) tellRemoved(ctx context.Context, req RemoveRequest) error {
	result, rev, err := g.Propose(ctx, Proposal{Key: req.Key, Fingerprint: req.Fingerprint, Cmd: &fsm.DeleteMember{ID: req.ID}})
	if err != nil {
		return err
	}
	if result.Refusal != nil && result.Refusal.Code != fsm.CodeMemberUnknown {
		return result.Refusal
	}
	// It applies the entry once it has heard that it is committed, which is
	// with the exchange after the one that brought it.
	wait := time.NewTimer(2 * g.cfg.Timing.Heartbeat)
	defer wait.Stop()
	for told := 0; told < 3; {
		_, changed := g.peers.confirmed(nil, 0, time.Time{})
		s, _ := g.server(req.ID)
		if s.Healthy && s.Index >= uint64(rev) {
			told++
		}
		select {
		case <-changed:
		case <-wait.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Transfer hands leadership to target, or to the healthy voter whose log is the
// furthest for "". It returns when this server leads no more. The library would
// choose a target without a look at whether it lives.
func (g *Group) Transfer(ctx context.Context, target fsm.MemberID) error {
	if err := g.mustLead(); err != nil {
		return err
	}
	s, err := g.successor(target)
	if err != nil {
		return err
	}
	if s.ID == g.cfg.ID {
		return nil
	}
	term := g.raft.CurrentTerm()
	f := g.raft.LeadershipTransferToServer(raft.ServerID(s.ID), raft.ServerAddress(s.Raft))
	if err := await(ctx, g.ended, f.Error); err != nil {
		if !g.leadsIn(term) {
			return nil
		}
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			return ErrTransferring
		}
		return &MembershipError{ID: s.ID, Retry: true, Text: fmt.Sprintf("server %s did not take over: %v", s.ID, err)}
	}
	g.logger.Info("leadership handed over", "server", s.ID, "term", term)
	return nil
}

func (g *Group) successor(target fsm.MemberID) (Server, error) {
	var best Server
	for _, s := range g.servers() {
		if target != "" && s.ID != target {
			continue
		}
		switch {
		case s.ID == target && !s.Voter:
			return s, &MembershipError{ID: target, Text: fmt.Sprintf("server %s has no vote and cannot lead", target)}
		case s.ID == target && s.ID == g.cfg.ID:
			return s, nil
		case s.Voter && s.Healthy && s.ID != g.cfg.ID && (best.ID == "" || s.Index > best.Index):
			best = s
		}
	}
	switch {
	case best.ID != "":
		return best, nil
	case target == "":
		return best, &MembershipError{Retry: true, Text: "no other voter of the group answers, so that none can take over"}
	}
	if _, ok := g.server(target); !ok {
		return best, &MembershipError{ID: target, Text: fmt.Sprintf("the group has no server %s", target)}
	}
	return best, &MembershipError{ID: target, Retry: true, Text: fmt.Sprintf("server %s does not answer", target)}
}
