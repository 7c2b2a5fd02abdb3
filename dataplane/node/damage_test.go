package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// unitFile is a unit's database.
func (n *testNode) unitFile(unit string) string {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.s.cfg.Store.Dir, "units", "*", unit+".db"))
	if err != nil || len(found) != 1 {
		n.t.Fatal(found, err)
	}
	return found[0]
}

// spoilHeader makes a unit's file, which nobody has open, one that is no database.
func (n *testNode) spoilHeader(unit string) {
	n.t.Helper()
	wait.For(n.t, "the unit to be closed", func() error {
		if open := n.s.store.Stats().OpenUnits; open > 0 {
			return fmt.Errorf("%d are open", open)
		}
		return nil
	})
	f, err := os.OpenFile(n.unitFile(unit), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 100), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// TestI1ADamagedUnitIsGivenUpUnread: its primary tells that it is damaged, refuses
// without effect what the copy will answer, gives it up without opening the file once the
// destination has what was acknowledged, and acknowledges nothing from then on; a thaw of
// the job takes it back, and another job may ask again. Made a copy, it keeps the damaged
// file aside and takes an image.
func TestI1ADamagedUnitIsGivenUpUnread(t *testing.T) {
	p, f := startPair(t, func(c *Config) { c.Store.IdleClose, c.Store.Sync = 20*time.Millisecond, store.SyncFull })
	p.want(200, "POST", "/t/acme/query", insert)
	p.spoilHeader("acme")
	for range 2 { // found out by the first
		if a := p.want(503, "POST", "/t/acme/query", insert); a.code() != "transfer_in_progress" {
			t.Errorf("%s", a.body)
		}
	}
	report := func() string { return p.grant6(p.next - 1) }
	if a := report(); !strings.Contains(a, `"damaged":["acme"]`) {
		t.Errorf("%s", a)
	}
	if a := p.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"damaged":true`) {
		t.Errorf("%s", a.body)
	}
	handover := func(job, addr string, more string) answer {
		return p.admin(200, "POST", "handover", fmt.Sprintf(`{"job":%q,"ms":300,"units":[{"unit":"acme","id":1,"node":"f","addr":%q}],"authority":"c1/global","history":1,"term":1%s}`, job, addr, more))
	}
	// A node that does not have what was acknowledged gets it by force alone.
	if a := handover("7", "http://127.0.0.1:1", ""); !strings.Contains(a.body, `"released":[]`) || !strings.Contains(a.body, "replica_unreachable") {
		t.Errorf("%s", a.body)
	}
	for range 2 {
		if a := handover("8", f.url, ""); !strings.Contains(a.body, `"released":[{"tenant":"acme","position":"1:2"}]`) {
			t.Errorf("%s", a.body)
		}
	}
	if a := p.want(421, "POST", "/t/acme/query", insert); !strings.Contains(a.body, f.url) {
		t.Errorf("%s", a.body)
	}
	if a := report(); strings.Contains(a, "damaged") {
		t.Errorf("given up it is reported still: %s", a)
	}
	p.admin(200, "POST", "thaw", `{"job":"8","units":[{"unit":"acme","id":1,"node":"f","addr":"x"}],"authority":"c1/global","history":1,"term":1}`)
	if a := report(); !strings.Contains(a, `"damaged":["acme"]`) {
		t.Errorf("taken back: %s", a)
	}
	if a := handover("9", "http://127.0.0.1:1", `,"forced":true`); !strings.Contains(a.body, `"released":[{"tenant":"acme"`) {
		t.Errorf("by force: %s", a.body)
	}
	f.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	p.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":60000,"epoch":"9","grant":%d,"acked":%d,"primaries":[],"authority":"c1/global","history":1,"term":1}`, p.next, p.next-1))
	p.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":40}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`, f.url, p.url, adminToken))
	wait.For(t, "it is a copy again", func() error {
		if a := p.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"position":"40:2"`) || strings.Contains(a.body, "error") {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	if a := p.admin(200, "GET", "units", ""); !strings.Contains(a.body, `.damaged.db"]`) {
		t.Errorf("nothing is kept aside: %s", a.body)
	}
	if a := p.want(200, "POST", "/t/acme/query", `{"sql":"select count(*) from t"}`, "Domicile-Mode", "read"); !strings.Contains(a.body, "[[1]]") {
		t.Errorf("%s", a.body)
	}
}

// TestL7ADamagedUnitIsRemovedAndKept: where a copy was made elsewhere meanwhile, what is
// left of it goes aside, and the removal does not wait for a file that nobody can open.
func TestL7ADamagedUnitIsRemovedAndKept(t *testing.T) {
	n := startLeased(t, func(c *Config) { c.Store.IdleClose, c.Store.Sync = 20*time.Millisecond, store.SyncFull })
	n.create("acme", 1)
	n.lease(`["acme"]`)
	n.query("acme", "create table t (v)")
	n.grant(200, n.next-1, `,"primaries":[]`)
	n.spoilHeader("acme")
	a := n.admin(204, "DELETE", "tenants/acme", "", "Domicile-Holder", holder1, "Domicile-Unit-Id", "1", "Domicile-Removal", "copy")
	if file := a.header.Get("Domicile-Aside"); !strings.HasPrefix(file, "acme@") || !strings.HasSuffix(file, ".damaged.db") {
		t.Errorf("aside: %q", file)
	}
}

// TestI10NothingIsAcknowledgedOnceGivenUp: a commit whose unit is given up before it is
// answered is told as unknown, also without a lease.
func TestI10NothingIsAcknowledgedOnceGivenUp(t *testing.T) {
	n := startNode(t, nil)
	n.tenantWithTable("acme")
	u, release, err := n.s.store.Acquire(n.s.base, "acme")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := n.s.fence.committed(u); err != nil {
		t.Fatal(err)
	}
	if _, err := n.s.store.Update(n.s.base, "acme", func(rec *store.Record) error { rec.State = store.Sent; return nil }); err != nil {
		t.Fatal(err)
	}
	n.s.fence.records.forget("acme")
	if e := failure(n.s.fence.committed(u)); e.Code != codeOutcomeUnknown {
		t.Errorf("%+v", e)
	}
}
