package store

import "context"

// Acknowledge says that everything up to p is where it has to be: writes that
// wait for it return, and subscribers, WaitPosition and reads go by it. With a
// Sink nothing else acknowledges a unit's commits. It may be called from any
// goroutine, within Sink.Durable too, for no position above what Durable was
// told; one that is not above the acknowledged one changes nothing.
func (u *Unit) Acknowledge(p Position) {}

// GiveUp ends, with ErrUnreplicated and err, the waits for everything that was
// captured so far and is not acknowledged: writes return although their
// commits stay here. Later commits are waited for again. An Acknowledge that
// comes later counts all the same.
func (u *Unit) GiveUp(err error) {}

// Seen gives a position that no snapshot taken before the call is beyond: what
// a read has seen, at most. It waits while a commit is being made.
func (u *Unit) Seen() Position { return Position{} }

// AwaitAcknowledged returns when p, a position of this opening of the unit
// (from Seen, for a read), is acknowledged. Where it is already that is one
// atomic comparison. ctx's cause, ErrUnreplicated after a GiveUp, ErrGone.
func (u *Unit) AwaitAcknowledged(ctx context.Context, p Position) error { return nil }

// Mark is that of the last captured commit; on a copy, of the last applied one.
func (u *Unit) Mark() Mark { return Mark{} }

// Lineage gives the branches of the unit's history, up to its position; never
// empty but on a copy that holds nothing.
func (u *Unit) Lineage() Lineage { return nil }

// Following reports whether the unit was a copy when it was opened, and was
// not promoted since.
func (u *Unit) Following() bool { return false }
