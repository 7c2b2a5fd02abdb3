package lease

import (
	"context"
	"sync"
	"time"

	"domicile/proto"
)

// Peers is what Run reads of the world.
type Peers interface {
	// Ready reports whether the control server at an address answers /_ready
	// with 200 before ctx ends.
	Ready(ctx context.Context, server string) bool
	// Promise asks the node at an address not to be promoted for the units, for d
	// from when it takes the request. It gives those that it refused; with an
	// error nothing was promised.
	Promise(ctx context.Context, addr string, units []string, d time.Duration) (refused []string, err error)
	// FollowedSince gives the addresses that have followed the unit at or after a
	// time of the lease's clock, those that follow it now included. It is asked in each write that goes
	// on without a lease.
	FollowedSince(unit string, t time.Duration) []string
	// Writes reports whether the unit is this node's to write, but for the lease:
	// not released, not followed.
	Writes(unit string) bool
}

// Times of clause 10, as parts of ms. A round takes at most a third for the
// promises, a fifth for the servers and a tenth of rest, which is less than the
// nine tenths for which a promise holds.
const (
	missingPart = 3  // renewals are missing after ms/3
	probePart   = 5  // a server that has not answered within ms/5 is not ready
	askPart     = 3  // a copy that has not answered within ms/3 has not promised
	restPart    = 10 // between rounds
)

// Run keeps the right to write while no server of the group can be reached and
// the copies promise (architecture §3.5.10). It returns when ctx ends.
func (l *Lease) Run(ctx context.Context, peers Peers) {
	for ctx.Err() == nil {
		s := l.now.Load()
		var wait time.Duration // 0: until a grant is taken
		switch {
		case !s.granted || len(s.servers) == 0:
		case l.clock.Now()-s.arrived < s.ms/missingPart:
			wait = s.ms/missingPart - (l.clock.Now() - s.arrived)
		default:
			l.round(ctx, peers, s)
			wait = s.ms / restPart
		}
		l.rest(ctx, wait)
	}
}

// rest returns after d, or when a grant was taken, or when ctx ends.
func (l *Lease) rest(ctx context.Context, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ctx.Done():
	case <-l.taken:
	case <-after:
	}
}

// Supersede ends, for good, the right to go on without a control plane that was held
// under an older history than h's: the node's group is there again, recovered, and
// reads what the node holds (architecture §3.8.3). The time that the lease has left
// runs out as it would have (clause 6).
func (l *Lease) Supersede(h proto.Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.Authority != l.holder.Authority || h.History <= l.holder.History {
		return
	}
	s := *l.now.Load()
	s.superseded = true
	l.now.Store(&s)
}

// round looks for a server of the group, and asks the copies where there is none.
func (l *Lease) round(ctx context.Context, peers Peers, s *state) {
	began := l.clock.Now()
	if anyReady(ctx, peers, s.servers, s.ms/probePart) || ctx.Err() != nil {
		return // what was promised runs out
	}
	until := began + s.ms*9/10
	l.pledge(func(p *pledges) { p.cut, p.since = until, peers.FollowedSince })
	var asked sync.WaitGroup
	for addr, units := range l.needed(peers, s) {
		asked.Go(func() { l.ask(ctx, peers, addr, units, s.ms) })
	}
	asked.Wait()
}

func anyReady(ctx context.Context, peers Peers, servers []string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := make(chan bool, len(servers))
	for _, server := range servers {
		go func() { found <- peers.Ready(ctx, server) }()
	}
	any := false
	for range servers {
		if <-found {
			any = true
			cancel()
		}
	}
	return any
}

// needed is whose promise is needed, and for which units.
func (l *Lease) needed(peers Peers, s *state) map[string][]string {
	by := map[string][]string{}
	s.units.Scan(func(unit string, e entry) bool {
		if !s.continues(unit, &e) || !peers.Writes(unit) {
			return true
		}
		asked := e.copies
		for _, addr := range asked {
			by[addr] = append(by[addr], unit)
		}
	followers:
		for _, addr := range peers.FollowedSince(unit, s.confirmed) {
			for _, copy := range asked {
				if copy == addr {
					continue followers
				}
			}
			by[addr] = append(by[addr], unit)
		}
		return true
	})
	return by
}

// ask takes the promise of one copy. It counts from before the request was sent,
// and for nine tenths of the time: the copy's clock may be that much faster.
func (l *Lease) ask(ctx context.Context, peers Peers, addr string, units []string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d/askPart)
	defer cancel()
	sent := l.clock.Now()
	refused, err := peers.Promise(ctx, addr, units, d)
	if err != nil {
		return // what it promised before runs out
	}
	promised := make(map[string]bool, len(units))
	for _, u := range units {
		promised[u] = true
	}
	for _, u := range refused {
		delete(promised, u)
	}
	l.pledge(func(p *pledges) { p.by[addr] = pledge{sent + d*9/10, promised} })
}

// pledge replaces the pledges by ones that f has changed. What has run out goes.
func (l *Lease) pledge(f func(*pledges)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.pledges.Load()
	now := l.clock.Now()
	p := &pledges{cut: old.cut, since: old.since, by: make(map[string]pledge, len(old.by)+1)}
	for addr, by := range old.by {
		if now < by.until {
			p.by[addr] = by
		}
	}
	f(p)
	l.pledges.Store(p)
}
