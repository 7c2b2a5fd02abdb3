package replica

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// Very many units share one connection, a few goroutines and nothing else.
// REPLICA_UNITS says how many; 10,000 take a minute.
func TestManyUnitsOnOneConnection(t *testing.T) {
	units := 1_500
	if n, err := strconv.Atoi(os.Getenv("REPLICA_UNITS")); err == nil {
		units = n
	}
	if testing.Short() {
		units = 100
	}
	src, dst := newNode(t, Config{}, store.Config{Sync: store.SyncNormal, MaxOpen: 200}), newNode(t, Config{}, store.Config{Sync: store.SyncNormal, MaxOpen: 200})
	name := func(i int) string { return fmt.Sprintf("u%d", i) }
	parallel(units, func(i int) {
		src.create(name(i))
		dst.follow(name(i), src, "")
	})
	goroutines := runtime.NumGoroutine()
	wait.For(t, "all follow", func() error {
		goroutines = max(goroutines, runtime.NumGoroutine())
		for i := range units {
			if s := dst.r.Status(name(i)); s.State != StateFollowing {
				return fmt.Errorf("%s: %+v", name(i), s)
			}
		}
		return nil
	})
	parallel(units, func(i int) { src.must(name(i), "CREATE TABLE t(a)") })
	parallel(units, func(i int) { equal(t, name(i), src, dst) })
	if goroutines > 200 {
		t.Errorf("%d goroutines", goroutines)
	}
	src.r.mu.Lock()
	sessions := len(src.r.sessions)
	src.r.mu.Unlock()
	if sessions != 1 {
		t.Errorf("%d connections", sessions)
	}
}

func parallel(n int, f func(i int)) {
	var g sync.WaitGroup
	next := make(chan int)
	for range 8 {
		g.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	g.Wait()
}
