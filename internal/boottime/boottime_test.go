package boottime

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// The clock is the one that counts suspension: it reads what the kernel says it
// is, between two readings of the kernel's.
func TestSystemIsBootTime(t *testing.T) {
	read := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Skipf("no CLOCK_BOOTTIME: %v", err)
		}
		return time.Duration(ts.Nano())
	}
	before := read()
	now := System{}.Now()
	if after := read(); now < before || now > after {
		t.Errorf("Now is %v, CLOCK_BOOTTIME was %v before and %v after", now, before, after)
	}
}

func TestRuntimeFollowsFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewRuntime()
		time.Sleep(time.Hour)
		if c.Now() != time.Hour {
			t.Errorf("an hour later it is %v", c.Now())
		}
	})
}

func TestManualMovesOnlyWhenTold(t *testing.T) {
	var c Manual
	c.Advance(time.Second)
	if c.Now() != time.Second {
		t.Errorf("it is %v, want 1s", c.Now())
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		System{}.Now()
	}
}
