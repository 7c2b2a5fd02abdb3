package lease

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/internal/boottime"
)

// Group is the group whose leader leases nodes; *group.Group is one.
type Group interface {
	// State is the newest applied state.
	State() *fsm.State
	// WaitRevision returns once the state is at least at rev.
	WaitRevision(ctx context.Context, rev fsm.Revision) error
	// Confirm proves that no newer leader existed when it was called, and
	// returns the term (architecture §3.5.4).
	Confirm(ctx context.Context) (term uint64, err error)
}

// Config is what a Keeper is made of. Group and Logger are needed.
type Config struct {
	Group Group
	// Clock counts suspension. Nil: the system's.
	Clock boottime.Clock
	// Dial opens connections to nodes with http:// addresses or none, DialTLS
	// those with https://. Nil: plain TCP, and TLS with the system's authorities.
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)
	// Servers gives the addresses (http://host:port) of the group's servers,
	// which a node asks when it misses renewals. Nil: the directory's members.
	Servers func() []string
	Logger  hclog.Logger

	// set by tests
	rules rules
	lines func(ctx context.Context, n *fsm.Node) line
}

// ErrNotLeading answers a wait that this server's leadership did not outlast.
var ErrNotLeading = errors.New("this server does not lead its group")

// Keeper leases nodes while this server leads. Its methods may be called from
// any goroutine.
type Keeper struct {
	config Config

	mu      sync.Mutex
	shift   *shift        // nil while this server does not lead
	changed chan struct{} // closed, and replaced, when a Status changes
}

// New makes a Keeper, which does nothing before Run.
func New(config Config) *Keeper {
	if config.Clock == nil {
		config.Clock = boottime.System{}
	}
	if config.Servers == nil {
		config.Servers = func() []string { return members(config.Group.State()) }
	}
	if config.lines == nil {
		config.lines = func(ctx context.Context, n *fsm.Node) line { return newHTTPLine(ctx, &config, n) }
	}
	return &Keeper{config: config, changed: make(chan struct{})}
}

func members(state *fsm.State) []string {
	var all []string
	for m := range state.Members() {
		if m.API != "" {
			all = append(all, m.API)
		}
	}
	return all
}

// Run leases the nodes for one term, until ctx ends, and returns nil then. It
// is a duty for group.OnLead: it is called after a barrier of term, and not
// again before it has returned.
func (k *Keeper) Run(ctx context.Context, term uint64) error {
	s := newShift(k, term)
	k.set(s)
	defer k.set(nil)
	s.run(ctx)
	return nil
}

func (k *Keeper) set(s *shift) {
	k.mu.Lock()
	over := k.shift
	k.shift = s
	k.mu.Unlock()
	if over != nil {
		close(over.over)
	}
	k.tell()
}

// tell says that a Status has changed.
func (k *Keeper) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *Keeper) leading() *shift {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shift
}

func (k *Keeper) find(node fsm.NodeName) (*loop, bool) {
	s := k.leading()
	if s == nil {
		return nil, false
	}
	return s.find(node)
}

// Node tells what is known of a node, and false where this server does not lead
// or the node was not recorded when the directory was last looked at.
func (k *Keeper) Node(node fsm.NodeName) (Status, bool) {
	l, ok := k.find(node)
	if !ok {
		return Status{}, false
	}
	return l.status(), true
}

// Changed is closed when something that planners read has changed since the
// call: any field of a Status but the times that pass.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// AwaitNamed returns once node may write the units that the directory gave it at
// rev: it has taken a grant with a list at least as new, and holds a confirmed
// lease. It returns nil at once for a node that takes no lease or is not
// recorded, and where nodes are not leased; else ctx's error or ErrNotLeading.
func (k *Keeper) AwaitNamed(ctx context.Context, node fsm.NodeName, rev fsm.Revision) error {
	s := k.leading()
	if s == nil {
		return ErrNotLeading
	}
	if err := k.config.Group.WaitRevision(ctx, rev); err != nil {
		return err
	}
	state := k.config.Group.State()
	record, ok := state.Node(node)
	if !ok || leaseIn(state) <= 0 {
		return nil
	}
	for {
		l, ok := s.find(node)
		if ok && l.record.Load().ID == record.ID {
			return l.awaitNamed(ctx, state.ListRevision(node))
		}
		select { // the directory's watcher comes to it
		case <-s.k.Changed():
		case <-s.over:
			return ErrNotLeading
		case <-ctx.Done():
			return ctx.Err()
		}
		if n, ok := k.config.Group.State().Node(node); !ok || n.ID != record.ID {
			return nil
		}
	}
}

// Push has the node's loop look at the directory now and send what is new. It
// is never needed (the directory is watched), and brings a change forward.
func (k *Keeper) Push(node fsm.NodeName) {
	if l, ok := k.find(node); ok {
		l.look()
	}
}

// Resume lets grants to a lapsed node go on: the FailOver entry that was decided
// on its lapse was applied here or refused, or none was needed.
func (k *Keeper) Resume(node fsm.NodeName, lapse uint64) {
	if l, ok := k.find(node); ok {
		l.resumed.Store(lapse)
		l.look()
	}
}

// Hold has node sent no grant until release is called, if it is certain that it
// holds no lease now: what is given to another node meanwhile nobody else writes
// (architecture §3.5.3). Else release is nil, and left is after what time it may be
// asked again. ErrNotLeading also where the node is not recorded.
func (k *Keeper) Hold(node fsm.NodeName) (release func(), left time.Duration, err error) {
	l, ok := k.find(node)
	if !ok {
		return nil, 0, ErrNotLeading
	}
	release, left = l.hold()
	return release, left, nil
}

// MaySettle reports whether Settings.LongestLease may be lowered to
// Settings.AutoFailover: it is longer, and no lease that is longer than
// AutoFailover can still run.
func (k *Keeper) MaySettle() bool {
	s := k.leading()
	return s != nil && s.maySettle()
}

// WaitedOut reports whether no lease can run any more that was granted before this
// server began to lead, and is no longer than Settings.LongestLease.
func (k *Keeper) WaitedOut() bool {
	s := k.leading()
	return s != nil && s.waitedOut()
}

// millis is a length of the directory's.
func millis(m fsm.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
