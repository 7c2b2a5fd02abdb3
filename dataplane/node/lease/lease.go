package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"domicile/internal/boottime"
	"domicile/proto"
)

// Unit is a unit of the list that a grant names.
type Unit struct {
	Name string
	ID   uint64 // 0: the list named it by name alone
	// Epoch is that of the branch that it is to be written in; 0: not said.
	Epoch uint64
	// Copies are the addresses of every node that an entry may promote for it,
	// InSync those whose acknowledgement its writes wait for.
	Copies, InSync []string
}

// entry is a Unit as the table keeps it.
type entry struct {
	id, epoch      uint64
	copies, inSync []string      // nobody changes them
	named          time.Duration // when it came into the list
}

// Lease is what a node holds. Safe for concurrent use.
type Lease struct {
	clock boottime.Clock
	boot  string

	now     atomic.Pointer[state]
	pledges atomic.Pointer[pledges]
	taken   chan struct{} // one token: a grant was taken since Run last looked

	mu       sync.Mutex // one grant at a time; guards the fields below and who stores now
	holder   proto.Holder
	newest   uint64             // number of the newest grant taken from holder
	acked    uint64             // the highest acked among them
	arrivals map[uint64]arrival // of those from acked on, by number
	former   time.Duration      // until when the units may be written under older holders
	own      time.Duration      // and under this one
}

// arrival is when a grant was taken, and for how long it counts.
type arrival struct {
	at time.Duration
	ms time.Duration
}

// state is what is asked for in each write. It is never changed, but replaced.
type state struct {
	held    bool   // a list is held
	epoch   string // its name
	history history
	units   *btree.Map[string, entry]

	granted bool // a grant was confirmed in this boot
	// superseded: a newer history than that of the newest confirmed grant was heard
	// (Supersede).
	superseded bool
	deadline   time.Duration // until when units may be written, where granted

	// confirmed is when the grant arrived that the deadline counts from: what
	// that grant's leader had recorded by then is in the list, and nothing that a
	// later one says is certain to be more than a deposed leader's word.
	confirmed time.Duration

	// Of the newest grant taken.
	arrived  time.Duration
	ms       time.Duration
	servers  []string
	promoted map[string]time.Duration // units that were promoted here after the deadline, and when; nobody changes it
	// begun are units that were promoted here, with the epoch: until a list names
	// them in it they are not named, whatever older lists say. Nobody changes it.
	begun map[string]uint64
}

// history is what epochs' names belong to: another one may use them anew.
type history struct {
	authority string
	number    uint64
}

// New makes the lease of a node that holds none. boot is the process's own id.
func New(clock boottime.Clock, boot string) *Lease {
	l := &Lease{clock: clock, boot: boot, taken: make(chan struct{}, 1), arrivals: map[uint64]arrival{}}
	l.now.Store(&state{units: new(btree.Map[string, entry])})
	l.pledges.Store(&pledges{})
	return l
}

// Boot is the process's id, which answers to grants carry.
func (l *Lease) Boot() string { return l.boot }

// State tells what GET /_admin/lease does. left is 0 once the lease has lapsed.
type State struct {
	Held    bool   // a list is held
	Epoch   string // its name
	Units   int
	Granted bool // a grant was confirmed in this boot
	Left    time.Duration
}

// State gives what is held now.
func (l *Lease) State() State {
	s := l.now.Load()
	return State{Held: s.held, Epoch: s.epoch, Units: s.units.Len(), Granted: s.granted, Left: s.left(l.clock.Now())}
}

// Current reports whether the lease has time left: reads without it may be stale
// (architecture §3.7.3).
func (l *Lease) Current() bool {
	s := l.now.Load()
	return s.granted && l.clock.Now() < s.deadline
}

// Renewal tells how long ago the newest grant was taken, and for how long it
// counts; ok is false where none was taken in this boot.
func (l *Lease) Renewal() (ago, ms time.Duration, ok bool) {
	s := l.now.Load()
	if s.ms == 0 {
		return 0, 0, false
	}
	return l.clock.Now() - s.arrived, s.ms, true
}

// Unit gives a unit of the list.
func (l *Lease) Unit(name string) (Unit, bool) {
	e, ok := l.now.Load().units.Get(name)
	return Unit{Name: name, ID: e.id, Copies: e.copies, InSync: e.inSync}, ok
}

// Units calls f with each unit of the list, by name, until it gives false.
func (l *Lease) Units(f func(Unit) bool) {
	l.now.Load().units.Scan(func(name string, e entry) bool {
		return f(Unit{Name: name, ID: e.id, Copies: e.copies, InSync: e.inSync})
	})
}

// names gives the unit's entry, if the list names it.
func (s *state) names(unit string, id uint64) (e entry, named bool) {
	e, ok := s.units.Get(unit)
	return e, ok && (e.id == 0 || e.id == id) && !s.older(unit, &e)
}

// older reports whether the list is from before the unit was promoted here.
func (s *state) older(unit string, e *entry) bool {
	return len(s.begun) > 0 && e.epoch != 0 && e.epoch < s.begun[unit]
}

func (s *state) left(now time.Duration) time.Duration {
	if !s.granted {
		return 0
	}
	return max(s.deadline-now, 0)
}
