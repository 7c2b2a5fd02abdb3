package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// partition is a deployment of two regions whose link is down, or about to be: eu is the
// global group's, us keeps its own directory.
type partition struct {
	*testcluster.Regions
	t            *testing.T
	eu, us       *testcluster.Cluster
	homeEU       []string
	homeUS       []string
	recEU, recUS *history.Recorder
	loads        []*history.Load
}

func startPartition(t *testing.T) *partition {
	r, eu, us := startTwoLevels(t, 2, 3)
	p := &partition{Regions: r, t: t, eu: eu, us: us, homeEU: tenantNames("e", 2), homeUS: tenantNames("u", 4)}
	createAtHome(t, eu, "eu", "n1", p.homeEU...)
	createAtHome(t, us, "us", "us-n1", p.homeUS...)
	var load *history.Load
	p.recEU, load = startLoad(t, eu, p.homeEU...)
	p.loads = append(p.loads, load)
	p.recUS, load = startLoad(t, us, p.homeUS...)
	p.loads = append(p.loads, load)
	return p
}

func (p *partition) read(proxy *testcluster.Process, tenant string) testcluster.Answer {
	return p.Do(http.MethodPost, proxy.URL+"/t/"+tenant+"/query", `{"sql":"select count(*) from log"}`)
}

// goesOn: the tenants of both regions are written in their region.
func (p *partition) goesOn() {
	p.t.Helper()
	awaitProgress(p.t, p.recEU, 10, p.homeEU...)
	awaitProgress(p.t, p.recUS, 10, p.homeUS...)
}

// change is one that needs both sides of the link, and its status once that is there.
type change struct {
	what         string
	at           *testcluster.Cluster
	method       string
	tenant, body string
	done         int
}

func (c change) ask(header ...string) testcluster.Answer {
	return c.at.Do(c.method, c.at.Proxies[0].URL+"/_shard/tenants/"+c.tenant, c.body, header...)
}

func (p *partition) crossing() []change {
	return []change{
		{"create in us, asked in eu", p.eu, http.MethodPut, "new-eu", `{"region":"us"}`, http.StatusCreated},
		{"create in us, asked in us", p.us, http.MethodPut, "new-us", `{"region":"us"}`, http.StatusCreated},
		{"delete in us, asked in eu", p.eu, http.MethodDelete, "u0", "", http.StatusNoContent},
		{"delete in us, asked in us", p.us, http.MethodDelete, "u0", "", http.StatusNoContent},
		{"move out of us, asked in eu", p.eu, http.MethodPost, "u1/move", `{"region":"eu"}`, http.StatusOK},
		{"move out of us, asked in us", p.us, http.MethodPost, "u1/move", `{"region":"eu"}`, http.StatusOK},
		{"move into us, asked in eu", p.eu, http.MethodPost, "e0/move", `{"region":"us"}`, http.StatusOK},
		{"move into us, asked in us", p.us, http.MethodPost, "e0/move", `{"region":"us"}`, http.StatusOK},
	}
}

// end stops the load and checks all that was answered.
func (p *partition) end(gone ...string) {
	p.t.Helper()
	for _, l := range p.loads {
		l.Stop()
	}
	left := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(gone, n) })
	}
	checkLoad(p.t, p.recEU, p.eu, left(p.homeEU)...)
	checkLoad(p.t, p.recUS, p.us, left(p.homeUS)...)
}

// outside: a request from eu for a tenant of us is refused with 502, at once: a hundred of them take
// less than a few would that wait for a connection. Links take connections though they are cut, and
// what is sent to find out whether they still are may have been executed.
func (p *partition) outside() {
	p.t.Helper()
	for _, proxy := range p.eu.Proxies {
		awaitAnswer(p.t, "us is known to be out of reach", http.StatusBadGateway, func() testcluster.Answer { return p.read(proxy, "u0") })
		sent := 0
		for range 100 {
			a := p.read(proxy, "u0")
			if p.Bytewise() && unknown(a) {
				sent++
				continue
			}
			refused(p.t, "a read from outside", a, refusal{http.StatusBadGateway, "region_unreachable"})
		}
		if sent > 20 {
			p.t.Errorf("%d of 100 requests were sent over a link that is down", sent)
		}
	}
}

// TestFaultsG9APartitionStepByStep: the link between eu and us goes down, silently. Inside us a node is
// lost and its tenants are written again; from outside 502; what needs both sides 503, and
// nothing has changed. The link comes back: the first request lands where the failover put
// its tenant, and the refused changes go through.
func TestFaultsG9APartitionStepByStep(t *testing.T) {
	t.Parallel()
	p := startPartition(t)
	p.goesOn()
	awaitAnswer(t, "u0 is read from eu", http.StatusOK, func() testcluster.Answer { return p.read(p.eu.Proxies[0], "u0") })
	before := census(t, p.eu, p.us)
	p.CutRegion("us")
	p.outside()
	p.goesOn()

	p.us.AwaitCopiesInSync(1, p.homeUS...)
	p.us.Node("us-n1").Kill()
	for _, name := range p.homeUS {
		wait.For(t, name+" is failed over", func() error {
			if x := at(p.us, name); x.Node == "us-n1" || x.Node == "" {
				return fmt.Errorf("it is on %q", x.Node)
			}
			return nil
		})
	}
	p.goesOn()
	p.outside()
	p.changesAreRefused()
	p.insideGoesOn()
	p.unchanged(before)
	p.goesOn()

	rows := p.recUS.Acked("u1")
	p.HealRegion("us")
	a := awaitAnswer(t, "a request from eu reaches u1", http.StatusOK, func() testcluster.Answer {
		a := p.read(p.eu.Proxies[0], "u1")
		if a.Status != http.StatusOK && !unknown(a) {
			refused(t, "while it is found out that the link is back", a, refusal{http.StatusBadGateway, "region_unreachable"})
		}
		return a
	})
	var got struct{ Rows [][]int }
	if a.Decode(t, &got); got.Rows[0][0] < rows {
		t.Errorf("the first answer is of %v rows, %d were acknowledged where the failover put it", got.Rows, rows)
	}
	p.us.Node("us-n1").Start()
	p.us.Node("us-n1").AwaitReady()
	p.goThrough()
	p.end("u0")
	p.Verify("e0", "e1", "u1", "u2", "u3", "new-eu", "new-us")
}

// placedAt is what the directory tells of a tenant's place.
type placedAt struct{ Node, Region, Replica, State string }

func at(c *testcluster.Cluster, tenant string) (x placedAt) {
	a := c.Do(http.MethodGet, c.AnyControl().URL+"/_shard/tenants/"+tenant, "")
	_ = json.Unmarshal(a.Body, &x) // of no answer: nothing
	return x
}

// changesAreRefused: each with 503. Of one that is answered 502, as a server was slow to say
// that it is there, nobody knows whether it has begun: it is asked again.
func (p *partition) changesAreRefused() {
	p.t.Helper()
	for _, c := range p.crossing() {
		begun := false
		wait.For(p.t, c.what, func() error {
			a := c.ask()
			begun = begun || unknown(a)
			switch {
			case unknown(a), begun && a.Status == http.StatusConflict: // with the one before, which is being undone
				return fmt.Errorf("%s", a)
			case a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "":
				p.t.Errorf("%s: %s, Retry-After %q", c.what, a, a.Header.Get("Retry-After"))
			}
			return nil
		})
	}
}

// unknown reports whether an answer says that nobody knows what came of a request.
func unknown(a testcluster.Answer) bool {
	return a.Status == http.StatusBadGateway && refusedAs(a) == "outcome_unknown"
}

// insideGoesOn: what is us's own is done in us.
func (p *partition) insideGoesOn() {
	p.t.Helper()
	p.us.AwaitCopiesInSync(1, p.homeUS...)
	awaitAnswer(p.t, "u3 moves within us", http.StatusOK, func() testcluster.Answer {
		to := map[string]string{"us-n2": "us-n3", "us-n3": "us-n2"}[at(p.us, "u3").Node]
		return p.Do(http.MethodPost, p.us.Proxies[0].URL+"/_shard/tenants/u3/move", `{"to":"`+to+`"}`)
	})
	awaitAnswer(p.t, "u2 is pinned", http.StatusOK, func() testcluster.Answer {
		return p.Do(http.MethodPut, p.us.Proxies[0].URL+"/_shard/tenants/u2/pin", "")
	})
}

// unchanged: the names, homes and states of either side are those of before, and no node holds
// anything of what was refused.
func (p *partition) unchanged(before []string) {
	p.t.Helper()
	wait.For(p.t, "nothing has changed", func() error { // what was begun is undone
		if now := census(p.t, p.eu, p.us); !slices.Equal(now, before) {
			return fmt.Errorf("%q, before %q", now, before)
		}
		return nil
	})
	noneOf(p.t, p.us.Nodes, p.us, "new-eu", "new-us", "e0")
	noneOf(p.t, p.eu.Nodes, p.eu, "new-eu", "new-us", "u1")
	for _, name := range []string{"new-eu", "new-us"} {
		for _, proxy := range []*testcluster.Process{p.eu.Proxies[0], p.us.Proxies[0]} {
			if a := p.read(proxy, name); a.Status == http.StatusOK || a.Err != nil {
				p.t.Errorf("%s is there: %s", name, a)
			}
		}
	}
}

// goThrough asks for the refused changes again: each is done once.
func (p *partition) goThrough() {
	p.t.Helper()
	for i, c := range p.crossing() {
		if i%2 == 1 && !strings.HasPrefix(c.what, "create") {
			continue // done by the one before
		}
		awaitChange(p.t, c.what, c.done, func(key string) testcluster.Answer { return c.ask("Idempotency-Key", key) })
	}
	for name, region := range map[string]string{"u1": "eu", "e0": "us", "new-eu": "us", "new-us": "us"} {
		for _, c := range []*testcluster.Cluster{p.eu, p.us} {
			wait.For(p.t, name+" is told of in "+region, func() error { // by any server: it may be behind
				if x := at(c, name); x.Region != region {
					return fmt.Errorf("it is in %q", x.Region)
				}
				return nil
			})
		}
	}
	for _, proxy := range []*testcluster.Process{p.eu.Proxies[0], p.us.Proxies[0]} {
		awaitAnswer(p.t, "u0, which is deleted, is unknown", http.StatusNotFound, func() testcluster.Answer { return p.read(proxy, "u0") })
	}
}
