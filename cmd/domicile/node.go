package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"domicile/dataplane/node"
	"domicile/dataplane/node/store"
	"domicile/internal/faultpoint"
	"domicile/internal/tlsconf"
)

type nodeCmd struct {
	Listen string `default:"127.0.0.1:8081" help:"Address for proxies and the control plane."`
	Data   string `required:"" placeholder:"DIR" help:"Folder for the tenants' databases; this node's alone."`

	AdminToken           string `help:"Token of the admin protocol (/_admin/); without one it is off."`
	AdminTokenFile       string `placeholder:"FILE" help:"File that holds the admin token."`
	HTTPToken            string `name:"http-token" help:"Token that data requests must carry; without one, and without --jwt-key, they are open."`
	HTTPTokenFile        string `name:"http-token-file" placeholder:"FILE" help:"File that holds the token of data requests."`
	JWTKey               string `name:"jwt-key" placeholder:"FILE" help:"Data requests may carry a JWT whose claim tenant names their tenant, or a list of tenants. FILE holds a secret (HS256) or a PEM public key (RS256, ES256, EdDSA)."`
	ReplicationToken     string `help:"Secret of nodes among each other: what follows this node shows it (without one: the admin token), and sessions signed with it are taken by any node that has it."`
	ReplicationTokenFile string `placeholder:"FILE" help:"File that holds the replication token."`

	Lease     bool          `help:"Write only under a lease of the control plane, so that the node's databases can be failed over to their copies by themselves."`
	Ack       string        `enum:"primary,replica" default:"replica" help:"When a write is answered: once it is on this node's disk (primary), or on that of each copy in sync too (replica)."`
	Sync      string        `enum:"full,normal" default:"full" help:"full: a write is answered once it is on disk. normal: a power loss may lose the last ones."`
	IdleClose time.Duration `default:"5m" help:"Close a database that was not used for so long."`
	MaxOpen   int           `help:"Databases open at once. Default: by the limit of file descriptors."`

	TransactionTimeout time.Duration `default:"5s" help:"Roll a transaction back that is open over several requests and idle for so long."`
	StreamTimeout      time.Duration `default:"5m" help:"Forget an idle session without a transaction after so long."`

	tlsFlags
	logFlags
}

// Run serves until ctx ends.
func (c *nodeCmd) Run(ctx context.Context, e *env) error {
	tokens, err := c.tokens()
	if err != nil {
		return err
	}
	replication, err := secret("replication-token", c.ReplicationToken, c.ReplicationTokenFile)
	if err != nil {
		return err
	}
	audit, err := c.auditFile()
	if err != nil {
		return err
	}
	if audit != nil {
		defer audit.Close()
	}
	l, files, err := c.listener(c.Listen, tokens.HTTP != "" || tokens.JWTKey != nil, true, "--http-token or --jwt-key")
	if err != nil {
		return err
	}
	log := c.logger(e, "node")
	cfg := node.Config{
		Listener: l, Logger: log,
		Store:  store.Config{Dir: c.Data, IdleClose: c.IdleClose, MaxOpen: c.MaxOpen, Sync: storeSync(c.Sync)},
		Tokens: tokens, ReplicationToken: replication, Lease: c.Lease, AckPrimary: c.Ack == "primary",
		Dial: nodeDialer(files), Probe: transportOf(files),
		TransactionTimeout: c.TransactionTimeout, StreamTimeout: c.StreamTimeout,
		Version: version,
	}
	if audit != nil {
		cfg.Audit = audit
	}
	if faultpoint.Enabled {
		cfg.Point = faultpoint.At
		cfg.Store.Fault = func(op store.FileOp, unit string) error { return faultpoint.At("store."+string(op), unit) }
	}
	s, err := node.New(cfg)
	if err != nil {
		l.Close()
		return err
	}
	go e.onHangup(ctx, func() {
		reloadTLS(log, files)
		tokens, err := c.tokens()
		if err == nil {
			err = s.Reload(tokens)
		}
		if err != nil {
			log.Error("tokens were not reloaded; the ones in use stay", "err", err)
		}
	})
	return s.Run(ctx)
}

func (c *nodeCmd) tokens() (t node.Tokens, err error) {
	if t.Admin, err = secret("admin-token", c.AdminToken, c.AdminTokenFile); err != nil {
		return t, err
	}
	if t.HTTP, err = secret("http-token", c.HTTPToken, c.HTTPTokenFile); err != nil {
		return t, err
	}
	if t.JWTKey, err = readFile(c.JWTKey); err != nil {
		return t, fmt.Errorf("read the key of --jwt-key: %w", err)
	}
	return t, nil
}

// nodeDialer connects to other nodes, whose addresses begin with http:// or https://.
func nodeDialer(files *tlsconf.Files) func(context.Context, string) (net.Conn, error) {
	if files == nil {
		return nil // the default: TLS with the system's CAs
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		u, err := url.Parse(addr)
		if err != nil {
			return nil, err
		}
		if u.Scheme != "https" {
			return (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(u, "80"))
		}
		return files.DialContext(ctx, "tcp", hostPort(u, "443"))
	}
}

func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func storeSync(name string) store.Sync {
	if name == "normal" {
		return store.SyncNormal
	}
	return store.SyncFull
}
