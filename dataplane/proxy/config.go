package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config configures a Proxy.
type Config struct {
	// Listener takes clients' connections, in plain TCP: the proxy speaks TLS on
	// them itself where TLS is set. Run closes it. Required.
	Listener net.Listener
	TLS      *tls.Config

	// Control is the servers of the group whose directory the proxy follows:
	// http(s)://host:port.
	Control []string
	// Secrets can be replaced by Reload.
	Secrets Secrets
	// Cache is the file of the last good directory; "" keeps none (R3).
	Cache string

	// Hold bounds how long a request waits while its unit changes nodes; 0: none
	// waits.
	Hold time.Duration
	// Region and Zone are where the proxy is: reads that a copy may answer go to a
	// near one first.
	Region, Zone string

	ConnectTimeout  time.Duration // to a node or a control server, TLS included [1s]
	UpstreamTimeout time.Duration // for the head of an answer: 504 [60s]
	DrainTimeout    time.Duration // for requests under way when the proxy stops [30s]
	MaxBody         int64         // bytes of a request's body on the data path: 413; 0 no limit
	AuthDelay       time.Duration // before the answer to a first refused token, doubled with each; 0 none (R6)
	// Domain makes acme.<Domain> an address of the tenant acme; "" none.
	Domain string

	// ClientTLS gives the configuration for connections to a host whose address
	// begins with https; nil: the system's CAs.
	ClientTLS func(host string) *tls.Config

	// Audit takes a line for each refused token and each change that was relayed;
	// nil: none. It is called by the goroutine that serves the request and should
	// return soon.
	Audit func(Audit)

	Version string       // of domicile_build_info
	Logger  hclog.Logger // required
}

// Secrets are what Reload replaces.
type Secrets struct {
	Token        string // to follow the directory and to ask of it; also asked of /_metrics; "" none
	SharedSecret string // of the marks between routers (G8); "" makes and takes none
}

// AuditEvent is the kind of an Audit line.
type AuditEvent string

// Events.
const (
	AuditRefusedToken AuditEvent = "refused_token"
	AuditChange       AuditEvent = "change" // relayed to the control plane; Status says what came of it
)

// Audit is a line for the audit log.
type Audit struct {
	At        time.Time
	Event     AuditEvent
	Method    string
	Path      string // without the query
	Status    int
	Client    string // address, without a port; the client's, where another proxy vouched for it
	Peer      string // address of the other end of the connection
	RequestID string
}

func (c *Config) prepare() error {
	if c.Listener == nil || c.Logger == nil {
		return errors.New("proxy: a listener and a logger are required")
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = time.Second
	}
	if c.UpstreamTimeout == 0 {
		c.UpstreamTimeout = time.Minute
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.ClientTLS == nil {
		c.ClientTLS = func(host string) *tls.Config {
			return &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
		}
	}
	c.Domain = strings.ToLower(strings.Trim(c.Domain, "."))
	return nil
}
