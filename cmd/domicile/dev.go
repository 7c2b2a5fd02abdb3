package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/client"
	"domicile/controlplane"
	"domicile/dataplane/node"
	"domicile/dataplane/node/store"
	"domicile/dataplane/proxy"
	"domicile/fsm"
	"domicile/internal/listen"
	"domicile/proto"
)

type devCmd struct {
	Data          string   `default:"./domicile-data" placeholder:"DIR" help:"Folder for everything; kept between runs."`
	Listen        string   `default:"127.0.0.1:8090" help:"Address of the proxy, where clients come."`
	ControlListen string   `default:"127.0.0.1:8070" help:"Address of the control server's admin API."`
	RaftListen    string   `default:"127.0.0.1:8071" help:"Address for other servers of the group; none come here."`
	NodeListen    []string `default:"127.0.0.1:8081,127.0.0.1:8082,127.0.0.1:8083" sep:"," help:"Addresses of the three nodes; one alone stands for all when its port is 0."`
	LogLevel      string   `enum:"trace,debug,info,warn,error" default:"warn" help:"Least level that is logged: ${enum}."`
}

// devZones are the zones of the three nodes, all in one region.
var devZones = []fsm.ZoneName{"fra", "ams", "fra"}

const devRegion = fsm.RegionName("eu")

// devSettings are what the flags of domicile control seed by default.
var devSettings = fsm.Settings{Replicas: 1, AutoFailover: 3000, RepairAfter: 10_000, RemoveAfter: 10_000}

// part is one of the servers that dev runs; they stop in the order they stand.
type part struct {
	name string
	run  func(context.Context) error
}

// Run serves until ctx ends.
func (c *devCmd) Run(ctx context.Context, e *env) error {
	if len(c.NodeListen) == 1 && strings.HasSuffix(c.NodeListen[0], ":0") {
		c.NodeListen = []string{c.NodeListen[0], c.NodeListen[0], c.NodeListen[0]}
	}
	if len(c.NodeListen) != len(devZones) {
		return usagef("--node-listen takes %d addresses", len(devZones))
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return err
	}
	token, err := devToken(filepath.Join(c.Data, "node-token"))
	if err != nil {
		return err
	}
	d := &deployment{cfg: c, token: token, log: hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(c.LogLevel), Output: e.stderr})}
	if err := d.build(); err != nil {
		return errors.Join(err, d.close())
	}
	return d.run(ctx, func(ctx context.Context) error {
		if err := d.record(ctx); err != nil {
			return err
		}
		d.greet(e)
		return nil
	})
}

// devToken is the admin token of dev's nodes: random, kept with the data.
func devToken(file string) (string, error) {
	if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
		return string(data), nil
	}
	token := rand.Text()
	return token, os.WriteFile(file, []byte(token), 0o600)
}

// deployment is what dev runs.
type deployment struct {
	cfg   *devCmd
	token string
	log   hclog.Logger

	control string // base URLs
	proxy   string
	nodes   []string
	parts   []part
	opened  []net.Listener
}

func (d *deployment) listen(addr string) (net.Listener, error) {
	l, err := listen.Open(listen.Config{Addr: addr})
	if err != nil {
		return nil, fmt.Errorf("%w; is another deployment running? Choose another address with --listen, --control-listen, --raft-listen or --node-listen", err)
	}
	d.opened = append(d.opened, l)
	return l, nil
}

// close gives the ports back when the deployment was not built whole.
func (d *deployment) close() error {
	for _, l := range d.opened {
		_ = l.Close()
	}
	return nil
}

func (d *deployment) build() error {
	if err := d.buildControl(); err != nil {
		return err
	}
	for i, addr := range d.cfg.NodeListen {
		if err := d.buildNode(i, addr); err != nil {
			return err
		}
	}
	return d.buildProxy()
}

func (d *deployment) buildControl() error {
	api, err := d.listen(d.cfg.ControlListen)
	if err != nil {
		return err
	}
	raft, err := d.listen(d.cfg.RaftListen)
	if err != nil {
		return err
	}
	d.control = "http://" + api.Addr().String()
	s, err := controlplane.New(controlplane.Config{
		ID: "dev", DataDir: filepath.Join(d.cfg.Data, "control"),
		Listener: api, API: d.control, RaftListener: raft,
		Bootstrap: true, Build: version, Logger: d.log.Named("control"),
		Settings: devSettings,
	})
	if err != nil {
		return err
	}
	d.parts = append(d.parts, part{"control server", func(ctx context.Context) error {
		return errors.Join(s.Run(ctx), s.Close())
	}})
	return nil
}

func (d *deployment) buildNode(i int, addr string) error {
	l, err := d.listen(addr)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("n%d", i+1)
	d.nodes = append(d.nodes, "http://"+l.Addr().String())
	s, err := node.New(node.Config{
		Listener: l, Logger: d.log.Named(name),
		Store:  store.Config{Dir: filepath.Join(d.cfg.Data, name)},
		Tokens: node.Tokens{Admin: d.token}, ReplicationToken: d.token,
		Lease: true, KeepUnits: true, // they stop with all that could take them over
		Version: version,
	})
	if err != nil {
		return err
	}
	d.parts = append(d.parts, part{"node " + name, s.Run})
	return nil
}

func (d *deployment) buildProxy() error {
	l, err := d.listen(d.cfg.Listen)
	if err != nil {
		return err
	}
	d.proxy = "http://" + l.Addr().String()
	s, err := proxy.New(proxy.Config{
		Listener: l, Control: []string{d.control}, Hold: 10 * time.Second,
		Cache:   filepath.Join(d.cfg.Data, "proxy.cache"),
		Version: version, Logger: d.log.Named("proxy"),
	})
	if err != nil {
		return err
	}
	// First, so that clients' requests end before what serves them does.
	d.parts = append([]part{{"proxy", s.Run}}, d.parts...)
	return nil
}

// run starts all parts, calls started, and stops the parts one after another
// once ctx has ended or one of them has failed.
func (d *deployment) run(ctx context.Context, started func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	stops := make([]func(), len(d.parts))
	for i, p := range d.parts {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		stops[i] = func() { cancel(); <-done }
		wg.Go(func() {
			defer close(done)
			if err := p.run(own); err != nil && own.Err() == nil {
				fail(fmt.Errorf("the %s ended: %w", p.name, err))
			}
		})
	}
	if err := started(ctx); err != nil && ctx.Err() == nil {
		fail(err)
	}
	<-ctx.Done()
	for _, stop := range stops {
		stop()
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// record puts the nodes into the directory, where they are on the first run
// and may have other addresses on a later one.
func (d *deployment) record(ctx context.Context) error {
	cl, err := client.New(client.Config{Servers: []string{d.control}})
	if err != nil {
		return err
	}
	region := devRegion
	for i, addr := range d.nodes {
		put := proto.PutNode{Addr: &addr, Token: &d.token, Region: &region, Zone: &devZones[i]}
		if _, _, err := cl.PutNode(ctx, fsm.NodeName(fmt.Sprintf("n%d", i+1)), put); err != nil {
			return fmt.Errorf("record node n%d: %w", i+1, err)
		}
	}
	return nil
}

func (d *deployment) greet(e *env) {
	fmt.Fprintf(e.stdout, `A whole deployment runs in this process; Ctrl-C stops it, its data stays.

  proxy    %s   where clients come
  control  %s   admin API; the proxy relays it too
`, d.proxy, d.control)
	for i, addr := range d.nodes {
		fmt.Fprintf(e.stdout, "  node n%d  %s   region %s, zone %s\n", i+1, addr, devRegion, devZones[i])
	}
	fmt.Fprintf(e.stdout, `  data     %[1]s

Try, in another terminal:

  curl -X PUT %[2]s/_shard/tenants/acme
  curl %[2]s/t/acme/query -d '{"sql":"create table notes (id integer primary key, body text)"}'
  curl %[2]s/t/acme/query -d '{"sql":"insert into notes (body) values (?) returning id","args":["hello"]}'

A libSQL client is given the address %[2]s/t/acme/db
`, d.cfg.Data, d.proxy)
}
