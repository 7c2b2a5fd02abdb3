package loops

import (
	"slices"

	"domicile/fsm"
)

// TellReaderAgain is when a read replica is told again to follow, at the next scan:
// nobody reports of it, so that nothing else would show that it was lost.
const TellReaderAgain = LookEvery

// readers plans what the read replicas of a unit need (C8). Which are missing, or where
// they should not be, is the directory's to say (fsm's ReadersLack); when is said here:
// at once, but for one whose node is lost, which may come back.
func (p *planner) readers(u *fsm.Placed) {
	m := &p.m.units
	lack := p.s.ReadersLack(u, nil)
	if lack != fsm.ReadersLost {
		delete(m.readerLost, u.Unit)
	} else if m.readerLost[u.Unit] == 0 {
		m.readerLost[u.Unit] = p.now // a new leader begins to wait anew
	}
	if lack == fsm.ReadersWhole || lack == fsm.ReadersLost && !p.overdue(u, m.readerLost[u.Unit]) {
		return
	}
	if p.s.ReadersLack(u, p.silent()) == fsm.ReadersWhole {
		p.passOver(u) // all that could be done is on nodes that do not answer
		return
	}
	p.lists.read = append(p.lists.read, ref(u))
}

// passOver has units looked at again when a silent node answers on which a read replica
// of a unit could be.
func (p *planner) passOver(u *fsm.Placed) {
	name, _, _ := u.Unit.Split()
	t, _ := p.s.Tenant(name)
	for n := range p.s.Nodes() {
		if slices.Contains(t.Readers, n.Region) && p.isSilent(n.Name) {
			p.m.passedOver[n.Name] = true
		}
	}
}

// tellAgain is when a copy in a state is told again to follow that was told.
func tellAgain(s fsm.CopyState) fsm.Millis {
	if s == fsm.CopyReader {
		return TellReaderAgain
	}
	return TellAgain
}

// kind is what a copy in a state is told that it is for: 0 for a replica.
func kind(s fsm.CopyState) fsm.CopyState {
	if s.Replica() {
		return 0
	}
	return s
}

// outlives reports whether a copy that left is kept until the unit has one in sync: it
// could be the last that has what was acknowledged (architecture §3.7.6). One in another
// region than its primary is not: the unit has gone from there whole, or it was never
// promoted, and nothing is to be left there (I2).
func (p *planner) outlives(u *fsm.Placed, c fsm.Copy) bool {
	home, ok := p.s.Node(u.Node)
	on, there := p.s.Node(c.Node)
	return ok && there && home.Region == on.Region && p.s.CopiesWanted(u) > 0 && len(inSync(u)) == 0
}

// followKind says what a copy is for that a call has follow.
func followKind(c Call, u *fsm.Placed) fsm.CopyState {
	for i := range u.Copies {
		if cp := &u.Copies[i]; c.Work == FollowUnits && cp.Node == c.Target.Node {
			return kind(cp.State)
		}
	}
	return 0
}
