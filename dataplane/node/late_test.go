package node

import (
	"fmt"
	"strings"
	"testing"

	"domicile/proto"
)

// TestALateFollowDemotesNoPrimary: a call to follow that was under way while the copy
// was promoted would have it give up its branch, acknowledged writes included, for that
// of its old source. Promoted and not granted yet, or lapsed, no lease stands in its way.
func TestALateFollowDemotesNoPrimary(t *testing.T) {
	p, f := startPair(t)
	p.want(200, "POST", "/t/acme/query", insert)
	f.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	follow := func(epoch int) answer {
		return f.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":%d}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
			epoch, p.url, f.url, adminToken))
	}
	for epoch, code := range map[int]string{1: codeEpochPassed, 39: codeEpochPassed, 40: codeWrongState} {
		if a := follow(epoch); !strings.Contains(a.body, `"following":[]`) || !strings.Contains(a.body, code) {
			t.Errorf("epoch %d: %s", epoch, a.body)
		}
	}
	if a := f.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"state":"active"`) || !strings.Contains(a.body, `"position":"40:2"`) {
		t.Errorf("it is no primary any more: %s", a.body)
	}
	if a := follow(41); !strings.Contains(a.body, `"following":["acme"]`) { // an entry that came later
		t.Errorf("%s", a.body)
	}
}

// numbered sends an admin call with the number that its leader gave it.
func (n *testNode) numbered(call, status int, method, path, body string, headers ...string) answer {
	n.t.Helper()
	return n.admin(status, method, path, body, append(headers, proto.HeaderCall, fmt.Sprint(call))...)
}

// again starts a node that was stopped on its data.
func (n *leasedNode) again() *leasedNode {
	n.t.Helper()
	if err := n.stop(); err != nil {
		n.t.Fatal(err)
	}
	return startLeased(n.t, func(c *Config) { c.Store.Dir, c.KeepUnits = n.s.cfg.Store.Dir, true })
}

// follows is the body that has f follow p for the unit of startPair.
func (f *leasedNode) follows(p *leasedNode, epoch int) string {
	return fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":%d}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
		epoch, p.url, f.url, adminToken)
}

// TestI5ALateRemovalTakesNoCopyThatWasPlacedAgain: a copy that left and came back has
// the id that it had. The removal of the first, and the call that made it, may arrive
// when the second is there, or when none is to be.
func TestI5ALateRemovalTakesNoCopyThatWasPlacedAgain(t *testing.T) {
	p, f := startPair(t)
	remove := func(call, status int) answer {
		t.Helper()
		return f.numbered(call, status, "DELETE", "tenants/acme", "", proto.HeaderHolder, holder1, proto.HeaderUnitID, "1",
			proto.HeaderRemoval, proto.RemovalCopy)
	}
	follow := func(call int) string {
		t.Helper()
		return f.numbered(call, 200, "POST", "follow", f.follows(p, 1)).body
	}
	follow(5)
	remove(7, 204)
	if a := follow(6); !strings.Contains(a, `"following":[]`) || !strings.Contains(a, `"code":"stale_call"`) {
		t.Errorf("a unit that was removed since was made again: %s", a)
	}
	f.numbered(8, 404, "DELETE", "tenants/acme", "", proto.HeaderHolder, holder1, proto.HeaderUnitID, "1")
	if a := follow(7); !strings.Contains(a, `"code":"stale_call"`) {
		t.Errorf("nor is it held any more: %s", a)
	}
	if a := follow(9); !strings.Contains(a, `"following":["acme"]`) {
		t.Fatalf("%s", a)
	}
	for range 2 { // the second time after a restart
		for _, call := range []int{7, 8} {
			if a := remove(call, 409); a.code() != "stale_call" || !strings.Contains(a.body, `"call":9`) || !strings.Contains(a.body, `"state":"following"`) {
				t.Errorf("%s", a.body)
			}
		}
		if a := f.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"unit":"acme","id":1,"state":"following"`) {
			t.Errorf("%s", a.body)
		}
		f = f.again()
	}
	// A newer leader begins to count anew.
	f.numbered(1, 204, "DELETE", "tenants/acme", "", proto.HeaderHolder, "c1/global 1 2", proto.HeaderUnitID, "1")
}

// TestI5APromotionOfAnOlderEpochThanWasToldIsRefused: the unit went on elsewhere, and
// this node was told to follow there, before the promotion of an earlier entry came. A
// node without a lease would write it at once.
func TestI5APromotionOfAnOlderEpochThanWasToldIsRefused(t *testing.T) {
	p, _ := startPair(t)
	n := startNode(t, func(c *Config) { c.KeepUnits = true })
	dir := n.s.cfg.Store.Dir
	f := &leasedNode{testNode: n}
	n.admin(200, "POST", "follow", f.follows(p, 1))
	eventually(t, "the copy", func() bool { return strings.Contains(n.admin(200, "GET", "units", "").body, `"position":"1:1"`) })
	n.admin(200, "POST", "follow", f.follows(p, 50))
	promote := func(epoch int) string {
		return n.admin(200, "POST", "promote", fmt.Sprintf(`{"tenants":[{"unit":"acme","id":1}],"epoch":"%d","authority":"c1/global","history":1,"term":1}`, epoch)).body
	}
	for range 2 {
		if a := promote(49); !strings.Contains(a, `"promoted":[]`) || !strings.Contains(a, `"code":"epoch_passed"`) {
			t.Errorf("%s", a)
		}
		if a := n.admin(200, "POST", "follow", f.follows(p, 49)).body; !strings.Contains(a, `"code":"epoch_passed"`) {
			t.Errorf("%s", a)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		n = startNode(t, func(c *Config) { c.Store.Dir, c.KeepUnits = dir, true })
	}
	if a := promote(51); !strings.Contains(a, `"position":"51:1"`) {
		t.Errorf("%s", a)
	}
}

// TestM6ALateHandoverOfAJobThatWasUndoneIsRefused: the leader that undid the job leaves
// the unit alone; one that is frozen or given up for it now would be nobody's to take
// back (architecture §3.6.5).
func TestM6ALateHandoverOfAJobThatWasUndoneIsRefused(t *testing.T) {
	p, f := startPair(t)
	body := func(job string) string {
		return fmt.Sprintf(`{"job":%q,"ms":5000,"units":[{"unit":"acme","id":1,"node":"f","addr":%q}],"authority":"c1/global","history":1,"term":1}`, job, f.url)
	}
	thaw := strings.Replace(body("17"), `"ms":5000,`, "", 1)
	if a := p.admin(200, "POST", "handover", body("17")); !strings.Contains(a.body, `"released":[{`) {
		t.Fatalf("%s", a.body)
	}
	p.admin(200, "POST", "thaw", thaw)
	late := func(job string) {
		t.Helper()
		if a := p.admin(200, "POST", "handover", body(job)); !strings.Contains(a.body, `"released":[]`) || !strings.Contains(a.body, codeJobConflict) {
			t.Errorf("job %s: %s", job, a.body)
		}
		release := fmt.Sprintf(`{"job":%q,"position":"1:1","destination":{"node":"f","addr":%q},"authority":"c1/global","history":1,"term":1}`, job, f.url)
		if a := p.admin(409, "POST", "tenants/acme/release", release); a.code() != codeJobConflict || !strings.Contains(a.body, `"thawed":"17"`) {
			t.Errorf("job %s: %s", job, a.body)
		}
	}
	late("17")
	late("9")
	p.want(200, "POST", "/t/acme/query", insert)
	p = p.again()
	late("17")
	if a := p.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"state":"active"`) {
		t.Errorf("%s", a.body)
	}
}

// TestM6ALateHandoverMeetsAUnitThatWentAndCameBack: its job ended by a failover, which
// nothing thaws; the unit came back since by another.
func TestM6ALateHandoverMeetsAUnitThatWentAndCameBack(t *testing.T) {
	p, f := startPair(t)
	p.numbered(30, 200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	a := p.numbered(20, 200, "POST", "handover", fmt.Sprintf(`{"job":"17","ms":5000,"units":[{"unit":"acme","id":1,"node":"f","addr":%q}],"authority":"c1/global","history":1,"term":1}`, f.url))
	if !strings.Contains(a.body, `"released":[]`) || !strings.Contains(a.body, "stale_call") {
		t.Errorf("%s", a.body)
	}
	if a := p.numbered(20, 409, "POST", "tenants/acme/freeze", `{"ms":1000,"authority":"c1/global","history":1,"term":1}`); a.code() != "stale_call" {
		t.Errorf("%s", a.body)
	}
}

// TestI1AListFromBeforeAPromotionDoesNotNameWhatWasPromoted: a unit that went away and
// came back is in the list of before, which the node may hold still, and which may come
// late. Written by it the unit would be acknowledged without its present copies, before
// the entry that says that it was promoted (architecture §3.7.6).
func TestI1AListFromBeforeAPromotionDoesNotNameWhatWasPromoted(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.lease(`[{"unit":"acme","id":1,"epoch":1}]`)
	n.query("acme", "create table t (id integer primary key, v text)")
	grant := func(list string, acked uint64, units string) {
		t.Helper()
		n.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":60000,"epoch":%q,"grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1%s}`, list, n.next, acked, units))
		n.next++
	}
	refused := func() {
		t.Helper()
		if a := n.want(503, "POST", "/t/acme/query", insert); a.code() != "not_named" {
			t.Errorf("%s", a.body)
		}
	}
	n.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	refused() // by the list that is held
	grant("30", 2, `,"primaries":[{"unit":"acme","id":1,"epoch":1}]`)
	refused() // by one that is late
	grant("35", 3, `,"base":"30","add":[{"unit":"acme","id":1,"epoch":1}]`)
	refused()
	grant("41", 4, `,"base":"35","add":[{"unit":"acme","id":1,"epoch":40}]`)
	if a := n.want(200, "POST", "/t/acme/query", insert); a.header.Get("Domicile-Position") != "40:2" {
		t.Errorf("%v", a.header)
	}
}
