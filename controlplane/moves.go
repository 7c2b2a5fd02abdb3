package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// moveWait bounds the wait for a move, so that the answer comes before whoever
	// relayed the request gives it up; the move goes on.
	moveWait = 45 * time.Second
	// pauseWait bounds the wait for the measured pause once a tenant is written at its
	// new node: a leader that took the move over does not know it.
	pauseWait = 2 * time.Second
)

// moveTenant moves a tenant to another node while it is in use (M1, M2).
func (s *Server) moveTenant(w http.ResponseWriter, c *change) error {
	name := fsm.TenantName(c.PathValue("tenant"))
	var body proto.MoveTenant
	if err := c.decode(&body); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	cmd, err := moveCommand(name, &body)
	if err != nil {
		return err
	}
	to := wanted{tenant: name, node: body.To, region: body.Region}
	to.lives, _ = s.group.State().TenantRegion(name)
	if s.crosses(name, &body) {
		err = s.relocateTenant(w, c, name, &body)
	} else {
		err = s.moveWithin(w, c, cmd, &body)
	}
	return s.ofAnotherRegion(w, c, to, err)
}

// moveWithin moves a tenant to another node of this directory.
func (s *Server) moveWithin(w http.ResponseWriter, c *change, cmd *fsm.BeginMove, body *proto.MoveTenant) error {
	if !c.replayed {
		if err := s.chooseTarget(c.Context(), cmd); err != nil {
			return err
		}
	}
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return err
	}
	return s.answerMove(w, c, s.jobOf(c, result), body, s.waitMoved)
}

// answerMove answers once a move has ended, which wait tells; with its job where that is
// not waited for, or takes too long.
func (s *Server) answerMove(w http.ResponseWriter, c *change, id fsm.JobID, body *proto.MoveTenant,
	wait func(context.Context, http.ResponseWriter, fsm.JobID) (*proto.TenantMoved, error)) error {
	if body.Wait == nil || *body.Wait {
		ctx, cancel := context.WithTimeout(c.Context(), moveWait)
		defer cancel()
		if moved, err := wait(ctx, w, id); moved != nil || err != nil {
			if err == nil {
				httpserve.WriteJSON(w, http.StatusOK, moved)
			}
			return err
		}
	}
	state := s.group.State()
	job, ok := state.Job(id)
	if !ok {
		return unknownMove(id.String())
	}
	setRevision(w, state.Revision())
	httpserve.WriteJSON(w, http.StatusAccepted, s.describeMove(state, job))
	return nil
}

// jobOf gives the job that a change began, now or when its key was used first: then the
// job may have ended.
func (s *Server) jobOf(c *change, result fsm.Result) fsm.JobID {
	if q, ok := s.group.State().Request(c.key); ok && result.Replayed {
		return q.Job
	}
	return result.Job
}

// moveCommand checks the body of a move.
func moveCommand(name fsm.TenantName, body *proto.MoveTenant) (*fsm.BeginMove, error) {
	cmd := &fsm.BeginMove{Unit: fsm.UnitName(name), Region: body.Region, Cause: fsm.CauseMove}
	switch {
	case !fsm.ValidName(string(name)):
		return nil, badName("tenant", string(name))
	case body.To != nil && !fsm.ValidName(string(*body.To)):
		return nil, badName("node", string(*body.To))
	case body.Region != nil && *body.Region != "" && !fsm.ValidName(string(*body.Region)):
		return nil, badName("region", string(*body.Region))
	case body.To == nil && body.Region == nil:
		return nil, badRequest("say where tenant %s is to go: a node (to), or a region, whose node with the fewest bytes is chosen", name)
	case body.To != nil:
		cmd.To = *body.To
	}
	return cmd, nil
}

// chooseTarget finds out whether the node that a tenant is to go to, or one of the
// region, answers and has room for it, and has the command name it. What the directory
// refuses comes first.
func (s *Server) chooseTarget(ctx context.Context, cmd *fsm.BeginMove) error {
	named := cmd.To != ""
	if _, _, no := s.group.State().MayMove(cmd); no != nil {
		return refusal(no)
	}
	if !named {
		if err := s.weighRegion(ctx, cmd); err != nil {
			return err
		}
	}
	var last error // why the node that was tried last does not take it
	for {
		state := s.group.State()
		unit, to, no := state.MayMove(cmd)
		switch {
		case no != nil && last != nil:
			return last
		case no != nil:
			return refusal(no)
		}
		if last = s.takesUnit(ctx, state, unit, to); last == nil {
			cmd.To = to
			return nil
		}
		if named {
			return last
		}
		cmd.Silent = append(cmd.Silent, to)
	}
}

// weighRegion makes the directory know how full the nodes of the region are that a move
// goes to, and notes those that are silent.
func (s *Server) weighRegion(ctx context.Context, cmd *fsm.BeginMove) error {
	nodes := candidates(s.group.State(), cmd.Region)
	silent, changed := s.usage.refresh(ctx, s.nodes, nodes)
	if len(silent) < len(nodes) {
		cmd.Silent = silent
	}
	if err := s.recordUsage(ctx, changed, 0); err != nil {
		return errNoLeader() // nothing that was asked for was begun
	}
	return nil
}

// takesUnit asks the two nodes of a move whether it can be carried out: the source
// answers, and the target answers and has room. A target that holds a copy has it.
func (s *Server) takesUnit(ctx context.Context, state *fsm.State, unit *fsm.Placed, to fsm.NodeName) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	target, ok := state.Node(to)
	source, there := state.Node(unit.Node)
	if !ok || !there {
		return errNoLeader() // the directory has changed since; nothing was done
	}
	if withoutLease(state, target) {
		return unwritable(target.Name, startOtherwise)
	}
	stats, err := s.nodes.stats(ctx, at(target))
	if err != nil {
		return err
	}
	size, known, err := s.nodes.unitSize(ctx, at(source), unit)
	if err != nil {
		return err
	}
	need := size + size/10
	if copyState(unit.Copies, to) == fsm.CopyInSync || !known || stats.Free == 0 || need <= stats.Free {
		return nil
	}
	e := httpserve.Errorf(proto.Status(fsm.CodeNodeFull), fsm.CodeNodeFull,
		"node %s has %d bytes free on its disk, and tenant %s of %d bytes needs %d there; choose another node, or make room",
		to, stats.Free, unit.Unit, size, need)
	e.Fields = map[string]any{"tenant": unit.Unit, "node": to, "free_bytes": stats.Free, "needed_bytes": need}
	return e
}

// unitSize gives the bytes of a unit at its primary, where that can be told.
func (c *nodeClient) unitSize(ctx context.Context, n nodeAt, unit *fsm.Placed) (size uint64, known bool, err error) {
	reply, err := c.call(ctx, http.MethodGet, n, pathUnits+"?unit="+url.QueryEscape(string(unit.Unit)), nil, nil)
	if err != nil {
		return 0, false, nodeError(proto.Status(fsm.CodeNodeUnreachable), fsm.CodeNodeUnreachable, n.name,
			"node %s, where tenant %s is, does not answer at %s; nothing was moved: fail the node over, or try again when it is back", n.name, unit.Unit, n.addr)
	}
	var held []proto.HeldUnit
	if reply.status != http.StatusOK || json.Unmarshal(reply.body, &held) != nil {
		return 0, false, nil // an older node tells of all that it holds, which may be too much
	}
	i := slices.IndexFunc(held, func(h proto.HeldUnit) bool { return h.Unit == unit.Unit && h.ID == unit.ID })
	if i < 0 {
		return 0, false, nodeError(proto.Status(fsm.CodeNodeRefused), fsm.CodeNodeRefused, n.name,
			"node %s does not hold tenant %s, which the directory places there; nothing was moved: fail the node over with force", n.name, unit.Unit)
	}
	return uint64(max(held[i].Bytes, 0)), true, nil
}

// waitMoved waits until a move's tenant is written at its new node, and tells of it;
// nil where ctx ends first: the move goes on. The error says why it was not moved.
func (s *Server) waitMoved(ctx context.Context, w http.ResponseWriter, id fsm.JobID) (*proto.TenantMoved, error) {
	job, revision, err := s.waitJob(ctx, id, func(j *fsm.Job) bool { return j.Ended != 0 || j.Step == fsm.StepClean })
	if err != nil {
		return nil, nil
	}
	setRevision(w, revision)
	if job.Kind == 0 {
		return nil, unknownMove(id.String())
	}
	if job.Refusal != nil {
		return nil, notMoved(job)
	}
	state := s.group.State()
	took := state.Now() - job.Started
	if job.Ended != 0 {
		took = job.Ended - job.Started
	} else if err := s.keeper.AwaitNamed(ctx, job.Targets[0].Node, revision); err != nil {
		return nil, nil
	}
	if job.Pause == 0 && job.Ended == 0 {
		ctx, cancel := context.WithTimeout(ctx, pauseWait)
		defer cancel()
		known, at, err := s.waitJob(ctx, id, func(j *fsm.Job) bool { return j.Ended != 0 || j.Pause != 0 })
		if err == nil && known.Kind != 0 {
			job = known
			setRevision(w, at)
		}
	}
	return s.describeMoved(s.group.State(), job, took), nil
}

// notMoved is the answer to a move that was undone or cancelled.
func notMoved(job *fsm.Job) error {
	r := *job.Refusal
	if job.Problem != "" && job.Problem != r.Text {
		r.Text += ": " + job.Problem
	}
	err := refusal(&r)
	var e *httpserve.Error
	if errors.As(err, &e) {
		e.Fields["tenant"], e.Fields["move"] = job.Tenant, job.ID
	}
	return err
}

// describeMoved tells of a move whose tenant is written at its new node.
func (s *Server) describeMoved(state *fsm.State, job *fsm.Job, took fsm.Millis) *proto.TenantMoved {
	t := job.Targets[0]
	out := &proto.TenantMoved{Tenant: job.Tenant, From: job.Source, To: t.Node, Bytes: job.Bytes, MS: uint64(took),
		PauseMS: pauseOf(job), ID: job.ID}
	if n, ok := state.Node(t.Node); ok {
		out.Region = n.Region
	}
	p, ok := state.Placed(t.Unit)
	if !ok || p.ID != t.ID {
		out.Unreplicated = "it was deleted since"
	} else if out.ReplicaOn = replicaOf(p); out.ReplicaOn == "" {
		out.Unreplicated = state.Unreplicated(p)
	}
	return out
}

func pauseOf(job *fsm.Job) *uint64 {
	if job.Pause == 0 {
		return nil
	}
	ms := uint64(job.Pause)
	return &ms
}

// cancelMove ends a move that has not come to its release, or what has not begun of a
// rebalance (M7).
func (s *Server) cancelMove(w http.ResponseWriter, c *change) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request, "region"); err != nil {
		return err
	}
	id, ok := moveID(c.PathValue("move"))
	if !ok || ofNowhere(c.Request, s.group.State()) {
		return unknownMove(c.PathValue("move"))
	}
	if _, err := s.propose(w, c, &fsm.CancelMove{ID: id, Reason: "an operator cancelled it"}); err != nil {
		return err
	}
	s.logger.Info("a move was cancelled", "move", id.String())
	state := s.group.State()
	job, ok := state.Job(id)
	if !ok {
		return unknownMove(id.String())
	}
	httpserve.WriteJSON(w, http.StatusOK, s.describeMove(state, job))
	return nil
}

func unknownMove(id string) error {
	if len(id) > 2*fsm.MaxName {
		id = id[:2*fsm.MaxName] + "…"
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeMoveUnknown, Fields: map[string]string{"move": id},
		Text: fmt.Sprintf("no move has the number %s, or it ended long ago", id)})
}
