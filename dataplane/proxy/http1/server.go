package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Server accepts clients' connections and serves their requests.
type Server struct {
	cfg     Config
	log     hclog.Logger
	limits  limits
	pools   *buffers
	stats   Stats
	now     atomic.Uint64 // ticks since New; never 0
	date    atomic.Pointer[[]byte]
	epoch   time.Time
	ids     idSource
	hangups *hangups

	draining atomic.Bool

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	watched   map[int32]*conn // by watchID
	lastID    int32
	stopped   bool // no new listeners or connections
	stopOnce  sync.Once

	serving sync.WaitGroup // connections
	stop    chan struct{}
	reaped  chan struct{} // closed when the reaper has ended
}

// limits are Config's durations in ticks; below 0 is none.
type limits struct {
	head, idle, drain, upstream, spare, write, tunnel, linger int64
}

func ticks(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return max(1, int64((d+tick-1)/tick))
}

// New makes a Server and starts its reaper. End it by Shutdown or Close.
func New(cfg Config) (*Server, error) {
	if cfg.Handler == nil || cfg.Logger == nil {
		return nil, errors.New("http1: a server needs a handler and a logger")
	}
	setDefault(&cfg.HeadTimeout, 10*time.Second)
	setDefault(&cfg.IdleTimeout, 75*time.Second)
	setDefault(&cfg.DrainIdle, 500*time.Millisecond)
	setDefault(&cfg.UpstreamTimeout, 60*time.Second)
	setDefault(&cfg.SpareWait, min(2*time.Second, cfg.UpstreamTimeout/4))
	setDefault(&cfg.WriteTimeout, 60*time.Second)
	setDefault(&cfg.TunnelIdle, time.Hour)
	setDefault(&cfg.MinBodyRate, 1024)
	setDefault(&cfg.MaxConns, 65536)
	watcher, err := newHangups()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, pools: newBuffers(), epoch: time.Now(), hangups: watcher,
		limits: limits{
			head: ticks(cfg.HeadTimeout), idle: ticks(cfg.IdleTimeout), drain: ticks(cfg.DrainIdle), upstream: ticks(cfg.UpstreamTimeout), spare: ticks(cfg.SpareWait),
			write: ticks(cfg.WriteTimeout), tunnel: ticks(cfg.TunnelIdle), linger: ticks(lingerTime),
		},
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		watched:   make(map[int32]*conn),
		stop:      make(chan struct{}),
		reaped:    make(chan struct{}),
	}
	s.ids.seed()
	s.now.Store(1)
	s.setDate(time.Now())
	go s.reap()
	return s, nil
}

// Stats gives the counters.
func (s *Server) Stats() *Stats { return &s.stats }

// nanos is a monotonic clock that is cheaper than time.Now.
func (s *Server) nanos() time.Duration { return time.Since(s.epoch) }

func (s *Server) setDate(t time.Time) {
	line := []byte(t.UTC().Format("Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n"))
	s.date.Store(&line)
}

// Serve accepts connections from ln until Shutdown or Close, which close it;
// then nil. It may be called for several listeners.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = ln.Close()
		return ErrClosed
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ln)
		s.mu.Unlock()
		_ = ln.Close()
	}()
	for wait := time.Duration(0); ; {
		nc, err := ln.Accept()
		if err == nil {
			wait = 0
			s.start(nc)
			continue
		}
		if s.ending() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Out of descriptors, most likely: they come back as connections end.
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		s.log.Warn("accept failed, trying again", "err", err)
		select {
		case <-s.stop:
			return nil
		case <-time.After(wait):
		}
	}
}

func (s *Server) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// start serves a connection on a goroutine of its own.
func (s *Server) start(nc net.Conn) {
	c := &conn{srv: s}
	secure := s.cfg.TLS != nil
	if secure {
		nc = tls.Server(nc, s.cfg.TLS)
	}
	c.sock.init(nc, secure)
	c.secure = secure
	c.in.pools, c.node.pools = s.pools, s.pools
	c.remote, c.remoteIP = addrOf(nc)
	c.state.Store(uint64(makeState(s.now.Load(), phaseHead)))
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	c.overflow = len(s.conns) >= s.cfg.MaxConns
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	s.stats.Accepted.Add(1)
	s.stats.Connections.Add(1)
	go c.run()
}

func addrOf(nc net.Conn) (netip.AddrPort, string) {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		p = netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
		return p, p.Addr().String()
	}
	return netip.AddrPort{}, nc.RemoteAddr().String()
}

// forget takes a connection off the list once it has been closed.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if c.watchID != 0 {
		delete(s.watched, c.watchID)
	}
	s.mu.Unlock()
	s.stats.Connections.Add(-1)
	s.serving.Done()
}

// Shutdown stops accepting, lets every request under way end (its answer says
// Connection: close), ends connections once they have been unused for DrainIdle
// (the next request of one that is in use may be on its way), and then ends
// upgraded connections. When ctx ends first it does what Close does and gives its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeListeners()
	s.draining.Store(true)
	poll := time.NewTicker(tick / 5)
	defer poll.Stop()
	for s.drain() > 0 {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.Close())
		case <-poll.C:
		}
	}
	return s.Close()
}

// drain ends the unused connections and gives how many are left. Upgraded
// connections are not counted.
func (s *Server) drain() (busy int) {
	now := int64(s.now.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		switch seen := state(c.state.Load()); {
		case seen.phase() == phaseTunnel:
		case seen.phase() == phaseIdle && seen.cause() == causeNone && now-int64(seen.since()) >= s.limits.drain:
			c.end(seen, causeDrain)
			busy++
		default:
			busy++
		}
	}
	return busy
}

func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// Close ends every connection at once and waits for every goroutine.
func (s *Server) Close() error {
	s.closeListeners()
	s.draining.Store(true)
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	poll := time.NewTicker(tick / 5)
	defer poll.Stop()
	for waiting := true; waiting; {
		s.endAll()
		select {
		case <-done:
			waiting = false
		case <-poll.C:
		}
	}
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.reaped
	return nil
}

// endAll ends what every connection is doing. A connection may go on to say so
// to its client, so this is repeated until all are gone.
func (s *Server) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		for {
			seen := state(c.state.Load())
			if seen.ended() || c.end(seen, causeStop) {
				break
			}
		}
	}
}
