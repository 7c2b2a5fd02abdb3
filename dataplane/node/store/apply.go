package store

import "context"

// Entry is one commit of a unit, as it is sent to copies.
type Entry struct {
	Position Position
	Prev     Mark   // what it follows
	Chain    uint64 // that of Position
	PageSize int
	DBPages  uint32      // pages of the database after it
	Pages    []EntryPage // what it changed, numbers rising
	// Read gives the content of Pages[i] into page, for entries too large to
	// be held in memory; it is asked where Data is nil, each page perhaps more
	// than once.
	Read func(i int, page []byte) error
}

// EntryPage is a page's new content.
type EntryPage struct {
	Number uint32
	Data   []byte // PageSize bytes, or nil: Entry.Read gives them
}

// Apply puts entries, in order, into a copy, as one transaction that is durable
// when Apply returns: readers see all of them or none. It gives the copy's new
// mark. Each entry must follow the one before, the first one what the copy has,
// and all of it is verified before anything is changed. One Apply at a time
// runs per unit. An entry of a new branch is recorded in the lineage.
//
// Without effect: ErrGap (the first entry is not the next one), ErrForked (it
// is, but of another history), ErrBadEntry (malformed, or altered on the way),
// ErrNeedsImage (the copy has nothing that entries could be put on),
// ErrWrongState (it is no copy), ErrUnknownUnit, ErrDiskFull, ErrIO. Entries
// that the copy has already are passed over where the chain agrees. With
// ErrOutcomeUnknown the transaction was made but may not be durable.
func (s *Store) Apply(ctx context.Context, unit string, entries []Entry) (Mark, error) {
	return Mark{}, nil
}
