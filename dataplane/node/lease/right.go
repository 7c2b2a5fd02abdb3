package lease

import (
	"errors"
	"maps"
	"time"
)

// Why a unit may not be written (L2): the three reasons.
var (
	// ErrNoLease: no grant was confirmed since the process began.
	ErrNoLease = errors.New("this node holds no lease yet")
	// ErrLapsed: the time of the lease has run out.
	ErrLapsed = errors.New("this node's lease has lapsed")
	// ErrNotNamed: the lease does not name the unit, or names another of that name.
	ErrNotNamed = errors.New("this node's lease does not name the unit")
)

// MayWrite tells whether the unit may be written at this instant: nil, or one of
// the three errors above. It takes no lock and allocates nothing while the lease
// has time left.
func (l *Lease) MayWrite(unit string, id uint64) error {
	s := l.now.Load()
	if !s.granted {
		return ErrNoLease
	}
	e, named := s.names(unit, id)
	now := l.clock.Now()
	switch {
	case now < s.deadline && named:
		return nil
	case now < s.deadline:
		return ErrNotNamed
	case named && l.goesOn(unit, &e, s, now):
		return nil
	}
	return ErrLapsed
}

// pledges are what the last round without a control plane has brought. It is
// never changed, but replaced.
type pledges struct {
	// cut is until when no server of the group counts as ready.
	cut time.Duration
	// since tells who has followed a unit since a time.
	since func(unit string, t time.Duration) []string
	by    map[string]pledge // by address
}

// pledge is what one copy has promised.
type pledge struct {
	until time.Duration // nine tenths of the time, from when it was asked
	units map[string]bool
}

// goesOn is clause 10: the lease has lapsed, and everyone who could be promoted
// for the unit has promised not to be.
func (l *Lease) goesOn(unit string, e *entry, s *state, now time.Duration) bool {
	p := l.pledges.Load()
	if now >= p.cut || !s.continues(unit, e) {
		return false
	}
	for _, addr := range e.copies {
		if !p.has(addr, unit, now) {
			return false
		}
	}
	for _, addr := range p.since(unit, s.confirmed) {
		if !p.has(addr, unit, now) {
			return false
		}
	}
	return true
}

func (p *pledges) has(addr, unit string, now time.Duration) bool {
	by, ok := p.by[addr]
	return ok && now < by.until && by.units[unit]
}

// continues reports whether the node held the right to write the unit by its
// confirmed lease until that lapsed: promises only continue such a right.
func (s *state) continues(unit string, e *entry) bool {
	if !s.granted || s.superseded || len(s.servers) == 0 || e.named >= s.deadline || s.older(unit, e) {
		return false
	}
	at, promoted := s.promoted[unit]
	return !promoted || at < s.deadline
}

// Promoted tells that units became this node's by a promotion: they are written
// by a grant that names them in the branch of epoch (0: of any), and no promise
// stands in for it. A list that is held since before, or comes late, would have the
// node write before the entry that says that it was promoted, without the copies
// that are in sync now (architecture §3.7.6).
func (l *Lease) Promoted(units []string, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := *l.now.Load()
	s.promoted = maps.Clone(s.promoted)
	if s.promoted == nil {
		s.promoted = make(map[string]time.Duration, len(units))
	}
	now := l.clock.Now()
	if s.begun = maps.Clone(s.begun); s.begun == nil {
		s.begun = make(map[string]uint64, len(units))
	}
	for _, u := range units {
		s.promoted[u], s.begun[u] = now, epoch
	}
	l.now.Store(&s)
}
