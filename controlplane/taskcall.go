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

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// taskSlack is how much longer than it is to wait for news of a task a region's answer may
// take: what is done before, and the way.
const taskSlack = 5 * time.Second

// askTask has a region do its part of a job of this group, and says what came of it. The
// regions that this group keeps itself are asked in the same words (Server.doTask).
func (s *Server) askTask(ctx context.Context, a loops.TaskAction) loops.TaskAnswer {
	state := s.group.State()
	scope, _ := state.Scope()
	from := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: state.Floor()}
	cmd, wait := orderOf(a, from), min(time.Duration(a.Wait)*time.Millisecond, maxTaskWait)
	if !state.KeepsOwn(a.Region) {
		told, revision, err := s.doTask(ctx, cmd, wait)
		if err != nil {
			return taskFailed(a.Region, err)
		}
		return s.taskTold(a.Region, told, proto.Also{Authority: scope.Authority(), Revision: revision})
	}
	return s.askTaskOf(ctx, a.Region, cmd, wait)
}

// orderOf gives what a call asks of a region, as it is from.
func orderOf(a loops.TaskAction, from fsm.Origin) any {
	switch c := a.Cmd.(type) {
	case *fsm.BeginTask:
		order := *c
		order.Origin = from
		return &order
	case *fsm.TellTask:
		order := *c
		order.Origin = from
		return &order
	case *fsm.ForgoTask:
		order := *c
		order.Origin = from
		return &order
	}
	return &lookAtTask{Origin: from, Job: a.Job}
}

// askTaskOf asks a region that keeps its own directory.
func (s *Server) askTaskOf(ctx context.Context, region fsm.RegionName, cmd any, wait time.Duration) loops.TaskAnswer {
	ctx, cancel := context.WithTimeout(ctx, wait+taskSlack)
	defer cancel()
	o := owner{region: region}
	job, call := s.taskCall(region, cmd)
	call.ToAuthority = s.authorityOf(o)
	body, err := json.Marshal(call)
	if err != nil {
		panic("BUG: a call about a task is no JSON: " + err.Error())
	}
	q := s.towards(&http.Request{Method: http.MethodPost, URL: taskURL(job, wait), Header: http.Header{"Content-Type": {"application/json"}}})
	if id := httpserve.RequestID(ctx); id != "" {
		q.Header.Set(proto.HeaderRequestID, id)
	}
	send := s.links.repeat
	if _, begins := cmd.(*fsm.BeginTask); begins { // where it was never sent the job is undone at once
		send = s.links.ask
	}
	resp, err := send(ctx, o.name(), s.addresses(o), q, body)
	if err != nil {
		return loops.TaskAnswer{Outcome: loops.Silent, Untouched: errors.Is(err, errNotReached), Refusal: notReached(region, whySilent(err))}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeAnswer))
	if err != nil {
		return loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "its answer was cut off")}
	}
	if resp.StatusCode != http.StatusOK {
		return taskRefused(region, resp.StatusCode, text)
	}
	var told proto.Task
	if json.Unmarshal(text, &told) != nil || told.Job != job {
		return loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "its answer is none about the job")}
	}
	also := proto.Also{}
	if of, ok := proto.ParseDirectoryName(resp.Header.Get(proto.HeaderDirectory)); ok {
		revision, _ := strconv.ParseUint(resp.Header.Get(proto.HeaderRevision), 10, 64)
		also = proto.Also{Authority: of.Authority, Revision: fsm.Revision(revision)}
	}
	return s.taskTold(region, &told, also)
}

func taskURL(job fsm.JobID, wait time.Duration) *url.URL {
	return &url.URL{Path: "/_shard/tasks/" + job.String(), RawQuery: "wait=" + strconv.FormatInt(wait.Milliseconds(), 10)}
}

// taskTold reads an answer about a task, and keeps it for whoever waits for the job.
func (s *Server) taskTold(region fsm.RegionName, told *proto.Task, at proto.Also) loops.TaskAnswer {
	state, err := s.taskState(told)
	if err != nil {
		return loops.TaskAnswer{Outcome: loops.Refused, Untouched: true, Refusal: &fsm.Refusal{Code: proto.CodeInternal, Fields: map[string]string{"region": string(region)},
			Text: fmt.Sprintf("region %s tells a token that cannot be read: %v", region, err)}}
	}
	s.told.note(region, told, at)
	return loops.TaskAnswer{Outcome: loops.Done, Task: state}
}

// taskFailed reads an error of this group's own.
func taskFailed(region fsm.RegionName, err error) loops.TaskAnswer {
	e := new(httpserve.Error)
	if !errors.As(err, &e) {
		return loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, err.Error())}
	}
	return taskRefused(region, e.Status, e.Body())
}

// taskRefused reads a negative answer. Its texts are the same for the same trouble.
func taskRefused(region fsm.RegionName, status int, body []byte) loops.TaskAnswer {
	var e struct {
		Error string   `json:"error"`
		Code  fsm.Code `json:"code"`
	}
	var fields map[string]any
	told := json.Unmarshal(body, &e) == nil && e.Code != ""
	_ = json.Unmarshal(body, &fields) // told is false where it cannot be
	switch {
	case status == http.StatusUnauthorized:
		return loops.TaskAnswer{Outcome: loops.Unavailable, Untouched: true,
			Refusal: notReached(region, "it refuses this group's token: all groups of a deployment have the same --token")}
	case !told, e.Code == proto.CodeOutcomeUnknown, status >= 500 && status != http.StatusServiceUnavailable:
		return loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "what it was asked for may have been done, or may still be")}
	case e.Code == proto.CodeUnknownRoute || e.Code == proto.CodeMethodNotAllowed:
		return loops.TaskAnswer{Outcome: loops.Refused, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeServerTooOld, Fields: map[string]string{"region": string(region)},
			Text: "the servers of region " + string(region) + " do not know what they are asked for; start them with a newer version"}}
	}
	r := &fsm.Refusal{Code: e.Code, Text: e.Error, Fields: map[string]string{"region": string(region)}}
	for k, v := range fields {
		if text, ok := v.(string); ok && k != "error" && k != "code" {
			r.Fields[k] = text
		}
	}
	switch {
	case e.Code == fsm.CodeRecovering, e.Code == fsm.CodeBusy:
		return loops.TaskAnswer{Outcome: loops.Unavailable, Untouched: true, Refusal: r}
	case status == http.StatusServiceUnavailable, e.Code == proto.CodeNotLeader:
		return loops.TaskAnswer{Outcome: loops.Unavailable, Untouched: true, Refusal: notReached(region, e.Error)}
	}
	return loops.TaskAnswer{Outcome: loops.Refused, Untouched: true, Refusal: r}
}

// whySilent says what became of a call that was not answered.
func whySilent(err error) string {
	if errors.Is(err, errLeaderless) {
		return "a router of it answers, and reaches no leader of its group"
	}
	return "no router of it answers"
}

// notReached says that a region was not asked, or did not answer.
func notReached(region fsm.RegionName, why string) *fsm.Refusal {
	return &fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "region " + string(region) + " is not reached: " + why,
		Fields: map[string]string{"region": string(region)}}
}
