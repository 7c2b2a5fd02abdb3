package loops

import (
	"slices"

	"domicile/fsm"
)

// What nodes do with writes, in the simulation: a node writes what its last grant names
// and it has not given up, and acknowledges a write once every copy that counts has it.

// grant tells a node what it may write.
func (s *copySim) grant(name fsm.NodeName) {
	n := s.nodes[name]
	n.grants = map[fsm.UnitID]simGrant{}
	for u := range s.state.Grantable(name) {
		g := simGrant{epoch: u.Epoch}
		for _, c := range u.Copies {
			if c.State.Counts() {
				g.counts = append(g.counts, c.Node)
			}
		}
		n.grants[u.ID] = g
	}
}

// may reports whether a node would write a unit now.
func (s *copySim) may(name fsm.NodeName, u fsm.UnitName) bool {
	n := s.nodes[name]
	h, ok := n.units[u]
	g, granted := n.grants[h.id]
	return ok && granted && g.epoch == h.epoch && s.now < n.until && h.from == "" && !h.given
}

// write has each unit written once, where it may be: by one node at most (I1).
func (s *copySim) write() {
	writer := map[fsm.UnitID]fsm.NodeName{}
	for _, name := range s.names {
		n := s.nodes[name]
		for u, h := range n.units {
			if !s.may(name, u) {
				continue
			}
			if other, two := writer[h.id]; two {
				s.t.Errorf("%s and %s both write %s (I1)", other, name, u)
			}
			writer[h.id] = name
			h.pos++
			n.units[u] = h
			whole := true
			for _, c := range s.all {
				f, ok := s.nodes[c].units[u]
				if follows := ok && f.id == h.id && f.from == name && f.synced && !s.nodes[c].silent; follows {
					f.pos = h.pos
					s.nodes[c].units[u] = f
				} else if slices.Contains(n.grants[h.id].counts, c) {
					whole = false
				}
				if ok && f.pos < h.pos {
					f.synced = false
					s.nodes[c].units[u] = f
				}
			}
			if whole {
				s.acked[h.id] = h.pos
			}
		}
	}
}

// sync has what follows on a node catch up, where its source holds the unit.
func (s *copySim) sync(name fsm.NodeName) {
	n := s.nodes[name]
	for u, h := range n.units {
		if h.from == "" || n.stuck && !s.quiet {
			continue
		}
		from := s.nodes[h.from]
		if src, ok := from.units[u]; ok && src.id == h.id && src.from == "" && !from.silent {
			h.pos, h.epoch, h.synced = src.pos, src.epoch, true
			n.units[u] = h
		}
	}
}

func (s *copySim) follow(n *simNode, i Item, source fsm.NodeName) {
	h, ok := n.units[i.Unit]
	if ok && h.id == i.ID && h.from == source {
		return // as it does
	}
	if !ok || h.id != i.ID {
		h = simUnit{id: i.ID}
	}
	h.from, h.synced, h.given = source, false, false
	n.units[i.Unit] = h
}

// promote makes a node the primary of what it holds: never of less than was acknowledged
// (I10).
func (s *copySim) promote(name fsm.NodeName, h simUnit, i Item, epoch uint64) {
	if h.epoch == epoch && h.from == "" {
		return
	}
	// A late call of a former flip makes a primary that is never granted.
	if p, ok := s.state.Placed(i.Unit); ok && p.ID == i.ID && p.Epoch == epoch && h.pos < s.acked[h.id] {
		s.t.Errorf("%s is promoted on %s with %d of %d acknowledged writes (I10)", i.Unit, name, h.pos, s.acked[h.id])
	}
	s.nodes[name].units[i.Unit] = simUnit{id: i.ID, epoch: epoch, pos: h.pos}
}

// giveUp has a source give a unit up to a node that has its last position.
func (s *copySim) giveUp(name fsm.NodeName, i Item) *Failure {
	n := s.nodes[name]
	h, ok := n.units[i.Unit]
	if !ok || h.id != i.ID || h.from != "" {
		return &Failure{Why: "not here", Absent: true}
	}
	if h.given {
		return nil
	}
	to := s.nodes[i.Node].units[i.Unit]
	if s.nodes[i.Node].silent || to.id != i.ID || to.from != name || !to.synced || !s.quiet && s.r.IntN(4) == 0 {
		return &Failure{Why: "the target did not get the last position in time"}
	}
	h.given = true
	n.units[i.Unit] = h
	to.pos, to.epoch = h.pos, h.epoch
	s.nodes[i.Node].units[i.Unit] = to
	return nil
}

// newest reports whether a call is newer than what its unit was told last; of a call
// about many units it takes out those of which it is not.
func (s *copySim) newest(n *simNode, f *flight, failed map[fsm.UnitName]Failure) bool {
	if f.Verb == LookAtUnits || f.Verb == LookAtMove {
		return true
	}
	if f.Target.Unit != "" {
		if f.number < n.heardOf[f.Target.ID] {
			return false
		}
		n.heardOf[f.Target.ID] = f.number
		return true
	}
	f.Units = slices.DeleteFunc(slices.Clone(f.Units), func(i Item) bool {
		if f.number < n.heardOf[i.ID] {
			failed[i.Unit] = Failure{Why: "told something newer"}
			return true
		}
		n.heardOf[i.ID] = f.number
		return false
	})
	return true
}

// record applies a proposal. Where there are moves, some are lost, or their answers are.
func (s *copySim) record(c Proposal) bool {
	fails := s.moves && !s.quiet && s.r.IntN(25) == 0
	if fails && s.r.IntN(2) == 0 {
		s.m.Proposed(c, false, s.now)
		return false
	}
	s.before(c.Cmd)
	r, events := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Decided: s.term, Cmd: c.Cmd})
	s.tell(events)
	s.m.Proposed(c, r.Refusal == nil && !fails, s.now)
	s.limit(c.Cmd)
	return true
}
