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
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto"
)

// Position is what a holder of a directory has.
type Position struct {
	Authority string // "" holds nothing
	History   uint64
	Revision  fsm.Revision
}

// Sink holds a copy of the directory. Its methods are called from one
// goroutine. An error of theirs ends the stream, and what was begun is dropped.
type Sink interface {
	// Begin starts a whole directory. The copy that is held stays in use until
	// Commit.
	Begin(at Position) (Loader, error)
	// Apply takes the copy from revision prev, where it stands, to at.
	Apply(prev fsm.Revision, at Position, events []fsm.Event) error
}

// Loader takes a whole directory in parts.
type Loader interface {
	Add(events []fsm.Event) error
	// Commit puts it in the place of the copy that was held. It is called only
	// once everything came, with the right checksum.
	Commit() error
	// Abort drops it. It is not called after Commit.
	Abort()
}

// Config configures a Client. Zero values are the defaults in brackets.
type Config struct {
	// URLs are servers of the group: http(s)://host:port. At least one.
	URLs []string
	// Token gives the group's token, asked before each connection. Nil: none.
	Token func() string
	HTTP  *http.Client // [http.DefaultTransport's, without a timeout]
	// Directory names the directory that is asked for, of those that a server has:
	// proto.GlobalScope is the global one, of which a region's servers keep a copy (G2), and
	// nothing else is taken for it; "" is the server's own.
	Directory string
	// From is what Sink holds already.
	From   Position
	Sink   Sink
	Logger hclog.Logger

	// Accept is asked at each greeting whether the directory that the server names, with
	// Revision 0, may be followed; its error ends the stream. Nil: any may that is not
	// another one than the sink's, or of an older history. It may wait.
	Accept func(Position) error

	// Silence is the time without a frame after which a server is left for
	// another [5s]; servers send one a second. Where there is another, so is one
	// that says that it has not heard its leader for as long: with what it has.
	Silence time.Duration
	// Connect bounds the time until a server answers [3s].
	Connect time.Duration
	// PauseLeast and PauseMost bound the pause between attempts, which doubles
	// and is spread at random [50ms, 2s].
	PauseLeast, PauseMost time.Duration
}

// Client follows one group's directory.
type Client struct {
	cfg  Config
	next int // index of the server to ask

	mu     sync.Mutex
	at     Position
	heard  time.Time // see Heard
	server string    // "" while there is no stream
	ended  error     // why the last stream ended
}

// New checks cfg and returns a Client that has not heard anything yet.
func New(cfg Config) (*Client, error) {
	if len(cfg.URLs) == 0 || cfg.Sink == nil || cfg.Logger == nil {
		return nil, errors.New("follow: servers, a sink and a logger are required")
	}
	for _, u := range cfg.URLs {
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return nil, fmt.Errorf("follow: %q is no address of a control server: http(s)://host:port", u)
		}
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{}
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&cfg.Silence, 5*time.Second)
	set(&cfg.Connect, 3*time.Second)
	set(&cfg.PauseLeast, 50*time.Millisecond)
	set(&cfg.PauseMost, 2*time.Second)
	// Many followers start with one list: they spread over its servers.
	return &Client{cfg: cfg, at: cfg.From, next: rand.IntN(len(cfg.URLs))}, nil
}

// Position is what the sink holds.
func (c *Client) Position() Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Heard is when the copy was last known to be the newest, by the leader's word: when
// the last frame came, less the age that its server told of its own copy. Zero before
// the first.
func (c *Client) Heard() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

// Server is the address of the server whose stream is read, "" for none.
func (c *Client) Server() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// Trouble says why the last stream ended, or could not begin; nil while one is read.
func (c *Client) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != "" {
		return nil
	}
	return c.ended
}

// Run follows until ctx ends, and returns ctx's error then. It is called once.
func (c *Client) Run(ctx context.Context) error {
	pause := c.cfg.PauseLeast
	told := newTroubles(time.Now())
	for {
		server := c.cfg.URLs[c.next]
		c.next = (c.next + 1) % len(c.cfg.URLs)
		before := c.Position()
		heard := c.Heard()
		err := c.stream(ctx, server)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.mu.Lock()
		c.ended = err
		c.mu.Unlock()
		if level := told.level(server, err, time.Now(), c.Heard().IsZero()); level != hclog.NoLevel {
			c.cfg.Logger.Log(level, "the stream of the directory ended", "server", server, "revision", c.Position().Revision, "err", err)
		}
		if c.Position() != before || c.Heard() != heard && !errors.Is(err, errAlone) {
			pause = c.cfg.PauseLeast // it did work
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return ctx.Err()
		}
		pause = min(2*pause, c.cfg.PauseMost)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var (
	// errSilence ends a stream on which nothing has come for too long.
	errSilence = errors.New("the server sends nothing")
	// errAlone ends the stream of a server that is out of touch with its group.
	errAlone = errors.New("the server does not hear the leader of its group")
)

// stream reads one server's stream until it ends; the error says why.
func (c *Client) stream(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := newAlarm(c.cfg.Connect, func() { cancel(errSilence) })
	defer alarm.stop()
	resp, err := c.ask(ctx, server)
	if err != nil {
		return because(ctx, err)
	}
	defer resp.Body.Close()
	alarm.set(c.cfg.Silence)
	frames, err := proto.NewFrameReader(resp.Body)
	if err != nil {
		return err
	}
	defer frames.Close()
	defer c.setServer("")
	r := &reading{client: c, server: server, at: c.Position()}
	defer r.drop()
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended it")
			}
			return because(ctx, err)
		}
		alarm.set(c.cfg.Silence)
		if err := r.take(f); err != nil {
			return err
		}
	}
}

// because prefers the reason for which we ended a stream ourselves.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (c *Client) ask(ctx context.Context, server string) (*http.Response, error) {
	at := c.Position()
	q := url.Values{}
	if c.cfg.Directory != "" {
		q.Set(proto.DirectoryParam, c.cfg.Directory)
	}
	if at.Authority != "" {
		q.Set("since", strconv.FormatUint(uint64(at.Revision), 10))
		q.Set("authority", at.Authority)
		q.Set("history", strconv.FormatUint(at.History, 10))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+"/_shard/subscribe?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if c.cfg.Token != nil {
		if t := c.cfg.Token(); t != "" {
			req.Header.Set("Authorization", "Bearer "+t)
		}
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusUnauthorized:
			return nil, errToken
		case http.StatusServiceUnavailable:
			return nil, errUnavailable
		}
		return nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	return resp, nil
}

func (c *Client) setServer(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = s
}

// hears notes that a frame came from a server whose copy is of that age, and what
// the sink holds now.
func (c *Client) hears(at Position, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
	if asOf := time.Now().Add(-age); asOf.After(c.heard) {
		c.heard = asOf
	}
}

// alarm calls ring unless it is set again in time.
type alarm struct{ t *time.Timer }

func newAlarm(d time.Duration, ring func()) *alarm { return &alarm{time.AfterFunc(d, ring)} }
func (a *alarm) set(d time.Duration)               { a.t.Reset(d) }
func (a *alarm) stop()                             { a.t.Stop() }
