package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"domicile/fsm"
	"domicile/proto"
)

// identity names a group towards its servers: the cluster id and, in all histories
// but the first, the history. Servers of another history are another group: they
// are refused when they connect, so that those that a recovery left behind neither
// vote, nor append, nor send their directory, should they come back.
func identity(s fsm.Scope) string {
	if s.History <= 1 {
		return s.Cluster
	}
	return s.Cluster + "." + strconv.FormatUint(s.History, 10)
}

// clusterOf gives the cluster id of an identity.
func clusterOf(identity string) string {
	cluster, _, _ := strings.Cut(identity, ".")
	return cluster
}

// settleIdentity ends the time in which the directory may be of either identity,
// once it was loaded: a recovery was cut off before or after it was on disk. One
// without a state to tell is still of the former.
func (d *disk) settleIdentity(is string) error {
	if d.folder.Becoming == "" || is != d.folder.Becoming {
		return nil
	}
	next := d.folder.format
	next.Cluster, next.Becoming = is, ""
	return d.folder.save(next)
}

// dropBehindHole deletes the entries before a snapshot at index where the log does
// not reach it: they are of before a recovery or a restore, which jump ahead, and a
// new server must be sent the snapshot, never them.
func (d *disk) dropBehindHole(index uint64) error {
	first, err := d.logs.FirstIndex()
	if err != nil || index == 0 || first == 0 || first > index {
		return err
	}
	var l raft.Log
	err = d.logs.GetLog(index, &l)
	if !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return d.cache.DeleteRange(first, index)
}

// RecoverConfig says which folder is recovered.
type RecoverConfig struct {
	// DataDir is the folder of the server that was kept. Its process is stopped.
	DataDir string
	// Lost names the servers of its group that are lost for good: all others. With
	// none named nothing is done, and the report says what would be.
	Lost []fsm.MemberID
	// History is the new one; 0 is the next. One that is given may also raise that
	// of a server that is alone already.
	History uint64
	Logger  hclog.Logger
	now     time.Time // set by tests
}

// RecoverReport tells what a folder holds, and what was done.
type RecoverReport struct {
	ID       fsm.MemberID
	Region   fsm.RegionName
	Cluster  string
	Term     uint64 // of the newest entry: of several survivors the one with the greatest
	Index    uint64 // term, and of those the greatest index, knows the most
	Revision fsm.Revision
	Tenants  int
	Nodes    int
	Servers  []fsm.MemberID // of its group as it was, itself included
	History  uint64         // of the directory, before
	// Recovered is the new history, 0 where nothing was done; Kept is the folder
	// with what there was before.
	Recovered uint64
	Kept      string
}

// Recover makes the server whose folder is given the only one of its group, on an
// operator's word that the others are lost for good (requirement O6). All that is
// in its log counts as committed. The folder is changed in one step, by a snapshot
// of a new history that is being recovered (fsm.State.Recover); what it held
// before is kept beside it. It fails, and changes nothing, where the folder is in
// use, damaged, removed from its group, or where not every other server is named.
func Recover(c RecoverConfig) (RecoverReport, error) {
	r, err := openRecovered(&c)
	if err != nil {
		return RecoverReport{}, err
	}
	defer r.disk.close()
	if err := r.check(); err != nil || len(c.Lost) == 0 && c.History == 0 {
		return r.report, err
	}
	return r.report, r.do()
}

// recovered is a folder that is being recovered.
type recovered struct {
	config  *RecoverConfig
	disk    *disk
	machine *machine
	report  RecoverReport
	servers []raft.Server
	self    raft.Server
}

func openRecovered(c *RecoverConfig) (*recovered, error) {
	f := &folder{dir: c.DataDir}
	found, err := f.load()
	switch {
	case err != nil:
		return nil, err
	case !found || !f.Started:
		return nil, f.refuse("it holds no server's log: there is nothing to recover")
	}
	if err := f.check(f.ID, f.Region); err != nil {
		return nil, err
	}
	r := &recovered{config: c, machine: newMachine(&Config{ID: f.ID, Region: f.Region, Logger: c.Logger}, f)}
	r.machine.joined.Store(f.Joined)
	r.machine.founder.Store(f.Founder)
	r.machine.expect(f.Cluster)
	if f.Becoming != "" {
		r.machine.becoming.Store(&f.Becoming)
	}
	if r.disk, err = openDisk(f, r.machine, c.Logger); err != nil {
		return nil, err
	}
	if err := r.look(); err != nil {
		return nil, errors.Join(err, r.disk.close())
	}
	return r, nil
}

// look finds out whom the group consists of, and what the log holds.
func (r *recovered) look() error {
	f := r.disk.folder
	_, trans := raft.NewInmemTransport("")
	conf := raftConfig(f.ID, Timing{}.or(), nil, r.config.Logger)
	was, err := raft.GetConfiguration(conf, r.machine, r.disk.cache, r.disk.votes, r.disk.snapshots, trans)
	if err != nil {
		return f.refuse("its group's servers cannot be read: %v", err)
	}
	r.servers = was.Servers
	if err := r.replay(); err != nil {
		return err
	}
	scope, ok := r.machine.state.Scope()
	if !ok {
		return f.refuse("it holds no directory: this server had joined its group, and received nothing of it")
	}
	select {
	case <-r.machine.removed:
		return f.refuse("its log says that this server was removed from its group; recover another server of it")
	default:
	}
	rep := &r.report
	rep.ID, rep.Region, rep.Cluster, rep.History = f.ID, f.Region, scope.Cluster, scope.History
	rep.Revision, rep.Tenants = r.machine.state.Revision(), r.machine.state.CountTenants()
	for range r.machine.state.Nodes() {
		rep.Nodes++
	}
	for _, s := range r.servers {
		rep.Servers = append(rep.Servers, fsm.MemberID(s.ID))
		if s.ID == raft.ServerID(f.ID) {
			r.self = s
		}
	}
	if r.self.ID == "" {
		m, ok := r.machine.state.Member(f.ID)
		if !ok {
			return f.refuse("its group does not know server %s", f.ID)
		}
		r.self = raft.Server{ID: raft.ServerID(f.ID), Address: raft.ServerAddress(m.Raft)}
	}
	r.self.Suffrage = raft.Voter
	return nil
}

// replay applies what the log holds beyond the snapshot, as the recovery will.
func (r *recovered) replay() error {
	f := r.disk.folder
	fail := func(err error) error { return f.refuse("its log cannot be read: %v", err) }
	if found, err := r.disk.snapshots.List(); err != nil {
		return fail(err)
	} else if len(found) > 0 {
		r.report.Index, r.report.Term = found[0].Index, found[0].Term
	}
	last, err := r.disk.logs.LastIndex()
	if err != nil {
		return fail(err)
	}
	for i := r.report.Index + 1; i <= last; i++ {
		var l raft.Log
		if err := r.disk.logs.GetLog(i, &l); err != nil {
			return fail(err)
		}
		r.report.Index, r.report.Term = l.Index, l.Term
		if l.Type != raft.LogCommand {
			continue
		}
		r.machine.Apply(&l)
		if r.machine.dead() {
			return f.refuse("its log cannot be applied: %v", r.machine.failure)
		}
	}
	return nil
}

// check refuses what an operator cannot have meant.
func (r *recovered) check() error {
	f, c := r.disk.folder, r.config
	if len(c.Lost) == 0 && c.History == 0 {
		return nil
	}
	if len(r.report.Servers) == 1 && r.report.Servers[0] == f.ID && c.History == 0 {
		return f.refuse("its server is the only one of its group already: start it; to raise its history, which is %d, name the new one", r.report.History)
	}
	lost := make(map[fsm.MemberID]bool)
	for _, id := range c.Lost {
		lost[id] = true
	}
	for _, id := range r.report.Servers {
		if id == f.ID {
			continue
		}
		if !lost[id] {
			return f.refuse("server %s belongs to its group as well and is not named as lost; where it still runs, or its folder is there, the group may not need to be recovered", id)
		}
		delete(lost, id)
	}
	for id := range lost {
		return f.refuse("its group has no other server %s; it consists of %v", id, r.report.Servers)
	}
	return nil
}

func (r *recovered) do() error {
	f, c := r.disk.folder, r.config
	history := max(c.History, r.report.History+1)
	if c.History != 0 && c.History <= r.report.History {
		return f.refuse("its directory is of history %d already; a newer one is wanted", r.report.History)
	}
	self, ok := r.machine.state.Member(f.ID)
	if !ok {
		self = &fsm.Member{ID: f.ID, Raft: string(r.self.Address)}
	}
	member := *self
	member.Version = fsm.Version
	now := c.now
	if now.IsZero() {
		now = time.Now()
	}
	var err error
	if r.report.Kept, err = f.keepBefore(fmt.Sprintf("before-history-%d", history)); err != nil {
		return err
	}
	scope, _ := r.machine.state.Scope()
	scope.History = history
	becoming, was := identity(scope), f.format
	next := was
	next.Becoming = becoming
	if err := f.save(next); err != nil {
		return err
	}
	r.machine.becoming.Store(&becoming)
	machine := &recoveringMachine{machine: newMachine(&Config{ID: f.ID, Region: f.Region, Logger: c.Logger}, f), begin: func(s *fsm.State) error {
		return s.Recover(fsm.RecoverMajority, history, member, fsm.Millis(now.UnixMilli()))
	}}
	machine.expect(f.Cluster)
	machine.becoming.Store(&becoming)
	_, trans := raft.NewInmemTransport(r.self.Address)
	err = raft.RecoverCluster(raftConfig(f.ID, Timing{}.or(), nil, c.Logger), machine, r.disk.cache, r.disk.votes,
		&aheadSnapshots{r.disk.snapshots, uint64(fsm.FirstRevision(history))}, trans,
		raft.Configuration{Servers: []raft.Server{r.self}})
	if err != nil {
		return f.refuse("it was not recovered: %v; what it held is in %s", err, r.report.Kept)
	}
	r.report.Recovered = history
	next.Cluster, next.Becoming = becoming, ""
	return f.save(next)
}

// recoveringMachine begins the recovery of what it has applied when it is asked for
// a snapshot of it.
type recoveringMachine struct {
	*machine
	begin func(*fsm.State) error
}

// Snapshot is asked for once, at the end of raft.RecoverCluster.
func (m *recoveringMachine) Snapshot() (raft.FSMSnapshot, error) {
	if m.dead() {
		return nil, m.failure
	}
	if err := m.begin(m.state); err != nil {
		return nil, err
	}
	m.published.Store(m.state.Snapshot())
	return m.machine.Snapshot()
}

// aheadSnapshots makes snapshots at an index that is ahead of the log.
type aheadSnapshots struct {
	raft.SnapshotStore
	index uint64
}

func (s *aheadSnapshots) Create(version raft.SnapshotVersion, _, term uint64, configuration raft.Configuration, at uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	return s.SnapshotStore.Create(version, s.index, term, configuration, at, trans)
}

// Restore makes a backup the directory of this group, on its leader (requirement
// O6): of a group that was just begun, of this one server, whose directory holds
// nothing. It is recovered then, in a history that is newer than the backup's, and
// at least history. The group takes over the backup's cluster id.
func (g *Group) Restore(ctx context.Context, backup *fsm.State, history uint64) error {
	if err := g.mustLead(); err != nil {
		return err
	}
	// What it holds is seen once its log is applied: a moment after a start it looks empty.
	if err := g.passBarrier(ctx, g.raft.CurrentTerm()); ctx.Err() != nil {
		return ErrBusy
	} else if err != nil {
		return err
	}
	scope, ok := backup.Scope()
	switch mine := g.State(); {
	case !ok:
		return &MembershipError{Text: "the backup holds no directory"}
	case scope.Region != g.cfg.Region:
		return &MembershipError{Text: fmt.Sprintf("the backup is of the directory of %s, and this group keeps that of %s", nameRegion(scope.Region), nameRegion(g.cfg.Region))}
	case mine.Recovery() != nil, mine.CountRecords() > countMembers(mine):
		return &MembershipError{Text: "this group's directory holds something already; a backup is restored into a new group: start a server on an empty folder with --bootstrap, restore there, and let others join then"}
	case history != 0 && history <= scope.History:
		return &MembershipError{Text: fmt.Sprintf("the backup is of history %d; a newer one is wanted", scope.History)}
	}
	backup.ForgetRecovery()
	return g.reseed(ctx, backup, fsm.RecoverRestored, max(history, scope.History+1))
}

func countMembers(s *fsm.State) int {
	n := 0
	for range s.Members() {
		n++
	}
	return n
}

// RaiseHistory raises the history of a directory that is being recovered, because a
// node has heard of a newer one than it has.
func (g *Group) RaiseHistory(ctx context.Context, recovery fsm.Revision, history uint64) error {
	state := g.State()
	if r := state.Recovery(); !r.Running() || r.ID != recovery {
		return &MembershipError{Text: "the recovery in which that was decided does not run any more"}
	}
	own, err := copyOf(state)
	if err != nil {
		return err
	}
	return g.reseed(ctx, own, state.Recovery().Cause, history)
}

// copyOf gives a state that can be changed.
func copyOf(s *fsm.State) (*fsm.State, error) {
	var b bytes.Buffer
	if err := proto.WriteSnapshot(&b, s); err != nil {
		return nil, err
	}
	return proto.ReadSnapshot(&b)
}

// reseed puts a directory whose recovery begins in the place of this group's, which
// must consist of this server alone.
func (g *Group) reseed(ctx context.Context, s *fsm.State, cause fsm.RecoveryCause, history uint64) error {
	if err := g.mustLead(); err != nil {
		return err
	}
	g.members.Lock()
	defer g.members.Unlock()
	if servers, _ := g.configuration(); len(servers) != 1 {
		return &MembershipError{Text: "this group has more than one server; a directory is put in the place of another in a group of one server alone"}
	}
	if err := s.Recover(cause, history, g.self(), fsm.Millis(time.Now().UnixMilli())); err != nil {
		return &MembershipError{Text: err.Error()}
	}
	var snapshot bytes.Buffer
	if err := proto.WriteSnapshot(&snapshot, s); err != nil {
		return err
	}
	scope, _ := s.Scope()
	becoming := identity(scope)
	if err := g.note(func(f *format) { f.Becoming = becoming }); err != nil {
		return err
	}
	g.machine.becoming.Store(&becoming)
	// The library puts it one behind the index that it is given.
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: uint64(s.Revision()) - 1, Size: int64(snapshot.Len())}
	err := await(ctx, g.ended, func() error { return g.raft.Restore(meta, &snapshot, g.enqueueWait(ctx)) })
	if g.State().Revision() < s.Revision() {
		if err == nil {
			err = errors.New("the directory was not put in place")
		}
		return g.explain(err)
	}
	if err := g.note(func(f *format) { f.Cluster, f.Becoming = becoming, "" }); err != nil {
		return err
	}
	g.logger.Warn("the directory is being recovered", "history", history, "cause", cause.String(), "revision", s.Revision())
	return g.disk.dropBehindHole(uint64(s.Revision()))
}

// or gives the timing with its defaults, for where Raft does not run.
func (t Timing) or() Timing {
	t, _ = t.withDefaults()
	return t
}
