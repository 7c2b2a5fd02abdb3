package store

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// Sync says when a write is acknowledged.
type Sync int

const (
	// SyncFull acknowledges a write once it is on disk.
	SyncFull Sync = iota
	// SyncNormal acknowledges it once it is in the WAL: a crash of the process
	// loses nothing, a power failure may lose the last commits.
	SyncNormal
)

// Config is what a Store is made from. The zero value of a field, except Dir,
// means its default.
type Config struct {
	Dir    string // data folder, made if it is not there
	Logger hclog.Logger
	Sync   Sync

	MaxOpen   int           // units open at once; default by the limit on file descriptors, at most 3,000
	IdleClose time.Duration // a unit not used for so long is closed; default 5 minutes
	Readers   int           // reader connections per unit; default 4

	CheckpointBytes int64         // length of the WAL at which it is checkpointed; default 4 MiB
	MaxWALBytes     int64         // beyond it, readers older than MaxReader are interrupted; default 64 MiB
	MaxReader       time.Duration // default 5 seconds
	Ring            int           // changes kept per open unit for subscribers; default 1,024

	// Sink makes what is given a unit's commits and decides when they are
	// acknowledged, for copies on other nodes; nil: what is durable here is
	// acknowledged. It is asked each time a unit is opened that is no copy, or
	// promoted while it is open, and must not call the store or wait.
	Sink func(u *Unit) Sink
	// ObserveSync is told how long each group's fdatasync took; may be nil.
	ObserveSync func(time.Duration)
	// Fault is asked before labelled file calls and fails them; for tests.
	Fault func(op FileOp, unit string) error
}

// FileOp labels a file call that Config.Fault can fail.
type FileOp string

// The labelled file calls.
const (
	OpCreate     FileOp = "create"     // making a unit's file
	OpRecord     FileOp = "record"     // writing units.bolt
	OpSync       FileOp = "sync"       // fdatasync of a WAL
	OpCheckpoint FileOp = "checkpoint" // checkpoint of a WAL
	OpPosition   FileOp = "position"   // writing a .pos file
	OpRename     FileOp = "rename"     // putting an image in its place
	OpImage      FileOp = "image"      // writing an image that comes in
	OpRemove     FileOp = "remove"     // removing a unit's files
	OpApply      FileOp = "apply"      // announcing what a copy is about to apply
	OpCommit     FileOp = "commit"     // the commit of what a copy applies
	OpAside      FileOp = "aside"      // keeping a file aside
)

// Stats are the store's counters since it was opened.
type Stats struct {
	OpenUnits   int
	Commits     uint64 // of the units' own
	Applied     uint64 // entries that copies have applied
	Syncs       uint64
	Checkpoints uint64
	Interrupts  uint64 // statements stopped by a deadline, a cancelled request or the node
}
