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
//	units/<xx>/<u>.apply on a copy: where it is after the last transactions
//	tmp/                images on their way in; emptied at start
//	aside/              databases of branches that were given up
//
// # The commit path
//
// commit → capture → sync → publish → acknowledge. SQLite runs in WAL mode at
// synchronous=NORMAL with automatic checkpoints off. After each commit, still
// under the writer, the new WAL frames are read back and verified (capture):
// that yields the commit's number, its pages and a running digest (chain).
// One fdatasync then makes all commits that are waiting for it durable (group
// commit). What is acknowledged is published to subscribers, and its callers
// return: that is what is durable, or, with a Sink, what the sink says, which
// knows of the copies on other nodes.
//
// A position is (epoch, seq). The epoch comes from the directory; seq counts
// the unit's commits. No write is made per commit to remember seq: a small
// record is written before each restart of the WAL, and after a crash the
// commits found in the WAL are counted on from it.
//
// # Copies
//
// A unit in state Following is a copy: it takes entries (commits of its
// source) instead of writes. They are put, page by page, through SQLite's
// sqlite_dbpage table, as one transaction for all that are there; so a copy is
// the same file, but for what SQLite counts in the first page, and readers,
// recovery and checkpoints are SQLite's own. A mark, (position, chain), names
// content: a copy verifies each entry's chain before it applies it. Before each
// transaction a side record says where the copy will be after it; the place of
// a transaction in the WAL tells whether it came to be. A copy whose side
// record does not explain its WAL says that it needs an image.
//
// A unit's history goes through branches, each with an epoch: its lineage.
// Promote begins one, for many units in one write of the registry, which also
// records where each unit's WAL stood.
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
//   - the sync of a copy's side record: started by Apply, which awaits it.
//   - the sync of an image that comes in: at most one for each, awaited by its Close.
//   - a checkpoint (at most one per unit): started after a commit that finds
//     the WAL long enough; awaited when the unit closes.
//
// Everything else runs in the caller's goroutine.
package store
