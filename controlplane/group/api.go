package group

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
)

// Config is what a server of a group is started with. Fields without a default
// must be set.
type Config struct {
	// ID names this server in its group for good; [a-z0-9_-], 1 to 64
	// characters. A folder belongs to one ID.
	ID fsm.MemberID
	// DataDir is made with mode 0700 when missing. One process at a time.
	DataDir string

	// Listener takes connections of the other servers, and Dial opens them.
	// Where servers authenticate each other, both do TLS. Open takes over the
	// listener, also when it fails. A nil Dial is plain TCP.
	Listener net.Listener
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	// Advertise is the host:port by which the others reach Listener; "" is
	// the listener's own address. It is part of this server's identity in
	// elections: unique, and the same after a restart.
	Advertise string
	// API is the base URL of this server's admin API, to relay changes to.
	API string

	// Region whose directory this is; "" for the global group (G2, G10).
	Region fsm.RegionName
	// Bootstrap makes an empty folder the first server of a new group. It is
	// ignored where the folder holds a group already.
	Bootstrap bool
	// Join asks any server of an existing group to add this one, and returns
	// when it was added (AddServer at the group's leader). It is called again,
	// with back-off, until it succeeds. Ignored like Bootstrap.
	Join func(ctx context.Context, req JoinRequest) (JoinAnswer, error)
	// Relay proposes at the leader's admin API, for what this server proposes
	// on its own behalf: its record. Nil: it is recorded once it leads.
	Relay func(ctx context.Context, leader Leader, p Proposal) (fsm.Result, fsm.Revision, error)
	// Removed, called on the leader after a server was removed, may tell it
	// so. The log tells it as well, unless it was down. Nil: not told.
	Removed func(ctx context.Context, server Server)

	// Settings seed a new directory; afterwards those in it count.
	Settings fsm.Settings
	// Version is the newest command version that this binary knows; what the
	// server records of itself. 0: proto's.
	Version uint32

	// Feed is told of every change, in order. Nil: nobody.
	Feed   Feed
	Logger hclog.Logger
	Timing Timing
}

// Timing are the durations and sizes that Raft runs with. The zero value of a
// field is its default.
type Timing struct {
	// Heartbeat is the time without a word from the leader after which a
	// server stands for election (it waits one to two of it), and Election how
	// long an election may take before it is tried again (one to two of it).
	// Defaults 350 ms, and Heartbeat. So after a leader's loss the directory
	// takes changes again within 2×Heartbeat and a few exchanges, or within
	// 2×Heartbeat + 2×Election, 1.4 s, where two servers stood at once.
	Heartbeat time.Duration
	Election  time.Duration
	// LeaderLease is how long a leader that reaches no majority stays leader;
	// at most Heartbeat, the default. It is no read lease.
	LeaderLease time.Duration
	// Commit is the time after which an idle leader tells the commit index
	// again: how long a follower's copy lags. Default 5 ms.
	Commit time.Duration
	// SnapshotEvery and SnapshotEntries say when the log is compacted:
	// checked after one to two of SnapshotEvery (default 30 s), done once
	// SnapshotEntries (default 20,000) were added.
	SnapshotEvery   time.Duration
	SnapshotEntries uint64
	// TrailingLogs is how many entries stay in the log behind a snapshot, so
	// that a server that was away for a while needs no snapshot. Default
	// 50,000.
	TrailingLogs uint64
	// Stall is the time without any commit, while proposals wait, after which
	// a leader takes its own disk for hung and stops. Default 5 s.
	Stall time.Duration
	// RPC bounds one exchange between servers. Default 5 s.
	RPC time.Duration
}

// Feed is told what was applied, in the order of the log, from one goroutine.
// It must not block. It may keep the events, which nobody changes.
type Feed interface {
	// Publish says that the events led from the state at revision prev to
	// state. Events may be none.
	Publish(prev fsm.Revision, events []fsm.Event, state *fsm.State)
	// Reset says that state came from a snapshot: what led to it is not known.
	Reset(state *fsm.State)
}

// JoinRequest is what a new server tells the group.
type JoinRequest struct {
	ID      fsm.MemberID
	Raft    string
	API     string
	Region  fsm.RegionName
	Version uint32
	// Empty says that the server's folder holds nothing: one that the group
	// counts as a voter has then lost what it promised, and must not vote.
	Empty bool
}

// JoinAnswer is what a server learns when it was added.
type JoinAnswer struct {
	Cluster string // the group's identity: cluster id and, after a recovery, history
	Index   uint64 // Raft index from which on it belongs to the group
}

// Proposal is a change asked of the directory.
type Proposal struct {
	Key         string // Idempotency-Key, or ""
	Fingerprint string // hash of what was asked under Key
	// Decided is the term in which a leader's duty decided this, and 0 for
	// what a client asked. The leader of another term refuses it.
	Decided uint64
	Cmd     fsm.Command
}

// Leader says who leads, as far as this server knows.
type Leader struct {
	ID    fsm.MemberID
	API   string // "" until that server has recorded itself
	Self  bool
	Term  uint64 // this server's current term
	Known bool   // the other fields but Term count only if set
}

// Server is one server of the group as it is seen here.
type Server struct {
	ID    fsm.MemberID
	Raft  string
	API   string
	Voter bool
	// Leader, and Healthy: whether it answered lately. Only a leader knows
	// about the others; elsewhere Healthy is set for the leader and this
	// server alone, and Known is false for the rest.
	Leader  bool
	Healthy bool
	Known   bool
	// LastContact is the time since it answered; 0 for this server.
	LastContact time.Duration
	// Index is the end of its log when it last answered.
	Index uint64
	// SnapshotLoop is set when it was sent snapshots again and again and its
	// log does not follow: stop it, empty its folder, and let it join again.
	SnapshotLoop bool
}

// Status describes the group as it is seen from this server.
type Status struct {
	ID       fsm.MemberID
	Region   fsm.RegionName
	Cluster  string
	Leader   Leader
	Term     uint64
	Index    uint64 // commit index
	Applied  uint64 // index handed to the state machine
	Revision fsm.Revision
	Pending  int  // proposals that wait for their outcome here
	Ready    bool // see Group.Ready
	Reason   string
	Servers  []Server // sorted by id
}

// RemoveRequest is a server to be removed, with the Idempotency-Key under which
// that is remembered, or none.
type RemoveRequest struct {
	ID          fsm.MemberID
	Key         string
	Fingerprint string
}

// AddRequest is a server to be added, or to be given or denied a vote.
type AddRequest struct {
	JoinRequest
	// NonVoter: it follows for good and has no vote (a read copy).
	NonVoter bool
	// CheckRegion compares Region with the group's; set where the request
	// named one.
	CheckRegion bool
}
