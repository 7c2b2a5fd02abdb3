package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"domicile/fsm"
)

// closeWait bounds how long Close waits for a Raft whose disk hangs.
const closeWait = 10 * time.Second

// Group is one server of a group. Its methods may be called from any
// goroutine once Open has returned, until Close.
type Group struct {
	cfg     Config
	logger  hclog.Logger
	disk    *disk
	machine *machine
	streams *streams
	trans   *transport
	peers   *peers
	raft    *raft.Raft
	term    *termCell
	pending *proposals
	duties  []duty

	members sync.Mutex    // one change of membership at a time
	barrier atomic.Uint64 // newest term of which a barrier has passed here
	ready   atomic.Bool   // has applied what its group had when it started
	target  atomic.Uint64 // commit index that it must apply for that; 0: not known
	refused refusals      // hand-over that does not end
	wedged  chan struct{} // closed when the watchdog gives the server up
	ended   chan struct{} // closed by Close
	running atomic.Bool
	close   func() error
}

// testing hooks that tests of this package set before Open.
type hooks struct {
	logs func(raft.LogStore) raft.LogStore
}

// Open opens the data folder and starts Raft on it. Run must follow, and Close
// in any case. It fails with a FolderError where the folder is damaged or not
// this server's, and changes nothing that is kept in it then.
func Open(cfg Config) (*Group, error) { return open(cfg, hooks{}) }

func open(cfg Config, h hooks) (*Group, error) {
	g, err := prepare(cfg)
	if err != nil {
		return nil, errors.Join(err, closeListener(cfg))
	}
	if err := g.start(h); err != nil {
		return nil, errors.Join(err, closeListener(cfg))
	}
	g.close = sync.OnceValue(g.shutdown)
	return g, nil
}

func closeListener(cfg Config) error {
	if cfg.Listener == nil {
		return nil
	}
	cfg.Listener.Close()
	return nil
}

func prepare(cfg Config) (*Group, error) {
	var err error
	if cfg.Timing, err = cfg.Timing.withDefaults(); err != nil {
		return nil, err
	}
	switch {
	case !fsm.ValidName(string(cfg.ID)):
		return nil, fmt.Errorf("%q cannot name a server: names are [a-z0-9_-], 1 to 64 characters", cfg.ID)
	case cfg.Region != "" && !fsm.ValidName(string(cfg.Region)):
		return nil, fmt.Errorf("%q cannot name a region: names are [a-z0-9_-], 1 to 64 characters", cfg.Region)
	case cfg.Region == "global":
		return nil, errors.New(`no region is called "global": that is the group of all regions; leave the region out`)
	case cfg.DataDir == "" || cfg.Listener == nil || cfg.Logger == nil:
		return nil, errors.New("a group needs a data folder, a listener and a logger")
	}
	if cfg.Advertise == "" {
		cfg.Advertise = cfg.Listener.Addr().String()
	}
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	if cfg.Version == 0 {
		cfg.Version = fsm.Version
	}
	return &Group{
		cfg: cfg, logger: cfg.Logger, peers: &peers{},
		term: newTermCell(), pending: newProposals(),
		wedged: make(chan struct{}), ended: make(chan struct{}),
	}, nil
}

func (g *Group) start(h hooks) error {
	f, err := openFolder(g.cfg.DataDir, g.cfg.ID, g.cfg.Region)
	if err != nil {
		return err
	}
	g.machine = newMachine(&g.cfg, f)
	g.machine.joined.Store(f.Joined)
	g.machine.founder.Store(f.Founder)
	g.machine.expect(f.Cluster)
	if f.Becoming != "" {
		g.machine.becoming.Store(&f.Becoming)
	}
	if g.disk, err = openDisk(f, g.machine, g.logger); err != nil {
		return err
	}
	if h.logs != nil {
		g.disk.logs.LogStore = h.logs(g.disk.logs.LogStore)
	}
	if err := g.disk.settleIdentity(g.clusterID()); err != nil {
		return errors.Join(err, g.disk.close())
	}
	if err := g.startRaft(); err != nil {
		return errors.Join(err, g.disk.close())
	}
	return nil
}

func (g *Group) startRaft() error {
	begun, err := g.disk.begun()
	if err != nil {
		return err
	}
	if !begun && !g.cfg.Bootstrap && g.cfg.Join == nil && !g.disk.folder.Founder {
		return g.disk.folder.refuse("it is empty; start the first server of a new group with --bootstrap, any other with --join and the address of a server of the group")
	}
	g.streams = &streams{
		Listener: g.cfg.Listener, dial: g.cfg.Dial, id: g.cfg.ID,
		addr: advertised(g.cfg.Advertise), cluster: g.clusterID,
	}
	net := newNetTransport(g.streams, g.cfg.Timing, g.logger)
	if g.trans, err = newTransport(net, g.peers); err != nil {
		return errors.Join(err, net.Close())
	}
	self := raft.Server{ID: raft.ServerID(g.cfg.ID), Address: raft.ServerAddress(g.cfg.Advertise)}
	config := func() *raft.Config {
		return raftConfig(g.cfg.ID, g.cfg.Timing, g.term.notify, g.logger)
	}
	// A founder whose folder holds nothing yet was stopped half-way through.
	if !begun && (g.cfg.Bootstrap && g.disk.folder.Joined == 0 || g.disk.folder.Founder) {
		if err := g.disk.found(config(), g.trans, self); err != nil {
			return errors.Join(err, g.trans.Close())
		}
		g.machine.founder.Store(true)
		g.machine.expect(g.disk.folder.Cluster)
	}
	g.raft, err = raft.NewRaft(config(), g.machine, g.disk.cache, g.disk.votes, g.disk.snapshots, g.trans)
	if err != nil {
		return errors.Join(err, g.trans.Close())
	}
	go g.term.watch()
	return nil
}

func (g *Group) clusterID() string {
	if c := g.machine.cluster.Load(); c != nil {
		return *c
	}
	return ""
}

// Run does this server's part in the group until ctx ends, then hands
// leadership over if it leads. It returns nil when ctx ended, and otherwise why
// the process must not go on: ErrRemoved, ErrStalled, a folder or directory
// that is another group's, an entry that this version does not understand, a
// duty that failed with nobody to take over. It is called once.
func (g *Group) Run(ctx context.Context) error {
	if g.running.Swap(true) {
		return errors.New("Run is called once")
	}
	work, ctx2 := errgroup.WithContext(ctx)
	work.Go(func() error { return g.lead(ctx2) })
	work.Go(func() error { return g.watch(ctx2) })
	work.Go(func() error { return g.register(ctx2) })
	work.Go(func() error { return g.keepFormat(ctx2) })
	work.Go(func() error {
		select {
		case <-ctx2.Done():
			return nil
		case <-g.machine.failed:
			return g.machine.failure
		}
	})
	err := work.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		g.leave()
		return nil
	}
	return err
}

// leave hands leadership over before a clean stop, so that the group need not
// notice by itself that it is gone.
func (g *Group) leave() {
	if !g.leads() || len(g.voters()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*g.cfg.Timing.Election)
	defer cancel()
	if err := g.Transfer(ctx, ""); err != nil && g.leads() {
		g.logger.Warn("leadership was not handed over", "err", err)
	}
}

// Close stops this server's Raft and closes the folder. It returns an error
// where Raft hangs on its disk: its goroutines then live on until the process
// ends.
func (g *Group) Close() error { return g.close() }

func (g *Group) shutdown() error {
	close(g.ended)
	g.disk.stop()
	stopped := g.raft.Shutdown()
	g.streams.cut()
	done := make(chan error, 1)
	go func() { done <- stopped.Error() }()
	select {
	case err := <-done:
		g.term.stop()
		return errors.Join(err, g.disk.close())
	case <-time.After(closeWait):
		return errors.New("this server's Raft does not stop: its disk hangs")
	}
}

// keepFormat notes in the folder what becomes known while running: the group's
// id, and that this server was removed from it.
func (g *Group) keepFormat(ctx context.Context) error {
	scoped := g.machine.scoped
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-scoped:
			scoped = nil
			if err := g.note(func(f *format) { f.Cluster = g.clusterID() }); err != nil {
				return err
			}
		case <-g.machine.removed:
			if err := g.note(func(f *format) { f.Removed = true }); err != nil {
				return err
			}
			g.logger.Warn("this server was removed from its group")
			return ErrRemoved
		}
	}
}

// note changes the folder's format file.
func (g *Group) note(change func(*format)) error {
	g.disk.folder.mu.Lock()
	defer g.disk.folder.mu.Unlock()
	next := g.disk.folder.format
	change(&next)
	return g.disk.folder.save(next)
}

// State is the newest applied state: immutable, one pointer. It may lag behind
// what the group has committed; see ReadIndex and WaitRevision.
func (g *Group) State() *fsm.State { return g.machine.published.Load() }

// WaitRevision returns once this server has applied rev, or with ctx's error.
func (g *Group) WaitRevision(ctx context.Context, rev fsm.Revision) error {
	return g.machine.wait(ctx, func() bool { return g.State().Revision() >= rev })
}

// leads reports whether this server believes that it leads. It proves nothing.
func (g *Group) leads() bool { return g.raft.State() == raft.Leader }

// Leader says who leads, as far as this server knows.
func (g *Group) Leader() Leader {
	l := Leader{Term: g.raft.CurrentTerm()}
	if _, id := g.raft.LeaderWithID(); id != "" {
		l.ID, l.Known = fsm.MemberID(id), true
		l.Self = l.ID == g.cfg.ID
		if m, ok := g.State().Member(l.ID); ok {
			l.API = m.API
		}
	}
	return l
}

// Ready reports whether this server can do its work: it knows a leader, has
// passed a barrier of its own term where it leads, and has applied all that the
// group had committed when it started. The reason says what is missing.
func (g *Group) Ready() (bool, string) {
	if g.machine.dead() {
		return false, "the log cannot be applied: " + g.machine.failure.Error()
	}
	leader := g.Leader()
	switch {
	case !leader.Known:
		return false, "no leader is known"
	case leader.Self && g.barrier.Load() != leader.Term:
		return false, "this server has just become leader"
	case !g.caughtUp():
		return false, "this server has not caught up with its group yet"
	case g.State().Recovering():
		return false, "the directory is being recovered (GET /_shard/recovery)"
	}
	return true, ""
}

// HasDirectory reports whether State may be shown to others: it contains all
// that the group had committed when this server started. Unlike Ready it stays
// true while there is no leader.
func (g *Group) HasDirectory() bool { return !g.machine.dead() && g.caughtUp() }

// caughtUp is true for good once everything is applied that a leader told, or
// that this server as leader found, to be committed first.
func (g *Group) caughtUp() bool {
	if g.ready.Load() {
		return true
	}
	if _, ok := g.State().Scope(); !ok {
		return false
	}
	if g.leads() && g.barrier.Load() == g.raft.CurrentTerm() {
		g.ready.Store(true)
		return true
	}
	if g.target.Load() == 0 {
		g.target.CompareAndSwap(0, g.trans.leaderCommit.Load())
	}
	target := g.target.Load()
	if target == 0 || g.raft.AppliedIndex() < target {
		return false
	}
	index, err := visible(g.disk.cache, g.machine.applied.Load(), target)
	if err != nil || g.machine.applied.Load() < index {
		return false
	}
	g.ready.Store(true)
	return true
}

// Age is how old State may be, as far as this server knows: the time since its
// leader's last word, 0 where it believes that it leads itself. A server that has
// heard no leader since it started gives the time since 1970.
func (g *Group) Age() time.Duration {
	if g.leads() {
		return 0
	}
	if last := g.raft.LastContact(); !last.IsZero() {
		return time.Since(last)
	}
	return time.Since(time.Unix(0, 0))
}
