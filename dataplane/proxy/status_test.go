package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/internal/tlsconf"
	"domicile/internal/tlsconf/certtest"
)

func TestO4MetricsTellWhatHappened(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	control.serveAdmin(func(http.ResponseWriter, *http.Request) {})
	p := start(t, []string{control.URL}, func(c *Config) { c.Secrets.Token, c.Version = "own", "v1.2" })
	p.await(control.change(n1.info(), placed("acme", "n1"), placed("beta", "n2"),
		fsm.Event{Node: &fsm.NodeInfo{Name: "n2", Addr: unusedAddr(t)}}))
	for range 3 {
		p.get("/t/acme/query")
	}
	p.get("/t/nobody/query")
	p.get("/t/beta/query")
	p.get("/nothing")
	p.get("/_shard/group")
	p.get("/_metrics").wants(t, 401, "unauthorized")
	p.send("POST", "/_metrics", nil, "").wants(t, 405, "method_not_allowed")
	wants := []string{
		`domicile_requests_total{class="2xx",route="tenant"} 3`,
		`domicile_requests_total{class="4xx",route="tenant"} 1`,
		`domicile_requests_total{class="5xx",route="tenant"} 1`,
		`domicile_requests_total{class="4xx",route="other"} 1`,
		`domicile_requests_total{class="2xx",route="shard"} 1`,
		`domicile_requests_total{class="4xx",route="metrics"} 2`,
		`domicile_request_duration_seconds_count{route="tenant"} 5`,
		`domicile_request_duration_seconds_bucket{route="tenant",le="10"} 5`,
		`domicile_upstream_duration_seconds_count 4`,
		`domicile_upstream_errors_total{node="n2"} 1`,
		`domicile_held_requests_total{outcome="refused"} 0`,
		`domicile_refused_tokens_total 1`,
		`domicile_directory_revision 4`,
		`domicile_directory_age_seconds `,
		`version="v1.2"`,
		"go_goroutines ", "process_cpu_seconds_total ",
	}
	var a answer
	// A request is counted once its answer was sent: perhaps after the client has it.
	eventually(t, func() error {
		a = p.send("GET", "/_metrics", http.Header{"Authorization": {"bearer own"}}, "")
		for _, want := range wants {
			if !strings.Contains(a.body, want) {
				return fmt.Errorf("the metrics lack %s", want)
			}
		}
		return nil
	})
	if a.StatusCode != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("got %d, %q", a.StatusCode, a.Header.Get("Content-Type"))
	}
	if strings.Contains(a.body, "acme") || strings.Contains(a.body, "own\"") {
		t.Error("the metrics name a tenant or a token")
	}
}

func TestUnknownPathTellsWhatIsServed(t *testing.T) {
	p := start(t, nil, nil)
	a := p.get("/nothing")
	a.wants(t, 404, codeUnknownRoute)
	if !strings.Contains(a.body, "/t/<tenant>/") {
		t.Errorf("got %s", a.body)
	}
	if a := p.send("HEAD", "/_health", nil, ""); a.StatusCode != 200 || a.body != "" {
		t.Errorf("HEAD /_health: got %d %q", a.StatusCode, a.body)
	}
}

func TestO5TLSToClientsNodesAndControlServers(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	files := func(name string) *tlsconf.Files {
		cert, key := ca.Issue(t, name, "127.0.0.1")
		f, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key, CA: ca.File})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	server, proxy := files("server"), files("proxy")
	parts, err := server.ForParts()
	if err != nil {
		t.Fatal(err)
	}
	secure := func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.TLS = parts
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	node := secure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	plain := newControlFake(t)
	control := secure(plain.Config.Handler)
	clients, err := proxy.ForClients()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{control.URL}, func(c *Config) { c.TLS, c.ClientTLS = clients, proxy.Client })
	p.await(plain.change(fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: node.URL}}, placed("acme", "n1")))
	tr := &http.Transport{DialTLSContext: proxy.DialContext, DisableKeepAlives: true}
	for target, want := range map[string]string{"/t/acme/query": "proxy", "/_shard/tenants/acme?consistent=1": `"name":"acme"`} {
		resp, err := (&http.Client{Transport: tr}).Get("https://" + p.Addr().String() + target)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), want) {
			t.Errorf("%s: got %d %q, want %q", target, resp.StatusCode, body, want)
		}
	}
	if _, err := tls.Dial("tcp", p.Addr().String(), &tls.Config{}); err == nil {
		t.Error("a client that does not know the CA was served")
	}
}

func TestRunWaitsForEverythingThatItStarted(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Listener: ln, Control: []string{unusedAddr(t)}, Logger: hclog.NewNullLogger(), Cache: t.TempDir() + "/cache"})
	if err != nil {
		t.Fatal(err)
	}
	edit := newTable().edit(1, p.dir.newEdit())
	for i := range 3 {
		name := fsm.NodeName(fmt.Sprint("n", i))
		if err := edit.applyAll([]fsm.Event{{Node: &fsm.NodeInfo{Name: name, Addr: unusedAddr(t)}}, placed(fmt.Sprint("t", i), string(name))}); err != nil {
			t.Fatal(err)
		}
	}
	p.dir.publish(edit.seal(position(1)), nil, true)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	r := &running{Proxy: p, t: t}
	for i := range 3 {
		r.get(fmt.Sprint("/t/t", i, "/query")).wants(t, 502, "node_unreachable")
	}
	r.get("/t/other/query").wants(t, 503, codeUnavailable)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
	if _, err := New(Config{Listener: ln, Control: []string{"not an address"}, Logger: hclog.NewNullLogger()}); err == nil {
		t.Error("a control server without an address was taken")
	}
	goleak.VerifyNone(t, before)
}
