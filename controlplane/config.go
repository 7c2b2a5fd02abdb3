package controlplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/boottime"
)

// Config is what a control server is started with. ID, DataDir, the two
// listeners and Logger are needed, and one of Bootstrap and Join where the
// folder is empty.
type Config struct {
	// ID names this server in its group for good: [a-z0-9_-], 1 to 64.
	ID fsm.MemberID
	// DataDir is this server's alone; made when missing.
	DataDir string

	// Listener serves the admin API. New takes it over, also when it fails.
	// Where the API is served with TLS it does TLS, and API says so.
	Listener net.Listener
	// API is the base URL by which the other servers of the group reach the
	// admin API. Default: http:// and the listener's address.
	API string
	// DialTLS opens the connections to https:// addresses: nodes, and the other
	// servers' APIs. Nil: the system's authorities.
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)

	// RaftListener takes connections of the group's other servers, and
	// RaftDial opens them; see group.Config. New takes the listener over.
	RaftListener  net.Listener
	RaftDial      func(ctx context.Context, addr string) (net.Conn, error)
	RaftAdvertise string
	Timing        group.Timing

	// Bootstrap makes an empty folder the first server of a new group; Join
	// are base URLs of servers of a group, any of which is asked, again and
	// again, to add this one.
	Bootstrap bool
	Join      []string
	// Region whose directory this is; "" for the global group. A region's server follows
	// the global directory from Global: base URLs of servers of the global group, or of its
	// proxies.
	Region fsm.RegionName
	Global []string
	// Settings seed a new directory.
	Settings fsm.Settings

	// Token is the bearer token that the admin API asks for, and the one that
	// this server shows to the others of its group; "" for none.
	Token string
	// SharedSecret is that of the deployment's routers; "" for Token. What passes between
	// groups and is for nobody else is sealed under it.
	SharedSecret string
	// Audit is the path of the audit log, or "".
	Audit string
	// Build is the version that domicile_build_info tells.
	Build string

	// Clock of leases; nil for the system's, which counts suspension.
	Clock boottime.Clock

	Logger hclog.Logger
	// OrphansEvery is how often a region's leader compares its tenants with the names of the
	// global directory; 0: a minute.
	OrphansEvery time.Duration
	// GiveWithin is for how long a region that is to be handed over may not be ready, or the
	// other group not reached, before it is given; then the hand-over is undone. 0: 20 s.
	GiveWithin time.Duration
	// Registry serves /_metrics; nil for one of the server's own.
	Registry *prometheus.Registry
}

// check completes a Config with its defaults.
func (c Config) check() (Config, error) {
	switch {
	case !fsm.ValidName(string(c.ID)):
		return c, errors.New("a control server needs an id of [a-z0-9_-], 1 to 64 characters (--id)")
	case c.Listener == nil || c.RaftListener == nil:
		return c, errors.New("a control server needs a listener for its API and one for Raft")
	case c.DataDir == "" || c.Logger == nil:
		return c, errors.New("a control server needs a data folder and a logger")
	case c.Region != "" && len(c.Global) == 0:
		return c, errors.New("a region's server needs the addresses of the global group, whose directory it follows (--global)")
	case c.Region == "" && len(c.Global) > 0:
		return c, errors.New("the global group follows no other: name the region whose directory this server keeps (--region), or leave --global out")
	}
	if c.API == "" {
		c.API = "http://" + c.Listener.Addr().String()
	}
	api, err := routerAddress(c.API)
	if err != nil {
		return c, errors.Join(errors.New("the address of the admin API is not one that others can use"), err)
	}
	c.API = api
	for i, j := range c.Join {
		if c.Join[i], err = routerAddress(j); err != nil {
			return c, errors.Join(errors.New("a server to join through is not an address (--join)"), err)
		}
	}
	for i, g := range c.Global {
		if c.Global[i], err = routerAddress(g); err != nil {
			return c, errors.Join(errors.New("a server of the global group is not an address (--global)"), err)
		}
	}
	if c.SharedSecret == "" {
		c.SharedSecret = c.Token
	}
	if c.OrphansEvery == 0 {
		c.OrphansEvery = orphansEvery
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c, nil
}

// transport makes the connections to nodes and to the other servers. It asks
// no proxy of the environment: tokens are for the other end alone.
func (c *Config) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		DialTLSContext:      c.DialTLS,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
}

// freshFor is how long after its leader's last word a server still says of a record
// that it does not have that there is none: twice what an election takes.
const freshFor = 2 * time.Second
