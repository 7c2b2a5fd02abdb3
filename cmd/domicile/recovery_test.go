package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/client"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// recoverFolder runs domicile recover on a server's folder.
func recoverFolder(t *testing.T, p *testcluster.Process, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	all := append([]string{"recover", "--data", p.Data}, args...)
	if code := run(context.Background(), all, &env{stdout: &out, stderr: &out}); code != 0 {
		t.Fatalf("domicile %s: status %d: %s", strings.Join(all, " "), code, &out)
	}
	return out.String()
}

func recovery(t *testing.T, c *testcluster.Cluster) (r proto.Recovery) {
	t.Helper()
	wait.For(t, "the recovery is told of", func() error {
		a := c.Do(http.MethodGet, c.Controls[0].URL+"/_shard/recovery", "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		r = proto.Recovery{}
		a.Decode(t, &r)
		return nil
	})
	return r
}

func awaitRecovered(t *testing.T, c *testcluster.Cluster) (r proto.Recovery) {
	t.Helper()
	wait.For(t, "the directory is recovered", func() error {
		if r = recovery(t, c); r.Recovering || r.Ended == 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return r
}

// TestFaultsO6RecoverFromALostMajority: the server that is kept knows nothing of a
// failover, and nothing of a tenant, that came after it was cut off; the two that knew
// are lost. The tenants take writes again and nothing that was acknowledged is lost;
// the two change nothing when they come back; the tenant that the directory does not know
// is kept, and adopted.
func TestFaultsO6RecoverFromALostMajority(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 3, usualLease) // nothing fails over but what the test has fail
	names := tenantNames("r", 3)
	createReplicated(t, c, "n1", names...)
	lost, kept := c.Controls[:2], c.Controls[2]
	kept.Kill()
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Kill() // the failover is in no log but those of the lost
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Start()
	c.Nodes[0].AwaitReady()
	c.AwaitCopiesInSync(1, names...)
	createReplicated(t, c, "n2", "late")
	rec2 := history.NewRecorder()
	late := history.Start(history.LoadConfig{Recorder: rec2, Units: []string{"late"}, Proxies: proxyURLs(c), Clients: 1, Pause: loadPause(), Timeout: 30 * time.Second, Seed: 2})
	awaitProgress(t, rec2, 20, "late")
	late.Stop()
	awaitProgress(t, rec, 10, names...)
	for _, p := range lost {
		p.Kill()
	}

	if said := recoverFolder(t, kept); !strings.Contains(said, "nothing was changed") || !strings.Contains(said, "--lost c1,c2") {
		t.Errorf("domicile recover says %q", said)
	}
	recoverFolder(t, kept, "--lost", "c1,c2")
	kept.Start()
	c.Controls = []*testcluster.Process{kept}
	if r := awaitRecovered(t, c); r.History != 2 || r.Cause != "majority_lost" || r.Units != 3 || r.Moved != 3 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	kept.AwaitReady()
	awaitProgress(t, rec, 30, names...)

	// The lost come back with their folders: a majority of the group that was.
	for _, p := range lost {
		p.Start()
	}
	old := &testcluster.Cluster{Controls: lost}
	wait.For(t, "the lost have a leader that is refused by the nodes", func() error {
		for _, p := range lost {
			if strings.Contains(p.Log(), "newer holder: authority") {
				return nil
			}
		}
		return errors.New("no node has refused one yet")
	})
	awaitProgress(t, rec, 30, names...)
	if a := old.Do(http.MethodPut, lost[0].URL+"/_shard/tenants/stray", "{}"); a.Status == http.StatusCreated {
		t.Errorf("the lost create tenants: %s", a)
	}
	for _, p := range lost {
		p.Kill()
	}
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}

	r := recovery(t, c)
	var orphan proto.Orphan
	for _, o := range r.Orphans {
		if o.Unit != "late" {
			t.Errorf("orphan %+v", o)
		} else if o.Role == "primary" {
			orphan = o
		}
	}
	if len(r.Orphans) != 2 || orphan.Node == "" {
		t.Fatalf("orphans: %+v", r.Orphans)
	}
	cl := adminClient(t, c)
	if _, err := cl.Adopt(context.Background(), proto.Adopt{Tenant: "late", ID: orphan.ID + 1, Node: orphan.Node}); err == nil {
		t.Error("adopted under another id")
	}
	if got, err := cl.Adopt(context.Background(), proto.Adopt{Tenant: "late", ID: orphan.ID, Node: orphan.Node}); err != nil || got.Node != orphan.Node {
		t.Fatalf("adopt: %+v, %v", got, err)
	}
	if err := history.Check(rec2.Ops(), finalLogs(t, c, "late"), time.Minute); err != nil {
		t.Error(err)
	}
	for _, p := range c.Proxies { // the others ask the lost first, whose links take connections here
		p.Kill()
	}
	c.Proxies = nil
	c.AddProxy().AwaitReady()
	c.AwaitCopiesInSync(1, append(names, "late")...)
	c.Verify(append(names, "late")...)
}

// TestFaultsO6AnOldBackupIsRestored: nodes hold newer branches than the backup knows, and
// one is silent. Nothing is done before it is written off; then the newest branch of each
// tenant is served.
func TestFaultsO6AnOldBackupIsRestored(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{
		Controls: 1, Nodes: 3, Proxies: 1, Faults: true,
		ControlArgs: []string{"--auto-failover", faultLease.String(), "--repair-after", "1s", "--remove-after", "1s"},
		NodeArgs:    []string{"--lease"},
	})
	names := tenantNames("b", 2)
	createReplicated(t, c, "n1", names...)
	createReplicated(t, c, "n2", "gone")
	cl := adminClient(t, c)
	file := filepath.Join(t.TempDir(), "directory.backup")
	admin := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := run(context.Background(), append([]string{"admin", "--server", c.Controls[0].URL, "--token", testcluster.Token}, args...), &env{stdout: &out, stderr: &out})
		return out.String(), code
	}
	if said, code := admin("backup", file); code != 0 || !strings.Contains(said, "3 tenants") {
		t.Fatalf("backup: %d, %s", code, said)
	}
	if said, code := admin("backup", file); code != 2 {
		t.Errorf("a backup over another: %d, %s", code, said)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", info, err)
	}

	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 3})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Kill() // the backup says that they are here
	awaitProgress(t, rec, 10, names...)
	c.Nodes[0].Start()
	c.Nodes[0].AwaitReady()
	c.AwaitCopiesInSync(1, names...)
	if err := cl.DeleteTenant(context.Background(), "gone"); err != nil {
		t.Fatal(err)
	}
	silent := silentNode(t, c, names)
	control := c.Controls[0]
	control.Kill()
	silent.Kill()
	if err := os.RemoveAll(control.Data); err != nil {
		t.Fatal(err)
	}
	control.Start()
	control.AwaitReady()
	if said, code := admin("restore", file); code != 0 || !strings.Contains(said, "history 2, 3 tenants, 3 nodes") {
		t.Fatalf("restore: %d, %s", code, said)
	}
	if said, code := admin("restore", file); code != 1 || !strings.Contains(said, "holds something already") {
		t.Errorf("restored twice: %d, %s", code, said)
	}
	wait.For(t, "all nodes but the silent one are read", func() error {
		for _, n := range recovery(t, c).Nodes {
			if want := string(n.Node) != silent.ID; (n.State == "lease_running" || n.State == "read") != want {
				return fmt.Errorf("%+v", n)
			}
		}
		return nil
	})
	at := time.Now()
	quick, err := client.New(client.Config{Servers: []string{control.URL}, Token: testcluster.Token, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var said *client.Error
		if _, err := quick.CreateTenant(context.Background(), "early", proto.PutTenant{}); !errors.As(err, &said) || said.Code != "recovering" || said.Status != 503 {
			t.Fatalf("create while recovering, after %v: %v", time.Since(at), err)
		}
		pass(faultLease)
	}
	acked := rec.Acked(names[0])
	if r := recovery(t, c); !r.Recovering {
		t.Fatalf("it did not wait for %s: %+v", silent.ID, r)
	}
	if said, code := admin("recovery"); code != 0 || !strings.Contains(said, silent.ID) || !strings.Contains(said, "to_be_read") {
		t.Errorf("recovery: %d, %s", code, said)
	}
	if said, code := admin("recovery", "write-off", silent.ID); code != 0 {
		t.Fatalf("write-off: %d, %s", code, said)
	}
	r := awaitRecovered(t, c)
	if r.Units != 3 || r.Moved < 2 || r.Lost != 1 || len(r.LostUnits) != 1 || r.LostUnits[0].Tenant != "gone" || len(r.WrittenOff) != 1 {
		t.Errorf("%+v", r)
	}
	awaitProgress(t, rec, 30, names...)
	silent.Start()
	silent.AwaitReady()
	awaitProgress(t, rec, 30, names...)
	load.Stop()
	t.Logf("%d writes of %s were acknowledged before the write-off, %d in all", acked, names[0], rec.Acked(names[0]))
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	if err := cl.DeleteTenant(context.Background(), "gone"); err != nil {
		t.Errorf("a lost tenant is not deleted: %v", err)
	}
	c.AwaitCopiesInSync(1, names...)
	c.Verify(names...)
}

// silentNode gives the node that is the primary of none of the tenants.
func silentNode(t *testing.T, c *testcluster.Cluster, names []string) *testcluster.Process {
	t.Helper()
	primaries := map[string]bool{}
	for _, name := range names {
		var got struct{ Node string }
		c.Must(c.Do(http.MethodGet, c.Controls[0].URL+"/_shard/tenants/"+name, ""), 200).Decode(t, &got)
		primaries[got.Node] = true
	}
	for _, n := range c.Nodes {
		if !primaries[n.ID] {
			return n
		}
	}
	t.Fatal("every node is a primary's")
	return nil
}
