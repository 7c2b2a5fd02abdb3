package proxy

import (
	"time"

	"domicile/dataplane/proxy/http1"
)

// ticket is a request's place in its unit's queue. It is the request's http1.Watcher
// from the first time on that it waits.
type ticket struct {
	holds      *holds
	unit       string
	resendable bool // its body is, or may be, no longer than what is kept of one
	bytes      int64
	deadline   time.Time // of all its waiting
	ready      chan struct{}

	// guarded by holds.mu; why is read by its request after wait
	seq          uint64 // by which it is ordered; 0 before it first waits
	queue        *queue // the last that it was in
	list         *ticketList
	prev, next   *ticket
	refusedWrite bool
	flying       bool
	over         bool // counted: it waits no more
	why          reason
}

func (h *holds) newTicket(unit string, resendable bool, bytes int, limit time.Duration) *ticket {
	return &ticket{
		holds: h, unit: unit, resendable: resendable, bytes: int64(bytes),
		deadline: time.Now().Add(limit), ready: make(chan struct{}, 1),
	}
}

// left tells why a ticket is in no queue any more; called by its request alone.
func (t *ticket) left() outcome {
	if t.over {
		return outcomeUnplaced
	}
	return outcomeSentOn
}

// Answered implements http1.Watcher.
func (t *ticket) Answered() { t.holds.answered(t) }

// Ended implements http1.Watcher.
func (t *ticket) Ended() { t.holds.ended(t) }

// reason says why requests wait: what one is answered that was never sent.
type reason struct {
	kind    http1.RefusalKind
	node    string
	region  string // of whose routers one refused, "" for a node
	code    string // of the node's refusal
	between bool   // the unit is between two homes
}

func (w reason) respond(d *http1.Decision) {
	switch {
	case w.between:
		d.Respond(503, codeTransfer, "the tenant is moving to another region and nothing was done; try again")
	case w.region != "" && (w.kind == http1.Misdirected || w.code == ""):
		d.Respond(503, codeMisdirected, "region "+w.region+" does not hold this, and where it is is not known yet; try again")
	case w.region != "":
		d.Respond(503, w.code, "region "+w.region+" does not take this for now and nothing was done; try again")
	case w.kind == http1.Unreachable:
		d.Respond(502, codeUnreachable, "node "+w.node+" cannot be reached and nothing was sent to it; try again")
	case w.kind == http1.Misdirected || w.code == "":
		d.Respond(503, codeMisdirected, "node "+w.node+" does not hold this any more and where it went is not known yet; try again")
	default:
		d.Respond(503, w.code, "node "+w.node+" does not take this for now and nothing was sent to it; try again")
	}
}

// ticketList is a list of tickets by their seq.
type ticketList struct {
	head, tail *ticket
	n          int
}

// insert puts t to its place: the front or, from behind, after the last that is
// older.
func (l *ticketList) insert(t *ticket) {
	after := l.tail
	if l.head != nil && t.seq < l.head.seq {
		after = nil
	}
	for after != nil && after.seq > t.seq {
		after = after.prev
	}
	t.prev = after
	if after == nil {
		t.next, l.head = l.head, t
	} else {
		t.next, after.next = after.next, t
	}
	if t.next == nil {
		l.tail = t
	} else {
		t.next.prev = t
	}
	l.n++
}

func (l *ticketList) remove(t *ticket) {
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	l.n--
}

// oldest gives the first, or the first that can be sent again.
func (l *ticketList) oldest(resendable bool) *ticket {
	t := l.head
	for resendable && t != nil && !t.resendable {
		t = t.next
	}
	return t
}
