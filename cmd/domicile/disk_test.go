package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// smallDisk mounts a disk of that size, or skips the test where it may not.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a full disk takes a mount of its own, which needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func grow(t *testing.T, dir, size string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size); err != nil {
		t.Fatal(err)
	}
}

// TestI10FullDiskOfANode: on a disk that is full writes are refused with 507
// and change nothing, reads go on, and with room again writes are taken, all
// acknowledged rows being there, also after a kill -9.
func TestI10FullDiskOfANode(t *testing.T) {
	disk := smallDisk(t, "6m")
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1, NodeArgs: []string{"--data", filepath.Join(disk, "n1")}})
	url := c.Proxies[0].URL
	c.Must(c.Do(http.MethodPut, url+"/_shard/tenants/acme", `{"schema":"create table log (n integer, filler text)"}`), http.StatusCreated)
	insert := func(n int) testcluster.Answer {
		return c.Do(http.MethodPost, url+"/t/acme/query", fmt.Sprintf(`{"sql":"insert into log values (%d, ?)","args":[%q]}`, n, strings.Repeat("x", 30000)))
	}
	acknowledged := 0
	for acknowledged < 1000 {
		a := insert(acknowledged + 1)
		if a.Status == http.StatusOK {
			acknowledged++
			continue
		}
		if a.Status != http.StatusInsufficientStorage {
			t.Errorf("a write to a full disk: got %s, want 507", a)
		}
		break
	}
	if acknowledged == 0 || acknowledged == 1000 {
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
	c.Nodes[0].Kill()
	c.Nodes[0].Start()
	c.Nodes[0].AwaitReady()
	grow(t, disk, "64m")
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

// TestI3FullDiskOfAControlServer: a group whose only server has a full disk
// refuses changes with an error that says so, loses nothing, and takes them
// again once there is room.
func TestI3FullDiskOfAControlServer(t *testing.T) {
	disk := smallDisk(t, "2m")
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1, ControlArgs: []string{"--data", filepath.Join(disk, "c1")}})
	put := func(n int) testcluster.Answer {
		return c.Do(http.MethodPut, fmt.Sprintf("%s/_shard/regions/r%d", c.Controls[0].URL, n), fmt.Sprintf(`{"routers":["http://%s:1"]}`, strings.Repeat("a", 200)))
	}
	acknowledged := 0
	for acknowledged < 20000 {
		if a := put(acknowledged); a.Status != http.StatusCreated {
			if a.Status < 500 {
				t.Errorf("a change on a full disk: got %s", a)
			}
			break
		}
		acknowledged++
	}
	c.Controls[0].Kill()
	grow(t, disk, "64m")
	c.Controls[0].Start()
	c.Controls[0].AwaitReady()
	wait.For(t, "changes are taken again", func() error {
		if a := put(acknowledged + 1); a.Status/100 != 2 {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	var regions []struct{ Name string }
	c.Must(c.Do(http.MethodGet, c.Controls[0].URL+"/_shard/regions", ""), http.StatusOK).Decode(t, &regions)
	have := map[string]bool{}
	for _, r := range regions {
		have[r.Name] = true
	}
	for n := range acknowledged {
		if !have[fmt.Sprintf("r%d", n)] {
			t.Fatalf("region r%d was acknowledged and is gone", n)
		}
	}
	if acknowledged < 100 || acknowledged == 20000 {
		t.Errorf("the disk was full after %d changes, or never", acknowledged)
	}
	c.Verify()
}
