package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"domicile/controlplane/global"
	"domicile/controlplane/group"
	"domicile/controlplane/lease"
	"domicile/controlplane/stream"
	"domicile/fsm"
	"domicile/internal/audit"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Times of the HTTP server. Streams last, so an answer has no limit.
const (
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	stopTimeout = 5 * time.Second // for requests under way when the server stops
	maxHead     = 64 << 10
)

// Server is a control server: one server of a group, and the admin API on it.
type Server struct {
	// constant after New
	config  Config
	logger  hclog.Logger
	group   *group.Group
	stream  *stream.Hub
	events  *eventLog
	nodes   *nodeClient
	peers   *http.Client // to the group's other servers; follows no redirect
	links   *links       // to the other groups
	seals   *seals
	told    *regionsTold
	orphans orphans
	givers  givers
	// global is a region's copy of the global directory, and globalStream serves it on; nil
	// on a server of the global group.
	global       *global.Copy
	globalStream *stream.Hub
	usage        *usage
	asked        *askers
	jobs         *executor
	keeper       *lease.Keeper
	changes      *changes
	known        *knowledge
	moves        *moveMeters
	audit        *audit.Log
	handler      *httpserve.Handler
	token        atomic.Pointer[string] // shown to the group's other servers
	meters       meters
	streams      atomic.Int64 // streams that are being served
	// joinWait is joinTimeout; tests shorten it before Run.
	joinWait time.Duration
	close    func() error
	// over ends when the group does: nothing that waits for it need wait longer.
	over   context.Context
	giveUp context.CancelFunc
	// leaving ends when the server begins to stop: what is only waited for is not any more.
	leaving context.Context
	leave   context.CancelFunc
}

// New opens the data folder, joins no group yet and serves nothing yet: Run
// does. Close must follow in any case.
func New(config Config) (*Server, error) {
	s, err := newServer(config)
	if err != nil {
		for _, l := range []interface{ Close() error }{config.Listener, config.RaftListener} {
			if l != nil {
				l.Close() // taken over, also when New fails
			}
		}
		return nil, err
	}
	return s, nil
}

func newServer(config Config) (*Server, error) {
	config, err := config.check()
	if err != nil {
		return nil, err
	}
	transport := config.transport()
	s := &Server{
		config: config, logger: config.Logger,
		events: newEventLog(),
		nodes:  newNodeClient(transport),
		peers: &http.Client{Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		usage: &usage{told: make(map[fsm.NodeName]toldUsage)},
		asked: &askers{id: make(map[fsm.TenantName]string)}, joinWait: joinTimeout,
		changes: newChanges(), known: &knowledge{}, moves: newMoveMeters(), links: newLinks(&config), seals: newSeals(config.SharedSecret), told: &regionsTold{},
	}
	s.known.clear()
	s.token.Store(&config.Token)
	s.over, s.giveUp = context.WithCancel(context.Background())
	s.leaving, s.leave = context.WithCancel(s.over)
	if s.audit, err = audit.Open(config.Audit); err != nil {
		return nil, err
	}
	if err := s.openGroup(); err != nil {
		return nil, errors.Join(err, s.audit.Close())
	}
	s.close = sync.OnceValue(func() error {
		s.giveUp()
		transport.CloseIdleConnections()
		s.links.close()
		listener := s.config.Listener.Close()
		if errors.Is(listener, net.ErrClosed) { // by Run
			listener = nil
		}
		return errors.Join(s.group.Close(), listener, s.audit.Close())
	})
	s.openGlobal()
	if err := s.register(); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), s.close())
	}
	s.handler = httpserve.New(httpserve.Config{Routes: s.routes(), Token: config.Token, Guarded: "/_shard/",
		Nothing: "there is nothing at this path; this is a control server and serves the admin API under /_shard/ (docs/openapi.yaml), " +
			"/_health, /_ready and /_metrics; tenants are reached through a proxy",
		Logger: config.Logger, Before: s.before, Done: s.done})
	return s, nil
}

func (s *Server) openGroup() error {
	c := &s.config
	s.stream = stream.New(stream.Config{Logger: c.Logger.Named("stream"),
		// By it the followers of a server that its group does not reach see their
		// copy age, and go to another.
		Age: func() time.Duration { return s.group.Age() }}) // the group is opened below
	settings := group.Config{
		ID: c.ID, DataDir: c.DataDir, Region: c.Region, API: c.API,
		Listener: c.RaftListener, Dial: c.RaftDial, Advertise: c.RaftAdvertise,
		Bootstrap: c.Bootstrap, Relay: s.record, Settings: c.Settings, Version: fsm.Version,
		Feed: &feed{stream: s.stream, events: s.events, changes: s.changes, moves: s.moves}, Logger: c.Logger.Named("raft"), Timing: c.Timing,
	}
	if len(c.Join) > 0 {
		settings.Join = s.join
	}
	var err error
	if s.group, err = group.Open(settings); err != nil {
		return err
	}
	leads := func() bool { return s.group.Leader().Self }
	s.moves.leads.Store(&leads)
	s.keeper = lease.New(lease.Config{Group: s.group, Clock: c.Clock, DialTLS: c.DialTLS, Logger: c.Logger.Named("lease")})
	s.jobs = &executor{group: s.group, keeper: s.keeper, nodes: s.nodes, logger: s.logger, clock: s.now, asked: s.asked,
		changes: s.changes, known: s.known, events: s.events, meters: newFailoverMeters(), regions: s.askTask, census: s.readRegion, homes: s.tenantsElsewhere,
		names: s.globalNames, given: s.whatIsGiven}
	s.group.OnLead("leases", s.keeper.Run)
	s.group.OnLead("jobs", s.jobs.run)
	s.group.OnLead("usage", s.keepUsage)
	s.group.OnLead("orphans", s.keepOrphans)
	s.group.OnLead("homes", s.keepToHomes)
	s.group.OnLead("regions", s.giveRegions)
	s.group.OnLead("givers", s.askGivers)
	return nil
}

// Run serves until ctx ends, and returns nil then; otherwise why the process
// must not go on. It has waited for everything that it started. It is called
// once.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx by a little: the group goes on until they are
	// answered, then hands leadership over.
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		ErrorLog: s.logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	work, ctx := errgroup.WithContext(ctx)
	serving, stopGroup := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() error {
		if err := server.Serve(s.config.Listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("admin API: %w", err)
		}
		return nil
	})
	work.Go(func() error {
		defer s.giveUp()
		return s.group.Run(serving)
	})
	work.Go(func() error { return s.watchLeader(serving) })
	if s.global != nil {
		work.Go(func() error { return s.global.Run(serving) })
	}
	work.Go(func() error {
		<-ctx.Done()
		defer stopGroup()
		s.stop(server)
		return nil
	})
	s.warnOfLease(s.config.Settings)
	s.logger.Info("listening", "addr", s.config.Listener.Addr().String(), "api", s.config.API)
	return work.Wait()
}

// stop ends the streams, which would last, then waits for the requests under
// way.
func (s *Server) stop(server *http.Server) {
	s.leave()
	s.events.close()
	s.stream.Close()
	if s.globalStream != nil {
		s.globalStream.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.logger.Warn("requests were cut off", "err", err)
		server.Close()
	}
}

// Close frees what New took, once Run has returned.
func (s *Server) Close() error { return s.close() }

// SetToken replaces the token that the admin API asks for, and the one that is
// shown to the group's other servers.
func (s *Server) SetToken(token string) {
	s.token.Store(&token)
	s.handler.SetToken(token)
}

// SetSharedSecret replaces the secret under which what passes between groups is sealed.
func (s *Server) SetSharedSecret(secret string) { s.seals.reload(secret) }

// Group is the server's group, for whoever runs it: the tests and metrics.
func (s *Server) Group() *group.Group { return s.group }

// now is the wall clock as entries are stamped with it.
func (s *Server) now() fsm.Millis { return fsm.Millis(time.Now().UnixMilli()) }

// before sets what every answer of the admin API carries.
func (s *Server) before(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_shard/") {
		setRevision(w, s.group.State().Revision())
		if name, ok := s.ownName(); ok {
			w.Header().Set(proto.HeaderDirectory, name.String())
		}
	}
}

// done counts a request and notes it in the audit log: refused tokens, and what
// changes or would change something.
func (s *Server) done(served httpserve.Served) {
	s.meters.count(served)
	event := audit.Change
	switch {
	case served.Status == http.StatusUnauthorized:
		event, served.Origin = audit.RefusedToken, "" // whoever has no token may say anything
	case served.Method == http.MethodGet || served.Method == http.MethodHead || served.Method == http.MethodOptions:
		return
	}
	err := s.audit.Write(audit.Entry{At: served.At, Event: event, Method: served.Method, Path: served.Path,
		Status: served.Status, Peer: served.Peer, Origin: served.Origin, RequestID: served.RequestID})
	if err != nil {
		s.logger.Error("the audit log cannot be written", "err", err)
	}
}

// health answers while the process runs.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	httpserve.WriteJSON(w, http.StatusOK, proto.Health{Status: "ok"})
	return nil
}

// ready answers 200 when this server can do its work: it knows a leader and
// has applied what it must.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	if ok, reason := s.group.Ready(); !ok {
		return httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeNotReady, "not ready: %s", reason)
	}
	httpserve.WriteJSON(w, http.StatusOK, proto.Health{Status: "ready"})
	return nil
}
