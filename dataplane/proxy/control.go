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
// asked about a tenant, and to relay the admin API to.
type control struct {
	ring
	bases  []string // of the servers: http(s)://host:port
	client *http.Client
	token  func() string
}

// controlName is the name of control servers' upstreams; no node can have it (G11).
const controlName = "@control"

// askTimeout bounds one question to one server.
const askTimeout = 2 * time.Second

func newControl(cfg *Config, token func() string, onLost func(*http1.Upstream), log hclog.Logger) (c *control, err error) {
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
	c.broken = make([]atomic.Uint64, len(cfg.Control))
	for _, addr := range cfg.Control {
		scheme, hostport, err := splitAddr(addr)
		if err != nil {
			return c, fmt.Errorf("control server: %w", err)
		}
		up := http1.UpstreamConfig{Name: controlName, Addr: hostport, ConnectTimeout: cfg.ConnectTimeout,
			AskAfter: cfg.ConnectTimeout / 4, AskWell: "/_health", OnLost: onLost, Logger: log}
		if scheme == "https" {
			host, _, _ := net.SplitHostPort(hostport) // splitAddr has looked at it
			up.TLS = cfg.ClientTLS(host)
		}
		server, err := http1.NewUpstream(up)
		if err != nil {
			return c, err
		}
		c.ups, c.bases = append(c.ups, server), append(c.bases, scheme+"://"+hostport)
	}
	return c, nil
}

func (c *control) close() {
	for _, up := range c.ups {
		up.Close()
	}
	c.client.CloseIdleConnections()
}

// errNoControl says that no server of the group answered with its directory.
var errNoControl = errors.New("no control server answers")

// known is what the control plane says of a tenant.
type known struct {
	revision fsm.Revision // of the directory that the answer was read from
	of       string       // authority of that directory; "" the proxy's own
	found    bool
	state    string // of the tenant, where it was found
}

// ask asks the control plane for a tenant, one server after the other until one
// says. Each asks its leader: a server that lags, or has lost touch with its group,
// does not have every tenant (T4).
func (c *control) ask(ctx context.Context, tenant, requestID string) (known, error) {
	var errs []error
	first := int(c.first.Load())
	for n := range c.bases {
		i := (first + n) % len(c.bases)
		k, status, err := c.askServer(ctx, c.bases[i], tenant, requestID)
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
	name, _ := proto.ParseDirectoryName(resp.Header.Get(proto.HeaderDirectory))
	rev, err := strconv.ParseUint(resp.Header.Get(proto.HeaderRevision), 10, 64)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil:
		return known{revision: fsm.Revision(rev), of: name.Authority, found: true, state: answer.State}, resp.StatusCode, nil
	case resp.StatusCode == http.StatusNotFound && answer.Code == fsm.CodeTenantUnknown && err == nil:
		return known{revision: fsm.Revision(rev), of: name.Authority}, resp.StatusCode, nil
	}
	return known{}, resp.StatusCode, fmt.Errorf("%s: answer %d (%s) says nothing of the tenant", base, resp.StatusCode, answer.Code)
}
