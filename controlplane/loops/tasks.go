package loops

import "domicile/fsm"

// TaskCall is what a call to the group of a region is for: its task of a job of this
// group, which is the global one. Of one, only one is under way at a time.
type TaskCall struct {
	Job    fsm.JobID
	Region fsm.RegionName
}

// TaskAction is a call to be made to a region's group; where this group keeps the region
// itself it is a proposal of its own. Cmd is a BeginTask, a TellTask or a ForgoTask,
// without its Origin; nil only asks how the task stands. The answer may wait for as long
// as Wait until that has changed.
type TaskAction struct {
	TaskCall
	Cmd  fsm.Command
	Wait fsm.Millis
}

// TaskAnswer is what came of a TaskAction. Outcomes are Done: the region's group has it, and
// Task says how it stands; Refused: it says no, with Refusal; Unavailable: it says not now, nothing was done;
// Silent: it was not reached, or its answer was lost, and it may have been done unless
// Untouched.
type TaskAnswer struct {
	Outcome   Outcome
	Refusal   *fsm.Refusal
	Untouched bool
	Task      TaskState
}

// TaskState is how a task stands in its region.
type TaskState struct {
	// Over: nothing about it will change any more; Refusal says why it was not done, and
	// Forgone that it never will be.
	Over, Forgone bool
	Refusal       *fsm.Refusal
	Step          fsm.JobStep // of the job that does it there; 0 once it is over
	Problem       string      // of that job
	Unit          *TaskUnit   // where the tenant is there; nil: it is not
	Copy          *TaskCopy   // of a receive that copies
}

// TaskUnit is where a region has a tenant.
type TaskUnit struct {
	fsm.Foreign // its primary; the token only of a depart
	State       fsm.UnitState
	Promoted    bool
	Writable    bool // its node was granted it
	Pinned      bool
	Quota       *fsm.Quota
	// ReplicaOn is the node of a copy in sync, or "": then Unreplicated says why.
	ReplicaOn    fsm.NodeName
	Unreplicated string
}

// TaskCopy is how far the nodes of a receive are with what they follow.
type TaskCopy struct {
	Source       fsm.Foreign // that they were told to follow; without its token
	Bytes, Total uint64
	Ready        bool // they lack nothing but what is under way
	Silent       bool // the node that is to be the primary does not answer
	Trouble      string
}

// taskMemory is what a leader knows, in its own term, of a task in a region.
type taskMemory struct {
	running  bool
	touched  bool       // a call that ended may have done something
	heardOf  bool       // a call got through, if only to be told "not now": it may come again, and be done then
	asked    TaskAction // the call that is under way, or was last
	begun    fsm.Millis // when that was
	last     TaskAnswer // of the last call that ended; zero before
	failures int        // calls in a row that did not end Done
	retryAt  fsm.Millis
	silent   fsm.Millis // since when it does not answer; 0: it does
	unwilled fsm.Millis // since when it refuses, or says not now; 0: it does not
	heard    fsm.Millis // when the call began that was answered Done last
	known    bool       // it was
	state    TaskState  // that it answered then
}

// UnreachedFor is for how long a job of the global group waits for a region that does
// not answer, where it can be undone.
const UnreachedFor fsm.Millis = 10_000

// TaskAgain bounds the pause before a region is asked again.
const TaskAgain fsm.Millis = 1000

// BeginTask notes that a call to a region is under way.
func (m *Memory) BeginTask(a TaskAction, now fsm.Millis) {
	t := m.task(a.TaskCall)
	t.running, t.asked, t.begun = true, a, now
}

// EndTask notes what came of it.
func (m *Memory) EndTask(c TaskCall, a TaskAnswer, now fsm.Millis) {
	t := m.task(c)
	t.running, t.last = false, a
	t.touched = t.touched || a.Outcome == Done || !a.Untouched
	t.heardOf = t.heardOf || t.touched || a.Outcome == Unavailable
	if a.Outcome == Done {
		t.known, t.state, t.heard = true, a.Task, t.begun
		t.failures, t.silent, t.unwilled = 0, 0, 0
		return
	}
	t.failures++
	t.retryAt = now + min(TaskAgain, backoff(t.failures, uint64(c.Job)))
	since, other := &t.silent, &t.unwilled
	if a.Outcome != Silent {
		since, other = other, since
	}
	*other = 0
	if *since == 0 {
		*since = max(t.begun, 1)
	}
}

func (m *Memory) task(c TaskCall) *taskMemory {
	t, ok := m.tasks[c]
	if !ok {
		t = new(taskMemory)
		m.tasks[c] = t
	}
	return t
}

// ask plans a call to a region about its task, unless one is under way or the region is
// to be left alone for a while, and reports whether it did.
func (p *planner) ask(c TaskCall, cmd fsm.Command, wait fsm.Millis) bool {
	t := p.m.task(c)
	switch {
	case t.running:
	case t.failures > 0 && p.now < t.retryAt:
		p.wakeAt(t.retryAt)
	default:
		p.plan.Tasks = append(p.plan.Tasks, TaskAction{c, cmd, wait})
		return true
	}
	return false
}

// refusal is why the last call was not done; nil where it was, or none has ended.
func (t *taskMemory) refusal() *fsm.Refusal {
	if t.last.Outcome == Done {
		return nil
	}
	return t.last.Refusal
}

// refused reports whether the last call was refused for a reason.
func (t *taskMemory) refused(code fsm.Code) bool {
	r := t.refusal()
	return r != nil && r.Code == code
}
