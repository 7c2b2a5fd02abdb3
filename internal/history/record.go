package history

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Outcome is what a client knows of an operation's effect.
type Outcome string

// Outcomes.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // it had no effect, and never will
	Unknown Outcome = "unknown" // it may have had one, or may yet
)

// Kind of operation.
type Kind string

// Kinds.
const (
	Write    Kind = "write"
	Read     Kind = "read"      // of the primary
	CopyRead Kind = "copy_read" // of any node that holds the unit, which may be behind
)

// Position is "<epoch>:<seq>" as a pair, in that order.
type Position struct{ Epoch, Seq uint64 }

// ParsePosition reads the text form.
func ParsePosition(s string) (p Position, err error) {
	epoch, seq, ok := strings.Cut(s, ":")
	if ok {
		p.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	}
	if ok && err == nil {
		p.Seq, err = strconv.ParseUint(seq, 10, 64)
	}
	if !ok || err != nil {
		return Position{}, fmt.Errorf("%q is no position", s)
	}
	return p, nil
}

// Compare orders positions.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq))
}

func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Epoch, p.Seq) }

// Register is what a unit's register holds.
type Register struct {
	Last  int64 // id of the last write
	Count int64 // of writes
}

// Op is one operation. Begin and End are on the recorder's clock.
type Op struct {
	Unit       string
	Client     int
	Kind       Kind
	Begin, End time.Duration
	Outcome    Outcome
	ID         int64    // write: its id
	Seen       Register // what was read; of a write, after it
	Position   Position // that the answer named; zero if none
	Replayed   bool     // write: answered from its Idempotency-Key; Position is the unit's then, not the write's
	After      *Op      `json:"-"` // copy read: the write whose position it named
	Why        string   // answer of an operation that is not OK
}

// Recorder keeps operations.
type Recorder struct {
	begin time.Time
	mu    sync.Mutex
	ops   []*Op
	acked map[string]int // writes of each unit that were acknowledged
}

// NewRecorder starts a recorder's clock.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now(), acked: map[string]int{}} }

// Now is the time on the recorder's clock.
func (r *Recorder) Now() time.Duration { return time.Since(r.begin) }

// Add records an operation that has ended, or of which no more will be heard.
func (r *Recorder) Add(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	if op.Kind == Write && op.Outcome == OK {
		r.acked[op.Unit]++
	}
}

// Acked is how many writes of a unit were acknowledged so far.
func (r *Recorder) Acked(unit string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked[unit]
}

// Ops are the operations so far, by their recording.
func (r *Recorder) Ops() []*Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Op(nil), r.ops...)
}

// Counts is how many operations had each outcome.
func Counts(ops []*Op) (ok, refused, unknown int) {
	for _, o := range ops {
		switch o.Outcome {
		case OK:
			ok++
		case Refused:
			refused++
		case Unknown:
			unknown++
		}
	}
	return ok, refused, unknown
}
