package fsm

import "iter"

// Outlived reports whether a task has outlived its job, which says no more of it: the job
// was begun in an older history of the global directory than the newest that was heard of,
// or is below the floor (Origin); in that directory itself a recovery has ended it.
func (s *State) Outlived(t *Task) bool {
	if s.scope.Region == "" {
		j, runs := s.running.Get(t.Job)
		return !t.Over() && !(runs && j.Kind == JobRelocate)
	}
	oldest := s.upstream.Floor
	if h := s.upstream.History; h > 1 { // the first has its revisions from 1
		oldest = max(oldest, JobID(FirstRevision(h)))
	}
	return !t.Over() && t.Job < oldest
}

// Unsettled yields the jobs of tenants that have departed, and of which nobody will say any
// more that they are promoted where they live now: until then what is here is kept.
func (s *State) Unsettled() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		for j := range s.RunningJobs() {
			if j.Kind != JobDepart || j.Step != StepRemove || j.Since != 0 {
				continue
			}
			if t, ok := s.tasks.Get(j.Task); ok && s.Outlived(t) && !yield(j) {
				return
			}
		}
	}
}

// GlobalHistory is the history of the global directory that this one is, or the newest that
// was heard of.
func (s *State) GlobalHistory() uint64 {
	if s.scope.Region == "" {
		return s.scope.History
	}
	return s.upstream.History
}

// settleTask does what the job would have said. A create or delete goes on by itself.
func (c *change) settleTask(cmd *SettleTask) *Refusal {
	t, ok := c.tasks.Get(cmd.Job)
	stale := refuse(CodeStale, "the task does not stand where it is settled", "job", cmd.Job.String())
	if !ok || !c.Outlived(t) || cmd.History != c.GlobalHistory() {
		return stale
	}
	j, runs := c.running.Get(t.Local)
	p, held := c.Placed(UnitName(t.Tenant))
	left := runs && j.Kind == JobDepart && j.Step == StepRemove
	if !runs || !held || p.ID != t.ID || !j.settles(cmd.Here) || p.State == UnitMoving || c.flipsItself() && !left {
		return stale
	}
	switch {
	case left:
		c.settleDeparted(j)
	case t.Kind == TaskDepart && cmd.Here:
		c.undoDeparting(j, p)
	case t.Kind == TaskDepart:
		c.departed(j, p)
	case cmd.Here:
		c.land(j, p)
	default:
		c.forgoReceive(j, refuse(CodeTaskForgone, "the global directory, which was recovered, has the tenant elsewhere", "tenant", string(t.Tenant)))
	}
	return nil
}

// Settles reports whether SettleTask can be told of a task as it stands, by where its tenant
// has its home: its job here is not at something that it ends by itself, nor left (Unsettled).
func (s *State) Settles(t *Task, here bool) bool {
	j, ok := s.running.Get(t.Local)
	return ok && j.settles(here) && j.Step != StepRemove
}

// GivesNothing reports whether the source of a task to depart has the tenant as any other of
// its own: it was not told to give it up.
func (s *State) GivesNothing(t *Task) bool {
	j, ok := s.running.Get(t.Local)
	return ok && j.Kind == JobDepart && j.Step == StepCopy
}

// settles: what its source has not given up stays, wherever it lives (YieldTenant).
func (j *Job) settles(here bool) bool {
	switch j.Kind {
	case JobDepart:
		return j.Refusal == nil && j.Step == StepCopy && here || j.Step == StepSent || j.Step == StepRemove && !here && j.Since == 0
	case JobReceive:
		return j.Step == StepCopy
	}
	return false
}
