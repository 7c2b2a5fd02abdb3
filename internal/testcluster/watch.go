package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/internal/wait"
	"domicile/proto"
	"domicile/proto/follow"
)

// watches follow every group's directory from the test, as proxies do, and check each
// change that they are told of.
type watches struct {
	t      testing.TB
	global *Cluster

	mu     sync.Mutex // guards everything below, and the watches
	all    []*watch
	reads  map[span]window // when a unit had a reader
	doubts map[doubt]revisions
	wrong  []string // what must not be, at most maxWrong
}

const maxWrong = 20

// watch is the test's copy of one group's directory.
type watch struct {
	*watches
	c       *Cluster
	client  *follow.Client
	view    *fsm.View
	units   map[fsm.UnitName]bool // that the view places
	moving  map[fsm.UnitName]bool // of these: they may have been given up, for another directory too
	tenants map[fsm.TenantName]bool
}

// revisions are those that the two copies of a doubt have to come to; zero until they are known.
type revisions struct{ a, b fsm.Revision }

// doubt is a unit that two directories seem to place: it may be that the change of one of
// them is heard of late.
type doubt struct {
	unit fsm.UnitName
	a, b *watch
}

func watchAll(r *Regions) *watches {
	all := &watches{t: r.t, global: r.Global, reads: map[span]window{}, doubts: map[doubt]revisions{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, c := range r.groups() {
		w := &watch{watches: all, c: c, view: fsm.NewView()}
		w.forget()
		var urls []string
		for _, p := range c.Controls {
			urls = append(urls, p.URL)
		}
		client, err := follow.New(follow.Config{URLs: urls, Token: func() string { return Token }, Sink: w, Logger: hclog.NewNullLogger()})
		if err != nil {
			r.t.Fatal(err)
		}
		w.client = client
		all.all = append(all.all, w)
	}
	for _, w := range all.all {
		wg.Go(func() { _ = w.client.Run(ctx) })
	}
	wg.Go(func() { all.settleDoubts(ctx) })
	r.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return all
}

// settleDoubts looks at the doubts until ctx ends.
func (s *watches) settleDoubts(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.settle()
		}
	}
}

// settle takes a unit for placed twice where both copies that say so have what was committed
// once they did. That is asked: a server that was stopped takes itself for current as it goes on.
func (s *watches) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, want := range s.doubts {
		if want == (revisions{}) {
			s.mu.Unlock()
			want = revisions{d.a.committed(), d.b.committed()}
			s.mu.Lock()
			s.doubts[d] = want
		}
		switch {
		case !d.a.places(d.unit) || !d.b.places(d.unit):
			delete(s.doubts, d)
		case want.a == 0 || want.b == 0:
			s.doubts[d] = revisions{} // asked again
		case d.a.client.Position().Revision >= want.a && d.b.client.Position().Revision >= want.b:
			delete(s.doubts, d)
			s.say(d.a, "unit %s is placed here and in the directory of %s, too", d.unit, d.b.name())
		}
	}
}

// committed is the revision that the directory has come to, 0 where no server tells.
func (w *watch) committed() fsm.Revision {
	for _, p := range w.c.Controls {
		a := do(context.Background(), quick, http.MethodGet, p.URL+"/_shard/settings?consistent", "")
		if n, err := strconv.ParseUint(a.Header.Get(proto.HeaderRevision), 10, 64); a.Status == http.StatusOK && err == nil {
			return fsm.Revision(n)
		}
	}
	return 0
}

// doubt notes what other directories seem to place, too.
func (w *watch) doubt(u fsm.UnitName) {
	for _, other := range w.all {
		d := doubt{u, other, w}
		if _, known := w.doubts[d]; other != w && other.places(u) && w.places(u) && !known {
			w.doubts[d] = revisions{}
		}
	}
}

// places reports whether a directory has a unit written by a node of its own.
func (w *watch) places(u fsm.UnitName) bool { return w.units[u] && !w.moving[u] }

func (w *watch) forget() {
	w.units, w.moving, w.tenants = map[fsm.UnitName]bool{}, map[fsm.UnitName]bool{}, map[fsm.TenantName]bool{}
}

// Begin takes a whole directory (follow.Sink).
func (w *watch) Begin(at follow.Position) (follow.Loader, error) {
	return &watchLoad{w: w, at: at}, nil
}

type watchLoad struct {
	w      *watch
	at     follow.Position
	events []fsm.Event
}

func (l *watchLoad) Add(events []fsm.Event) error {
	l.events = append(l.events, events...)
	return nil
}
func (l *watchLoad) Abort() {}

func (l *watchLoad) Commit() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.view = fsm.NewView()
	l.w.forget()
	return l.w.apply(0, l.at.Revision, l.events)
}

// Apply takes one change (follow.Sink).
func (w *watch) Apply(prev fsm.Revision, at follow.Position, events []fsm.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apply(prev, at.Revision, events)
}

func (w *watch) apply(prev, at fsm.Revision, events []fsm.Event) error {
	if err := w.view.Apply(prev, at, events); err != nil {
		return err
	}
	last := map[fsm.UnitName]int{} // what is said of a unit before is of a node that may be gone
	for i := range events {
		if e := &events[i]; e.Unit != nil {
			last[e.Unit.Unit] = i
		} else if e.UnitGone != "" {
			last[e.UnitGone] = i
		}
	}
	for i := range events {
		switch e := &events[i]; {
		case e.Unit != nil:
			w.units[e.Unit.Unit] = true
			w.moving[e.Unit.Unit] = e.Unit.State == fsm.UnitMoving
			w.check(at, e.Unit, last[e.Unit.Unit] == i)
			w.doubt(e.Unit.Unit)
		case e.UnitGone != "":
			delete(w.units, e.UnitGone)
			w.noReaders(e.UnitGone, nil)
		case e.Tenant != nil:
			w.tenants[e.Tenant.Name] = true
		case e.TenantGone != "":
			delete(w.tenants, e.TenantGone)
		case e.Node != nil:
			if e.Node.Region != fsm.RegionName(w.c.region) && w.c != w.global {
				w.say(w, "at revision %d node %s of region %q is in the directory of %s", at, e.Node.Name, e.Node.Region, w.c.region)
			}
		}
	}
	return nil
}

// check is I2 on one unit: its copies are in its region, but for readers. now says that it
// is as the view has it; else it was, and its nodes may be gone since.
func (w *watch) check(at fsm.Revision, u *fsm.UnitInfo, now bool) {
	home, ok := w.view.Node(u.Node)
	if !ok && !now {
		return
	}
	if !ok {
		w.say(w, "at revision %d unit %s is on node %s, which the directory does not have", at, u.Unit, u.Node)
		return
	}
	readers := map[fsm.NodeName]bool{}
	for _, copied := range u.Copies {
		n, ok := w.view.Node(copied.Node)
		switch {
		case !ok && !now:
		case !ok:
			w.say(w, "at revision %d unit %s has a copy on node %s, which the directory does not have", at, u.Unit, copied.Node)
		case copied.State == fsm.CopyReader:
			readers[copied.Node] = true
			s := span{string(u.Unit), string(u.Node), string(copied.Node)}
			if in, ok := w.reads[s]; !ok || !in.end.IsZero() {
				w.reads[s] = window{begin: earlier(in.begin, time.Now())}
			}
		case n.Region != home.Region:
			w.say(w, "at revision %d unit %s of region %q has a copy on %s, in region %q", at, u.Unit, home.Region, copied.Node, n.Region)
		}
	}
	w.noReaders(u.Unit, readers)
}

// noReaders ends what was noted of a unit's readers, but for those that it has.
func (w *watch) noReaders(u fsm.UnitName, has map[fsm.NodeName]bool) {
	for s, in := range w.reads {
		if s.unit == string(u) && in.end.IsZero() && !has[fsm.NodeName(s.to)] {
			in.end = time.Now()
			w.reads[s] = in
		}
	}
}

func (s *watches) say(w *watch, format string, args ...any) {
	if len(s.wrong) < maxWrong {
		s.wrong = append(s.wrong, fmt.Sprintf("directory of %s: ", w.name())+fmt.Sprintf(format, args...))
	}
}

func (w *watch) name() string {
	if w.c == w.global {
		return "the global group"
	}
	return "region " + w.c.region
}

// current waits until the watch has what was committed before now.
func (w *watch) current() {
	var committed fsm.Revision
	wait.For(w.t, "the test's copy of the directory of "+w.name()+" is current", func() error {
		if committed == 0 {
			if committed = w.committed(); committed == 0 {
				return errors.New("which revision that is, is not told")
			}
		}
		if at := w.client.Position().Revision; at < committed {
			return fmt.Errorf("it is at revision %d, the directory at %d", at, committed)
		}
		return nil
	})
}
