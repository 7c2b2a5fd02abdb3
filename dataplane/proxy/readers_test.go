package proxy

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
)

// located makes a proxy that is in a region, and gives the name of the node that a read
// of acme goes to, which is on p in region eu; "" is the primary.
func located(t *testing.T, region string) func(copies map[string]fsm.CopyState) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p, err := New(Config{Listener: ln, Logger: hclog.NewNullLogger(), Region: region})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return func(copies map[string]fsm.CopyState) string {
		edit := newTable().edit(1, p.dir.newEdit())
		events := []fsm.Event{}
		for name, region := range map[string]fsm.RegionName{"p": "eu", "e2": "eu", "u1": "us", "bare": ""} {
			events = append(events, fsm.Event{Node: &fsm.NodeInfo{Name: fsm.NodeName(name), Addr: "127.0.0.1:1", Region: region}})
		}
		if err := edit.applyAll(append(events, unitWith("p", copies))); err != nil {
			t.Fatal(err)
		}
		p.dir.publish(edit.seal(position(1)), nil, true)
		u, _ := p.dir.table().unit([]byte("acme"))
		up := (handler{p}).nearest(p.dir.table(), u)
		if n := testing.AllocsPerRun(100, func() { (handler{p}).nearest(p.dir.table(), u) }); n != 0 {
			t.Errorf("%v allocations to choose a copy", n)
		}
		if up == nil {
			return ""
		}
		return up.Name()
	}
}

func TestC8R7ReadersServeTheirOwnRegionAlone(t *testing.T) {
	both := map[string]fsm.CopyState{"e2": fsm.CopyInSync, "u1": fsm.CopyReader}
	alone := map[string]fsm.CopyState{"u1": fsm.CopyReader, "bare": fsm.CopyReader}
	for _, c := range []struct {
		region string
		copies map[string]fsm.CopyState
		want   string
	}{
		{"us", both, "u1"}, {"us", alone, "u1"},
		{"eu", both, "e2"}, {"eu", alone, ""},
		{"ap", both, "e2"}, {"ap", alone, ""},
		{"", both, "e2"}, {"", alone, ""},
		{"us", map[string]fsm.CopyState{"u1": fsm.CopyLeaving, "e2": fsm.CopySyncing}, ""},
	} {
		if got := located(t, c.region)(c.copies); got != c.want {
			t.Errorf("a proxy in %q reads from %q of %v, want %q", c.region, got, c.copies, c.want)
		}
	}
}

// TestC8WhatAReaderDoesNotAnswerThePrimaryDoes: it is down, hangs up, is behind, was
// removed, or holds nothing yet.
func TestC8WhatAReaderDoesNotAnswerThePrimaryDoes(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", byMode("n1"))
	p := start(t, []string{control.URL}, func(c *Config) { c.Hold, c.Region = long, "us" })
	far := func(e fsm.Event) fsm.Event { e.Node.Region = "us"; return e }
	reader := unitWith("n1", map[string]fsm.CopyState{"u1": fsm.CopyReader})
	u1 := newNode(t, "u1", byMode("u1"))
	p.await(control.change(n1.info(), far(u1.info()), reader))
	if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.body != "u1" {
		t.Errorf("got %d %q, want the reader's answer", a.StatusCode, a.body)
	}
	if a := p.send("POST", "/t/acme/query", http.Header{"Domicile-Mode": {"read"}}, "x"); a.body != "n1" {
		t.Errorf("got %d %q, want the primary's answer", a.StatusCode, a.body)
	}
	for i, answer := range []http.HandlerFunc{
		misdirected, refusing("transfer_in_progress"),
		func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusGatewayTimeout)
			io.WriteString(w, `{"error":"not there yet","code":"position_timeout"}`)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		},
	} {
		u1 := newNode(t, "u1", answer)
		p.await(control.change(far(u1.info()), reader))
		if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.body != "n1" || len(u1.requests()) != 1 {
			t.Errorf("%d: got %d %q, the reader was asked %d times", i, a.StatusCode, a.body, len(u1.requests()))
		}
	}
	p.await(control.change(far(down(t, "u1")), reader))
	for range 3 {
		if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.body != "n1" {
			t.Errorf("reader down: got %d %q", a.StatusCode, a.body)
		}
	}
}
