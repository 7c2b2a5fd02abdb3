package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// badRequests are requests that are malformed, or could be read in two ways.
// Each is refused and changes nothing. n1 is recorded in region eu, acme is on
// it, and pair has the standby s1.
var badRequests = []struct {
	method, path, body string
	status             int
	code               proto.Code
}{
	// bodies
	{"PUT", "/_shard/nodes/n2", `[]`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `null`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `"addr"`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"zone":"a"} {"zone":"b"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":"a"}x`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":"a","zone":"b"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"Zone":"b"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":null}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":5}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":"b","colour":"red"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", "{\"zone\":\"\xff\"}", 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"weight":-1}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"weight":1.5}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"weight":4294967296}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"weight":"1"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", strings.Repeat(" ", maxBody+1), 413, "body_too_large"},
	{"DELETE", "/_shard/nodes/n1", `{"forced":true}`, 400, "bad_request"},
	{"DELETE", "/_shard/tenants/acme", `[]`, 400, "bad_request"},
	{"PUT", "/_shard/tenants/acme/pin", `{"pinned":false}`, 400, "bad_request"},
	// names (N1, G11)
	{"PUT", "/_shard/nodes/N2", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/@eu", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/%40eu", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/a.b", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/a%2Fb", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/" + strings.Repeat("n", 65), `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"127.0.0.1:1"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"zone":"A"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"region":"e u"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n3", `{"region":"global","addr":"$free","token":"$token"}`, 400, "bad_request"},
	{"PUT", "/_shard/tenants/a.b", ``, 400, "bad_request"},
	{"PUT", "/_shard/tenants/", ``, 400, "bad_request"},
	{"PUT", "/_shard/tenants/ü", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants/A", ``, 400, "bad_request"},
	{"GET", "/_shard/nodes/@n", ``, 400, "bad_request"},
	// addresses and tokens (N5)
	{"PUT", "/_shard/nodes/n2", `{"addr":"localhost","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"ftp://localhost:1","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"http://u:p@localhost:1","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"http://localhost:1/x","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"http://localhost:1?x","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"localhost:99999","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"localhost:http","token":"x"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"token":""}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"token":"a b"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"token":"a\nb"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"token":"wrong"}`, 502, "node_refused"},
	{"PUT", "/_shard/nodes/n2", `{"addr":"$dead","token":"x"}`, 502, "node_unreachable"},
	{"PUT", "/_shard/nodes/n1", `{"addr":"$dead"}`, 502, "node_unreachable"},
	// what is recorded stands against it
	{"PUT", "/_shard/nodes/n1", `{"region":"us"}`, 409, "node_in_use"},
	{"PUT", "/_shard/nodes/pair", `{"region":"us"}`, 409, "node_in_use"},
	{"PUT", "/_shard/nodes/s1", `{"region":"us"}`, 409, "node_in_use"},
	{"PUT", "/_shard/nodes/n1", `{"standby":"nobody"}`, 404, "unknown_standby"},
	{"PUT", "/_shard/nodes/n1", `{"standby":"n1"}`, 400, "bad_request"},
	{"PUT", "/_shard/nodes/n1", `{"standby":"far"}`, 409, "region_mismatch"},
	{"PUT", "/_shard/nodes/n1", `{"standby":"s1"}`, 409, "pair_conflict"},
	{"DELETE", "/_shard/nodes/n1", ``, 409, "node_in_use"},
	{"DELETE", "/_shard/nodes/nobody", ``, 404, "unknown_node"},
	{"GET", "/_shard/nodes?region=E", ``, 400, "bad_request"},
	{"PUT", "/_shard/tenants/acme", ``, 409, "tenant_exists"},
	{"PUT", "/_shard/tenants/t", `{"node":"nobody"}`, 404, "unknown_node"},
	{"PUT", "/_shard/tenants/t", `{"region":"mars"}`, 404, "unknown_region"},
	{"PUT", "/_shard/tenants/t", `{"region":"us","node":"n1"}`, 409, "region_mismatch"},
	{"PUT", "/_shard/tenants/t", `{"node":"s1"}`, 409, "node_is_standby"},
	{"PUT", "/_shard/tenants/t", `{"hash":"md5"}`, 400, "bad_request"},
	{"PUT", "/_shard/tenants/t", `{"buckets":-1}`, 400, "bad_request"},
	{"PUT", "/_shard/tenants/t", `{"schema":"` + strings.Repeat("x", fsm.MaxSchema+1) + `"}`, 400, "bad_request"},
	{"DELETE", "/_shard/tenants/nobody", ``, 404, "unknown_tenant"},
	{"PUT", "/_shard/tenants/nobody/pin", ``, 404, "unknown_tenant"},
	{"DELETE", "/_shard/tenants/nobody/pin", ``, 404, "unknown_tenant"},
	{"PUT", "/_shard/tenants/nobody/read-replicas/us", ``, 404, "unknown_tenant"},
	{"PUT", "/_shard/tenants/acme/read-replicas/nowhere", ``, 404, "unknown_region"},
	{"PUT", "/_shard/tenants/acme/read-replicas/Up", ``, 400, "bad_request"},
	{"PUT", "/_shard/tenants/acme/read-replicas/us", `{"region":"us"}`, 400, "bad_request"},
	{"DELETE", "/_shard/tenants/acme/read-replicas/us", ``, 404, "unknown_reader"},
	// regions
	{"PUT", "/_shard/regions/us2", `{}`, 400, "bad_request"},
	{"PUT", "/_shard/regions/us2", `{"routers":[]}`, 400, "bad_request"},
	{"PUT", "/_shard/regions/us2", `{"routers":["127.0.0.1:1"]}`, 400, "bad_request"},
	{"PUT", "/_shard/regions/us2", `{"routers":["http://h:1/x"]}`, 400, "bad_request"},
	{"PUT", "/_shard/regions/us2", `{"routers":"http://h:1"}`, 400, "bad_request"},
	{"PUT", "/_shard/regions/global", `{"routers":["http://h:1"]}`, 400, "bad_request"},
	{"DELETE", "/_shard/regions/nowhere", ``, 404, "unknown_region"},
	{"GET", "/_shard/regions/nowhere", ``, 404, "unknown_region"},
	// the group
	{"POST", "/_shard/group/servers", `{}`, 400, "bad_request"},
	{"POST", "/_shard/group/servers", `{"id":"c9","raft":"http://h:1","api":"http://h:2"}`, 400, "bad_request"},
	{"POST", "/_shard/group/servers", `{"id":"c9","raft":"h:1","api":"h:2"}`, 400, "bad_request"},
	{"DELETE", "/_shard/group/servers/c9", ``, 404, "unknown_server"},
	{"POST", "/_shard/group/transfer", `{"id":"c9"}`, 404, "unknown_server"},
	{"POST", "/_shard/group/members", `{"id":"c9","raft":"h:1","api":"http://h:1","version":1}`, 404, "unknown_server"},
	// queries
	{"GET", "/_shard/tenants?limit=0", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?limit=10001", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?limit=ten", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?limit=1&limit=2", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?regoin=eu", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?region=E", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?prefix=A", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?bytes=yes", ``, 400, "bad_request"},
	{"GET", "/_shard/tenants?a=%zz", ``, 400, "bad_request"},
	{"PUT", "/_shard/tenants/t?region=eu", ``, 400, "bad_request"},
	// paths and methods
	{"GET", "/_shard", ``, 404, "unknown_route"},
	{"GET", "/_shard/", ``, 404, "unknown_route"},
	{"GET", "/_shard/nodes/", ``, 400, "bad_request"},
	{"GET", "/_shard//nodes", ``, 404, "unknown_route"},
	{"GET", "/_shard/./nodes", ``, 404, "unknown_route"},
	{"PUT", "/_shard/tenants/t/", ``, 404, "unknown_route"},
	{"POST", "/_shard/tenants/acme/move", `{"to":"n1"}`, 409, "already_there"},
	{"GET", "/nowhere", ``, 404, "unknown_route"},
	{"POST", "/_shard/nodes", `{}`, 405, "method_not_allowed"},
	{"PATCH", "/_shard/tenants/acme", `{}`, 405, "method_not_allowed"},
	{"POST", "/_health", ``, 405, "method_not_allowed"},
}

func TestBadRequestsAreRefusedAndChangeNothing(t *testing.T) {
	g := startGroup(t, 2, nil)
	s := g.leader()
	n := newFakeNode(t, "n1")
	s.addNode(n, "eu", "a")
	for _, name := range []fsm.NodeName{"s1", "pair", "far"} {
		region := "eu"
		if name == "far" {
			region = "us"
		}
		s.addNode(newFakeNode(t, name), region, "a")
	}
	s.want(s.ask("PUT", "/_shard/nodes/pair", `{"standby":"s1"}`), 200, "")
	s.want(s.ask("PUT", "/_shard/tenants/acme", `{"node":"n1"}`), 201, "")
	dead := listenOn(t, "127.0.0.1:0")
	dead.Close()
	fill := strings.NewReplacer("$dead", dead.Addr().String(), "$free", newFakeNode(t, "n3").addr(), "$token", nodeToken)
	before, calls := s.directory(), n.changes()
	for _, at := range []*testServer{s, g.follower()} {
		for _, c := range badRequests {
			r := at.ask(c.method, c.path, fill.Replace(c.body))
			name := fmt.Sprintf("%s: %s %s %.80s", at.config.ID, c.method, c.path, c.body)
			if r.status != c.status || r.code() != string(c.code) {
				t.Errorf("%s: answer %d %s, want %d %s: %s", name, r.status, r.code(), c.status, c.code, r.text)
			}
			if text, _ := r.body["error"].(string); text == "" || r.header.Get("X-Request-Id") == "" {
				t.Errorf("%s: the answer has no error text or no request id: %v", name, r.header)
			}
			if strings.HasPrefix(c.path, "/_shard/") && r.header.Get("Domicile-Revision") == "" {
				t.Errorf("%s: the answer has no revision", name)
			}
			if (r.status == 405) != (r.header.Get("Allow") != "") {
				t.Errorf("%s: Allow is %q with %d", name, r.header.Get("Allow"), r.status)
			}
		}
	}
	if after := s.directory(); after != before {
		t.Errorf("the directory has changed:\n%s\nfrom\n%s", after, before)
	}
	if n.changes() != calls {
		t.Errorf("the node was called %d times", n.changes()-calls)
	}
}

// TestABadNameIsNotWrittenToTheLog holds for every change that names something.
func TestABadNameIsNotWrittenToTheLog(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	before := s.group.State().Revision()
	for _, name := range []string{"Acme", "%ff", strings.Repeat("a", 65), ""} {
		for _, path := range []string{"nodes/$", "tenants/$", "tenants/$/pin", "tenants/$/read-replicas/eu", "regions/$", "group/servers/$"} {
			for _, method := range []string{"PUT", "DELETE"} {
				if path == "group/servers/$" && method == "PUT" {
					continue
				}
				s.want(s.ask(method, "/_shard/"+strings.Replace(path, "$", name, 1), "", proto.HeaderIdempotencyKey, method+path+name), 400, "bad_request")
			}
		}
	}
	if after := s.group.State().Revision(); after != before {
		t.Errorf("the directory went from revision %d to %d", before, after)
	}
}

// TestTheCodeOfEveryAnswerIsListed holds the table above against proto.
func TestTheCodeOfEveryAnswerIsListed(t *testing.T) {
	for _, c := range badRequests {
		if proto.Status(c.code) != c.status {
			t.Errorf("%s is %d in package proto, %d here", c.code, proto.Status(c.code), c.status)
		}
	}
}
