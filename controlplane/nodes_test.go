package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// TestN1ToN4NodesAreRecordedAndKeepWhatIsLeftOut goes through a node's life.
func TestN1ToN4NodesAreRecordedAndKeepWhatIsLeftOut(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n := newFakeNode(t, "n1")
	put := func(body string) reply { return s.ask("PUT", "/_shard/nodes/n1", body) }
	r := s.want(put(fmt.Sprintf(`{"addr":"HTTP://%s/","token":%q,"region":"eu","zone":"a","weight":3}`, n.addr(), nodeToken)), 201, "")
	want := fmt.Sprintf(`{"node":"n1","addr":"http://%s","region":"eu","zone":"a","unreplicated":[]}`+"\n", n.addr())
	if r.text != want {
		t.Errorf("answer %s, want %s", r.text, want)
	}
	// N2: only the token; it stays where it is.
	s.want(put(fmt.Sprintf(`{"token":%q}`, nodeToken)), 200, "")
	r = s.want(s.ask("GET", "/_shard/nodes/n1", ""), 200, "")
	for field, value := range map[string]any{"name": "n1", "addr": "http://" + n.addr(), "region": "eu", "zone": "a",
		"weight": 3.0, "state": "unleased", "tenants": 0.0, "replicas": 0.0, "bytes": 0.0, "lease_left_ms": 0.0} {
		if r.body[field] != value {
			t.Errorf("%s is %v, want %v", field, r.body[field], value)
		}
	}
	// N3: empty, it may move; with a tenant only its zone changes.
	s.want(put(`{"region":"us"}`), 200, "")
	s.want(s.ask("PUT", "/_shard/tenants/acme", ""), 201, "")
	r = s.want(put(`{"region":"eu"}`), 409, fsm.CodeNodeInUse)
	if r.body["tenant"] != "acme" {
		t.Errorf("the refusal names %v, want acme", r.body)
	}
	s.want(put(`{"region":"us","zone":"b"}`), 200, "")
	// N4: "" is a region like any other.
	other := newFakeNode(t, "n2")
	s.addNode(other, "", "")
	r = s.want(s.ask("PUT", "/_shard/tenants/nowhere", `{"region":""}`), 201, "")
	if r.body["node"] != "n2" || r.body["region"] != "" {
		t.Errorf("created %v, want n2 in the unnamed region", r.body)
	}
	// N6
	r = s.want(s.ask("DELETE", "/_shard/nodes/n1", ""), 409, fsm.CodeNodeInUse)
	if text := fmt.Sprint(r.body["error"]); r.body["tenant"] != "acme" || !strings.Contains(text, "drain it first") {
		t.Errorf("the refusal says %v, want that acme is in the way", r.body)
	}
	s.want(s.ask("DELETE", "/_shard/tenants/acme", ""), 204, "")
	s.want(s.ask("DELETE", "/_shard/nodes/n1", ""), 204, "")
	s.want(s.ask("GET", "/_shard/nodes/n1", ""), 404, fsm.CodeNodeUnknown)
}

// TestN1ANewNodeIsToldWhatIsMissing names exactly the fields that were left out.
func TestN1ANewNodeIsToldWhatIsMissing(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	for body, want := range map[string]string{
		`{"addr":"127.0.0.1:1"}`: "node n4 is not recorded yet: its token is missing (CLI: --node-token)",
		`{"token":"x"}`:          "node n4 is not recorded yet: its addr is missing (CLI: --addr)",
		`{"zone":"a"}`:           "node n4 is not recorded yet: its addr and its token are missing (CLI: --addr, --node-token)",
	} {
		if r := s.want(s.ask("PUT", "/_shard/nodes/n4", body), 400, fsm.CodeBadRequest); r.body["error"] != want {
			t.Errorf("%s: %v, want %s", body, r.body["error"], want)
		}
	}
	r := s.want(s.ask("PUT", "/_shard/tenants/acme", ""), 409, fsm.CodeNoNode)
	if !strings.Contains(r.text, "no node is recorded yet: record one with PUT /_shard/nodes/<name>") {
		t.Errorf("a create without nodes answers %s", r.text)
	}
	r = s.want(s.ask("GET", "/t/acme/", ""), 404, proto.CodeUnknownRoute)
	if !strings.Contains(r.text, "this is a control server") {
		t.Errorf("an unknown path answers %s", r.text)
	}
}

// TestN5ANodeIsAskedBeforeItIsRecorded has nodes that are silent, refuse the
// token, or are no nodes.
func TestN5ANodeIsAskedBeforeItIsRecorded(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n := newFakeNode(t, "n1")
	silent := listenOn(t, "127.0.0.1:0") // takes connections and says nothing
	t.Cleanup(func() { silent.Close() })
	before := s.group.State().Revision()
	for _, c := range []struct {
		addr, token string
		code        fsm.Code
	}{
		{n.addr(), "wrong", fsm.CodeNodeRefused},
		{silent.Addr().String(), "x", fsm.CodeNodeUnreachable},
		{s.addr, adminToken, fsm.CodeNodeRefused}, // a control server is no node
	} {
		r := s.want(s.ask("PUT", "/_shard/nodes/n1", fmt.Sprintf(`{"addr":%q,"token":%q}`, c.addr, c.token)), 502, c.code)
		if r.body["node"] != "n1" || strings.Contains(r.text, c.token+`"`) && c.token != "x" {
			t.Errorf("answer %s names no node, or the token", r.text)
		}
	}
	if now := s.group.State().Revision(); now != before {
		t.Errorf("revision %d, was %d: something was recorded", now, before)
	}
}

// TestN5TokensAreNeverTold looks for tokens in every answer, log and metric.
func TestN5TokensAreNeverTold(t *testing.T) {
	audit := t.TempDir() + "/audit.log"
	s := startGroup(t, 1, func(c *Config) { c.Audit = audit }).leader()
	n := newFakeNode(t, "n1")
	s.addNode(n, "eu", "a")
	var told strings.Builder
	for _, path := range []string{"/_shard/nodes", "/_shard/nodes/n1", "/_shard/tenants", "/_shard/group", "/_metrics"} {
		told.WriteString(s.ask("GET", path, "").text)
	}
	n.setFault(func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(500); return true })
	told.WriteString(s.ask("PUT", "/_shard/tenants/acme", "").text)
	n.setFault(nil)
	told.WriteString(s.ask("PUT", "/_shard/nodes/n1", `{"token":"`+nodeToken+`2"}`).text)
	for _, token := range []string{nodeToken, adminToken} {
		if strings.Contains(told.String(), token) || strings.Contains(s.log.String(), token) {
			t.Errorf("%s is told", token)
		}
	}
}

// TestC5AStandbyIsInItsNodesRegion pairs nodes; nothing is placed on a standby.
func TestC5AStandbyIsInItsNodesRegion(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	for name, region := range map[fsm.NodeName]string{"n1": "eu", "s1": "eu", "us1": "us"} {
		s.addNode(newFakeNode(t, name), region, "a")
	}
	s.want(s.ask("PUT", "/_shard/nodes/n1", `{"standby":"us1"}`), 409, fsm.CodeRegionMismatch)
	s.want(s.ask("PUT", "/_shard/nodes/n1", `{"standby":"s1"}`), 200, "")
	if r := s.ask("GET", "/_shard/nodes/n1", ""); r.body["standby"] != "s1" {
		t.Errorf("standby is %v", r.body["standby"])
	}
	if !strings.Contains(s.log.String(), "a node's standby is in its own zone") {
		t.Error("a standby in its node's zone is accepted and not logged")
	}
	for i := range 5 {
		r := s.want(s.ask("PUT", fmt.Sprintf("/_shard/tenants/t%d", i), `{"region":"eu"}`), 201, "")
		if r.body["node"] != "n1" {
			t.Errorf("placed on %v", r.body["node"])
		}
	}
	s.want(s.ask("PUT", "/_shard/tenants/x", `{"node":"s1"}`), 409, fsm.CodeNodeIsStandby)
	s.want(s.ask("PUT", "/_shard/nodes/s1", `{"region":"us"}`), 409, fsm.CodeNodeInUse)
	s.want(s.ask("PUT", "/_shard/nodes/n1", `{"standby":""}`), 200, "")
	s.want(s.ask("PUT", "/_shard/nodes/s1", `{"region":"us"}`), 409, fsm.CodeNodeInUse) // it holds the copies of n1's tenants
}

// TestN5AProcessIsOneNode has a node's process recorded under a second name: by the
// same address, and by another spelling of it, which only the process can tell.
func TestN5AProcessIsOneNode(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	one, two := newFakeNode(t, "n1"), newFakeNode(t, "n2")
	s.addNode(one, "eu", "a")
	s.addNode(two, "eu", "b")
	spelled := strings.Replace(one.addr(), "127.0.0.1", "localhost", 1)
	for _, addr := range []string{one.addr(), "http://" + one.addr(), spelled} {
		for _, name := range []string{"n9", "n2"} {
			r := s.want(s.ask("PUT", "/_shard/nodes/"+name, fmt.Sprintf(`{"addr":%q,"token":%q}`, addr, nodeToken)), 409, fsm.CodeAddressTaken)
			if r.body["node"] != "n1" {
				t.Errorf("%s at %s: the refusal names %v, want n1", name, addr, r.body)
			}
		}
	}
	s.want(s.ask("PUT", "/_shard/nodes/n1", fmt.Sprintf(`{"addr":%q}`, spelled)), 200, "")
	s.want(s.ask("GET", "/_shard/nodes/n9", ""), 404, fsm.CodeNodeUnknown)
}
