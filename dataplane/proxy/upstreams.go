package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// upstreams keeps the connections to each node of the directory: one
// http1.Upstream per node and address. Used by the follower alone, but for
// stats and close.
type upstreams struct {
	connect time.Duration
	tls     func(host string) *tls.Config // for https addresses
	onUp    func(*http1.Upstream)
	onLost  func(*http1.Upstream) // of a region's router
	log     hclog.Logger

	mu     sync.Mutex
	open   map[fsm.NodeName]*http1.Upstream
	failed map[fsm.NodeName]uint64 // requests that found no connection, and the errors of upstreams that were closed
}

func newUpstreams(connect time.Duration, tls func(string) *tls.Config, onUp, onLost func(*http1.Upstream), log hclog.Logger) *upstreams {
	return &upstreams{
		connect: connect, tls: tls, onUp: onUp, onLost: onLost, log: log,
		open: map[fsm.NodeName]*http1.Upstream{}, failed: map[fsm.NodeName]uint64{},
	}
}

// attach gives each node of t its upstream, and returns those that t has no use
// for any more: to be closed once t is what requests read.
func (u *upstreams) attach(t *table) (unused []*http1.Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range t.nodes {
		s := &t.nodes[i]
		open := u.open[s.info.Name]
		if s.up != nil {
			continue
		}
		if open != nil && s.present && hostPort(s.info.Addr) == open.Addr() {
			s.up = open
			continue
		}
		if open != nil {
			u.failed[s.info.Name] += open.Stats().Errors.Load()
			unused = append(unused, open)
			delete(u.open, s.info.Name)
		}
		if !s.present {
			continue
		}
		up, err := u.dialer(http1.UpstreamConfig{Name: string(s.info.Name), OnUp: u.onUp}, s.info.Addr)
		if err != nil {
			u.log.Warn("the directory holds an address that cannot be used; requests for this node get 502",
				"node", s.info.Name, "err", err)
			continue
		}
		u.open[s.info.Name], s.up = up, up
	}
	return unused
}

// setLost tells upstreams which nodes are lost by t, and whether one has become so.
func setLost(t *table) (news bool) {
	for i := range t.nodes {
		if s := &t.nodes[i]; s.up != nil && s.up.SetLost(s.info.Lost) && s.info.Lost {
			news = true
		}
	}
	return news
}

// dialer makes the upstream of an address: host:port, or http(s)://host:port.
func (u *upstreams) dialer(cfg http1.UpstreamConfig, addr string) (*http1.Upstream, error) {
	scheme, hostport, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	cfg.Addr, cfg.ConnectTimeout, cfg.Logger = hostport, u.connect, u.log
	if scheme == "https" {
		host, _, _ := net.SplitHostPort(hostport) // splitAddr has looked at it
		cfg.TLS = u.tls(host)
	}
	return http1.NewUpstream(cfg)
}

// router makes the upstream of one of a region's routers.
func (u *upstreams) router(addr string, of fsm.RegionName) (*http1.Upstream, error) {
	return u.dialer(http1.UpstreamConfig{Name: routerPrefix + string(of), Region: string(of), AskAfter: u.connect / 4, AskWell: "/_health", OnLost: u.onLost}, addr)
}

var errAddr = errors.New("want host:port, http://host:port or https://host:port")

// splitAddr gives scheme and host:port of an address, with the scheme's port
// where none is given.
func splitAddr(addr string) (scheme, hostport string, err error) {
	scheme = "http"
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
			(u.Scheme != "http" && u.Scheme != "https") {
			return "", "", fmt.Errorf("address %q: %w", addr, errAddr)
		}
		scheme, addr = u.Scheme, u.Host
		if u.Port() == "" {
			addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[scheme])
		}
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", "", fmt.Errorf("address %q: %w", addr, errAddr)
	}
	return scheme, addr, nil
}

func hostPort(addr string) string {
	_, hostport, err := splitAddr(addr)
	if err != nil {
		return ""
	}
	return hostport
}

// errors gives the requests that failed on the way to each node.
func (u *upstreams) errors() map[fsm.NodeName]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[fsm.NodeName]uint64, len(u.open))
	maps.Copy(all, u.failed)
	for name, up := range u.open {
		all[name] += up.Stats().Errors.Load()
	}
	return all
}

// unreachable counts a request that found no connection to a node.
func (u *upstreams) unreachable(name string) {
	u.mu.Lock()
	u.failed[fsm.NodeName(name)]++
	u.mu.Unlock()
}

// close closes all of them.
func (u *upstreams) close() {
	u.mu.Lock()
	open := u.open
	u.open = map[fsm.NodeName]*http1.Upstream{}
	u.mu.Unlock()
	for _, up := range open {
		up.Close()
	}
}
