package store

import (
	"errors"
	"fmt"
	"time"
)

// What callers tell apart with errors.Is. The errors that the package returns
// wrap these and carry the unit's name and what to do.
var (
	// ErrUnknownUnit: the node has no unit of that name.
	ErrUnknownUnit = errors.New("unknown unit")
	// ErrExists: a unit of that name is there already.
	ErrExists = errors.New("unit exists")
	// ErrWrongID: the unit of that name has another id (it is another unit).
	ErrWrongID = errors.New("unit has another id")
	// ErrBadName: not a tenant's name, nor a tenant's name, a dot and a number.
	ErrBadName = errors.New("bad unit name")
	// ErrConflict: a compare-and-set found another value.
	ErrConflict = errors.New("changed by someone else")
	// ErrTooManyOpen: all units that may be open are in use. Retry later.
	ErrTooManyOpen = errors.New("too many open units")
	// ErrGone: the unit was deleted, replaced or is closing.
	ErrGone = errors.New("unit is gone")
	// ErrClosed: the store, the transaction or the statement is closed.
	ErrClosed = errors.New("closed")
	// ErrDamaged: the unit's file is missing, not SQLite, cut or corrupt, or
	// cannot be read.
	ErrDamaged = errors.New("unit is damaged")
	// ErrDiskFull: no space left. Where ErrOutcomeUnknown does not match as
	// well, the write had no effect.
	ErrDiskFull = errors.New("disk full")
	// ErrIO: the disk failed. As ErrDiskFull.
	ErrIO = errors.New("disk error")
	// ErrOutcomeUnknown: the transaction committed but could not be made
	// durable: it may or may not survive a crash.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrFrozen: the unit takes no writes for now (see FrozenError).
	ErrFrozen = errors.New("unit is frozen")
	// ErrNotAllowed: the statement is refused by the sandbox.
	ErrNotAllowed = errors.New("not allowed")
	// ErrReadOnly: a statement that writes was run where only reads may be.
	ErrReadOnly = errors.New("read-only")
	// ErrInterrupted: a statement was stopped (deadline, cancelled request,
	// killed transaction). Wraps the cause, for example
	// context.DeadlineExceeded or what was given to Tx.Kill.
	ErrInterrupted = errors.New("interrupted")
	// ErrKilled: a transaction was ended by the node.
	ErrKilled = errors.New("transaction was ended by the node")
	// ErrBadImage: an image that came in is cut, altered or not a database.
	ErrBadImage = errors.New("bad image")
	// ErrFormat: the data folder is of a newer version, or not the store's.
	ErrFormat = errors.New("data folder cannot be used")
	// ErrLocked: another process has the data folder open.
	ErrLocked = errors.New("data folder is in use")
	// ErrNoStatement: the SQL text holds no statement (empty, or comments).
	ErrNoStatement = errors.New("no SQL statement")
	// ErrUnreplicated: the write is committed here, but was given up before it
	// was acknowledged: its outcome is unknown to the client.
	ErrUnreplicated = errors.New("committed here, not acknowledged by the copies")
	// ErrFollowing: the unit is a copy; it takes writes only from its source.
	ErrFollowing = errors.New("unit is a copy")
	// ErrWrongState: the unit's state does not allow what was asked.
	ErrWrongState = errors.New("not in this state")
	// ErrNeedsImage: what the copy has cannot be built on: it holds nothing, or
	// its position is not known.
	ErrNeedsImage = errors.New("copy needs an image")
	// ErrGap: entries are missing between the copy and what came.
	ErrGap = errors.New("entries are missing")
	// ErrForked: what came continues another history than the copy has.
	ErrForked = errors.New("histories differ")
	// ErrBadEntry: an entry is malformed or was altered.
	ErrBadEntry = errors.New("bad entry")
	// ErrBehind: see BehindError.
	ErrBehind = errors.New("too far behind")
)

// UnitError says which unit an error is about and what can be done.
type UnitError struct {
	Unit string
	Op   string // what was being done, for example "open" or "commit"
	Err  error
	Hint string // what to do, may be empty
}

func (e *UnitError) Error() string {
	s := fmt.Sprintf("unit %s: %s: %v", e.Unit, e.Op, e.Err)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *UnitError) Unwrap() error { return e.Err }

// FrozenError is ErrFrozen with the time until the unit thaws by itself.
type FrozenError struct {
	Unit string
	Left time.Duration
}

func (e *FrozenError) Error() string {
	return fmt.Sprintf("unit %s takes no writes while it is handed over (%d ms left); retry", e.Unit, e.Left.Milliseconds())
}

// Is makes errors.Is(err, ErrFrozen) hold.
func (e *FrozenError) Is(target error) bool { return target == ErrFrozen }

// BehindError ends a subscription whose next change is no longer kept.
type BehindError struct {
	Current Position // subscribe again from here, after reading the data anew
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("changes after the given position are no longer kept; the current position is %s", e.Current)
}

// Is makes errors.Is(err, ErrBehind) hold.
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// SQLError is an error that SQLite reported for a statement.
type SQLError struct {
	Code    int    // SQLite's extended result code
	Name    string // of the primary code, for example "SQLITE_CONSTRAINT"
	Message string
	Offset  int // byte in the statement's text, -1 where unknown
}

func (e *SQLError) Error() string { return e.Message }

// Is makes errors.Is find the package's own errors behind SQLite's codes.
func (e *SQLError) Is(target error) bool {
	switch target {
	case ErrDiskFull:
		return e.Code&0xff == codeFull
	case ErrIO:
		return e.Code&0xff == codeIOErr
	case ErrDamaged:
		switch e.Code {
		case codeCorruptVTab:
			return false
		case codeIORead, codeIOData, codeIOCorruptFS:
			return true
		}
		return e.Code&0xff == codeNotADB || e.Code&0xff == codeCorrupt
	case ErrReadOnly:
		return e.Code&0xff == codeReadOnly
	case ErrNotAllowed:
		return e.Code&0xff == codeAuth
	}
	return false
}

// SQLite's result codes that the package looks at (sqlite.org/rescode.html).
const (
	codeInterrupt   = 9
	codeIOErr       = 10
	codeReadOnly    = 8
	codeCorrupt     = 11
	codeCorruptVTab = 11 | 1<<8
	codeIORead      = 10 | 1<<8
	codeIOData      = 10 | 32<<8
	codeIOCorruptFS = 10 | 33<<8
	codeFull        = 13
	codeCantOpen    = 14
	codeAuth        = 23
	codeNotADB      = 26
)
