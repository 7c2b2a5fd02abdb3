package replica

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What a follower and its source say to each other before the first frame: GET
// Path with `Connection: Upgrade`, `Upgrade: <Protocol>`, the token, and the
// follower's own address, as the directory records it, in HeaderAs.
const (
	Path     = "/_replication"
	Protocol = "domicile-replication/1"
	HeaderAs = "Domicile-As"
)

// Config is what a Replicator is made from. Zero values mean the defaults.
type Config struct {
	Logger hclog.Logger
	// AckReplica makes a write count as acknowledged only when each in-sync copy
	// of the newest grant has it on disk (--ack replica).
	AckReplica bool
	// As, Token and Tokens are used by Resume: the node's own address as the directory
	// records it, what it shows to sources, and what it shows to those of other
	// tokens, by address. Empty: units that the node followed before its start wait for
	// the first Follow, which brings them.
	As, Token string
	Tokens    map[string]string
	// Promises answers sources that ask this node not to be promoted (3.5.10);
	// nil: every promise is refused.
	Promises Promises
	// Dial connects to a source, whose address begins with http:// or https://;
	// nil: TCP, and TLS with the system's CAs.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// ObserveAck is told how long after its capture an entry was on a follower's
	// disk, by the source's clock alone. May be nil.
	ObserveAck func(time.Duration)
	// Unheard is how long, at least, a counting copy that has not been heard since
	// the start is waited for before Report names it: where what was acknowledged
	// may not be on this disk (a power failure under --sync normal), the unit is
	// not written without having asked it (3.7.4). [0]
	Unheard time.Duration
	// Changed is called, with no lock held, when Report or Compared may answer
	// otherwise than before: a copy came, went, or caught up. It must not block.
	// May be nil.
	Changed func()

	RingBytes   int // entries kept for each unit [32 MiB]
	MemoryBytes int // entries kept on the node [256 MiB]
	Appliers    int // transactions applied at once [16]
	Images      int // on their way at once, for each connection [4]
}

// Promises is the follower's side of a promise.
type Promises interface {
	// Promise is asked, by the source at from, that none of the units, all
	// followed from there at the epochs given, be promoted here for d from now on.
	// It answers once that is recorded as durably as the rule asks. It gives
	// those that are not promised.
	Promise(ctx context.Context, from string, units []Followed, d time.Duration) (refused []string, err error)
}

// Progress is how much of an image has come.
type Progress struct{ Bytes, Total int64 }

// Followed is a unit that is followed, and the epoch of its source's branch.
type Followed struct {
	Unit  string
	Epoch uint64
}

// Status is what GET /_admin/units says of a unit that is, or was, followed.
type Status struct {
	From  string    // the source; "" where the unit is not followed
	State string    // one of the constants State…
	Error string    // why it is not followed, for people
	Image *Progress // of the image that comes in; nil: none does
	// Lost is what was given up when the unit last came back to its source's
	// branch; it is durable. Nil where nothing was.
	Lost *Lost
}

// Copies are a unit's copies as the newest grant names them, by address.
type Copies struct {
	All    []string // every node that an entry may promote
	InSync []string // those whose acknowledgement counts
}
