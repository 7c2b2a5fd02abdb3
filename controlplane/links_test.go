package controlplane

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// otherEnd is an address of another group, which counts the connections that it took and
// the calls that it got.
type otherEnd struct {
	*httptest.Server
	conns, calls atomic.Int64
}

func newOtherEnd(t *testing.T, answer http.HandlerFunc) *otherEnd {
	o := &otherEnd{}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.Copy(io.Discard, r.Body)
			o.calls.Add(1)
		}
		answer(w, r)
	}))
	o.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.conns.Add(1)
		}
	}
	o.Start()
	t.Cleanup(o.Close)
	return o
}

func answersOK(http.ResponseWriter, *http.Request) {}

func testLinks(t *testing.T) *links {
	l := newLinks(&Config{Logger: hclog.NewNullLogger()})
	t.Cleanup(l.close)
	return l
}

func aCall() *http.Request {
	return &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/_shard/tasks/1"}, Header: http.Header{}}
}

// TestWhatMayBeRepeatedKeepsItsConnection: a change that may not is sent over one of its own,
// on which the other end has just answered.
func TestWhatMayBeRepeatedKeepsItsConnection(t *testing.T) {
	l, end := testLinks(t), newOtherEnd(t, answersOK)
	for range 5 {
		for _, send := range []func() (*http.Response, error){
			func() (*http.Response, error) {
				return l.repeat(t.Context(), "us", []string{end.URL}, aCall(), []byte("{}"))
			},
			func() (*http.Response, error) {
				return l.ask(t.Context(), "us", []string{end.URL}, aCall(), []byte("{}"))
			},
		} {
			resp, err := send()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("got %v, %v", resp, err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	if conns, calls := end.conns.Load(), end.calls.Load(); conns != 6 || calls != 10 {
		t.Errorf("%d calls over %d connections, want 10 over one that is kept and five others", calls, conns)
	}
}

// TestWhatMayBeRepeatedLeavesASilentEnd: one that takes connections and says nothing is left
// for the next; one that is only slow is not. That a call may have arrived is said.
func TestWhatMayBeRepeatedLeavesASilentEnd(t *testing.T) {
	l := testLinks(t)
	over := make(chan struct{})
	silent := newOtherEnd(t, func(http.ResponseWriter, *http.Request) { <-over })
	there := make(chan struct{}, 8)
	slow := newOtherEnd(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			there <- struct{}{}
			return
		}
		<-there // until it was asked beside
	})
	t.Cleanup(func() { close(over) })
	resp, err := l.repeat(t.Context(), "us", []string{silent.URL, slow.URL}, aCall(), bytes.Repeat([]byte("x"), 10))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp.Body.Close()
	if got := l.order("us", []string{silent.URL, slow.URL}); got[0] != slow.URL {
		t.Errorf("%s is asked first from now on, want the one that answered", got[0])
	}
	_, err = l.repeat(t.Context(), "tr", []string{silent.URL}, aCall(), nil)
	if err == nil || errors.Is(err, errNotReached) {
		t.Errorf("got %v, want an error that leaves open whether it arrived", err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if _, err = l.repeat(t.Context(), "eu", []string{gone.URL}, aCall(), nil); !errors.Is(err, errNotReached) {
		t.Errorf("got %v, want one that says that nothing was sent", err)
	}
}

// TestWhatARouterLostIsAskedByAnother where it may be repeated: a router that sends what it is
// asked to servers that break its connections does not stand for its region.
func TestWhatARouterLostIsAskedByAnother(t *testing.T) {
	lost := newOtherEnd(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_health" {
			httpserve.WriteError(w, httpserve.Errorf(http.StatusBadGateway, proto.CodeOutcomeUnknown, "it broke"))
		}
	})
	well := newOtherEnd(t, answersOK)
	read := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/_shard/tenants"}, Header: http.Header{}}
	for name, send := range map[string]func(l *links) (*http.Response, error){
		"a read": func(l *links) (*http.Response, error) {
			return l.ask(t.Context(), "us", []string{lost.URL, well.URL}, read, nil)
		},
		"a call": func(l *links) (*http.Response, error) {
			return l.repeat(t.Context(), "us", []string{lost.URL, well.URL}, aCall(), []byte("{}"))
		},
	} {
		if resp, err := send(testLinks(t)); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
	resp, err := testLinks(t).ask(t.Context(), "us", []string{lost.URL, well.URL}, aCall(), []byte("{}"))
	if err != nil || resp.StatusCode != http.StatusBadGateway || well.calls.Load() != 1 {
		t.Errorf("a change: %v, %v", resp, err)
	}
}

// TestG9ARouterThatReachesNoLeaderIsToldFromNone: an operator looks for what is wrong in the
// region, and not at the link, where a router of it is reached and its control group is not,
// whether the router says so or is kept waiting.
func TestG9ARouterThatReachesNoLeaderIsToldFromNone(t *testing.T) {
	r := startRegions(t, 1)
	s := r.global.leader()
	over := make(chan struct{})
	waits := newOtherEnd(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_health" {
			<-over
		}
	})
	t.Cleanup(func() { close(over) })
	says := newOtherEnd(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_health" {
			httpserve.WriteError(w, httpserve.Errorf(503, proto.CodeDirectoryUnavailable, "no control server can be reached and nothing was sent to one; try again"))
		}
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		routers []string
		reached bool
	}{
		"nobody": {[]string{gone.URL}, false}, "waits": {[]string{waits.URL}, true}, "says": {[]string{says.URL}, true},
		"saysbesidenobody": {[]string{gone.URL, says.URL}, true}, "waitsbesidenobody": {[]string{waits.URL, gone.URL}, true},
	} {
		region := fsm.RegionName(name)
		s.propose(&fsm.PutRegion{Region: fsm.Region{Name: region, Routers: c.routers}})
		requests := []string{"GET /_shard/nodes?region=" + name, "GET /_shard/nodes?region=" + name, "PUT /_shard/tenants/acme"}
		if name != "waits" && name != "waitsbesidenobody" { // there it would be sent
			requests = append(requests, "PUT /_shard/nodes/n1?region="+name)
		}
		for i, request := range requests {
			method, path, _ := strings.Cut(request, " ")
			body := ""
			if method == "PUT" {
				body = `{"region":"` + name + `"}`
			}
			answer := s.want(s.ask(method, path, body), 503, fsm.CodeRegionUnreachable)
			text, _ := answer.body["error"].(string)
			if strings.Contains(text, "a router of region "+name+" is reached") != c.reached || strings.Contains(text, "no router of region "+name+" is reached") == c.reached {
				t.Errorf("%s, %d: %s", request, i, text)
			}
			if answer.body["region"] != name || answer.header.Get("Retry-After") == "" {
				t.Errorf("%s: %s", request, answer.text)
			}
		}
	}
}

// TestI1WhatARouterLostMayHaveBeenDone though the next one knows no leader, or is not there: who
// asked is not told that nothing was done.
func TestI1WhatARouterLostMayHaveBeenDone(t *testing.T) {
	answers := func(status int, code proto.Code) string {
		return newOtherEnd(t, func(w http.ResponseWriter, _ *http.Request) {
			httpserve.WriteError(w, httpserve.Errorf(status, code, "so"))
		}).URL
	}
	lost, leaderless := answers(http.StatusBadGateway, proto.CodeOutcomeUnknown), answers(http.StatusServiceUnavailable, proto.CodeNoLeader)
	gone := newOtherEnd(t, answersOK)
	gone.Close()
	for name, others := range map[string][]string{"alone": {}, "and one without a leader": {leaderless}, "and one that is gone": {gone.URL}} {
		for _, addresses := range [][]string{append([]string{lost}, others...), append(append([]string{}, others...), lost)} {
			resp, err := testLinks(t).repeat(t.Context(), "us", addresses, aCall(), []byte("{}"))
			if err == nil || errors.Is(err, errNotReached) {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
		}
	}
}
