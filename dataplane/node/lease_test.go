package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/boottime"
	"domicile/internal/wait"
	"domicile/proto"
)

// leasedNode is a node under a lease whose clock the test moves.
type leasedNode struct {
	*testNode
	clock *boottime.Manual
	next  uint64 // number of the next grant
	term  uint64
}

func startLeased(t testing.TB, edit func(*Config)) *leasedNode {
	n := &leasedNode{clock: &boottime.Manual{}, next: 1, term: 1}
	n.testNode = startNode(t, func(c *Config) {
		c.Lease, c.Clock = true, n.clock
		if edit != nil {
			edit(c)
		}
	})
	return n
}

// grant sends a grant whose other fields are the text, and gives the answer.
func (n *leasedNode) grant(status int, acked uint64, more string) answer {
	n.t.Helper()
	body := fmt.Sprintf(`{"ms":60000,"epoch":"5","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":%d%s}`, n.next, acked, n.term, more)
	n.next++
	return n.admin(status, "POST", "lease", body)
}

// lease grants a confirmed lease for the units of a list in JSON.
func (n *leasedNode) lease(units string) {
	n.t.Helper()
	n.grant(200, 0, `,"primaries":`+units)
	n.grant(200, n.next-1, "")
}

const insert = `{"sql":"insert into t (v) values ('x')"}`

// The three reasons of L2, in the order of a node's life.
func TestL2ThreeReasons(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.create("globex", 2)
	refused := func(unit, code string) {
		t.Helper()
		a := n.want(503, "POST", "/t/"+unit+"/query", insert)
		if a.code() != code || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s, want %s", a.body, code)
		}
		if a := n.want(200, "POST", "/t/"+unit+"/query", `{"sql":"select 1"}`); a.header.Get("Domicile-Stale") != "true" {
			t.Errorf("a read without a lease is not marked: %v", a.header)
		}
	}
	if a := n.admin(200, "GET", "lease", ""); a.body != `{"epoch":null,"primaries":0,"left_ms":null}`+"\n" {
		t.Errorf("%s", a.body)
	}
	refused("acme", "no_lease")
	n.grant(200, 0, `,"primaries":["acme"]`)
	refused("acme", "no_lease")
	n.grant(200, 1, "")
	n.query("acme", "create table t (id integer primary key, v text)")
	if a := n.want(200, "POST", "/t/acme/query", `{"sql":"select 1"}`); a.header.Get("Domicile-Stale") != "" {
		t.Errorf("a read under a lease is marked as stale")
	}
	refused("globex", "not_named")
	n.clock.Advance(30 * time.Second)
	if a := n.admin(200, "GET", "lease", ""); a.body != `{"epoch":"5","primaries":1,"left_ms":30000}`+"\n" {
		t.Errorf("%s", a.body)
	}
	n.clock.Advance(30 * time.Second)
	refused("acme", "lease_lapsed")
}

func TestL3WhatGrantsAreAnswered(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	var first, second proto.Granted
	if err := json.Unmarshal([]byte(n.grant(200, 0, `,"primaries":[{"unit":"acme","id":1},{"unit":"lost","id":9}]`).body), &first); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(n.grant(200, 1, `,"boot":"`+first.Boot+`"`).body), &second); err != nil {
		t.Fatal(err)
	}
	if first.LeftMS != 0 || second.LeftMS != 60000 || second.Grant != 2 || second.Epoch != "5" || second.Ack != proto.AckReplica ||
		second.Boot == "" || len(second.Missing) != 1 || second.Missing[0] != "lost" {
		t.Errorf("%+v\n%+v", first, second)
	}
	for _, c := range []struct {
		status     int
		code, body string
	}{
		{412, "list_not_held", `{"ms":1000,"epoch":"6","grant":3,"acked":2,"authority":"c1/global","history":1,"term":1}`},
		{412, "list_not_held", `{"ms":1000,"epoch":"5","boot":"another","grant":3,"acked":2,"authority":"c1/global","history":1,"term":1}`},
		{412, "list_not_held", `{"ms":1000,"epoch":"7","base":"6","add":["b"],"grant":3,"acked":2,"authority":"c1/global","history":1,"term":1}`},
		{409, "stale_grant", `{"ms":1000,"epoch":"5","grant":2,"acked":1,"authority":"c1/global","history":1,"term":1}`},
		{409, "holder_newer", `{"ms":1000,"epoch":"5","grant":9,"acked":2,"authority":"c2/global","history":1,"term":1}`},
		{400, "bad_request", `{"ms":0,"epoch":"5","grant":3,"acked":2,"authority":"c1/global","history":1,"term":1}`},
		{400, "bad_request", `{"ms":1000,"epoch":"5","grant":3,"acked":3,"authority":"c1/global","history":1,"term":1}`},
		{400, "bad_request", `{"ms":1000,"epoch":"5","grant":3,"acked":2,"authority":"c1/global","history":1,"term":1,"what":1}`},
		{400, "bad_request", `{"ms":1000`},
		{400, "holder_required", `{"ms":1000,"epoch":"5","grant":3,"acked":2}`},
	} {
		if a := n.admin(c.status, "POST", "lease", c.body); a.code() != c.code {
			t.Errorf("%s: %s, want %s", c.body, a.body, c.code)
		}
	}
	n.query("acme", "create table t (v)") // nothing was lost
}

// TestL4OlderTermsAreRefused: also after a restart, which also ends the lease.
func TestL4OlderTermsAreRefused(t *testing.T) {
	dir := t.TempDir()
	n := startLeased(t, func(c *Config) { c.Store.Dir = dir })
	n.create("acme", 1)
	n.lease(`["acme"]`)
	n.term, n.next = 2, 1
	n.grant(200, 0, "") // the same list, by its name
	n.query("acme", "create table t (v)")
	n.term = 1
	if a := n.grant(409, 0, ""); a.code() != "holder_newer" || !strings.Contains(a.body, `"term":2`) {
		t.Errorf("%s", a.body)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = startLeased(t, func(c *Config) { c.Store.Dir = dir })
	n.grant(409, 0, `,"primaries":["acme"]`)
	if a := n.want(503, "POST", "/t/acme/query", insert); a.code() != "no_lease" {
		t.Errorf("%s", a.body)
	}
	n.term = 2
	if a := n.grant(412, 1, ""); !strings.Contains(a.body, `"epoch":""`) {
		t.Errorf("%s", a.body)
	}
}

func TestANodeWithoutLeaseTakesNone(t *testing.T) {
	n := startNode(t, nil)
	body := `{"ms":1000,"epoch":"5","primaries":[],"grant":1,"acked":0,"authority":"c1/global","history":1,"term":1}`
	for method, body := range map[string]string{"GET": "", "POST": body} {
		if a := n.admin(409, method, "lease", body); a.code() != "takes_no_lease" {
			t.Errorf("%s", a.body)
		}
	}
}

// TestLeaseIsCheckedAfterTheCommit: a lease that lapses while the write is made leaves
// its outcome open (architecture §3.5.7).
func TestLeaseIsCheckedAfterTheCommit(t *testing.T) {
	var n *leasedNode
	lapse := false
	n = startLeased(t, func(c *Config) {
		c.Store.Sync = store.SyncFull
		c.Store.Fault = func(op store.FileOp, _ string) error {
			if op == store.OpSync && lapse {
				n.clock.Advance(time.Hour)
			}
			return nil
		}
	})
	n.create("acme", 1)
	n.lease(`["acme"]`)
	n.query("acme", "create table t (id integer primary key, v text)")
	for path, body := range map[string]string{
		"query":       insert,
		"batch":       `{"statements":[` + insert + `]}`,
		"v2/pipeline": `{"requests":[{"type":"execute","stmt":{"sql":"insert into t (v) values ('x')"}}]}`,
	} {
		n.term++
		n.next = 1
		n.lease(`["acme"]`)
		lapse = true
		a := n.do("POST", "/t/acme/"+path, body)
		lapse = false
		if !strings.Contains(a.body, "outcome_unknown") || a.status != 503 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// pair is a primary and its copy, and the addresses by which they know each other.
func startPair(t testing.TB, edit ...func(*Config)) (primary, follower *leasedNode) {
	keep := func(c *Config) {
		c.KeepUnits = true
		for _, f := range edit {
			f(c)
		}
	}
	primary, follower = startLeased(t, keep), startLeased(t, keep)
	primary.create("acme", 1)
	follower.lease(`[]`)
	list := fmt.Sprintf(`,"primaries":[{"unit":"acme","id":1}],"copies":{"acme":[%[1]q]},"in_sync":{"acme":[]}`, follower.url)
	primary.grant(200, 0, list)
	primary.grant(200, 1, "")
	primary.query("acme", "create table t (id integer primary key, v text)")
	follower.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":1}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
		primary.url, follower.url, adminToken))
	wait.For(t, "the copy to catch up", func() error {
		if a := primary.grant(200, primary.next-1, ""); strings.Contains(a.body, "lagging") {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	list = strings.Replace(list, `"in_sync":{"acme":[]}`, fmt.Sprintf(`"in_sync":{"acme":[%q]}`, follower.url), 1)
	body := fmt.Sprintf(`{"ms":60000,"epoch":"6","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1%s}`, primary.next, primary.next-1, list)
	primary.next++
	primary.admin(200, "POST", "lease", body)
	return primary, follower
}

func TestACopyFollowsAndIsPromoted(t *testing.T) {
	p, f := startPair(t)
	a := p.want(200, "POST", "/t/acme/query", insert)
	at := a.header.Get("Domicile-Position")
	// It was answered once the copy had it: no wait.
	copyRead := []string{"Domicile-Mode", "read", "Domicile-After", at}
	if a := f.want(200, "POST", "/t/acme/query", `{"sql":"select count(*) from t"}`, copyRead...); !strings.Contains(a.body, "[[1]]") ||
		a.header.Get("Domicile-Position") != at || a.header.Get("Domicile-Stale") != "" {
		t.Errorf("%s %v", a.body, a.header)
	}
	if a := f.want(200, "GET", "/t/acme/", "", "Domicile-Mode", "read"); !strings.Contains(a.body, `"role":"replica"`) {
		t.Errorf("%s", a.body)
	}
	if a := f.want(421, "POST", "/t/acme/query", insert); !strings.Contains(a.body, p.url) {
		t.Errorf("%s", a.body)
	}
	if a := f.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"from":"`+p.url) || !strings.Contains(a.body, at) {
		t.Errorf("%s", a.body)
	}
	promote := `{"tenants":[{"unit":"acme","id":1},"none"],"epoch":"40","authority":"c1/global","history":1,"term":1}`
	for range 2 { // the answer was lost: the same again
		a = f.admin(200, "POST", "promote", promote)
		if !strings.Contains(a.body, `"promoted":[{"tenant":"acme","position":"40:2"}]`) || !strings.Contains(a.body, "unknown_tenant") {
			t.Errorf("%s", a.body)
		}
	}
	if a := f.want(503, "POST", "/t/acme/query", insert); a.code() != "not_named" {
		t.Errorf("promoted and not granted, it writes: %s", a.body)
	}
	body := `{"ms":60000,"epoch":"7","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1,"primaries":["acme"]}`
	f.admin(200, "POST", "lease", fmt.Sprintf(body, f.next, f.next-1))
	if a := f.want(200, "POST", "/t/acme/query", insert); a.header.Get("Domicile-Position") != "40:3" {
		t.Errorf("%v", a.header)
	}
	// What a proxy sends to a copy executes no write, whatever became of the copy (R2).
	asCopy := []string{"Domicile-Mode", "read", "Domicile-Prefer", "replica", "Domicile-Route", "acme 7 copy"}
	f.want(421, "POST", "/t/acme/query", insert, asCopy...)
	f.want(200, "POST", "/t/acme/query", `{"sql":"select 1"}`, asCopy...)
	// The copy and the primary after it share the time for which a position is waited for.
	for limit, header := range map[string][]string{"1.5s": asCopy, "3s": {"Domicile-Mode", "read", "Domicile-Prefer", "replica"}} {
		a := f.want(504, "POST", "/t/acme/query", `{"sql":"select 1"}`, append(header, "Domicile-After", "40:9")...)
		if a.code() != "position_timeout" || !strings.Contains(a.body, "within "+limit) {
			t.Errorf("%s: %s", limit, a.body)
		}
	}
	// Beyond the fork there is nothing to wait for.
	if a := f.want(409, "POST", "/t/acme/query", `{"sql":"select 1"}`, "Domicile-After", "1:9"); a.code() != "position_lost" {
		t.Errorf("%s", a.body)
	}
	f.want(200, "POST", "/t/acme/query", `{"sql":"select 1"}`, "Domicile-After", at)
}

func TestM6HandoverWaitsForTheDestination(t *testing.T) {
	p, f := startPair(t)
	p.want(200, "POST", "/t/acme/query", insert)
	handover := func(job, addr string, ms int) answer {
		return p.admin(200, "POST", "handover", fmt.Sprintf(`{"job":%q,"ms":%d,"units":[{"unit":"acme","id":1,"node":"f","addr":%q}],"authority":"c1/global","history":1,"term":1}`, job, ms, addr))
	}
	if a := handover("6", "http://127.0.0.1:1", 50); !strings.Contains(a.body, `"released":[]`) || !strings.Contains(a.body, "replica_unreachable") {
		t.Errorf("%s", a.body)
	}
	p.want(200, "POST", "/t/acme/query", insert) // it thawed
	for range 2 {
		if a := handover("7", f.url, 5000); !strings.Contains(a.body, `"released":[{"tenant":"acme","position":"1:3"}]`) {
			t.Fatalf("%s", a.body)
		}
	}
	if a := handover("8", f.url, 5000); !strings.Contains(a.body, "job_conflict") {
		t.Errorf("%s", a.body)
	}
	if a := p.want(421, "POST", "/t/acme/query", insert); !strings.Contains(a.body, f.url) {
		t.Errorf("%s", a.body)
	}
	p.want(421, "POST", "/t/acme/query", `{"sql":"select 1"}`)
	thaw := `{"job":"7","units":[{"unit":"acme","id":1,"node":"f","addr":"x"}],"authority":"c1/global","history":1,"term":1}`
	for range 2 {
		if a := p.admin(200, "POST", "thaw", thaw); !strings.Contains(a.body, `"thawed":["acme"]`) {
			t.Errorf("%s", a.body)
		}
	}
	p.want(200, "POST", "/t/acme/query", insert)
}
