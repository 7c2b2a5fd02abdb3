package node

import (
	"fmt"
	"strings"
	"testing"
)

// handOver gives acme from p to f for a job, and promotes it there at the epoch.
func handOver(t *testing.T, p, f *leasedNode, epoch int) {
	t.Helper()
	body := fmt.Sprintf(`{"job":"17","ms":2000,"units":[{"unit":"acme","id":1,"node":"n2","addr":%q}],"authority":"c1/global","history":1,"term":1}`, f.url)
	if a := p.admin(200, "POST", "handover", body); !strings.Contains(a.body, `"released":[{`) {
		t.Fatal(a.body)
	}
	f.admin(200, "POST", "promote", fmt.Sprintf(`{"tenants":[{"unit":"acme","id":1}],"epoch":"%d","authority":"c1/global","history":1,"term":1}`, epoch))
	f.grant(200, 0, fmt.Sprintf(`,"primaries":[{"unit":"acme","id":1,"epoch":%d}]`, epoch))
	f.grant(200, f.next-1, "")
}

// TestM3SubscriptionsGoOnAtTheNewNode: the old one ends them and says so, and a reader
// goes on from what it has seen, all of it or a few events behind, without a gap.
func TestM3SubscriptionsGoOnAtTheNewNode(t *testing.T) {
	p, f := startPair(t)
	seen, stop := p.events("/t/acme/changes")
	defer stop()
	for range 3 {
		p.want(200, "POST", "/t/acme/query", insert)
	}
	for _, want := range []string{"1:2", "1:3", "1:4"} {
		if e := nextEvent(t, seen); !strings.HasPrefix(e, "id: "+want+"\n") {
			t.Errorf("%s", e)
		}
	}
	handOver(t, p, f, 40)
	if e := nextEvent(t, seen); !strings.HasPrefix(e, "event: error\n") || !strings.Contains(e, `"code":"misdirected"`) || !strings.Contains(e, "connect again") {
		t.Errorf("%s", e)
	}
	if a := p.want(421, "GET", "/t/acme/changes?after=1:4", ""); !strings.Contains(a.body, f.url) {
		t.Errorf("%s", a.body)
	}
	all, stop1 := f.events("/t/acme/changes?after=1:4")
	defer stop1()
	behind, stop2 := f.events("/t/acme/changes", "Last-Event-ID", "1:2")
	defer stop2()
	f.want(200, "POST", "/t/acme/query", insert)
	if e := nextEvent(t, all); !strings.HasPrefix(e, "id: 40:5\n") {
		t.Errorf("%s", e)
	}
	for _, want := range []string{"1:3", "1:4", "40:5"} {
		if e := nextEvent(t, behind); !strings.HasPrefix(e, "id: "+want+"\n") {
			t.Errorf("%s, want %s", e, want)
		}
	}
	if a := f.want(409, "GET", "/t/acme/changes?after=1:5", ""); a.code() != "position_lost" {
		t.Errorf("%s", a.body)
	}
	if a := f.want(409, "GET", "/t/acme/changes?after=40:9", ""); a.code() != "position_ahead" {
		t.Errorf("%s", a.body)
	}
}

// TestM3AReaderOfATargetThatWasCopiedIsToldThatItIsBehind: events from before an image
// are nowhere at the node that took it.
func TestM3AReaderOfATargetThatWasCopiedIsToldThatItIsBehind(t *testing.T) {
	keep := func(c *Config) { c.KeepUnits = true }
	p, f := startLeased(t, keep), startLeased(t, keep)
	p.create("acme", 1)
	p.lease(`[{"unit":"acme","id":1}]`)
	p.query("acme", "create table t (id integer primary key, v text)")
	p.query("acme", "insert into t (v) select hex(zeroblob(5000000))") // too large for an entry: an image follows
	f.followAs(p, "target")
	f.awaitUnit(`"position":"1:2"`)
	p.want(200, "POST", "/t/acme/query", insert)
	handOver(t, p, f, 40)
	f.want(200, "POST", "/t/acme/query", insert)
	for after, want := range map[string]string{"1:1": `"code":"behind"`, "1:2": "id: 1:3\n"} {
		r, stop := f.events("/t/acme/changes?after=" + after)
		if e := nextEvent(t, r); !strings.Contains(e, want) {
			t.Errorf("after %s: %s", after, e)
		}
		stop()
	}
}

// TestM3TransactionsInFlightAtAFreeze: one that commits in time is done; one that does
// not is ended, and told so; a baton without a transaction goes on at the new node.
func TestM3TransactionsInFlightAtAFreeze(t *testing.T) {
	p, f := startPair(t, func(c *Config) { c.ReplicationToken = adminToken })
	stream := func(n *leasedNode) *pipe { return &pipe{n: n.testNode, path: "/t/acme/v3/pipeline"} }
	idle, open := stream(p), stream(p)
	ok(t, idle.send(execSQL("select 1")))
	ok(t, open.send(execSQL("begin immediate"), execSQL("insert into t (v) values ('in time')")))
	done := make(chan struct{})
	go func() { defer close(done); handOver(t, p, f, 40) }()
	eventually(t, "the freeze", func() bool { return p.s.store.Frozen("acme") })
	if r := open.send(execSQL("insert into t (v) values ('too')"), execSQL("commit"), closing); r[1].Error != nil {
		t.Errorf("it was to be waited for: %+v", r[1].Error)
	}
	<-done
	if got := f.rows("acme", "select v from t"); got != `[["in time"],["too"]]` {
		t.Errorf("%s", got)
	}
	idle.n = f.testNode
	ok(t, idle.send(execSQL("insert into t (v) values ('there')"), closing))

	// The other way: nobody commits.
	p, f = startPair(t, func(c *Config) { c.ReplicationToken = adminToken })
	late := stream(p)
	ok(t, late.send(execSQL("begin immediate"), execSQL("insert into t (v) values ('never')")))
	handOver(t, p, f, 40)
	if a := late.raw(execSQL("commit")); a.code() != "misdirected" { // a proxy sends it on
		t.Errorf("%d %s", a.status, a.body)
	}
	late.n = f.testNode
	if a := late.raw(execSQL("commit")); !strings.Contains(a.body, "STREAM_EXPIRED") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := f.rows("acme", "select count(*) from t"); got != `[[0]]` {
		t.Errorf("%s", got)
	}
}
