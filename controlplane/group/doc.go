// Package group keeps one directory on a group of servers with Raft: the
// global directory, or that of a region that keeps its own.
//
// A Group is one server of it. Changes go in by Propose on the leader, are
// committed on a majority of the voters, applied to the fsm.State in the order
// of the log on every server, and handed to a Feed, which streams them to
// followers. Reads take State, one pointer to an immutable value; a read that
// must see every change acknowledged before it asks ReadIndex first.
//
// # What a leader may do
//
// "I am the leader" is never a reason to act (Raft guarantees one leader per
// term, not one at a time). Duties registered with OnLead run under a context
// that ends with the term, start after a barrier of that term, and stamp what
// they propose with it (Proposal.Decided), so that Apply refuses what a former
// leader decided. A duty that fails makes the server hand leadership over, and
// stop if nobody takes it: a leader that cannot lead must not stay one.
//
// # What can go wrong with a proposal
//
// Errors say whether the change may have happened. ErrUnknownOutcome is the
// one that leaves it open: the entry was handed to the log, and may commit.
// Asking again with the same Key is safe; the directory remembers keys with
// their answers. Every other error means that nothing happened.
//
// # Files
//
// The data folder holds `format` (whose folder this is), `raft.db` (log and
// vote) and `snapshots/`. A folder that is damaged, or another server's,
// region's or group's, or of a newer version, is refused with a message that
// says what to do; nothing is ever reset in silence.
//
// # Recovery
//
// Recover makes the server of a folder the only one of its group, and Restore puts a
// backup in the place of a new group's directory. Both end in a snapshot of a new
// history (fsm.State.Recover), far ahead of the log; what was in the log before is
// deleted. The folder's format says, while that is done, of which two identities the
// directory may be.
//
// # Goroutines
//
// Open starts those of the Raft library; Close stops them and waits. Run
// starts: the leadership loop (and, while this server leads, one goroutine for
// each duty), the watchdog, the registrar, which joins the group and keeps
// this server's own record right, and the keeper of the folder's `format`. All
// have ended when Run returns. Propose, ReadIndex, Transfer and the membership
// calls start one goroutine each that waits for Raft's answer; it ends with
// the answer, or in Close at the latest.
package group
