package group

import (
	"errors"
	"fmt"

	"domicile/fsm"
	"domicile/proto"
)

// Errors of Propose, ReadIndex and the membership calls. Only ErrUnknownOutcome
// leaves open whether something happened.
var (
	// ErrNoLeader: no leader is known, an election is under way or there is
	// no majority. Nothing happened; ask again shortly.
	ErrNoLeader = errors.New("the group has no leader at the moment; try again shortly")
	// ErrUnknownOutcome: the change was handed to the log and may or may not
	// be committed. Ask again with the same Idempotency-Key, or look.
	ErrUnknownOutcome = errors.New("the outcome is unknown: the change may still be committed; ask again with the same Idempotency-Key, or look at what is recorded")
	// ErrTooBig: the command is larger than proto.MaxEntry. Nothing happened.
	ErrTooBig = proto.ErrEntryTooBig
	// ErrTransferring: leadership is being handed over. Nothing happened; ask
	// again shortly.
	ErrTransferring = errors.New("leadership is being handed to another server; try again shortly")
	// ErrBusy: as many proposals wait as this server admits. Nothing happened.
	ErrBusy = errors.New("too many changes are waiting; try again shortly")
	// ErrClosed: the server is stopping. Nothing happened.
	ErrClosed = errors.New("this server is stopping")
	// ErrRemoved: this server was removed from its group and must not start
	// again from its folder.
	ErrRemoved = errors.New("this server was removed from its group; to use it again, give it an empty data folder and let it join")
	// ErrStalled is Run's when a leader made no progress while changes were
	// waiting: its disk hangs, or a hand-over of leadership never ended. The
	// process must end, so that another server can lead.
	ErrStalled = errors.New("this server leads but commits nothing; it must be restarted")
)

// NotLeaderError says that the change was asked of a server that does not
// lead. Nothing happened; ask Leader.
type NotLeaderError struct{ Leader Leader }

func (e *NotLeaderError) Error() string {
	if e.Leader.API == "" {
		return fmt.Sprintf("this server does not lead the group; server %s does", e.Leader.ID)
	}
	return fmt.Sprintf("this server does not lead the group; server %s at %s does", e.Leader.ID, e.Leader.API)
}

// StorageError says that this server could not write its log: its disk is full
// or broken. Nothing was acknowledged; the entry may still be committed when it
// reached other servers, so treat it as an unknown outcome (errors.Is with
// ErrUnknownOutcome holds).
type StorageError struct{ Err error }

func (e *StorageError) Error() string {
	return fmt.Sprintf("the log of this server cannot be written (%v); free space on its disk or replace it", e.Err)
}

func (e *StorageError) Unwrap() []error { return []error{e.Err, ErrUnknownOutcome} }

// LevelError says that a server of the group does not know this command yet.
// Nothing happened.
type LevelError struct{ Needs, Level uint32 }

func (e *LevelError) Error() string {
	return fmt.Sprintf("the change needs version %d of the command set and a server of the group knows only %d; upgrade every server first", e.Needs, e.Level)
}

// MembershipError says why the group's servers were not changed.
type MembershipError struct {
	ID   fsm.MemberID
	Text string
	// Retry: the state of the group is in the way, not the request.
	Retry bool
}

func (e *MembershipError) Error() string { return e.Text }

// FolderError says why a data folder is refused.
type FolderError struct {
	Dir  string
	Text string
	Err  error // ErrRemoved, or nil
}

func (e *FolderError) Unwrap() error { return e.Err }

func (e *FolderError) Error() string { return fmt.Sprintf("data folder %s: %s", e.Dir, e.Text) }
