package http1

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const misdirected = "HTTP/1.1 421 Misdirected Request\r\nContent-Length: 37\r\n\r\n" + `{"error":"gone","code":"misdirected"}`

func refusing(code string) string {
	body := fmt.Sprintf(`{"error":"not now","code":%q}`, code)
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestRefusedIsSentOn: an attempt without effect goes to the newer upstream with
// the whole body, whether that had arrived or not.
func TestRefusedIsSentOn(t *testing.T) {
	for _, answer := range []string{misdirected, refusing("transfer_in_progress"), refusing("no_lease"),
		"HTTP/1.1 421 Misdirected Request\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"} {
		for name, request := range map[string]string{
			"GET":     get("/"),
			"POST":    post("Content-Length: 5", "hello"),
			"chunked": post("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
			"64 KiB":  post("Content-Length: 65536", string(big[:65536])),
		} {
			for _, early := range []bool{false, true} {
				old := startNode(t, func(c *nodeConn) {
					for {
						h, ok := c.head()
						if !ok {
							return
						}
						if !early {
							readBody(c.r, h)
						}
						io.WriteString(c, answer)
					}
				})
				next := startNode(t, answering(okAnswer))
				to2 := newTestUpstream(t, next.addr(), nil)
				h := to(newTestUpstream(t, old.addr(), nil))
				h.refused = func(r *Request, f Refusal, d *Decision) bool {
					if f.Attempt != 1 || string(r.Path()) != "/" || len(f.Body) > maxRefusal {
						t.Errorf("refusal %+v", f)
					}
					d.Lines = append(d.Lines[:0], "Domicile-Route: acme 8\r\n"...)
					d.Forward(to2)
					return true
				}
				p := startProxy(t, h, nil)
				c := dial(t, p.addr)
				status, head, _ := c.send(request).answer()
				if status != 200 {
					t.Errorf("%s: got %q", name, head)
				}
				got, body := next.last(t)
				if headValue(got, "Domicile-Route") != "acme 8" || strings.Count(got, "Domicile-Route") != 1 {
					t.Errorf("%s: next node got %q", name, got)
				}
				if _, want, _ := strings.Cut(request, "\r\n\r\n"); body != want {
					t.Errorf("%s: next node got body %.80q", name, body)
				}
			}
		}
	}
}

// TestAClientNeverSees421: with nothing newer it is 503, Retry-After.
func TestAClientNeverSees421(t *testing.T) {
	long := startNode(t, func(c *nodeConn) {
		h, ok := c.head()
		if !ok {
			return
		}
		readBody(c.r, h)
		io.WriteString(c, misdirected)
	})
	h := to(newTestUpstream(t, long.addr(), nil))
	asked := atomic.Int64{}
	var final atomic.Bool
	h.refused = func(_ *Request, f Refusal, d *Decision) bool {
		asked.Add(1)
		if f.Final != final.Load() {
			t.Errorf("refusal %+v", f)
		}
		return f.Final // which has no say
	}
	p := startProxy(t, h, nil)
	for i, request := range []string{get("/"), post(fmt.Sprintf("Content-Length: %d", len(big)), string(big))} {
		final.Store(i == 1)
		status, head, body := dial(t, p.addr).send(request).answer()
		if status != 503 || headValue(head, "Retry-After") != "1" || !strings.Contains(body, `"code":"misdirected"`) {
			t.Errorf("got %q %q", head, body)
		}
		if got := asked.Load(); got != int64(i+1) {
			t.Errorf("request %d: asked %d times", i, got)
		}
	}
}

// TestRefusalIsRelayedWhenNotSentOn: the node's own 503 reaches the client as it came.
func TestRefusalIsRelayedWhenNotSentOn(t *testing.T) {
	for _, code := range []string{"lease_lapsed", "not_named", "replica_unreachable"} {
		p, _ := proxyTo(t, answering(refusing(code)))
		c := dial(t, p.addr)
		for range 2 {
			status, head, body := c.send(get("/")).answer()
			if status != 503 || headValue(head, "Retry-After") != "1" || !strings.Contains(body, code) {
				t.Errorf("got %q %q", head, body)
			}
		}
	}
}

// TestOutcomeUnknownOfANodeIsRelayed: a node's 503 that is no refusal without
// effect is never a reason to send again.
func TestOutcomeUnknownOfANodeIsRelayed(t *testing.T) {
	n := startNode(t, answering(refusing("outcome_unknown")))
	h := to(newTestUpstream(t, n.addr(), nil))
	h.refused = func(*Request, Refusal, *Decision) bool { t.Error("asked"); return true }
	p := startProxy(t, h, nil)
	if status, _, body := dial(t, p.addr).send(post("Content-Length: 0", "")).answer(); status != 503 || !strings.Contains(body, "outcome_unknown") {
		t.Errorf("got %d %q", status, body)
	}
	if n.requests() != 1 {
		t.Errorf("sent %d times", n.requests())
	}
}

// TestHeldRequestEndsWithItsClient: a hold gives up when the client has gone.
func TestHeldRequestEndsWithItsClient(t *testing.T) {
	n := startNode(t, answering(misdirected))
	h := to(newTestUpstream(t, n.addr(), nil))
	held, ended := make(chan struct{}), make(chan struct{})
	h.refused = func(r *Request, f Refusal, d *Decision) bool {
		close(held)
		select {
		case <-r.Gone():
		case <-time.After(patience):
			t.Error("the client's leaving was not noticed")
		}
		close(ended)
		return false
	}
	p := startProxy(t, h, nil)
	c := dial(t, p.addr).send(get("/"))
	await(t, "held", held)
	c.Close()
	await(t, "ended", ended)
}

// TestUnreachableIsAsked: the Handler may have another place, or an answer.
func TestUnreachableIsAsked(t *testing.T) {
	gone := startNode(t, answering(okAnswer))
	gone.stop()
	n := startNode(t, answering(okAnswer))
	u := newTestUpstream(t, n.addr(), nil)
	h := to(newTestUpstream(t, gone.addr(), nil))
	h.refused = func(r *Request, f Refusal, d *Decision) bool {
		if f.Kind != Unreachable || f.Err == nil {
			t.Errorf("refusal %+v", f)
		}
		if string(r.Path()) == "/region" {
			d.Respond(502, "region_unreachable", "cut off")
		} else {
			d.Forward(u)
		}
		return true
	}
	p := startProxy(t, h, nil)
	c := dial(t, p.addr)
	if status, head, _ := c.send(post("Content-Length: 2", "hi")).answer(); status != 200 {
		t.Errorf("got %q", head)
	}
	if status, _, body := c.send(get("/region")).answer(); status != 502 || !strings.Contains(body, "region_unreachable") {
		t.Errorf("got %d %q", status, body)
	}
}

// TestAnsweredMayDelay: the Handler sees the answer first, and the upstream
// connection serves others meanwhile.
func TestAnsweredMayDelay(t *testing.T) {
	n := startNode(t, answering("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\nno"))
	u := newTestUpstream(t, n.addr(), nil)
	h := to(u)
	idle := atomic.Int64{}
	h.answered = func(r *Request, a *Answer) time.Duration {
		if a.Status != 401 || string(a.Header("www-authenticate")) != "Bearer" || a.Upstream != u {
			t.Errorf("answer %d %q", a.Status, a.Header("www-authenticate"))
		}
		idle.Store(u.Stats().Idle.Load())
		return 20 * time.Millisecond
	}
	p := startProxy(t, h, nil)
	if status, _, body := dial(t, p.addr).send(get("/")).answer(); status != 401 || body != "no" {
		t.Errorf("got %d %q", status, body)
	}
	if idle.Load() != 1 {
		t.Error("the upstream connection was held during the delay")
	}
}

// TestSettleMayWait: with the answer known, before the client has it.
func TestSettleMayWait(t *testing.T) {
	n := startNode(t, answering("HTTP/1.1 201 Created\r\nDomicile-Revision: 9\r\nContent-Length: 2\r\n\r\nok"))
	u := newTestUpstream(t, n.addr(), nil)
	settled := atomic.Bool{}
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) {
		d.Forward(u)
		d.Settle = func(r *Request, a *Answer) {
			settled.Store(string(a.Header("Domicile-Revision")) == "9" && a.Status == 201)
		}
	}}, nil)
	if status, _, _ := dial(t, p.addr).send(get("/")).answer(); status != 201 || !settled.Load() {
		t.Errorf("got %d, settled %v", status, settled.Load())
	}
}
