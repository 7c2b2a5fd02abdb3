package controlplane

import (
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
)

// MoveProgress is how far a running move is, as its target told this leader last.
type MoveProgress struct {
	At    time.Time
	Bytes uint64  // that the target has
	Total uint64  // of the unit
	Rate  float64 // bytes a second of late; 0 while it is not known
}

// left is the time that the rest of the copying takes at the present rate; false
// while that is not known.
func (p *MoveProgress) left() (time.Duration, bool) {
	if p.Rate <= 0 || p.Bytes > p.Total {
		return 0, false
	}
	return time.Duration(float64(p.Total-p.Bytes) / p.Rate * float64(time.Second)), true
}

// moved keeps what the target of a move told.
func (k *knowledge) moved(id fsm.JobID, i *loops.Image, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.moves[id]
	next := MoveProgress{At: now, Bytes: i.Bytes, Total: i.Total, Rate: before.Rate}
	if i.Total == 0 { // no image is under way: it has all of it, or has not begun
		next.Bytes, next.Total = i.Held, i.Held
	}
	if passed := now.Sub(before.At).Seconds(); known && next.Bytes > before.Bytes && passed > 0 {
		next.Rate = float64(next.Bytes-before.Bytes) / passed
	}
	if len(k.moves) < knowledgeKept || known {
		k.moves[id] = next
	}
}

// moveEnded forgets how far a move was.
func (k *knowledge) moveEnded(id fsm.JobID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.moves, id)
}

// moveProgress gives how far a move is; false where its target has not told this leader,
// or this server does not lead.
func (s *Server) moveProgress(id fsm.JobID) (MoveProgress, bool) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	p, ok := s.known.moves[id]
	return p, ok
}
