// Package wait is how tests wait: for a condition that says why it does not
// hold yet. No test sleeps. Goroutines: none.
package wait
