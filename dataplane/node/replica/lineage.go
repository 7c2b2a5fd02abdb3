package replica

import (
	"fmt"

	"domicile/dataplane/node/store"
)

// Numbers of commits go on from branch to branch, so (1, 7) and (2, 7) are the
// same content where branch 2 began at 7.

// validLineage checks that a lineage that was received leads to at.
func validLineage(l store.Lineage, at store.Position) error {
	for i, b := range l {
		if i > 0 && (b.Epoch <= l[i-1].Epoch || b.From < l[i-1].From) {
			return fmt.Errorf("%w: a lineage whose branches go back", errFrame)
		}
	}
	if n := len(l); n == 0 || l[n-1].Epoch != at.Epoch || l[n-1].From > at.Seq {
		return fmt.Errorf("%w: a lineage that does not lead to %s", errFrame, at)
	}
	return nil
}

// branchOf gives the numbers of the commits in the branch of that epoch, in a
// history with lineage l that has reached commit number seq.
func branchOf(l store.Lineage, seq, epoch uint64) (from, to uint64, ok bool) {
	for i, b := range l {
		if b.Epoch != epoch {
			continue
		}
		if i+1 < len(l) {
			return b.From, min(l[i+1].From, seq), true
		}
		return b.From, seq, true
	}
	return 0, 0, false
}

// onLineage reports whether a history with lineage l that has reached commit
// number seq went through p.
func onLineage(l store.Lineage, seq uint64, p store.Position) bool {
	return l.Has(p) && p.Seq <= seq
}

// fork gives the last point that my history shares with theirs; false where
// they share no branch.
func fork(theirs store.Lineage, their uint64, mine store.Lineage, my uint64) (store.Position, bool) {
	for i := len(mine) - 1; i >= 0; i-- {
		e := mine[i].Epoch
		from, to, ok := branchOf(theirs, their, e)
		if !ok {
			continue
		}
		myFrom, myTo, _ := branchOf(mine, my, e)
		if p := min(to, myTo); p >= max(from, myFrom) {
			return store.Position{Epoch: e, Seq: p}, true
		}
	}
	return store.Position{}, false
}
