package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

const (
	maxBoot  = 256              // bytes of a node's name for its process
	maxWords = 200              // bytes of a node's refusal that are told
	perByte  = time.Microsecond // more time for a call that carries a list
)

// Codes of a node's 409.
const (
	codeTakesNoLease fsm.Code = "takes_no_lease"
	codeStaleGrant   fsm.Code = "stale_grant"
)

// outcome is what came of one call to a node.
type outcome struct {
	again   bool  // it said what it lacks: the next grant carries it
	err     error // it does not answer as a node does
	noLease bool  // it takes no lease
	foreign bool  // it belongs to another authority
}

// conflict is what a node's 409 says.
type conflict struct {
	proto.Holder          // the newer holder that it has heard
	Error        string   `json:"error"`
	Code         fsm.Code `json:"code"`
	Grant        uint64   `json:"grant"` // the newest that it has taken
}

// copiesReply answers GET /_admin/copies.
type copiesReply struct {
	proto.CopyReport
	Following map[fsm.UnitName][]string `json:"following"`
	Boot      string                    `json:"boot"` // "": the node does not tell its process
	Stopping  bool                      `json:"stopping"`
	Refused   map[string]string         `json:"refused"`
}

// grant makes a call at now, and those that follow from its answer, and tells
// what came of the last.
func (l *loop) grant(now time.Duration) (o outcome) {
	began := now
	for range maxAgain {
		call, ok := l.begin(now)
		if !ok {
			return outcome{} // nodes are not leased any more, or this one is not for now
		}
		r, err := l.line.call(http.MethodPost, "/_admin/lease", call.body, l.timeout(call))
		o = l.answer(call, r, err)
		if !o.again {
			break
		}
		now = l.last
	}
	if o.again {
		o.err = errors.New("it does not take its list of units")
	}
	l.note(began, o)
	return o
}

// sending is a grant under way.
type sending struct {
	began  time.Duration
	ms     time.Duration
	number uint64
	acked  uint64
	boot   string
	list   *list
	// counted is Grant.Counted; -1: it is not told.
	counted int
	body    []byte
}

// begin numbers and renders a grant of what the directory says now.
func (l *loop) begin(now time.Duration) (sending, bool) {
	confirmed := l.shift.confirms.succeeded.Load()
	l.mu.Lock()
	// With mu held, so that settled sees the length of a grant that was decided
	// in an older state.
	state := l.shift.k.config.Group.State()
	c := sending{began: now, ms: millis(leaseIn(state))}
	// A node that was given to another directory is granted nothing from that entry on: the
	// other one counts from a later instant (architecture §3.5.5).
	n, recorded := state.Node(l.name)
	if c.ms <= 0 || l.closed || l.ledger.held > 0 || !recorded || n.ID != l.id {
		l.mu.Unlock()
		return c, false
	}
	l.flying = c.ms
	c.number, c.acked = l.ledger.next(confirmed)
	if c.boot = l.ledger.boot; l.foreign {
		c.boot = noProcess
	}
	awaits := l.view.awaitsCounted
	l.mu.Unlock()
	if c.counted = -1; awaits {
		c.counted = countedOn(state, l.name)
	}
	c.list = l.present(state)
	l.sent, l.hasty = c.list.rev, false
	c.body = l.render(&c)
	return c, true
}

// countedOn counts the units whose writes wait for a node's copies. One that is not
// promoted is not written yet.
func countedOn(state *fsm.State, node fsm.NodeName) (n int) {
	for u := range state.HeldBy(node) {
		if u.Promoted() && slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == node && c.State.Counts() }) {
			n++
		}
	}
	return n
}

func (l *loop) render(c *sending) []byte {
	part := l.held.next(c.list)
	b := make([]byte, 0, 512+len(part))
	b = append(b, `{"ms":`...)
	b = strconv.AppendInt(b, c.ms.Milliseconds(), 10)
	b = append(b, `,"epoch":"`...)
	b = append(b, c.list.name...)
	b = append(b, '"')
	if len(part) > 0 {
		b = append(append(b, ','), part...)
	}
	b = append(b, l.shift.tail.Load().text...)
	b = append(b, `,"grant":`...)
	b = strconv.AppendUint(b, c.number, 10)
	b = append(b, `,"acked":`...)
	b = strconv.AppendUint(b, c.acked, 10)
	if c.boot != "" {
		b = append(b, `,"boot":`...)
		b = appendString(b, c.boot)
	}
	if c.counted >= 0 {
		b = append(b, `,"counted":`...)
		b = strconv.AppendInt(b, int64(c.counted), 10)
	}
	return append(b, '}')
}

// timeout is for how long a call may last: it ends when the node is to be
// judged.
func (l *loop) timeout(c sending) time.Duration {
	limit := max(c.ms/3, minTimeout) + time.Duration(len(c.body))*perByte
	if l.lease() != fsm.LeaseTaken {
		return limit
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.ledger.judge - c.began; left > 0 && left < limit {
		return left
	}
	return limit
}

// answer takes in what came of a grant.
func (l *loop) answer(c sending, r reply, err error) outcome {
	// In this order: a check that begins after the stamp was read confirms the
	// answer, and the answer was here before the clock was read.
	stamp := l.shift.confirms.stamp()
	seen := l.tick()
	l.mu.Lock()
	l.flying = 0
	closed := l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return outcome{}
	case errors.Is(err, errStale) && l.failed == 0 && !l.retried:
		l.retried = true // a new connection, and a grant of its own
		return outcome{again: true}
	case err != nil:
		return outcome{err: err}
	}
	switch r.status {
	case http.StatusOK:
		return l.granted(c, r, seen, stamp)
	case http.StatusPreconditionFailed:
		return l.notGranted(r)
	case http.StatusConflict:
		return l.conflict(r)
	case http.StatusNotFound:
		// A node from before leases, unless it has taken one: then something
		// else listens at its address.
		if l.lease() != fsm.LeaseTaken {
			return outcome{noLease: true}
		}
	}
	return outcome{err: unexpected(r)}
}

// unexpected tells of an answer that no node gives to a grant.
func unexpected(r reply) error {
	var said conflict
	if json.Unmarshal(r.body, &said) == nil && said.Error != "" {
		return fmt.Errorf("it answers with status %d: %s", r.status, said.Error[:min(len(said.Error), maxWords)])
	}
	return fmt.Errorf("it answers with status %d", r.status)
}

// granted takes in that the node has taken grant c.
func (l *loop) granted(c sending, r reply, seen time.Duration, stamp uint64) outcome {
	var g proto.Granted
	err := json.Unmarshal(r.body, &g)
	if err != nil || g.Grant != c.number || g.Epoch != c.list.name || g.Boot == "" || len(g.Boot) > maxBoot {
		return outcome{err: errors.New("it answers a grant with something else than that grant")}
	}
	l.held.took()
	l.lagging = len(g.Lagging) > 0
	other, own := l.shift.procs.claim(g.Boot, l)
	l.foreign = !own
	l.mu.Lock()
	if !own {
		// It has taken the grant, and what it was granted as the other node may be
		// written by this list: that ends no later than if this node had been granted.
		l.ledger.answered(g.Boot, c.ms, seen, stamp, l.shift.confirms.succeeded.Load())
		l.view.confirmed, l.view.Boot = false, g.Boot
		l.mu.Unlock()
		return outcome{err: another(other)}
	}
	// A node that begins anew, or was silent, has no time to lose.
	l.hasty = l.view.Silent || c.acked == 0 || g.Boot != c.boot
	l.ledger.answered(g.Boot, c.ms, seen, stamp, l.shift.confirms.succeeded.Load())
	l.view.confirmed = c.acked > 0 && g.Boot == c.boot
	l.view.wasLapsed, l.view.awaitsCounted = false, g.AwaitsCounted
	l.appear(func(s *Status) {
		s.Lease, s.Boot, s.Ack, s.List = fsm.LeaseTaken, g.Boot, g.Ack, c.list.rev
		s.Report, s.Following, s.Missing, s.Refused, s.Stopping = g.CopyReport, nil, g.Missing, l.refused(s.Refused, g.Refused), g.Stopping
	}, seen)
	l.shift.confirms.want(l.hasty)
	return outcome{}
}

// notGranted takes in that the node lacks what the grant built on.
func (l *loop) notGranted(r reply) outcome {
	var n proto.NotGranted
	if err := json.Unmarshal(r.body, &n); err != nil || len(n.Boot) > maxBoot {
		return outcome{err: unexpected(r)}
	}
	if n.Boot != "" {
		other, own := l.shift.procs.claim(n.Boot, l)
		if l.foreign = !own; !own {
			l.mu.Lock()
			l.view.Boot = n.Boot
			l.mu.Unlock()
			return outcome{err: another(other)}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.Boot != "" && n.Boot != l.ledger.boot {
		fresh := l.ledger.boot != ""
		l.ledger.meet(n.Boot)
		l.view.confirmed = false
		if fresh && !l.ledger.mayGrant(l.last) {
			return outcome{err: errors.New("another process answers at the node's new address; it is granted once the former one's lease has ended")}
		}
		if fresh {
			l.held.forget()
			return outcome{again: true}
		}
	}
	if !l.held.lacks(n.Epoch) {
		return outcome{err: errors.New("it does not take its list of units, which was sent whole")}
	}
	return outcome{again: true}
}

// conflict takes in why the node takes no grant.
func (l *loop) conflict(r reply) outcome {
	var said conflict
	if json.Unmarshal(r.body, &said) != nil {
		return outcome{err: unexpected(r)}
	}
	switch said.Code {
	case codeTakesNoLease:
		return outcome{noLease: true}
	case codeStaleGrant:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ledger.skip(said.Grant) {
			return outcome{again: true}
		}
	}
	if own := l.shift.tail.Load().holder; said.Authority == own.Authority && said.History > own.History {
		l.shift.left.Do(func() {
			l.shift.k.config.Logger.Error("this server was left behind: its group was recovered without it, and nodes obey it no more; "+
				"stop it, and start it with an empty folder and --join if it is to come back",
				"history", own.History, "recovered", said.History, "node", l.name)
		})
	}
	if own := l.shift.tail.Load().holder.Authority; said.Authority != "" && said.Authority != own {
		err := fmt.Errorf("it belongs to %s and takes nothing of %s: it is recorded in two directories, or being given from one to the other", said.Authority, own)
		if l.elsewhere != said.Authority && !l.justTaken(l.last) {
			l.elsewhere = said.Authority
			l.shift.k.config.Logger.Error("a node is another group's: nothing is granted to it until that group has given it over, "+
				"or it is forgotten here", "node", l.name, "belongs_to", said.Authority)
		}
		return outcome{err: err, foreign: true}
	}
	return outcome{err: unexpected(r)}
}

// note takes in how the calls that began at began have ended.
func (l *loop) note(began time.Duration, o outcome) {
	l.retried = false
	switch {
	case o.err != nil:
		l.mu.Lock()
		l.ledger.fail(began)
		l.vanish(o.err)
	case o.noLease:
		l.mu.Lock()
		l.view.confirmed = false
		l.show(func(s *Status) {
			*s = Status{Lease: fsm.LeaseNone, Lapse: s.Lapse, Answered: s.Answered, Silent: s.Silent, Problem: s.Problem}
		})
		l.tryAt = began + tryEvery
	}
}

// poll asks a node that is not leased for the state of its copies, and first,
// from time to time, whether it takes a lease now.
func (l *loop) poll(now time.Duration, try bool) (until time.Duration) {
	if now < l.next {
		return l.next
	}
	l.next = now + pollEvery
	if try && (now >= l.tryAt || l.failed > 0) {
		l.tryAt = now + tryEvery
		if o := l.grant(now); o.err != nil {
			return l.next
		}
		if l.lease() == fsm.LeaseTaken {
			l.next = now
			return now
		}
	}
	r, err := l.line.call(http.MethodGet, "/_admin/copies", nil, pollEvery)
	var c copiesReply
	switch {
	case err != nil:
	case r.status == http.StatusNotFound: // a node that keeps no copies
	case r.status != http.StatusOK:
		err = unexpected(r)
	case json.Unmarshal(r.body, &c) != nil:
		err = errors.New("it does not tell of its copies")
	case c.Boot != "" && len(c.Boot) <= maxBoot:
		if other, own := l.shift.procs.claim(c.Boot, l); !own {
			err = another(other)
		}
	}
	seen := l.tick()
	l.mu.Lock()
	l.view.Boot = c.Boot
	if err != nil {
		l.vanish(err)
		return l.next
	}
	l.appear(func(s *Status) {
		s.Report, s.Following, s.Boot, s.Stopping = c.CopyReport, c.Following, c.Boot, c.Stopping
		s.Refused = l.refused(s.Refused, c.Refused)
	}, seen)
	return l.next
}

// appear shows that the node has answered at seen. It is called with mu held,
// and gives it up.
func (l *loop) appear(change func(*Status), seen time.Duration) {
	if l.view.Silent || !l.view.Answered {
		l.view.since = seen
	}
	if l.failed > 1 {
		l.shift.k.config.Logger.Info("a node answers again", "node", l.name, "term", l.shift.term)
	}
	l.failed = 0
	l.show(func(s *Status) {
		s.Answered, s.Silent, s.Problem = true, false, ""
		change(s)
	})
}

// refused tells of nodes that refuse to be followed by this one, once of each.
func (l *loop) refused(was, now map[string]string) map[string]string {
	for from, why := range now {
		if was[from] != why {
			l.shift.k.config.Logger.Warn("a node refuses to be followed by another", "node", l.name, "source", from, "err", why)
		}
	}
	return now
}

// vanish shows that the node does not answer, because of err. It is called with
// mu held, and gives it up.
func (l *loop) vanish(err error) {
	if !l.view.Silent {
		l.view.since = l.last
	}
	if l.failed++; l.failed == 2 { // one alone is soon made good
		l.shift.k.config.Logger.Warn("a node does not answer", "node", l.name, "term", l.shift.term, "err", err)
	}
	l.show(func(s *Status) { s.Silent, s.Problem = true, err.Error() })
}
