package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
	"domicile/internal/boottime"
)

// Config is what a Server is made from. Store.Dir, Listener and Logger are needed.
type Config struct {
	// Listener is where requests come in, TLS included where it is wanted. Run closes it.
	Listener net.Listener
	Logger   hclog.Logger

	// Store is the engine's configuration. Its Logger, Sink and ObserveSync are set by New.
	Store store.Config

	Tokens Tokens
	// ReplicationToken is the secret of nodes among each other. Batons are signed with a
	// key derived from it; without one they are good on this node only.
	ReplicationToken string
	// Lease lets the node write only under a lease (flag --lease).
	Lease bool
	// AckPrimary answers a write once it is on this node's disk (--ack primary),
	// else on those of its in-sync copies too.
	AckPrimary bool
	// Point, if set, is called at labelled points of a handover and a promotion with the unit: tests end
	// the process there.
	Point func(label, unit string) error
	// KeepUnits lets the node stop without waiting for its units to be handed over
	// (L11): the whole deployment is to stop.
	KeepUnits bool
	// Clock is the one that leases run on; default boottime.System.
	Clock boottime.Clock
	// Dial connects to nodes that are followed, whose addresses begin with http://
	// or https://; nil: TCP, and TLS with the system's CAs.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Probe is the transport by which control servers are asked whether they are
	// ready; nil: one like http.DefaultTransport.
	Probe http.RoundTripper

	// TransactionTimeout and StreamTimeout are how long a Hrana stream may be idle with
	// and without an open transaction. Defaults 5s and 5m. The first is also how long a
	// cursor waits for its client to read on.
	TransactionTimeout time.Duration
	StreamTimeout      time.Duration
	// RequestTimeout bounds a request's work in the engine, waiting for the writer
	// included. Default 30s, kept to within a second.
	RequestTimeout time.Duration
	// DrainTimeout is how long Run waits for requests under way once it is to stop.
	// Default 30s.
	DrainTimeout time.Duration
	// CloseTimeout is how long Run waits after that for statements that were interrupted
	// to end and for the data folder to be closed. Default 30s.
	CloseTimeout time.Duration

	// MaxBody is the greatest body of a data request in bytes; 413 beyond. Default 32 MiB.
	// A file that comes in by the admin protocol has no such limit.
	MaxBody int
	// MaxResponse is the greatest result in bytes; default 10 MiB. Cursors stream more.
	MaxResponse int

	// Audit gets one JSON line for each refused token and each change under /_admin/,
	// each in one Write. May be nil.
	Audit io.Writer
	// Version is the label of domicile_build_info.
	Version string
}

// Tokens are the secrets that a client may show. They can be replaced while the node
// runs (Server.Reload).
type Tokens struct {
	// Admin opens /_admin/ and /_metrics; without it /_admin/ is off.
	Admin string
	// HTTP is the token of data requests. Without it and JWTKey they are open.
	HTTP string
	// JWTKey is the content of --jwt-key: a PEM public key (RS256, ES256, EdDSA), or
	// else a secret for HS256.
	JWTKey []byte
}

// Timeouts of the HTTP server. Idle connections outlive those of a proxy's pool.
const (
	headTimeout   = 30 * time.Second // from a request's first byte to the end of its head
	bodyTimeout   = 60 * time.Second // for the body of a data request or of an admin call
	idleTimeout   = 120 * time.Second
	writeTimeout  = 30 * time.Second // for each write to a connection
	lingerTimeout = time.Second      // for what a refused client still sends
	maxLinger     = 1 << 20          // and for how many bytes
	afterTimeout  = 5 * time.Second  // Domicile-After (spec §2.5)
	// Where a copy is asked first, it and the primary after it share that. A copy that
	// waits is to answer before the proxy takes it for hung (2 s).
	afterAtCopy   = 1500 * time.Millisecond
	afterAfterOne = 3 * time.Second
	maxHead       = 64 << 10
)

func (c *Config) setDefaults() error {
	switch {
	case c.Listener == nil:
		return errors.New("node: Config.Listener is needed")
	case c.Logger == nil:
		return errors.New("node: Config.Logger is needed")
	}
	if c.Clock == nil {
		c.Clock = boottime.System{}
	}
	if c.Probe == nil {
		c.Probe = &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = 5 * time.Second
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 30 * time.Second
	}
	if c.MaxBody == 0 {
		c.MaxBody = 32 << 20
	}
	if c.MaxResponse == 0 {
		c.MaxResponse = 10 << 20
	}
	return nil
}

func (c *Config) hrana() hrana.Config {
	return hrana.Config{
		Secret:             []byte(c.ReplicationToken),
		TransactionTimeout: c.TransactionTimeout,
		IdleTimeout:        c.StreamTimeout,
		MaxResponse:        c.MaxResponse,
	}
}
