package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto"
)

// logged is a logger whose lines a test can read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Info})
}

func TestR3ForwardsFromTheCacheWithNoControlServer(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	path := filepath.Join(t.TempDir(), "directory")
	p := start(t, []string{control.URL}, func(c *Config) { c.Cache = path })
	p.await(control.change(n1.info(), placed("acme", "n1")))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	control.stop()

	again := start(t, []string{control.URL}, func(c *Config) { c.Cache = path })
	if a := again.get("/t/acme/query"); a.body != "n1" {
		t.Errorf("got %d %q, want the answer of n1", a.StatusCode, a.body)
	}
	a := again.get("/_ready")
	if a.StatusCode != 200 || a.Header.Get(proto.HeaderRevision) != "4" || !strings.Contains(a.body, `"status":"ready"`) {
		t.Errorf("/_ready: got %d %q, revision %q", a.StatusCode, a.body, a.Header.Get(proto.HeaderRevision))
	}
	if a := again.get("/t/acme/query"); a.StatusCode != 200 {
		t.Errorf("got %d", a.StatusCode)
	}
	again.get("/t/other/query").wants(t, 503, codeUnavailable)
}

// TestACachedCopyIsNotCalledStaleAtOnce: before the first server could be heard.
func TestACachedCopyIsNotCalledStaleAtOnce(t *testing.T) {
	control := newControlFake(t)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(placed("acme", "n1")))
	if heard := p.dir.isStale(staleAfter+1, 0); !heard {
		t.Error("a copy that was heard of and is old is not stale")
	}
	unheard := start(t, []string{unusedAddr(t)}, nil)
	for followed, want := range map[time.Duration]bool{0: false, staleAfter - 1: false, staleAfter: true} {
		if got := unheard.dir.isStale(time.Hour, followed); got != want {
			t.Errorf("followed for %v without a word: %v", followed, got)
		}
	}
	if unheard.dir.isStale(staleAfter-1, time.Hour) {
		t.Error("a copy that is not old is stale")
	}
}

// TestR4CopyIsAsOldAsItsServersIs: a server that has lost touch with its group makes no
// copy current.
func TestR4CopyIsAsOldAsItsServersIs(t *testing.T) {
	control := newControlFake(t)
	control.age = time.Minute
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(placed("acme", "n1")))
	var told struct {
		Age   float64 `json:"age_seconds"`
		Stale bool
	}
	a := p.get("/_ready")
	if err := json.Unmarshal([]byte(a.body), &told); err != nil || a.StatusCode != 200 || told.Age < 60 || told.Age > 120 || !told.Stale {
		t.Errorf("got %d %s, %v", a.StatusCode, a.body, err)
	}
}

func TestR3CacheIsWrittenWhileTheProxyRuns(t *testing.T) {
	control := newControlFake(t)
	path := filepath.Join(t.TempDir(), "directory")
	p := start(t, []string{control.URL}, func(c *Config) { c.Cache = path })
	eventually(t, func() error {
		if _, err := os.Stat(path); err != nil {
			return err
		}
		return nil
	})
	rev := control.change(placed("acme", "n1"))
	p.await(rev)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	tab, _, err := loadCache(path, 1)
	if err != nil || tab.position.Revision != rev {
		t.Errorf("after the stop the cache holds %+v, %v, want revision %d", tab, err, rev)
	}
}

func TestR3GarbledCacheIsLoggedAndIgnored(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	path := filepath.Join(t.TempDir(), "directory")
	if err := os.WriteFile(path, []byte(cacheFormat.Magic+"nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log logged
	p := start(t, []string{control.URL}, func(c *Config) { c.Cache, c.Logger = path, log.logger() })
	p.await(control.change(n1.info(), placed("acme", "n1")))
	if a := p.get("/t/acme/query"); a.body != "n1" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	if !strings.Contains(log.String(), "cached directory ignored") {
		t.Errorf("the log does not tell: %s", log.String())
	}
}

func TestR4ForeignOrOlderDirectoryIsNotApplied(t *testing.T) {
	control := newControlFake(t)
	n1 := newNode(t, "n1", nil)
	path := filepath.Join(t.TempDir(), "directory")
	p := start(t, []string{control.URL}, func(c *Config) { c.Cache = path })
	p.await(control.change(n1.info(), placed("acme", "n1")))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	foreign, older, empty := newControlFake(t), newControlFake(t), newControlFake(t)
	foreign.authority = "elsewhere/global"
	foreign.history = 9
	older.history = 0
	for _, c := range []*controlFake{foreign, older} {
		c.change(placed("acme", "n9"))
		c.change(placed("acme", "n9"))
	}
	for name, c := range map[string]*controlFake{"foreign": foreign, "older history": older, "emptied": empty} {
		var log logged
		p := start(t, []string{c.URL}, func(c *Config) { c.Cache, c.Logger = path, log.logger() })
		eventually(t, func() error {
			if !strings.Contains(log.String(), "stream of the directory ended") {
				return errors.New("the stream was not refused: " + log.String())
			}
			return nil
		})
		if a := p.get("/t/acme/query"); a.body != "n1" {
			t.Errorf("%s: got %d %q, want the last good directory in force", name, a.StatusCode, a.body)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestR4ARecoveredDirectoryTakesOver(t *testing.T) {
	control := newControlFake(t)
	n1, n2 := newNode(t, "n1", nil), newNode(t, "n2", nil)
	path := filepath.Join(t.TempDir(), "directory")
	p := start(t, []string{control.URL}, func(c *Config) { c.Cache = path })
	control.change(n1.info(), placed("acme", "n1"))
	p.await(control.change(placed("beta", "n1")))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	recovered := newControlFake(t)
	recovered.history = 2
	rev := recovered.change(n2.info(), placed("acme", "n2"))
	p = start(t, []string{recovered.URL}, func(c *Config) { c.Cache = path })
	eventually(t, func() error {
		if a := p.get("/t/acme/query"); a.body != "n2" {
			return errors.New(a.body)
		}
		return nil
	})
	if got := p.dir.table().position; got.Revision != rev || got.History != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestProxyFollowsAnotherServerWhenOneIsGone(t *testing.T) {
	one, two := newControlFake(t), newControlFake(t)
	p := start(t, []string{one.URL, two.URL}, nil)
	events := []fsm.Event{placed("acme", "n1")}
	one.change(events...)
	p.await(two.change(events...))
	first, other := one, two
	if p.dir.follower.Load().Server() == two.URL {
		first, other = two, one
	}
	first.stop()
	p.await(other.change(placed("beta", "n1")))
	if p.dir.table().seat([]byte("acme")) == nil {
		t.Error("what was known before is gone")
	}
}

func TestNodeThatChangesItsAddressIsFollowed(t *testing.T) {
	control := newControlFake(t)
	old, next := newNode(t, "n1", nil), newNode(t, "n1", nil)
	p := start(t, []string{control.URL}, nil)
	p.await(control.change(old.info(), placed("acme", "n1")))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a, err := p.do("POST", "/t/acme/query", nil, "x"); err != nil || a.StatusCode != 200 {
					t.Errorf("got %v %v %q", err, a.Response, a.body)
					return
				}
			}
		})
	}
	for i := range 20 {
		node := []*nodeFake{next, old}[i%2]
		p.await(control.change(node.info()))
	}
	p.await(control.change(next.info()))
	close(stop)
	wg.Wait()
	before := len(old.requests())
	if a := p.get("/t/acme/query"); a.StatusCode != 200 || len(old.requests()) != before {
		t.Errorf("got %d; the old address was asked", a.StatusCode)
	}
}

func TestAgeGrowsWhileNothingIsHeard(t *testing.T) {
	p := newDirectory(&upstreams{}, nil, "", nil)
	now := time.Now()
	if got := p.age(now); got != 0 {
		t.Errorf("without a copy: %v", got)
	}
	p.cachedAt = now.Add(-time.Hour)
	if got := p.age(now); got != time.Hour {
		t.Errorf("by the cache: got %v, want 1h", got)
	}
	p.cachedAt = now.Add(time.Hour) // the clock was set back
	if got := p.age(now); got != 0 {
		t.Errorf("got %v", got)
	}
}
