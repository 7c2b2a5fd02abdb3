package proxy

import (
	"fmt"
	"testing"
	"time"
)

func TestR6DelayDoublesPerAddressUpToItsBound(t *testing.T) {
	f := newRefusals(100 * time.Millisecond)
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		if got := f.refused("192.0.2.1", "n1", now); got != want*time.Millisecond {
			t.Errorf("refusal %d: waits %v, want %v", i+1, got, want*time.Millisecond)
		}
		now = now.Add(time.Second)
	}
	if got := f.refused("192.0.2.2", "n1", now); got != 100*time.Millisecond {
		t.Errorf("another address waits %v for its first", got)
	}
	if got := f.refused("192.0.2.1", "n1", now.Add(refusalsForgot)); got != 100*time.Millisecond {
		t.Errorf("after a minute of silence: waits %v, want the first delay", got)
	}
	for range 1000 {
		if got := f.refused("192.0.2.1", "n1", now); got > maxRefusalDelay || got <= 0 {
			t.Fatalf("waits %v", got)
		}
	}
	if f.total.Load() != 1010 {
		t.Errorf("counted %d refusals, want 1010", f.total.Load())
	}
	if got := newRefusals(0).refused("192.0.2.1", "n1", now); got != 0 {
		t.Errorf("with the delay off: waits %v", got)
	}
}

func TestR6OnlyASuccessThatProvesSomethingForgets(t *testing.T) {
	f := newRefusals(100 * time.Millisecond)
	now := time.Unix(0, 0)
	f.refused("192.0.2.1", "n1", now)
	f.accepted("192.0.2.2", "n1")
	f.accepted("192.0.2.1", "open")
	if got := f.refused("192.0.2.1", "n1", now); got != 200*time.Millisecond {
		t.Errorf("waits %v: a success of another, or where no token is asked for, cleared the count", got)
	}
	f.accepted("192.0.2.1", "n1")
	if got := f.refused("192.0.2.1", "n1", now); got != 100*time.Millisecond {
		t.Errorf("waits %v after a success at the node that had refused", got)
	}
}

func TestR6IPv6CountsByNetwork(t *testing.T) {
	f := newRefusals(100 * time.Millisecond)
	now := time.Unix(0, 0)
	f.refused("2001:db8::1", "n1", now)
	if got := f.refused("2001:db8::ffff:2", "n1", now); got != 200*time.Millisecond {
		t.Errorf("another address of the /64 waits %v", got)
	}
	if got := f.refused("2001:db8:0:1::1", "n1", now); got != 100*time.Millisecond {
		t.Errorf("another /64 waits %v", got)
	}
	f.refused("::ffff:192.0.2.1", "n1", now)
	if got := f.refused("192.0.2.1", "n1", now); got != 200*time.Millisecond {
		t.Errorf("a mapped address is another one: waits %v", got)
	}
}

func TestR6ManyAddressesResetNobody(t *testing.T) {
	f := newRefusals(100 * time.Millisecond)
	now := time.Unix(0, 0)
	f.refused("192.0.2.1", "n1", now)
	f.refused("192.0.2.1", "n1", now)
	for i := range 3 * maxRefusedAddrs {
		f.refused(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "n1", now)
	}
	if got := len(f.byAddr); got > maxRefusedAddrs {
		t.Errorf("holds %d addresses", got)
	}
	if got := f.refused("192.0.2.1", "n1", now); got != 400*time.Millisecond {
		t.Errorf("waits %v: other addresses made it forgotten", got)
	}
	// All with two or more: a new address is slowed and not remembered.
	full := newRefusals(100 * time.Millisecond)
	for i := range 2 * maxRefusedAddrs {
		a := i % maxRefusedAddrs
		full.refused(fmt.Sprintf("10.0.%d.%d", a>>8, a&255), "n1", now)
	}
	for range 2 {
		if got := full.refused("192.0.2.1", "n1", now); got != 100*time.Millisecond {
			t.Errorf("waits %v", got)
		}
	}
	if got := full.refused("10.0.0.0", "n1", now); got != 400*time.Millisecond {
		t.Errorf("waits %v", got)
	}
	// What is a minute old makes room.
	later := now.Add(refusalsForgot)
	full.refused("192.0.2.1", "n1", later)
	if got := full.refused("192.0.2.1", "n1", later); got != 200*time.Millisecond {
		t.Errorf("waits %v", got)
	}
	if int(full.held.Load()) != len(full.byAddr) {
		t.Errorf("counts %d addresses and holds %d", full.held.Load(), len(full.byAddr))
	}
}
