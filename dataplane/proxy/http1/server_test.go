package http1

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPanicAnswers500 and ends that connection alone.
func TestPanicAnswers500(t *testing.T) {
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) {
		if string(r.Path()) == "/panic" {
			panic("on purpose")
		}
		d.Respond(404, "unknown_tenant", `no tenant "x"`)
	}}, nil)
	other := dial(t, p.addr)
	c := dial(t, p.addr).send(get("/panic"))
	if status, _, body := c.answer(); status != 500 || strings.Contains(body, "on purpose") {
		t.Errorf("got %d %q", status, body)
	}
	c.closed()
	if status, head, body := other.send(get("/")).answer(); status != 404 || body != `{"error":"no tenant \"x\"","code":"unknown_tenant"}`+"\n" || len(headValue(head, "X-Request-Id")) != 16 {
		t.Errorf("got %q %q", head, body)
	}
	if p.Stats().Panics.Load() != 1 {
		t.Error("not counted")
	}
}

// TestTooManyConnections: 503 and the end, not a connection that hangs.
func TestTooManyConnections(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), func(c *Config) { c.MaxConns = 1 })
	first := dial(t, p.addr)
	first.send(get("/")).answer()
	c := dial(t, p.addr)
	if status, head, _ := c.answer(); status != 503 || headValue(head, "Retry-After") != "1" {
		t.Errorf("got %q", head)
	}
	if status, _, _ := first.send(get("/")).answer(); status != 200 {
		t.Errorf("the first got %d", status)
	}
}

// TestShutdownUnderLoad: every request that was sent gets its answer, or the
// connection ends without a byte and without a reset.
func TestShutdownUnderLoad(t *testing.T) {
	p, _ := proxyTo(t, answering(okAnswer))
	var answers atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		c := dial(t, p.addr)
		all.Add(1)
		go func() {
			defer all.Done()
			defer c.Close()
			for {
				if _, err := io.WriteString(c.Conn, get("/")); err != nil {
					return // ended before it was sent
				}
				h, ok := readHead(c.r)
				if !ok {
					if _, err := c.r.ReadByte(); h != "" || !errors.Is(err, io.EOF) {
						t.Errorf("a request got %q, %v", h, err)
					}
					return
				}
				if _, ok := readBody(c.r, h); !ok {
					t.Error("an answer was cut short")
				}
				answers.Add(1)
				if headValue(h, "Connection") == "close" {
					return
				}
			}
		}()
	}
	eventually(t, "there is load", func() bool { return answers.Load() > 200 })
	shutdown(t, p.Server)
	all.Wait()
}

// TestL11ShutdownAnswersConnectionsInUse: a client that goes on sending learns from
// an answer that the connection ends, and never by losing a request.
func TestL11ShutdownAnswersConnectionsInUse(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	p := startProxy(t, to(newTestUpstream(t, n.addr(), nil)), func(c *Config) { c.DrainIdle = patience })
	var answers atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		c := dial(t, p.addr)
		all.Add(1)
		go func() {
			defer all.Done()
			defer c.Close()
			for {
				_, err := io.WriteString(c.Conn, get("/"))
				h, ok := readHead(c.r)
				if err != nil || !ok {
					t.Errorf("a request got no answer: %v, %q", err, h)
					return
				}
				if _, ok := readBody(c.r, h); !ok || headValue(h, "Connection") == "close" {
					return
				}
				answers.Add(1)
			}
		}()
	}
	eventually(t, "there is load", func() bool { return answers.Load() > 200 })
	shutdown(t, p.Server)
	all.Wait()
}

// TestShutdownHasAnEnd: what does not end is ended when the context does.
func TestShutdownHasAnEnd(t *testing.T) {
	there := make(chan struct{})
	p, _ := proxyTo(t, func(c *nodeConn) {
		c.request()
		close(there)
		c.r.ReadByte()
	})
	dial(t, p.addr).send(get("/"))
	<-there
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestServeFunc: answers of the proxy itself, with and without a length, to
// clients of both versions, reading the body or not.
func TestServeFunc(t *testing.T) {
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) {
		d.ServeWith(func(w ResponseWriter, r *Request, body io.Reader) {
			if err := w.SetHeader("X-Bad", "a\r\nb"); err == nil {
				t.Error("a header with a line end was taken")
			}
			w.SetHeader("X-Path", string(r.Path()))
			switch string(r.Path()) {
			case "/echo":
				io.Copy(w, body)
			case "/stream":
				for i := range 3 {
					fmt.Fprintf(w, "part %d\n", i)
					w.Flush()
				}
			case "/none":
				w.WriteHeader(204)
			}
		})
	}}, nil)
	c := dial(t, p.addr)
	for _, x := range []struct{ request, body string }{
		{strings.Replace(post("Content-Length: 5", "hello"), " / ", " /echo ", 1), "hello"},
		{strings.Replace(post("Transfer-Encoding: chunked", "5\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n"), " / ", " /echo ", 1), "hello!"},
		{get("/stream"), "7\r\npart 0\n\r\n7\r\npart 1\n\r\n7\r\npart 2\n\r\n0\r\n\r\n"},
		{get("/none"), ""},
		{strings.Replace(post("Content-Length: 5", "hello"), " / ", " /unread ", 1), ""},
	} {
		status, head, body := c.send(x.request).answer()
		if status/100 != 2 || body != x.body || headValue(head, "X-Path") == "" || headValue(head, "X-Request-Id") == "" {
			t.Errorf("%q: got %q %q", x.request, head, body)
		}
	}
	c.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if status, head := c.head(); status != 100 {
		t.Errorf("got %q", head)
	}
	if _, _, body := c.send("hi").answer(); body != "hi" {
		t.Errorf("got %q", body)
	}
	if _, head, body := dial(t, p.addr).send("GET /stream HTTP/1.0\r\n\r\n").answer(); body != "part 0\npart 1\npart 2\n" {
		t.Errorf("got %q %q", head, body)
	}
	c.send("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n")
	if status, head := c.head(); status != 200 {
		t.Errorf("got %q", head)
	}
	if status, _, _ := c.send(get("/none")).answer(); status != 204 {
		t.Errorf("got %d after HEAD", status)
	}
}

// TestTLSBothSides: the same engine under TLS, and a node whose certificate is
// not for its address is not spoken to.
func TestTLSBothSides(t *testing.T) {
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d bytes for %s", len(b), r.Host)
	}))
	node.Config.ErrorLog = log.New(io.Discard, "", 0)
	node.StartTLS()
	defer node.Close()
	roots := x509.NewCertPool()
	roots.AddCert(node.Certificate())
	u := newTestUpstream(t, node.Listener.Addr().String(), func(c *UpstreamConfig) { c.TLS = &tls.Config{RootCAs: roots} })
	bad := newTestUpstream(t, node.Listener.Addr().String(), func(c *UpstreamConfig) {
		c.TLS = &tls.Config{RootCAs: roots, ServerName: "other.invalid"}
	})
	secure := atomic.Bool{}
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) {
		secure.Store(r.TLS())
		d.Forward(u)
		if string(r.Path()) == "/bad" {
			d.Forward(bad)
		}
	}}, func(c *Config) { c.TLS = node.TLS })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Post("https://"+p.addr+"/", "x/y", strings.NewReader(string(big)))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != fmt.Sprintf("%d bytes for %s", len(big), p.addr) || !secure.Load() {
			t.Errorf("got %q", b)
		}
	}
	if got := u.Stats().Dials.Load(); got != 1 {
		t.Errorf("%d connections to the node", got)
	}
	resp, err := client.Get("https://" + p.addr + "/bad")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 502 {
		t.Errorf("a node with another's certificate: got %d", resp.StatusCode)
	}
}

// TestStats: requests by route and class.
func TestStats(t *testing.T) {
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) {
		d.Route = 3
		d.Respond(429, "over_quota", "too many")
		d.Headers = []byte("Retry-After: 7\r\n")
	}}, nil)
	if _, head, _ := dial(t, p.addr).send(get("/")).answer(); headValue(head, "Retry-After") != "7" {
		t.Errorf("got %q", head)
	}
	eventually(t, "it is counted", func() bool { return p.Stats().Requests[3][4].Load() == 1 })
	counts, sum := p.Stats().Duration[3].Snapshot()
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	if total != 1 || sum <= 0 || len(counts) != len(HistogramBuckets())+1 {
		t.Errorf("histogram %v, %v", counts, sum)
	}
}
