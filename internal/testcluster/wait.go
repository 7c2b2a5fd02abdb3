package testcluster

import (
	"testing"
	"time"
)

// patience is how long WaitFor waits; a condition that holds sooner ends it
// sooner, so that it only says when a test has failed.
const patience = 60 * time.Second

// WaitFor waits until f gives nil. f says why not yet; the last reason is
// printed when patience runs out. It is the one place in the tree where tests
// wait.
func WaitFor(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		<-tick.C
	}
}
