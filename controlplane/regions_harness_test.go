package controlplane

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/internal/netfault"
	"domicile/proto"
)

// testRegions is a global group and the groups of regions, each of a few servers. What
// they send each other goes over links, one for each server, as a region's routers and the
// global group's servers would be reached from elsewhere.
type testRegions struct {
	t      *testing.T
	global *testGroup
	of     map[fsm.RegionName]*testGroup
	links  map[*testServer]*netfault.Link // to each server, from the other groups
	change func(*Config)
}

// startRegions runs a global group of n servers and one of n for each region, recorded.
func startRegions(t *testing.T, n int, names ...fsm.RegionName) *testRegions {
	t.Helper()
	return startRegionsWith(t, n, func(*Config) {}, names...)
}

// startRegionsWith does so with what change changes.
func startRegionsWith(t *testing.T, n int, change func(*Config), names ...fsm.RegionName) *testRegions {
	t.Helper()
	t.Parallel()
	r := &testRegions{t: t, change: change, of: make(map[fsm.RegionName]*testGroup), links: make(map[*testServer]*netfault.Link)}
	r.global = r.group(n, "")
	for _, name := range names {
		r.of[name] = r.group(n, name)
		r.record(name)
	}
	r.settled()
	return r
}

// group starts a group; a region's follows the global one.
func (r *testRegions) group(n int, region fsm.RegionName) *testGroup {
	r.t.Helper()
	g := &testGroup{t: r.t}
	dir := r.t.TempDir()
	for i := range n {
		config := Config{ID: fsm.MemberID(fmt.Sprintf("%s%d", nameOr(region, "g"), i+1)), DataDir: filepath.Join(dir, fmt.Sprint(i)),
			Token: adminToken, Bootstrap: i == 0, Region: region}
		if region != "" {
			config.Global = r.routers(r.global)
		}
		if i > 0 {
			config.Join = []string{"http://" + g.servers[0].addr}
		}
		if n == 1 {
			config.Timing = fast
		}
		r.change(&config)
		s := start(r.t, config, "127.0.0.1:0", "127.0.0.1:0")
		target := s.addr
		if region != "" {
			target = newFakeProxy(r.t, s.addr)
		}
		link, err := netfault.New(target)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(link.Close)
		g.servers, r.links[s] = append(g.servers, s), link
	}
	g.settled()
	return g
}

func nameOr(region fsm.RegionName, other string) string {
	if region == "" {
		return other
	}
	return string(region)
}

// routers are the addresses by which others reach a group.
func (r *testRegions) routers(g *testGroup) []string {
	var all []string
	for _, s := range g.servers {
		all = append(all, "http://"+r.links[s].Addr())
	}
	return all
}

// record records a region in the global directory.
func (r *testRegions) record(name fsm.RegionName) {
	r.t.Helper()
	body := `{"routers":["` + strings.Join(r.routers(r.of[name]), `","`) + `"]}`
	s := r.global.leader()
	s.want(s.ask("PUT", "/_shard/regions/"+string(name), body), 201, "")
}

// settled waits until every region's servers have the global directory.
func (r *testRegions) settled() {
	r.t.Helper()
	rev := r.global.leader().group.State().Revision()
	for _, g := range r.of {
		for _, s := range g.servers {
			s.until("has the global directory", func() bool { d := s.globalCopy(); return d != nil && d.Revision() >= rev })
		}
	}
}

// all are the servers of every group.
func (r *testRegions) all() []*testServer {
	all := append([]*testServer{}, r.global.servers...)
	for _, g := range r.of {
		all = append(all, g.servers...)
	}
	return all
}

// cut lets nothing through between a region and the others, silently as a pulled cable.
func (r *testRegions) cut(name fsm.RegionName) { r.between(name, (*netfault.Way).Cut) }

// refuse has connections between a region and the others refused.
func (r *testRegions) refuse(name fsm.RegionName) { r.between(name, (*netfault.Way).Reset) }

func (r *testRegions) heal(name fsm.RegionName) { r.between(name, (*netfault.Way).Heal) }

// between does something to the links to a region and, as the only other region's group in
// these tests that its servers reach is the global one, to those to the global group.
func (r *testRegions) between(name fsm.RegionName, do func(*netfault.Way)) {
	for _, s := range append(append([]*testServer{}, r.of[name].servers...), r.global.servers...) {
		do(r.links[s].Way)
	}
}

func proposal(cmd fsm.Command) group.Proposal { return group.Proposal{Cmd: cmd} }

// decode reads the answer into v.
func (s *testServer) decode(r reply, v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(r.text), v); r.status != http.StatusOK || err != nil {
		s.t.Fatalf("%d %s: %v", r.status, r.text, err)
	}
}

// greeting is with what a stream begins.
func (s *testServer) greeting(path string) *proto.Hello {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	frames, err := proto.NewFrameReader(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	defer frames.Close()
	frame, err := frames.ReadFrame()
	hello, ok := frame.(*proto.Hello)
	if err != nil || !ok {
		s.t.Fatalf("%s begins with %+v, %v", path, frame, err)
	}
	return hello
}

// newFakeProxy stands before a region's server as one of its proxies, and gives its address.
func newFakeProxy(t *testing.T, server string) string {
	relay := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: server}) },
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/t/" {
			httpserve.WriteError(w, httpserve.Errorf(404, fsm.CodeTenantUnknown, "no tenant is named"))
			return
		}
		relay.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return strings.TrimPrefix(proxy.URL, "http://")
}

// newFakeRouter answers as a router of a region whose group follows the directory of s.
func newFakeRouter(t *testing.T, s *testServer, region fsm.RegionName) string {
	of, _ := s.ownName()
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserve.WriteJSON(w, 200, proto.Group{Region: region, Authority: "far/" + string(region), Global: &proto.GroupCopy{Authority: of.Authority}})
	}))
	t.Cleanup(router.Close)
	return router.URL
}
