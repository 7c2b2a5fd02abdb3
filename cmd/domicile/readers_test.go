package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// farCluster is a deployment of two nodes and a proxy in region eu, and one of each in us,
// with the tenant acme on n1, which is in sync on n2 and read on n3.
type farCluster struct {
	*testcluster.Cluster
	t         *testing.T
	home, far string // proxies
	n3        *testcluster.Process
	rows      int
}

func startFar(t *testing.T) *farCluster {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1,
		ControlArgs: faultControlArgs(usualLease), NodeArgs: []string{"--lease"}, ProxyArgs: []string{"--region", "eu"}})
	n3 := c.AddNodeIn("us", "z1", "--lease")
	p2 := c.AddProxy("--region", "us")
	p2.AwaitReady()
	f := &farCluster{Cluster: c, t: t, home: c.Proxies[0].URL, far: p2.URL, n3: n3}
	createReplicated(t, c, "n1", "acme")
	c.Must(c.Do(http.MethodPost, f.home+"/t/acme/query", `{"sql":"create table far (v text)"}`), http.StatusOK)
	c.Must(c.Do(http.MethodPut, f.far+"/_shard/tenants/acme/read-replicas/us", ""), http.StatusCreated)
	f.awaitReader()
	return f
}

// awaitReader waits until n3 has all rows that were written.
func (f *farCluster) awaitReader() {
	f.t.Helper()
	wait.For(f.t, "the read replica has the data", func() error {
		a := f.Do(http.MethodPost, f.n3.URL+"/t/acme/query", `{"sql":"select count(*) from far"}`, "Domicile-Mode", "read")
		if a.Status != http.StatusOK || !strings.Contains(string(a.Body), f.all()) {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// all is how an answer tells of all rows that were written.
func (f *farCluster) all() string { return fmt.Sprintf(`"rows":[[%d]]`, f.rows) }

// write adds a row, held while the tenant changes nodes, and gives its position.
func (f *farCluster) write() string {
	f.t.Helper()
	f.rows++
	a := f.Must(f.Do(http.MethodPost, f.home+"/t/acme/query", fmt.Sprintf(`{"sql":"insert into far values ('confidential %d')"}`, f.rows)), http.StatusOK)
	return a.Header.Get("Domicile-Position")
}

// reads has the far proxy answer with all rows that were written.
func (f *farCluster) reads(after string) {
	f.t.Helper()
	a := f.Must(f.Do(http.MethodPost, f.far+"/t/acme/query", `{"sql":"select count(*) from far"}`,
		"Domicile-Mode", "read", "Domicile-Prefer", "replica", "Domicile-After", after), http.StatusOK)
	if !strings.Contains(string(a.Body), f.all()) {
		f.t.Fatalf("the far proxy answers %s, want %s", a, f.all())
	}
}

// served counts the queries that n3 has answered.
func (f *farCluster) served() (n int) {
	f.t.Helper()
	a := f.Must(f.Do(http.MethodGet, f.n3.URL+"/_metrics", "", "Authorization", "Bearer "+testcluster.NodeToken), http.StatusOK)
	if m := regexp.MustCompile(`domicile_requests_total\{class="2xx",route="query"\} (\d+)`).FindSubmatch(a.Body); m != nil {
		fmt.Sscan(string(m[1]), &n)
	}
	return n
}

// on gives the node that the directory says writes the tenant.
func (f *farCluster) on() string {
	f.t.Helper()
	var tenant struct{ Node string }
	f.Must(f.Do(http.MethodGet, f.Controls[0].URL+"/_shard/tenants/acme", ""), http.StatusOK).Decode(f.t, &tenant)
	return tenant.Node
}

// TestC8R7FarReadsAreServedNearAndSeeWhatWasWritten: from the read replica, also after a
// failover at home; from the primary, while the replica is down.
func TestC8R7FarReadsAreServedNearAndSeeWhatWasWritten(t *testing.T) {
	t.Parallel()
	f := startFar(t)
	wait.For(t, "most reads are answered near", func() error { // one that is far behind is answered by the primary, and for seconds after it stood still
		before := f.served()
		for range 60 {
			f.reads(f.write())
		}
		if n := f.served() - before; n < 55 {
			return fmt.Errorf("the read replica answered %d of 60 reads", n)
		}
		return nil
	})
	f.n3.Kill()
	for range 5 {
		f.reads(f.write())
	}
	f.n3.Start()
	f.n3.AwaitReady()
	f.awaitReader()
	wait.For(t, "the far proxy reads near again", func() error {
		before := f.served()
		if f.reads(f.write()); f.served() == before {
			return errors.New("it asked the primary")
		}
		return nil
	})
	f.Node("n1").Kill()
	f.reads(f.write())
	if n := f.on(); n != "n2" {
		t.Errorf("the tenant is on %s", n)
	}
	wait.For(t, "the read replica follows the new primary", func() error {
		before := f.served()
		if f.reads(f.write()); f.served() == before {
			return errors.New("it is behind")
		}
		return nil
	})
	f.Node("n1").Start()
	f.Node("n1").AwaitReady()
	f.AwaitCopiesInSync(1, "acme")
	f.Verify("acme")
}

// TestC8L8NoFailoverGoesToAReadReplica: where its region is lost, the tenant is read in the
// other, and written nowhere, whatever is asked for.
func TestC8L8NoFailoverGoesToAReadReplica(t *testing.T) {
	t.Parallel()
	f := startFar(t)
	at := f.write()
	f.reads(at)
	f.Node("n2").Kill()
	wait.For(t, "the copy is given up", func() error {
		if a := f.Do(http.MethodPost, f.home+"/t/acme/query", `{"sql":"insert into far select 'alone' where not exists (select * from far where v = 'alone')"}`, "Domicile-Hold", "0"); a.Status != http.StatusOK {
			return fmt.Errorf("%s", a) // it may have been written all the same
		}
		return nil
	})
	f.rows++
	f.awaitReader()
	f.Node("n1").Kill()
	wait.For(t, "the primary is lost", func() error {
		if a := f.Do(http.MethodGet, f.Controls[0].URL+"/_shard/nodes/n1", ""); !contains(a, `"lost"`) {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	for _, body := range []string{``, `{"force":true}`} {
		if a := f.Do(http.MethodPost, f.Controls[0].URL+"/_shard/nodes/n1/failover", body); a.Status == http.StatusOK || contains(a, `"to":"n3"`) {
			t.Errorf("a failover by hand, %s: %s", body, a)
		}
	}
	if n := f.on(); n != "n1" {
		t.Errorf("the tenant is on %s", n)
	}
	f.reads("") // what is there may be old: nothing was asked for
	if a := f.Do(http.MethodPost, f.far+"/t/acme/query", `{"sql":"insert into far values ('far')"}`, "Domicile-Hold", "0"); a.Status < 500 {
		t.Errorf("it is written: %s", a)
	}
	for _, n := range []string{"n1", "n2"} {
		f.Node(n).Start()
		f.Node(n).AwaitReady()
	}
	f.AwaitCopiesInSync(1, "acme")
	f.reads(f.write())
	f.Verify("acme")
}

// TestC8I2NothingOfATenantIsLeftWhereItIsNotReadAnyMore, and a proxy that does not know
// yet reads on.
func TestC8I2NothingOfATenantIsLeftWhereItIsNotReadAnyMore(t *testing.T) {
	t.Parallel()
	f := startFar(t)
	f.reads(f.write())
	f.awaitReader()
	if n := filesWith(t, f.n3.Data, "confidential"); n == 0 {
		t.Fatal("what is looked for is not found where it is")
	}
	f.Must(f.Do(http.MethodDelete, f.home+"/_shard/tenants/acme/read-replicas/us", ""), http.StatusNoContent)
	wait.For(t, "the node holds nothing of the tenant", func() error {
		f.reads(f.write())
		if a := f.Do(http.MethodGet, f.n3.URL+"/_admin/units", ""); a.Status != http.StatusOK || contains(a, "acme") {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	wait.For(t, "no file in its folder holds rows", func() error { // they go after the unit is out of sight
		if n := filesWith(t, f.n3.Data, "confidential"); n > 0 {
			return fmt.Errorf("%d still do", n)
		}
		return nil
	})
	wait.For(t, "nothing keeps the node any more", func() error {
		if a := f.Do(http.MethodDelete, f.home+"/_shard/nodes/n3", ""); a.Status != http.StatusNoContent {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	f.n3.Stop()
	f.n3.Start()
	f.n3.AwaitReady()
	f.Verify("acme")
}

// filesWith counts the files below a folder that hold a text.
func filesWith(t *testing.T, dir, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // the node has replaced or removed it meanwhile
			return nil
		}
		if bytes.Contains(b, []byte(text)) {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
