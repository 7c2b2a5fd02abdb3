package proto

import (
	"fmt"
	"strconv"
	"strings"

	"domicile/fsm"
)

// Headers of the node's admin protocol (spec §2.5).
const (
	// HeaderHolder names who makes a changing call that has no JSON body:
	// "<authority> <history> <term>".
	HeaderHolder = "Domicile-Holder"
	// HeaderUnitID carries the id of the unit that a DELETE, or a schema, is about.
	HeaderUnitID = "Domicile-Unit-Id"
	// HeaderRemoval, with the value RemovalCopy, says of a DELETE that the unit
	// lives on at another node: the one that is asked refuses where it may write
	// the unit, and keeps aside what it holds of a branch of its own (L7). Its
	// answer names that file in HeaderAside.
	HeaderRemoval = "Domicile-Removal"
	RemovalCopy   = "copy"
	HeaderAside   = "Domicile-Aside"
	// HeaderLives says, of such a DELETE, where the unit stands at its primary, in the
	// form of Lives: what lies within that history need not be kept.
	HeaderLives = "Domicile-Lives"
	// HeaderCall numbers the changing calls of a leader in its term: a node refuses
	// one about a unit of which it has taken one with a higher number (I5), with 409
	// CodeStaleCall. A call without it is not compared.
	HeaderCall = "Domicile-Call"
)

// CodeStaleCall: a call that its leader sent later was taken already.
const CodeStaleCall fsm.Code = "stale_call"

// Holder names who makes a changing call to a node. Holders of one authority
// order by (History, Term); a node refuses an older one, and one of another
// authority, with 409 and its own Holder.
type Holder struct {
	Authority string `json:"authority"`
	History   uint64 `json:"history"`
	Term      uint64 `json:"term"`
}

// HandOver is the body of POST /_admin/holder: the authority that a node belongs to gives
// it to the next one.
type HandOver struct {
	Holder
	Next Holder `json:"next"`
	// Job is the giver's, by which a late repeat is known; 0 for an operator by hand.
	Job uint64 `json:"job,omitempty"`
	// Call: calls of Next with a lower number (HeaderCall) were sent in an earlier time
	// under it, and are late.
	Call uint64 `json:"call,omitempty"`
}

// String gives the text of HeaderHolder.
func (h Holder) String() string {
	return fmt.Sprintf("%s %d %d", h.Authority, h.History, h.Term)
}

// Newer reports whether h, of the same authority, orders after o.
func (h Holder) Newer(o Holder) bool {
	return h.History > o.History || h.History == o.History && h.Term > o.Term
}

// ParseHolder reads the text of HeaderHolder.
func ParseHolder(s string) (Holder, error) {
	parts := strings.Split(s, " ")
	if len(parts) != 3 || parts[0] == "" {
		return Holder{}, fmt.Errorf("%s: want \"<authority> <history> <term>\", have %q", HeaderHolder, s)
	}
	history, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return Holder{}, fmt.Errorf("%s: history %q is not a number", HeaderHolder, parts[1])
	}
	term, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Holder{}, fmt.Errorf("%s: term %q is not a number", HeaderHolder, parts[2])
	}
	return Holder{Authority: parts[0], History: history, Term: term}, nil
}

// NodeStats answers GET /_admin/stats.
type NodeStats struct {
	Tenants uint64 `json:"tenants"`
	Disk    uint64 `json:"disk"`   // bytes of all unit files
	Memory  uint64 `json:"memory"` // bytes of the open ones
	Open    uint64 `json:"open"`
	Free    uint64 `json:"free_bytes"`      // on the data folder's file system, for this process; 0: not known
	Lease   bool   `json:"lease,omitempty"` // it writes only under a lease
	Boot    string `json:"boot,omitempty"`  // the process: two addresses with the same one are one node
	// Holder is the newest that the node has heard: it belongs to its authority. Nil where
	// it has heard none.
	Holder *Holder `json:"holder,omitempty"`
}

// MakeUnit is the body of PUT /_admin/tenants/<unit>. A node that holds the
// unit under the same id answers as if it had made it just now.
type MakeUnit struct {
	ID fsm.UnitID `json:"id"`
	Holder
}

// UnitMade answers PUT /_admin/tenants/<unit>.
type UnitMade struct {
	Created fsm.UnitName `json:"created"`
}

// RunSchema is the body of POST /_admin/tenants/<unit>/schema.
type RunSchema struct {
	SQL string `json:"sql"`
	Holder
}

// SchemaRun answers POST /_admin/tenants/<unit>/schema.
type SchemaRun struct {
	Position string `json:"position"`
}
