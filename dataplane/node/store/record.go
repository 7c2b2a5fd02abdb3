package store

// State is what a unit is at this node. Which requests are served in which
// state is decided by the callers; the store only keeps it.
type State string

// The states of a unit.
const (
	Active    State = "active"
	Pinned    State = "pinned"
	Sending   State = "sending"
	Sent      State = "sent"
	Receiving State = "receiving"
	Garbage   State = "garbage"
	Following State = "following"
)

// IsCopy reports whether a unit in that state is a copy: it takes entries and
// images of its source, and no writes.
func (s State) IsCopy() bool { return s == Following || s == Receiving }

// CopyKind is what a copy is for.
type CopyKind string

// The kinds of copies.
const (
	CopyOrdinary CopyKind = ""       // it may be promoted
	CopyTarget   CopyKind = "target" // a move goes there: Receiving, read by nobody before
	CopyReader   CopyKind = "reader" // it is read, and never promoted
)

// Record is the node's durable record of one unit.
type Record struct {
	Name        string `json:"name"`
	ID          uint64 `json:"id"` // from the directory
	State       State  `json:"state"`
	Epoch       uint64 `json:"epoch"` // of its positions; 1 for a new unit
	Job         string `json:"job,omitempty"`
	Destination string `json:"destination,omitempty"` // whom it was given to, or is being sent to
	From        string `json:"from,omitempty"`        // whom it follows
	Empty       bool   `json:"empty,omitempty"`       // a copy that was just made and holds nothing
	Reader      bool   `json:"reader,omitempty"`      // a copy that is never promoted
	// Unheard is a copy that was a reader, and whose source has not heard yet that it
	// is one no longer: the source may be writing on without its promise (3.5.10), so
	// that it is not promoted before (see Heard).
	Unheard bool `json:"unheard,omitempty"`
}

// Kind of the copy.
func (r *Record) Kind() CopyKind {
	switch {
	case r.State == Receiving:
		return CopyTarget
	case r.Reader:
		return CopyReader
	}
	return CopyOrdinary
}

// become makes the record that of a copy of that kind.
func (r *Record) become(k CopyKind) {
	was := r.State.IsCopy() && r.Reader
	r.State, r.Reader = Following, k == CopyReader
	if k == CopyTarget {
		r.State = Receiving
	}
	r.Unheard = !r.Reader && (was || r.Unheard)
}

// Holder is who may change this node: the newest leader that it has heard.
// (History, Term) are ordered as a pair within one Authority.
type Holder struct {
	Authority string `json:"authority"`
	History   uint64 `json:"history"`
	Term      uint64 `json:"term"`
}
