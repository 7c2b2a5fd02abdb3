package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto/follow"
)

// Proxy forwards requests to the nodes that hold their tenants. Make one with
// New and use it by Run.
type Proxy struct {
	// constant after New
	cfg      Config
	dir      *directory
	control  *control
	server   *http1.Server
	marks    *marks
	refusals *refusals
	metrics  *metrics
	holds    *holds
	follower *follow.Client // nil without control servers
	cachedAt time.Time      // when the directory of the cache was known to be the newest; zero without one

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
	p.dir = newDirectory(newUpstreams(cfg.ConnectTimeout, cfg.ClientTLS, p.holds.nodeUp, cfg.Logger), p.changed, cfg.Logger)
	if err := p.open(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *Proxy) open() (err error) {
	if p.control, err = newControl(&p.cfg, func() string { return p.secrets.Load().Token }, p.cfg.Logger); err != nil {
		return err
	}
	p.readCache()
	if p.follower, err = p.newFollower(); err != nil {
		return err
	}
	p.server, err = http1.New(http1.Config{
		Handler: handler{p}, Logger: p.cfg.Logger, TLS: p.cfg.TLS,
		UpstreamTimeout: p.cfg.UpstreamTimeout, MaxBody: p.cfg.MaxBody,
	})
	if err != nil {
		return err
	}
	p.metrics, err = newMetrics(p)
	return err
}

// changed takes in that the table has changed by events, or altogether where whole is set.
func (p *Proxy) changed(events []fsm.Event, whole bool) {
	p.holds.changed(events, whole)
	if whole && setLost(p.dir.table()) && p.server != nil {
		p.server.LookAtLost()
	}
}

// close frees what open made.
func (p *Proxy) close() {
	if p.server != nil {
		_ = p.server.Close() // never fails
	}
	p.dir.close()
	if p.control != nil {
		p.control.close()
	}
}

func (p *Proxy) readCache() {
	if p.cfg.Cache == "" {
		return
	}
	t, asOf, err := loadCache(p.cfg.Cache, p.dir.newEdit())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		p.cfg.Logger.Warn("cached directory ignored", "file", p.cfg.Cache, "err", err)
		return
	}
	p.dir.publish(t, nil, true)
	p.cachedAt = asOf
	p.cfg.Logger.Info("cached directory loaded", "file", p.cfg.Cache, "revision", t.position.Revision, "age", p.age(time.Now()))
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
	if cached := p.dir.table(); p.cfg.Cache != "" {
		wg.Go(func() { p.keepCache(work, cached) })
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

const (
	// cacheEvery is the least time between two writings of the cache, and
	// cacheShare the least ratio of that time to what a writing took: a large
	// directory is written less often.
	cacheEvery = time.Second
	cacheShare = 50
)

// keepCache writes the directory to the cache file, which holds saved: the first one
// at once, then where it has changed, at most every cacheEvery, and once more at the end.
func (p *Proxy) keepCache(ctx context.Context, saved *table) {
	save := func() time.Duration {
		t := p.dir.table()
		if t == saved {
			return 0
		}
		began := time.Now()
		if err := saveCache(p.cfg.Cache, t, began.Add(-p.age(began))); err != nil {
			p.cfg.Logger.Warn("the directory was not written to the cache", "file", p.cfg.Cache, "err", err)
		} else {
			saved = t
		}
		return max(cacheEvery, cacheShare*time.Since(began))
	}
	for {
		changed := p.dir.next()
		wait := time.NewTimer(save())
		select {
		case <-ctx.Done():
			wait.Stop()
			save()
			return
		case <-wait.C:
		}
		select {
		case <-ctx.Done():
			save()
			return
		case <-changed:
		}
	}
}

// record writes a line for the audit log.
func (h handler) record(r *http1.Request, event AuditEvent, status int) {
	if h.cfg.Audit == nil {
		return
	}
	now := time.Now()
	h.cfg.Audit(Audit{
		At: now, Event: event, Method: string(r.Method()), Path: string(r.Path()), Status: status,
		Client: h.client(r, now).addr, Peer: peer(r.RemoteAddr()), RequestID: string(r.ID()),
	})
}

func peer(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
