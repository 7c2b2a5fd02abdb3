package store

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// slots are the units that are open, being opened, or being worked on. A
// slot's lock is held while its unit is opened, closed, made, replaced or
// deleted: that holds up nobody who asks for another unit.
type slots struct {
	mu      sync.Mutex
	m       map[string]*slot
	idle    *list.List // of *slot that are open and not acquired, longest idle first
	open    int        // units open or being opened
	max     int
	freed   chan struct{} // closed when a unit becomes idle or closes; nil: nobody waits
	damaged map[string]damage
	closed  bool
}

type slot struct {
	name string
	lock chan struct{} // holds one token while someone works on the unit
	// Under slots.mu:
	unit  *Unit
	refs  int // callers that have acquired unit
	using int // callers that have or wait for lock
	elem  *list.Element
	since time.Time // idle since
}

func (p *slots) init(max int) {
	p.m, p.idle, p.max, p.damaged = map[string]*slot{}, list.New(), max, map[string]damage{}
}

func (p *slots) openNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// Acquire opens the unit if need be, and keeps it open until release is called
// (once). ErrUnknownUnit, ErrDamaged, ErrTooManyOpen, ErrDiskFull, ErrIO.
func (s *Store) Acquire(ctx context.Context, name string) (u *Unit, release func(), err error) {
	p := &s.slots
	p.mu.Lock()
	sl := p.m[name]
	if sl == nil || sl.unit == nil {
		p.mu.Unlock()
		return s.acquireSlow(ctx, name)
	}
	u = p.take(sl)
	p.mu.Unlock()
	return u, func() { p.put(sl, u) }, nil
}

// keepOpen counts one more user of a unit until release is called; false where it is open no
// more.
func (s *Store) keepOpen(u *Unit) (release func(), open bool) {
	p := &s.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	sl := p.m[u.name]
	if sl == nil || sl.unit != u {
		return nil, false
	}
	p.take(sl)
	return func() { p.put(sl, u) }, true
}

// take counts one more user; under mu.
func (p *slots) take(sl *slot) *Unit {
	sl.refs++
	if sl.elem != nil {
		p.idle.Remove(sl.elem)
		sl.elem = nil
	}
	return sl.unit
}

func (p *slots) put(sl *slot, u *Unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sl.unit != u {
		return // deleted or replaced meanwhile
	}
	sl.refs--
	if sl.refs == 0 {
		sl.since = time.Now()
		sl.elem = p.idle.PushBack(sl)
		p.wake()
	}
}

func (p *slots) wake() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

func (s *Store) acquireSlow(ctx context.Context, name string) (*Unit, func(), error) {
	p := &s.slots
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer s.unlockSlot(sl)
	p.mu.Lock()
	if sl.unit != nil { // opened by the one before
		u := p.take(sl)
		p.mu.Unlock()
		return u, func() { p.put(sl, u) }, nil
	}
	d, bad := p.damaged[name]
	p.mu.Unlock()
	rec, err := s.loadFinished(name)
	if err != nil {
		return nil, nil, err
	}
	if rec == nil {
		return nil, nil, &UnitError{Unit: name, Op: "find", Err: ErrUnknownUnit}
	}
	if bad && time.Now().Before(d.until) {
		return nil, nil, d.err
	}
	if err := s.makeRoom(ctx); err != nil {
		return nil, nil, err
	}
	u, err := openUnit(s, rec)
	if err != nil {
		s.damaged(name, err, false)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.open--
		p.wake()
		return nil, nil, err
	}
	if !p.damaged[name].examined {
		delete(p.damaged, name)
	}
	s.closed.drop(name)
	sl.unit = u
	u = p.take(sl)
	return u, func() { p.put(sl, u) }, nil
}

// lockSlot waits to be the one who works on a unit.
func (s *Store) lockSlot(ctx context.Context, name string) (*slot, error) {
	p := &s.slots
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, fmt.Errorf("store: %w", ErrClosed)
	}
	sl := p.m[name]
	if sl == nil {
		sl = &slot{name: name, lock: make(chan struct{}, 1)}
		p.m[name] = sl
	}
	sl.using++
	p.mu.Unlock()
	select {
	case sl.lock <- struct{}{}:
		return sl, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unuse(sl)
		return nil, s.waitedInVain("unit "+name, ctx)
	}
}

func (s *Store) unlockSlot(sl *slot) {
	<-sl.lock
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.unuse(sl)
}

func (p *slots) unuse(sl *slot) {
	sl.using--
	if sl.using == 0 && sl.unit == nil {
		delete(p.m, sl.name)
	}
}

// makeRoom counts one more open unit, after closing the one that is idle
// longest where there are too many.
func (s *Store) makeRoom(ctx context.Context) error {
	p := &s.slots
	for {
		p.mu.Lock()
		if p.open < p.max {
			p.open++
			p.mu.Unlock()
			return nil
		}
		victim := p.longestIdle(time.Time{})
		if victim == nil && p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		p.mu.Unlock()
		if victim != nil {
			s.closeIdle(victim)
			continue
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("%w: all %d are in use; raise --max-open or retry", ErrTooManyOpen, p.max)
		}
	}
}

// longestIdle locks the slot that is idle longest, if it is so since before
// the given time (zero: any); nil where there is none. Under mu.
func (p *slots) longestIdle(before time.Time) *slot {
	for e := p.idle.Front(); e != nil; e = e.Next() {
		sl := e.Value.(*slot)
		if !before.IsZero() && !sl.since.Before(before) {
			return nil
		}
		select {
		case sl.lock <- struct{}{}:
			sl.using++
			p.idle.Remove(e)
			sl.elem = nil
			return sl
		default: // someone works on it
		}
	}
	return nil
}

// closeIdle closes the unit of a slot from longestIdle, unless it was acquired
// meanwhile.
func (s *Store) closeIdle(sl *slot) {
	defer s.unlockSlot(sl)
	s.slots.mu.Lock()
	if sl.refs > 0 || sl.unit == nil {
		s.slots.mu.Unlock()
		return
	}
	u := sl.unit
	sl.unit = nil // Acquire now waits for the lock
	s.slots.mu.Unlock()
	u.shutdown(ErrGone, true)
	s.closedUnit(u)
}

// detach closes the unit of a locked slot although it may be in use: its users
// get ErrGone.
func (s *Store) detach(sl *slot, why error) {
	p := &s.slots
	p.mu.Lock()
	u := sl.unit
	sl.unit, sl.refs = nil, 0
	if sl.elem != nil {
		p.idle.Remove(sl.elem)
		sl.elem = nil
	}
	p.mu.Unlock()
	if u != nil {
		u.shutdown(why, false)
		s.closedUnit(u)
	}
}

func (s *Store) closedUnit(u *Unit) {
	s.sizes.set(u.name, u.Bytes())
	if u.rest != nil {
		s.closed.set(u.name, *u.rest)
	}
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.open--
	s.slots.wake()
}

// closeAll closes every unit, and lets none be opened any more.
func (s *Store) closeAll() {
	p := &s.slots
	p.mu.Lock()
	p.closed = true
	names := make([]string, 0, len(p.m))
	for name := range p.m {
		names = append(names, name)
	}
	p.mu.Unlock()
	turns := make(chan struct{}, closedAtOnce)
	var wg sync.WaitGroup
	for _, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			s.closeOne(name)
		})
	}
	wg.Wait()
}

// closedAtOnce is how many units are closed at once when the node stops: most of the
// time of one is a sync or two.
const closedAtOnce = 16

// closeOne closes a unit for good.
func (s *Store) closeOne(name string) {
	p := &s.slots
	p.mu.Lock()
	sl := p.m[name]
	if sl != nil {
		sl.using++
	}
	p.mu.Unlock()
	if sl == nil {
		return
	}
	sl.lock <- struct{}{}
	p.mu.Lock()
	u := sl.unit
	sl.unit = nil
	p.mu.Unlock()
	if u != nil {
		u.shutdown(fmt.Errorf("%w: the node is stopping", ErrGone), true)
		s.closedUnit(u)
	}
	s.unlockSlot(sl)
}

// OpenUnits lists the names of the units that are open now, in no order.
func (s *Store) OpenUnits() []string {
	p := &s.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, 0, len(p.m))
	for name, sl := range p.m {
		if sl.unit != nil {
			names = append(names, name)
		}
	}
	return names
}

// janitor closes idle units, and lets units that pause give memory back.
func (s *Store) janitor(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(max(time.Millisecond, min(s.cfg.IdleClose/4, 5*time.Second)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ctx.Err() == nil {
			s.slots.mu.Lock()
			sl := s.slots.longestIdle(time.Now().Add(-s.cfg.IdleClose))
			s.slots.mu.Unlock()
			if sl == nil {
				break
			}
			s.closeIdle(sl)
		}
		s.trimIdle()
	}
}

// trimIdle lets units that nobody has used for a moment give memory back.
func (s *Store) trimIdle() {
	before := time.Now().Add(-2 * time.Second)
	var units []*Unit
	s.slots.mu.Lock()
	for e := s.slots.idle.Back(); e != nil; e = e.Prev() {
		if sl := e.Value.(*slot); sl.unit != nil && sl.since.Before(before) {
			units = append(units, sl.unit)
		}
	}
	s.slots.mu.Unlock()
	for _, u := range units {
		u.trim()
	}
}
