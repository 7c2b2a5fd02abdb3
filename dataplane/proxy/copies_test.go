package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
)

var readFromCopy = http.Header{"Domicile-Mode": {"Read"}, "Domicile-Prefer": {"replica"}}

// byMode answers who it is, and which position it was asked for.
func byMode(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, name+r.Header.Get("Domicile-After"))
	}
}

func unitWith(node string, copies map[string]fsm.CopyState) fsm.Event {
	e := placed("acme", node)
	for name, state := range copies {
		e.Unit.Copies = append(e.Unit.Copies, fsm.Copy{Node: fsm.NodeName(name), State: state})
	}
	return e
}

func TestB4ReadThatPrefersAReplicaGoesToACopy(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", byMode("n1")), newNode(t, "n2", byMode("n2"))
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), unitWith("n1", map[string]fsm.CopyState{"n2": fsm.CopyInSync})))
	for want, header := range map[string]http.Header{
		"n2":    readFromCopy,
		"n21:7": {"Domicile-Mode": {"read"}, "Domicile-Prefer": {"replica"}, "Domicile-After": {"1:7"}},
		"n1":    {"Domicile-Mode": {"read"}},
		"n11:8": {"Domicile-Mode": {"write"}, "Domicile-Prefer": {"replica"}, "Domicile-After": {"1:8"}},
		"n11:9": {"Domicile-Prefer": {"replica"}, "Domicile-After": {"1:9"}},
	} {
		if a := p.send("POST", "/t/acme/query", header, "x"); a.body != want {
			t.Errorf("%v: got %d %q, want %s", header, a.StatusCode, a.body, want)
		}
	}
	for _, state := range []fsm.CopyState{fsm.CopySyncing, fsm.CopyFormer, fsm.CopyLeaving} {
		p.await(control.change(unitWith("n1", map[string]fsm.CopyState{"n2": state})))
		if a := p.send("GET", "/t/acme/", readFromCopy, ""); a.body != "n1" {
			t.Errorf("%v: got %q, want the primary's answer", state, a.body)
		}
	}
	if got := n2.requests()[0].Header.Get("Domicile-Mode"); got != "read" && got != "Read" {
		t.Errorf("the copy got mode %q", got)
	}
}

func TestR7WhatACopyDoesNotAnswerThePrimaryDoes(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", byMode("n1"))
	p := holding(t, control, long)
	for i, answer := range []http.HandlerFunc{
		misdirected, refusing("transfer_in_progress"), refusing("too_many_open"),
		func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusGatewayTimeout)
			io.WriteString(w, `{"error":"not there yet","code":"position_timeout"}`)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.(http.Flusher).Flush() // chunked
			io.WriteString(w, `what?`)
		},
	} {
		n2 := newNode(t, "n2", answer)
		p.await(control.change(n1.info(), n2.info(), unitWith("n1", map[string]fsm.CopyState{"n2": fsm.CopyInSync})))
		if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.body != "n1" || len(n2.requests()) != 1 {
			t.Errorf("%d: got %d %q, the copy was asked %d times", i, a.StatusCode, a.body, len(n2.requests()))
		}
	}
	p.await(control.change(down(t, "n2")))
	for range 3 {
		if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.body != "n1" {
			t.Errorf("copy down: got %d %q", a.StatusCode, a.body)
		}
	}
	if n := p.dir.nodes.errors()["n2"]; n != 1 {
		t.Errorf("%d requests met the copy that is down, want 1: then it is known", n)
	}
	// Other answers of a copy are the answer.
	n2 := newNode(t, "n2", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	p.await(control.change(n2.info()))
	if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.StatusCode != 400 {
		t.Errorf("got %d", a.StatusCode)
	}
	p.counts(nil)
}

// TestR2ReadThatACopyMayHaveBegunGoesToThePrimary: a node that is asked as a copy
// executes no write, so that a read which it may have begun can be sent again. What is
// sent to a primary cannot.
func TestR2ReadThatACopyMayHaveBegunGoesToThePrimary(t *testing.T) {
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	}
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", byMode("n1")), newNode(t, "n2", hangUp)
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), unitWith("n1", map[string]fsm.CopyState{"n2": fsm.CopyInSync})))
	if a := p.send("POST", "/t/acme/query", readFromCopy, "x"); a.StatusCode != 200 || a.body != "n1" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	first, copied := n1.requests(), n2.requests()
	if len(first) != 1 || len(copied) != 1 {
		t.Fatalf("the primary got %d, the copy %d", len(first), len(copied))
	}
	if was, is := copied[0].Header.Get(headerRoute), first[0].Header.Get(headerRoute); was != is+" copy" {
		t.Errorf("the copy was sent it by %q, the primary by %q", was, is)
	}
	p.await(control.change(placed("acme", "n2")))
	p.send("POST", "/t/acme/query", readFromCopy, "x").wants(t, 502, "outcome_unknown")
}

// TestR5CopyThatHangsCostsOneReadABoundedWait: then the primary is asked, and for a
// while it alone.
func TestR5CopyThatHangsCostsOneReadABoundedWait(t *testing.T) {
	control := newControlFake(t)
	stop := make(chan struct{})
	n1 := newNode(t, "n1", byMode("n1"))
	n2 := newNode(t, "n2", func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-stop
	})
	t.Cleanup(sync.OnceFunc(func() { close(stop) }))
	p := holding(t, control, long)
	p.await(control.change(n1.info(), n2.info(), unitWith("n1", map[string]fsm.CopyState{"n2": fsm.CopyInSync})))
	for range 5 {
		for _, method := range []string{"POST", "GET"} {
			if a := p.send(method, "/t/acme/query", readFromCopy, ""); a.StatusCode != 200 || a.body != "n1" {
				t.Errorf("%s: got %d %q", method, a.StatusCode, a.body)
			}
		}
	}
	if n := len(n2.requests()); n != 1 {
		t.Errorf("the copy was asked %d times, want once", n)
	}
}

func TestB4CopiesOfTheOwnZoneAndRegionFirst(t *testing.T) {
	node := func(name, region, zone string) fsm.Event {
		return fsm.Event{Node: &fsm.NodeInfo{Name: fsm.NodeName(name), Addr: "127.0.0.1:1", Region: fsm.RegionName(region), Zone: fsm.ZoneName(zone)}}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p, err := New(Config{Listener: ln, Logger: hclog.NewNullLogger(), Region: "eu", Zone: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	for i, c := range []struct {
		copies []string
		want   string
	}{
		{[]string{"euA", "euA2", "euB", "usA"}, "euA euA2"},
		{[]string{"euB", "euB2", "usA"}, "euB euB2"},
		{[]string{"usA"}, "usA"},
		{nil, ""},
	} {
		edit := newTable().edit(1, p.dir.newEdit())
		in := map[string]fsm.CopyState{}
		for _, name := range c.copies {
			in[name] = fsm.CopyInSync
		}
		err := edit.applyAll([]fsm.Event{node("p", "eu", "a"), node("euA", "eu", "a"), node("euA2", "eu", "a"),
			node("euB", "eu", "b"), node("euB2", "eu", "b"), node("usA", "us", "a"), unitWith("p", in)})
		if err != nil {
			t.Fatal(err)
		}
		p.dir.publish(edit.seal(position(1)), nil, true)
		u, _ := p.dir.table().unit([]byte("acme"))
		got := map[string]int{}
		for range 200 {
			if up := (handler{p}).nearest(p.dir.table(), u); up != nil {
				got[up.Name()]++
			}
		}
		want := strings.Fields(c.want)
		if len(got) != len(want) {
			t.Errorf("%d: chose %v, want %s", i, got, c.want)
		}
		for _, name := range want {
			if got[name] < 40 {
				t.Errorf("%d: chose %v, want each of %s about as often", i, got, c.want)
			}
		}
		if n := testing.AllocsPerRun(100, func() { (handler{p}).nearest(p.dir.table(), u) }); n != 0 {
			t.Errorf("%v allocations to choose a copy", n)
		}
	}
}
