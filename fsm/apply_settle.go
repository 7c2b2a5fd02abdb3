package fsm

// Outlived reports whether a task has outlived its job, which says no more of it: the job
// was begun in an older history of the global directory than the newest that was heard of,
// or is below the floor (Origin).
func (s *State) Outlived(t *Task) bool {
	oldest := s.upstream.Floor
	if h := s.upstream.History; h > 1 { // the first has its revisions from 1
		oldest = max(oldest, JobID(FirstRevision(h)))
	}
	return !t.Over() && s.scope.Region != "" && t.Job < oldest
}

// settleTask does what the job would have said. A create or delete goes on by itself.
func (c *change) settleTask(cmd *SettleTask) *Refusal {
	t, ok := c.tasks.Get(cmd.Job)
	stale := refuse(CodeStale, "the task does not stand where it is settled", "job", cmd.Job.String())
	if !ok || !c.Outlived(t) || cmd.History != c.upstream.History {
		return stale
	}
	j, runs := c.running.Get(t.Local)
	p, held := c.Placed(UnitName(t.Tenant))
	if !runs || !held || p.ID != t.ID || !j.settles(cmd.Here) || p.State == UnitMoving {
		return stale
	}
	switch {
	case t.Kind == TaskDepart && cmd.Here:
		c.undoDeparting(j, p)
	case t.Kind == TaskDepart:
		c.departed(j, p)
		j, _ = c.running.Get(t.Local)
		c.settleDeparted(j)
	case cmd.Here:
		c.land(j, p)
	default:
		c.forgoReceive(j, refuse(CodeTaskForgone, "the global directory, which was recovered, has the tenant elsewhere", "tenant", string(t.Tenant)))
	}
	return nil
}

// Settles reports whether SettleTask can be told of a task as it stands: its job here is
// not at something that it ends by itself.
func (s *State) Settles(t *Task, here bool) bool {
	j, ok := s.running.Get(t.Local)
	return ok && j.settles(here)
}

func (j *Job) settles(here bool) bool {
	switch j.Kind {
	case JobDepart:
		return j.Refusal == nil && j.Step == StepCopy || j.Step == StepSent || j.Step == StepRemove && !here && j.Since == 0
	case JobReceive:
		return j.Step == StepCopy
	}
	return false
}
