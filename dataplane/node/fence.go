package node

import (
	"strings"

	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// fence decides whether a unit may be read or written here (invariants I1, I6). It is
// asked when a request arrives, again under the writer before anything is changed
// (a unit is given up only while it is frozen, and then nobody has the writer), and
// for the lease once more between commit and answer.
type fence struct {
	// leased is the flag --lease. A node that wants a lease holds none until it was
	// granted one.
	leased  bool
	records records
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
			return f.mayWrite(rec.Name)
		}
		return nil
	case store.Following:
		if u == readsCopy {
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

// mayWrite is the lease check.
func (f *fence) mayWrite(string) error {
	if f.leased {
		return httpserve.Errorf(503, "no_lease", "this node was started with --lease and holds no lease; this version of the control plane grants none: restart it without --lease")
	}
	return nil
}

// committed is asked between a commit and its answer: where the right to write ran
// out meanwhile, nobody may be told that it was written.
func (f *fence) committed(unit string) error {
	if f.mayWrite(unit) == nil {
		return nil
	}
	return httpserve.Errorf(503, codeOutcomeUnknown, "the lease ran out between commit and answer: whether the write to unit %s counts is not known", unit)
}

// misdirected is 421: sent to the wrong node, without effect. destination is "<node> <addr>" or
// "" where it is not known.
func misdirected(rec *store.Record, destination, why string) *httpserve.Error {
	e := httpserve.Errorf(421, "misdirected", "unit %s is not served here: %s", rec.Name, why)
	e.Fields = map[string]any{"unit": rec.Name}
	if node, addr, ok := strings.Cut(destination, " "); ok {
		e.Fields["destination"] = map[string]string{"node": node, "addr": addr}
	}
	return e
}
