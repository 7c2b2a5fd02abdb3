package hrana

import "context"

// Kind is the kind of a SQLite value.
type Kind uint8

// SQLite's five storage classes.
const (
	Null Kind = iota
	Integer
	Float
	Text
	Blob
)

// Value is an argument. Bytes is a text's or a blob's and aliases the request's body.
type Value struct {
	Kind  Kind
	Int   int64
	Float float64
	Bytes []byte
}

// NamedValue is an argument by name; the name comes with or without its : @ or $.
type NamedValue struct {
	Name  string
	Value Value
}

// Stmt is one statement and its arguments, positional or named, never both.
type Stmt struct {
	SQL   string
	Args  []Value
	Named []NamedValue
}

// Rows is a result at its present row. Name and DeclType may be asked at any time,
// the values only inside RowWriter.Row, where Bytes is valid until Row returns.
type Rows interface {
	Columns() int
	Name(i int) string
	DeclType(i int) string // "" where the column is an expression
	Kind(i int) Kind
	Int64(i int) int64
	Float64(i int) float64
	Bytes(i int) []byte
}

// RowWriter takes a statement's rows as they are made. Begin comes once, before the
// first row; a statement that has no columns may leave it out. stream tells that Row
// may take its time and that its rows are final: the statement only reads, and holds
// no transaction that others wait for. An error from Row ends the statement, and
// undoes it if it writes.
type RowWriter interface {
	Begin(rows Rows, stream bool)
	Row(rows Rows) error
}

// Outcome is what a statement did.
type Outcome struct {
	Affected  int64 // rows inserted, changed or deleted
	Inserted  bool  // LastRowID was set by this statement
	LastRowID int64
	Committed bool // something is in the file that was not before, for good
}

// Param is a statement's parameter. Name holds its prefix; "" is a plain ?.
type Param struct{ Name string }

// Column is a result's column.
type Column struct{ Name, DeclType string }

// Description is what Describe found.
type Description struct {
	Params   []Param
	Columns  []Column
	Explain  bool
	Readonly bool
}

// Session runs the statements of one stream on one unit. It holds a connection only
// while a statement runs or a transaction is open. It is used by one request at a
// time.
//
// Its errors are an *Error where the statement is at fault, a *Refused where the node
// may not do it, and anything else where the node failed.
type Session interface {
	// Execute runs the one statement of stmt.
	Execute(ctx context.Context, stmt *Stmt, w RowWriter) (Outcome, error)
	// Sequence runs all statements of sql, without rows, until one fails. The outcome
	// is meaningful with an error too.
	Sequence(ctx context.Context, sql string) (Outcome, error)
	Describe(ctx context.Context, sql string) (Description, error)
	// Autocommit tells that no transaction is open.
	Autocommit() bool
	// Close rolls back what is open. The session is not used again.
	Close()
}

// Refused is an error of the node and not of the statement: the unit is frozen, the
// lease has lapsed, it lives elsewhere.
type Refused struct {
	Err  error
	Code string // for the result of a statement, where the answer cannot be given up
	// Final makes it the answer to the whole request whatever was executed before:
	// the outcome is unknown.
	Final bool
}

func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap gives the caller its own error back.
func (r *Refused) Unwrap() error { return r.Err }
