package controlplane

import (
	"fmt"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

var (
	taskKinds = []fsm.TaskKind{fsm.TaskCreate, fsm.TaskDelete, fsm.TaskDepart, fsm.TaskReceive}
	taskWords = []fsm.TaskWord{fsm.TaskRelease, fsm.TaskUndo, fsm.TaskDeparted, fsm.TaskArrived, fsm.TaskSource, fsm.TaskSettled}
)

// taskSteps and unitStates are what an answer about a task may name.
var (
	taskSteps = []fsm.JobStep{fsm.StepMake, fsm.StepSchema, fsm.StepUndo, fsm.StepRemove, fsm.StepRelease, fsm.StepThaw, fsm.StepCopy,
		fsm.StepPromote, fsm.StepClean, fsm.StepSent}
	unitStates = []fsm.UnitState{fsm.UnitCreating, fsm.UnitActive, fsm.UnitMoving, fsm.UnitDeleting, fsm.UnitReceiving, fsm.UnitSent}
)

// named gives the one of all that is called so; false for none.
func named[T fmt.Stringer](all []T, name string) (T, bool) {
	for _, x := range all {
		if x.String() == name {
			return x, true
		}
	}
	var none T
	return none, false
}

// taskCommand gives the command that a call about a task asks for.
func (s *Server) taskCommand(job fsm.JobID, call *proto.TaskCall) (any, error) {
	from := fsm.Origin{Authority: call.Authority, History: call.History, Floor: call.Floor}
	if call.Call == proto.TaskLook {
		return &lookAtTask{Origin: from, Job: job}, nil
	}
	if call.Call == proto.TaskTell {
		word, ok := named(taskWords, call.Word)
		if !ok {
			return nil, badRequest("word is release, undo, departed, arrived, source or settled, not %q; a newer version of the global group may know more: start this server with it", call.Word)
		}
		other, err := s.foreign(job, call.Other)
		return &fsm.TellTask{Origin: from, Job: job, Word: word, Other: other}, err
	}
	kind, ok := named(taskKinds, call.Kind)
	if !ok {
		return nil, badRequest("kind is create, delete, depart or receive, not %q; a newer version of the global group may know more: start this server with it", call.Kind)
	}
	switch call.Call {
	case proto.TaskForgo:
		return &fsm.ForgoTask{Origin: from, Job: job, Kind: kind, Tenant: call.Tenant, ID: call.ID}, nil
	case proto.TaskBegin:
	default:
		return nil, badRequest("call is begin, tell, forgo or look, not %q", call.Call)
	}
	source, err := s.foreign(job, call.Source)
	begin := &fsm.BeginTask{Origin: from, Job: job, Kind: kind, Tenant: call.Tenant, ID: call.ID, Region: call.Region, Node: call.Node,
		Pinned: call.Pinned, Schema: call.Schema, Quota: quotaIn(call.Quota), Source: source}
	return begin, err
}

// foreign gives the node of another directory that a call names.
func (s *Server) foreign(job fsm.JobID, n *proto.TaskNode) (*fsm.Foreign, error) {
	if n == nil {
		return nil, nil
	}
	token, err := s.seals.open(n.Token, taskUse(job))
	if err != nil {
		return nil, badRequest("the token of node %s cannot be read: %v", n.Node, err)
	}
	return &fsm.Foreign{Region: n.Region, Node: n.Node, Addr: n.Addr, Token: token, Epoch: n.Epoch}, nil
}

// taskNode names a node to another group.
func (s *Server) taskNode(job fsm.JobID, f *fsm.Foreign) *proto.TaskNode {
	if f == nil {
		return nil
	}
	return &proto.TaskNode{Region: f.Region, Node: f.Node, Addr: f.Addr, Token: s.seals.seal(f.Token, taskUse(job)), Epoch: f.Epoch}
}

// taskCall gives the call about a task that has a command done in a region.
func (s *Server) taskCall(region fsm.RegionName, cmd any) (job fsm.JobID, call *proto.TaskCall) {
	from := func(call *proto.TaskCall, o fsm.Origin) *proto.TaskCall {
		call.To, call.Authority, call.History, call.Floor = region, o.Authority, o.History, o.Floor
		return call
	}
	switch c := cmd.(type) {
	case *lookAtTask:
		return c.Job, from(&proto.TaskCall{Call: proto.TaskLook}, c.Origin)
	case *fsm.TellTask:
		return c.Job, from(&proto.TaskCall{Call: proto.TaskTell, Word: c.Word.String(), Other: s.taskNode(c.Job, c.Other)}, c.Origin)
	case *fsm.ForgoTask:
		return c.Job, from(&proto.TaskCall{Call: proto.TaskForgo, Kind: c.Kind.String(), Tenant: c.Tenant, ID: c.ID}, c.Origin)
	case *fsm.BeginTask:
		return c.Job, from(&proto.TaskCall{Call: proto.TaskBegin, Kind: c.Kind.String(), Tenant: c.Tenant, ID: c.ID, Region: c.Region, Node: c.Node,
			Pinned: c.Pinned, Schema: c.Schema, Quota: quotaOf(c.Quota), Source: s.taskNode(c.Job, c.Source)}, c.Origin)
	}
	panic(fmt.Sprintf("BUG: %T is no task", cmd))
}

// quotaOf tells of a quota, nil for none.
func quotaOf(q *fsm.Quota) *proto.Quota {
	if q == nil {
		return nil
	}
	return &proto.Quota{Bytes: q.Bytes, RPS: q.RPS, InFlight: q.InFlight}
}

func quotaIn(q *proto.Quota) *fsm.Quota {
	if q == nil {
		return nil
	}
	return &fsm.Quota{Bytes: q.Bytes, RPS: q.RPS, InFlight: q.InFlight}
}

// taskState is a region's answer as planners read it.
func (s *Server) taskState(t *proto.Task) (loops.TaskState, error) {
	out := loops.TaskState{Over: t.Done || t.Forgone, Forgone: t.Forgone, Problem: t.Problem}
	if r := t.Refusal; r != nil {
		out.Refusal = &fsm.Refusal{Code: r.Code, Text: r.Text, Fields: r.Fields}
	}
	out.Step, _ = named(taskSteps, t.Step)
	if u := t.Unit; u != nil {
		token, err := s.seals.open(u.Token, taskUse(t.Job))
		if err != nil {
			return out, err
		}
		out.Unit = &loops.TaskUnit{Foreign: fsm.Foreign{Region: u.Region, Node: u.Node, Addr: u.Addr, Token: token, Epoch: u.Epoch},
			Promoted: u.Promoted, Writable: u.Writable, Pinned: u.Pinned, Quota: quotaIn(u.Quota), ReplicaOn: u.ReplicaOn, Unreplicated: u.Unreplicated}
		out.Unit.State, _ = named(unitStates, u.State)
	}
	if c := t.Copy; c != nil {
		from := fsm.Foreign{Region: c.Source.Region, Node: c.Source.Node, Addr: c.Source.Addr, Epoch: c.Source.Epoch}
		out.Copy = &loops.TaskCopy{Source: from, Bytes: c.Bytes, Total: c.Total, Ready: c.Ready, Silent: c.Silent, Trouble: c.Trouble}
	}
	return out, nil
}
