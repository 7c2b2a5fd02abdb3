package fsm

import "fmt"

// checkHome: a tenant has a home in the global directory alone, and what that directory's
// own nodes hold of it then is on its way in or out.
func checkHome(s *State, e *tenancy) error {
	t := e.tenant
	if j, ok := s.running.Get(t.Job); t.Job != 0 && (!ok || j.Tenant != t.Name || j.Kind != JobRelocate && j.Home == "") {
		return fmt.Errorf("its name is at job %d", t.Job)
	}
	if !t.HasHome {
		return must(t.Home == "" && t.Claim == 0 && !t.Reserved, "a home without one")
	}
	_, own := s.regions.Get(t.Home)
	if s.scope.Region != "" || !own || t.Claim == 0 || Revision(t.Claim) > s.revision || t.Reserved && t.Job == 0 {
		return fmt.Errorf("its home is %q, its id %d", t.Home, t.Claim)
	}
	return must(e.unit == nil || e.unit.ID == t.Claim && (e.unit.State == UnitReceiving || e.unit.State == UnitDeleting),
		"it lives in %q, and is here too", t.Home)
}

// checkTaskOf: a job that is a task's is known by it. What a region has yielded goes as what
// has departed, and is no task's.
func checkTaskOf(s *State, j *Job) error {
	if j.Task == 0 {
		yielded := j.Kind == JobDepart && j.Step == StepRemove && j.Since != 0 && s.scope.Region != ""
		return must(yielded || j.Kind != JobDepart && j.Kind != JobReceive, "a job to %s of no task", j.Kind)
	}
	t, ok := s.tasks.Get(j.Task)
	return must(ok && t.Local == j.ID && t.Tenant == j.Tenant && !t.Over(), "a job of task %d, which is not at it", j.Task)
}

// checkBetween checks a unit that goes from one directory to another.
func checkBetween(s *State, j *Job) error {
	p, ok := s.Placed(UnitName(j.Tenant))
	known, indexed := s.moves.Get(UnitName(j.Tenant))
	if len(j.Targets) != 1 || !indexed || known != j {
		return fmt.Errorf("a job to %s of %d units", j.Kind, len(j.Targets))
	}
	if !ok || p.ID != j.Unit || j.Step == StepCopy && j.Kind == JobDepart || j.Step == StepThaw || j.Step == StepPromote {
		return nil // deleted meanwhile, or active
	}
	return must(p.Job == j.ID && (j.Kind == JobDepart) == (j.Step != StepCopy), "%s is not at its job to %s", p.Unit, j.Kind)
}

func checkTasks(s *State) error {
	if u := s.upstream; s.scope.Region == "" && u.Authority != "" || u.Authority == "" && s.scope.Region != "" && u != (Upstream{}) {
		return fmt.Errorf("it belongs to %q, in history %d", u.Authority, u.History)
	}
	return each(s.tasks.Scan, func(job JobID, t *Task) error {
		j, runs := s.running.Get(t.Local)
		if t.Job != job || t.Kind < TaskCreate || t.Kind > TaskReceive || !ValidName(string(t.Tenant)) || t.ID == 0 {
			return fmt.Errorf("bad record of a task")
		}
		return must(runs != t.Over() && (!runs || j.Task == job) && (t.Refusal == nil || t.Done), "a task to %s at job %d, over %v", t.Kind, t.Local, t.Over())
	})
}
