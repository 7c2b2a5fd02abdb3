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
}

// Holder is who may change this node: the newest leader that it has heard.
// (History, Term) are ordered as a pair within one Authority.
type Holder struct {
	Authority string `json:"authority"`
	History   uint64 `json:"history"`
	Term      uint64 `json:"term"`
}
