package store

import "slices"

// Mark is a point in a unit's history and the digest of everything up to it:
// two copies with equal marks have the same content. The zero Mark is that of
// a copy that holds nothing.
type Mark struct {
	Position Position
	Chain    uint64
}

// Branch is a part of a unit's history: its commits follow commit number From
// and have positions of Epoch. Numbers go on from branch to branch.
type Branch struct {
	Epoch uint64 `json:"epoch"`
	From  uint64 `json:"from"`
}

// Lineage is the branches that a unit's history went through, oldest first:
// epochs rise, and no branch begins before the one it follows.
type Lineage []Branch

// At gives the epoch of the position with that number: of the newest branch
// that begins at it or before; 0 where none does.
func (l Lineage) At(seq uint64) uint64 {
	for _, b := range slices.Backward(l) {
		if b.From <= seq {
			return b.Epoch
		}
	}
	return 0
}

// Has reports whether a history with this lineage goes through p, as far as
// branches tell: the last one is taken as going on for ever. Where a branch
// begins, the position has the epochs of both.
func (l Lineage) Has(p Position) bool {
	for i, b := range l {
		if b.Epoch == p.Epoch {
			return b.From <= p.Seq && (i+1 == len(l) || p.Seq <= l[i+1].From)
		}
	}
	return false
}

// valid reports whether epochs rise and no branch begins before its parent.
func (l Lineage) valid() bool {
	for i, b := range l {
		if b.Epoch == 0 || (i > 0 && (b.Epoch <= l[i-1].Epoch || b.From < l[i-1].From)) {
			return false
		}
	}
	return true
}

// upTo gives the branches that a history has begun by commit number seq.
func (l Lineage) upTo(seq uint64) Lineage {
	n := len(l)
	for n > 0 && l[n-1].From > seq {
		n--
	}
	return l[:n:n]
}

// branch gives the lineage with one more branch, which begins at seq: what
// began later, or under a number that is not lower, was another history.
func (l Lineage) branch(epoch, seq uint64) Lineage {
	l = l.upTo(seq)
	for len(l) > 0 && l[len(l)-1].Epoch >= epoch {
		l = l[: len(l)-1 : len(l)-1]
	}
	return append(l, Branch{epoch, seq})
}

// place gives the position with that number the epoch that the lineage says.
func (l Lineage) place(p Position) Position {
	if e := l.At(p.Seq); e > p.Epoch {
		p.Epoch = e
	}
	return p
}
