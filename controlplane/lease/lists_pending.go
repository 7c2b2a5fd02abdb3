package lease

import (
	"iter"

	"domicile/fsm"
)

func listRevision(s *fsm.State, n fsm.NodeName) fsm.Revision { return s.Revision() }

func grantable(s *fsm.State, n fsm.NodeName) iter.Seq[*fsm.Placed] {
	return func(yield func(*fsm.Placed) bool) {
		for p := range s.HeldBy(n) {
			if p.Node == n && p.Promoted() && p.State != fsm.UnitDeleting && !yield(p) {
				return
			}
		}
	}
}
