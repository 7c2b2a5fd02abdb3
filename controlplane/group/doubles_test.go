package group

import (
	"errors"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"domicile/fsm"
)

// recorder is a Feed that keeps what it was told.
type recorder struct {
	mu     sync.Mutex
	view   *fsm.View
	resets int
	broken error
}

func (r *recorder) Publish(prev fsm.Revision, events []fsm.Event, s *fsm.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == nil {
		r.view = fsm.NewView()
	}
	if err := r.view.Apply(prev, s.Revision(), events); err != nil {
		r.broken = errors.Join(r.broken, err)
	}
}

func (r *recorder) Reset(s *fsm.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view = project(s)
	r.resets++
}

// count is how many snapshots were restored.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resets
}

// check compares what was told with the state itself.
func (r *recorder) check(t testing.TB, s *fsm.State) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		t.Errorf("feed: %v", r.broken)
	}
	if r.view.Revision() == s.Revision() && !r.view.Equal(project(s)) {
		t.Errorf("the sum of what the feed was told differs from the state at revision %d", s.Revision())
	}
}

func project(s *fsm.State) *fsm.View {
	v := fsm.NewView()
	for e := range fsm.Project(s) {
		if err := v.Load([]fsm.Event{e}); err != nil {
			panic(err)
		}
	}
	if s.Revision() > 0 {
		if err := v.Apply(0, s.Revision(), nil); err != nil {
			panic(err)
		}
	}
	return v
}

// faultyLog is a log on a disk that can fail or hang.
type faultyLog struct {
	raft.LogStore
	mu   sync.Mutex
	err  error
	hang chan struct{}
}

func (f *faultyLog) StoreLogs(logs []*raft.Log) error {
	f.mu.Lock()
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil {
		return err
	}
	return f.LogStore.StoreLogs(logs)
}

func (f *faultyLog) set(err error, hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

// failingStable is a stable store on a disk that can fail.
type failingStable struct {
	raft.InmemStore
	mu  sync.Mutex
	err error
	n   int
}

func (f *failingStable) SetUint64([]byte, uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return f.err
}

func (f *failingStable) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failingStable) tries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
