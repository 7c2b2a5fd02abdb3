// Package jsonscan reads and writes JSON (RFC 8259) one token at a time, for the
// bodies that a node sees with every request. The reader allocates only for
// strings that hold escapes, the writer appends to a slice of the caller.
//
// It is stricter than encoding/json where leniency hides faults: invalid UTF-8,
// lone surrogates, unescaped control characters and anything behind the value
// are errors. It starts no goroutine and keeps no state.
package jsonscan
