package http1

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestDeferredRequestIsDecidedBeforeItsBodyIsRead: Refused is asked first, and the
// node gets all of the body, however long it is.
func TestDeferredRequestIsDecidedBeforeItsBodyIsRead(t *testing.T) {
	n := startNode(t, answering(okAnswer))
	u := newTestUpstream(t, n.addr(), nil)
	asked, release := make(chan int), make(chan struct{})
	h := &testHandler{route: func(r *Request, d *Decision) { d.Defer() }}
	h.refused = func(r *Request, f Refusal, d *Decision) bool {
		if f.Kind != Undecided || f.Upstream != nil || f.Attempt != 0 {
			t.Errorf("refusal %+v", f)
		}
		asked <- r.Held()
		<-release
		d.Forward(u)
		return true
	}
	p := startProxy(t, h, nil)
	body := string(big[:1<<20])
	for name, request := range map[string]string{
		"GET":      get("/"),
		"long":     post(fmt.Sprintf("Content-Length: %d", len(body)), body),
		"chunked":  post("Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)),
		"expected": post(fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d", len(body)), body),
	} {
		c := dial(t, p.addr)
		wrote := make(chan error, 1)
		go func() {
			_, err := io.WriteString(c, request)
			wrote <- err
		}()
		if kept := <-asked; kept > 2*smallBuffer {
			t.Errorf("%s: keeps %d bytes while it waits", name, kept)
		}
		release <- struct{}{}
		if err := <-wrote; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		status, head, _ := c.answer()
		if status != 200 {
			t.Errorf("%s: got %q", name, head)
		}
		if _, want, _ := strings.Cut(request, "\r\n\r\n"); want != "" {
			if _, got := n.last(t); got != want {
				t.Errorf("%s: the node got %d bytes, want %d", name, len(got), len(want))
			}
		}
	}
}

func TestDeferredRequestThatNobodyDecidesIs503(t *testing.T) {
	p := startProxy(t, &testHandler{route: func(r *Request, d *Decision) { d.Defer() }}, nil)
	c := dial(t, p.addr)
	for range 2 {
		if status, head, _ := c.send(get("/")).answer(); status != 503 || headValue(head, "Retry-After") != "1" {
			t.Errorf("got %q", head)
		}
	}
}

// TestSpareMakesRefusalsOfAnswers: 421, 503 and 504 of whatever code are refusals
// where another place can answer, as long as the request can be sent again.
func TestSpareMakesRefusalsOfAnswers(t *testing.T) {
	answers := map[string]string{
		"421":     misdirected,
		"503":     refusing("too_many_open"),
		"chunked": "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"504":     "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 2\r\n\r\nno",
		"close":   "HTTP/1.1 504 Gateway Timeout\r\n\r\nno",
	}
	next := startNode(t, answering(okAnswer))
	to2 := newTestUpstream(t, next.addr(), nil)
	for name, answer := range answers {
		for _, spare := range []bool{true, false} {
			first := startNode(t, func(c *nodeConn) {
				if h, ok := c.head(); ok {
					readBody(c.r, h)
					io.WriteString(c, answer)
				}
			})
			u := newTestUpstream(t, first.addr(), nil)
			h := &testHandler{route: func(r *Request, d *Decision) {
				d.Spare = spare
				d.Forward(u)
			}}
			h.refused = func(r *Request, f Refusal, d *Decision) bool {
				d.Spare = false
				d.Forward(to2)
				return true
			}
			p := startProxy(t, h, nil)
			want := 200
			if !spare && name != "421" {
				want = 503
				if strings.Contains(answer, "504") {
					want = 504
				}
			}
			if status, head, _ := dial(t, p.addr).send(post("Content-Length: 2", "hi")).answer(); status != want {
				t.Errorf("%s, spare %t: got %q, want %d", name, spare, head, want)
			}
			if spare && name != "421" { // too long to be sent again: it is the answer
				status, head, _ := dial(t, p.addr).send(post("Content-Length: 100000", string(big[:100_000]))).answer()
				if status != 503 && status != 504 {
					t.Errorf("%s: got %q", name, head)
				}
			}
		}
	}
}

// TestHeldRequestKeepsLittle: its head, and of the refusal what is relayed if nothing
// better comes.
func TestHeldRequestKeepsLittle(t *testing.T) {
	for _, answer := range []string{refusing("no_lease"), misdirected} {
		n := startNode(t, answering(answer))
		h := to(newTestUpstream(t, n.addr(), nil))
		h.refused = func(r *Request, f Refusal, d *Decision) bool {
			if kept := r.Held(); kept > smallBuffer+1024 || !r.Resendable() {
				t.Errorf("keeps %d bytes, resendable %t", kept, r.Resendable())
			}
			if len(f.Body) == 0 {
				t.Error("the refusal's body is gone")
			}
			return false
		}
		p := startProxy(t, h, nil)
		if status, _, _ := dial(t, p.addr).send(post("Content-Length: 5", "hello")).answer(); status != 503 {
			t.Errorf("got %d", status)
		}
	}
}

// watcher notes what it is told.
type watcher struct{ answered, ended atomic.Int32 }

func (w *watcher) Answered() { w.answered.Add(1) }
func (w *watcher) Ended()    { w.ended.Add(1) }

func TestWatcherIsToldOnceHowARequestEnds(t *testing.T) {
	n := startNode(t, func(c *nodeConn) {
		for {
			h, ok := c.head()
			if !ok {
				return
			}
			switch {
			case strings.Contains(h, "/refused "):
				io.WriteString(c, refusing("no_lease"))
			case strings.Contains(h, "/broken "):
				return
			case strings.Contains(h, "/silent "):
				c.r.ReadByte()
				return
			default:
				io.WriteString(c, okAnswer)
			}
		}
	})
	u := newTestUpstream(t, n.addr(), nil)
	seen := make(chan *watcher, 1)
	h := &testHandler{route: func(r *Request, d *Decision) {
		w := new(watcher)
		r.Watch(w)
		seen <- w
		d.Forward(u)
		switch string(r.Path()) {
		case "/own":
			d.Respond(404, "x", "x")
		case "/panic":
			panic("on purpose")
		}
	}}
	p := startProxy(t, h, nil)
	for path, answered := range map[string]int32{"/": 1, "/refused": 1, "/own": 0, "/panic": 0, "/broken": 0, "/silent": 0} {
		before := n.requests()
		c := dial(t, p.addr).send(strings.Replace(post("Content-Length: 0", ""), "POST /", "POST "+path, 1))
		w := <-seen
		if path == "/silent" {
			eventually(t, "sent", func() bool { return n.requests() > before })
			c.Close()
		} else {
			c.answer()
		}
		eventually(t, "ended", func() bool { return w.ended.Load() > 0 })
		c.Close()
		if a, e := w.answered.Load(), w.ended.Load(); a != answered || e != 1 {
			t.Errorf("%s: answered %d times, ended %d times; want %d and 1", path, a, e, answered)
		}
	}
}

func TestOnUpTellsThatANodeIsBack(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	up := make(chan *Upstream, 10)
	u := newTestUpstream(t, addr, func(c *UpstreamConfig) {
		c.ProbeEvery = time.Millisecond
		c.OnUp = func(u *Upstream) {
			if !u.Up() {
				t.Error("told before it is so")
			}
			up <- u
		}
	})
	p := startProxy(t, to(u), nil)
	if status, _, _ := dial(t, p.addr).send(get("/")).answer(); status != 502 {
		t.Fatalf("got %d", status)
	}
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("somebody took the address: %v", err)
	}
	defer ln.Close()
	if got := <-up; got != u {
		t.Error("told of another upstream")
	}
	if len(up) != 0 {
		t.Error("told twice")
	}
}
