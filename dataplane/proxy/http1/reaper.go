package http1

import (
	"time"
)

// watchAfter is how long a request waits before its client is watched for
// going away; shorter ones cost nothing.
const watchAfter = 2 // ticks

// lostAfter is, in ticks, how long a request waits for the answer of a lost node
// before it looks whether to go on, and then how often it does.
const lostAfter = 4

// reap is the reaper: until stop is closed it looks at every connection once
// in a tick.
func (s *Server) reap() {
	defer close(s.reaped)
	defer s.hangups.close()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.sweep()
	}
}

func (s *Server) sweep() {
	now := s.now.Add(1)
	if now%(1000/50) == 0 {
		s.setDate(time.Now())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watched) > 0 {
		s.hangups.gone(func(id int32) {
			if c := s.watched[id]; c != nil {
				c.hungUp = true
			}
		})
	}
	for c := range s.conns {
		c.judge(now)
	}
}

// judge ends what the connection is doing if it overstayed or its client is
// gone. Called by the reaper with s.mu held.
func (c *conn) judge(now uint64) {
	seen := state(c.state.Load())
	if seen.ended() {
		return
	}
	age := int64(now) - int64(seen.since())
	l := &c.srv.limits
	switch seen.phase() {
	case phaseIdle:
		c.overdue(seen, age, l.idle, causeIdle)
	case phaseHead:
		c.overdue(seen, age, l.head, causeHead)
	case phaseLinger:
		c.overdue(seen, age, l.linger, causeIdle)
	case phaseWait:
		if c.judgeUpload(seen, now) || c.overdue(seen, age, l.upstream, causeUpstream) {
			return
		}
		if age%lostAfter == 0 && c.judgeLost(seen, age) {
			return
		}
		c.watch(seen, age)
	case phaseRelay, phaseHold, phaseServe:
		c.watch(seen, age)
	case phaseWrite:
		if age > l.write && c.moved() {
			c.progress(phaseWrite)
			return
		}
		c.overdue(seen, age, l.write, causeStalled)
	case phaseTunnel:
		c.overdue(seen, age, l.tunnel, causeIdle)
	}
}

// judgeLost has the goroutine look whether to go on, where it has waited for the
// answer of a lost node for a while, or for long where another place has it as well.
func (c *conn) judgeLost(seen state, age int64) bool {
	u := c.up.Load()
	if u == nil || seen.phase() != phaseWait || seen.cause() != causeNone {
		return false
	}
	if age < lostAfter || !u.up.lost.Load() && (age <= c.srv.limits.spare || !c.spare.Load()) && (u.up.askAfter == 0 || age < u.up.askAfter) {
		return false
	}
	c.nudge(seen)
	return true
}

// LookAtLost has the requests that wait for nodes which are lost (Upstream.SetLost)
// look at once whether to go on; otherwise they do so every 200 ms.
func (s *Server) LookAtLost() {
	now := s.now.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		seen := state(c.state.Load())
		c.judgeLost(seen, int64(now)-int64(seen.since()))
	}
}

// overdue ends the phase if it is older than limit; a limit below 0 is none.
func (c *conn) overdue(seen state, age, limit int64, k cause) bool {
	if limit < 0 || age <= limit || !c.end(seen, k) {
		return false
	}
	if k != causeIdle {
		c.srv.stats.TimedOut.Add(1)
	}
	return true
}

// moved tells whether the client took anything since it was last asked.
func (c *conn) moved() bool {
	n := c.sock.sent.Load()
	was := c.sentSeen
	c.sentSeen = n
	return n != was
}

// watch ends the request of a client that has closed its connection.
func (c *conn) watch(seen state, age int64) {
	if c.hungUp {
		c.end(seen, causeGone)
		return
	}
	if age < watchAfter || c.watchID != 0 {
		return
	}
	s := c.srv
	s.lastID++
	if s.lastID <= 0 {
		s.lastID = 1
	}
	c.watchID = s.lastID
	if s.hangups.add(&c.sock, c.watchID) {
		s.watched[c.watchID] = c
	}
}

// rateWindow is over how many ticks a body's rate is taken.
const rateWindow = int64(10 * time.Second / tick)

// judgeUpload ends a request whose body comes too slowly.
func (c *conn) judgeUpload(seen state, now uint64) bool {
	if !c.uploading.Load() || c.srv.cfg.MinBodyRate < 0 {
		c.rateSince = 0
		return false
	}
	n := c.uploaded.Load()
	if c.rateSince == 0 || n < c.rateFrom {
		c.rateSince, c.rateFrom = now, n
		return false
	}
	ticks := int64(now) - int64(c.rateSince)
	if ticks < rateWindow {
		return false
	}
	slow := n-c.rateFrom < int64(c.srv.cfg.MinBodyRate)*ticks*int64(tick)/int64(time.Second)
	c.rateSince, c.rateFrom = now, n
	return slow && !c.waitsForNode.Load() && c.overdue(seen, 1, 0, causeSlowBody)
}
