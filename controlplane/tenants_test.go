package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// TestT1T2T3WhereATenantGoesAndWhatIsToldOfIt creates tenants in each way.
func TestT1T2T3WhereATenantGoesAndWhatIsToldOfIt(t *testing.T) {
	us := fsm.RegionName("us")
	for name, fallback := range map[string]*fsm.RegionName{"no default region": nil, "default region us": &us} {
		t.Run(name, func(t *testing.T) { whereATenantGoes(t, fallback) })
	}
}

func whereATenantGoes(t *testing.T, fallback *fsm.RegionName) {
	s := startGroup(t, 1, func(c *Config) { c.Settings.DefaultRegion = fallback }).leader()
	eu1, eu2, us1 := newFakeNode(t, "eu1"), newFakeNode(t, "eu2"), newFakeNode(t, "us1")
	eu1.setBytes(90 << 20)
	eu2.setBytes(10 << 20)
	us1.setBytes(50 << 20)
	s.addNode(eu1, "eu", "a")
	s.addNode(eu2, "eu", "b")
	s.addNode(us1, "us", "")
	least := "eu2"
	if fallback != nil {
		least = "us1"
	}
	for i, c := range []struct{ body, node, region string }{
		{`{"node":"eu1"}`, "eu1", "eu"},
		{`{"node":"eu1","region":"eu"}`, "eu1", "eu"},
		{`{"region":"us"}`, "us1", "us"},
		{`{"region":"eu"}`, "eu2", "eu"},
		{``, least, map[string]string{"eu2": "eu", "us1": "us"}[least]},
	} {
		name := fmt.Sprint("t", i)
		r := s.want(s.ask("PUT", "/_shard/tenants/"+name, c.body), 201, "")
		if r.body["tenant"] != name || r.body["node"] != c.node || r.body["region"] != c.region || r.body["unreplicated"] == "" {
			t.Errorf("%s: created %s, want it on %s", c.body, r.text, c.node)
		}
		r = s.want(s.ask("GET", "/_shard/tenants/"+name, ""), 200, "")
		if r.body["node"] != c.node || r.body["region"] != c.region || r.body["state"] != "active" ||
			r.body["name"] != name || r.body["pinned"] != false || r.body["replica"] != "" {
			t.Errorf("%s: told %s", c.body, r.text)
		}
		if _, told := r.body["same_zone"]; told {
			t.Errorf("%s: same_zone is told though there is no copy", c.body)
		}
	}
	r := s.want(s.ask("PUT", "/_shard/tenants/x", `{"node":"eu1","region":"us"}`), 409, fsm.CodeRegionMismatch)
	if r.body["region"] != "eu" {
		t.Errorf("the refusal does not say where eu1 is: %s", r.text)
	}
}

func TestT2ConcurrentCreatesSpread(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	for i := range 4 {
		s.addNode(newFakeNode(t, fsm.NodeName(fmt.Sprint("n", i))), "eu", "a")
	}
	var work sync.WaitGroup
	for i := range 40 {
		work.Go(func() {
			if r, err := s.try("PUT", fmt.Sprint("/_shard/tenants/t", i), ""); err != nil || r.status != 201 {
				t.Errorf("create: %d %s %v", r.status, r.text, err)
			}
		})
	}
	work.Wait()
	for n := range s.group.State().Nodes() {
		if held, _ := s.group.State().NodeHolds(n.Name); held != 10 {
			t.Errorf("%s holds %d tenants, want 10", n.Name, held)
		}
	}
}

func TestT2ASilentNodeIsNotChosen(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n1, n2 := newFakeNode(t, "n1"), newFakeNode(t, "n2")
	n2.setBytes(1 << 30)
	s.addNode(n1, "eu", "a")
	s.addNode(n2, "eu", "a")
	n1.Close()
	r := s.want(s.ask("PUT", "/_shard/tenants/a", ""), 201, "")
	if r.body["node"] != "n2" {
		t.Errorf("placed on %v", r.body["node"])
	}
	n2.Close()
	s.usage.mu.Lock()
	clear(s.usage.told)
	s.usage.mu.Unlock()
	s.want(s.ask("PUT", "/_shard/tenants/b", ""), 502, fsm.CodeNodeUnreachable)
	// Named, it is asked, and the name is free again: nothing had reached it.
	s.until("has undone the first", func() bool { return s.ask("GET", "/_shard/tenants/b", "").status == 404 })
	s.want(s.ask("PUT", "/_shard/tenants/b", `{"node":"n1"}`), 502, fsm.CodeNodeUnreachable)
	s.until("has undone it", func() bool { return s.ask("GET", "/_shard/tenants/b", "").status == 404 })
}

// TestT3TheListPagesAndFilters walks the list by its links.
func TestT3TheListPagesAndFilters(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	s.addNode(newFakeNode(t, "eu1"), "eu", "a")
	s.addNode(newFakeNode(t, "x1"), "", "a")
	for i := range 7 {
		s.want(s.ask("PUT", fmt.Sprint("/_shard/tenants/t", i), fmt.Sprintf(`{"node":%q}`, []string{"eu1", "x1"}[i%2])), 201, "")
	}
	s.want(s.ask("PUT", "/_shard/tenants/other", `{"node":"eu1"}`), 201, "")
	for query, want := range map[string]string{
		"":                         "other t0 t1 t2 t3 t4 t5 t6",
		"limit=3":                  "other t0 t1|t2 t3 t4|t5 t6",
		"prefix=t&limit=7":         "t0 t1 t2 t3 t4 t5 t6",
		"prefix=t&limit=6":         "t0 t1 t2 t3 t4 t5|t6",
		"region=eu&limit=2":        "other t0|t2 t4|t6",
		"region=":                  "t1 t3 t5",
		"region=us":                "",
		"after=t4":                 "t5 t6",
		"after=a&prefix=o&bytes=1": "other",
	} {
		if got := walk(t, s, "/_shard/tenants?"+query); got != want {
			t.Errorf("?%s gives %q, want %q", query, got, want)
		}
	}
	var page []proto.Tenant
	if err := json.Unmarshal([]byte(s.ask("GET", "/_shard/tenants?bytes=1&limit=1", "").text), &page); err != nil || page[0].Bytes == nil || *page[0].Bytes != 4096 {
		t.Errorf("sizes: %+v, %v", page, err)
	}
}

// walk gives the names of each page, following the links.
func walk(t *testing.T, s *testServer, path string) string {
	t.Helper()
	var pages []string
	for {
		r := s.ask("GET", path, "")
		var page []proto.Tenant
		if err := json.Unmarshal([]byte(r.text), &page); err != nil {
			t.Fatalf("%s: %v: %s", path, err, r.text)
		}
		var names []string
		for _, tenant := range page {
			names = append(names, string(tenant.Name))
		}
		pages = append(pages, strings.Join(names, " "))
		link := r.header.Get("Link")
		if link == "" {
			return strings.Join(pages, "|")
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
	}
}

// TestT7PinnedIsTold pins and lets go, and creates pinned.
func TestT7PinnedIsTold(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	s.addNode(newFakeNode(t, "n1"), "eu", "a")
	s.want(s.ask("PUT", "/_shard/tenants/a", `{"pinned":true}`), 201, "")
	for _, step := range []struct {
		method string
		pinned bool
	}{{"", true}, {"DELETE", false}, {"DELETE", false}, {"PUT", true}, {"PUT", true}} {
		if step.method != "" {
			s.want(s.ask(step.method, "/_shard/tenants/a/pin", ""), 200, "")
		}
		if r := s.ask("GET", "/_shard/tenants/a", ""); r.body["pinned"] != step.pinned {
			t.Errorf("after %q pinned is %v", step.method, r.body["pinned"])
		}
	}
}

// TestASchemaThatIsRefusedCreatesNothing gives back the node's message.
func TestASchemaThatIsRefusedCreatesNothing(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n := newFakeNode(t, "n1")
	s.addNode(n, "eu", "a")
	r := s.want(s.ask("PUT", "/_shard/tenants/a", `{"schema":"syntax error"}`), 400, fsm.CodeSchemaRefused)
	if !strings.Contains(r.text, "near") || !strings.Contains(r.text, "nothing is kept") {
		t.Errorf("the node's message is missing: %s", r.text)
	}
	s.until("has undone it", func() bool { return s.ask("GET", "/_shard/tenants/a", "").status == 404 })
	if len(n.held()) != 0 {
		t.Errorf("the node holds %v", n.held())
	}
	s.want(s.ask("PUT", "/_shard/tenants/a", `{"schema":"CREATE TABLE a(b)"}`), 201, "")
	if n.ran("a") != 1 {
		t.Errorf("the schema ran %d times", n.ran("a"))
	}
}

// TestT5ADeleteGoesOnWithoutItsNode has a node that is silent for a while.
func TestT5ADeleteGoesOnWithoutItsNode(t *testing.T) {
	s := startGroup(t, 1, nil).leader()
	n, well := newFakeNode(t, "n1"), newFakeNode(t, "n2")
	s.addNode(n, "eu", "a")
	s.addNode(well, "eu", "a")
	s.want(s.ask("PUT", "/_shard/tenants/a", `{"node":"n1"}`), 201, "")
	s.want(s.ask("PUT", "/_shard/tenants/b", `{"node":"n2"}`), 201, "")
	n.setFault(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	r := s.want(s.ask("DELETE", "/_shard/tenants/a", ""), 503, proto.CodeDeletePending)
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if r := s.ask("GET", "/_shard/tenants/a", ""); r.body["state"] != "deleting" {
		t.Errorf("told %s", r.text)
	}
	s.want(s.ask("PUT", "/_shard/tenants/a", ""), 409, fsm.CodeBusy)
	s.want(s.ask("DELETE", "/_shard/tenants/b", ""), 204, "") // other nodes' work goes on
	n.setFault(nil)
	s.until("has deleted it", func() bool { return s.ask("GET", "/_shard/tenants/a", "").status == 404 })
	if len(n.held()) != 0 {
		t.Errorf("the node holds %v", n.held())
	}
}
