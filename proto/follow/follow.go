package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto"
)

// Place says which directory a copy shows, and how far.
type Place struct {
	Authority string
	History   uint64
	Revision  fsm.Revision
}

// Sink is the copy that is kept. Its methods are called by Run's goroutine.
type Sink interface {
	// Place gives what the copy shows; false where there is none yet.
	Place() (Place, bool)
	// Begin starts a whole directory, Load takes a part of it, and End puts it
	// in the place of the copy. One that was begun and not ended is dropped.
	Begin(Place)
	Load([]fsm.Event) error
	End() error
	// Apply takes the copy from revision prev, which it shows, to rev. On an
	// error the copy stays as it was.
	Apply(prev, rev fsm.Revision, events []fsm.Event) error
	// Fresh notes that a server was heard from: at that moment the copy was
	// as new as the server's.
	Fresh(time.Time)
}

// Config says whom to follow. Zero durations are the defaults in brackets.
type Config struct {
	Servers []string      // base URLs of the group's servers
	Token   func() string // bearer token at the time; nil or "": none
	Client  *http.Client  // without a timeout of its own
	Logger  hclog.Logger
	Silence time.Duration // after which a server is given up [5s]
	Backoff time.Duration // first pause after all servers failed; doubles, with jitter [50ms]
	Longest time.Duration // pause at most [2s]
}

// ErrOlder and ErrForeign are why a server's directory is not taken.
var (
	ErrOlder   = errors.New("the server's directory is older than the copy held")
	ErrForeign = errors.New("the server keeps another directory than the copy held; to follow it, remove the cached copy")
)

// Follower follows a directory into a Sink.
type Follower struct {
	cfg  Config
	sink Sink
	last string // what was logged last, so that a state is logged once
}

// New makes a Follower.
func New(cfg Config, sink Sink) *Follower {
	if cfg.Silence == 0 {
		cfg.Silence = 5 * time.Second
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 50 * time.Millisecond
	}
	if cfg.Longest == 0 {
		cfg.Longest = 2 * time.Second
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{}
	}
	return &Follower{cfg: cfg, sink: sink}
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	// Proxies spread over the servers, and come back at their own times.
	next := rand.IntN(max(1, len(f.cfg.Servers)))
	failures := 0
	for ctx.Err() == nil {
		server := f.cfg.Servers[next%len(f.cfg.Servers)]
		heard, err := f.follow(ctx, server)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		f.note(server, err)
		next++
		if failures++; failures%len(f.cfg.Servers) == 0 || heard {
			f.pause(ctx, failures/len(f.cfg.Servers))
		}
	}
}

// note logs why following a server ended, once per reason.
func (f *Follower) note(server string, err error) {
	if err == nil {
		return
	}
	if text := server + err.Error(); text != f.last {
		f.last = text
		f.cfg.Logger.Warn("directory stream ended", "server", server, "err", err)
	}
}

func (f *Follower) pause(ctx context.Context, round int) {
	d := min(f.cfg.Longest, f.cfg.Backoff<<min(round, 10))
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// follow follows one server until something fails; heard tells whether its
// directory was taken.
func (f *Follower) follow(ctx context.Context, server string) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(f.cfg.Silence, func() { cancel(fmt.Errorf("nothing heard for %v", f.cfg.Silence)) })
	defer silence.Stop()
	resp, err := f.subscribe(ctx, server)
	if err != nil {
		return false, cause(ctx, err)
	}
	defer resp.Body.Close()
	frames, err := proto.NewFrameReader(&awake{resp.Body, silence, f.cfg.Silence})
	if err != nil {
		return false, err
	}
	defer frames.Close()
	s := session{Follower: f}
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return s.heard, cause(ctx, err)
		}
		if err := s.take(frame); err != nil {
			return s.heard, err
		}
		if s.heard && f.last != server {
			f.last = server
			place, _ := f.sink.Place()
			f.cfg.Logger.Info("following the directory", "server", server, "revision", place.Revision)
		}
	}
}

// awake puts the silence off with each byte that arrives.
type awake struct {
	r       io.Reader
	silence *time.Timer
	d       time.Duration
}

func (a *awake) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.silence.Reset(a.d)
	}
	return n, err
}

func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

func (f *Follower) subscribe(ctx context.Context, server string) (*http.Response, error) {
	q := url.Values{}
	if p, ok := f.sink.Place(); ok {
		q.Set("since", strconv.FormatUint(uint64(p.Revision), 10))
		q.Set("authority", p.Authority)
		q.Set("history", strconv.FormatUint(p.History, 10))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+"/_shard/subscribe?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if f.cfg.Token != nil {
		if t := f.cfg.Token(); t != "" {
			req.Header.Set("Authorization", "Bearer "+t)
		}
	}
	resp, err := f.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return resp, nil
}

// session is what one stream has said so far.
type session struct {
	*Follower
	hello *proto.Hello
	heard bool
}

func (s *session) take(frame proto.Frame) error {
	if hello, ok := frame.(*proto.Hello); ok {
		return s.greet(hello)
	}
	if s.hello == nil {
		return fmt.Errorf("%w: the stream does not begin with hello", proto.ErrFrame)
	}
	switch x := frame.(type) {
	case *proto.Begin:
		return s.begin(x)
	case *proto.Chunk:
		return s.sink.Load(x.Events)
	case *proto.End:
		if err := s.sink.End(); err != nil {
			return err
		}
		s.fresh()
	case *proto.Delta:
		if err := s.sink.Apply(x.Prev, x.Revision, x.Events); err != nil {
			return err
		}
		s.fresh()
	case *proto.Heartbeat:
		if p, ok := s.sink.Place(); ok && p.Revision == x.Revision {
			s.fresh()
		}
	}
	return nil
}

func (s *session) fresh() {
	s.heard = true
	s.sink.Fresh(time.Now())
}

// greet compares whose directory this is with the copy held (R4).
func (s *session) greet(hello *proto.Hello) error {
	if p, ok := s.sink.Place(); ok {
		if p.Authority != hello.Authority {
			return fmt.Errorf("%w: %s instead of %s", ErrForeign, hello.Authority, p.Authority)
		}
		if hello.History < p.History {
			return fmt.Errorf("%w: history %d before %d", ErrOlder, hello.History, p.History)
		}
	}
	s.hello = hello
	return nil
}

func (s *session) begin(b *proto.Begin) error {
	if p, ok := s.sink.Place(); ok && p.History == s.hello.History && b.Revision < p.Revision {
		return fmt.Errorf("%w: revision %d before %d", ErrOlder, b.Revision, p.Revision)
	}

	s.sink.Begin(Place{Authority: s.hello.Authority, History: s.hello.History, Revision: b.Revision})
	return nil
}
