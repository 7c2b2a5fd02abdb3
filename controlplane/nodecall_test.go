package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

// TestOnlyANodesWordEndsARemoval: what listens at a node's address may be
// something else for a while (a balancer, a node without its admin protocol).
// Its 404 does not say that the unit is gone, and a job that ended on it would
// leave the unit behind.
func TestOnlyANodesWordEndsARemoval(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   loops.Outcome
	}{
		{204, ``, loops.Done},
		{404, `{"error":"no such unit","code":"unknown_tenant"}`, loops.Absent},
		{404, `{"error":"no tenant acme"}`, loops.Absent}, // a node of another make (X1)
		{404, `{"error":"no such path","code":"unknown_route"}`, loops.Refused},
		{404, `<html>404 Not Found</html>`, loops.Refused},
		{404, ``, loops.Refused},
		{404, `{}`, loops.Refused},
		{200, `<html>welcome</html>`, loops.Refused},
		{302, ``, loops.Refused},
		{409, `{"error":"another unit","code":"unit_exists"}`, loops.Absent},
		{409, `{"error":"another unit","code":"wrong_unit_id"}`, loops.Absent}, // what a node says of another id
		{409, `{"error":"in use","code":"in_use"}`, loops.Refused},
		{409, `{"authority":"c1/global","history":1,"term":9}`, loops.Fenced},
		{409, `{"authority":"c2/global","history":1,"term":9}`, loops.Foreign},
		{503, `{"error":"not now"}`, loops.Unavailable},
	} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		transport := &http.Transport{}
		call := nodeCall{nodes: newNodeClient(transport), node: nodeAt{name: "n1", addr: node.URL, token: "t"},
			action: loops.Action{Call: loops.Call{Target: fsm.Target{Unit: "acme", ID: 5, Node: "n1"}}, Verb: loops.RemoveUnit},
			holder: proto.Holder{Authority: "c1/global", History: 1, Term: 3}}
		if a := call.do(context.Background()); a.Outcome != c.want {
			t.Errorf("%d %s: outcome %d, want %d", c.status, c.body, a.Outcome, c.want)
		}
		transport.CloseIdleConnections()
		node.Close()
	}
}

// TestM6AThawThatFailedIsAskedAgain: a job that ended while its source had not taken a
// unit back would leave it given up to nobody (architecture §3.6.5).
func TestM6AThawThatFailedIsAskedAgain(t *testing.T) {
	for body, want := range map[string]loops.Outcome{
		`{"thawed":["acme"],"failed":[]}`: loops.Done,
		`{}`:                              loops.Done, // a node of another make (X1)
		`{"thawed":[],"failed":[{"tenant":"acme","why":"not here","code":"unknown_tenant"}]}`:     loops.Done,
		`{"thawed":[],"failed":[{"tenant":"acme","why":"another","code":"wrong_unit_id"}]}`:       loops.Done,
		`{"thawed":[],"failed":[{"tenant":"acme","why":"disk","code":"disk_error"}]}`:             loops.Unavailable,
		`{"thawed":["x"],"failed":[{"tenant":"acme","why":"another job","code":"job_conflict"}]}`: loops.Unavailable,
	} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
		transport := &http.Transport{}
		call := nodeCall{nodes: newNodeClient(transport), node: nodeAt{name: "n1", addr: node.URL, token: "t"},
			action: loops.Action{Call: loops.Call{Job: 7, Target: fsm.Target{Node: "n1"}}, Verb: loops.ThawUnits}}
		if a := call.do(context.Background()); a.Outcome != want {
			t.Errorf("%s: outcome %d, want %d", body, a.Outcome, want)
		}
		transport.CloseIdleConnections()
		node.Close()
	}
}

// TestI10AMovesTargetIsTakenForNoCopyInSync: its source is told so, and that a drain is
// forced, which is about pins, lets nobody give a damaged file up to what lacks something.
// Found by a review.
func TestI10AMovesTargetIsTakenForNoCopyInSync(t *testing.T) {
	s := fsmtest.Ready(fsm.Settings{})
	rev := s.Revision()
	apply := func(cmd fsm.Command) fsm.Result {
		t.Helper()
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1_700_000_000_000, Cmd: cmd})
		if r.Refusal != nil {
			t.Fatalf("%T: %v", cmd, r.Refusal)
		}
		return r
	}
	token, n1 := "t", fsm.NodeName("n1")
	for _, n := range []string{"n1", "n2", "n3"} {
		addr := n + ":1"
		apply(&fsm.PutNode{Name: fsm.NodeName(n), Addr: &addr, Token: &token})
	}
	made := apply(&fsm.CreateTenant{Name: "acme", Node: &n1, Pinned: true})
	apply(&fsm.AdvanceJob{ID: made.Job, From: fsm.StepMake, To: fsm.StepDone})
	apply(&fsm.SetDrain{Node: n1, Drain: true, Forced: true})
	id := apply(&fsm.BeginMove{Unit: "acme", To: "n2", Cause: fsm.CauseDrain, Forced: true}).Job
	apply(&fsm.AdvanceJob{ID: id, From: fsm.StepQueue, To: fsm.StepCopy})
	apply(&fsm.AdvanceJob{ID: id, From: fsm.StepCopy, To: fsm.StepRelease})
	call := nodeCall{action: loops.Action{Call: loops.Call{Job: id, Target: fsm.Target{Node: n1}}, Verb: loops.HandOverUnits}}
	if !call.addresses(s) || call.forced || !call.unproven || call.job != strconv.FormatUint(uint64(rev), 10) {
		t.Errorf("forced %v, unproven %v, job %s", call.forced, call.unproven, call.job)
	}
}
