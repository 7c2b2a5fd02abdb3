package store

import "context"

// Follow makes the unit a copy of the one at from (the source's address, kept
// in Record.From), durably: one that is not there is made and holds nothing
// (zero Mark, Record.Empty), another one keeps what it has; its users get
// ErrGone where it was not a copy before. It takes no writes from then on, but
// entries (Apply) and images (Install), and cannot be promoted while it holds
// nothing. It gives the mark of what it has.
//
// ErrWrongID: the unit here has another id (0 is not compared). An error that
// Is ErrNeedsImage: it follows, but what it has cannot be built on.
func (s *Store) Follow(ctx context.Context, unit string, id uint64, from string) (Mark, error) {
	return Mark{}, nil
}

// Adopt gives a copy its source's lineage, durably, and gives its mark: where a
// branch began at the copy's position without a commit so far, the position is
// in that branch now. ErrForked, and no effect: the copy's position is not on
// that lineage. ErrWrongState: it is no copy.
func (s *Store) Adopt(ctx context.Context, unit string, lineage Lineage) (Mark, error) {
	return Mark{}, nil
}

// Mark gives the mark of a unit's last captured (on a copy: applied) commit,
// without opening the unit; what it says is on disk where the unit is not
// open. The zero Mark: a copy that holds nothing. ErrUnknownUnit,
// ErrNeedsImage, ErrDamaged.
func (s *Store) Mark(ctx context.Context, unit string) (Mark, error) { return Mark{}, nil }

// Lineage gives the branches of a unit's history, durably recorded.
func (s *Store) Lineage(unit string) (Lineage, error) { return nil, nil }
