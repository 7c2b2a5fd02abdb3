package replica

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/node/store"
)

// Replicator is a node's side of all replication: the source of the units that
// it writes, and the follower of those that it has copies of.
type Replicator struct {
	cfg    Config
	log    hclog.Logger
	store  *store.Store
	pool   *pool
	memory memory
	lost   *losses
	ctx    context.Context // of everything; ends with Run
	cancel context.CancelFunc
	wait   sync.WaitGroup // links, images that come in

	patience atomic.Int64
	images   atomic.Uint64 // installed

	mu        sync.Mutex
	as        string
	tokens    map[string]string // by source, as Follow brought them, now or before the start
	ended     bool
	feeds     map[string]*feed
	following map[string]*following
	links     map[string]*link    // by the source's address
	sessions  map[string]*session // by the follower's
}

// New makes a Replicator: give its Sink to the store, then call Bind, Resume
// and Run.
func New(cfg Config) *Replicator {
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	tokens := maps.Clone(cfg.Tokens)
	if tokens == nil {
		tokens = map[string]string{}
	}
	return &Replicator{cfg: cfg, log: cfg.Logger, pool: newPool(), memory: memory{limit: cfg.MemoryBytes}, ctx: ctx, cancel: cancel,
		as: cfg.As, tokens: tokens, lost: &losses{m: map[string]Lost{}},
		feeds: map[string]*feed{}, following: map[string]*following{}, links: map[string]*link{}, sessions: map[string]*session{}}
}

func (c *Config) setDefaults() {
	def := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	def(&c.RingBytes, 32<<20)
	def(&c.MemoryBytes, 256<<20)
	def(&c.Appliers, 16)
	def(&c.Images, 4)
	if c.Dial == nil {
		c.Dial = dial
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
}

// Bind gives the store, and its data folder, in which the record of lost
// commits is kept. It is called once, before anything else but Sink.
func (r *Replicator) Bind(s *store.Store, dir string) error {
	l, err := openLosses(filepath.Join(dir, "lost.json"))
	if err != nil {
		return err
	}
	r.store, r.lost = s, l
	return nil
}

// Run works until ctx ends, and returns when every goroutine has ended; what
// ServeUpgrade serves ends too.
func (r *Replicator) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.cancel)()
	r.wait.Go(func() { r.pool.run(r.ctx, r.cfg.Appliers) })
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			r.tend(now)
			r.mend()
		case <-r.ctx.Done():
			r.mu.Lock()
			r.ended = true
			all := r.following
			r.following = map[string]*following{}
			r.mu.Unlock()
			for _, f := range all {
				f.end()
			}
			r.wait.Wait()
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}

// Images is the number of images installed since the node's start.
func (r *Replicator) Images() uint64 { return r.images.Load() }

// Sink is for store.Config.Sink.
func (r *Replicator) Sink(u *store.Unit) store.Sink {
	return &sink{f: r.feed(u.Name()), u: u}
}
