package store

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// This file holds the signatures of what is being built; each moves to its
// own file with its body.

var errPending = errors.New("not built yet")

// Store ...
type Store struct{}

// Open opens (or makes) the data folder. Fails with ErrFormat or ErrLocked.
func Open(cfg Config) (*Store, error) { return nil, errPending }

// Close ends subscriptions and transactions, checkpoints and closes every unit.
func (s *Store) Close() error { return errPending }

// ID is the node's own id, made with the folder: 16 hex digits.
func (s *Store) ID() string { return "" }

// Create makes an empty unit in state Active, epoch 1. The same name and id (not 0) again is no
// error; otherwise ErrExists or ErrWrongID.
func (s *Store) Create(ctx context.Context, name string, id uint64) (Record, error) {
	return Record{}, errPending
}

// Delete removes a unit: users are interrupted, subscriptions end with ErrGone.
// id 0 is not compared. ErrUnknownUnit, ErrWrongID.
func (s *Store) Delete(ctx context.Context, name string, id uint64) error { return errPending }

// Get gives a unit's record, ErrUnknownUnit if there is none.
func (s *Store) Get(name string) (Record, error) { return Record{}, errPending }

// List gives up to limit records by name, after the given name. limit <= 0: all.
func (s *Store) List(after string, limit int) ([]Record, error) { return nil, errPending }

// Update changes a unit's record durably; f may refuse by an error. Name, ID and Epoch stay.
func (s *Store) Update(ctx context.Context, name string, f func(*Record) error) (Record, error) {
	return Record{}, errPending
}

// Holder gives the newest holder, the zero Holder before the first.
func (s *Store) Holder() Holder { return Holder{} }

// SetHolder replaces the holder durably if it is still old; ErrConflict otherwise.
func (s *Store) SetHolder(old, new Holder) error { return errPending }

// Acquire opens the unit if need be and keeps it open until release is called (once).
func (s *Store) Acquire(ctx context.Context, name string) (u *Unit, release func(), err error) {
	return nil, nil, errPending
}

// Position gives a unit's position, without keeping it open.
func (s *Store) Position(ctx context.Context, name string) (Position, error) {
	return Position{}, errPending
}

// Bytes gives the bytes on disk of one unit (database and WAL).
func (s *Store) Bytes(name string) (int64, error) { return 0, errPending }

// Sizes gives every unit's bytes, by name; cheap after the first call.
func (s *Store) Sizes() iter.Seq2[string, int64] { return nil }

// OpenUnits lists the names of the units that are open now.
func (s *Store) OpenUnits() []string { return nil }

// Stats gives the counters.
func (s *Store) Stats() Stats { return Stats{} }

// ImageInfo describes an image that comes in.
type ImageInfo struct {
	Size int64 // bytes, -1 where unknown
	// Sum is called after the last byte was read and gives the hex SHA-256 that the
	// sender stated ("" or nil: not stated).
	Sum func() string
	// Position of the image; zero for an operator's file: a replaced unit then goes on
	// from its position plus one, a new one starts at 1:1.
	Position Position
	State    State // of the unit when it is made by this; default Active
}

// Install makes or replaces a unit from a SQLite file. Nothing changes unless the whole of it
// arrived, matches size and sum, and passes SQLite's own check: ErrBadImage otherwise.
// id 0 is not compared with an existing unit's.
func (s *Store) Install(ctx context.Context, name string, id uint64, r io.Reader, info ImageInfo) (Record, error) {
	return Record{}, errPending
}

// Unit is an open unit.
type Unit struct{}

// Name ...
func (u *Unit) Name() string { return "" }

// Record gives the unit's record as it is now.
func (u *Unit) Record() Record { return Record{} }

// Read runs f on a reader connection in a read transaction (one snapshot).
func (u *Unit) Read(ctx context.Context, f func(*Conn) error) error { return errPending }

// Write runs f on the writer in BEGIN IMMEDIATE … COMMIT, rolled back where f fails. It returns
// when the commit is durable (by Config.Sync), with its position; where nothing was changed, with
// the current position. f must not run BEGIN, COMMIT or ROLLBACK (savepoints are fine).
func (u *Unit) Write(ctx context.Context, f func(*Conn) error) (Position, error) {
	return Position{}, errPending
}

// Mode is the kind of an interactive transaction.
type Mode int

// The modes of Unit.Begin.
const (
	// ReadTx: a read transaction on a reader connection, begun by Begin.
	ReadTx Mode = iota
	// WriteTx: BEGIN IMMEDIATE on the writer, begun by Begin.
	WriteTx
	// Manual: the writer, outside any transaction: each statement commits by itself unless SQL
	// itself says BEGIN, SAVEPOINT, COMMIT … (scripts, VACUUM, PRAGMA foreign_keys, client-driven
	// transactions). Between calls of Do it may be kept while InTransaction holds.
	Manual
)

// Tx holds a connection over several calls. Its methods may be called by several goroutines.
type Tx struct{}

// Begin waits its turn (writer: a fair queue) until ctx ends.
func (u *Unit) Begin(ctx context.Context, mode Mode) (*Tx, error) { return nil, errPending }

// Do runs f with the connection under ctx. Returns after commits made by f are durable.
func (t *Tx) Do(ctx context.Context, f func(*Conn) error) error { return errPending }

// InTransaction reports whether SQL has a transaction open now.
func (t *Tx) InTransaction() bool { return false }

// Commit ends it, durable. For ReadTx the same as Rollback. ErrKilled (with cause) where it was killed.
func (t *Tx) Commit(ctx context.Context) (Position, error) { return Position{}, errPending }

// Rollback undoes what is open and gives the connection back. Calling it again does nothing.
func (t *Tx) Rollback() {}

// Kill rolls back and gives the connection back, now; a running Do is interrupted. Later calls fail
// with ErrKilled wrapping cause.
func (t *Tx) Kill(cause error) {}

// Killed gives the error of Kill, or nil.
func (t *Tx) Killed() error { return nil }

// Position is that of the last commit made through t, or the unit's at Begin.
func (t *Tx) Position() Position { return Position{} }

// Position is that of the last acknowledged commit.
func (u *Unit) Position() Position { return Position{} }

// WaitPosition returns when the unit has p, or with ctx's error.
func (u *Unit) WaitPosition(ctx context.Context, p Position) error { return errPending }

// Change is one committed transaction.
type Change struct {
	Position Position
	Bytes    int64 // of the pages that it changed
}

// Changes gives the commits after the given position (zero: from now on) as they are published.
// The sequence ends with an error: ErrGone, *BehindError, or ctx's. Keep the unit acquired meanwhile.
func (u *Unit) Changes(ctx context.Context, after Position) iter.Seq2[Change, error] { return nil }

// Bytes on disk: database and WAL.
func (u *Unit) Bytes() int64 { return 0 }

// SetEpoch begins a new epoch, which must be higher than the present one.
func (u *Unit) SetEpoch(ctx context.Context, epoch uint64) error { return errPending }

// Freeze stops writes for d, then thaws by itself. Running writes are waited for; transactions that
// are still open at ctx's end (or after half of d) are killed. Returns the final position, durable.
// Freezing again sets the time anew.
func (u *Unit) Freeze(ctx context.Context, d time.Duration) (Position, error) {
	return Position{}, errPending
}

// Thaw ends a freeze. Reports whether it was frozen.
func (u *Unit) Thaw() bool { return false }

// Frozen gives the time left and the final position; zero where not frozen.
func (u *Unit) Frozen() (time.Duration, Position) { return 0, Position{} }

// Image is a consistent copy of a unit on its way out. Writes go on meanwhile.
type Image struct {
	Size     int64
	PageSize int
	Position Position
}

// Image begins a copy; Close it.
func (u *Unit) Image(ctx context.Context) (*Image, error) { return nil, errPending }

// WriteTo writes the SQLite file to w, once.
func (i *Image) WriteTo(w io.Writer) (int64, error) { return 0, errPending }

// Sum is the hex SHA-256 of the file, after WriteTo has returned without error.
func (i *Image) Sum() string { return "" }

// Close lets checkpoints go on.
func (i *Image) Close() {}

// Conn is a connection lent to a callback; invalid after it.
type Conn struct{}

// Prepare compiles the first statement of sql and gives the rest of the text, trimmed of white
// space and comments where nothing else is left. ErrNoStatement for an empty text.
func (c *Conn) Prepare(sql string) (s *Stmt, tail string, err error) { return nil, "", errPending }

// Exec prepares, binds, runs and closes the first statement of sql. row may be nil.
func (c *Conn) Exec(sql string, args []Value, row func(*Row) error) (r Result, tail string, err error) {
	return Result{}, "", errPending
}

// Autocommit reports whether no transaction is open.
func (c *Conn) Autocommit() bool { return false }

// SetLastInsertID sets what LastInsertID and last_insert_rowid() give until the next INSERT: for a
// session that goes on after an earlier loan. A loan starts with 0.
func (c *Conn) SetLastInsertID(id int64) {}

// LookupKey gives what StoreKey kept under an idempotency key less than ten minutes before now.
func (c *Conn) LookupKey(key string, now time.Time) (fingerprint, answer []byte, found bool, err error) {
	return nil, nil, false, errPending
}

// StoreKey keeps an answer in the write's own transaction (call it within Write or WriteTx).
func (c *Conn) StoreKey(key string, fingerprint, answer []byte, now time.Time) error {
	return errPending
}

// LookupKey as Conn.LookupKey, outside a transaction.
func (u *Unit) LookupKey(ctx context.Context, key string, now time.Time) (fingerprint, answer []byte, found bool, err error) {
	return nil, nil, false, errPending
}

// Stmt is a compiled statement.
type Stmt struct{}

// ReadOnly: it changes nothing in the database (BEGIN, COMMIT and such are read-only too).
func (s *Stmt) ReadOnly() bool { return false }

// IsExplain: EXPLAIN or EXPLAIN QUERY PLAN.
func (s *Stmt) IsExplain() bool { return false }

// Kind is the statement's class, as of Classify but told by SQLite.
func (s *Stmt) Kind() Kind { return 0 }

// Columns describes the result; empty for a statement that gives none.
func (s *Stmt) Columns() []Column { return nil }

// Params gives the parameters' names with their prefix, "" for "?"; index 0 is parameter 1.
func (s *Stmt) Params() []string { return nil }

// Bind sets parameter i, counted from 1.
func (s *Stmt) Bind(i int, v Value) error { return errPending }

// Run steps to the end, giving each row to row (nil: dropped). An error of row stops it and is returned.
// It may be run again, after binding anew.
func (s *Stmt) Run(row func(*Row) error) (Result, error) { return Result{}, errPending }

// Close gives the statement back to the connection's cache.
func (s *Stmt) Close() {}

// Row is the current row; it and the bytes that it gives are valid during the callback only.
type Row struct{}

// Len is the number of columns.
func (r *Row) Len() int { return 0 }

// Type of column i, counted from 0.
func (r *Row) Type(i int) Type { return 0 }

// Int64 of an Integer.
func (r *Row) Int64(i int) int64 { return 0 }

// Float64 of a Float.
func (r *Row) Float64(i int) float64 { return 0 }

// Bytes of a Text or Blob, not copied.
func (r *Row) Bytes(i int) []byte { return nil }

// Value copies column i.
func (r *Row) Value(i int) Value { return Value{} }

// Kind is the class of a statement.
type Kind int

// The classes.
const (
	KindEmpty     Kind = iota // no statement
	KindRead                  // SELECT, VALUES, EXPLAIN, a WITH that reads
	KindWrite                 // everything not listed: DML, DDL, VACUUM, ANALYZE …
	KindPragma                // PRAGMA: run it on the writer, in Manual
	KindBegin                 // BEGIN [DEFERRED|IMMEDIATE|EXCLUSIVE]
	KindBeginRead             // BEGIN … READONLY, as @libsql/client sends it
	KindCommit                // COMMIT, END
	KindRollback              // ROLLBACK (not TO)
	KindSavepoint             // SAVEPOINT, RELEASE, ROLLBACK TO
)

// Classify tells the class of the first statement in sql by its words, without a connection. A
// statement that it takes for a read but writes after all fails with ErrReadOnly on a reader,
// without effect: run it on the writer then.
func Classify(sql string) Kind { return KindEmpty }

// Commit is one captured commit.
type Commit struct {
	Position Position
	Chain    uint64 // digest of the unit's history up to this commit
	PageSize int
	DBPages  uint32 // size of the database after it
	Pages    []Page // last version of each changed page, by number
}

// Page is a changed page: where it is, and the CRC-32C of its content.
type Page struct {
	Number uint32
	Frame  uint32 // in the WAL, from 1
	CRC    uint32
}

// Sink receives a unit's commits, in order.
type Sink interface {
	// Captured is called under the writer, before the commit is durable. read gives the content
	// of c.Pages[i] and may be called until Captured returns.
	Captured(c *Commit, read func(i int, page []byte) error)
	// Durable is called when everything up to p is on disk.
	Durable(p Position)
}
