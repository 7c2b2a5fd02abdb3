package http1

import "time"

// lateFor is how long an upstream that kept a Spare's request waiting in vain gets no
// other, but for one that finds out whether it answers.
const lateFor = 5 * time.Second

// Late tells whether u has kept a Spare's request waiting in vain lately.
func (u *Upstream) Late() bool {
	late := u.late.Load()
	return late != 0 && time.Now().UnixNano() < late
}

// ClaimSpare tells whether a Spare's request may be sent to u, which is not Late: of
// those that come after it was, one, which finds out whether it answers.
func (u *Upstream) ClaimSpare() bool {
	late := u.late.Load()
	return late == 0 || u.late.CompareAndSwap(late, time.Now().UnixNano()+int64(lateFor))
}

// failSpare takes in that a Spare's request got no answer of u.
func (u *Upstream) failSpare(err error) {
	u.broken(err)
	if err == errGivenUp {
		u.late.Store(time.Now().UnixNano() + int64(lateFor))
	}
}

// spareAnswered takes in that one did.
func (u *Upstream) spareAnswered() {
	if u.late.Load() != 0 {
		u.late.Store(0)
	}
}
