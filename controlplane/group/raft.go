package group

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"domicile/fsm"
)

const (
	// maxBatch is the most entries in one exchange and one ApplyBatch.
	maxBatch = 64
	// keepSnapshots is how many snapshots stay on disk.
	keepSnapshots = 2
)

// disk is what a server keeps on its disk, opened.
type disk struct {
	folder    *folder
	bolt      *raftboltdb.BoltStore
	logs      *logStore
	cache     *raft.LogCache
	votes     *voteStore
	snapshots *raft.FileSnapshotStore
}

// openDisk opens and checks the data folder, and loads the newest snapshot
// into m.
func openDisk(f *folder, m *machine, logger hclog.Logger) (*disk, error) {
	if !f.Started && f.Cluster == "" {
		// A crash may have left a half-made log: nothing was promised yet.
		if err := f.save(f.format); err != nil {
			return nil, err
		}
	}
	bolt, err := openBolt(f)
	if err != nil {
		return nil, err
	}
	d := &disk{
		folder: f, bolt: bolt,
		votes: &voteStore{StableStore: bolt},
		logs:  &logStore{LogStore: bolt, fsync: m.meters.tookAppend},
	}
	if err := d.load(m, logger); err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	return d, nil
}

func (d *disk) load(m *machine, logger hclog.Logger) error {
	var err error
	if err = d.folder.sweepSnapshots(); err != nil {
		return d.folder.refuse("leavings of snapshots cannot be removed: %v", err)
	}
	if d.cache, err = raft.NewLogCache(logCache, d.logs); err != nil {
		return err
	}
	if d.snapshots, err = raft.NewFileSnapshotStoreWithLogger(d.folder.dir, keepSnapshots, quiet(logger, "snapshot")); err != nil {
		return d.folder.refuse("snapshots cannot be kept: %v", err)
	}
	index, err := d.restore(m)
	if err != nil {
		return err
	}
	if err := checkContiguous(d.folder, d.logs, index); err != nil {
		return err
	}
	if err := d.dropBehindHole(index); err != nil {
		return err
	}
	if !d.folder.Started {
		next := d.folder.format
		next.Started = true
		return d.folder.save(next)
	}
	return nil
}

// restore loads the newest snapshot, if there is one. The library would go to
// an older one in silence where the newest is damaged.
func (d *disk) restore(m *machine) (uint64, error) {
	const lost = "empty the folder, remove the server from its group, and let it join again"
	found, err := d.snapshots.List()
	if err != nil {
		return 0, d.folder.refuse("its snapshots cannot be read: %v", err)
	}
	on, err := os.ReadDir(d.folder.path(snapshotsDir))
	if err != nil {
		return 0, d.folder.refuse("its snapshots cannot be read: %v", err)
	}
	for _, e := range on {
		if e.IsDir() && newerThan(e.Name(), found) {
			return 0, d.folder.refuse("its snapshot %s is damaged; %s", e.Name(), lost)
		}
	}
	if len(found) == 0 {
		return 0, nil
	}
	meta, source, err := d.snapshots.Open(found[0].ID)
	if err != nil {
		return 0, d.folder.refuse("its newest snapshot %s is damaged (%v); %s", found[0].ID, err, lost)
	}
	defer source.Close()
	if err := m.Restore(source); err != nil {
		return 0, d.folder.refuse("its newest snapshot %s cannot be used: %v; %s", meta.ID, err, lost)
	}
	return meta.Index, nil
}

// newerThan reports whether a directory is a finished snapshot, newer than all
// that the library could read: then it could not read that one.
func newerThan(name string, found []*raft.SnapshotMeta) bool {
	if strings.HasSuffix(name, ".tmp") {
		return false
	}
	if len(found) == 0 {
		return true
	}
	var term, index, at uint64
	if n, err := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &at); n != 3 || err != nil {
		return true
	}
	return term > found[0].Term || term == found[0].Term && index > found[0].Index
}

// close ends the use of the folder.
func (d *disk) close() error { return d.bolt.Close() }

// stop makes every further write fail, so that nothing that Raft does while it
// shuts down is promised to anyone.
func (d *disk) stop() {
	d.logs.closing.Store(true)
	d.votes.closing.Store(true)
}

// begun reports whether the folder holds part of a group's log.
func (d *disk) begun() (bool, error) {
	last, err := d.logs.LastIndex()
	if err != nil {
		return false, d.folder.refuse("its log cannot be read: %v", err)
	}
	snaps, err := d.snapshots.List()
	if err != nil {
		return false, d.folder.refuse("its snapshots cannot be read: %v", err)
	}
	return last > 0 || len(snaps) > 0, nil
}

// found makes this server the first of a new group. A crash at any point of it
// leaves a folder on which it is done again.
func (d *disk) found(conf *raft.Config, trans raft.Transport, self raft.Server) error {
	next := d.folder.format
	next.Founder = true
	if next.Cluster == "" {
		next.Cluster = newCluster()
	}
	if err := d.folder.save(next); err != nil {
		return err
	}
	// The library writes the first term before the first entry, and refuses a
	// store that has a term. Nobody has voted yet: no group knows this server.
	if term, err := d.bolt.GetUint64(keyCurrentTerm); err == nil && term > 0 {
		if err := d.bolt.SetUint64(keyCurrentTerm, 0); err != nil {
			return err
		}
	}
	return raft.BootstrapCluster(conf, d.cache, d.votes, d.snapshots, trans, raft.Configuration{Servers: []raft.Server{self}})
}

// raftConfig gives the library's configuration. A fresh one is made for each
// call: the library writes into it.
func raftConfig(id fsm.MemberID, t Timing, notify chan<- bool, logger hclog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.HeartbeatTimeout = t.Heartbeat
	c.ElectionTimeout = t.Election
	c.LeaderLeaseTimeout = t.LeaderLease
	c.CommitTimeout = t.Commit
	c.SnapshotInterval = t.SnapshotEvery
	c.SnapshotThreshold = t.SnapshotEntries
	c.TrailingLogs = t.TrailingLogs
	c.MaxAppendEntries = maxBatch
	c.ShutdownOnRemove = false
	c.NotifyCh = notify
	c.Logger = quiet(logger, "raft")
	c.NoSnapshotRestoreOnStart = true // openDisk has done it, and checked more
	c.NoLegacyTelemetry = true
	return c
}

func newNetTransport(s *streams, t Timing, logger hclog.Logger) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  streamLayer{s},
		MaxPool: 3,
		// No pipelining. With it, when the library's reader of a pipeline
		// ends on a refusal or a stop while its writer waits for room, the
		// writer waits for ever: the follower gets nothing more, and a
		// shutdown hangs. Batches of up to maxBatch entries make up for it.
		MaxRPCsInFlight:         1,
		Timeout:                 t.RPC,
		Logger:                  quiet(logger, "raft"),
		MsgpackUseNewTimeFormat: true, // as in raft.db; never change one
	})
}

// visible gives the greatest index up to i whose entry the machine is told of;
// after is known to be applied.
func visible(logs raft.LogStore, after, i uint64) (uint64, error) {
	for ; i > after; i-- {
		var l raft.Log
		if err := logs.GetLog(i, &l); errors.Is(err, raft.ErrLogNotFound) {
			return after, nil // it went into a snapshot: applied
		} else if err != nil {
			return 0, &StorageError{Err: err}
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return i, nil
		}
	}
	return after, nil
}

func (t Timing) withDefaults() (Timing, error) {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.Heartbeat, 350*time.Millisecond)
	set(&t.Election, t.Heartbeat)
	set(&t.LeaderLease, t.Heartbeat)
	set(&t.Commit, 5*time.Millisecond)
	set(&t.SnapshotEvery, 30*time.Second)
	set(&t.Stall, 5*time.Second)
	set(&t.RPC, 5*time.Second)
	if t.SnapshotEntries == 0 {
		t.SnapshotEntries = 20_000
	}
	if t.TrailingLogs == 0 {
		t.TrailingLogs = 50_000
	}
	if t.LeaderLease > t.Heartbeat || t.Election < t.Heartbeat {
		return t, fmt.Errorf("timing: the leader's lease (%v) must not exceed the heartbeat (%v), nor the heartbeat the election (%v)", t.LeaderLease, t.Heartbeat, t.Election)
	}
	return t, nil
}
