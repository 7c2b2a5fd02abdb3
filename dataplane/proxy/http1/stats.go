package http1

import (
	"sync/atomic"
	"time"
)

// MaxRoutes is how many route labels a Decision may use.
const MaxRoutes = 8

// Stats are a Server's counters. They only grow, but for those that say
// "now". All may be read at any time.
type Stats struct {
	// Requests that were answered, by Decision.Route and by the class of the
	// status: index 1 for 1xx (101) to 5 for 5xx; 0 for requests that ended
	// without an answer (the client went away).
	Requests [MaxRoutes][6]atomic.Uint64
	// Duration from the request's head being there until its answer was
	// handed to the kernel, by route.
	Duration [MaxRoutes]Histogram
	// UpstreamDuration from sending a request until the head of its answer.
	UpstreamDuration Histogram

	Accepted    atomic.Uint64 // client connections
	Overflowed  atomic.Uint64 // client connections answered 503 for MaxConns
	Malformed   atomic.Uint64 // requests refused with 400 or 431
	Resent      atomic.Uint64 // requests sent a second time under R2
	Unknown     atomic.Uint64 // answered outcome_unknown
	Refused     atomic.Uint64 // attempts that ended in a Refusal
	Aborted     atomic.Uint64 // clients that went away before their answer was complete
	Truncated   atomic.Uint64 // answers that a node cut short
	BadAnswers  atomic.Uint64 // answers of nodes that could not be relayed
	TimedOut    atomic.Uint64 // connections ended by a timeout, idle ones left out
	Panics      atomic.Uint64 // in the Handler or a ServeFunc
	Connections atomic.Int64  // client connections now
	Tunnels     atomic.Int64  // upgraded connections now
}

// UpstreamStats are an Upstream's counters; those that say "now" also fall.
type UpstreamStats struct {
	Dials       atomic.Uint64 // connections attempted
	DialErrors  atomic.Uint64
	Reused      atomic.Uint64 // requests sent on a connection used before
	Stale       atomic.Uint64 // unused connections found closed or not silent
	Errors      atomic.Uint64 // requests that failed on a connection
	Downs       atomic.Uint64 // transitions from up to down
	Busy        atomic.Uint64 // requests that got no connection within Wait
	RefusedDown atomic.Uint64 // requests answered at once because it was down
	Open        atomic.Int64  // connections now
	Idle        atomic.Int64  // unused connections now
}

// HistogramBuckets are the upper bounds, inclusive, of a Histogram's buckets;
// one more bucket holds what is longer.
func HistogramBuckets() []time.Duration { return append([]time.Duration(nil), bucketBounds[:]...) }

var bucketBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Histogram counts durations in fixed buckets, without a lock.
type Histogram struct {
	buckets [len(bucketBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *Histogram) observe(d time.Duration) {
	i := 0
	for i < len(bucketBounds) && d > bucketBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(int64(d))
}

// Snapshot gives the count of each bucket (not cumulative; the last is what is
// longer than every bound) and the sum of all durations.
func (h *Histogram) Snapshot() (counts []uint64, sum time.Duration) {
	counts = make([]uint64, len(h.buckets))
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
	}
	return counts, time.Duration(h.nanos.Load())
}
