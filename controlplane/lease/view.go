package lease

import (
	"context"
	"maps"
	"slices"
	"time"

	"domicile/fsm"
)

// view is what a loop shows of its node.
type view struct {
	Status                  // but for the times that pass
	confirmed bool          // the node's process has taken a grant that confirmed one
	since     time.Duration // it answers, or is silent, from here
	wasLapsed bool          // it was taken for lapsed, and has not answered since
	// awaitsCounted: its last answer asked for proto.Grant.Counted.
	awaitsCounted bool
	// waiters is closed, and nil again, when the node has answered; nil: nobody
	// waits.
	waiters chan struct{}
}

// show changes what is shown. It is called with mu held, and gives it up.
func (l *loop) show(change func(s *Status)) {
	was := l.view.Status
	change(&l.view.Status)
	news := !was.equal(&l.view.Status)
	if l.view.waiters != nil && !l.view.Silent {
		close(l.view.waiters)
		l.view.waiters = nil
	}
	l.mu.Unlock()
	if news {
		l.shift.k.tell()
	}
}

// equal compares what planners read, but for the times that pass and Problem.
func (s *Status) equal(o *Status) bool {
	return s.Lease == o.Lease && s.Answered == o.Answered && s.Silent == o.Silent && s.Lapsed == o.Lapsed && s.Lapse == o.Lapse &&
		s.Boot == o.Boot && s.Ack == o.Ack && s.List == o.List && s.Stopping == o.Stopping &&
		slices.Equal(s.Missing, o.Missing) && maps.Equal(s.Refused, o.Refused) && sameAddresses(s.Report.Lagging, o.Report.Lagging) &&
		sameAddresses(s.Report.Behind, o.Report.Behind) && sameAddresses(s.Following, o.Following) &&
		slices.Equal(s.Report.Uncompared, o.Report.Uncompared) && slices.Equal(s.Report.Damaged, o.Report.Damaged)
}

func sameAddresses(a, b map[fsm.UnitName][]string) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]string])
}

// status is what is known now.
func (l *loop) status() Status {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.view.Status
	switch since := (now - l.view.since).Milliseconds(); {
	case s.Silent:
		s.SilentSinceMS = since
	case s.Answered:
		s.AnsweredSinceMS = since
	}
	if s.Lease == fsm.LeaseNone || s.Lease == fsm.LeaseUnknown && l.record.Load().Lease == fsm.LeaseNone {
		return s
	}
	s.AgeMS = (now - l.ledger.seen).Milliseconds()
	s.LeftMS = max(0, l.ledger.seen+l.ledger.length-now).Milliseconds()
	s.Expired = now >= l.ledger.expiry
	return s
}

// awaitNamed returns once the node has a confirmed lease with a list at least
// as new as rev, or takes no lease.
func (l *loop) awaitNamed(ctx context.Context, rev fsm.Revision) error {
	for {
		now := l.clock()
		l.mu.Lock()
		if l.closed || l.view.Lease == fsm.LeaseNone || l.view.Lease == fsm.LeaseUnknown && l.record.Load().Lease == fsm.LeaseNone {
			l.mu.Unlock()
			return nil
		}
		if l.view.confirmed && l.view.List >= rev && now < l.ledger.expiry {
			l.mu.Unlock()
			return nil
		}
		if l.view.waiters == nil {
			l.view.waiters = make(chan struct{})
		}
		answered := l.view.waiters
		l.mu.Unlock()
		l.look()
		select {
		case <-answered:
		case <-l.shift.over:
			return ErrNotLeading
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
