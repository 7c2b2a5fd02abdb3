package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestL5TheFormerPrimaryTakesOverWhereTheCopyCameBackEmpty: primary and copy end at once;
// the copy is back first, with a new disk, and is given the tenant; then the primary is
// back with all of it.
func TestL5TheFormerPrimaryTakesOverWhereTheCopyCameBackEmpty(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1,
		ControlArgs: faultControlArgs(2 * time.Second), NodeArgs: []string{"--lease"}})
	proxy, primary, copied := c.Proxies[0].URL, c.Nodes[0], c.Nodes[1]
	createReplicated(t, c, "n1", "acme")
	write := func(n int) testcluster.Answer {
		return c.Do(http.MethodPost, proxy+"/t/acme/query", fmt.Sprintf(`{"sql":"create table if not exists seen%d (v)"}`, n), "Domicile-Hold", "200")
	}
	c.Must(write(1), http.StatusOK)
	primary.Kill()
	wipe(t, copied)
	wait.For(t, "the tenant is given to the copy, which does not have it", func() error {
		if a := c.Do(http.MethodGet, c.Controls[0].URL+"/_metrics", "", "Authorization", "Bearer "+testcluster.Token); !contains(a, "domicile_promotions_failed_total") || contains(a, "domicile_promotions_failed_total 0") {
			return fmt.Errorf("%d", a.Status)
		}
		return nil
	})
	primary.Start()
	primary.AwaitReady()
	wait.For(t, "the former primary writes it again", func() error {
		if a := write(2); a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	c.Must(c.Do(http.MethodPost, proxy+"/t/acme/query", `{"sql":"select * from seen1"}`), http.StatusOK)
	c.AwaitCopiesInSync(1, "acme")
	c.Verify("acme")
}

// TestL10ACopyThatRestartsWithoutAControlPlaneFollowsAgain: its primary may write only
// while it promises, and it promises over the connection by which it follows.
func TestL10ACopyThatRestartsWithoutAControlPlaneFollowsAgain(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1,
		ControlArgs: faultControlArgs(2 * time.Second), NodeArgs: []string{"--lease"}})
	createReplicated(t, c, "n1", "acme")
	write := func() error {
		a := c.Do(http.MethodPost, c.Proxies[0].URL+"/t/acme/query", `{"sql":"create table if not exists seen (v)"}`, "Domicile-Hold", "0")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	}
	c.Controls[0].Kill()
	wait.For(t, "the lease lapses, and the copy promises", func() error {
		a := c.Do(http.MethodGet, c.Nodes[0].URL+"/_admin/lease", "", "Authorization", "Bearer "+testcluster.NodeToken)
		if !contains(a, `"left_ms":0`) {
			return fmt.Errorf("%s", a)
		}
		return write()
	})
	c.Nodes[1].Kill()
	c.Nodes[1].Start()
	c.Nodes[1].AwaitReady()
	wait.For(t, "the primary writes again", write)
	c.Controls[0].Start()
	c.Controls[0].AwaitReady()
	c.AwaitCopiesInSync(1, "acme")
	c.Verify("acme")
}

// TestL7ANodeThatLostNothingKeepsNothingAside: its tenants were idle when it ended, and
// live on elsewhere when it is back; what it holds is removed.
func TestL7ANodeThatLostNothingKeepsNothingAside(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 3, Proxies: 1,
		ControlArgs: faultControlArgs(2 * time.Second), NodeArgs: []string{"--lease"}})
	createReplicated(t, c, "n1", "acme")
	back := c.Nodes[0]
	back.Kill()
	c.AwaitCopiesInSync(1, "acme")
	wait.For(t, "a copy is on another node", func() error {
		a := c.Do(http.MethodGet, c.Controls[0].URL+"/_shard/tenants/acme", "")
		var line struct{ Node, Replica string }
		if a.Status == http.StatusOK {
			a.Decode(t, &line)
		}
		if line.Node == "n1" || line.Replica == "n1" || line.Replica == "" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	c.AwaitCopiesInSync(1, "acme")
	back.Start()
	back.AwaitReady()
	wait.For(t, "it holds nothing", func() error {
		a := c.Do(http.MethodGet, back.URL+"/_admin/units", "", "Authorization", "Bearer "+testcluster.NodeToken)
		if !contains(a, "[]") {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	if files, err := os.ReadDir(filepath.Join(back.Data, "aside")); len(files) > 0 {
		t.Errorf("it keeps %v aside (%v)", files, err)
	}
	c.Verify("acme")
}

// TestL11ANodeWithoutLeaseHandsItsTenantsOver at a clean stop, like one that has a lease.
func TestL11ANodeWithoutLeaseHandsItsTenantsOver(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1, ControlArgs: faultControlArgs(2 * time.Second)})
	createReplicated(t, c, "n1", "acme")
	write := func(n int) testcluster.Answer {
		return c.Do(http.MethodPost, c.Proxies[0].URL+"/t/acme/query", fmt.Sprintf(`{"sql":"create table seen%d (v)"}`, n))
	}
	c.Must(write(1), http.StatusOK)
	c.Nodes[0].Stop()
	c.Must(write(2), http.StatusOK)
	c.Must(c.Do(http.MethodPost, c.Proxies[0].URL+"/t/acme/query", `{"sql":"select * from seen1"}`), http.StatusOK)
	c.Nodes[0].Start()
	c.Nodes[0].AwaitReady()
	c.AwaitCopiesInSync(1, "acme")
	c.Verify("acme")
	// Without a control plane nobody hands anything over, and the stop does not wait for it.
	c.Controls[0].Kill()
	c.Nodes[1].Stop()
	if log := c.Nodes[1].Log(); !strings.Contains(log, "stopping with units that were not handed over") {
		t.Error("a stop that leaves a tenant says nothing")
	}
	c.Nodes[1].Start()
	c.Controls[0].Start()
	c.Controls[0].AwaitReady()
	c.Nodes[1].AwaitReady()
}

func contains(a testcluster.Answer, text string) bool {
	return a.Status == http.StatusOK && bytes.Contains(a.Body, []byte(text))
}
