package global

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"domicile/fsm"
	"domicile/proto"
	"domicile/proto/follow"
)

const (
	// saveEvery is the least time between two writes of the cache, and saveShare how
	// many times longer than a write the pause after it is: a copy that changes all the
	// time costs a bounded part of a disk.
	saveEvery = time.Second
	saveShare = 20
)

// Config of a Copy. All but HTTP and Feed are needed.
type Config struct {
	URLs   []string      // servers of the global group, or its proxies
	Token  func() string // shown to them
	HTTP   *http.Client
	Path   string // of the cache file
	Logger hclog.Logger

	// Started returns once this server has its own directory, which says which global
	// group it belongs to.
	Started func(ctx context.Context) error
	// Bound gives that group and the newest history of it that was met; false until it is
	// recorded.
	Bound func() (proto.DirectoryName, bool)
	// Bind has it recorded: where this server leads it is done, elsewhere waited for. It
	// returns an error where it is not recorded within some seconds.
	Bind func(ctx context.Context, to proto.DirectoryName) error
	// Feed is told of each change, from one goroutine. Nil: nobody.
	Feed Feed
}

// Feed is told of the copy's changes.
type Feed interface {
	// Publish says that the events led from the directory at revision prev to d.
	Publish(prev fsm.Revision, events []fsm.Event, d *Directory)
	// Reset says that d came whole.
	Reset(d *Directory)
}

// Copy is a region's copy of the global directory. Its methods may be called
// concurrently.
type Copy struct {
	cfg     Config
	current atomic.Pointer[Directory]
	client  atomic.Pointer[follow.Client] // nil before the own directory is known

	// of the goroutine that reads the stream
	builder *builder
	ctx     context.Context // of Run

	mu       sync.Mutex
	cachedAt time.Time // when what the cache held was the newest
	problem  string    // why a server's directory was refused, until one is accepted
	changed  chan struct{}
}

// New returns a Copy that holds nothing; Run fills it.
func New(cfg Config) *Copy {
	return &Copy{cfg: cfg, builder: newBuilder(), changed: make(chan struct{})}
}

// Directory is the newest that this server has, nil while it has none.
func (c *Copy) Directory() *Directory { return c.current.Load() }

// Age is how long ago the copy was known to be the newest, by its leader's word; since
// 1970 where it never was.
func (c *Copy) Age() time.Duration {
	c.mu.Lock()
	at := c.cachedAt
	c.mu.Unlock()
	if client := c.client.Load(); client != nil {
		if heard := client.Heard(); heard.After(at) {
			at = heard
		}
	}
	if at.IsZero() {
		at = time.Unix(0, 0)
	}
	return max(0, time.Since(at))
}

// Problem says what is wrong with the copy or its servers, "" for nothing.
func (c *Copy) Problem() string {
	c.mu.Lock()
	problem := c.problem
	c.mu.Unlock()
	if problem != "" {
		return problem
	}
	if client := c.client.Load(); client != nil && client.Trouble() != nil {
		return client.Trouble().Error()
	}
	return ""
}

// Wait returns once the copy holds rev of an authority's directory, or with ctx's error.
// It returns at once for another authority than the copy's.
func (c *Copy) Wait(ctx context.Context, authority string, rev fsm.Revision) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if d := c.Directory(); d != nil && (d.at.Authority != authority || d.at.Revision >= rev) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Run keeps the copy until ctx ends, and returns nil then.
func (c *Copy) Run(ctx context.Context) error {
	if err := c.cfg.Started(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	c.ctx = ctx
	c.loadCache()
	cfg := follow.Config{URLs: c.cfg.URLs, Token: c.cfg.Token, HTTP: c.cfg.HTTP, Sink: sink{c}, Accept: c.accept, Logger: c.cfg.Logger}
	d := c.Directory()
	if d != nil {
		cfg.From = d.at
	}
	client, err := follow.New(cfg)
	if err != nil {
		return err
	}
	c.client.Store(client)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return client.Run(ctx) })
	work.Go(func() error { return c.keepCache(ctx, d) })
	return ignoreEnd(ctx, work.Wait())
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// loadCache takes what an earlier run has kept, if it is this region's. Of an older history
// than was met it is gone by, as a server that runs goes by what it has, until the recovered
// directory is shown (R4, I9).
func (c *Copy) loadCache() {
	bound, ok := c.cfg.Bound()
	d, asOf, err := load(c.cfg.Path, c.builder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.cfg.Logger.Warn("the cached copy of the global directory is ignored", "file", c.cfg.Path, "err", err)
	case !ok || d.at.Authority != bound.Authority:
		c.cfg.Logger.Warn("the cached copy of the global directory is ignored: it is another group's",
			"file", c.cfg.Path, "authority", d.at.Authority, "history", d.at.History, "belongs_to", bound.String())
	default:
		c.mu.Lock()
		c.cachedAt = asOf
		c.mu.Unlock()
		c.publish(d, func(f Feed) { f.Reset(d) })
		return
	}
	c.builder = newBuilder() // what was read of it is not used
}

// accept decides whether a server's directory is the one that this region belongs to.
func (c *Copy) accept(at follow.Position) error {
	err := c.belongs(proto.DirectoryName{Authority: at.Authority, History: at.History})
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.problem
	c.problem = ""
	if err == nil {
		return nil
	}
	if c.problem = err.Error(); c.problem != before {
		c.cfg.Logger.Error("a global directory is refused", "authority", at.Authority, "history", at.History, "err", err)
	}
	return err
}

func (c *Copy) belongs(to proto.DirectoryName) error {
	bound, ok := c.cfg.Bound()
	switch {
	case !strings.HasSuffix(to.Authority, "/"+proto.GlobalScope):
		return fmt.Errorf("the server has the directory of %s, which is no global one: --global names servers of the global group", to.Authority)
	case ok && bound.Authority != to.Authority:
		return fmt.Errorf("the server has the directory of %s, and this region belongs to %s", to.Authority, bound.Authority)
	case ok && bound.History > to.History:
		return fmt.Errorf("the server's directory is of history %d, and this region has met history %d", to.History, bound.History)
	case ok && bound.History == to.History:
		return nil
	}
	return c.cfg.Bind(c.ctx, to)
}

// publish makes d the copy.
func (c *Copy) publish(d *Directory, tell func(Feed)) {
	c.current.Store(d)
	c.mu.Lock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if c.cfg.Feed != nil {
		tell(c.cfg.Feed)
	}
}

// keepCache writes the copy to disk when it has changed, and once more at the end.
func (c *Copy) keepCache(ctx context.Context, saved *Directory) error {
	write := func() time.Duration {
		d := c.Directory()
		if d == saved {
			return 0
		}
		began := time.Now()
		if err := save(c.cfg.Path, d, began.Add(-c.Age())); err != nil {
			c.cfg.Logger.Warn("the copy of the global directory was not written to the cache", "file", c.cfg.Path, "err", err)
		} else {
			saved = d
		}
		return max(saveEvery, saveShare*time.Since(began))
	}
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		pause := time.NewTimer(write())
		select {
		case <-ctx.Done():
			pause.Stop()
			write()
			return ctx.Err()
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			write()
			return ctx.Err()
		case <-changed:
		}
	}
}

// sink takes the stream's directory; see follow.Sink.
type sink struct{ *Copy }

func (s sink) Begin(at follow.Position) (follow.Loader, error) {
	return &loader{copy: s.Copy, at: at, builder: newBuilder()}, nil
}

func (s sink) Apply(prev fsm.Revision, at follow.Position, events []fsm.Event) error {
	if d := s.Directory(); d == nil || d.at.Revision != prev || at.Revision <= prev {
		return fmt.Errorf("change from revision %d to %d: %w", prev, at.Revision, fsm.ErrGap)
	}
	if err := s.builder.apply(events); err != nil {
		return err
	}
	d := s.builder.seal(at)
	s.publish(d, func(f Feed) { f.Publish(prev, events, d) })
	return nil
}

// loader builds a whole directory that nobody sees before Commit.
type loader struct {
	copy    *Copy
	at      follow.Position
	builder *builder
}

func (l *loader) Add(events []fsm.Event) error { return l.builder.apply(events) }

func (l *loader) Commit() error {
	d := l.builder.seal(l.at)
	l.copy.builder = l.builder
	l.copy.publish(d, func(f Feed) { f.Reset(d) })
	return nil
}

func (l *loader) Abort() {}
