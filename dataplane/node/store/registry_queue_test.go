package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"domicile/internal/wait"
)

// TestRecordsThatComeAtOnceShareATransaction: while one change is being committed
// others come; they are made in one transaction, whichever of them is refused.
func TestRecordsThatComeAtOnceShareATransaction(t *testing.T) {
	s := open(t, Config{})
	const units = 20
	name := func(i int) string { return fmt.Sprintf("u%d", i) }
	for i := range units {
		if _, err := s.Create(ctx, name(i), uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	transaction := func() (id int) {
		s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	first, goOn := make(chan struct{}), make(chan struct{})
	refuse := errors.New("no")
	var all sync.WaitGroup
	give := func(i int, f func()) {
		all.Go(func() {
			_, err := s.Update(ctx, name(i), func(r *Record) error {
				f()
				r.Job = "7"
				if i%7 == 3 {
					return refuse
				}
				return nil
			})
			if want := i%7 == 3; errors.Is(err, refuse) != want || !want && err != nil {
				t.Errorf("%s: %v", name(i), err)
			}
		})
	}
	before := transaction()
	give(0, sync.OnceFunc(func() { close(first); <-goOn }))
	<-first
	for i := 1; i < units; i++ {
		give(i, func() {})
	}
	wait.For(t, "the others wait", func() error {
		s.records.mu.Lock()
		defer s.records.mu.Unlock()
		if n := len(s.records.waiting); n != units-1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	close(goOn)
	all.Wait()
	if n := transaction() - before; n != 2 {
		t.Errorf("%d transactions for %d changes, want 2", n, units)
	}
	for i := range units {
		r, err := s.Get(name(i))
		if want := map[bool]string{true: "", false: "7"}[i%7 == 3]; err != nil || r.Job != want {
			t.Errorf("%s: %+v, %v", name(i), r, err)
		}
	}
}
