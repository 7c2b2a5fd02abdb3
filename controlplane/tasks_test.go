package controlplane

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

// withNode records a node of a region.
func (r *testRegions) withNode(region fsm.RegionName, name fsm.NodeName, zone string) *fakeNode {
	r.t.Helper()
	n := newFakeNode(r.t, name)
	r.of[region].leader().addNode(n, string(region), zone)
	return n
}

// origin is that of a call of the global group.
func (r *testRegions) origin() fsm.Origin {
	scope, _ := r.global.leader().group.State().Scope()
	return fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: 1}
}

func (s *testServer) callTask(job fsm.JobID, call proto.TaskCall) reply {
	s.t.Helper()
	body, err := json.Marshal(call)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.ask("POST", fmt.Sprintf("/_shard/tasks/%d?wait=10000", job), string(body))
}

// TestG5I8ATaskIsDoneOnceHoweverOftenItIsAsked asks a region for a tenant, at a server
// that does not lead, again and again.
func TestG5I8ATaskIsDoneOnceHoweverOftenItIsAsked(t *testing.T) {
	r := startRegions(t, 2, "us")
	node := r.withNode("us", "n1", "a")
	from, region := r.origin(), fsm.RegionName("us")
	call := proto.TaskCall{Call: proto.TaskBegin, To: "us", Authority: from.Authority, History: from.History, Floor: from.Floor,
		Kind: "create", Tenant: "acme", ID: 7, Region: &region}
	us := r.of["us"].follower()
	for range 3 {
		var told proto.Task
		us.decode(us.callTask(7, call), &told)
		if !told.Done || told.Refusal != nil || told.Unit == nil || told.Unit.Node != "n1" || !told.Unit.Writable || told.Unit.Unreplicated == "" || told.ID != 7 {
			t.Fatalf("told %+v, unit %+v", told, told.Unit)
		}
	}
	if held := node.held(); len(held) != 1 || held["acme"] != 7 {
		t.Errorf("the node holds %v", held)
	}
	look := call
	look.Call = proto.TaskLook
	us.want(us.callTask(7, look), 200, "")
	us.want(us.callTask(8, look), 404, fsm.CodeTaskUnknown)
	if list := us.ask("GET", "/_shard/tasks?tenant=acme", ""); !strings.Contains(list.text, `"job":7`) {
		t.Errorf("the tasks are %s", list.text)
	}
	if list := us.ask("GET", "/_shard/tasks?tenant=other", ""); list.text != "[]\n" {
		t.Errorf("the tasks of another tenant are %s", list.text)
	}

	// A later job of the same tenant deletes it, and a late call of the first does nothing.
	remove := call
	remove.Kind, remove.Floor = "delete", 9
	var told proto.Task
	us.decode(us.callTask(9, remove), &told)
	if !told.Done || told.Unit != nil || len(node.held()) != 0 {
		t.Errorf("told %+v, the node holds %v", told, node.held())
	}
	us.want(us.callTask(7, call), 409, fsm.CodeTaskOver)
	forgo := call
	forgo.Call, forgo.Floor = proto.TaskForgo, 9
	us.decode(us.callTask(10, forgo), &told)
	if !told.Forgone {
		t.Errorf("told %+v", told)
	}
	us.want(us.callTask(10, call), 409, fsm.CodeTaskForgone)
}

// TestG5WhoMayAskForATask: the global group that the region belongs to, for this region.
func TestG5WhoMayAskForATask(t *testing.T) {
	r := startRegions(t, 1, "us")
	r.withNode("us", "n1", "a")
	us, from := r.of["us"].leader(), r.origin()
	good := proto.TaskCall{Call: proto.TaskBegin, To: "us", Authority: from.Authority, History: from.History, Floor: 1, Kind: "create", Tenant: "acme", ID: 7}
	for name, c := range map[string]struct {
		change func(*proto.TaskCall)
		status int
		code   fsm.Code
	}{
		"another region's":  {func(c *proto.TaskCall) { c.To = "tr" }, 409, fsm.CodeScope},
		"another group":     {func(c *proto.TaskCall) { c.Authority = "c9/global" }, 409, fsm.CodeScope},
		"no group":          {func(c *proto.TaskCall) { c.Authority = "" }, 400, fsm.CodeBadRequest},
		"an older history":  {func(c *proto.TaskCall) { c.History = 0 }, 400, fsm.CodeBadRequest},
		"no such call":      {func(c *proto.TaskCall) { c.Call = "do" }, 400, fsm.CodeBadRequest},
		"no such kind":      {func(c *proto.TaskCall) { c.Kind = "paint" }, 400, fsm.CodeBadRequest},
		"no such word":      {func(c *proto.TaskCall) { c.Call, c.Word = proto.TaskTell, "hello" }, 400, fsm.CodeBadRequest},
		"told before begun": {func(c *proto.TaskCall) { c.Call, c.Word = proto.TaskTell, "undo" }, 404, fsm.CodeTaskUnknown},
		"an open token": {func(c *proto.TaskCall) {
			c.Kind, c.Source = "receive", &proto.TaskNode{Node: "n9", Addr: "http://127.0.0.1:1", Token: "secret", Epoch: 1}
		}, 400, fsm.CodeBadRequest},
		"no tenant": {func(c *proto.TaskCall) { c.Tenant = "No Name" }, 400, fsm.CodeBadRequest},
	} {
		call := good
		c.change(&call)
		if answer := us.callTask(7, call); answer.status != c.status || answer.code() != string(c.code) {
			t.Errorf("%s: %d %s", name, answer.status, answer.text)
		}
	}
	us.want(us.ask("POST", "/_shard/tasks/x", ""), 400, fsm.CodeBadRequest)
	us.want(us.ask("POST", "/_shard/tasks/7?wait=long", "{}"), 400, fsm.CodeBadRequest)
	if _, there := us.group.State().Tenant("acme"); there {
		t.Error("the tenant was made")
	}
	us.want(us.callTask(7, good), 200, "")
}

// TestN5WhatPassesBetweenGroupsIsSealed: a token that a follower shows is readable by
// control servers alone, for one task alone.
func TestN5WhatPassesBetweenGroupsIsSealed(t *testing.T) {
	s := newSeals("secret")
	sealed := s.seal("token", taskUse(7))
	if strings.Contains(sealed, "token") || sealed == s.seal("token", taskUse(7)) {
		t.Errorf("sealed: %s", sealed)
	}
	if text, err := s.open(sealed, taskUse(7)); err != nil || text != "token" {
		t.Errorf("opened: %q, %v", text, err)
	}
	for name, open := range map[string]func() (string, error){
		"for another task":     func() (string, error) { return s.open(sealed, taskUse(8)) },
		"under another secret": func() (string, error) { return newSeals("other").open(sealed, taskUse(7)) },
		"changed":              func() (string, error) { return s.open("AAAA"+sealed[4:], taskUse(7)) },
		"cut":                  func() (string, error) { return s.open(sealed[:8], taskUse(7)) },
		"no seal":              func() (string, error) { return s.open("token!", taskUse(7)) },
	} {
		if text, err := open(); err == nil {
			t.Errorf("%s: %q", name, text)
		}
	}
	s.reload("next")
	if text, err := s.open(sealed, taskUse(7)); err != nil || text != "token" {
		t.Errorf("after a reload: %q, %v", text, err)
	}
	s.reload("last")
	if _, err := s.open(sealed, taskUse(7)); err == nil {
		t.Error("it is open after two reloads")
	}
}

// TestG5WhatComesOfACallToARegionIsTold: done, refused, not reached, and not known.
func TestG5WhatComesOfACallToARegionIsTold(t *testing.T) {
	r := startRegions(t, 1, "us")
	g := r.global.leader()
	region := fsm.RegionName("us")
	order := &fsm.BeginTask{Job: 7, Kind: fsm.TaskCreate, Tenant: "acme", ID: 7, Region: &region}
	ask := func() loops.TaskAnswer {
		return g.askTask(t.Context(), loops.TaskAction{TaskCall: loops.TaskCall{Job: order.Job, Region: "us"}, Cmd: order, Wait: 10_000})
	}
	state := g.group.State()
	order.Job = fsm.JobID(state.Revision() + 1)
	if a := ask(); a.Outcome != loops.Done || !a.Task.Over || a.Task.Refusal == nil || a.Task.Refusal.Code != fsm.CodeNoNode {
		t.Errorf("without a node: %+v, %+v", a, a.Task)
	}
	node := r.withNode("us", "n1", "a")
	order.Job++
	if a := ask(); a.Outcome != loops.Done || !a.Task.Over || a.Task.Unit == nil || a.Task.Unit.Node != "n1" || a.Task.Unit.Token != "" || !a.Task.Unit.Writable || a.Task.Unit.State != fsm.UnitActive {
		t.Errorf("done: %+v, %+v", a, a.Task)
	}
	if told, ok := g.told.get(order.Job, "us"); !ok || told.at.Revision == 0 || !strings.HasSuffix(told.at.Authority, "/us") || told.task.Unit.Unreplicated == "" {
		t.Errorf("told: %+v", told)
	}
	order.ID = 8
	if a := ask(); a.Outcome != loops.Refused || !a.Untouched || a.Refusal.Code != fsm.CodeBadRequest {
		t.Errorf("another tenant under the same job: %+v", a)
	}
	order.ID = 7
	if a := g.askTask(t.Context(), loops.TaskAction{TaskCall: loops.TaskCall{Job: order.Job, Region: "us"}, Cmd: &fsm.BeginTask{Job: order.Job + 1, Kind: fsm.TaskDepart, Tenant: "acme", ID: 7}}); a.Outcome != loops.Done || a.Task.Unit == nil || a.Task.Unit.Token != nodeToken || a.Task.Step != fsm.StepCopy {
		t.Errorf("a depart: %+v, %+v", a, a.Task)
	}
	r.refuse("us")
	if a := ask(); a.Outcome != loops.Silent || !a.Untouched || a.Refusal.Code != fsm.CodeRegionUnreachable {
		t.Errorf("not reached: %+v", a)
	}
	r.heal("us")
	for _, s := range r.of["us"].servers {
		s.kill()
	}
	node.Close()
	for code, want := range map[proto.Code]loops.Outcome{proto.CodeNoLeader: loops.Unavailable, proto.CodeOutcomeUnknown: loops.Silent,
		fsm.CodeRecovering: loops.Unavailable, fsm.CodeTaskForgone: loops.Refused, proto.CodeInternal: loops.Silent, proto.CodeUnknownRoute: loops.Refused} {
		a := taskRefused("us", proto.Status(code), []byte(`{"error":"x","code":"`+string(code)+`","left":3}`))
		if a.Outcome != want || a.Refusal == nil || a.Untouched == (want == loops.Silent) {
			t.Errorf("%s: %+v", code, a)
		}
	}
	if a := taskRefused("us", 502, []byte("<html>")); a.Outcome != loops.Silent || a.Untouched {
		t.Errorf("no answer of ours: %+v", a)
	}
}
