package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/internal/wait"
)

// TestL11AStoppingNodeHandsOverFirst: it goes on answering grants and writes until the
// lease names no unit that a copy could take over.
func TestL11AStoppingNodeHandsOverFirst(t *testing.T) {
	p, _ := startPair(t)
	p.s.cfg.KeepUnits = false // read by a stop alone
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop() }()
	wait.For(t, "the node to say that it stops", func() error {
		if a := p.grant6(p.next - 1); !strings.Contains(a, `"stopping":true`) {
			return errors.New(a)
		}
		return nil
	})
	p.want(200, "POST", "/t/acme/query", insert)
	p.want(200, "GET", "/_ready", "")
	p.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":60000,"epoch":"7","base":"6","remove":["acme"],"grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1}`, p.next, p.next-1))
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestL11AStoppingNodeWaitsUntilNothingCountsOnItsCopies: writes elsewhere would wait for
// what it does not acknowledge any more. A control plane that does not tell is not waited for.
func TestL11AStoppingNodeWaitsUntilNothingCountsOnItsCopies(t *testing.T) {
	for _, tells := range []bool{true, false} {
		p, f := startPair(t)
		f.s.cfg.KeepUnits = false // read by a stop alone
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		wait.For(t, "the node to say that it stops", func() error {
			if !f.s.stopping.Load() {
				return errors.New("it does not")
			}
			return nil
		})
		counted := ""
		for i := range maxUntold {
			if i > 0 && tells {
				counted = `,"counted":1`
			}
			f.want(200, "GET", "/_ready", "")
			if a := f.grant(200, f.next-1, counted).body; !strings.Contains(a, `"stopping":true,"awaits_counted":true`) {
				t.Fatalf("%s", a)
			}
		}
		if tells {
			f.want(200, "GET", "/_ready", "")
			p.want(200, "POST", "/t/acme/query", insert) // with its acknowledgement
			f.grant(200, f.next-1, `,"counted":0`)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// grant6 renews the list that startPair has left, and gives the answer.
func (n *leasedNode) grant6(acked uint64) string {
	n.t.Helper()
	n.next++
	return n.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":60000,"epoch":"6","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1}`, n.next-1, acked)).body
}

// TestASilentCopyEndsTheWrite: with no leader that takes the copy out the write, and a
// read of what it wrote, are given up after ms/2 (architecture §3.7.2 and .3).
func TestASilentCopyEndsTheWrite(t *testing.T) {
	p, f := startPair(t)
	p.want(200, "POST", "/t/acme/query", insert)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	// A lease of 2 s by a clock of which nothing passes but what is said here: renewals
	// have been missing for longer than a third of it.
	for range 2 {
		p.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":2000,"epoch":"6","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1}`, p.next, p.next-1))
		p.next++
	}
	p.clock.Advance(time.Second)
	if a := p.want(503, "POST", "/t/acme/query", insert); a.code() != "replica_unreachable" {
		t.Errorf("%s", a.body)
	}
}

func TestMetricsOfCopiesAndLeases(t *testing.T) {
	p, f := startPair(t)
	for n, want := range map[*leasedNode]string{p: "domicile_lease_units 1", f: `domicile_replica_lag_seconds{node="` + p.url + `"}`} {
		if a := n.want(200, "GET", "/_metrics", "", "Authorization", "Bearer "+adminToken); !strings.Contains(a.body, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestReplicationWantsItsToken: nobody copies a tenant without it.
func TestReplicationWantsItsToken(t *testing.T) {
	n := startNode(t, func(c *Config) { c.ReplicationToken = "between-nodes" })
	up := []string{"Connection", "Upgrade", "Upgrade", "domicile-replication/1", "Domicile-As", "http://127.0.0.1:9"}
	for _, token := range []string{"", adminToken, "between-node"} {
		if a := n.want(401, "GET", "/_replication", "", append(up, "Authorization", "Bearer "+token)...); a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%v", a.header)
		}
	}
	token := []string{"Authorization", "Bearer between-nodes"}
	n.want(426, "GET", "/_replication", "", token...)
	n.want(400, "GET", "/_replication", "", append(token, up[:4]...)...)
	n.want(405, "POST", "/_replication", "", token...)
	n = startNode(t, func(c *Config) { c.Tokens.Admin = "" })
	n.want(404, "GET", "/_replication", "", up...)
}

// TestCallsThatNameNoHolder: an operator's by hand, taken for promote and thaw while no
// lease is held.
func TestCallsThatNameNoHolder(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.admin(200, "POST", "thaw", `{"job":"1","units":[{"unit":"acme"}]}`)
	n.admin(200, "POST", "promote", `{"tenants":["acme"],"epoch":"9"}`)
	if a := n.admin(409, "POST", "tenants/acme/promote", `{}`); a.code() != "wrong_state" {
		t.Errorf("%s", a.body)
	}
	for _, call := range []string{`follow {"units":[],"from":"http://h:1","as":"http://h:2"}`, `handover {"job":"1","ms":10,"units":[]}`} {
		path, body, _ := strings.Cut(call, " ")
		if a := n.admin(400, "POST", path, body); a.code() != "holder_required" {
			t.Errorf("%s: %s", call, a.body)
		}
	}
	n.lease(`["acme"]`)
	for _, call := range []string{`thaw {"job":"1","units":[{"unit":"acme"}]}`, `promote {"tenants":["acme"],"epoch":"10"}`} {
		path, body, _ := strings.Cut(call, " ")
		if a := n.admin(400, "POST", path, body); a.code() != "holder_required" {
			t.Errorf("%s under a lease: %s", call, a.body)
		}
	}
}

// TestACopyTellsWhoRefusesToBeFollowed: that its token is refused would else be known to
// its own log alone.
func TestACopyTellsWhoRefusesToBeFollowed(t *testing.T) {
	p := startLeased(t, func(c *Config) { c.ReplicationToken = "one" })
	p.create("acme", 1)
	f := startLeased(t, nil)
	f.admin(200, "POST", "tenants/acme/follow", fmt.Sprintf(`{"id":1,"from":%q,"token":"other","as":%q,"authority":"c1/global","history":1,"term":1}`, p.url, f.url))
	wait.For(t, "the copy to tell of it", func() error {
		a := f.grant(200, 0, `,"primaries":[]`).body
		if !strings.Contains(a, `"refused":{"`+p.url+`":"`) || !strings.Contains(a, "compare the replication tokens of the group") || strings.Contains(a, `"other"`) {
			return errors.New(a)
		}
		return nil
	})
	f.admin(200, "POST", "tenants/acme/follow", fmt.Sprintf(`{"id":1,"from":%q,"token":"one","as":%q,"authority":"c1/global","history":1,"term":1}`, p.url, f.url))
	wait.For(t, "it to follow", func() error {
		if a := f.grant(200, 0, `,"primaries":[]`).body; strings.Contains(a, "refused") {
			return errors.New(a)
		}
		return nil
	})
}
