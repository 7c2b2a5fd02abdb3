// Package store is the data node's storage engine: every unit (a tenant, or
// one bucket of a tenant) is one SQLite database file, with one writer and
// many readers. The package knows nothing of HTTP, leases or the directory.
//
// # Layout of the data folder
//
//	format              version of the folder and the node's own id
//	units.bolt          the node's durable record of its units (bbolt)
//	units/<xx>/<u>.db   a unit's database; <xx> is two hex digits of a hash
//	units/<xx>/<u>.pos  the unit's position at its last complete checkpoint
//	tmp/                images on their way in; emptied at start
//
// # The commit path
//
// commit → capture → sync → publish → acknowledge. SQLite runs in WAL mode at
// synchronous=NORMAL with automatic checkpoints off. After each commit, still
// under the writer, the new WAL frames are read back and verified (capture):
// that yields the commit's number, its pages and a running digest (chain).
// One fdatasync then makes all commits that are waiting for it durable (group
// commit), they are published to subscribers, and their callers return.
//
// A position is (epoch, seq). The epoch comes from the directory; seq counts
// the unit's commits. No write is made per commit to remember seq: a small
// record is written before each restart of the WAL, and after a crash the
// commits found in the WAL are counted on from it.
//
// # The sandbox
//
// Tenants' statements run under an authorizer, SQLite's defensive mode and
// lowered limits: no statement reaches outside its unit's file, changes its
// durability, or touches the node's own tables (prefix _domicile_).
//
// # Goroutines
//
//   - the janitor (closes idle units, trims memory): started by Open, stopped
//     by Store.Close.
//   - a checkpoint (at most one per unit): started after a commit that finds
//     the WAL long enough; awaited when the unit closes.
//
// Everything else runs in the caller's goroutine.
package store
