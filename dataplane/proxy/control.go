package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// control is the servers of the group whose directory the proxy follows: to be
// asked about a tenant, and to relay the admin API to. The one that answered
// last comes first.
type control struct {
	servers []controlServer
	client  *http.Client
	token   func() string

	first atomic.Int32 // index of the server that answered last
}

type controlServer struct {
	base   string // http(s)://host:port
	up     *http1.Upstream
	broken *atomic.Uint64 // requests that had failed on its connections when that was looked at last
}

// controlName is the name of control servers' upstreams; no node can have it (G11).
const controlName = "@control"

// askTimeout bounds one question to one server.
const askTimeout = 2 * time.Second

func newControl(cfg *Config, token func() string, log hclog.Logger) (c *control, err error) {
	c = &control{token: token}
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout}
	c.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				d := tls.Dialer{NetDialer: dialer, Config: cfg.ClientTLS(host)}
				return d.DialContext(ctx, network, addr)
			},
			DisableCompression:  true, // the stream is compressed as it is
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     30 * time.Second,
		},
	}
	for _, addr := range cfg.Control {
		scheme, hostport, err := splitAddr(addr)
		if err != nil {
			return c, fmt.Errorf("control server: %w", err)
		}
		s := controlServer{base: scheme + "://" + hostport, broken: new(atomic.Uint64)}
		up := http1.UpstreamConfig{Name: controlName, Addr: hostport, ConnectTimeout: cfg.ConnectTimeout, Logger: log}
		if scheme == "https" {
			host, _, _ := net.SplitHostPort(hostport) // splitAddr has looked at it
			up.TLS = cfg.ClientTLS(host)
		}
		if s.up, err = http1.NewUpstream(up); err != nil {
			return c, err
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

func (c *control) close() {
	for _, s := range c.servers {
		s.up.Close()
	}
	c.client.CloseIdleConnections()
}

// relay gives the server to send a request to: the n-th to be tried, from 0 on;
// nil when all were. One that takes connections and breaks them, as what stands before
// a server that is gone does, is no longer the first.
func (c *control) relay(n int) *http1.Upstream {
	if n >= len(c.servers) {
		return nil
	}
	if n == 0 {
		i := int(c.first.Load())
		if now := c.servers[i].up.Stats().Errors.Load(); c.servers[i].broken.Swap(now) != now {
			c.note(i, http.StatusServiceUnavailable)
		}
	}
	return c.servers[(int(c.first.Load())+n)%len(c.servers)].up
}

// index gives the place of an upstream among the servers, -1 for a node's.
func (c *control) index(up *http1.Upstream) int {
	for i := range c.servers {
		if c.servers[i].up == up {
			return i
		}
	}
	return -1
}

// note notes which server answered. One that says 503 knows no leader, or has no
// directory: the next request begins with the next one.
func (c *control) note(i, status int) {
	if status == http.StatusServiceUnavailable {
		i = (i + 1) % len(c.servers)
	}
	if c.first.Load() != int32(i) {
		c.first.Store(int32(i))
	}
}

// errNoControl says that no server of the group answered with its directory.
var errNoControl = errors.New("no control server answers")

// known is what the control plane says of a tenant.
type known struct {
	revision fsm.Revision // of the directory that the answer was read from
	found    bool
	state    string // of the tenant, where it was found
}

// ask asks the control plane for a tenant, one server after the other until one
// says. Each asks its leader: a server that lags, or has lost touch with its group,
// does not have every tenant (T4).
func (c *control) ask(ctx context.Context, tenant, requestID string) (known, error) {
	var errs []error
	first := int(c.first.Load())
	for n := range c.servers {
		i := (first + n) % len(c.servers)
		k, status, err := c.askServer(ctx, c.servers[i].base, tenant, requestID)
		if status != 0 {
			c.note(i, status)
		}
		if err == nil {
			return k, nil
		}
		errs = append(errs, err)
	}
	return known{}, errors.Join(append(errs, errNoControl)...)
}

// maxTenantAnswer is how much of the answer about a tenant is read.
const maxTenantAnswer = 64 << 10

func (c *control) askServer(ctx context.Context, base, tenant, requestID string) (k known, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/_shard/tenants/"+tenant+"?consistent=1", nil)
	if err != nil {
		return known{}, 0, err
	}
	req.Header.Set(proto.HeaderRequestID, requestID)
	if token := c.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return known{}, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTenantAnswer))
	if err != nil {
		return known{}, 0, err
	}
	var answer struct {
		State string   `json:"state"`
		Code  fsm.Code `json:"code"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return known{}, resp.StatusCode, fmt.Errorf("%s: answer %d that is not JSON: %w", base, resp.StatusCode, err)
	}
	rev, err := strconv.ParseUint(resp.Header.Get(proto.HeaderRevision), 10, 64)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil:
		return known{revision: fsm.Revision(rev), found: true, state: answer.State}, resp.StatusCode, nil
	case resp.StatusCode == http.StatusNotFound && answer.Code == fsm.CodeTenantUnknown && err == nil:
		return known{revision: fsm.Revision(rev)}, resp.StatusCode, nil
	}
	return known{}, resp.StatusCode, fmt.Errorf("%s: answer %d (%s) says nothing of the tenant", base, resp.StatusCode, answer.Code)
}
