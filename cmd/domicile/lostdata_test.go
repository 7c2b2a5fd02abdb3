package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// codeOf is the "code" of a negative answer.
func codeOf(t *testing.T, a testcluster.Answer) string {
	t.Helper()
	var e struct{ Code string }
	a.Decode(t, &e)
	return e.Code
}

// wipe ends a node, removes its data folder and starts it again.
func wipe(t *testing.T, n *testcluster.Process) {
	t.Helper()
	n.Kill()
	if err := os.RemoveAll(n.Data); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.AwaitReady()
}

// TestT4ATenantThatItsNodeLostIsNever404: a tenant that the directory has, on a node
// that has lost its folder, is 503 through a proxy, for reads and writes; a tenant that
// there is not, and a path that the data API has not, are 404 as ever.
func TestT4ATenantThatItsNodeLostIsNever404(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 1, Proxies: 1})
	proxy, node := c.Proxies[0].URL, c.Nodes[0]
	c.Must(c.Do(http.MethodPut, proxy+"/_shard/tenants/acme", `{"schema":"create table log (n integer)"}`), http.StatusCreated)
	ask := func(hold string, url string) testcluster.Answer {
		return c.Do(http.MethodPost, url, `{"sql":"select 1"}`, "Domicile-Hold", hold)
	}
	c.Must(ask("0", proxy+"/t/acme/query"), http.StatusOK)
	wipe(t, node)
	for _, hold := range []string{"0", "200"} {
		wait.For(t, "the proxy reaches the node again", func() error {
			if a := ask(hold, proxy+"/t/acme/query"); a.Status != http.StatusBadGateway {
				return nil
			}
			return os.ErrDeadlineExceeded
		})
		a := c.Must(ask(hold, proxy+"/t/acme/query"), http.StatusServiceUnavailable)
		if code := codeOf(t, a); code != "misdirected" || a.Header.Get("Retry-After") == "" {
			t.Errorf("held for %s ms: %s, Retry-After %q", hold, a, a.Header.Get("Retry-After"))
		}
		c.Must(c.Do(http.MethodPost, proxy+"/t/acme/v2/pipeline", `{"requests":[]}`, "Domicile-Hold", hold), http.StatusServiceUnavailable)
	}
	for url, code := range map[string]string{
		proxy + "/t/globex/query":  "unknown_tenant",
		proxy + "/t/acme/nothing":  "unknown_route",
		node.URL + "/t/acme/query": "unknown_tenant", // nobody said that it is here
	} {
		if a := c.Must(ask("0", url), http.StatusNotFound); codeOf(t, a) != code {
			t.Errorf("%s: %s, want %s", url, a, code)
		}
	}
}

// TestL11C6AWipedNodeGivesWhatItHeldToItsCopies: a node that comes back within its lease
// with an empty folder: its tenants are answered by their copies, with all that was
// acknowledged, without a 404 in between, and it has copies again.
func TestL11C6AWipedNodeGivesWhatItHeldToItsCopies(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 2, 5*time.Second)
	names := tenantNames("w", 3)
	createReplicated(t, c, "n1", names...)
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 20, names...)
	wipe(t, c.Node("n1"))
	for _, name := range names {
		awaitPrimary(t, c, name, "n2")
	}
	awaitProgress(t, rec, 20, names...)
	c.AwaitCopiesInSync(1, names...)
	load.Stop()
	for _, o := range rec.Ops() {
		if strings.Contains(o.Why, "404") || strings.Contains(o.Why, "unknown_tenant") {
			t.Errorf("a %s of %s: %s", o.Kind, o.Unit, o.Why)
		}
	}
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}

// unitFile is the path of a unit's database on a node.
func unitFile(t *testing.T, n *testcluster.Process, unit string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.Data, "units", "*", unit+".db"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the file of %s on %s: %v, %v", unit, n.ID, found, err)
	}
	return found[0]
}

// fill gives a tenant rows that take many pages, which no write touches afterwards.
func fill(c *testcluster.Cluster, url string) {
	c.Must(c.Do(http.MethodPost, url+"/query", `{"sql":"create table filler (n integer primary key, x blob)"}`), http.StatusOK)
	c.Must(c.Do(http.MethodPost, url+"/query", `{"sql":"with recursive s(n) as (select 1 union all select n+1 from s where n < 200) insert into filler select n, randomblob(3000) from s"}`), http.StatusOK)
}

// awaitClosed waits until a node has closed a unit, all of it being in its file.
func awaitClosed(t *testing.T, path string) {
	t.Helper()
	wait.For(t, path+" is closed", func() error {
		if st, err := os.Stat(path + "-wal"); err == nil {
			return fmt.Errorf("its WAL has %d bytes", st.Size())
		}
		return nil
	})
}

// damages are what can be done to a database's file.
var damages = map[string]func(path string) error{
	"header":  func(path string) error { return overwrite(path, 0, 100) },
	"page":    func(path string) error { return overwrite(path, 4096*10, 4096*60) },
	"missing": os.Remove,
	"unreadable": func(path string) error {
		return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
	},
}

func overwrite(path string, from, bytes int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strings.Repeat("\xa5", int(bytes))), from)
	return errors.Join(err, f.Close())
}

// damagedCluster has a tenant for each kind of damage on n1, each with a copy in sync on
// n2 and a row that was acknowledged, and all of them closed on n1.
func damagedCluster(t *testing.T) (*testcluster.Cluster, []string) {
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1,
		// Long leases: no tenant is to change nodes before its file is damaged.
		ControlArgs: []string{"--auto-failover", "5s", "--repair-after", "1s", "--remove-after", "1s"},
		NodeArgs:    []string{"--lease", "--idle-close", "300ms"}})
	var names []string
	for name := range damages {
		names = append(names, name)
	}
	createReplicated(t, c, "n1", names...)
	for _, name := range names {
		url := c.Proxies[0].URL + "/t/" + name
		fill(c, url)
		c.Must(c.Do(http.MethodPost, url+"/query", `{"sql":"create table mine (n integer)"}`), http.StatusOK)
		c.Must(c.Do(http.MethodPost, url+"/query", `{"sql":"insert into mine values (41)"}`), http.StatusOK)
	}
	for _, name := range names {
		awaitClosed(t, unitFile(t, c.Node("n1"), name))
	}
	return c, names
}

const wholeQuery = `{"sql":"select count(*), sum(length(x)), (select max(n) from mine) from filler"}`

func isWhole(t *testing.T, a testcluster.Answer) {
	t.Helper()
	var got struct{ Rows json.RawMessage }
	if a.Decode(t, &got); string(got.Rows) != "[[200,600000,41]]" {
		t.Errorf("the tenant holds %s", a)
	}
}

// keptAside gives what a node keeps aside of a unit.
func keptAside(t *testing.T, n *testcluster.Process, unit string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Data, "aside", unit+"@*.damaged.db"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestI10ADamagedPrimaryIsGivenToItsCopy: a primary's file that is altered, cut off or
// unreadable while its node is up and leased goes to the copy by itself, with all that was
// acknowledged; where the file cannot be opened no request fails. What is left of the file
// is kept aside, and the node has a copy again, from an image.
func TestI10ADamagedPrimaryIsGivenToItsCopy(t *testing.T) {
	t.Parallel()
	c, names := damagedCluster(t)
	for _, name := range names {
		path := unitFile(t, c.Node("n1"), name)
		if err := damages[name](path); err != nil {
			t.Fatal(err)
		}
		url := c.Proxies[0].URL + "/t/" + name + "/query"
		wait.For(t, name+" is answered whole", func() error {
			a := c.Do(http.MethodPost, url, wholeQuery)
			if a.Status == http.StatusOK {
				isWhole(t, a)
				return nil
			}
			if code := codeOf(t, a); name != "page" || code != "unit_damaged" {
				t.Errorf("%s: a read is answered %s", name, a)
			}
			return fmt.Errorf("%s", a)
		})
		awaitPrimary(t, c, name, "n2")
		c.Must(c.Do(http.MethodPost, url, `{"sql":"insert into mine values (40)"}`), http.StatusOK)
	}
	c.AwaitCopiesInSync(1, names...)
	for _, name := range names {
		if kept := keptAside(t, c.Node("n1"), name); len(kept) != 1 && name != "missing" || len(kept) > 0 && name == "missing" {
			t.Errorf("%s: n1 keeps %v aside", name, kept)
		}
	}
	c.Verify(names...)
}

// TestI10ADamagedFileIsMetAtTheStart: a node is killed under load, its file is altered,
// and it is started again within its lease: what was acknowledged is all on the copy,
// which takes over.
func TestI10ADamagedFileIsMetAtTheStart(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 2, 5*time.Second)
	names := tenantNames("d", 3)
	createReplicated(t, c, "n1", names...)
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 30 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 20, names...)
	n1 := c.Node("n1")
	n1.Kill()
	if err := damages["header"](unitFile(t, n1, names[0])); err != nil {
		t.Fatal(err)
	}
	if err := damages["header"](unitFile(t, n1, names[1]) + "-wal"); err != nil {
		t.Fatal(err)
	}
	n1.Start()
	n1.AwaitReady()
	awaitPrimary(t, c, names[0], "n2")
	awaitPrimary(t, c, names[1], "n2")
	awaitProgress(t, rec, 20, names...)
	c.AwaitCopiesInSync(1, names...)
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify(names...)
}

// TestL6ForceBringsATenantBackThatItsNodeLost: the copy was cut off, so that the node
// acknowledged alone; then the node lost its folder. By hand, with force, the tenant is
// back as its copy has it, and the answer says what it lacks.
func TestL6ForceBringsATenantBackThatItsNodeLost(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Controls: 1, Nodes: 2, Proxies: 1,
		ControlArgs: []string{"--auto-failover", "1s", "--repair-after", "1s", "--remove-after", "1s"}, NodeArgs: []string{"--lease"}})
	createReplicated(t, c, "n1", "acme")
	url, n1, n2 := c.Proxies[0].URL+"/t/acme/query", c.Node("n1"), c.Node("n2")
	c.Must(c.Do(http.MethodPost, url, `{"sql":"create table mine (n integer)"}`), http.StatusOK)
	c.Must(c.Do(http.MethodPost, url, `{"sql":"insert into mine values (1)"}`), http.StatusOK)
	n2.Kill()
	alone := c.Must(c.Do(http.MethodPost, url, `{"sql":"insert into mine values (2)"}`), http.StatusOK)
	wipe(t, n1)
	n2.Start()
	n2.AwaitReady()
	failover := func(body string) testcluster.Answer {
		return c.Do(http.MethodPost, c.Controls[0].URL+"/_shard/nodes/n1/failover", body)
	}
	wait.For(t, "n1 says that it does not hold it", func() error {
		if a := c.Do(http.MethodPost, url, `{"sql":"select 1"}`, "Domicile-Hold", "0"); a.Status != http.StatusServiceUnavailable || codeOf(t, a) != "misdirected" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	c.Must(failover(""), http.StatusConflict)
	var got struct {
		Promoted []struct {
			Tenant, To, Position string
			NotInSync            bool `json:"not_in_sync"`
		}
	}
	wait.For(t, "it is given to n2 by force", func() error {
		a := failover(`{"force":true}`)
		if a.Status != http.StatusOK { // n2 may not have answered yet
			return fmt.Errorf("%s", a)
		}
		a.Decode(t, &got)
		return nil
	})
	if len(got.Promoted) != 1 || got.Promoted[0].To != "n2" || !got.Promoted[0].NotInSync || got.Promoted[0].Position >= alone.Header.Get("Domicile-Position") {
		t.Errorf("%+v; acknowledged alone was %s", got, alone.Header.Get("Domicile-Position"))
	}
	var rows struct{ Rows [][]int }
	c.Must(c.Do(http.MethodPost, url, `{"sql":"select n from mine"}`), http.StatusOK).Decode(t, &rows)
	if fmt.Sprint(rows.Rows) != "[[1]]" {
		t.Errorf("it holds %v", rows.Rows)
	}
	c.AwaitCopiesInSync(1, "acme")
	c.Verify("acme")
}
