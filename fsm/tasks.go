package fsm

import (
	"iter"
	"strconv"

	"github.com/tidwall/btree"
)

// Upstream is the global group that a region's group belongs to, as its tasks tell of
// it; Authority is "" until one was heard of.
type Upstream = Origin

// TaskKind is the kind of a Task; numbers are on the wire.
type TaskKind uint8

// Kinds of tasks.
const (
	TaskCreate  TaskKind = 1
	TaskDelete  TaskKind = 2
	TaskDepart  TaskKind = 3
	TaskReceive TaskKind = 4
)

func (k TaskKind) String() string {
	switch k {
	case TaskCreate:
		return "create"
	case TaskDelete:
		return "delete"
	case TaskDepart:
		return "depart"
	case TaskReceive:
		return "receive"
	}
	return "unknown"
}

// Task is this group's part of a job of the global group (I8), kept under that job's
// number until the job has ended: the coordinator's side of it is the job, this is the
// participant's.
type Task struct {
	Job    JobID // of the global directory
	Kind   TaskKind
	Tenant TenantName
	ID     UnitID
	Local  JobID // job that does it here; 0: nothing is to be done
	// Forgone says that it is not done here, and never will be.
	Forgone bool
	Done    bool     // it has ended
	Refusal *Refusal // why it was not done, where it has ended so
}

func (w TaskWord) String() string {
	switch w {
	case TaskRelease:
		return "release"
	case TaskUndo:
		return "undo"
	case TaskDeparted:
		return "departed"
	case TaskArrived:
		return "arrived"
	case TaskSource:
		return "source"
	case TaskSettled:
		return "settled"
	}
	return "unknown"
}

// Over reports whether nothing about a task will change any more.
func (t *Task) Over() bool { return t.Forgone || t.Done }

// Upstream is the global group that a region's group belongs to; false while none was
// heard of, and in the global directory.
func (s *State) Upstream() (Upstream, bool) {
	return s.upstream, s.upstream.Authority != "" && s.scope.Region != ""
}

// Task gives the task of a job of the global directory, as long as that job may run.
func (s *State) Task(job JobID) (*Task, bool) { return s.tasks.Get(job) }

// Tasks yields the tasks by job.
func (s *State) Tasks() iter.Seq[*Task] { return values(&s.tasks) }

// Floor is the oldest job that runs, or the next one to be begun: what Origin.Floor of
// this directory's own jobs is.
func (s *State) Floor() JobID {
	if id, _, ok := s.running.Min(); ok {
		return id
	}
	return JobID(s.revision + 1)
}

// Heeds says why this directory takes nothing that is said of a job of the global group
// from o, nil where it does. So it is for good: a group that was deposed, or a call that
// comes late, says nothing that is taken once the job has ended, as its number is below
// the floor of every call that came since, and until then it finds the job's task recorded.
func (s *State) Heeds(o Origin, job JobID) *Refusal {
	if r := s.belongs(o.Authority, o.History); r != nil {
		return r
	}
	if job < max(o.Floor, s.upstream.Floor) {
		return refuse(CodeTaskOver, "job "+job.String()+" of the global group has ended; nothing is done for it any more", "job", job.String())
	}
	return nil
}

// belongs refuses what does not come from the global group of this directory.
func (s *State) belongs(authority string, history uint64) *Refusal {
	have := s.upstream.Authority
	if s.scope.Region == "" {
		have = s.scope.Authority()
	}
	switch {
	case authority == "" || history == 0 || history > MaxHistory || !printable(authority, 2*MaxName+1):
		return refuse(CodeBadRequest, "a task names the global group that it comes from: its authority, and its history, which no group counts up to more than "+
			strconv.FormatUint(MaxHistory, 10))
	case s.scope.Region == "" && (authority != have || history != s.scope.History):
		return refuse(CodeScope, "this is the global directory "+have+"; it takes no tasks of "+clip(authority), "authority", have)
	case have != "" && authority != have:
		return refuse(CodeScope, "this region belongs to the global group "+have+", and takes nothing of "+clip(authority), "authority", have)
	case history < s.upstream.History:
		return refuse(CodeStale, "the global directory was recovered since: this comes from an older history of it",
			"history", strconv.FormatUint(s.upstream.History, 10))
	}
	return nil
}

// heard records what a task tells of the group that it comes from. Tasks of jobs that
// have ended are forgotten: none of them is taken any more.
func (c *change) heard(o Origin) {
	c.upstream.History = max(c.upstream.History, o.History)
	if c.scope.Region != "" {
		c.upstream.Authority = o.Authority
	}
	if o.Floor <= c.upstream.Floor {
		return
	}
	c.upstream.Floor = o.Floor
	var over []JobID
	c.tasks.Scan(func(job JobID, t *Task) bool {
		if job < o.Floor && t.Over() { // one that is not has outlived its job, in a recovery of that group
			over = append(over, job)
		}
		return job < o.Floor
	})
	for _, job := range over {
		c.tasks.Delete(job)
	}
}

func (c *change) bindGlobal(cmd *BindGlobal) *Refusal {
	if c.scope.Region == "" {
		return refuse(CodeScope, "this is the global directory itself")
	}
	if r := c.belongs(cmd.Authority, cmd.History); r != nil {
		return r
	}
	c.heard(Origin{Authority: cmd.Authority, History: cmd.History})
	return nil
}

// putTask records a task.
func (c *change) putTask(t *Task) { c.tasks.Set(t.Job, t) }

// endTask has the task that a local job is for end with it.
func (c *change) endTask(j *Job) {
	t, ok := c.tasks.Get(j.Task)
	if j.Task == 0 || !ok || t.Local != j.ID {
		return
	}
	next := *t
	next.Done, next.Refusal = true, j.Refusal
	c.putTask(&next)
}

type taskTree = btree.Map[JobID, *Task]
