package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy"
	"domicile/internal/audit"
	"domicile/internal/listen"
)

type proxyCmd struct {
	Listen  string   `default:"127.0.0.1:8090" help:"Address where clients come."`
	Control []string `required:"" sep:"," placeholder:"URL" help:"Servers of the group whose directory the proxy follows, separated by commas."`
	Cache   string   `placeholder:"FILE" help:"Keep the last good directory in FILE, to start from with no control server reachable."`
	Region  string   `help:"Region that the proxy is in: reads that a copy may answer go to one of it first."`
	Zone    string   `help:"Zone that the proxy is in: the same, before other zones of its region."`
	Domain  string   `help:"Make <tenant>.<domain> an address of each tenant."`

	Token            string `help:"Token of the control plane, to follow the directory; also asked of /_metrics."`
	TokenFile        string `placeholder:"FILE" help:"File that holds the token."`
	SharedSecret     string `help:"Secret of the marks by which proxies name a client to each other and to nodes. Default: the token."`
	SharedSecretFile string `placeholder:"FILE" help:"File that holds the shared secret."`

	Hold            time.Duration `default:"10s" help:"Hold a request for up to so long while its tenant changes nodes, 0: never; then 502 or 503."`
	ConnectTimeout  time.Duration `default:"1s" help:"For a connection to a node."`
	UpstreamTimeout time.Duration `default:"60s" help:"For the head of a node's answer; then 504."`
	MaxBody         int64         `default:"0" placeholder:"BYTES" help:"Greatest body of a request, 0: no limit; beyond it 413."`
	AuthDelay       time.Duration `default:"100ms" help:"Delay of the answer to a client's first refused token, doubled with each; 0: none."`

	tlsFlags
	logFlags
}

// Run serves until ctx ends.
func (c *proxyCmd) Run(ctx context.Context, e *env) error {
	servers, err := baseURLs("control", c.Control)
	if err != nil {
		return err
	}
	secrets, err := c.secrets()
	if err != nil {
		return err
	}
	files, err := tlsFiles(c.TLSCert, c.TLSKey, c.TLSCA)
	if err != nil {
		return err
	}
	serve, err := serverTLS(files, false)
	if err != nil {
		return err
	}
	// The data path is open to whoever reaches the port: nodes check tokens.
	if err := listen.Check(listen.Config{Addr: c.Listen, TLS: serve, HasToken: secrets.Token != "", Insecure: c.Insecure}); err != nil {
		return err
	}
	lines, err := audit.Open(c.Audit)
	if err != nil {
		return err
	}
	defer lines.Close()
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	log := c.logger(e, "proxy")
	cfg := proxy.Config{
		Listener: l, TLS: serve, Control: servers, Secrets: secrets, Cache: c.Cache,
		Hold: c.Hold, Region: c.Region, Zone: c.Zone,
		ConnectTimeout: c.ConnectTimeout, UpstreamTimeout: c.UpstreamTimeout, MaxBody: c.MaxBody,
		AuthDelay: c.AuthDelay, Domain: c.Domain, Audit: auditLines(lines, log),
		Version: version, Logger: log,
	}
	if files != nil {
		cfg.ClientTLS = files.Client
	}
	s, err := proxy.New(cfg)
	if err != nil {
		l.Close()
		return err
	}
	go e.onHangup(ctx, func() {
		reloadTLS(log, files)
		secrets, err := c.secrets()
		if err != nil {
			log.Error("secrets were not reloaded; the ones in use stay", "err", err)
			return
		}
		s.Reload(secrets)
	})
	return s.Run(ctx)
}

func (c *proxyCmd) secrets() (s proxy.Secrets, err error) {
	if s.Token, err = secret("token", c.Token, c.TokenFile); err != nil {
		return s, err
	}
	if s.SharedSecret, err = secret("shared-secret", c.SharedSecret, c.SharedSecretFile); err != nil {
		return s, err
	}
	if s.SharedSecret == "" {
		s.SharedSecret = s.Token
	}
	return s, nil
}

// auditLines writes the proxy's lines into the audit log; nil without one.
func auditLines(lines *audit.Log, log hclog.Logger) func(proxy.Audit) {
	if lines == nil {
		return nil
	}
	return func(a proxy.Audit) {
		err := lines.Write(audit.Entry{
			At: a.At, Event: audit.Event(a.Event), Method: a.Method, Path: a.Path,
			Status: a.Status, Peer: a.Client, RequestID: a.RequestID,
		})
		if err != nil {
			log.Error("a line of the audit log was not written", "err", fmt.Sprint(err))
		}
	}
}
