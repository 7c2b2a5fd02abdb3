package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// undoWait bounds the wait for the end of a move between directories that is being undone:
// a region that is not reached may take long to hear of it.
const undoWait = 3 * time.Second

// Moves of tenants from one directory to another are the global group's (M1, architecture
// §3.9.2): both regions do their part as tasks of its job.

// crosses reports whether a move leads from one directory to another.
func (s *Server) crosses(name fsm.TenantName, body *proto.MoveTenant) bool {
	state := s.group.State()
	t, ok := state.Tenant(name)
	if s.config.Region != "" || !ok || body.Region == nil {
		return false
	}
	own := state.KeepsOwn(*body.Region)
	return t.HasHome && t.Home != *body.Region || !t.HasHome && own
}

// relocateTenant moves a tenant to another directory while it is in use.
func (s *Server) relocateTenant(w http.ResponseWriter, c *change, name fsm.TenantName, body *proto.MoveTenant) error {
	cmd := &fsm.BeginRelocation{Tenant: name, Region: *body.Region, To: body.To}
	if !c.replayed {
		if no := s.group.State().MayRelocate(cmd); no != nil {
			return refusal(no)
		}
		if err := s.reachesBoth(c, cmd); err != nil {
			return err
		}
	}
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return err
	}
	return s.answerMove(w, c, s.jobOf(c, result), body, s.waitRelocated)
}

// leftBehind says of a refusal, as other work on a tenant is under way, where that is the
// removal of what it left when it moved away from here, and until when that stays: the tenant
// cannot come back before that.
func (s *Server) leftBehind(name fsm.TenantName, no *fsm.Refusal) *fsm.Refusal {
	state := s.group.State()
	left := departed(state, name)
	if no.Code != fsm.CodeBusy || left == nil {
		return no
	}
	grace := time.Duration(state.Settings().RemoveAfter) * time.Millisecond
	text, fields := "what tenant "+string(name)+" left here when it moved away is still on node "+string(left.Source)+", and has to be gone before the tenant comes back: ", map[string]string{"tenant": string(name)}
	switch due := left.Since + fsm.Millis(grace.Milliseconds()); {
	case left.Since == 0:
		text += fmt.Sprintf("it is removed %v (remove-after) after that move has ended", grace)
	case s.now() < due:
		fields["until"] = timeOf(due).Format(time.RFC3339)
		text += fmt.Sprintf("it is removed at %s, %v (remove-after) after that", fields["until"], grace)
	default:
		text += "it is being removed"
		if left.Problem != "" {
			text += ": " + left.Problem
		}
	}
	return &fsm.Refusal{Code: no.Code, Text: text, Fields: fields}
}

// reachesBoth asks the two regions of a move before it is begun: what cannot be done now
// changes nothing (G9).
func (s *Server) reachesBoth(c *change, cmd *fsm.BeginRelocation) error {
	state := s.group.State()
	from, _ := state.TenantRegion(cmd.Tenant)
	for _, region := range []fsm.RegionName{from, cmd.Region} {
		if !state.KeepsOwn(region) {
			continue // this group's
		}
		if err := s.reaches(c, region, cmd.Tenant); err != nil {
			return err
		}
	}
	return nil
}

// waitRelocated waits until a tenant is written in its new home, and tells of it; nil where
// ctx ends first: the move goes on. The error says why it was not moved.
func (s *Server) waitRelocated(ctx context.Context, w http.ResponseWriter, id fsm.JobID) (*proto.TenantMoved, error) {
	ended := func(j *fsm.Job) bool { return j.Ended != 0 }
	job, revision, err := s.waitJob(ctx, id, func(j *fsm.Job) bool { return ended(j) || j.Step == fsm.StepClean || j.Step == fsm.StepUndo })
	if err != nil {
		return nil, nil
	}
	further := ended
	if job.Step == fsm.StepClean {
		further = func(j *fsm.Job) bool { return ended(j) || j.Pause != 0 || j.Bytes != 0 }
	}
	if !ended(job) && job.Kind != 0 {
		within := pauseWait
		if job.Step == fsm.StepUndo {
			within = undoWait
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if known, at, err := s.waitJob(ctx, id, further); err == nil && known.Kind != 0 {
			job, revision = known, at
		}
	}
	setRevision(w, revision)
	switch {
	case job.Kind == 0:
		return nil, unknownMove(id.String())
	case job.Refusal != nil:
		return nil, notMoved(job)
	}
	s.alsoRelocated(w, job)
	return s.describeRelocated(job), nil
}

// alsoRelocated says which other directory a move has changed last: that of the tenant's
// home, or, where that is this one, that which it has left.
func (s *Server) alsoRelocated(w http.ResponseWriter, job *fsm.Job) {
	own, _ := s.ownName()
	for _, region := range []fsm.RegionName{job.Home, job.From} {
		if told, ok := s.told.get(job.ID, region); ok && told.at.Authority != own.Authority {
			w.Header().Set(proto.HeaderAlso, told.at.String())
			return
		}
	}
}

// describeRelocated tells of a move whose tenant is written in its new home.
func (s *Server) describeRelocated(job *fsm.Job) *proto.TenantMoved {
	b := s.known.relocating(job.ID)
	took := s.now() - job.Started
	if job.Ended != 0 {
		took = job.Ended - job.Started
	}
	out := &proto.TenantMoved{Tenant: job.Tenant, From: cmp.Or(b.From, job.Source), To: cmp.Or(b.To, job.Node), Region: job.Home, Bytes: job.Bytes, MS: uint64(max(took, 0)),
		PauseMS: pauseOf(job), ID: job.ID, ReplicaOn: b.Arrived.ReplicaOn, Unreplicated: b.Arrived.Unreplicated}
	if out.ReplicaOn == "" && out.Unreplicated == "" {
		out.Unreplicated = "its region has not told of a copy in sync yet"
	}
	return out
}

// describePart adds to what is told of a region's part of a move between directories: the
// other side as far as this one was told of it.
func (s *Server) describePart(out *proto.Move, j *fsm.Job) {
	own := s.config.Region
	out.Tenant, out.Of, out.Step, out.PauseMS = j.Tenant, j.Task, stepOf(j), pauseOf(j)
	if j.Kind == fsm.JobDepart {
		out.From, out.FromRegion = j.Source, &own
		if j.Other != nil {
			out.To, out.Region = j.Other.Node, &j.Other.Region
		}
		return
	}
	out.To, out.Region = j.Targets[0].Node, &own
	if j.Other != nil {
		out.From, out.FromRegion = j.Other.Node, &j.Other.Region
	}
	if j.Ended == 0 {
		r := s.known.receiving(j.ID)
		out.Bytes, out.BytesTotal = r.Bytes, r.Total
	}
}

// describeRelocation adds to what is told of a move what is known of one between
// directories.
func (s *Server) describeRelocation(out *proto.Move, j *fsm.Job) {
	from, region := j.From, j.Home
	b := s.known.relocating(j.ID)
	out.Tenant, out.From, out.To = j.Tenant, cmp.Or(b.From, j.Source), cmp.Or(b.To, j.Node)
	out.FromRegion, out.Region, out.PauseMS = &from, &region, pauseOf(j)
	out.Step, out.Bytes, out.BytesTotal = stepOf(j), j.Bytes, j.Bytes
	if j.Ended != 0 || j.Step == fsm.StepClean && j.Bytes > 0 {
		return
	}
	out.Bytes, out.BytesTotal = b.Copy.Bytes, b.Copy.Total
	if j.Step != fsm.StepCopy {
		return
	}
	out.Waiting = b.Waits
	if out.Problem == "" {
		out.Problem = b.Copy.Trouble
	}
	if b.Copy.Total > 0 && b.Copy.Bytes >= b.Copy.Total {
		out.Step = proto.MoveCatchingUp
	}
}
