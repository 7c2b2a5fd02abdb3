package leasemodel

// Rule is the clauses of architecture §3.5 that are in force.
type Rule struct {
	Confirm       bool // 2: a grant counts once its answer was seen
	Boot          bool // 1, 2: a grant for another boot confirms nothing
	Whole         bool // 2: a grant whose list is not held is not taken
	Order         bool // 2: a grant that is not newer than the newest changes nothing
	Tenth         bool // 3: the leader waits ms and a tenth
	QuietDecided  bool // 3: no grant between the decision of lapse and its entry
	Check         bool // 4: acked names only what a leadership check followed
	WaitElected   bool // 5: a new leader takes every node as granted just now
	NewerHolder   bool // 6: nothing older is taken after a newer leader was heard
	Recheck       bool // 7: the lease is checked again before a write is answered
	ListAtOnce    bool // 9: a unit that is no longer named is not written
	RecordPromise bool // 10: the copy records the promise before it answers
	KeepPromise   bool // 10: a copy that has promised is not promoted meanwhile
	NineTenths    bool // 10: the primary uses nine tenths of a promise
	SinceSent     bool // 10: counted from when the request was sent
	Followers     bool // 10: a copy that follows has to promise, named or not
	Remember      bool // 10: also when a grant that may be a deposed leader's came since
	StopRenewing  bool // 10: no promise is renewed once a promotion was asked for
	OnlyContinues bool // 10: a promise creates no right that was not confirmed
	RecordRelease bool // 3.6: a release outlives a restart
	Released      bool // 10: a released unit is not written
}

// Whole is the rule with every clause.
func Whole() Rule {
	return Rule{
		Confirm: true, Boot: true, Whole: true, Order: true, Tenth: true, QuietDecided: true,
		Check: true, WaitElected: true, NewerHolder: true, Recheck: true, ListAtOnce: true,
		RecordPromise: true, KeepPromise: true, NineTenths: true, SinceSent: true, Followers: true, Remember: true,
		StopRenewing: true, OnlyContinues: true, RecordRelease: true, Released: true,
	}
}

// Knockout is a rule with one clause left out.
type Knockout struct {
	Name     string
	LeaveOut func(*Rule)
	Promises bool // shown by the instance with promises, else by the one with leases alone
}

// Knockouts are all rules that lack one clause.
func Knockouts() []Knockout {
	return []Knockout{
		{"confirming (2)", func(r *Rule) { r.Confirm = false }, false},
		{"boot numbers (1, 2)", func(r *Rule) { r.Boot = false }, false},
		{"refusing a grant whole (2)", func(r *Rule) { r.Whole = false }, false},
		{"order of grants and their lists (2)", func(r *Rule) { r.Order = false }, false},
		{"the tenth (3)", func(r *Rule) { r.Tenth = false }, false},
		{"no grant between lapse and entry (3)", func(r *Rule) { r.QuietDecided = false }, false},
		{"the leadership check (4)", func(r *Rule) { r.Check = false }, false},
		{"the wait after an election (5)", func(r *Rule) { r.WaitElected = false }, false},
		{"the newer holder (6)", func(r *Rule) { r.NewerHolder = false }, false},
		{"the second check of a write (7)", func(r *Rule) { r.Recheck = false }, false},
		{"the list at once (9)", func(r *Rule) { r.ListAtOnce = false }, false},
		{"a release that outlives a restart (3.6)", func(r *Rule) { r.RecordRelease = false }, false},
		{"the promise recorded before the answer (10)", func(r *Rule) { r.RecordPromise = false }, true},
		{"the promise kept (10)", func(r *Rule) { r.KeepPromise = false }, true},
		{"nine tenths (10)", func(r *Rule) { r.NineTenths = false }, true},
		{"a promise counted from its request (10)", func(r *Rule) { r.SinceSent = false }, true},
		{"a promise of every follower (10)", func(r *Rule) { r.Followers = false }, true},
		{"a promise of every follower, whatever grants came since (10)", func(r *Rule) { r.Remember = false }, true},
		{"no renewal once a promotion was asked for (10)", func(r *Rule) { r.StopRenewing = false }, true},
		{"only continuing a right (10)", func(r *Rule) { r.OnlyContinues = false }, true},
		{"a released unit is not written (10)", func(r *Rule) { r.Released = false }, true},
	}
}

// Bounds make an instance small.
type Bounds struct {
	Lease        uint8    // ms in ticks, at least 2; a tenth of it is one tick
	Grants       [2]uint8 // that the old and the new leader send, at most 4
	InFlight     int      // messages, at most 4; one that is sent beyond it displaces another
	Restarts     uint8    // of the primary
	CopyRestarts uint8
	Duplicates   uint8 // grants that are delivered once more
	Promises     bool  // clause 10
	Joining      bool  // the copy is recorded and follows only later
	ByHand       bool  // a copy that is not in sync may be chosen, once the lease has lapsed
}

// Size is how large an instance is.
type Size string

// Sizes: of the tests that run all the time, of make model, and of a night.
const (
	Small Size = "small"
	Usual Size = "usual"
	Large Size = "large"
)

// Leases is the instance for clauses 1 to 7 and 9, and releases.
func (z Size) Leases() Bounds {
	switch z {
	case Small:
		return Bounds{Lease: 2, Grants: [2]uint8{3, 2}, InFlight: 2, Restarts: 1, Duplicates: 1}
	case Large:
		return Bounds{Lease: 4, Grants: [2]uint8{4, 3}, InFlight: 4, Restarts: 1, Duplicates: 1}
	}
	return Bounds{Lease: 3, Grants: [2]uint8{3, 3}, InFlight: 3, Restarts: 1, Duplicates: 1}
}

// Promises is the instance for clause 10.
func (z Size) Promises() Bounds {
	b := Bounds{Lease: 3, Grants: [2]uint8{2, 2}, InFlight: 2, Restarts: 1, CopyRestarts: 1, Promises: true, Joining: true, ByHand: true}
	switch z {
	case Small:
		b.Lease, b.Grants, b.InFlight = 2, [2]uint8{2, 1}, 1
	case Large:
		b.Grants, b.InFlight = [2]uint8{3, 3}, 3
	}
	return b
}
