package proxy

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto/follow"
)

// loseTouch has the proxy know its copy of the global directory to be a minute old. Changes
// still come: the test says what they do then.
func (p *running) loseTouch() {
	p.t.Helper()
	aged := newControlFake(p.t)
	aged.age = time.Minute
	f, err := follow.New(follow.Config{URLs: []string{aged.URL}, Sink: p.newDirectory("", hclog.NewNullLogger()), Logger: hclog.NewNullLogger()})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	eventually(p.t, func() error {
		if f.Heard().IsZero() {
			return errNotYet
		}
		return nil
	})
	cancel()
	<-ended
	p.global.follower.Store(f)
}

// TestR5NodeThatIsDownIsNotWaitedForWithoutNews: a region that is cut off has a copy of the
// global directory of which it hears no more; what that places on a node that cannot be
// reached is 502 at once, also where some began to wait before that. What the region's own
// directory places waits for its failover.
func TestR5NodeThatIsDownIsNotWaitedForWithoutNews(t *testing.T) {
	g := newControlFake(t)
	us := newRegion(t, "us", g)
	n2 := newNode(t, "n2", nil)
	down := fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: unusedAddr(t)}}
	p := inRegion(t, us, nil)
	p.await(us.change(down, n2.info(), copied("acme", "n1", "n2")))
	p.awaitGlobal(g.change(down, n2.info(), copied("gamma", "n1", "n2")))

	waits := p.later("POST", "/t/gamma/query", nil, "x")
	p.held(1)
	p.loseTouch()
	for range 3 {
		p.send("POST", "/t/gamma/query", nil, "x").wants(t, 502, codeUnreachable)
	}
	own := p.later("POST", "/t/acme/query", nil, "x")
	p.held(2)
	us.change(copied("acme", "n2"))
	g.change(copied("gamma", "n2"))
	for _, a := range []answer{<-waits, <-own} {
		if a.body != "n2" {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
}
