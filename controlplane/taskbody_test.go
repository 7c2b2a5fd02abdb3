package controlplane

import (
	"encoding/json"
	"reflect"
	"testing"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// taskOrders are calls about tasks with every field that they have.
func taskOrders() []any {
	from := fsm.Origin{Authority: "c1/global", History: 3, Floor: 5}
	region, node := fsm.RegionName("us"), fsm.NodeName("n1")
	other := &fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://127.0.0.1:1", Token: "secret", Epoch: 7<<50 | 12}
	orders := []any{&lookAtTask{Origin: from, Job: 7}}
	for _, kind := range taskKinds {
		orders = append(orders, &fsm.BeginTask{Origin: from, Job: 7, Kind: kind, Tenant: "acme", ID: 6, Region: &region, Node: &node, Pinned: true,
			Schema: "CREATE TABLE a(b)", Quota: &fsm.Quota{Bytes: 1 << 40, RPS: 2, InFlight: 3}, Source: other},
			&fsm.ForgoTask{Origin: from, Job: 7, Kind: kind, Tenant: "acme", ID: 6})
	}
	for _, word := range taskWords {
		orders = append(orders, &fsm.TellTask{Origin: from, Job: 7, Word: word, Other: other})
	}
	return orders
}

// TestG5ACallAboutATaskIsReadAsItWasWritten, by a server that has the same secret.
func TestG5ACallAboutATaskIsReadAsItWasWritten(t *testing.T) {
	s, other := &Server{seals: newSeals("secret")}, &Server{seals: newSeals("other")}
	for _, order := range taskOrders() {
		job, call := s.taskCall("us", order)
		if call.To != "us" || job != 7 {
			t.Errorf("%T: job %d, to %q", order, job, call.To)
		}
		text, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		var read proto.TaskCall
		if err := httpserve.DecodeObject(text, &read); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := s.taskCommand(job, &read)
		if err != nil || !reflect.DeepEqual(got, order) {
			t.Errorf("%s: read as %+v, %v", text, got, err)
		}
		if _, err := other.taskCommand(job, &read); (err == nil) != (call.Source == nil && call.Other == nil) {
			t.Errorf("%s: under another secret: %v", text, err)
		}
	}
}

// FuzzTaskBody reads whatever a call about a task may hold: it is refused, or means the
// same once it is written again.
func FuzzTaskBody(f *testing.F) {
	s := &Server{seals: newSeals("secret")}
	for _, order := range taskOrders() {
		_, call := s.taskCall("us", order)
		text, err := json.Marshal(call)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"call":"begin","kind":"create","id":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var call proto.TaskCall
		if httpserve.DecodeObject(body, &call) != nil {
			return
		}
		order, err := s.taskCommand(7, &call)
		if err != nil {
			return
		}
		job, again := s.taskCall(call.To, order)
		read, err := s.taskCommand(job, again)
		if err != nil || !reflect.DeepEqual(read, order) {
			t.Errorf("%s: %+v, then %+v, %v", body, order, read, err)
		}
		if cmd, ok := order.(fsm.Command); ok {
			state := fsm.New()
			state.Apply(fsm.Entry{Revision: 1, Term: 1, At: 1, Cmd: &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", Region: "us", History: 1}}})
			state.Apply(fsm.Entry{Revision: 2, Term: 1, At: 1, Cmd: cmd})
			if err := fsm.Check(state); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	})
}
