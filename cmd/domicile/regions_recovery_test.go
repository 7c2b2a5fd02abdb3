package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// TestFaultsI1O6AGlobalDirectoryFromBeforeMovesIsRestored: since the backup tenants went
// from us to tr, from the global group's own nodes to us, and from us to these; others were
// made, deleted, and made again elsewhere, and two are on their way. Each is where it went,
// is written there alone, and nothing that was acknowledged is lost.
func TestFaultsI1O6AGlobalDirectoryFromBeforeMovesIsRestored(t *testing.T) {
	t.Parallel()
	r := moveRegions(t, faultLease, "0")
	before := map[string]string{"us-tr": "us", "own-us": "eu", "us-own": "us", "gone": "us", "again": "us", "caught-1": "us", "caught-2": "eu", "stays": "eu"}
	for name, region := range before {
		createIn(t, r, region, name)
	}
	cl := adminClient(t, r.Global)
	var whole bytes.Buffer
	if _, err := cl.Backup(t.Context(), &whole); err != nil {
		t.Fatal(err)
	}

	tr := fsm.RegionName("tr")
	loaded := []string{"us-tr", "own-us", "us-own", "caught-1", "caught-2", "stays"}
	var proxies []string
	for _, c := range []*testcluster.Cluster{r.Global, r.Own["us"], r.Own["tr"]} {
		proxies = append(proxies, proxyURLs(c)...)
	}
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: loaded, Proxies: proxies, Clients: 1, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 3, loaded...)
	for _, m := range [][2]string{{"us-tr", "tr"}, {"own-us", "us"}, {"us-own", "eu"}} {
		moveTo(t, r, r.Global.Proxies[0], m[0], m[1])
	}
	noMoves(t, r)
	for _, name := range []fsm.TenantName{"gone", "again"} {
		if err := cl.DeleteTenant(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cl.CreateTenant(t.Context(), "again", proto.PutTenant{Region: &tr}); err != nil {
		t.Fatal(err)
	}
	createIn(t, r, "tr", "new")
	awaitProgress(t, rec, 3, loaded...)
	for _, name := range []string{"caught-1", "caught-2"} {
		beginBetween(t, r, name, "tr")
	}

	control := r.Global.Controls[0]
	control.Kill()
	if err := os.RemoveAll(control.Data); err != nil {
		t.Fatal(err)
	}
	control.Start()
	control.AwaitReady()
	if out, err := cl.Restore(t.Context(), whole.Bytes(), 0); err != nil || out.History != 2 {
		t.Fatalf("restore: %+v, %v", out, err)
	}
	rc := awaitRecovered(t, r.Global)
	if rc.Rehomed < 5 || rc.Lost != 1 || len(rc.LostUnits) != 1 || rc.LostUnits[0].Tenant != "gone" || len(rc.WrittenOffRegions) > 0 {
		t.Errorf("%+v", rc)
	}
	awaitProgress(t, rec, 5, loaded...)
	homes := map[string]string{"us-tr": "tr", "own-us": "us", "us-own": "eu", "again": "tr", "new": "tr", "stays": "eu"}
	for name, want := range homes {
		wantLivesIn(t, r, name, want)
	}
	for _, name := range []string{"caught-1", "caught-2"} {
		wantLivesIn(t, r, name, "")
	}
	held := awaitAnswer(t, "new is created again, or refused", http.StatusConflict, func() testcluster.Answer {
		return r.Do(http.MethodPut, r.Global.Proxies[0].URL+"/_shard/tenants/new", `{"region":"us"}`)
	})
	refused(t, "a name that is held", held, refusal{409, "tenant_exists"})
	if err := cl.DeleteTenant(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.CreateTenant(t.Context(), "gone", proto.PutTenant{Region: &tr}); err != nil {
		t.Fatal(err)
	}
	moveTo(t, r, r.Global.Proxies[0], "us-tr", "us")
	moveTo(t, r, r.Global.Proxies[0], "caught-1", "eu")
	noMoves(t, r)
	awaitProgress(t, rec, 3, loaded...)
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, r.Global, loaded...), time.Minute); err != nil {
		t.Error(err)
	}
}

// wantLivesIn waits until a tenant is told by every group as living in a region, "" for
// any, and exactly one node of all regions writes it, there.
func wantLivesIn(t *testing.T, r *testcluster.Regions, name, region string) {
	t.Helper()
	wait.For(t, name+" lives in one place", func() error {
		home := region
		for _, c := range []*testcluster.Cluster{r.Global, r.Own["us"], r.Own["tr"]} {
			var got struct{ Region string }
			a := r.Do(http.MethodGet, c.AnyControl().URL+"/_shard/tenants/"+name, "")
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &got) != nil {
				return fmt.Errorf("%s", a)
			}
			if home == "" {
				home = got.Region
			}
			if got.Region != home {
				return fmt.Errorf("told to be in %q, and in %q", home, got.Region)
			}
		}
		writers := ""
		for in, c := range map[string]*testcluster.Cluster{"eu": r.Global, "us": r.Own["us"], "tr": r.Own["tr"]} {
			for _, n := range c.Nodes {
				var held []proto.HeldUnit
				a := c.Do(http.MethodGet, n.URL+"/_admin/units", "", "Authorization", "Bearer "+testcluster.NodeToken)
				if a.Status != http.StatusOK || json.Unmarshal(a.Body, &held) != nil {
					return fmt.Errorf("%s", a)
				}
				for _, h := range held {
					if string(h.Unit) == name && h.State != "sent" {
						writers += in + " " + h.State + "; "
					}
				}
			}
		}
		if writers != home+" active; " {
			return fmt.Errorf("lives in %s, and is at %s", home, writers)
		}
		return nil
	})
}

// TestFaultsO6G3ARegionsDirectoryIsLostWithoutABackup: the region's group is made anew under the
// lost one's name, its nodes are recorded again, and each tenant is adopted from the node that
// has it. Nothing that was acknowledged is lost.
func TestFaultsO6G3ARegionsDirectoryIsLostWithoutABackup(t *testing.T) {
	t.Parallel()
	r := moveRegions(t, faultLease, "0")
	us, names := r.Own["us"], []string{"kept-1", "kept-2"}
	for _, name := range names {
		createIn(t, r, "us", name)
	}
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: append(proxyURLs(us), proxyURLs(r.Global)...), Clients: 1, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 3, names...)
	region, err := adminClient(t, r.Global).Region(t.Context(), "us")
	if err != nil {
		t.Fatal(err)
	}

	control := us.Controls[0]
	control.Kill()
	if err := os.RemoveAll(control.Data); err != nil {
		t.Fatal(err)
	}
	control.Start()
	control.AwaitReady()
	var said bytes.Buffer
	admin := []string{"admin", "--server", control.URL, "--token", testcluster.Token, "restore", "--lost", region.Authority}
	if code := run(t.Context(), admin, &env{stdout: &said, stderr: &said}); code != 0 || !strings.Contains(said.String(), "in history 2") {
		t.Fatalf("restore: %d, %s", code, &said)
	}
	awaitRecovered(t, us)
	cl := adminClient(t, us)
	for i, n := range us.Nodes {
		token, in, zone := testcluster.NodeToken, fsm.RegionName("us"), fsm.ZoneName(fmt.Sprintf("z%d", i+1))
		if _, _, err := cl.PutNode(t.Context(), fsm.NodeName(n.ID), proto.PutNode{Addr: &n.Via, Token: &token, Region: &in, Zone: &zone}); err != nil {
			t.Fatal(err)
		}
	}
	var found []proto.Orphan
	wait.For(t, "every node is read, and its tenants are told of", func() error {
		rc := recovery(t, us)
		if found = rc.Orphans; len(found) != len(names) || len(rc.Unread) > 0 {
			return fmt.Errorf("%+v", rc)
		}
		return nil
	})
	for _, o := range found {
		tenant, _, _ := o.Unit.Split()
		if _, err := cl.Adopt(t.Context(), proto.Adopt{Tenant: tenant, ID: o.ID, Node: o.Node}); err != nil {
			t.Fatal(err)
		}
	}
	awaitProgress(t, rec, 5, names...)
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, r.Global, names...), time.Minute); err != nil {
		t.Error(err)
	}
	r.Verify(names...)
}
