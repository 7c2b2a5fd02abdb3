package replica

import (
	"context"
	"net"
	"time"

	"domicile/dataplane/node/store"
)

// Replicator is a node's side of all replication: the source of the units that
// it writes, and the follower of those that it has copies of.
type Replicator struct {
	cfg Config
}

// New makes a Replicator. Give its Sink to the store, then call Bind (unless
// Config.Store is set), Resume and Run.
func New(cfg Config) *Replicator { return &Replicator{cfg: cfg} }

// Bind sets the store. It is called once, before Run and before any unit is opened.
func (r *Replicator) Bind(s *store.Store) { r.cfg.Store = s }

// Run works until ctx ends, and returns when every goroutine has ended.
func (r *Replicator) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Sink is for store.Config.Sink.
func (r *Replicator) Sink(unit string) store.Sink { return nil }

// ServeUpgrade speaks to the follower with the address as on a connection that
// was upgraded to Protocol; the caller has checked the token. It returns, with
// the connection closed, when that breaks or Run's context has ended.
func (r *Replicator) ServeUpgrade(conn net.Conn, as string) {}

// Follow makes the unit a copy of from's, durably (store.Follow), and begins to
// follow or points it at another source. epoch is that of the branch that the
// source writes: an older one is not followed. as is this node's own address,
// token what is shown to the source; both hold for all units from now on.
func (r *Replicator) Follow(ctx context.Context, unit string, id, epoch uint64, from, as, token string) error {
	return nil
}

// Unfollow ends the following of a unit and returns when nothing is applied to
// it any more: before it is promoted or deleted. The store's record stays.
func (r *Replicator) Unfollow(unit string) {}

// Promoted tells that the store has made these units primaries here, at the
// epoch of an entry, in this process: they have all that was acknowledged, and
// count as compared. It ends following as Unfollow does (call that first where
// the promotion must not meet an apply).
func (r *Replicator) Promoted(units []string) {}

// Ended tells that the node gave the units up (released, deleted, or told to
// follow): their feeds end, and nothing is known of their copies.
func (r *Replicator) Ended(units []string) {}

// Resume follows again what the store's records say was followed.
func (r *Replicator) Resume() error { return nil }

// SetCopies takes the copies of a grant, whole: units that are not in list have
// none. A copy counts for writes from the call on, or no longer. patience is how
// long a copy may be silent before Report says that it lags (a quarter of ms).
func (r *Replicator) SetCopies(list map[string]Copies, patience time.Duration) {}

// ChangeCopies is SetCopies for a difference: the units in changed, and those
// in gone, which are in the list no longer.
func (r *Replicator) ChangeCopies(changed map[string]Copies, gone []string, patience time.Duration) {}

// Report gives, for the units of SetCopies, the copies that lag (they do not
// follow, or have lacked an acknowledged write, or one that waits for them, for
// longer than patience), and those that have what this node lacks (3.7.4).
func (r *Replicator) Report() (lagging, behind map[string][]string) { return nil, nil }

// ReportFollowers is Report by followers alone, for a node that takes no lease:
// every unit's followers, and those of them that lag.
func (r *Replicator) ReportFollowers() (following, lagging, behind map[string][]string) {
	return nil, nil, nil
}

// Compared reports whether the unit may be written after the node's start
// (3.7.4): each in-sync copy of the newest grant has told its position since,
// and none has more. Once true it stays so.
func (r *Replicator) Compared(unit string) bool { return false }

// GiveUp ends the waits of writes, and of reads, that have waited for in-sync
// copies for longer than d: they fail with store.ErrUnreplicated. It gives the
// number of units.
func (r *Replicator) GiveUp(d time.Duration) int { return 0 }

// Holds gives the position that the follower at addr has on disk, by its
// acknowledgements on the present connection.
func (r *Replicator) Holds(unit, addr string) (store.Position, bool) { return store.Position{}, false }

// WaitHeld returns when the follower at addr has p on disk.
func (r *Replicator) WaitHeld(ctx context.Context, unit, addr string, p store.Position) error {
	return nil
}

// Followers gives the addresses that follow the unit now.
func (r *Replicator) Followers(unit string) []string { return nil }

// FollowersSince gives the addresses that have followed the unit since t
// (promises are asked of these, 3.5.10).
func (r *Replicator) FollowersSince(unit string, t time.Time) []string { return nil }

// Promise asks the follower at addr, over its connection, not to be promoted
// for any of the units for d. It gives those that it refused; an error where
// there is no connection or no answer: nothing was promised then.
func (r *Replicator) Promise(ctx context.Context, addr string, units []string, d time.Duration) (refused []string, err error) {
	return nil, nil
}

// Status is what GET /_admin/units says of a unit that is followed.
type Status struct {
	From  string // the source; "" where the unit is not followed
	State string // "connecting", "refused", "ahead", "image", "following", "stopped"
	Error string // why it is not following, for people
	// Lost is what was given up when the unit last came back to its source's
	// branch; it is durable. Zero where nothing was.
	LostFrom, LostTo store.Position
}

// Status tells how a unit that is followed stands.
func (r *Replicator) Status(unit string) Status { return Status{} }

// Lag gives, by source, how far behind this node is: zero while all units that
// it follows from there were equal lately. It is the age, by the source's clock,
// of the oldest commit that this node has not acknowledged, as the source told
// in its last heartbeat, and, where that is silent, the time since it.
func (r *Replicator) Lag() map[string]time.Duration { return nil }
