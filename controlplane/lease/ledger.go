package lease

import "time"

// rules are what tests leave out, one at a time, to show that each is needed.
// The zero value leaves out none.
type rules struct {
	confirmAtOnce   bool // a grant confirms itself (clause 2)
	trustAnswers    bool // an answer is enough to confirm, without a check (4)
	trustUnderWay   bool // a check confirms answers seen while it ran (4)
	noElectionWait  bool // a new leader counts nobody as granted (5)
	noTenth         bool // clocks do not drift (3)
	grantWhileTaken bool // grants go on between the lapse and its entry (3)
	presentLength   bool // a grant is taken for as long as grants are now (3)
}

// ledger is the book-keeping of one node's grants in one term: which number is
// next, which ones count as confirmed, and until when the node may write at the
// latest. It does no I/O and reads no clock. Times are the keeper's clock's.
//
// Leadership checks are numbered in the order in which they begin, one at a
// time. stamp is the number of checks that had begun when an answer was seen, so
// that the success of check n confirms exactly the answers with a stamp below n.
type ledger struct {
	rules  rules
	number uint64 // of the newest grant
	acked  uint64 // newest confirmed grant to this boot; 0: none
	boot   string // the node's process; "": it has not answered in this term
	// older and newer are the newest answers to this boot that are not
	// confirmed, of two stamps: only one check is under way, so that of those
	// with the same stamp, and of those before older, the newest is enough.
	older, newer answer

	seen   time.Duration // of the newest answer, or when the node counts as granted
	length time.Duration // of the newest answered grant, or as long as it counts
	expiry time.Duration // the node has certainly stopped then
	judge  time.Duration // when it is next taken for lapsed; at least expiry
	lapsed bool          // taken for lapsed: nothing is sent until resume
	held   int           // how many have it sent nothing for now: Keeper.Hold
	failed time.Duration // when the last call began, if it failed; else -1

	moved  bool // the node's address changed, and boot has not been met there
	barred bool // another process was met there: not before expiry
}

// answer is a grant that was answered.
type answer struct{ grant, stamp uint64 }

// withTenth is how long the keeper waits out a lease of d: clocks may differ by
// a tenth.
func withTenth(d time.Duration) time.Duration { return d + d/10 }

// newLedger is for a node that counts as granted at from, for longest.
func newLedger(from, longest time.Duration, r rules) *ledger {
	l := &ledger{rules: r, seen: from, length: longest, expiry: from + withTenth(longest), failed: -1}
	if r.noElectionWait {
		l.expiry = from
	}
	l.judge = l.expiry
	return l
}

// next numbers a grant that is about to be sent. confirmed is the number of the
// newest leadership check that succeeded.
func (l *ledger) next(confirmed uint64) (grant, acked uint64) {
	l.confirm(confirmed)
	l.number++
	if l.rules.confirmAtOnce {
		return l.number, l.number
	}
	return l.number, l.acked
}

// confirm takes in that check n has succeeded.
func (l *ledger) confirm(n uint64) {
	for _, a := range []answer{l.older, l.newer} {
		if a.stamp < n || l.rules.trustAnswers || l.rules.trustUnderWay && a.stamp == n {
			l.acked = max(l.acked, a.grant)
		}
	}
}

// unconfirmed reports whether an answer to this boot waits for a check.
func (l *ledger) unconfirmed() bool { return l.newer.grant > l.acked }

// answered notes that the process boot has taken the newest grant, of length
// ms: the answer was seen now, with stamp, when check confirmed had succeeded.
func (l *ledger) answered(boot string, ms time.Duration, now time.Duration, stamp, confirmed uint64) {
	l.meet(boot)
	l.confirm(confirmed)
	if l.newer.grant > 0 && l.newer.stamp < stamp {
		l.older = l.newer
	}
	l.newer = answer{l.number, stamp}
	l.seen, l.length, l.failed, l.moved, l.barred = now, ms, -1, false, false
	end := now + withTenth(ms)
	if l.rules.noTenth {
		end = now + ms
	}
	l.expiry = max(l.expiry, end)
	if l.rules.presentLength {
		l.expiry = end
	}
	l.judge = max(l.judge, l.expiry)
	if l.rules.presentLength {
		l.judge = end
	}
}

// meet takes in which process answers: what another one answered confirms
// nothing to it.
func (l *ledger) meet(boot string) {
	if boot == l.boot {
		l.moved, l.barred = false, false
		return
	}
	// At a new address another process may run beside the one that was granted.
	l.barred = l.barred || l.moved && l.boot != ""
	l.boot, l.acked, l.older, l.newer = boot, 0, answer{}, answer{}
}

// fail notes that the call that began at began was not answered.
func (l *ledger) fail(began time.Duration) { l.failed = began }

// skip goes on above a number that the node has taken in this term already, and
// reports whether it does.
func (l *ledger) skip(grant uint64) bool {
	if grant < l.number || grant >= 1<<53 {
		return false
	}
	l.number = grant
	return true
}

// mayGrant reports whether a grant may be sent now.
func (l *ledger) mayGrant(now time.Duration) bool {
	if l.rules.grantWhileTaken {
		return true
	}
	return !l.lapsed && l.held == 0 && (!l.barred || now >= l.expiry)
}

// lapse takes the node for lapsed, if that is certain and was not done. A
// keeper that was stopped itself, and so is more than late behind the time to
// judge, has not listened: it judges after one more call.
func (l *ledger) lapse(now, late time.Duration) bool {
	if l.lapsed || now < l.judge || now > l.judge+late && l.failed < l.judge {
		return false
	}
	l.lapsed = true
	return true
}

// resume ends what lapse began: grants of length ms go on, and a node that
// stays silent is judged again when such a grant would have run out.
func (l *ledger) resume(now, ms time.Duration) {
	l.lapsed = false
	l.judge = max(l.judge, now+withTenth(ms))
}

// leasing notes that leases of length ms begin, or were begun by another
// record of the node: it is not judged before it had the time to answer.
func (l *ledger) leasing(now, ms time.Duration) { l.judge = max(l.judge, now+withTenth(ms)) }
