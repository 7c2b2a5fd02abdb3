// Package boottime is the clock by which leases run (architecture §3.5.8): it
// only goes forward, is not set by anyone, and counts the time that the machine
// was suspended. Wall clocks are never compared. Goroutines: none.
package boottime
