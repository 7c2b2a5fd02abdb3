package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// moverPatience is how long one change may take; then nobody knows what came of it.
const moverPatience = 10 * time.Second

// regionMover moves the tenants of the load between regions and within them, cancels
// that, drains nodes, and creates, reads, moves and deletes tenants of its own, one thing after
// another. What it was promised of its own tenants it holds the deployment to.
type regionMover struct {
	t      *testing.T
	r      *testcluster.Regions
	c      *testcluster.Cluster // the whole
	names  []string
	rand   *rand.Rand
	prefix string
	done   chan struct{}
	wait   sync.WaitGroup
	last   struct { // move that was begun, and who lists it
		id uint64
		at *testcluster.Cluster
	}
	own   []*ownTenant
	old   []*ownTenant // of which nobody knows whether they are there
	next  int
	asked map[string]int  // what was done, by what was answered
	given map[string]bool // regions that it gave to the global group last, as far as it knows
}

// ownTenant is one that the mover makes and deletes.
type ownTenant struct {
	name  string
	there bool
	mark  int // what its only row holds: which of its creates it is of
}

const ownTenants = 3

func startRegionMover(t *testing.T, r *testcluster.Regions, rd *rand.Rand, round int, names ...string) *regionMover {
	m := &regionMover{t: t, r: r, c: r.Whole(), names: names, rand: rd, prefix: fmt.Sprintf("own%d-", round), done: make(chan struct{}), asked: map[string]int{}, given: map[string]bool{}}
	for range ownTenants {
		m.own = append(m.own, m.newOwn())
	}
	m.wait.Go(func() {
		for {
			select {
			case <-m.done:
				return
			case <-time.After(20*time.Millisecond + time.Duration(m.rand.Int64N(int64(400*time.Millisecond)))):
				m.act()
			}
		}
	})
	return m
}

func (m *regionMover) newOwn() *ownTenant {
	m.next++
	return &ownTenant{name: fmt.Sprintf("%s%d", m.prefix, m.next)}
}

func pick[T any](r *rand.Rand, among []T) T { return among[r.IntN(len(among))] }

func (m *regionMover) act() {
	if longRun() && m.rand.IntN(20) == 0 {
		m.handOver(pick(m.rand, handedRegions))
		return
	}
	switch n := m.rand.IntN(20); {
	case n < 5:
		m.move(pick(m.rand, m.names), m.r.Global, fmt.Sprintf(`{"region":%q,"wait":false}`, pick(m.rand, faultRegions)))
	case n < 7:
		c := m.r.In(pick(m.rand, faultRegions))
		m.move(pick(m.rand, m.names), c, fmt.Sprintf(`{"to":%q,"wait":false}`, pick(m.rand, c.Nodes).ID))
	case n < 8 && m.last.at != nil:
		m.note("cancel", m.do(http.MethodDelete, pick(m.rand, m.last.at.Proxies).URL+fmt.Sprintf("/_shard/moves/%d", m.last.id), ""))
	case n < 9:
		m.drain(http.MethodPost)
	case n < 10:
		m.drain(http.MethodDelete)
	case n < 12:
		if o := pick(m.rand, m.own); o.there {
			m.move(o.name, m.r.Global, fmt.Sprintf(`{"region":%q,"wait":false}`, pick(m.rand, faultRegions)))
		}
	case n < 15:
		m.read(pick(m.rand, m.own))
	case n < 18:
		m.create(m.rand.IntN(len(m.own)))
	default:
		m.delete(m.rand.IntN(len(m.own)))
	}
}

func (m *regionMover) proxy() string { return pick(m.rand, m.c.Proxies).URL }

func (m *regionMover) do(method, url, body string) testcluster.Answer {
	return m.c.DoWithin(moverPatience, method, url, body)
}

func (m *regionMover) note(what string, a testcluster.Answer) {
	code := refusedAs(a)
	if a.Err != nil {
		code = "no answer"
	}
	m.asked[fmt.Sprintf("%s %d %s", what, a.Status, code)]++
}

// refusedAs is the code of an answer; "" for none.
func refusedAs(a testcluster.Answer) string {
	var e struct{ Code string }
	_ = json.Unmarshal(a.Body, &e)
	return e.Code
}

// told reports whether an answer says what came of a change: that it was made, or that nothing
// was changed.
func told(a testcluster.Answer) bool {
	switch code := refusedAs(a); {
	case a.Err != nil, code == "outcome_unknown", code == "create_pending", code == "delete_pending":
		return false
	case a.Status >= 500:
		return code != "" && a.Status != http.StatusInternalServerError
	}
	return true
}

// move moves a tenant. Most likely that is listed by the group at.
func (m *regionMover) move(name string, at *testcluster.Cluster, body string) {
	a := m.do(http.MethodPost, m.proxy()+"/_shard/tenants/"+name+"/move", body)
	var j movedLine
	if a.Status == http.StatusAccepted && json.Unmarshal(a.Body, &j) == nil {
		m.last.id, m.last.at = j.ID, at
	}
	m.note("move", a)
}

func (m *regionMover) drain(method string) {
	region := pick(m.rand, faultRegions)
	node := pick(m.rand, m.r.In(region).Nodes).ID
	m.note(method+" drain", m.do(method, m.proxy()+"/_shard/nodes/"+node+"/drain?region="+region, ""))
}

func (m *regionMover) create(i int) {
	o := m.own[i]
	mark := o.mark + 1
	body, _ := json.Marshal(map[string]string{"region": pick(m.rand, faultRegions),
		"schema": fmt.Sprintf("create table mark (n integer); insert into mark values (%d)", mark)})
	a := m.do(http.MethodPut, m.proxy()+"/_shard/tenants/"+o.name, string(body))
	m.note("create", a)
	switch {
	case a.Status == http.StatusCreated && o.there:
		m.t.Errorf("%s, which is there, was created: %s", o.name, a)
	case a.Status == http.StatusCreated:
		o.there, o.mark = true, mark
	case refusedAs(a) == "tenant_exists" && !o.there:
		m.t.Errorf("%s, which is not there, was not created: %s", o.name, a)
	case !told(a) && !o.there:
		m.forget(i)
	}
}

func (m *regionMover) delete(i int) {
	o := m.own[i]
	a := m.do(http.MethodDelete, m.proxy()+"/_shard/tenants/"+o.name, "")
	m.note("delete", a)
	switch {
	case a.Status == http.StatusNoContent && !o.there:
		m.t.Errorf("%s, which is not there, was deleted: %s", o.name, a)
	case a.Status == http.StatusNoContent:
		o.there = false
	case a.Status == http.StatusNotFound && o.there:
		m.t.Errorf("%s, which is there, was not deleted: %s", o.name, a)
	case !told(a) && o.there:
		m.forget(i)
	}
}

// forget puts a tenant aside of which nobody knows whether it is there.
func (m *regionMover) forget(i int) {
	m.old = append(m.old, m.own[i])
	m.own[i] = m.newOwn()
}

// read reads a tenant's mark.
func (m *regionMover) read(o *ownTenant) {
	a := m.do(http.MethodPost, m.proxy()+"/t/"+o.name+"/query", `{"sql":"select n from mark"}`)
	m.note("read", a)
	if wrong := o.wrong(a); wrong != "" {
		m.t.Errorf("%s (there: %v, mark %d) %s: %s %v", o.name, o.there, o.mark, wrong, a, a.Header)
	}
}

// wrong says what is wrong in an answer to a read of its mark.
func (o *ownTenant) wrong(a testcluster.Answer) string {
	var got struct{ Rows [][]int }
	switch {
	case a.Err != nil:
		return ""
	case a.Status == http.StatusNotFound && o.there:
		return "is not found"
	case a.Status == http.StatusMisdirectedRequest:
		return "is misdirected"
	case a.Status != http.StatusOK || a.Header.Get("Domicile-Stale") != "":
		return ""
	case !o.there:
		return "is read"
	case json.Unmarshal(a.Body, &got) != nil || len(got.Rows) != 1 || len(got.Rows[0]) != 1 || got.Rows[0][0] != o.mark:
		return "was read wrongly"
	}
	return ""
}

// stop ends it, and the drains that it has begun, waits until no move is under way, and
// deletes its tenants. Each is there or not, as was told.
func (m *regionMover) stop() {
	m.t.Helper()
	close(m.done)
	m.wait.Wait()
	m.t.Logf("changes: %v", m.asked)
	for _, region := range handedRegions {
		m.bringBack(region)
	}
	for _, region := range faultRegions {
		for _, n := range m.r.In(region).Nodes {
			wait.For(m.t, "no drain of "+n.ID, func() error {
				a := m.do(http.MethodDelete, m.r.In(region).AnyControl().URL+"/_shard/nodes/"+n.ID+"/drain", "")
				if a.Status >= 300 && a.Status != http.StatusNotFound {
					return fmt.Errorf("%s", a)
				}
				return nil
			})
		}
		m.awaitMoves(region)
	}
	for _, o := range m.own {
		m.settle(o)
	}
	for _, o := range m.old { // what was asked last may still be made: what comes after it is not
		wait.For(m.t, o.name+" can be created, or is there", func() error {
			a := m.do(http.MethodPut, m.r.Global.Proxies[0].URL+"/_shard/tenants/"+o.name, `{"region":"eu"}`)
			if a.Status != http.StatusCreated && refusedAs(a) != "tenant_exists" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
		deleteTenant(m.t, m.r.Global, o.name)
	}
}

// awaitMoves waits until no move of a region's directory is under way.
func (m *regionMover) awaitMoves(region string) {
	m.t.Helper()
	wait.For(m.t, "every move of "+region+" has ended", func() error {
		a := m.do(http.MethodGet, m.r.In(region).AnyControl().URL+"/_shard/moves?active=1&consistent=1", "")
		var moves []movedLine
		if a.Status != http.StatusOK || json.Unmarshal(a.Body, &moves) != nil || len(moves) > 0 {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// settle waits until a tenant is as was told, at every proxy, and deletes it.
func (m *regionMover) settle(o *ownTenant) {
	m.t.Helper()
	for _, p := range m.c.Proxies {
		wait.For(m.t, fmt.Sprintf("%s has %s as was told: %+v", p.Name, o.name, *o), func() error {
			a := m.do(http.MethodPost, p.URL+"/t/"+o.name+"/query", `{"sql":"select n from mark"}`)
			if wrong := o.wrong(a); wrong != "" {
				m.t.Fatalf("%s (there: %v, mark %d) %s at %s: %s %v", o.name, o.there, o.mark, wrong, p.Name, a, a.Header)
			}
			if want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[o.there]; a.Status != want {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	if o.there {
		deleteTenant(m.t, m.r.Global, o.name)
	}
}
