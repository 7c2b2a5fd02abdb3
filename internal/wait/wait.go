package wait

import (
	"testing"
	"time"
)

// patience is how long For waits; a condition that holds sooner ends it
// sooner, so that it only says when a test has failed.
const patience = 60 * time.Second

// For waits until f gives nil. f says why not yet; the last reason is printed
// when patience runs out.
func For(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
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
