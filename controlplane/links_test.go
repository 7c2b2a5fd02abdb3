package controlplane

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

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
