package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// Proxy forwards requests to the nodes that hold their tenants. Make one with
// New and use it by Run.
type Proxy struct {
	// constant after New
	cfg      Config
	dir      *directory // the proxy's own: that of the control servers' group
	global   *directory // where that is a region's, its copy of the global one
	control  *control
	server   *http1.Server
	marks    *marks
	refusals *refusals
	metrics  *metrics
	holds    *holds

	asking  *asking // set by Run before it serves
	secrets atomic.Pointer[Secrets]
}

// New makes a proxy. It reads the cached directory, if there is one: a cache
// that cannot be used is logged and ignored. Run must be called: it frees what
// New holds.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.prepare(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, marks: newMarks(cfg.Secrets.SharedSecret), refusals: newRefusals(cfg.AuthDelay)}
	p.secrets.Store(&cfg.Secrets)
	p.holds = newHolds(p.spot, defaultHoldLimits)
	p.dir = p.newDirectory(cfg.Cache, cfg.Logger)
	globalCache := cfg.Cache
	if globalCache != "" {
		globalCache += globalSuffix
	}
	p.global = p.newDirectory(globalCache, cfg.Logger.With("directory", proto.GlobalScope))
	if err := p.open(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// globalSuffix ends the name of the cache file of the global directory.
const globalSuffix = ".global"

func (p *Proxy) newDirectory(cache string, log hclog.Logger) *directory {
	return newDirectory(newUpstreams(p.cfg.ConnectTimeout, p.cfg.ClientTLS, p.holds.nodeUp, p.lost, log), p.changed, cache, log)
}

// lost takes in that a router or a control server does not answer any more.
func (p *Proxy) lost(*http1.Upstream) { p.server.LookAtLost() }

func (p *Proxy) open() (err error) {
	if p.control, err = newControl(&p.cfg, func() string { return p.secrets.Load().Token }, p.lost, p.cfg.Logger); err != nil {
		return err
	}
	p.dir.readCache(func(*table) error { return nil })
	if own := p.dir.table(); own != nil && own.own != "" {
		p.global.readCache((*table).isGlobal)
	}
	if len(p.control.bases) > 0 {
		f, err := p.newFollower(p.dir, "")
		if err != nil {
			return err
		}
		p.dir.follower.Store(f)
	}
	p.server, err = http1.New(http1.Config{
		Handler: handler{p}, Logger: p.cfg.Logger, TLS: p.cfg.TLS,
		UpstreamTimeout: p.cfg.UpstreamTimeout, MaxBody: p.cfg.MaxBody,
	})
	if err != nil {
		return err
	}
	p.watchRegions()
	p.metrics, err = newMetrics(p)
	return err
}

// watchRegions has the routers of all other regions watched, so that a region which cannot
// be reached is known before it is asked (G9).
func (p *Proxy) watchRegions() {
	own := p.dir.table()
	if own == nil {
		return
	}
	for _, d := range []*directory{p.dir, p.global} {
		for _, r := range d.regions.all() {
			if r.name != own.own {
				r.routers.Load().doubt()
			}
		}
	}
}

// changed takes in that the table of d has changed by events, or altogether where whole
// is set.
func (p *Proxy) changed(d *directory, events []fsm.Event, whole bool) {
	p.holds.changed(events, whole)
	if !whole {
		return
	}
	news := setLost(d.table())
	if p.server == nil {
		return // it is being opened
	}
	if news {
		p.server.LookAtLost()
	}
	p.watchRegions()
}

// close frees what open made.
func (p *Proxy) close() {
	if p.server != nil {
		_ = p.server.Close() // never fails
	}
	p.dir.close()
	p.global.close()
	if p.control != nil {
		p.control.close()
	}
}

// Reload puts other secrets in force, for what begins from then on.
func (p *Proxy) Reload(s Secrets) {
	p.secrets.Store(&s)
	p.marks.reload(s.SharedSecret)
}

// Run serves until ctx ends, lets requests under way end (for DrainTimeout at
// most), and waits for everything that it started. It is called once.
func (p *Proxy) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx by the draining
	defer stop()
	p.asking = newAsking(work, p.control.ask)
	var wg sync.WaitGroup
	for _, d := range []*directory{p.dir, p.global} {
		if cached := d.table(); d.cache != "" {
			wg.Go(func() { d.keepCache(work, cached) })
		}
	}
	wg.Go(func() { p.follow(work) })
	served := make(chan error, 1)
	wg.Go(func() { served <- p.server.Serve(p.cfg.Listener) })
	p.cfg.Logger.Info("listening", "addr", p.cfg.Listener.Addr().String())
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", p.cfg.Listener.Addr(), err)
	}
	drain, cancel := context.WithTimeout(work, p.cfg.DrainTimeout)
	if drained := p.server.Shutdown(drain); drained != nil && !errors.Is(drained, context.DeadlineExceeded) {
		err = errors.Join(err, drained)
	}
	cancel()
	stop()
	wg.Wait()
	p.asking.wait()
	p.close()
	return err
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.cfg.Listener.Addr() }

// record writes a line for the audit log of what c asked for.
func (h handler) record(r *http1.Request, c client, event AuditEvent, status int) {
	if h.cfg.Audit == nil {
		return
	}
	h.cfg.Audit(Audit{
		At: time.Now(), Event: event, Method: string(r.Method()), Path: string(r.Path()), Status: status,
		Client: c.addr, Peer: peer(r.RemoteAddr()), RequestID: string(r.ID()),
	})
}

func peer(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
