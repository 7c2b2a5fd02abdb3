package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"domicile/fsm"
	"domicile/proto"
)

// machine applies the log to the directory. Raft calls its methods from one
// goroutine; what others read goes through published and applied.
type machine struct {
	id     fsm.MemberID
	region fsm.RegionName
	feed   Feed
	logger hclog.Logger
	folder *folder

	state     *fsm.State // owned by Raft's goroutine
	published atomic.Pointer[fsm.State]
	applied   atomic.Uint64 // index of the last entry that published contains
	meters    *meters

	joined  atomic.Uint64 // see format.Joined; 0: not known yet
	founder atomic.Bool
	cluster atomic.Pointer[string] // identity expected of the group, "" while not known
	// becoming is format.Becoming, or nil.
	becoming atomic.Pointer[string]

	removed   chan struct{} // closed when the log says that this server is out
	removedIs sync.Once
	scoped    chan struct{} // closed when the directory's scope is known
	scopedIs  sync.Once
	failed    chan struct{} // closed when nothing can be applied any more
	failure   error         // why; read after failed is closed

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of published; nil: nobody waits
}

// applied is what the machine answers to a command.
type appliedResult struct {
	result   fsm.Result
	revision fsm.Revision
}

func newMachine(cfg *Config, f *folder) *machine {
	m := &machine{
		id: cfg.ID, region: cfg.Region, feed: cfg.Feed, logger: cfg.Logger, folder: f,
		state: fsm.New(), meters: newMeters(),
		removed: make(chan struct{}), scoped: make(chan struct{}), failed: make(chan struct{}),
	}
	m.published.Store(m.state.Snapshot())
	return m
}

// Apply and ApplyBatch: the library uses the second alone.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries and then publishes one state and one delta for
// all of them. It answers each entry at its place, configurations with nil.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	prev := m.state.Revision()
	var events []fsm.Event
	for i, l := range logs {
		if m.dead() {
			answers[i] = m.failure
			continue
		}
		if l.Type != raft.LogCommand {
			continue
		}
		answer, more, err := m.applyOne(l)
		if err != nil {
			m.fail(err)
			answers[i] = m.failure
			continue
		}
		answers[i] = answer
		events = append(events, more...)
	}
	if m.dead() {
		return answers
	}
	if m.state.Revision() != prev {
		s := m.state.Snapshot()
		m.published.Store(s)
		if m.feed != nil {
			m.feed.Publish(prev, events, s)
		}
	}
	m.advance(logs[len(logs)-1].Index)
	return answers
}

func (m *machine) applyOne(l *raft.Log) (appliedResult, []fsm.Event, error) {
	entry, err := proto.DecodeEntry(fsm.Revision(l.Index), l.Term, l.Data)
	if err != nil {
		return appliedResult{}, nil, err
	}
	result, events := m.state.Apply(entry)
	if result.Refusal == nil {
		switch cmd := entry.Cmd.(type) {
		case *fsm.Bootstrap:
			if err := m.checkScope(m.state); err != nil {
				return appliedResult{}, nil, err
			}
		case *fsm.DeleteMember:
			m.noteRemoval(cmd.ID, l.Index)
		}
	}
	return appliedResult{result, entry.Revision}, events, nil
}

// noteRemoval finds out whether an entry removes this server. One before it
// joined removed an earlier server of the same id.
func (m *machine) noteRemoval(id fsm.MemberID, index uint64) {
	joined := m.joined.Load()
	if id == m.id && (m.founder.Load() || joined != 0 && index > joined) {
		m.removedIs.Do(func() { close(m.removed) })
	}
}

// checkScope refuses a directory that is not the one that this server is for.
func (m *machine) checkScope(s *fsm.State) error {
	scope, ok := s.Scope()
	if !ok {
		return nil
	}
	if scope.Region != m.region {
		return fmt.Errorf("the group keeps the directory of %s, this server was started for %s; start it with that region", nameRegion(scope.Region), nameRegion(m.region))
	}
	is, next := identity(scope), m.becoming.Load()
	if c := m.cluster.Load(); c != nil && *c != "" && *c != is && (next == nil || *next != is) {
		return fmt.Errorf("this server belongs to group %s and was given the directory of group %s; check the addresses of its group", *c, is)
	}
	m.expect(is)
	m.scopedIs.Do(func() { close(m.scoped) })
	return nil
}

// expect notes the group whose directory this is; "" says nothing.
func (m *machine) expect(cluster string) {
	if cluster != "" {
		m.cluster.Store(&cluster)
	}
}

// fail stops applying for good: what is published stays, and no snapshot is
// taken of a state that has missed an entry.
func (m *machine) fail(err error) {
	m.logger.Error("the log cannot be applied", "err", err)
	m.failure = err
	close(m.failed)
}

func (m *machine) dead() bool {
	select {
	case <-m.failed:
		return true
	default:
		return false
	}
}

func (m *machine) advance(index uint64) {
	m.applied.Store(index)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// wait returns once done holds; it is asked after every change.
func (m *machine) wait(ctx context.Context, done func() bool) error {
	for {
		m.mu.Lock()
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-m.failed:
			return m.failure
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// StoreConfiguration is there so that the library takes snapshots right after
// a change of the configuration, too.
func (m *machine) StoreConfiguration(index uint64, _ raft.Configuration) { m.advance(index) }

// Snapshot takes one pointer.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.dead() {
		return nil, m.failure
	}
	return &savedState{state: m.published.Load(), took: m.meters.tookSnapshot, logger: m.logger, discard: m.folder.discardSnapshot}, nil
}

// Restore replaces the whole state by a snapshot's; readers see the old one or
// the new one.
func (m *machine) Restore(r io.ReadCloser) error {
	s, err := proto.ReadSnapshot(r)
	if err != nil {
		return fmt.Errorf("the snapshot of the directory is damaged: %w", err)
	}
	if err := m.checkScope(s); err != nil {
		m.fail(err)
		return err
	}
	m.state = s
	published := s.Snapshot()
	m.published.Store(published)
	if m.feed != nil {
		m.feed.Reset(published)
	}
	m.advance(uint64(s.Revision()))
	// What was read and the state before it are garbage as large as the
	// directory itself.
	debug.FreeOSMemory()
	return nil
}

// savedState writes one immutable state while later entries are applied.
type savedState struct {
	state  *fsm.State
	took   func(time.Duration)
	logger hclog.Logger
	// discard removes what a failed snapshot leaves: the library does not.
	discard func(id string) error
}

func (s *savedState) Persist(sink raft.SnapshotSink) error {
	begin := time.Now()
	err := proto.WriteSnapshot(sink, s.state)
	if err != nil {
		err = errors.Join(err, sink.Cancel())
	} else {
		err = sink.Close()
	}
	if err != nil {
		s.logger.Error("snapshot failed", "revision", s.state.Revision(), "err", err)
		return errors.Join(err, s.discard(sink.ID()))
	}
	s.took(time.Since(begin))
	return nil
}

func (*savedState) Release() {}
