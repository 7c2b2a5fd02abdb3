package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// newRegion is a control server of a region that keeps its own directory.
func newRegion(t *testing.T, name string, global *controlFake) *controlFake {
	c := newControlFake(t)
	c.authority, c.global = name+"-group/"+name, global // groups draw their ids each for itself
	return c
}

func home(tenant, region string) fsm.Event {
	return fsm.Event{Tenant: &fsm.TenantInfo{Name: fsm.TenantName(tenant), Home: fsm.RegionName(region), HasHome: true}}
}

// routers records the proxies of a region.
func routers(region string, addrs ...string) fsm.Event {
	return fsm.Event{Region: &fsm.Region{Name: fsm.RegionName(region), Routers: addrs}}
}

func (p *running) url() string { return "http://" + p.Addr().String() }

// inRegion runs a proxy that follows control, with the deployment's secret.
func inRegion(t *testing.T, control *controlFake, change func(*Config)) *running {
	return start(t, []string{control.URL}, func(c *Config) {
		c.Secrets.SharedSecret, c.Hold = "secret", long
		if change != nil {
			change(c)
		}
	})
}

// awaitGlobal waits until the proxy's copy of the global directory stands at rev.
func (p *running) awaitGlobal(rev fsm.Revision) {
	p.t.Helper()
	if !p.global.await(nil, 30*time.Second, reached(rev)) {
		p.t.Fatalf("the copy of the global directory did not reach revision %d", rev)
	}
}

// pair is two regions with a directory of their own each, us and ap, and eu, which the
// global directory keeps; a proxy of each.
type pair struct {
	global, us, ap         *controlFake
	inUS, inAP, inEU       *running
	nodeUS, nodeAP, nodeEU *nodeFake
}

// newPair places acme in us, beta in ap and gamma in eu.
func newPair(t *testing.T, change func(*Config)) *pair {
	g := newControlFake(t)
	g.history = 2
	x := &pair{global: g, us: newRegion(t, "us", g), ap: newRegion(t, "ap", g)}
	x.nodeUS, x.nodeAP, x.nodeEU = newNode(t, "n1", echo("us")), newNode(t, "n1", echo("ap")), newNode(t, "n1", echo("eu"))
	x.inUS, x.inAP, x.inEU = inRegion(t, x.us, change), inRegion(t, x.ap, change), inRegion(t, g, change)
	x.inUS.await(x.us.change(x.nodeUS.info(), placed("acme", "n1")))
	x.inAP.await(x.ap.change(x.nodeAP.info(), placed("beta", "n1")))
	x.tell(g.change(x.nodeEU.info(), placed("gamma", "n1"), home("acme", "us"), home("beta", "ap"),
		routers("us", x.inUS.url()), routers("ap", x.inAP.url())))
	return x
}

// tell waits until all proxies have the global directory at rev.
func (x *pair) tell(rev fsm.Revision) {
	x.inEU.t.Helper()
	x.inUS.awaitGlobal(rev)
	x.inAP.awaitGlobal(rev)
	x.inEU.await(rev)
}

// TestG7RequestGoesToItsTenantsNodeOrRegion: whichever proxy it comes to.
func TestG7RequestGoesToItsTenantsNodeOrRegion(t *testing.T) {
	x := newPair(t, nil)
	for name, p := range map[string]*running{"us": x.inUS, "ap": x.inAP, "eu": x.inEU} {
		for tenant, want := range map[string]string{"acme": "us 3", "beta": "ap 3", "gamma": "eu 3"} {
			if a := p.send("POST", "/t/"+tenant+"/query", nil, "abc"); a.StatusCode != 200 || a.body != want {
				t.Errorf("in %s: %s got %d %q, want %q", name, tenant, a.StatusCode, a.body, want)
			}
		}
	}
	if n := len(x.nodeUS.requests()); n != 3 {
		t.Errorf("us executed %d requests", n)
	}
	// What the region's own node gets names it by the region's own directory.
	for _, r := range x.nodeUS.requests() {
		if got := r.Header.Values(headerRoute); len(got) != 1 || got[0] != fmt.Sprint("acme ", x.inUS.dir.table().position.Revision) {
			t.Errorf("the node got %s %q", headerRoute, got)
		}
	}
	eventually(t, func() error {
		m := x.inEU.get("/_metrics").body
		for _, want := range []string{
			`domicile_relays_total{outcome="answered",region="us"} 1`, `domicile_relays_total{outcome="unreachable",region="us"} 0`,
			`domicile_requests_total{class="2xx",route="relay"} 2`, `domicile_request_duration_seconds_count{route="relay"} 2`,
			`domicile_upstream_errors_total{node="@us"} 0`,
		} {
			if !strings.Contains(m, want) {
				return fmt.Errorf("the metrics have no %s", want)
			}
		}
		return nil
	})
	if a := x.inUS.get("/_metrics").body; !strings.Contains(a, "\ndomicile_global_directory_revision 4\n") || !strings.Contains(a, "\ndomicile_global_directory_age_seconds ") {
		t.Error("a region's proxy does not tell of its copy of the global directory")
	}
	if a := x.inUS.get("/_ready"); !strings.Contains(a.body, `"global":{"revision":4,`) {
		t.Errorf("/_ready: %s", a.body)
	}
	if a := x.inEU.get("/_ready"); strings.Contains(a.body, `"global"`) {
		t.Errorf("/_ready of a proxy of the global directory: %s", a.body)
	}
}

func TestG7UnknownTenantIsAskedAboutAndThenInEitherDirectory(t *testing.T) {
	x := newPair(t, nil)
	x.inUS.get("/t/nobody/query").wants(t, 404, codeUnknownTenant)
	if n := x.us.questions("nobody"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	x.global.hold(true)
	x.global.change(home("delta", "ap"))
	x.us.change(placed("delta", "nowhere"), fsm.Event{UnitGone: "other"}) // so that the fake says that there is one
	x.inAP.await(x.ap.change(placed("delta", "n1")))
	x.us.hold(true)
	a := x.inUS.later("GET", "/t/epsilon/query", nil, "")
	(<-a).wants(t, 404, codeUnknownTenant)
	x.us.change(placed("zeta", "n1"))
	a = x.inUS.later("GET", "/t/zeta/query", nil, "")
	eventually(t, func() error {
		if x.us.questions("zeta") == 0 {
			return errNotYet
		}
		return nil
	})
	x.us.hold(false)
	if a := <-a; a.body != "us 0" {
		t.Errorf("known to the own directory a moment later: got %d %q", a.StatusCode, a.body)
	}
}

func TestR3BothDirectoriesAreCached(t *testing.T) {
	x := newPair(t, nil)
	path := filepath.Join(t.TempDir(), "directory")
	p := inRegion(t, x.us, func(c *Config) { c.Cache = path })
	p.awaitGlobal(x.global.change(routers("us", x.inUS.url())))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	x.us.stop()
	x.global.stop()
	again := inRegion(t, x.us, func(c *Config) { c.Cache = path })
	for tenant, want := range map[string]string{"acme": "us 0", "beta": "ap 0", "gamma": "eu 0"} {
		if a := again.get("/t/" + tenant + "/query"); a.body != want {
			t.Errorf("%s: got %d %q", tenant, a.StatusCode, a.body)
		}
	}
	again.get("/t/nobody/query").wants(t, 503, codeUnavailable)
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	// A copy of another deployment's is not used.
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+globalSuffix, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	last := inRegion(t, x.us, func(c *Config) { c.Cache, c.Logger = path, log.logger() })
	if last.global.table() != nil || !strings.Contains(log.String(), "cached directory ignored") {
		t.Errorf("it was taken: %s", log.String())
	}
}

// TestR4ForeignOrOlderGlobalDirectoryIsNotApplied, as for the own one.
func TestR4ForeignOrOlderGlobalDirectoryIsNotApplied(t *testing.T) {
	x := newPair(t, nil)
	for name, change := range map[string]func(*controlFake){
		"foreign":       func(c *controlFake) { c.authority, c.history = "elsewhere/global", 9 },
		"a region's":    func(c *controlFake) { c.authority, c.history = "us-group/us", 9 },
		"older history": func(c *controlFake) { c.history = 1 },
		"emptied":       func(c *controlFake) { c.history = 2 },
	} {
		other := newControlFake(t)
		change(other)
		if name != "emptied" {
			other.change(placed("gamma", "n9"))
			other.change(home("beta", "us"))
		}
		var log logged
		p := inRegion(t, x.us, func(c *Config) { c.Logger = log.logger() })
		p.awaitGlobal(x.global.change(routers("us", x.inUS.url())))
		x.us.mu.Lock()
		x.us.global = other
		x.us.mu.Unlock()
		x.global.cut()
		eventually(t, func() error {
			if !strings.Contains(log.String(), "this copy") && !strings.Contains(log.String(), "was asked for") {
				return errors.New("the stream was not refused: " + log.String())
			}
			return nil
		})
		if a := p.get("/t/beta/query"); a.body != "ap 0" {
			t.Errorf("%s: got %d %q, want the last good directory in force", name, a.StatusCode, a.body)
		}
		if name == "a region's" { // nor is it by a proxy that has none yet
			var log logged
			first := inRegion(t, x.us, func(c *Config) { c.Logger = log.logger() })
			eventually(t, func() error {
				if !strings.Contains(log.String(), "was asked for") {
					return errors.New("the stream was not refused: " + log.String())
				}
				return nil
			})
			if first.global.table() != nil {
				t.Errorf("%s: it was taken", name)
			}
		}
		x.us.mu.Lock()
		x.us.global = x.global
		x.us.mu.Unlock()
	}
}

func TestChangeIsAnsweredOnceTheTableOfItsDirectoryHasIt(t *testing.T) {
	for name, headers := range map[string]func(rev fsm.Revision) map[string]string{
		"the global directory's": func(rev fsm.Revision) map[string]string {
			return map[string]string{proto.HeaderDirectory: "test/global/1", proto.HeaderRevision: fmt.Sprint(rev)}
		},
		"the region's, and the global one's": func(rev fsm.Revision) map[string]string {
			return map[string]string{proto.HeaderDirectory: "us-group/us/1", proto.HeaderRevision: "1", proto.HeaderAlso: fmt.Sprint("test/global ", rev)}
		},
	} {
		x := newPair(t, nil)
		x.us.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
			x.global.hold(true)
			rev := x.global.change(home("delta", "ap"))
			for k, v := range headers(rev) {
				w.Header().Set(k, v)
			}
			w.Write([]byte("{}"))
			time.AfterFunc(20*time.Millisecond, func() { x.global.hold(false) })
		})
		a := x.inUS.send("PUT", "/_shard/tenants/delta", http.Header{proto.HeaderOriginRegion: {"tr"}}, "{}")
		if x.inUS.global.table().home([]byte("delta")) == nil || a.Header.Get(headerBehind) != "" {
			t.Errorf("%s: answered before the table had it, behind %q", name, a.Header.Get(headerBehind))
		}
		// A third group's is not waited for.
		x.us.serveAdmin(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(proto.HeaderRelayedBetween) != "test/eu" {
				t.Errorf("the server got %v", r.Header)
			}
			w.Header().Set(proto.HeaderDirectory, "ap-group/ap/1")
			w.Header().Set(proto.HeaderRevision, "100000")
		})
		if a := x.inUS.send("PUT", "/_shard/nodes/n9", http.Header{proto.HeaderRelayedBetween: {"test/eu"}}, "{}"); a.Header.Get(headerBehind) != "" {
			t.Errorf("a change of a directory that the proxy has no copy of: behind %q", a.Header.Get(headerBehind))
		}
	}
}

// TestRegionWithoutRoutersIsUnreachable, and one that the table does not know.
func TestRegionWithoutRoutersIsUnreachable(t *testing.T) {
	x := newPair(t, nil)
	x.tell(x.global.change(home("delta", "br"), home("epsilon", "jp"), routers("br", unusedAddr(t)), routers("jp", "no address")))
	for _, tenant := range []string{"delta", "epsilon"} {
		x.inUS.send("POST", "/t/"+tenant+"/query", nil, "x").wants(t, 502, codeRegion)
	}
	x.tell(x.global.change(fsm.Event{RegionGone: "ap"}))
	x.inUS.get("/t/beta/query").wants(t, 502, codeRegion)
	x.tell(x.global.change(routers("ap", x.inAP.url())))
	if a := x.inUS.get("/t/beta/query"); a.body != "ap 0" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
}
