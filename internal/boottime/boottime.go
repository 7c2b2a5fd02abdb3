package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells the time since a moment that stays the same for as long as the
// process runs. Readings of one Clock can be compared with each other and with
// nothing else. Safe for concurrent use.
type Clock interface {
	Now() time.Duration
}

// System is the kernel's CLOCK_BOOTTIME (clock_gettime(2)); where the kernel has
// none, the runtime's monotonic clock, which stands still while the machine is
// suspended. The zero value is ready.
type System struct{}

var began = time.Now()

// Now implements Clock.
func (System) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(began)
	}
	return time.Duration(ts.Nano())
}

// Runtime is the runtime's monotonic clock. Under testing/synctest it is the
// bubble's fake one; make it inside the bubble.
type Runtime struct{ from time.Time }

// NewRuntime makes a Runtime that begins at zero.
func NewRuntime() *Runtime { return &Runtime{time.Now()} }

// Now implements Clock.
func (r *Runtime) Now() time.Duration { return time.Since(r.from) }

// Manual stands still until it is moved, for tests. The zero value stands at
// zero.
type Manual struct{ now atomic.Int64 }

// Now implements Clock.
func (m *Manual) Now() time.Duration { return time.Duration(m.now.Load()) }

// Advance moves the clock on by d.
func (m *Manual) Advance(d time.Duration) { m.now.Add(int64(d)) }
