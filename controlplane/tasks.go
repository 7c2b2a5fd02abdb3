package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// maxTaskWait bounds how long a call about a task may wait for news of it.
const maxTaskWait = 20 * time.Second

// task takes a call of the global group about one of its jobs (I8).
func (s *Server) task(w http.ResponseWriter, c *change) error {
	job, ok := moveID(c.PathValue("job"))
	if !ok {
		return badRequest("a task is named by the number of a job of the global group, not %q", c.PathValue("job"))
	}
	query, err := parseQuery(c.Request, "wait")
	if err != nil {
		return err
	}
	wait, err := waitOf(query.Get("wait"))
	if err != nil {
		return err
	}
	var call proto.TaskCall
	if err := c.decode(&call); err != nil {
		return err
	}
	if err := s.calledFor(call.To, call.ToAuthority); err != nil {
		return err
	}
	cmd, err := s.taskCommand(job, &call)
	if err != nil {
		return err
	}
	s.asked.begin(call.Tenant, httpserve.RequestID(c.Context()))
	defer s.asked.end(call.Tenant)
	told, revision, err := s.doTask(c.Context(), cmd, wait)
	if err != nil {
		return err
	}
	setRevision(w, revision)
	httpserve.WriteJSON(w, http.StatusOK, told)
	return nil
}

func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, badRequest("wait is a number of milliseconds, not %q", text)
	}
	return min(time.Duration(ms)*time.Millisecond, maxTaskWait), nil
}

// lookAtTask asks how a task stands, and nothing else.
type lookAtTask struct {
	fsm.Origin
	Job fsm.JobID
}

// doTask has this group do its part of a job of the global group, and waits until that has
// ended, has come a step further, or wait is over. The error is to be answered.
func (s *Server) doTask(ctx context.Context, cmd any, wait time.Duration) (*proto.Task, fsm.Revision, error) {
	var job fsm.JobID
	switch cmd := cmd.(type) {
	case *lookAtTask:
		job = cmd.Job
		if err := s.lookedAt(ctx, cmd.Origin, job); err != nil {
			return nil, 0, err
		}
	case *fsm.BeginTask:
		job = cmd.Job
		if err := s.beginTask(ctx, cmd); err != nil {
			return nil, 0, err
		}
	case *fsm.TellTask:
		job = cmd.Job
		if err := s.proposeTask(ctx, cmd); err != nil {
			return nil, 0, err
		}
	case *fsm.ForgoTask:
		job = cmd.Job
		if err := s.proposeTask(ctx, cmd); err != nil {
			return nil, 0, err
		}
	default:
		panic(fmt.Sprintf("BUG: %T is no task", cmd))
	}
	return s.awaitTask(ctx, job, wait)
}

// lookedAt makes this leader's directory as new as any answer was, and says whether a task
// of that origin may be asked for.
func (s *Server) lookedAt(ctx context.Context, o fsm.Origin, job fsm.JobID) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	if r := s.group.State().Heeds(o, job); r != nil {
		return refusal(r)
	}
	return nil
}

// beginTask begins a task, or finds it begun.
func (s *Server) beginTask(ctx context.Context, cmd *fsm.BeginTask) error {
	if t, ok := s.group.State().Task(cmd.Job); ok && t.Kind == cmd.Kind && t.ID == cmd.ID && !t.Forgone {
		return s.lookedAt(ctx, cmd.Origin, cmd.Job)
	}
	if cmd.Kind == fsm.TaskCreate || cmd.Kind == fsm.TaskReceive {
		place := &fsm.CreateTenant{Name: cmd.Tenant, Region: cmd.Region, Node: cmd.Node}
		if err := s.weigh(ctx, place); err != nil {
			return err
		}
		cmd.Silent = place.Silent
	}
	return s.proposeTask(ctx, cmd)
}

func (s *Server) proposeTask(ctx context.Context, cmd fsm.Command) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	faultPoint("task", cmd)
	result, _, err := s.group.Propose(ctx, group.Proposal{Cmd: cmd})
	faultPoint("tasked", cmd)
	switch {
	case err != nil:
		return s.groupError(err)
	case result.Refusal != nil:
		if begin, ok := cmd.(*fsm.BeginTask); ok {
			return refusal(s.leftBehind(begin.Tenant, result.Refusal))
		}
		return refusal(result.Refusal)
	}
	return nil
}

// taskStands is what a call about a task waits for a change of.
type taskStands struct {
	over     bool
	step     string
	node     fsm.NodeName
	epoch    uint64
	promoted bool
	ready    bool
	trouble  string
}

func standsAt(t *proto.Task) taskStands {
	at := taskStands{over: t.Done || t.Forgone, step: t.Step}
	if u := t.Unit; u != nil {
		at.node, at.epoch, at.promoted = u.Node, u.Epoch, u.Promoted
	}
	if c := t.Copy; c != nil {
		at.ready, at.trouble = c.Ready, c.Trouble
	}
	return at
}

// awaitTask gives how a task stands, once that is news or wait is over. A tenant that was
// created, or has come from another directory, is told of once it can be written.
func (s *Server) awaitTask(ctx context.Context, job fsm.JobID, wait time.Duration) (*proto.Task, fsm.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.leaving, cancel)()
	var first *proto.Task
	for {
		news := s.known.news()
		state := s.group.State()
		t, ok := state.Task(job)
		if !ok {
			return nil, 0, refusal(&fsm.Refusal{Code: fsm.CodeTaskUnknown, Text: "nothing was begun here for job " + job.String() + " of the global group, or it has ended",
				Fields: map[string]string{"job": job.String()}})
		}
		told := s.describeTask(state, t)
		if first == nil {
			first = told
		}
		if t.Over() {
			s.awaitWritable(ctx, state, t, told)
		}
		if t.Over() || standsAt(told) != standsAt(first) || !s.awaitNews(ctx, state.Revision()+1, news) {
			return told, state.Revision(), nil
		}
	}
}

// awaitNews waits for a change of the directory, or of what this leader knows of copies
// from another one, and reports whether there is one.
func (s *Server) awaitNews(ctx context.Context, revision fsm.Revision, news <-chan struct{}) bool {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-news:
			cancel()
		case <-either.Done():
		}
	}()
	return s.group.WaitRevision(either, revision) == nil || ctx.Err() == nil
}

// awaitWritable waits, as long as ctx lasts, until the tenant that a task has created, or
// received, can be written.
func (s *Server) awaitWritable(ctx context.Context, state *fsm.State, t *fsm.Task, told *proto.Task) {
	if t.Kind != fsm.TaskCreate && t.Kind != fsm.TaskReceive || t.Refusal != nil || told.Unit == nil {
		return
	}
	told.Unit.Writable = s.keeper.AwaitNamed(ctx, told.Unit.Node, state.Revision()) == nil
}

// describeTask tells how a task stands.
func (s *Server) describeTask(state *fsm.State, t *fsm.Task) *proto.Task {
	out := &proto.Task{Job: t.Job, Kind: t.Kind.String(), Tenant: t.Tenant, ID: t.ID, Done: t.Done, Forgone: t.Forgone}
	if r := t.Refusal; r != nil {
		out.Refusal = &proto.TaskRefusal{Code: r.Code, Text: r.Text, Fields: r.Fields}
	}
	if j, ok := state.Job(t.Local); ok && j.Ended == 0 {
		out.Step, out.Problem = j.Step.String(), j.Problem
		if j.Kind == fsm.JobReceive && j.Step == fsm.StepCopy {
			out.Copy = s.describeCopy(j)
		}
	}
	if p, ok := state.Placed(fsm.UnitName(t.Tenant)); ok && p.ID == t.ID {
		out.Unit = s.describeTaskUnit(state, t, p)
	}
	return out
}

// describeCopy tells how far the nodes of a receive are, as they told this leader.
func (s *Server) describeCopy(j *fsm.Job) *proto.TaskCopy {
	r := s.known.receiving(j.ID)
	return &proto.TaskCopy{Source: proto.TaskNode{Region: j.Other.Region, Node: j.Other.Node, Addr: j.Other.Addr, Epoch: j.Other.Epoch},
		Bytes: r.Bytes, Total: r.Total, Ready: r.Ready, Silent: r.Silent, Trouble: r.Trouble}
}

func (s *Server) describeTaskUnit(state *fsm.State, t *fsm.Task, p *fsm.Placed) *proto.TaskUnit {
	out := &proto.TaskUnit{TaskNode: proto.TaskNode{Node: p.Node, Epoch: p.Epoch}, State: p.State.String(), Promoted: p.Promoted(), ReplicaOn: replicaOf(p)}
	if n, ok := state.Node(p.Node); ok {
		out.Region, out.Addr = n.Region, nodeURL(n.Addr)
		if t.Kind == fsm.TaskDepart {
			out.Token = s.seals.seal(followToken(state, n), taskUse(t.Job))
		}
	}
	if out.ReplicaOn == "" {
		out.Unreplicated = state.Unreplicated(p)
	}
	if tenant, ok := state.Tenant(t.Tenant); ok {
		out.Pinned, out.Quota = tenant.Pinned, quotaOf(tenant.Quota)
	}
	return out
}

// followToken is what a node is shown by those who follow it.
func followToken(state *fsm.State, n *fsm.Node) string {
	if token := state.Settings().ReplicationToken; token != "" {
		return token
	}
	return n.Token
}

// taskUse says what a token is sealed for: a task, whose number no other has.
func taskUse(job fsm.JobID) string { return "task " + job.String() }

// listTasks gives the tasks that are kept, by job: what the global group has this one do.
func (s *Server) listTasks(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	tenant := fsm.TenantName(r.URL.Query().Get("tenant"))
	if tenant != "" && !fsm.ValidName(string(tenant)) {
		return badName("tenant", string(tenant))
	}
	tasks, nowhere := []*proto.Task{}, ofNowhere(r, state)
	for t := range state.Tasks() {
		if (tenant == "" || t.Tenant == tenant) && !nowhere {
			tasks = append(tasks, s.describeTask(state, t).Shown())
		}
	}
	httpserve.WriteJSON(w, http.StatusOK, tasks)
	return nil
}
