package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/controlplane/group"
	"domicile/controlplane/loops"
	"domicile/fsm"
)

// A directory that is recovered may have lost that another group has given it a region.
// What was given arrives in a recovery alone, which reads every node (fsm.StageRegion.Given):
// so the other groups are asked before the recovery ends.

//
// It may have lost, too, that it gave a region away itself: so the group that was to take it is
// asked before anything is taken over. Where the region has not arrived there it does not any
// more.

// givers is what the other groups say of what they give to this one, or took from it, while its
// directory is being recovered.
type givers struct {
	mu    sync.Mutex
	term  uint64 // of which it is
	asked bool
	found loops.Given
}

// mayGive are the groups that may have given something to this one.
func (s *Server) mayGive(state *fsm.State) (others []owner) {
	if s.config.Region != "" {
		if len(s.config.Global) > 0 {
			others = append(others, owner{global: true})
		}
		return others
	}
	for r := range state.Regions() {
		others = append(others, owner{region: r.Name})
	}
	return others
}

// whatIsGiven tells a recovery in a term of its leader what it has to wait for.
func (s *Server) whatIsGiven(term uint64) loops.Given {
	if len(s.mayGive(s.group.State())) == 0 {
		return loops.Given{}
	}
	s.givers.mu.Lock()
	defer s.givers.mu.Unlock()
	if !s.givers.asked || s.givers.term != term {
		const asked = "the other groups are asked whether a region is being handed over to this one, or from it"
		return loops.Given{Here: asked, Away: asked}
	}
	return s.givers.found
}

// askGivers is the leader's duty: it asks the other groups while the directory is being
// recovered.
func (s *Server) askGivers(ctx context.Context, term uint64) error {
	var began time.Time
	for ctx.Err() == nil {
		state := s.group.State()
		if !state.Recovering() { // it may yet be restored from a backup
			began = time.Time{}
			s.givers.note(term, false, loops.Given{})
			if s.group.WaitRevision(ctx, state.Revision()+1) != nil {
				<-ctx.Done()
			}
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		away := s.givenAway(ctx, term, state)
		s.givers.note(term, true, loops.Given{Here: s.givenToUs(ctx, time.Since(began)), Away: away})
		pause(ctx, giveAgain)
	}
	return nil
}

func (g *givers) note(term uint64, asked bool, found loops.Given) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.asked, g.found = term, asked, found
}

// givenAway settles whether a region that was to be given away was given in what was lost: it
// gives it then, and closes the other group's side where the region has not arrived there. It
// tells why that is not known yet, or "".
func (s *Server) givenAway(ctx context.Context, term uint64, state *fsm.State) string {
	j := state.Giving()
	if j == nil || j.Step != fsm.StepCopy {
		return ""
	}
	scope, _ := state.Scope()
	giver := fsm.Giver{Authority: scope.Authority(), History: scope.History, Job: j.ID}
	to := s.givenTo(j.Home)
	in, r, _ := s.askIntake(ctx, to, j.ID, &fsm.CloseIntake{Giver: giver, Undone: true})
	switch {
	case r != nil && r.Code == fsm.CodeTaskOver:
		return ""
	case r != nil:
		return fmt.Sprintf("%s is asked whether it has taken region %s over, which was about to be given to it: %s", to, j.Home, r.Text)
	case len(in.Nodes) == 0: // it has not arrived there, or has come back since
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	result, _, err := s.group.Propose(ctx, group.Proposal{Decided: term, Cmd: &fsm.GiveRegion{ID: j.ID, Arrived: true}})
	switch {
	case err != nil:
		return fmt.Sprintf("%s has taken region %s over, which is not recorded yet: %v", to, j.Home, err)
	case result.Refusal != nil && result.Refusal.Code != fsm.CodeStale:
		return fmt.Sprintf("%s has taken region %s over, and this directory cannot drop it: %s", to, j.Home, result.Refusal.Text)
	}
	s.logger.Warn("a region had been given to another directory before the recovery", "region", string(j.Home), "to", to.String(), "job", j.ID)
	return ""
}

// givenWait is for how long a group that is not reached is waited for.
const givenWait = 20 * time.Second

// givenToUs asks every group that may have given something. What one that is not reached in
// givenWait has given is told of again in another recovery.
func (s *Server) givenToUs(ctx context.Context, sofar time.Duration) string {
	state := s.group.State()
	for _, o := range s.mayGive(state) {
		ctx, cancel := context.WithTimeout(ctx, homesAge)
		in, r, _ := s.askIntake(ctx, o, 1, nil)
		cancel()
		switch {
		case r != nil && sofar < givenWait:
			return "whether a region is being given to this group is asked: " + r.Text
		case r != nil || in.Gives == nil || s.config.Region != "" && in.Gives.Region != s.config.Region:
			continue
		}
		if i, known := state.Intake(in.Holder.Authority); !known || i.Job != in.Gives.Job || i.Arrived == 0 {
			return fmt.Sprintf("%s gives region %s to this group by job %d, which this directory does not know: it is told of it again, or the job is undone", o, in.Gives.Region, in.Gives.Job)
		}
	}
	return ""
}
