package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestFaultsI5ADeposedGroupOfARegionIsRefusedByItsNodes: one of the servers of us, which does not reach the two
// others any more, is made the group by hand, though the others live, have a leader, and reach
// every node. The nodes take nothing of that leader any more: they refuse it with 409, naming who holds
// them; it fails nothing over, and no tenant is written twice.
func TestFaultsI5ADeposedGroupOfARegionIsRefusedByItsNodes(t *testing.T) {
	t.Parallel()
	r, _, us := startTwoLevels(t, 1, 2)
	names := tenantNames("d", 3)
	createAtHome(t, us, "us", "us-n1", names...)
	rec, load := startLoad(t, us, names...)
	awaitProgress(t, rec, 10, names...)

	kept := us.Controls[2]
	wait.For(t, "another server than "+kept.ID+" leads", func() error {
		if us.Leader() == kept {
			return fmt.Errorf("asked to let us-c1 lead it says %s", us.Do(http.MethodPost, kept.URL+"/_shard/group/transfer", `{"id":"us-c1"}`))
		}
		return nil
	})
	old := us.Controls[:2]
	kept.Kill()
	for _, p := range r.All() { // the others reach each other and the nodes, and nobody else
		for _, o := range old {
			if !slices.Contains(old, p) && !slices.Contains(us.Nodes, p) {
				us.Cut(o, p)
			}
		}
	}
	oldHolder := holderOf(t, us.Nodes[0])
	recoverFolder(t, kept, "--lost", "us-c1,us-c2")
	kept.Start()
	us.Controls = []*testcluster.Process{kept}
	if got := awaitRecovered(t, us); got.History != 2 {
		t.Errorf("%+v", got)
	}
	kept.AwaitReady()
	wait.For(t, "the deposed leader is refused", func() error {
		for _, p := range old {
			if strings.Contains(p.Log(), "newer holder: authority") {
				return nil
			}
		}
		return errors.New("no node has refused it yet")
	})
	for _, n := range us.Nodes {
		now := holderOf(t, n)
		if now.History != 2 || now.Authority != oldHolder.Authority || !strings.HasSuffix(now.Authority, "/us") {
			t.Errorf("%s is held by %+v, it was by %+v", n, now, oldHolder)
		}
		body := fmt.Sprintf(`{"ms":1000,"epoch":"late","primaries":["d0"],"authority":%q,"history":%d,"term":%d,"grant":999999,"acked":999998}`, oldHolder.Authority, oldHolder.History, oldHolder.Term+1)
		a := us.Do(http.MethodPost, n.URL+"/_admin/lease", body)
		var named holderLine
		if json.Unmarshal(a.Body, &named) != nil || a.Status != http.StatusConflict || named != now {
			t.Errorf("a late grant at %s: %s, want 409 naming %+v", n, a, now)
		}
	}
	for _, body := range []string{``, `{"force":true}`} {
		if a := us.Do(http.MethodPost, old[0].URL+"/_shard/nodes/us-n1/failover", body); contains(a, `"to":"`) {
			t.Errorf("the deposed group fails a node over: %s", a)
		}
	}
	awaitProgress(t, rec, 30, names...)
	for _, p := range old {
		p.Kill()
	}
	us.Controls = append(old, kept) // so that what is heard of the dead is a refusal
	r.Heal()
	us.Controls = us.Controls[2:]
	load.Stop()
	checkLoad(t, rec, us, names...)
	r.Verify(names...)
}

// holderLine is whom a node belongs to.
type holderLine struct {
	Authority     string
	History, Term uint64
}

// holderOf asks a node, by a call that it refuses.
func holderOf(t *testing.T, n *testcluster.Process) (h holderLine) {
	t.Helper()
	c := &testcluster.Cluster{}
	a := c.Do(http.MethodPost, n.URL+"/_admin/lease", `{"ms":1000,"epoch":"late","authority":"another/us","history":9,"term":9,"grant":1,"acked":0}`)
	if err := json.Unmarshal(a.Body, &h); err != nil || a.Status != http.StatusConflict || h.Authority == "" {
		t.Fatalf("%s tells its holder by %s", n, a)
	}
	return h
}
