package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/dataplane/node/store"
)

// handsOver asks n to give acme to another node, which need not be in sync where that is
// said in more.
func (n *leasedNode) handsOver(job, addr, more string) string {
	n.t.Helper()
	return n.admin(200, "POST", "handover", fmt.Sprintf(`{"job":%q,"ms":300,"units":[{"unit":"acme","id":1,"node":"n3","addr":%q}],"authority":"c1/global","history":1,"term":1%s}`,
		job, addr, more)).body
}

// names grants a confirmed lease for acme, with the copy that counts, if any.
func (n *leasedNode) names(inSync string) {
	n.t.Helper()
	if inSync != "" {
		inSync = fmt.Sprintf("%q", inSync)
	}
	n.grant(200, 0, fmt.Sprintf(`,"primaries":[{"unit":"acme","id":1}],"copies":{"acme":[%[1]s]},"in_sync":{"acme":[%[1]s]}`, inSync))
	n.grant(200, n.next-1, "")
}

const unproven = `,"unproven":true`

// TestI10ASourceThatHasStartedGivesNothingToATargetBeforeItIsCompared: a source that
// restarts between the entry that asks for its release and the call may have lost what a
// copy in sync had acknowledged. That the move's target has what the source has says
// nothing then: the acknowledged writes were dropped from the copy that had them. Found
// by a review.
func TestI10ASourceThatHasStartedGivesNothingToATargetBeforeItIsCompared(t *testing.T) {
	p, f := startPair(t)
	p.want(200, "POST", "/t/acme/query", insert)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	p = p.again()
	p.names(f.url)
	target := startLeased(t, nil)
	target.admin(200, "POST", "follow", target.follows(p, 1))
	target.awaitUnit(`"position":"1:2"`)
	if a := p.handsOver("7", target.url, unproven); !strings.Contains(a, `"released":[]`) || !strings.Contains(a, "has not compared it") {
		t.Errorf("it was given up uncompared: %s", a)
	}
	p.grant(200, p.next-1, fmt.Sprintf(`,"primaries":[{"unit":"acme","id":1}],"copies":{"acme":[%q]},"in_sync":{"acme":[]}`, f.url))
	if a := p.handsOver("8", target.url, unproven); !strings.Contains(a, `"released":[{"tenant":"acme"`) {
		t.Errorf("the silent copy was taken out: %s", a)
	}
}

// TestI10ADamagedUnitIsGivenToNoTargetThatMayLackSomething: a source that has started
// does not know what it had acknowledged, and cannot read it in a damaged file. A copy in
// sync has all of it; a move's target need not. Found by a review.
func TestI10ADamagedUnitIsGivenToNoTargetThatMayLackSomething(t *testing.T) {
	p := startLeased(t, func(c *Config) {
		c.KeepUnits, c.Store.IdleClose, c.Store.Sync = true, 20*time.Millisecond, store.SyncFull
	})
	p.create("acme", 1)
	p.names("")
	p.query("acme", "create table t (id integer primary key, v text)")
	target := startLeased(t, nil)
	p.spoilHeader("acme")
	p = p.again()
	p.names("")
	if a := p.handsOver("7", target.url, unproven); !strings.Contains(a, `"released":[]`) || !strings.Contains(a, "only to a copy in sync") {
		t.Errorf("it was given to a node that has nothing of it: %s", a)
	}
	if a := p.handsOver("8", target.url, ""); !strings.Contains(a, `"released":[{"tenant":"acme"`) {
		t.Errorf("a copy in sync gets it: %s", a)
	}
}
