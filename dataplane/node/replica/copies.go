package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"domicile/dataplane/node/store"
)

// SetCopies takes the copies of a grant, whole: list has an item for each unit
// that the grant names, empty where it has no copies; a unit that is not in it
// is not named, and not reported. A copy counts for writes from the call on, or no longer. patience is how
// long a copy may be silent before Report says that it lags (a quarter of ms).
func (r *Replicator) SetCopies(list map[string]Copies, patience time.Duration) {
	var gone []string
	for unit := range r.allFeeds() {
		if _, ok := list[unit]; !ok {
			gone = append(gone, unit)
		}
	}
	r.ChangeCopies(list, gone, patience)
}

// ChangeCopies is SetCopies for a difference: the units in changed, and those
// in gone, which are in the list no longer.
func (r *Replicator) ChangeCopies(changed map[string]Copies, gone []string, patience time.Duration) {
	r.patience.Store(int64(patience))
	for unit, c := range changed {
		r.feed(unit).setCopies(c, true)
	}
	for _, unit := range gone {
		if f := r.known(unit); f != nil {
			f.setCopies(Copies{}, false)
		}
	}
	r.changed()
}

func (f *feed) setCopies(c Copies, listed bool) {
	entries, bytes := 0, 0
	f.mu.Lock()
	taken := f.listed && !listed
	f.listed, f.unnamed = listed, !listed && (taken || f.unnamed)
	for addr, p := range f.peers {
		p.copy, p.counts = slices.Contains(c.All, addr), slices.Contains(c.InSync, addr)
		if !p.copy && !p.counts && p.sub == nil && !p.told {
			delete(f.peers, addr)
		}
	}
	for _, addr := range c.All {
		f.peer(addr).copy = true
	}
	for _, addr := range c.InSync {
		p := f.peer(addr)
		p.copy, p.counts = true, true
	}
	switch {
	case f.needed():
		f.awaited = true
		f.recording.Store(true)
	case listed && !f.awaited:
		f.recording.Store(false) // nobody follows, and nobody is to
		entries, bytes = f.forget()
	}
	u, at := f.advance()
	open := f.open
	f.mu.Unlock()
	f.r.memory.free(entries, bytes)
	if u != nil {
		u.Acknowledge(at)
	}
	if taken && open != nil {
		open.GiveUp(errUnnamed)
	}
}

// errUnnamed ends the waits for commits of a unit that this node lost.
var errUnnamed = errors.New("the lease names the unit no longer: it may be written elsewhere")

// loosePatience is how far a copy may be behind, in time, and be in sync, where
// writes do not wait for copies (--ack primary): what a failover loses then.
const loosePatience = time.Second

// lags reports whether a copy is to be reported as lagging; with mu held.
//
// One that counts may be silent for a while, also after this node's start: it
// is to be compared with then, not taken out (3.7.4). But one that is heard
// never lacks what was acknowledged: whoever has begun to count is in sync only
// after that (a copy that joins, 3.7.1).
func (f *feed) lags(p *peer, now time.Time, patience, unheard time.Duration) bool {
	state := subEnded
	if p.sub != nil {
		state = p.sub.state
	}
	late := !p.owes.IsZero() && now.Sub(p.owes) > patience
	if !f.r.cfg.AckReplica {
		late = late && now.Sub(p.owes) > loosePatience // nobody waits for it
	}
	switch {
	case state == subStreaming && p.holds:
		// Where nothing waits for copies, they are always a little behind.
		return late || (p.counts && f.r.cfg.AckReplica && p.held.Seq < f.acked.Seq)
	case !p.counts || state == subImaging:
		return true
	case state == subAhead:
		return false // it has everything, and more
	}
	if !f.compared && !p.told {
		patience = max(patience, unheard)
	}
	return now.Sub(p.away) > patience || (p.holds && p.held.Seq < f.acked.Seq)
}

// Report gives, for the units of SetCopies, the copies that lag (they do not
// follow, or have lacked a commit for longer than patience, or lack one that is
// acknowledged), and those that have what this node lacks, the furthest ahead first
// (3.7.4).
func (r *Replicator) Report() (lagging, behind map[string][]string) {
	lagging, behind = map[string][]string{}, map[string][]string{}
	now, patience := time.Now(), time.Duration(r.patience.Load())
	for unit, f := range r.allFeeds() {
		f.mu.Lock()
		if f.listed {
			for addr, p := range f.peers {
				if p.copy && f.lags(p, now, patience, r.cfg.Unheard) {
					lagging[unit] = append(lagging[unit], addr)
				}
			}
			if ahead := f.aheads(func(p *peer) bool { return p.copy }); ahead != nil {
				behind[unit] = ahead
			}
		}
		f.mu.Unlock()
	}
	sortAll(lagging)
	return lagging, behind
}

// aheads gives the addresses of those peers that have what this node lacks, the furthest
// ahead first; with mu held.
func (f *feed) aheads(which func(*peer) bool) (addrs []string) {
	for addr, p := range f.peers {
		if p.ahead && p.sub != nil && which(p) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, func(a, b string) int {
		return cmp.Or(f.peers[b].sub.asked.mark.Position.Compare(f.peers[a].sub.asked.mark.Position), cmp.Compare(a, b))
	})
	return addrs
}

func sortAll(m map[string][]string) {
	for _, l := range m {
		slices.Sort(l)
	}
}

// ReportFollowers is Report by followers alone, for a node that takes no lease:
// every unit's followers that could be promoted, those of them that lack a commit for longer than
// patience, and those that have what this node lacks.
func (r *Replicator) ReportFollowers(patience time.Duration) (following, lagging, behind map[string][]string) {
	following, lagging, behind = map[string][]string{}, map[string][]string{}, map[string][]string{}
	now := time.Now()
	for unit, f := range r.allFeeds() {
		f.mu.Lock()
		if ahead := f.aheads(func(p *peer) bool { return !p.reader }); ahead != nil {
			behind[unit] = ahead
		}
		for addr, p := range f.peers {
			if p.sub == nil || p.reader {
				continue
			}
			following[unit] = append(following[unit], addr)
			if p.sub.state != subStreaming || !p.holds || (!p.owes.IsZero() && now.Sub(p.owes) > patience) {
				lagging[unit] = append(lagging[unit], addr)
			}
		}
		f.mu.Unlock()
	}
	sortAll(following)
	sortAll(lagging)
	return following, lagging, behind
}

// Compared reports whether the unit may be written after the node's start
// (3.7.4): each in-sync copy of the newest grant has told its position since,
// and none has more. Once true it stays so, until Ended.
func (r *Replicator) Compared(unit string) bool {
	f := r.known(unit)
	if f == nil {
		return false // no grant has named it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compare()
}

// compare is Compared; called with mu held.
func (f *feed) compare() bool {
	if f.compared || !f.listed {
		return f.compared
	}
	for _, p := range f.peers {
		if p.counts && (!p.told || p.ahead) {
			return false
		}
	}
	f.compared = true
	return true
}

// Uncompared gives the units of the newest grant of which Compared does not hold
// yet, sorted: a copy of theirs that Report does not name may lack anything. It is
// asked before Report.
func (r *Replicator) Uncompared() (units []string) {
	for unit, f := range r.allFeeds() {
		f.mu.Lock()
		if f.listed && !f.compare() {
			units = append(units, unit)
		}
		f.mu.Unlock()
	}
	slices.Sort(units)
	return units
}

// GiveUp ends the waits of writes, and of reads, that have waited to be
// acknowledged by in-sync copies for longer than d: they fail with
// store.ErrUnreplicated. It gives the number of units.
func (r *Replicator) GiveUp(d time.Duration) (units int) {
	now := time.Now()
	for _, f := range r.allFeeds() {
		f.mu.Lock()
		u, owed := f.open, f.owed
		missing := ""
		for _, p := range f.peers {
			if p.counts && (!p.holds || p.held.Seq < f.durable.Seq) {
				missing = p.addr
			}
		}
		if f.acked.Seq >= f.durable.Seq && f.acked.Epoch == f.durable.Epoch {
			missing = ""
		}
		give := u != nil && missing != "" && !owed.IsZero() && now.Sub(owed) > d
		if give {
			f.owed = now // what is captured from now on is waited for again
		}
		f.mu.Unlock()
		if give {
			units++
			u.GiveUp(fmt.Errorf("the copy at %s has not acknowledged it for %v", missing, now.Sub(owed).Round(time.Millisecond)))
		}
	}
	return units
}

// Holds gives the position that the node at addr has on disk, as it last told.
func (r *Replicator) Holds(unit, addr string) (store.Position, bool) {
	f := r.known(unit)
	if f == nil {
		return store.Position{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.peers[addr]; p != nil && p.holds {
		return p.held, true
	}
	return store.Position{}, false
}

// Acknowledged gives the position up to which commits of a unit were acknowledged by
// this process, false where it has seen none: the unit was not opened since its start.
func (r *Replicator) Acknowledged(unit string) (store.Position, bool) {
	f := r.known(unit)
	if f == nil {
		return store.Position{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked, !f.acked.IsZero()
}

// WaitHeld returns when the node at addr has p on disk, or is ahead of this one, which
// has written nothing since; with ctx's cause if it ends first.
func (r *Replicator) WaitHeld(ctx context.Context, unit, addr string, at store.Position) error {
	f := r.feed(unit)
	for {
		f.mu.Lock()
		p := f.peers[addr]
		if p != nil && (p.holds && p.held.Seq >= at.Seq || p.ahead && p.sub != nil && !f.wrote) {
			f.mu.Unlock()
			return nil
		}
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved, has := f.moved, "has told no position"
		if p != nil && p.holds {
			has = "is at " + p.held.String()
		}
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("unit %s: the copy at %s %s, wanted %s: %w", unit, addr, has, at, context.Cause(ctx))
		}
	}
}

// Followers gives the addresses that follow the unit now.
func (r *Replicator) Followers(unit string) []string {
	return r.followers(unit, func(p *peer) bool { return p.sub != nil })
}

// FollowersSince gives the addresses that have followed the unit since t, or do
// now, and could be promoted (promises are asked of these, 3.5.10): no readers.
func (r *Replicator) FollowersSince(unit string, t time.Time) []string {
	return r.followers(unit, func(p *peer) bool {
		return !p.reader && (p.sub != nil || (!p.seen.IsZero() && !p.seen.Before(t)))
	})
}

// Targets reports whether a move's target follows the unit.
func (r *Replicator) Targets(unit string) bool {
	return len(r.followers(unit, func(p *peer) bool { return p.sub != nil && p.sub.asked.kind == store.CopyTarget })) > 0
}

func (r *Replicator) followers(unit string, which func(*peer) bool) (addrs []string) {
	f := r.known(unit)
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, p := range f.peers {
		if which(p) {
			addrs = append(addrs, addr)
		}
	}
	slices.Sort(addrs)
	return addrs
}

// Ended tells that the node gave the units up (released, deleted, replaced by
// another file, or told to follow): their feeds end, and nothing is known of
// their copies. A unit that is written again is compared anew.
func (r *Replicator) Ended(units []string) {
	for _, unit := range units {
		f := r.known(unit)
		if f == nil {
			continue
		}
		f.mu.Lock()
		f.restart(endNotPrimary, "this node does not write the unit any more")
		f.open, f.compared = nil, false
		f.mu.Unlock()
	}
	r.changed()
}

// Promoted tells that the store has made these units primaries here, at the
// epoch of an entry, in this process: they have all that was acknowledged, and
// count as compared. It ends following as Unfollow does (call that first: the
// promotion must not meet an apply).
func (r *Replicator) Promoted(units []string) {
	for _, unit := range units {
		r.Unfollow(unit)
		f := r.feed(unit)
		f.mu.Lock()
		f.restart(endNotPrimary, "the unit began a new branch")
		f.compared = true
		f.awaited = true // its other copies come soon
		f.recording.Store(true)
		f.mu.Unlock()
	}
	r.changed()
}

// changed tells whoever reports that there may be news.
func (r *Replicator) changed() {
	if r.cfg.Changed != nil {
		r.cfg.Changed()
	}
}
