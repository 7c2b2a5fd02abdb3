package proxy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// directory is a proxy's copy of the directory: the table that requests read,
// how old it is, and those who wait for a newer one. One goroutine changes it;
// reading needs no lock.
type directory struct {
	log   hclog.Logger
	nodes *upstreams

	current atomic.Pointer[table] // nil: none has arrived
	asOf    atomic.Int64          // Unix milliseconds at which current was known to be the newest

	// owned by whoever changes it
	edits   uint64     // ids given to edits
	loading *tableEdit // between begin and end

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by publish

	closing sync.WaitGroup // upstreams that no table names any more
}

func newDirectory(nodes *upstreams, log hclog.Logger) *directory {
	return &directory{nodes: nodes, log: log, changed: make(chan struct{})}
}

func (d *directory) table() *table { return d.current.Load() }

// begin starts a whole directory, which takes the table's place with end.
func (d *directory) begin(rev fsm.Revision) {
	d.edits++
	d.loading = newTable().edit(rev, d.edits)
}

// load takes a part of it.
func (d *directory) load(events []fsm.Event) error {
	for i := range events {
		if err := d.loading.apply(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// end puts it in force.
func (d *directory) end(from source) {
	edit := d.loading
	d.loading = nil
	t := edit.seal()
	t.source = from
	d.publish(t, true)
}

// apply takes the table from revision prev to rev; fsm.ErrGap where it does not
// stand at prev, and on every error it stays as it was.
func (d *directory) apply(prev, rev fsm.Revision, events []fsm.Event) error {
	t := d.table()
	if t == nil || t.revision != prev || rev <= prev {
		return fmt.Errorf("change from revision %d to %d: %w", prev, rev, fsm.ErrGap)
	}
	d.edits++
	edit := t.edit(rev, d.edits)
	for i := range events {
		if err := edit.apply(&events[i]); err != nil {
			return err
		}
	}
	d.publish(edit.seal(), edit.ownNodes)
	return nil
}

// publish makes t what requests read.
func (d *directory) publish(t *table, nodesChanged bool) {
	var unused []*http1.Upstream
	if nodesChanged {
		unused = d.nodes.attach(t)
	}
	d.current.Store(t)
	d.mu.Lock()
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	for _, u := range unused {
		// A request that read the table before finds it closed, reads the table
		// again and goes to the new address.
		d.closing.Go(u.Close)
	}
}

// fresh notes that the table was the newest at the time at.
func (d *directory) fresh(at time.Time) { d.asOf.Store(at.UnixMilli()) }

// age is how long ago the table was known to be the newest; 0 without one.
func (d *directory) age(now time.Time) time.Duration {
	at := d.asOf.Load()
	if at == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(at)))
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
	return func(t *table) bool { return t.revision >= rev }
}

// close closes the connections to all nodes. Nothing may be published after it.
func (d *directory) close() {
	d.nodes.close()
	d.closing.Wait()
}
