package lease

import (
	"domicile/fsm"
	"domicile/proto"
)

// Status is what the leader knows of a node in its term. It is read-only.
type Status struct {
	// Lease is what the node told of itself in this term: LeaseUnknown until its
	// first answer. The directory's record is Node.Lease.
	Lease fsm.NodeLease
	// Answered says that the node has answered in this term, with a grant taken
	// or, taking none, with the state of its copies. The fields from Boot to
	// Stopping are of the last such answer.
	Answered bool
	// Silent says that the last call to the node failed, which Problem tells.
	// AnsweredSince counts from where it began to answer without a failure, and
	// SilentSince from where it failed without an answer, in ms of now; the
	// other one is 0.
	Silent          bool
	Problem         string
	AnsweredSinceMS int64
	SilentSinceMS   int64

	// LeftMS is how long the node's newest answered grant runs on, counted from
	// its answer, at least 0; AgeMS is the time since that answer, or, before
	// the first one, since the node counts as granted. Both 0 for a node that
	// takes no lease.
	LeftMS int64
	AgeMS  int64
	// Expired says that the node's lease has certainly ended.
	Expired bool
	// Lapsed says that the node was taken for lapsed: nothing is sent to it
	// until Resume, which must follow once the FailOver entry is applied or
	// refused, or when there is nothing to fail over. A node that stays silent
	// is taken for lapsed again each time that a lease would have run out.
	Lapsed bool
	// Lapse numbers, from 1 in each term, the times that the node was taken for
	// lapsed; Resume names one, so that a late word about an earlier one lets
	// nothing through.
	Lapse uint64

	// Boot is the node's process; also while the node counts as silent because the
	// process at its address is another node.
	Boot string
	Ack  proto.Ack // its --ack
	// List is the revision of the list of units that the node last answered to
	// hold (fsm.State.ListRevision); 0 where this keeper sent it none.
	List   fsm.Revision
	Report proto.CopyReport
	// Following are the copies that follow each unit, by address; told only by
	// nodes that take no lease. A copy is in sync if it is here and not in
	// Report.Lagging.
	Following map[fsm.UnitName][]string
	// Refused tells, by their addresses, why nodes refuse to be followed by this one: a
	// token that differs, above all.
	Refused  map[string]string
	Missing  []fsm.UnitName // units of the list that the node does not hold
	Stopping bool           // the node is about to stop, and wants to hand over
}
