package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/faultpoint"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// TestI10FullDiskOfANode: on a disk that is full writes are refused with 507
// and change nothing, reads go on, and with room again writes are taken, all
// acknowledged rows being there, also after a kill -9.
func TestI10FullDiskOfANode(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1, Disks: testcluster.NeedDisks})
	node, url := c.Nodes[0], c.Proxies[0].URL
	c.Must(c.Do(http.MethodPut, url+"/_shard/tenants/acme", `{"schema":"create table log (n integer, filler text)"}`), http.StatusCreated)
	insert := func(n int) testcluster.Answer {
		return c.Do(http.MethodPost, url+"/t/acme/query", fmt.Sprintf(`{"sql":"insert into log values (%d, ?)","args":[%q]}`, n, strings.Repeat("x", 30000)))
	}
	acknowledged := 0
	for ; acknowledged < 20; acknowledged++ {
		c.Must(insert(acknowledged+1), http.StatusOK)
	}
	node.FillDisk()
	full := false
	for range 1000 { // the WAL may have room that was used before
		a := insert(acknowledged + 1)
		if a.Status != http.StatusOK {
			c.Must(a, http.StatusInsufficientStorage)
			full = true
			break
		}
		acknowledged++
	}
	if !full {
		t.Fatalf("the disk was never full: %d writes were acknowledged", acknowledged)
	}
	rows := func() (n int64) {
		var got struct{ Rows [][]int64 }
		c.Must(c.Do(http.MethodPost, url+"/t/acme/query", `{"sql":"select count(*) from log"}`), http.StatusOK).Decode(t, &got)
		return got.Rows[0][0]
	}
	if n := rows(); n != int64(acknowledged) {
		t.Errorf("%d rows were acknowledged, %d are there", acknowledged, n)
	}
	node.Kill()
	node.Start()
	node.AwaitReady()
	node.FreeDisk()
	wait.For(t, "writes are taken again", func() error {
		if a := insert(acknowledged + 1); a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	if n := rows(); n != int64(acknowledged)+1 {
		t.Errorf("%d rows were acknowledged, %d are there", acknowledged+1, n)
	}
	c.Verify("acme")
}

// routersOf stands for the routers of any number of regions, which the returned function
// gives the addresses of: what each is asked tells by its address which region's it is.
func routersOf(t *testing.T, c *testcluster.Cluster, control string) func(region int) []string {
	var global proto.Group
	c.Must(c.Do(http.MethodGet, control+"/_shard/group", ""), http.StatusOK).Decode(t, &global)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var high, low, one int
		at := r.Context().Value(http.LocalAddrContextKey) // proxies that watch it name no host
		if _, err := fmt.Sscanf(fmt.Sprint(at), "127.%d.%d.%d:", &high, &low, &one); err != nil {
			t.Errorf("asked at %v: %v", at, err)
		}
		name := fmt.Sprintf("r%d", high*200+low)
		about := proto.Group{Region: fsm.RegionName(name), Authority: name + "/" + name, Global: &proto.GroupCopy{Authority: global.Authority}}
		if err := json.NewEncoder(w).Encode(about); err != nil {
			t.Error(err)
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return func(region int) []string {
		var all []string
		for one := 1; one <= 8; one++ {
			all = append(all, fmt.Sprintf("http://127.%d.%d.%d:%s", region/200, region%200, one, port))
		}
		return all
	}
}

// TestI3FullDiskOfAControlServer: a group whose only server has a full disk
// refuses changes with an error that says so, loses nothing, and takes them
// again once there is room.
func TestI3FullDiskOfAControlServer(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1, Disks: testcluster.NeedDisks})
	server := c.Controls[0]
	routers := routersOf(t, c, server.URL)
	put := func(n int) testcluster.Answer {
		return c.Do(http.MethodPut, fmt.Sprintf("%s/_shard/regions/r%d", server.URL, n), `{"routers":["`+strings.Join(routers(n), `","`)+`"]}`)
	}
	acknowledged := 0
	for ; acknowledged < 100; acknowledged++ {
		c.Must(put(acknowledged), http.StatusCreated)
	}
	server.FillDisk()
	full := false
	for ; acknowledged < 20000; acknowledged++ { // the log's file has room that it took before
		if a := put(acknowledged); a.Status != http.StatusCreated {
			if full = true; a.Status < 500 {
				t.Errorf("a change on a full disk: got %s", a)
			}
			break
		}
	}
	if !full {
		t.Fatal("the disk was never full")
	}
	server.Kill()
	server.FreeDisk()
	server.Start()
	server.AwaitReady()
	wait.For(t, "changes are taken again", func() error {
		if a := put(acknowledged + 1); a.Status/100 != 2 {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	var regions []struct{ Name string }
	c.Must(c.Do(http.MethodGet, server.URL+"/_shard/regions", ""), http.StatusOK).Decode(t, &regions)
	have := map[string]bool{}
	for _, r := range regions {
		have[r.Name] = true
	}
	for n := range acknowledged {
		if !have[fmt.Sprintf("r%d", n)] {
			t.Fatalf("region r%d was acknowledged and is gone", n)
		}
	}
	c.Verify()
}

// TestFaultsI10FailingDiskUnderLoad: syncs and renames of a node's files that fail,
// a full disk of a copy's node, and a leader whose log cannot be written: nothing
// that was acknowledged is lost, no two nodes acknowledge, and once the disks are
// well all is written and copied as before.
func TestFaultsI10FailingDiskUnderLoad(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{
		Controls: 3, Nodes: 3, Proxies: 2, Faults: true, Disks: testcluster.NeedDisks,
		ControlArgs: faultControlArgs(faultLease), NodeArgs: []string{"--lease"},
	})
	names := tenantNames("f", 3)
	createReplicated(t, c, "n1", names...)
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, names...)
	fails := func(p *testcluster.Process, action faultpoint.Action, label string) {
		t.Helper()
		r := faultpoint.Rule{Action: action, Label: label, On: faultpoint.Any}
		heal := p.Fault(r)
		wait.For(t, fmt.Sprintf("%s of %s", r, p.ID), func() error {
			if p.Hits(r) == 0 {
				return fmt.Errorf("it has not happened")
			}
			return nil
		})
		pass(faultLease)
		heal()
		p.AwaitRevived(func(code int) { // a control server gives up on its disk, and is started again
			if code == panicked {
				t.Errorf("%s panicked:\n%s", p.Name, p.Log())
			}
		})
		awaitProgress(t, rec, 10, names...)
	}
	fails(c.Nodes[0], faultpoint.Fail, "store.sync")
	fails(c.Nodes[0], faultpoint.Full, "store.sync")
	for _, n := range c.Nodes[1:] {
		n.FillDisk()
	}
	pass(2 * faultLease)
	for _, n := range c.Nodes[1:] {
		n.FreeDisk()
	}
	awaitProgress(t, rec, 10, names...)
	fails(c.Leader(), faultpoint.Fail, "raft.log")
	c.AwaitCopiesInSync(1, names...)
	fails(c.Leader(), faultpoint.Hang, "raft.log")
	c.AwaitCopiesInSync(1, names...)
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}
