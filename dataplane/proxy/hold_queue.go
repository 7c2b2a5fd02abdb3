package proxy

import (
	"strings"
	"time"

	"domicile/dataplane/proxy/http1"
)

const (
	// pauseLeast and pauseMost bound the pause between two trials of a node that
	// refuses; it doubles. The least is short: the entry by which a unit can be written
	// elsewhere is often here a moment before its node has the grant that follows it.
	pauseLeast = time.Millisecond
	pauseMost  = 250 * time.Millisecond
	// admittedAfter is after what time a request that was neither refused nor
	// answered counts as taken by its node: a refusal comes before any work.
	admittedAfter = 250 * time.Millisecond
	// maxWindow is how many released requests of a unit may be under way. Once the
	// window is that wide, newcomers do not queue any more.
	maxWindow = 256
)

// shutness says whom a queue lets go.
type shutness uint8

const (
	shutNone   shutness = iota // requests are released as the window allows
	shutWrites                 // the node refuses writes (503) and may serve reads
	shutAll                    // the node cannot be reached, or says that the unit is elsewhere (421)
)

// queue holds the requests of one unit, first in, first out. While it is shut one
// request at a time is the trial that finds out whether the node takes the unit's
// requests again: at once when there is news of its place or its node, and after a
// pause where a node that can be reached refuses. When a trial gets through, the
// others follow in a window that grows by one with each answer, as TCP's slow start,
// so that the node is not flooded; when nobody waits the queue is gone.
//
// All is guarded by holds.mu. Every operation ends with settle.
type queue struct {
	holds *holds
	unit  string
	at    spot // as the table was last seen to say
	shut  shutness
	why   reason // of the last refusal

	// Those who wait. Writes are what a node refused by 503, and bodies too long to
	// be sent in vain: where the node refuses writes only a trial is let go of them.
	writes, others ticketList
	resendable     int // of both
	bytes          int64

	trial  *ticket // under way, nil without one; not in flying
	flying int     // released and neither answered nor refused yet
	window int
	warned bool // shut without anybody who waits, until the timer is due

	pause  time.Duration // before the trial that follows the last one; 0: there was news
	timer  *time.Timer
	due    time.Time // when the timer means something; zero: never
	closed bool
}

func (h *holds) newQueue(unit string) *queue {
	q := &queue{holds: h, unit: unit, window: 1, pause: pauseLeast}
	h.queues[unit] = q
	h.slot([]byte(unit)).Add(1)
	h.open.Add(1)
	if strings.Contains(unit, ".") {
		h.buckets++
	}
	q.at = h.look([]byte(unit))
	return q
}

// idle tells whether the queue was made for nothing.
func (q *queue) idle() bool { return q.shut == shutNone && q.waiting() == 0 }

func (q *queue) waiting() int { return q.writes.n + q.others.n }

// gates tells whether a newcomer has to wait.
func (q *queue) gates(resendable bool) bool {
	switch q.shut {
	case shutAll:
		return true
	case shutWrites:
		return !resendable || q.others.n > 0
	}
	return q.window < maxWindow
}

func (q *queue) admits(t *ticket) bool {
	h, l := q.holds, &q.holds.limits
	return int64(q.waiting()) < l.perUnit && h.now.Load() < l.all &&
		q.bytes+t.bytes <= l.bytesPerUnit && h.bytes.Load()+t.bytes <= l.bytesAll
}

// put has t wait, behind all that came before it.
func (q *queue) put(t *ticket) {
	t.queue = q
	t.list = &q.others
	if t.refusedWrite || !t.resendable {
		t.list = &q.writes
	}
	t.list.insert(t)
	q.tally(t, 1)
}

// take ends t's waiting.
func (q *queue) take(t *ticket) {
	t.list.remove(t)
	t.list = nil
	q.tally(t, -1)
}

func (q *queue) tally(t *ticket, by int) {
	q.bytes += int64(by) * t.bytes
	q.holds.bytes.Add(int64(by) * t.bytes)
	q.holds.now.Add(int64(by))
	if t.resendable {
		q.resendable += by
	}
}

func (q *queue) release(t *ticket) {
	q.take(t)
	if q.holds.released != nil {
		q.holds.released(q, t)
	}
	t.flying = true
	t.ready <- struct{}{}
}

// land ends t's flight and tells whether it was the trial.
func (q *queue) land(t *ticket) (trial bool) {
	if q.trial == t {
		q.trial = nil
		t.flying = false
		return true
	}
	if t.flying {
		t.flying = false
		q.flying--
	}
	return false
}

// refused takes t back. stale: the table has another place by now than the one that
// refused.
func (q *queue) refused(t *ticket, r refusal, stale bool) {
	trial := t.queue != nil && t.queue.land(t) && t.queue == q
	t.refusedWrite = r.kind == http1.Unavailable
	q.put(t)
	switch {
	case !stale:
		q.shutBy(r, trial)
	case trial:
		q.news()
	}
}

// shutBy takes in that the node where the table places the unit refused.
func (q *queue) shutBy(r refusal, trial bool) {
	q.why = r.why
	before := q.shut
	switch {
	case r.kind != http1.Unavailable:
		q.shut = shutAll
	case before == shutAll && !trial: // it was on its way before the others found out
		return
	default:
		q.shut = shutWrites
	}
	q.window = 1
	switch {
	case q.trial != nil: // it tells more
	case r.kind == http1.Unreachable && !q.holds.isUp(r.up):
		q.sleep() // until there is news
	case trial:
		q.pause = q.longer()
		q.retry()
	case before == shutNone || q.due.IsZero():
		q.pause = 0
		q.pause = q.longer()
		q.retry()
	}
}

func (q *queue) answered(t *ticket) {
	if trial := q.land(t); trial {
		q.shut, q.pause = shutNone, pauseLeast
	}
	if q.shut != shutAll {
		q.window = min(q.window+1, maxWindow)
	}
	if q.shut == shutNone {
		q.wake(admittedAfter)
	}
}

// longer gives the pause that follows on the last one.
func (q *queue) longer() time.Duration {
	if q.at.promoting {
		return pauseMost
	}
	return min(max(2*q.pause, pauseLeast), pauseMost)
}

// lookAgain looks at the table, and makes news of what it did not say before.
func (q *queue) lookAgain() {
	now := q.holds.look([]byte(q.unit))
	was := q.at
	q.at = now
	switch {
	case !now.placed:
		for t := q.first(); t != nil; t = q.first() {
			q.take(t)
			t.over = true
			q.holds.count(outcomeUnplaced)
			t.ready <- struct{}{}
		}
	case now.between:
		q.halt()
	case now.up != was.up || now.home != was.home || was.between || now.epoch != was.epoch || !was.placed || was.promoting && !now.promoting:
		q.news()
	}
}

// halt has nobody let go before there is news of the unit's home.
func (q *queue) halt() {
	q.why = reason{between: true}
	q.shut, q.window = shutAll, 1
	if q.trial == nil {
		q.sleep()
	}
}

// open lets all go who wait.
func (q *queue) open() {
	q.shut, q.window = shutNone, max(q.window, min(q.waiting()+q.flying, maxWindow))
	q.sleep()
}

// news has the unit tried at once; where its node is still to be promoted later, as
// that is news too.
func (q *queue) news() {
	if q.at.between {
		return
	}
	if q.at.promoting {
		if q.pause = pauseMost; q.shut != shutNone && q.trial == nil {
			q.retry()
		}
		return
	}
	q.pause = 0
	if q.shut != shutNone && q.trial == nil {
		q.try()
	}
}

// try lets the trial go: the first that can be sent again if it is refused, or
// else the first.
func (q *queue) try() {
	t := q.candidate(true)
	if t == nil {
		t = q.candidate(false)
	}
	if t == nil { // nobody waits: whoever comes next finds out
		q.shut = shutNone
		q.sleep()
		return
	}
	q.trial = t
	q.release(t)
	q.wake(admittedAfter)
}

func (q *queue) candidate(resendable bool) *ticket {
	t := q.writes.oldest(resendable)
	if q.shut == shutWrites {
		return t
	}
	if o := q.others.oldest(resendable); t == nil || o != nil && o.seq < t.seq {
		t = o
	}
	return t
}

// retry has a trial made after the pause. Where all who wait have long bodies, of
// which a trial costs one its answer, it is the longest.
func (q *queue) retry() {
	if q.resendable == 0 {
		q.wake(pauseMost)
		return
	}
	q.wake(max(q.pause, pauseLeast))
}

// first gives the one that has waited longest.
func (q *queue) first() *ticket {
	w, o := q.writes.head, q.others.head
	if w == nil || o != nil && o.seq < w.seq {
		return o
	}
	return w
}

// settle lets go whom the queue may, and ends it when it is not needed.
func (q *queue) settle() {
	if q.closed {
		return
	}
	if q.shut == shutWrites && q.trial == nil && q.writes.n == 0 && !q.warned {
		q.shut = shutNone
	}
	for q.shut != shutAll && q.flying < q.window {
		t := q.others.head
		if q.shut == shutNone {
			t = q.first()
		}
		if t == nil {
			break
		}
		q.flying++
		q.release(t)
	}
	if q.waiting() == 0 && q.trial == nil && !q.warned {
		q.close()
		return
	}
	if q.shut == shutNone && q.due.IsZero() {
		q.wake(admittedAfter)
	}
}

func (q *queue) close() {
	q.sleep()
	q.closed = true
	delete(q.holds.queues, q.unit)
	q.holds.slot([]byte(q.unit)).Add(-1)
	q.holds.open.Add(-1)
	if strings.Contains(q.unit, ".") {
		q.holds.buckets--
	}
}

// wake sets the timer.
func (q *queue) wake(after time.Duration) {
	if q.closed {
		return
	}
	q.due = time.Now().Add(after)
	if q.timer == nil {
		q.timer = time.AfterFunc(after, q.fire)
		return
	}
	q.timer.Reset(after)
}

// sleep stops the timer: nothing happens before there is news.
func (q *queue) sleep() {
	q.due, q.warned = time.Time{}, false
	if q.timer != nil {
		q.timer.Stop()
	}
}

// fire is the timer's: the pause is over, or nothing was heard for a while of those
// that were released; they count as admitted then, and others may go.
func (q *queue) fire() {
	q.holds.mu.Lock()
	defer q.holds.mu.Unlock()
	if q.closed || q.due.IsZero() || time.Now().Before(q.due) {
		return
	}
	q.due, q.warned = time.Time{}, false
	if q.trial != nil {
		q.trial = nil
		q.flying++
		q.shut = shutNone
	} else if q.shut != shutNone {
		q.try()
	}
	q.window = min(max(q.window, q.flying+1), maxWindow)
	q.settle()
}
