package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"time"

	"domicile/controlplane"
	"domicile/fsm"
	"domicile/internal/listen"
	"domicile/internal/tlsconf"
	"domicile/proto"
)

type controlCmd struct {
	ID            string   `required:"" help:"Name of this server in its group, for good: [a-z0-9_-], 1 to 64 characters."`
	Data          string   `required:"" placeholder:"DIR" help:"Folder for the log and snapshots; this server's alone."`
	Listen        string   `default:"127.0.0.1:8070" help:"Address of the admin API."`
	Advertise     string   `placeholder:"URL" help:"Base URL by which the group's other servers reach the admin API. Default: the listener's address."`
	RaftListen    string   `default:"127.0.0.1:8071" help:"Address for the group's other servers."`
	RaftAdvertise string   `placeholder:"HOST:PORT" help:"How the others reach --raft-listen; stable over restarts. Default: --raft-listen."`
	Bootstrap     bool     `help:"Be the first server of a new group; not together with --join. Ignored once the data folder holds one."`
	Join          []string `sep:"," placeholder:"URL" help:"Join an existing group through any of its servers; asked again until it succeeds. Ignored once the data folder holds a group."`
	Region        string   `help:"Region whose own directory this group keeps, together with --global; none: the global directory, of all other regions and of every tenant's name."`
	Global        []string `sep:"," placeholder:"URL" help:"Servers of the global group, or its proxies, whose directory a region's group follows; together with --region."`

	Token                string `help:"Token that the admin API asks for, and that this server shows to the others."`
	TokenFile            string `placeholder:"FILE" help:"File that holds the token."`
	SharedSecret         string `help:"Secret of the marks between proxies. Default: the token."`
	SharedSecretFile     string `placeholder:"FILE" help:"File that holds the shared secret."`
	ReplicationToken     string `help:"Secret that nodes show each other for copies: their --replication-token. None: their admin tokens. Seeds a new directory."`
	ReplicationTokenFile string `placeholder:"FILE" help:"File that holds the replication token."`

	Replicas      uint32        `default:"1" help:"Copies of each tenant beside its primary, 0 to 8; seeds a new directory (admin settings set changes it)."`
	AutoFailover  time.Duration `default:"3s" help:"Length of nodes' leases: a node that was not reached for so long is failed over; 0: none. Seeds a new directory."`
	DefaultRegion *string       `placeholder:"REGION" help:"Region of tenants that name none; seeds a new directory."`
	RepairAfter   time.Duration `default:"10s" help:"Grace before a missing or badly placed copy is repaired; seeds a new directory."`
	RemoveAfter   time.Duration `default:"10s" help:"Grace before a copy that was given up is removed; seeds a new directory."`

	tlsFlags
	logFlags
}

// Help shows how a group is started.
func (*controlCmd) Help() string {
	return "A group of three, each on a machine of its own:\n\n  domicile control --id c1 --data /var/lib/domicile --bootstrap …\n  domicile control --id c2 --data /var/lib/domicile --join http://c1:8070 …\n  domicile control --id c3 --data /var/lib/domicile --join http://c1:8070 …\n\n" +
		"A region that keeps its own directory has such a group of its own, which follows the global one:\n\n  domicile control --id us1 --data /var/lib/domicile --region us --global http://c1:8070,http://c2:8070 --bootstrap …"
}

// gcPercent keeps the heap of a server within half as much again as its
// directory: that is live for good, and collecting it is cheap beside a sync.
const gcPercent = 40

// Run serves until ctx ends.
func (c *controlCmd) Run(ctx context.Context, e *env) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if c.Bootstrap && len(c.Join) > 0 {
		return usagef("--bootstrap makes a new group and --join enters an existing one; give one of them")
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.checkSettings(); err != nil {
		return err
	}
	if (c.Region == "") != (len(c.Global) == 0) {
		return usagef("--region names the region whose own directory this is, and --global whom to ask for the global one; give both or neither")
	}
	global, err := baseURLs("global", c.Global)
	if err != nil {
		return err
	}
	join, err := baseURLs("join", c.Join)
	if err != nil {
		return err
	}
	if c.Advertise != "" {
		own, err := baseURLs("advertise", []string{c.Advertise})
		if err != nil {
			return err
		}
		c.Advertise = own[0]
	}
	token, err := secret("token", c.Token, c.TokenFile)
	if err != nil {
		return err
	}
	shared, err := secret("shared-secret", c.SharedSecret, c.SharedSecretFile)
	if err != nil {
		return err
	}
	replication, err := secret("replication-token", c.ReplicationToken, c.ReplicationTokenFile)
	if err != nil {
		return err
	}
	l, files, err := c.listener(c.Listen, token != "", true, "")
	if err != nil {
		return err
	}
	raft, dial, err := c.raft(files)
	if err != nil {
		l.Close()
		return err
	}
	cfg := controlplane.Config{
		ID: fsm.MemberID(c.ID), DataDir: c.Data,
		Listener: l, API: c.api(l, files),
		RaftListener: raft, RaftDial: dial, RaftAdvertise: c.RaftAdvertise,
		Bootstrap: c.Bootstrap, Join: join, Region: fsm.RegionName(c.Region), Global: global,
		Settings: c.settings(replication), Token: token, SharedSecret: shared, Audit: c.Audit,
		Build: version, Logger: c.logger(e, "control"),
	}
	if files != nil {
		cfg.DialTLS = files.DialContext
	}
	s, err := controlplane.New(cfg)
	if err != nil {
		return err
	}
	go e.onHangup(ctx, func() {
		reloadTLS(cfg.Logger, files)
		token, err := secret("token", c.Token, c.TokenFile)
		if err != nil {
			cfg.Logger.Error("the token was not reloaded; the one in use stays", "err", err)
			return
		}
		s.SetToken(token)
		shared, err := secret("shared-secret", c.SharedSecret, c.SharedSecretFile)
		if err != nil {
			cfg.Logger.Error("the shared secret was not reloaded; the one in use stays", "err", err)
			return
		}
		s.SetSharedSecret(cmp.Or(shared, token))
	})
	return errors.Join(s.Run(ctx), s.Close())
}

// raft opens the port for the group's other servers: mutual TLS where there is
// a CA, and otherwise open to loopback alone, as whoever reaches it can vote.
func (c *controlCmd) raft(files *tlsconf.Files) (net.Listener, func(context.Context, string) (net.Conn, error), error) {
	cfg := listen.Config{Addr: c.RaftListen, Insecure: c.Insecure, Hint: "the three TLS flags (--tls-cert, --tls-key, --tls-ca)"}
	var dial func(context.Context, string) (net.Conn, error)
	if files != nil && files.HasCertificate() && files.HasCA() {
		var err error
		if cfg.TLS, err = files.ForParts(); err != nil {
			return nil, nil, err
		}
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return files.DialContext(ctx, "tcp", addr) }
	}
	l, err := listen.Open(cfg)
	return l, dial, err
}

func (c *controlCmd) api(l net.Listener, files *tlsconf.Files) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	return baseURL(l, files)
}

func baseURL(l net.Listener, files *tlsconf.Files) string {
	scheme := "http://"
	if files != nil && files.HasCertificate() {
		scheme = "https://"
	}
	return scheme + l.Addr().String()
}

// checkNames refuses names that no server, and no region, can have, before anything is opened.
func (c *controlCmd) checkNames() error {
	const valid = "use 1 to 64 of a-z, 0-9, _ and -"
	switch {
	case !fsm.ValidName(c.ID):
		return usagef("--id %q is not the name of a server: %s", c.ID, valid)
	case c.Region == proto.GlobalScope:
		return usagef("--region %s: no region is called so, that is the global group's name; leave out --region and --global for a server of the global group, or name the region whose directory this one is to keep", c.Region)
	case c.Region != "" && !fsm.ValidName(c.Region):
		return usagef("--region %q is not the name of a region: %s", c.Region, valid)
	}
	return nil
}

// checkSettings refuses what the group would refuse.
func (c *controlCmd) checkSettings() error {
	if err := controlplane.CheckSettings(c.settings("")); err != nil {
		return usagef("%v", err)
	}
	return nil
}

func (c *controlCmd) settings(replication string) fsm.Settings {
	s := fsm.Settings{
		Replicas:         c.Replicas,
		AutoFailover:     fsm.Millis(c.AutoFailover.Milliseconds()),
		RepairAfter:      fsm.Millis(c.RepairAfter.Milliseconds()),
		RemoveAfter:      fsm.Millis(c.RemoveAfter.Milliseconds()),
		ReplicationToken: replication,
	}
	if c.DefaultRegion != nil {
		r := fsm.RegionName(*c.DefaultRegion)
		s.DefaultRegion = &r
	}
	return s
}

// reloadTLS reads the certificates again; on an error the old ones stay.
func reloadTLS(log interface{ Error(string, ...any) }, files *tlsconf.Files) {
	if files == nil {
		return
	}
	if err := files.Reload(); err != nil {
		log.Error("certificates were not reloaded; the ones in use stay", "err", err)
	}
}

// readFile gives a file's content, or nil for "".
func readFile(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return os.ReadFile(name)
}
