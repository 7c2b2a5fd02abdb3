package store

// Type is the storage class of a value.
type Type uint8

// The storage classes. The zero Type is Null.
const (
	Null Type = iota
	Integer
	Float
	Text
	Blob
)

// Value is one SQL value: an argument of a statement, or a copied column.
type Value struct {
	Type  Type
	Int   int64   // Integer
	Float float64 // Float
	Text  string  // Text
	Blob  []byte  // Blob
}

// IntValue gives an Integer.
func IntValue(i int64) Value { return Value{Type: Integer, Int: i} }

// FloatValue gives a Float. SQLite keeps NaN as NULL.
func FloatValue(f float64) Value { return Value{Type: Float, Float: f} }

// TextValue gives a Text.
func TextValue(s string) Value { return Value{Type: Text, Text: s} }

// BlobValue gives a Blob. The bytes are copied when they are bound.
func BlobValue(b []byte) Value { return Value{Type: Blob, Blob: b} }

// Column describes a column of a result.
type Column struct {
	Name     string
	DeclType string // as written in CREATE TABLE; "" for an expression
}

// Result is what running one statement to its end has done.
type Result struct {
	Changes      int64 // rows changed by the statement; 0 for one that only reads
	LastInsertID int64 // rowid of the session's last INSERT; 0 before the first
	Rows         int64 // rows given to the callback
}
