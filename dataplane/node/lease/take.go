package lease

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"domicile/fsm"
	"domicile/proto"
)

// MaxMS is the longest that a grant may count for, in milliseconds.
const MaxMS = 24 * 60 * 60 * 1000

// maxArrivals bounds the grants that a leader which sees no answer makes the node
// remember; older ones than the last half of it confirm nothing then.
const maxArrivals = 1024

// MalformedError is a grant that says nothing, or two things: 400.
type MalformedError struct{ Text string }

func (e *MalformedError) Error() string { return e.Text }

// StaleError is a grant whose number is not above the newest taken from its
// holder (clause 2): 409.
type StaleError struct{ Newest uint64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("a grant that was sent later was taken already: number %d", e.Newest)
}

// OlderError is a grant from another holder than the newest that was heard
// (clause 6): 409.
type OlderError struct{ Holder proto.Holder }

func (e *OlderError) Error() string { return "a newer holder has granted: " + e.Holder.String() }

// NotHeldError is a grant for another boot, or of a list that is not held
// (clause 2): 412, and the grant was not taken.
type NotHeldError struct {
	Epoch string // of the list that is held, or ""
	Boot  string
	Why   string
}

func (e *NotHeldError) Error() string { return e.Why }

// Change is what a grant that was taken has changed.
type Change struct {
	// Whole says that Changed is the whole list.
	Whole   bool
	Changed []Unit   // named anew, or with other copies
	Gone    []string // named no longer
}

// Check gives a *MalformedError for a grant that cannot be taken by anyone.
func Check(g *proto.Grant) error {
	bad := func(format string, args ...any) error { return &MalformedError{fmt.Sprintf(format, args...)} }
	switch {
	case g.MS < 1 || g.MS > MaxMS:
		return bad("ms, for how long the grant counts, is 1 to %d", MaxMS)
	case g.Epoch == "" || len(g.Epoch) > 256:
		return bad("epoch, the name of the list of units, is needed")
	case g.Grant == 0:
		return bad("grant, the number of the grant, counts from 1")
	case g.Acked >= g.Grant:
		return bad("acked names a grant that was sent before this one, so it is less than grant")
	case g.Primaries != nil && (g.Base != "" || g.Add != nil || g.Remove != nil):
		return bad("a list comes whole, in primaries, or as a difference, in add and remove to the one that base names; not both")
	case g.Base == "" && (g.Add != nil || g.Remove != nil):
		return bad("base, the name of the list that add and remove change, is needed")
	}
	return checkUnits(g, bad)
}

func checkUnits(g *proto.Grant, bad func(string, ...any) error) error {
	seen := make(map[fsm.UnitName]bool, len(g.Add)+len(g.Remove))
	for _, list := range [][]proto.UnitItem{whole(g), g.Add, g.Remove} {
		for _, u := range list {
			if _, _, ok := u.Unit.Split(); !ok {
				return bad("%q is not a unit's name", u.Unit)
			}
			if seen[u.Unit] {
				return bad("the unit %s is named twice", u.Unit)
			}
			seen[u.Unit] = true
		}
	}
	for unit, addrs := range g.Copies {
		if len(seen) > 0 && (!seen[unit] || removed(g, unit)) {
			return bad("copies names the unit %s, which the list does not", unit)
		}
		if !distinct(addrs) {
			return bad("copies of the unit %s: each is an address, once", unit)
		}
	}
	for unit, addrs := range g.InSync {
		for _, a := range addrs {
			if !slices.Contains(g.Copies[unit], a) {
				return bad("in_sync of the unit %s names %q, which is not one of its copies", unit, a)
			}
		}
		if !distinct(addrs) {
			return bad("in_sync of the unit %s: each is an address, once", unit)
		}
	}
	if !distinct(g.Servers) {
		return bad("servers: each is an address, once")
	}
	return nil
}

func removed(g *proto.Grant, unit fsm.UnitName) bool {
	return slices.ContainsFunc(g.Remove, func(u proto.UnitItem) bool { return u.Unit == unit })
}

func whole(g *proto.Grant) []proto.UnitItem {
	if g.Primaries == nil {
		return nil
	}
	return *g.Primaries
}

func distinct(addrs []string) bool {
	for i, a := range addrs {
		if a == "" || len(a) > 512 || slices.Contains(addrs[:i], a) {
			return false
		}
	}
	return true
}

// Take takes a grant that arrived at a time of the clock, whole or not at all.
// The caller has kept its holder durably, which is what makes clause 6 outlive a
// restart, and calls Take in the order in which what it changes is to take
// effect.
func (l *Lease) Take(g *proto.Grant, arrived time.Duration) (Change, error) {
	if err := Check(g); err != nil {
		return Change{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.hear(g.Holder); err != nil {
		return Change{}, err
	}
	if g.Grant <= l.newest {
		return Change{}, &StaleError{l.newest}
	}
	s := *l.now.Load()
	notHeld := func(why string) (Change, error) {
		return Change{}, &NotHeldError{Epoch: s.epoch, Boot: l.boot, Why: why}
	}
	if g.Boot != "" && g.Boot != l.boot {
		return notHeld("this process of the node is another one than the grant is for; send the list whole")
	}
	h := history{g.Authority, g.History}
	held := s.held && s.history == h
	switch {
	case g.Primaries != nil, held && s.epoch == g.Epoch:
	case g.Base == "":
		return notHeld("this node does not hold the list " + g.Epoch + "; send it whole")
	case !held || s.epoch != g.Base:
		return notHeld("this node does not hold the list " + g.Base + ", which add and remove would change; send the list whole")
	}
	change := s.apply(g, arrived, held && s.epoch == g.Epoch)
	if s.history != h {
		s.begun = nil // its epochs are others
	}
	s.forgetBegun()
	s.held, s.epoch, s.history = true, g.Epoch, h
	s.arrived, s.ms, s.servers = arrived, time.Duration(g.MS)*time.Millisecond, g.Servers
	l.newest = g.Grant
	l.arrivals[g.Grant] = arrival{arrived, s.ms}
	if len(l.arrivals) > maxArrivals {
		maps.DeleteFunc(l.arrivals, func(n uint64, _ arrival) bool { return n+maxArrivals/2 <= g.Grant })
	}
	l.confirm(&s, g.Acked)
	l.now.Store(&s)
	select {
	case l.taken <- struct{}{}:
	default:
	}
	return change, nil
}

// hear takes a newer holder: nothing older counts from now on, and the time that
// is left under the older one runs out as it would have (clause 6).
func (l *Lease) hear(h proto.Holder) error {
	if h == l.holder {
		return nil
	}
	if h.Authority == l.holder.Authority && l.holder.Newer(h) {
		return &OlderError{l.holder}
	}
	l.former = max(l.former, l.own)
	l.holder, l.newest, l.acked, l.own = h, 0, 0, 0
	clear(l.arrivals)
	return nil
}

// confirm counts the lease from the arrival of the newest grant that is known to
// be confirmed (clause 2). acked may name a grant that was not taken here: then
// it confirms nothing.
func (l *Lease) confirm(s *state, acked uint64) {
	a, ok := l.arrivals[acked]
	if !ok || acked <= l.acked {
		return
	}
	l.acked, l.own = acked, a.at+a.ms
	maps.DeleteFunc(l.arrivals, func(n uint64, _ arrival) bool { return n < acked })
	s.superseded = false
	s.granted, s.deadline, s.confirmed = true, max(l.former, l.own), a.at
	if len(s.promoted) > 0 {
		s.promoted = maps.Clone(s.promoted)
		maps.DeleteFunc(s.promoted, func(_ string, at time.Duration) bool { return at < s.deadline })
	}
}

// apply makes the list of s the grant's. same says that s is that list already:
// then a difference, sent again because its answer was lost, is not applied.
func (s *state) apply(g *proto.Grant, arrived time.Duration, same bool) Change {
	var c Change
	units := s.units
	switch {
	case g.Primaries != nil:
		c = Change{Whole: true, Changed: unitsOf(*g.Primaries, g)}
		units = new(btree.Map[string, entry])
	case !same:
		c.Changed = unitsOf(g.Add, g)
		units = units.Copy()
		for _, u := range g.Remove {
			units.Delete(string(u.Unit))
			c.Gone = append(c.Gone, string(u.Unit))
		}
	case len(g.Copies) > 0 && g.Base == "": // of units that are in the list
		units = units.Copy()
		for name := range g.Copies {
			if e, ok := units.Get(string(name)); ok {
				c.Changed = append(c.Changed, unitOf(proto.UnitItem{Unit: name, ID: fsm.UnitID(e.id), Epoch: e.epoch}, g))
			}
		}
	}
	for _, u := range c.Changed {
		e := entry{id: u.ID, epoch: u.Epoch, copies: u.Copies, inSync: u.InSync, named: arrived}
		if old, ok := s.units.Get(u.Name); ok && old.id == u.ID {
			e.named = old.named
		}
		units.Set(u.Name, e)
	}
	s.units = units
	return c
}

// forgetBegun forgets the promotions that the list has come after.
func (s *state) forgetBegun() {
	if len(s.begun) == 0 {
		return
	}
	s.begun = maps.Clone(s.begun)
	maps.DeleteFunc(s.begun, func(unit string, epoch uint64) bool {
		e, ok := s.units.Get(unit)
		return ok && e.epoch >= epoch
	})
}

func unitsOf(items []proto.UnitItem, g *proto.Grant) []Unit {
	all := make([]Unit, len(items))
	for i := range items {
		all[i] = unitOf(items[i], g)
	}
	return all
}

func unitOf(item proto.UnitItem, g *proto.Grant) Unit {
	return Unit{Name: string(item.Unit), ID: uint64(item.ID), Epoch: item.Epoch, Copies: g.Copies[item.Unit], InSync: g.InSync[item.Unit]}
}
