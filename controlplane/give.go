package controlplane

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/proto"
)

// A region goes from one directory to another by a job of the group that has it (G2,
// architecture §3.9.3). Its leader tells the other group of everything (givestage.go), gives
// the region away by one entry, has the other group take it over by one entry of its own, and
// tells each node. Which of the two may grant is decided by these entries: the giver grants
// nothing once its own is applied, the taker nothing before its own, which comes later, and
// each node takes grants of one of them alone.

const (
	// giveAgain is the pause before something is asked again that was not done.
	giveAgain = 200 * time.Millisecond
	// giveWithin is Config.GiveWithin's default.
	giveWithin = 20 * time.Second
	// giveRarely is the longest pause once the region has been given.
	giveRarely = 2 * time.Second
	// tellWithin bounds a call that tells a node its new authority.
	tellWithin = 2 * time.Second
	// tellAtOnce is how many nodes are told at the same time.
	tellAtOnce = 64
)

// giveRegions is the leader's duty: it drives the job that gives a region away.
func (s *Server) giveRegions(ctx context.Context, term uint64) error {
	for ctx.Err() == nil {
		state := s.group.State()
		j := state.Giving()
		if j == nil || state.Recovering() {
			if s.group.WaitRevision(ctx, state.Revision()+1) != nil {
				<-ctx.Done()
			}
			continue
		}
		scope, _ := state.Scope()
		g := &giving{Server: s, term: term, job: j.ID, region: j.Home, to: s.givenTo(j.Home),
			giver: fsm.Giver{Authority: scope.Authority(), History: scope.History, Job: j.ID}}
		g.run(ctx)
	}
	return nil
}

// giving is one term's work on a job that gives a region away. One goroutine uses it.
type giving struct {
	*Server
	term   uint64
	job    fsm.JobID
	region fsm.RegionName
	to     owner
	giver  fsm.Giver
	telling
	problem string
}

// run works until the job has ended.
func (g *giving) run(ctx context.Context) {
	again := giveAgain
	for ctx.Err() == nil {
		j, ok := g.group.State().Job(g.job)
		if !ok || j.Ended != 0 {
			return
		}
		done := false
		switch j.Step {
		case fsm.StepCopy:
			done = g.stage(ctx)
		case fsm.StepPromote:
			done = g.arrive(ctx, j)
		case fsm.StepClean:
			done = g.tellNodes(ctx, j)
		case fsm.StepUndo:
			done = g.close(ctx, true) && g.advance(ctx, fsm.StepUndo, fsm.StepDone, nil)
		}
		if done {
			again = giveAgain
			continue
		}
		pause(ctx, again)
		if j.Step != fsm.StepCopy {
			again = min(2*again, giveRarely)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// decide proposes what the leader of this term has decided, and reports whether that was
// taken.
func (g *giving) decide(ctx context.Context, cmd fsm.Command) bool {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	faultPoint("propose", cmd)
	result, _, err := g.group.Propose(ctx, group.Proposal{Decided: g.term, Cmd: cmd})
	faultPoint("proposed", cmd)
	if err == nil && result.Refusal != nil {
		g.logger.Debug("a step of a hand-over was refused", "region", string(g.region), "err", result.Refusal.Text)
	}
	return err == nil && result.Refusal == nil
}

func (g *giving) advance(ctx context.Context, from, to fsm.JobStep, why *fsm.Refusal) bool {
	ok := g.decide(ctx, &fsm.AdvanceJob{ID: g.job, From: from, To: to, Refusal: why})
	if ok {
		g.logger.Info("a region is being handed over", "region", string(g.region), "to", g.to.String(), "job", g.job, "step", to.String())
	}
	return ok
}

// note records what is in the way, when that is news.
func (g *giving) note(ctx context.Context, problem string) {
	if problem != g.problem && g.decide(ctx, &fsm.NoteJob{ID: g.job, Problem: problem}) {
		g.problem = problem
	}
}

// takeOver has the other group take the region over. It cannot refuse: it was asked before,
// and has begun nothing since; unless its directory was recovered, and has lost what it was
// told of, or that it had the region: then it is told again what was given.
func (g *giving) takeOver(ctx context.Context, j *fsm.Job) (*proto.Intake, *fsm.Refusal) {
	cmd := &fsm.ArriveRegion{Giver: g.giver, Digest: j.Digest}
	in, r, _ := g.askIntake(ctx, g.to, g.job, cmd)
	if r == nil || r.Code != fsm.CodeTaskUnknown && r.Code != fsm.CodeStale {
		return in, r
	}
	if r := g.tellAgain(ctx); r != nil {
		return nil, r
	}
	in, r, _ = g.askIntake(ctx, g.to, g.job, cmd)
	return in, r
}

// arrive has the other group take the region over, and goes on once it has.
func (g *giving) arrive(ctx context.Context, j *fsm.Job) bool {
	in, r := g.takeOver(ctx, j)
	switch {
	case r != nil && r.Code == fsm.CodeTaskOver: // its answer was lost, and the job has come to its end there
		return g.advance(ctx, fsm.StepPromote, fsm.StepClean, nil)
	case r != nil:
		g.note(ctx, r.Text)
		return false
	}
	g.tellThese(ctx, in) // they hold leases of this group's, which run out
	return g.advance(ctx, fsm.StepPromote, fsm.StepClean, nil)
}

// tellNodes tells the nodes that are left to be told, and ends the job once all were.
func (g *giving) tellNodes(ctx context.Context, j *fsm.Job) bool {
	in, r := g.takeOver(ctx, j)
	switch {
	case r != nil && r.Code == fsm.CodeTaskOver: // closed by a leader of before, which had told every node
		return g.advance(ctx, fsm.StepClean, fsm.StepDone, nil)
	case r != nil:
		g.note(ctx, r.Text)
		return false
	}
	left := g.tellThese(ctx, in)
	if len(left) > 0 {
		g.note(ctx, left[0])
		return false
	}
	return g.close(ctx, false) && g.advance(ctx, fsm.StepClean, fsm.StepDone, nil)
}

// close has the other group end its side of the job; undone: nothing was given.
func (g *giving) close(ctx context.Context, undone bool) bool {
	_, r, _ := g.askIntake(ctx, g.to, g.job, &fsm.CloseIntake{Giver: g.giver, Undone: undone})
	if r != nil && r.Code != fsm.CodeTaskOver {
		g.note(ctx, r.Text)
		return false
	}
	return true
}

// tellThese tells nodes that they belong to another authority, all at once, and gives what
// was in the way of those that have not answered.
func (g *giving) tellThese(ctx context.Context, in *proto.Intake) (left []string) {
	if g.knows == nil {
		g.knows = make(map[fsm.NodeName]bool)
	}
	type answered struct {
		node fsm.NodeName
		why  string
	}
	answers, turns, under := make(chan answered), make(chan struct{}, tellAtOnce), 0
	for n := range g.group.State().StagedNodes() {
		if g.knows[n.Name] || !slices.Contains(in.Nodes, n.Name) { // written off by the other group
			continue
		}
		under++
		g.work.Go(func() {
			turns <- struct{}{}
			why := g.tellNode(ctx, n, in)
			<-turns
			answers <- answered{n.Name, why}
		})
	}
	for range under {
		if a := <-answers; a.why == "" {
			g.knows[a.node] = true
		} else {
			left = append(left, a.why)
		}
	}
	g.work.Wait()
	slices.Sort(left)
	return left
}

// tellNode tells one node, and gives what is in the way, or "".
func (g *giving) tellNode(ctx context.Context, n *fsm.Node, in *proto.Intake) string {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	faultPoint("call", "holder")
	reply, err := g.nodes.call(ctx, "POST", nodeAt{n.Name, n.Addr, n.Token}, "/_admin/holder", nil, proto.HandOver{
		Holder: proto.Holder{Authority: g.giver.Authority, History: g.giver.History, Term: g.term},
		Next:   in.Holder, Job: uint64(g.job), Call: in.Call,
	})
	faultPoint("called", "holder")
	switch {
	case err != nil:
		return "node " + string(n.Name) + " does not answer; it is told when it does, or when it is written off"
	case reply.status == 200:
		return ""
	}
	var said struct {
		proto.Holder
		Error string `json:"error"`
	}
	if json.Unmarshal(reply.body, &said) == nil && said.Authority == in.Holder.Authority {
		return ""
	}
	return "node " + string(n.Name) + " does not go over: " + said.Error
}
