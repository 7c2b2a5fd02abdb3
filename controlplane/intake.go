package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// intake takes a call of a group that gives a region to this one (architecture §3.9.3).
// Each may be repeated, and comes late without effect (fsm.Intake).
func (s *Server) intake(w http.ResponseWriter, c *change) error {
	job, ok := moveID(c.PathValue("job"))
	if !ok {
		return badRequest("a hand-over is named by the number of a job of the group that gives, not %q", c.PathValue("job"))
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	var call proto.IntakeCall
	if err := c.decode(&call); err != nil {
		return err
	}
	if err := s.calledFor(call.To, call.ToAuthority); err != nil {
		return err
	}
	leads := s.group.Leader()
	ctx, cancel := context.WithTimeout(c.Context(), proposeTimeout)
	defer cancel()
	authority := ""
	if call.Entry == "" {
		if err := s.readIndex(ctx); err != nil {
			return err
		}
	} else {
		cmd, giver, err := s.intakeCommand(job, call.Entry)
		if err != nil {
			return err
		}
		authority = giver.Authority
		faultPoint("intake", cmd)
		result, rev, err := s.group.Propose(ctx, group.Proposal{Cmd: cmd})
		faultPoint("taken", cmd)
		if err != nil {
			return s.groupError(err)
		}
		setRevision(w, rev)
		if result.Refusal != nil {
			return refusal(result.Refusal)
		}
	}
	return s.tellIntake(w, authority, job, leads)
}

// intakeCommand opens what a call has this group record.
func (s *Server) intakeCommand(job fsm.JobID, sealed string) (fsm.Command, fsm.Giver, error) {
	text, err := s.seals.open(sealed, intakeUse(job))
	if err != nil {
		return nil, fsm.Giver{}, badRequest("the entry cannot be read: %v", err)
	}
	e, err := proto.DecodeEntry(0, 0, []byte(text))
	if err != nil {
		return nil, fsm.Giver{}, badRequest("the entry cannot be read: %v", err)
	}
	var giver fsm.Giver
	switch cmd := e.Cmd.(type) {
	case *fsm.StageRegion:
		giver = cmd.Giver
	case *fsm.ArriveRegion:
		giver = cmd.Giver
	case *fsm.CloseIntake:
		giver = cmd.Giver
	default:
		return nil, giver, badRequest("the entry is none by which a region is given")
	}
	if giver.Job != job {
		return nil, giver, badRequest("the entry is of job %d, and not of %d", giver.Job, job)
	}
	return e.Cmd, giver, nil
}

func intakeUse(job fsm.JobID) string { return "intake " + job.String() }

// tellIntake answers what is known of a hand-over, if this server has led all the time: the
// numbers of its calls are told.
func (s *Server) tellIntake(w http.ResponseWriter, authority string, job fsm.JobID, leads group.Leader) error {
	state := s.group.State()
	scope, _ := state.Scope()
	out := proto.Intake{Holder: proto.Holder{Authority: scope.Authority(), History: scope.History, Term: leads.Term}}
	if i, ok := state.Intake(authority); ok && i.Job == job {
		out.Known, out.Try, out.Part, out.Digest, out.Arrived, out.Over = true, i.Try, i.Part, digestText(i.Digest), i.Arrived != 0, i.Over
		for _, n := range i.Nodes {
			if now, ok := state.Node(n.Node); ok && now.ID == n.ID {
				out.Nodes = append(out.Nodes, n.Node)
			}
		}
		if !out.Arrived && !out.Over {
			if r := state.MayArrive(i.Region); r != nil {
				out.NotReady = &proto.IntakeRefusal{Code: r.Code, Text: r.Text, Fields: r.Fields}
			}
		}
	}
	if j := state.Giving(); j != nil && j.Step != fsm.StepUndo && !(j.Step == fsm.StepCopy && state.Recovering()) {
		out.Gives = &proto.IntakeGives{Region: j.Home, Job: j.ID}
	}
	out.Call = s.jobs.numbers.Load() + 1
	if now := s.group.Leader(); !leads.Self || !now.Self || now.Term != leads.Term {
		return errNoLeader()
	}
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

func digestText(sum uint64) string { return strconv.FormatUint(sum, 16) }

// givenTo is the group that a job gives a region to.
func (s *Server) givenTo(region fsm.RegionName) owner {
	if s.config.Region == "" {
		return owner{region: region}
	}
	return owner{global: true}
}

// intakeSlack is how long another group may take for a part, and the way.
const intakeSlack = 10 * time.Second

// askIntake has the group that takes a region record something, or tells of itself where
// cmd is nil. The refusal says why not; unless it is final it may be asked again.
func (s *Server) askIntake(ctx context.Context, o owner, job fsm.JobID, cmd fsm.Command) (in *proto.Intake, r *fsm.Refusal, final bool) {
	ctx, cancel := context.WithTimeout(ctx, intakeSlack)
	defer cancel()
	call := proto.IntakeCall{To: o.region, ToAuthority: s.authorityOf(o)}
	if cmd != nil {
		entry, err := proto.EncodeEntry(fsm.Entry{Cmd: cmd})
		if err != nil {
			return nil, &fsm.Refusal{Code: proto.CodeInternal, Text: err.Error()}, true
		}
		call.Entry = s.seals.seal(string(entry), intakeUse(job))
	}
	body, err := json.Marshal(call)
	if err != nil {
		panic("BUG: a call about a hand-over is no JSON: " + err.Error())
	}
	q := s.towards(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/_shard/intakes/" + job.String()}, Header: http.Header{"Content-Type": {"application/json"}}})
	resp, err := s.links.ask(ctx, o.name(), s.addresses(o), q, body)
	if err != nil {
		return nil, notTaken(o, err), false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBatch))
	if err != nil {
		return nil, notTaken(o, err), false
	}
	if resp.StatusCode != http.StatusOK {
		return intakeRefused(o, resp.StatusCode, text)
	}
	in = new(proto.Intake)
	if err := json.Unmarshal(text, in); err != nil || in.Holder.Authority == "" {
		return nil, notTaken(o, errors.New("its answer is none about a hand-over")), false
	}
	return in, nil, false
}

func notTaken(o owner, err error) *fsm.Refusal {
	e := unreachable(o, err)
	r := &fsm.Refusal{Code: e.Code, Text: o.String() + " is not reached: " + err.Error(), Fields: map[string]string{}}
	if errors.Is(err, errNotReached) {
		r.Text = e.Text
	}
	if !o.global {
		r.Fields["region"] = string(o.region)
	}
	return r
}

// intakeRefused reads a negative answer.
func intakeRefused(o owner, status int, text []byte) (*proto.Intake, *fsm.Refusal, bool) {
	var e struct {
		Error string   `json:"error"`
		Code  fsm.Code `json:"code"`
	}
	switch {
	case status == http.StatusUnauthorized:
		return nil, notTaken(o, errors.New("it refuses this group's token: all groups of a deployment have the same --token")), false
	case json.Unmarshal(text, &e) != nil || e.Code == "":
		return nil, notTaken(o, fmt.Errorf("it answers with status %d", status)), false
	case e.Code == proto.CodeUnknownRoute || e.Code == proto.CodeMethodNotAllowed:
		return nil, &fsm.Refusal{Code: fsm.CodeServerTooOld, Text: "the servers of " + o.String() + " do not know what they are asked for; start them with a newer version"}, true
	}
	again := status >= http.StatusInternalServerError || e.Code == proto.CodeNotLeader || e.Code == fsm.CodeBusy
	if status == http.StatusServiceUnavailable && e.Code != fsm.CodeRecovering {
		return nil, notTaken(o, errors.New(e.Error)), false
	}
	return nil, &fsm.Refusal{Code: e.Code, Text: e.Error}, !again
}
