package leasemodel

// maxGrants bounds Bounds.Grants, and the messages in flight.
const maxGrants = 4

// Lists that a grant carries or a primary holds.
const (
	listNone    = iota // none yet
	listEmpty          // does not name the unit
	listAlone          // names it, without copies
	listWithOne        // names it, with the copy
)

// How far a request for a promise is.
const (
	askNothing  = iota
	askSent     // on its way to the copy
	askAnswered // promised, on its way back
)

// State is everything. Times are ticks that are left. Index 0 is the old leader,
// 1 the new one.
type State struct {
	// Leaders.
	Elected   uint8    // 1: the new leader was elected, the old one deposed
	Sent      [2]uint8 // newest grant
	Answered  [2]uint8 // newest grant whose answer was seen
	Confirmed [2]uint8 // newest such grant that a leadership check followed
	Until     [2]uint8 // until the primary has certainly lapsed
	Decided   [2]uint8 // 1: taken for lapsed; the entry is under way
	OldKnows  uint8    // 1: the old leader has applied the flip

	// The directory.
	Flipped  uint8
	Recorded uint8 // the copy: 0 not, 1 by the old leader, 2 by the new one
	InSync   uint8 // the copy may be promoted without a word of an operator
	Has      uint8 // the copy has followed, so that an operator may choose it

	// The primary.
	Boot     uint8
	Holder   uint8 // leader that it heard last: 1 the old one, 2 the new one
	List     uint8
	Newest   uint8            // grant taken in this boot, of Holder
	Acked    uint8            // highest acked among them
	Right    [maxGrants]uint8 // left of each grant taken, had it been confirmed
	Older    uint8            // left under an older holder
	Held     uint8            // 1: had a confirmed right to the unit in this boot
	Follows  uint8            // 1: the copy has followed in this boot
	Window   uint8            // left of the copy's promise
	Ask      uint8
	AskLeft  uint8 // what the promise under way will be worth
	Released uint8
	Gave     uint8 // 1: released at some time (kept by the model, not by the node)
	Writing  uint8 // 1: a write was let in and not answered yet (clause 7)
	Steady   uint8 // ticks before the clock may lose one again

	// The copy.
	Promoted uint8
	Promised uint8
	Marked   uint8 // 1: it has a durable mark that it promises
	Asked    uint8 // 1: a promotion was asked for and put off
	PutOff   uint8 // left of the time that the refusal stated
	Late     uint8 // 1: put off again after that time (bad)
	Twice    uint8 // 1: acknowledged a write that it might not (bad, clause 7)
	CopyBoot uint8

	Duplicates uint8
	Flight     [maxGrants]message // sorted, empty ones last
}

// message is a grant or an answer; 0 is none. Bits: 0-2 number, 3 leader, 4-6
// acked, 7 boot, 8-9 list, 10 list sent whole, 11 answer, 12 the copy is in
// sync, 15 set.
type message uint16

func grant(leader, number, acked, boot, list int, whole bool) message {
	m := message(1<<15 | number | leader<<3 | acked<<4 | boot<<7 | list<<8)
	if whole {
		m |= 1 << 10
	}
	return m
}

func answer(leader, number int, inSync bool) message {
	m := message(1<<15 | 1<<11 | number | leader<<3)
	if inSync {
		m |= 1 << 12
	}
	return m
}

func (m message) number() uint8  { return uint8(m & 7) }
func (m message) leader() uint8  { return uint8(m >> 3 & 1) }
func (m message) acked() uint8   { return uint8(m >> 4 & 7) }
func (m message) boot() uint8    { return uint8(m >> 7 & 1) }
func (m message) list() uint8    { return uint8(m >> 8 & 3) }
func (m message) whole() bool    { return m&(1<<10) != 0 }
func (m message) isAnswer() bool { return m&(1<<11) != 0 }
func (m message) inSync() bool   { return m&(1<<12) != 0 }

// add puts m in flight; false when there is no room.
func (s *State) add(m message, room int) bool {
	for i := range room {
		if s.Flight[i] == m {
			return true
		}
		if s.Flight[i] == 0 {
			s.Flight[i] = m
			for ; i > 0 && s.Flight[i-1] < m; i-- { // descending, so that 0 is last
				s.Flight[i-1], s.Flight[i] = s.Flight[i], s.Flight[i-1]
			}
			return true
		}
	}
	return false
}

// remove takes the message at i out of flight.
func (s *State) remove(i int) {
	copy(s.Flight[i:], s.Flight[i+1:])
	s.Flight[maxGrants-1] = 0
}

// deadline is what is left of the primary's lease.
func (s *State) deadline() uint8 {
	if s.Acked == 0 {
		return s.Older
	}
	return max(s.Older, s.Right[s.Acked-1])
}

func (s *State) named() bool { return s.List >= listAlone }

// mayWrite says whether the primary may acknowledge a write now.
func (s *State) mayWrite(r *Rule, b *Bounds) bool {
	if s.Released != 0 {
		if r.Released {
			return false
		}
		// Without the clause: not under a lease, but under a promise.
		return s.promiseHolds(r, b)
	}
	if !s.named() {
		return false
	}
	return s.deadline() > 0 || s.promiseHolds(r, b)
}

// promiseHolds is clause 10: a right that goes on without a control plane.
func (s *State) promiseHolds(r *Rule, b *Bounds) bool {
	if !b.Promises || !s.named() || r.OnlyContinues && s.Held == 0 {
		return false
	}
	alone := s.List == listAlone && (s.Follows == 0 || !r.Followers)
	return alone || s.Window > 0
}

// Bad names what is wrong with a state, or is empty.
func (s *State) Bad(r *Rule, b *Bounds) string {
	may := s.mayWrite(r, b)
	switch {
	case may && s.Promoted != 0:
		return "both nodes may acknowledge writes of the unit"
	case s.Twice != 0:
		return "the former primary acknowledged a write after the copy was promoted"
	case may && s.Gave != 0:
		return "the node that released the unit may acknowledge writes of it"
	case s.Late != 0:
		return "the copy put a promotion off for longer than it said"
	}
	return ""
}
