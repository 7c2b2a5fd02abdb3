package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/valyala/fasthttp"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/lease"
	"domicile/dataplane/node/replica"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// Server is a data node.
type Server struct {
	// Constant after New.
	cfg      Config
	log      hclog.Logger
	boot     string // this process, drawn at its start
	store    *store.Store
	streams  *hrana.Streams
	fence    fence
	grants   grants
	kept     *kept
	replica  *replica.Replicator
	promises *lease.Promises
	metrics  *metrics
	http     *fasthttp.Server

	guard    atomic.Pointer[guard]
	stopping atomic.Bool // about to stop: its units are to be handed over
	counted  counted
	draining atomic.Bool
	asked    atomic.Int64 // when the control plane asked for the state of copies last, Unix ns
	served   atomic.Int64 // when the last request for a tenant ended while draining, Unix ns
	deadline atomic.Pointer[deadline]
	changes  unitLocks
	watchers watchers
	gaveUp   sync.Map  // unit → job by which this process released it
	requests sync.Pool // of *request

	base    context.Context // of all requests; ends when the node has drained
	cancel  context.CancelFunc
	ending  context.Context // of streams without an end; ends when the node is to stop
	end     context.CancelFunc
	bodies  sync.WaitGroup // producers of streamed answers
	copying sync.WaitGroup // what startCopies has started
}

// New opens the data folder and makes a Server of it. The caller runs it once, or
// closes it.
func New(cfg Config) (*Server, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, boot: httpserve.NewRequestID()}
	if err := s.Reload(cfg.Tokens); err != nil {
		return nil, err
	}
	var err error
	if s.streams, err = hrana.New(cfg.hrana()); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(cfg.Version, func() store.Stats { return s.store.Stats() })
	sc := cfg.Store
	sc.Logger = cfg.Logger.Named("store")
	sc.ObserveSync = func(d time.Duration) { s.metrics.sync.Observe(d.Seconds()) }
	if err := s.open(sc); err != nil {
		return nil, err
	}
	s.metrics.copies(s.replica.Lag, s.fence.lease)
	s.base, s.cancel = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(context.Background())
	s.requests.New = func() any { return &request{s: s} }
	s.http = s.newHTTP()
	return s, nil
}

// unheardPatience is replica.Config.Unheard under --sync normal: several of the
// tries that a copy makes to reach a node that has just started.
const unheardPatience = 5 * time.Second

// open opens the data folder, and what stands on it.
func (s *Server) open(sc store.Config) (err error) {
	if err := os.MkdirAll(sc.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if s.kept, err = openKept(sc.Dir); err != nil {
		return err
	}
	rc := replica.Config{
		Logger: s.log.Named("replica"), AckReplica: !s.cfg.AckPrimary, Promises: promises{s}, Dial: s.cfg.Dial,
		As: s.kept.address(), Token: s.cfg.ReplicationToken, Tokens: s.kept.tokens(),
	}
	if sc.Sync == store.SyncNormal {
		rc.Unheard = unheardPatience
	}
	s.replica = replica.New(rc)
	sc.Sink = s.replica.Sink
	if s.store, err = store.Open(sc); err != nil {
		return fmt.Errorf("open the data folder: %w", err)
	}
	s.promises, err = lease.NewPromises(s.cfg.Clock, s.kept)
	if err == nil {
		err = s.replica.Bind(s.store, sc.Dir)
	}
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	s.fence.ending = s.draining.Load
	if s.cfg.Lease {
		s.fence.lease = lease.New(s.cfg.Clock, s.boot)
		s.fence.compared = s.replica.Compared
	}
	return nil
}

// newHTTP sets fasthttp up. Everything that it would add, change or parse on its own
// is turned off.
func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:        s.serve,
		ErrorHandler:   s.malformed,
		ExpectHandler:  s.expect,
		HeaderReceived: s.headerReceived,
		ConnState:      connState,
		Logger:         quiet{s.log},

		ReadBufferSize:     maxHead, // bounds the head; readers are pooled
		WriteBufferSize:    16 << 10,
		ReadTimeout:        headTimeout,
		IdleTimeout:        idleTimeout,
		MaxRequestBodySize: s.cfg.MaxBody,
		TCPKeepalive:       true,

		StreamRequestBody:             true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: true,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		SecureErrorLogMessage:         true,
		CloseOnShutdown:               true,
		LazyRequestTime:               true,
	}
}

// headerReceived gives the body a time of its own.
func (s *Server) headerReceived(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: bodyTimeout}
}

// Addr is where the node listens.
func (s *Server) Addr() net.Addr { return s.cfg.Listener.Addr() }

// Reload replaces the tokens. With an error the former ones stay.
func (s *Server) Reload(t Tokens) error {
	g, err := newGuard(t)
	if err != nil {
		return err
	}
	s.guard.Store(g)
	return nil
}

// Run serves until ctx ends or the listener fails, then stops cleanly: no new
// units are handed over where the node has a lease and they have copies (L11), then no
// new connection, requests under way are finished, endless streams end with an error
// event, open transactions are rolled back, the store is closed. It returns after
// twice DrainTimeout and CloseTimeout at the latest; the process has to end then.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1) // by the one goroutine below
	go func() { served <- s.http.Serve(listener{s.cfg.Listener}) }()
	s.log.Info("listening", "addr", s.Addr().String())
	s.startCopies()

	var failed error
	select {
	case <-ctx.Done():
	case err := <-served:
		failed = fmt.Errorf("serve: %w", err)
		served <- nil
	}
	if failed == nil {
		s.handAllOver()
	}
	s.draining.Store(true)
	s.end()
	if failed == nil {
		s.awaitQuiet()
	}
	limit, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.http.ShutdownWithContext(limit); err != nil {
		s.log.Warn("requests were cut off", "err", err)
	}
	s.cancel()
	<-served
	s.copying.Wait()
	closed := make(chan error, 1) // by the one goroutine below, which may outlive Run
	go func() {
		s.bodies.Wait()
		closed <- s.closeStore()
	}()
	t := time.NewTimer(s.cfg.CloseTimeout)
	defer t.Stop()
	select {
	case err := <-closed:
		return errors.Join(failed, err)
	case <-t.C:
		return errors.Join(failed, errNotClosed)
	}
}

// errNotClosed: a function of SQLite cannot be interrupted, nor can a call of a disk
// that hangs. What was answered is on disk.
var errNotClosed = errors.New("the data folder could not be closed: a statement or the disk does not come to an end; it is taken up again at the next start")

// Close is for a Server that is not run.
func (s *Server) Close() error {
	s.end()
	s.cancel()
	return errors.Join(s.cfg.Listener.Close(), s.closeStore())
}

func (s *Server) closeStore() error {
	s.streams.Close()
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close the data folder: %w", err)
	}
	return nil
}

// malformed answers what fasthttp could not read as a request.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	e := badRequest("this is not a request of HTTP/1.1")
	var netErr net.Error
	if _, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err); ok {
		e = httpserve.Errorf(431, "head_too_large", "the request's head is larger than %d bytes", maxHead)
	} else if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		e = tooLarge(s.cfg.MaxBody)
	} else if errors.As(err, &netErr) && netErr.Timeout() {
		e = httpserve.Errorf(408, "timeout", "the request did not come in time")
	}
	r := s.requests.Get().(*request)
	r.reset(ctx)
	r.id = appendRequestID(r.id[:0], nil)
	r.fail(e)
	r.finish()
}

// quiet sends fasthttp's log, which is about connections that broke, to debug.
type quiet struct{ log hclog.Logger }

func (q quiet) Printf(format string, args ...any) {
	if q.log.IsDebug() {
		q.log.Debug("http connection", "err", fmt.Sprintf(format, args...))
	}
}

// deadline is a context that many requests share.
type deadline struct {
	context.Context
	cancel context.CancelFunc // base's end does it: requests may still use the context
	from   time.Time
}

// context is the request's: it ends after RequestTimeout, or up to a second earlier.
// Requests of the same second share one, since a timer for each would cost more than
// a point read.
func (s *Server) context(now time.Time) context.Context {
	d := s.deadline.Load()
	if d == nil || now.Sub(d.from) > time.Second {
		ctx, cancel := context.WithTimeout(s.base, s.cfg.RequestTimeout)
		d = &deadline{Context: ctx, cancel: cancel, from: now}
		s.deadline.Store(d)
	}
	return d.Context
}
