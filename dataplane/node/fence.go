package node

import (
	"errors"
	"strings"

	"domicile/dataplane/node/lease"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// fence decides whether a unit may be read or written here (invariants I1, I6). It is
// asked when a request arrives, again under the writer before anything is changed
// (a unit is given up only while it is frozen, and then nobody has the writer), and
// for the lease once more between commit and answer.
type fence struct {
	lease    *lease.Lease           // nil without --lease
	compared func(unit string) bool // architecture §3.7.4; asked under a lease
	ending   func() bool            // the node is about to stop; may be nil
	records  records
}

// use is what a request does to its unit.
type use uint8

const (
	reads     use = iota
	readsCopy     // reads with Domicile-Mode: read, which a replica may answer
	writes
)

// admit applies the table of states (spec §2.5).
func (f *fence) admit(rec *store.Record, u use) error {
	switch rec.State {
	case store.Active, store.Pinned, store.Sending:
		if u == writes {
			return f.mayWrite(rec)
		}
		return nil
	case store.Following:
		switch {
		case u == readsCopy && f.ending != nil && f.ending():
			return httpserve.Errorf(503, "shutting_down", "this node is being stopped and answers no more reads of copies; its primary does")
		case u == readsCopy:
			return nil
		}
		return misdirected(rec, rec.From, "it follows another node here; only reads with Domicile-Mode: read are answered")
	case store.Sent:
		return misdirected(rec, rec.Destination, "it was given to another node")
	case store.Receiving:
		e := httpserve.Errorf(503, codeTransfer, "unit %s is being copied to this node; try again", rec.Name)
		return e
	case store.Garbage:
		return misdirected(rec, rec.Destination, "what is left of it here is to be removed")
	}
	return httpserve.Errorf(500, codeInternal, "unit %s is in state %q, which this node does not know: it was written by a newer version", rec.Name, rec.State)
}

// mayWrite is the lease check, and whether the node has compared itself with the
// unit's copies since its start: it may have lost what they had acknowledged.
func (f *fence) mayWrite(rec *store.Record) error {
	if f.lease == nil {
		return nil
	}
	switch err := f.lease.MayWrite(rec.Name, rec.ID); {
	case err == nil && f.records.compared(rec.Name, f.compared):
		return nil
	case err == nil:
		return httpserve.Errorf(503, "no_lease", "this node has started and has not compared unit %s with its copies yet: one of them is not reached, or has what this node lacks; try again", rec.Name)
	case errors.Is(err, lease.ErrNoLease):
		return httpserve.Errorf(503, "no_lease", "this node holds no lease yet, under which alone it writes: it has just started, or the control plane does not reach it, or gives no leases (auto_failover_ms 0); reads are answered; try again")
	case errors.Is(err, lease.ErrLapsed):
		return httpserve.Errorf(503, "lease_lapsed", "this node's lease has lapsed: the control plane does not reach it, so its units may be written elsewhere; reads are answered; try again")
	default:
		return httpserve.Errorf(503, "not_named", "this node's lease does not name unit %s: it may be written elsewhere; reads are answered; try again", rec.Name)
	}
}

// committed is asked between a commit and its answer: where the right to write ran
// out meanwhile, or the unit was given up, nobody may be told that it was written
// (architecture §3.5.7).
func (f *fence) committed(u *store.Unit) error {
	rec := f.records.of(u)
	switch rec.State {
	case store.Sent, store.Following, store.Receiving, store.Garbage:
		return httpserve.Errorf(503, codeOutcomeUnknown, "the unit was given up between commit and answer: whether the write to unit %s counts is not known", rec.Name)
	case store.Active, store.Pinned, store.Sending:
	}
	if f.lease == nil {
		return nil
	}
	if f.lease.MayWrite(rec.Name, rec.ID) == nil {
		return nil
	}
	return httpserve.Errorf(503, codeOutcomeUnknown, "the lease ran out between commit and answer: whether the write to unit %s counts is not known", rec.Name)
}

// stale reports whether what this node reads of a unit may be old: it is the unit's
// primary as far as it knows, and has no lease that says so now (architecture §3.7.3),
// or has not compared itself with the copies, which may have more.
func (f *fence) stale(rec *store.Record) bool {
	return f.lease != nil && !rec.State.IsCopy() &&
		(f.lease.MayWrite(rec.Name, rec.ID) != nil || !f.records.compared(rec.Name, f.compared))
}

// misdirected is 421: sent to the wrong node, without effect. destination is
// "<node> <addr>", or an address alone, or "" where it is not known.
func misdirected(rec *store.Record, destination, why string) *httpserve.Error {
	e := httpserve.Errorf(421, "misdirected", "unit %s is not served here: %s", rec.Name, why)
	e.Fields = map[string]any{"unit": rec.Name}
	if node, addr, ok := strings.Cut(destination, " "); ok {
		e.Fields["destination"] = map[string]string{"node": node, "addr": addr}
	} else if destination != "" {
		e.Fields["destination"] = map[string]string{"addr": destination}
	}
	return e
}
