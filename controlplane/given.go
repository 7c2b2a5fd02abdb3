package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/fsm"
)

// A directory that is recovered may have lost that another group has given it a region.
// What was given arrives in a recovery alone, which reads every node (fsm.StageRegion.Given):
// so the other groups are asked before the recovery ends.

// givers is what the other groups say of what they give to this one, while its directory is
// being recovered.
type givers struct {
	mu      sync.Mutex
	term    uint64 // of which it is
	asked   bool
	problem string // why the recovery does not end yet, or ""
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

// whatIsGiven tells a recovery in a term of its leader why it does not end yet: another group
// is giving a region to this one, or may be. "" where none is.
func (s *Server) whatIsGiven(term uint64) string {
	if len(s.mayGive(s.group.State())) == 0 {
		return ""
	}
	s.givers.mu.Lock()
	defer s.givers.mu.Unlock()
	if !s.givers.asked || s.givers.term != term {
		return "the other groups are asked whether they are giving a region to this one"
	}
	return s.givers.problem
}

// askGivers is the leader's duty: it asks the other groups while the directory is being
// recovered.
func (s *Server) askGivers(ctx context.Context, term uint64) error {
	var began time.Time
	for ctx.Err() == nil {
		state := s.group.State()
		if !state.Recovering() { // it may yet be restored from a backup
			began = time.Time{}
			s.givers.note(term, false, "")
			if s.group.WaitRevision(ctx, state.Revision()+1) != nil {
				<-ctx.Done()
			}
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		s.givers.note(term, true, s.givenToUs(ctx, time.Since(began)))
		pause(ctx, giveAgain)
	}
	return nil
}

func (g *givers) note(term uint64, asked bool, problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.asked, g.problem = term, asked, problem
}

// givenToUs asks every group that may have given something. One that is not reached is waited
// for as long as a newer copy of the global directory is: what it has given is told of again
// in another recovery.
func (s *Server) givenToUs(ctx context.Context, sofar time.Duration) string {
	state := s.group.State()
	for _, o := range s.mayGive(state) {
		ctx, cancel := context.WithTimeout(ctx, homesAge)
		in, r, _ := s.askIntake(ctx, o, 1, nil)
		cancel()
		switch {
		case r != nil && sofar < homesWait:
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
