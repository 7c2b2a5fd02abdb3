package proxy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto/follow"
)

// directory is a proxy's copy of a directory: the table that requests read, and those
// who wait for a newer one. One goroutine changes it; reading needs no lock.
type directory struct {
	log     hclog.Logger
	nodes   *upstreams
	regions *regions
	// onChange is told of each new table once requests read it: what changed, or
	// that anything may have.
	onChange func(d *directory, events []fsm.Event, whole bool)
	// cache is the file that keeps it, "" for none.
	cache string

	current  atomic.Pointer[table]         // nil: none has arrived
	follower atomic.Pointer[follow.Client] // nil: it is not followed
	cachedAt time.Time                     // when the directory of the cache was known to be the newest; zero without one

	edits uint64 // given to edits; owned by whoever changes the directory

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by publish

	closing sync.WaitGroup // upstreams that no table names any more
}

func newDirectory(nodes *upstreams, onChange func(*directory, []fsm.Event, bool), cache string, log hclog.Logger) *directory {
	d := &directory{nodes: nodes, onChange: onChange, cache: cache, log: log, changed: make(chan struct{})}
	d.regions = &regions{dial: nodes.router, log: log, byName: map[fsm.RegionName]*region{}}
	return d
}

func (d *directory) table() *table { return d.current.Load() }

// Begin implements follow.Sink: it starts a whole directory.
func (d *directory) Begin(at follow.Position) (follow.Loader, error) {
	return &loader{dir: d, at: at, edit: newTable().edit(at.Revision, d.newEdit())}, nil
}

// loader builds a table that no one sees before Commit.
type loader struct {
	dir  *directory
	at   follow.Position
	edit *tableEdit
}

// Add implements follow.Loader.
func (l *loader) Add(events []fsm.Event) error { return l.edit.applyAll(events) }

// Commit implements follow.Loader: it puts the table in force.
func (l *loader) Commit() error {
	t := l.edit.seal(l.at)
	l.dir.publish(t, nil, true)
	return nil
}

// Abort implements follow.Loader.
func (l *loader) Abort() {}

// Apply implements follow.Sink: it takes the table from revision prev to at,
// and leaves it as it was on every error.
func (d *directory) Apply(prev fsm.Revision, at follow.Position, events []fsm.Event) error {
	t := d.table()
	if t == nil || t.position.Revision != prev || at.Revision <= prev {
		return fmt.Errorf("change from revision %d to %d: %w", prev, at.Revision, fsm.ErrGap)
	}
	edit := t.edit(at.Revision, d.newEdit())
	if err := edit.applyAll(events); err != nil {
		return err
	}
	d.publish(edit.seal(at), events, edit.attaches())
	return nil
}

// newEdit numbers an edit.
func (d *directory) newEdit() uint64 {
	d.edits++
	return d.edits
}

// publish makes t, which differs from the last one by events, what requests read;
// whole: nodes, regions or anything else may differ, too.
func (d *directory) publish(t *table, events []fsm.Event, whole bool) {
	var unused []*http1.Upstream
	if whole {
		unused = append(d.nodes.attach(t), d.regions.attach(t)...)
	}
	d.current.Store(t)
	d.mu.Lock()
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	d.onChange(d, events, whole)
	for _, u := range unused {
		// A request that read the table before finds it closed, reads the table
		// again and goes to the new address.
		d.closing.Go(u.Close)
	}
}

// next gives a channel that is closed when the table changes after this call.
func (d *directory) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// await waits until ok holds of the table, for no longer than limit and until
// gone is closed, and tells whether it holds.
func (d *directory) await(gone <-chan struct{}, limit time.Duration, ok func(*table) bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		changed := d.next()
		if t := d.table(); t != nil && ok(t) {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-gone:
			return false
		}
	}
}

// reached is the condition that a table holds everything up to rev.
func reached(rev fsm.Revision) func(*table) bool {
	return func(t *table) bool { return t.position.Revision >= rev }
}

// close closes the connections to all nodes and routers. Nothing may be published after
// it.
func (d *directory) close() {
	d.nodes.close()
	d.regions.close()
	d.closing.Wait()
}
