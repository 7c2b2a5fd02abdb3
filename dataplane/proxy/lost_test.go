package proxy

import (
	"net/http"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/internal/netfault"
)

// TestL5RequestAtANodeThatWasCutOffIsGivenUp: a node is cut off, without a word on
// its connections, after it got a request. Once the directory says that it is lost
// and its unit elsewhere nobody waits for its answer: a read and a write with a key are
// answered by the unit's new node, a write without one is told that it may have been executed.
// A unit that stays with the lost node is waited for.
func TestL5RequestAtANodeThatWasCutOffIsGivenUp(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", nil), newNode(t, "n2", nil)
	link, err := netfault.New(strings.TrimPrefix(n1.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	reached := &fsm.NodeInfo{Name: "n1", Addr: link.Addr()}
	p := holding(t, control, long)
	p.await(control.change(fsm.Event{Node: reached}, n2.info(), copied("acme", "n1", "n2"), placed("beta", "n1")))

	link.CutOne(netfault.Backward)
	read := p.later("GET", "/t/acme/query", nil, "")
	keyed := p.later("POST", "/t/acme/query", http.Header{"Idempotency-Key": {"k"}}, "x")
	plain := p.later("POST", "/t/acme/query", nil, "x")
	stays := p.later("POST", "/t/beta/query", nil, "x")
	eventually(t, func() error {
		if len(n1.requests()) < 4 {
			return errNotYet
		}
		return nil
	})
	link.Cut()
	lost := *reached
	lost.Lost = true
	p.await(control.change(fsm.Event{Node: &lost}, placed("acme", "n2")))
	for name, a := range map[string]answer{"GET": <-read, "POST with a key": <-keyed} {
		if a.body != "n2" {
			t.Errorf("%s: got %d %q", name, a.StatusCode, a.body)
		}
	}
	(<-plain).wants(t, http.StatusBadGateway, "outcome_unknown")
	if n := len(n2.requests()); n != 2 {
		t.Errorf("the new node got %d requests", n)
	}
	link.Heal()
	if a := <-stays; a.body != "n1" {
		t.Errorf("a unit that stays: got %d %q", a.StatusCode, a.body)
	}
}
