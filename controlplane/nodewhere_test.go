package controlplane

import (
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// regionsNamed are the regions that an answer names, the first of them first.
func regionsNamed(r reply) []string {
	one, _ := r.body["region"].(string)
	all := []string{one}
	more, _ := r.body["regions"].([]any)
	for _, other := range more {
		if name, _ := other.(string); name != one {
			all = append(all, name)
		}
	}
	return all
}

// TestM1T2C5ANodeOfAnotherRegionsDirectoryIsRefusedWithItsRegion: by every server of every group, and
// where a region cannot be asked, that is said.
func TestM1T2C5ANodeOfAnotherRegionsDirectoryIsRefusedWithItsRegion(t *testing.T) {
	r := populated(t, 1)
	refused := func(s *testServer, method, path, body string, regions ...string) {
		t.Helper()
		answer := s.ask(method, path, body)
		if answer.status != 409 || answer.code() != string(fsm.CodeRegionMismatch) || !slices.Equal(regionsNamed(answer), regions) {
			t.Errorf("%s: %s %s %s: %d %s, want a refusal that names %v", s.config.ID, method, path, body, answer.status, answer.text, regions)
		}
		for _, region := range regions {
			if text, _ := answer.body["error"].(string); !strings.Contains(text, `"`+region+`"`) {
				t.Errorf("%s: %s does not say that it is in %s", s.config.ID, text, region)
			}
		}
	}
	for _, s := range r.all() {
		refused(s, "POST", "/_shard/tenants/b-us/move", `{"to":"tr1"}`, "tr")
		refused(s, "POST", "/_shard/tenants/b-us/move", `{"to":"eu1"}`, "eu")
		refused(s, "POST", "/_shard/tenants/a-eu/move", `{"to":"us1"}`, "us")
		refused(s, "POST", "/_shard/tenants/b-us/move", `{"to":"tr1","region":"us"}`, "tr")
		refused(s, "POST", "/_shard/tenants/b-us/move", `{"to":"us1","region":"tr"}`, "us")
		refused(s, "POST", "/_shard/tenants/b-us/move", `{"to":"eu1","region":"tr"}`, "eu")
		refused(s, "POST", "/_shard/tenants/a-eu/move", `{"to":"us1","region":"eu"}`, "us")
		refused(s, "PUT", "/_shard/tenants/1-"+string(s.config.ID), `{"region":"us","node":"eu1"}`, "eu")
		refused(s, "PUT", "/_shard/tenants/2-"+string(s.config.ID), `{"region":"tr","node":"us1"}`, "us")
		refused(s, "PUT", "/_shard/tenants/3-"+string(s.config.ID), `{"region":"eu","node":"us1"}`, "us")
		for _, path := range []string{"/_shard/tenants/b-us/move", "/_shard/tenants/a-eu/move"} {
			unknown := s.want(s.ask("POST", path, `{"to":"us9"}`), 404, fsm.CodeNodeUnknown)
			if unknown.body["unreachable"] != nil || unknown.header.Get(proto.HeaderUnreachable) != "" {
				t.Errorf("%s: %s", s.config.ID, unknown.text)
			}
		}
	}
	for _, s := range r.all() {
		refused(s, "PUT", "/_shard/nodes/us1?region=us", `{"standby":"tr1"}`, "tr")
		s.want(s.ask("PUT", "/_shard/nodes/us1?region=us", `{"standby":"us9"}`), 404, fsm.CodeStandbyUnknown)
	}
	r.withNode("tr", "us1", "b") // a name of another directory's node
	for _, s := range r.all() {
		refused(s, "POST", "/_shard/tenants/a-eu/move", `{"to":"us1"}`, "tr", "us")
	}

	r.cut("us") // the global group is reached by nobody; us and tr reach each other
	us := r.of["us"].leader()
	refused(us, "POST", "/_shard/tenants/b-us/move", `{"to":"tr1"}`, "tr")
	refused(us, "POST", "/_shard/tenants/b-us/move", `{"to":"eu1"}`, "eu") // by the copy of the global directory
	unknown := us.want(us.ask("POST", "/_shard/tenants/b-us/move", `{"to":"us9"}`), 404, fsm.CodeNodeUnknown)
	if silent, _ := unknown.body["unreachable"].([]any); len(silent) != 1 || silent[0] != proto.GlobalScope || unknown.header.Get(proto.HeaderUnreachable) != proto.GlobalScope {
		t.Errorf("the global group was not asked, and the answer is %s", unknown.text)
	}
}

// TestG4N3ANodeDoesNotChangeDirectoriesByItsRegion: naming a region of another directory for a node
// of this one is refused, with whose the node is; that directory's own node of the name is
// changed, and a new one is recorded there.
func TestG4N3ANodeDoesNotChangeDirectoriesByItsRegion(t *testing.T) {
	r := populated(t, 1)
	global, us := r.global.leader(), r.of["us"].leader()
	for _, c := range []struct {
		s                   *testServer
		path, region, owner string
	}{
		{us, "/_shard/nodes/us1", "tr", "us"}, {us, "/_shard/nodes/us1", "eu", "us"}, {us, "/_shard/nodes/us1", "nope", "us"}, {us, "/_shard/nodes/us1?region=us", "tr", "us"},
		{global, "/_shard/nodes/eu1", "us", "global"}, {global, "/_shard/nodes/us1?region=us", "tr", "us"}, {us, "/_shard/nodes/eu1?region=eu", "us", "global"},
	} {
		for _, body := range []string{`{"region":"` + c.region + `"}`, `{"zone":"b","region":"` + c.region + `"}`} {
			refused := c.s.ask("PUT", c.path, body)
			if refused.status != 409 || refused.code() != string(fsm.CodeRegionElsewhere) || refused.body["owner"] != c.owner || refused.body["region"] != c.region {
				t.Errorf("%s: %s %s: %d %s", c.s.config.ID, c.path, body, refused.status, refused.text)
			}
		}
	}
	r.withNode("tr", "us1", "a")
	us.want(us.ask("PUT", "/_shard/nodes/us1", `{"region":"tr","zone":"b"}`), 200, "")
	if n := us.ask("GET", "/_shard/nodes/us1?region=tr", ""); n.body["zone"] != "b" {
		t.Errorf("the node of tr is %s", n.text)
	}
	other := newFakeNode(t, "us1")
	us.want(us.ask("PUT", "/_shard/nodes/us1", `{"region":"eu","addr":"`+other.addr()+`","token":"`+nodeToken+`"}`), 201, "")
	missing := us.want(us.ask("PUT", "/_shard/nodes/us8", `{"region":"tr"}`), 400, proto.CodeBadRequest)
	if !strings.Contains(missing.text, "in the directory of region tr") {
		t.Errorf("it does not say where a node is missing: %s", missing.text)
	}
}

// TestT3N4OfARegionThatNobodyKnowsThereIsNothing, and of one that is known what is its own: by every
// server the same.
func TestT3N4OfARegionThatNobodyKnowsThereIsNothing(t *testing.T) {
	r := populated(t, 1)
	global := r.global.leader()
	global.addNode(newFakeNode(t, "jp1"), "jp", "a")
	global.addNode(newFakeNode(t, "x1"), "", "a")
	moved := r.global.leader().propose(&fsm.BeginRebalance{Moves: []fsm.Target{{Unit: "a-eu", ID: 1, Node: "jp1"}}}).Job.String()
	r.settled()
	for _, s := range r.all() {
		for path, want := range map[string]string{
			"/_shard/nodes?region=nope": "", "/_shard/nodes?region=eu": "eu1", "/_shard/nodes?region=jp": "jp1", "/_shard/nodes?region=us": "us1", "/_shard/nodes?region=": "x1",
		} {
			var got []string
			var list []proto.Node
			s.decode(s.ask("GET", path, ""), &list)
			for _, n := range list {
				got = append(got, string(n.Name))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %s gives %v, want %s", s.config.ID, path, got, want)
			}
		}
		for _, path := range []string{"/_shard/tenants?region=nope", "/_shard/moves?region=nope&kind=rebalance", "/_shard/tasks?region=nope"} {
			if got := s.want(s.ask("GET", path, ""), 200, ""); strings.TrimSpace(got.text) != "[]" {
				t.Errorf("%s: %s gives %s", s.config.ID, path, got.text)
			}
		}
		for _, region := range []string{"nope", "jp", ""} {
			for _, request := range []string{"GET /_shard/nodes/eu1", "DELETE /_shard/nodes/eu1", "POST /_shard/nodes/eu1/drain", "POST /_shard/nodes/eu1/failover", "DELETE /_shard/nodes/eu1/drain"} {
				method, path, _ := strings.Cut(request, " ")
				s.want(s.ask(method, path+"?region="+region, ""), 404, fsm.CodeNodeUnknown)
			}
		}
		s.want(s.ask("GET", "/_shard/moves/"+moved+"?region=nope", ""), 404, fsm.CodeMoveUnknown)
		s.want(s.ask("DELETE", "/_shard/moves/"+moved+"?region=nope", ""), 404, fsm.CodeMoveUnknown)
		s.want(s.ask("GET", "/_shard/moves/"+moved+"?region=eu", ""), 200, "")
	}
}
