package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"domicile/fsm"
	"domicile/proto"
)

// keep stops all servers of a group but recovers nothing yet, and gives the one
// that is kept.
func keep(t *testing.T) (c *cluster, kept *member, lost []*member) {
	t.Helper()
	c = newCluster3(t)
	c.propose("", putRegion("eu"))
	leader := c.leader()
	if err := leader.g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.propose("", putRegion("us"))
	kept = c.follower()
	rev := leader.g.State().Revision()
	if err := kept.g.WaitRevision(within(t), rev); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.members {
		m.kill()
		if m != kept {
			lost = append(lost, m)
		}
	}
	return c, kept, lost
}

func (m *member) recover(history uint64, lost ...*member) (RecoverReport, error) {
	c := RecoverConfig{DataDir: m.cfg.DataDir, History: history, Logger: logger()}
	for _, l := range lost {
		c.Lost = append(c.Lost, l.cfg.ID)
	}
	return Recover(c)
}

// endRecovery ends the recovery of a directory that has no tenants.
func (c *cluster) endRecovery(g *Group) {
	c.t.Helper()
	id := g.State().Recovery().ID
	end := &fsm.EndRecovery{Recovery: id}
	for r := range g.State().RegionsToRead() {
		end.Regions = append(end.Regions, r.Name)
	}
	for _, cmd := range []fsm.Command{&fsm.TakeOver{Recovery: id}, end} {
		if r := c.propose("", cmd); r.Refusal != nil {
			c.t.Fatal(r.Refusal)
		}
	}
}

func wantRecovering(t *testing.T, m *member, history uint64) {
	t.Helper()
	eventually(t, "the server that was kept leads", func() bool { return m.g.leads() && m.g.barrier.Load() == m.g.raft.CurrentTerm() })
	s := m.g.State()
	scope, _ := s.Scope()
	if ready, _ := m.g.Ready(); !s.Recovering() || scope.History != history || ready || s.Revision() < fsm.FirstRevision(history) {
		t.Fatalf("history %d at revision %d, recovering: %v, ready: %v", scope.History, s.Revision(), s.Recovering(), ready)
	}
	if !hasRegion(m.g, "eu") || !hasRegion(m.g, "us") {
		t.Error("what was committed is not there")
	}
	if voters := m.g.voters(); len(voters) != 1 {
		t.Errorf("its group has %d voters", len(voters))
	}
}

// TestO6OneServerOfThreeIsRecoveredAndTheOthersStayOut: those that were lost come
// back, and are a majority of the group that was. Without the history in the
// greeting they lead the recovered server, and give it their directory.
func TestO6OneServerOfThreeIsRecoveredAndTheOthersStayOut(t *testing.T) {
	c, kept, lost := keep(t)
	report, err := kept.recover(0)
	if err != nil || report.Recovered != 0 || len(report.Servers) != 3 || report.History != 1 || report.Index == 0 || report.Revision == 0 {
		t.Fatalf("what would be done: %+v, %v", report, err)
	}
	if report, err = kept.recover(0, lost...); err != nil || report.Recovered != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	kept.start()
	wantRecovering(t, kept, 2)
	term := kept.g.raft.CurrentTerm()
	for _, m := range lost {
		m.start()
	}
	old := c.leader(kept)
	if c.proposeAt(old, putRegion("late")).Refusal != nil || hasRegion(kept.g, "late") {
		t.Fatal("the others do not lead a group of their own")
	}
	for range 50 { // each is sent to whom they take for their third server, too
		c.proposeAt(old, putRegion("late"))
	}
	if !kept.g.leads() || kept.g.raft.CurrentTerm() != term || hasRegion(kept.g, "late") || hasRegion(old.g, "eu2") {
		t.Errorf("the recovered server leads: %v, in term %d of %d", kept.g.leads(), kept.g.raft.CurrentTerm(), term)
	}
	var refused *MembershipError
	if _, err := kept.g.AddServer(within(t), AddRequest{JoinRequest: JoinRequest{ID: "s9", Raft: "127.0.0.1:1"}}); !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), "being recovered") {
		t.Errorf("a server is added while the directory is being recovered: %v", err)
	}
	for _, m := range lost {
		m.kill()
	}
	c.endRecovery(kept.g)
	for _, id := range []string{"s4", "s5"} {
		c.newMember(id).start()
	}
	for _, m := range lost {
		if err := os.RemoveAll(m.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
	}
	lost[0].cfg.Bootstrap = false
	lost[0].start()
	c.awaitVoters(4)
	c.killAndRestart(kept)
	c.propose("", putRegion("after"))
	sameStates(t, c)
}

// proposeAt proposes at one server, which leads.
func (c *cluster) proposeAt(m *member, cmd fsm.Command) fsm.Result {
	c.t.Helper()
	result, _, err := m.g.Propose(within(c.t), Proposal{Cmd: cmd})
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

func TestO6RecoverRefusesWhatNobodyCanHaveMeant(t *testing.T) {
	c, kept, lost := keep(t)
	refuse := func(words string, history uint64, lost ...*member) {
		t.Helper()
		before := contents(t, kept.cfg.DataDir)
		r, err := kept.recover(history, lost...)
		var folder *FolderError
		if !errors.As(err, &folder) || !strings.Contains(err.Error(), words) || r.Recovered != 0 {
			t.Errorf("%+v, %v, want a refusal that says %q", r, err, words)
		}
		for name, text := range contents(t, kept.cfg.DataDir) {
			if filepath.Base(name) != raftFile && before[name] != text {
				t.Errorf("%s was changed", name)
			}
		}
	}
	refuse("not named as lost", 0, lost[0])
	refuse("no other server s9", 0, lost[0], lost[1], &member{cfg: Config{ID: "s9"}})
	refuse("no other server "+string(kept.cfg.ID), 0, lost[0], lost[1], kept)
	refuse("newer one is wanted", 1, lost...)
	kept.start()
	refuse("another process uses it", 0, lost...)
	kept.kill()
	if r, err := kept.recover(0, lost...); err != nil || r.Recovered != 2 {
		t.Fatal(r, err)
	}
	refuse("the only one of its group already", 0, kept)
	refuse("newer one is wanted", 2)
	if r, err := kept.recover(5); err != nil || r.Recovered != 5 {
		t.Fatal(r, err)
	}
	kept.start()
	wantRecovering(t, kept, 5)
	kept.kill()
	kept.cfg.DataDir = t.TempDir()
	refuse("nothing to recover", 0, lost...)
	_ = c
}

// TestO6ARecoveryThatIsCutOffIsDoneOrNot: the folder is of the former history or of
// the next, and starts either way.
func TestO6ARecoveryThatIsCutOffIsDoneOrNot(t *testing.T) {
	c, kept, lost := keep(t)
	scope := fsm.Scope{Cluster: c.members[0].clusterIDOnDisk(t), History: 2}
	rewriteFormat(t, kept, func(f *format) { f.Becoming = identity(scope) }) // before the snapshot
	kept.start()
	for _, m := range lost {
		m.start()
	}
	c.awaitVoters(3)
	for _, m := range c.members {
		m.kill()
	}
	was := scope.Cluster
	report, err := kept.recover(0, lost...)
	if err != nil {
		t.Fatal(err)
	}
	// Behind the snapshot: neither the old log was deleted nor the file replaced.
	rewriteFormat(t, kept, func(f *format) { f.Cluster, f.Becoming = was, identity(scope) })
	old, err := os.ReadFile(filepath.Join(report.Kept, raftFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(kept.cfg.DataDir, raftFile), old, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	kept.start()
	wantRecovering(t, kept, 2)
	c.endRecovery(kept.g)
	c.newMember("s4").start()
	c.awaitVoters(2)
	sameStates(t, c)
	if got := kept.clusterIDOnDisk(t); got != identity(scope) {
		t.Errorf("the folder is of group %s", got)
	}
}

func (m *member) clusterIDOnDisk(t *testing.T) string {
	f := &folder{dir: m.cfg.DataDir}
	if found, err := f.load(); !found || err != nil {
		t.Fatal(err)
	}
	return f.Cluster
}

func backupOf(t *testing.T, g *Group) *fsm.State {
	t.Helper()
	var b bytes.Buffer
	if err := proto.WriteSnapshot(&b, g.State()); err != nil {
		t.Fatal(err)
	}
	s, err := proto.ReadSnapshot(&b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestO6ABackupIsRestoredIntoANewGroup of one server, which others join later; the
// history can be raised while it is recovered.
func TestO6ABackupIsRestoredIntoANewGroup(t *testing.T) {
	c := startCluster(t, 1, nil)
	c.propose("", putRegion("eu"))
	c.propose("", putRegion("us"))
	first := c.members[0]
	backup := backupOf(t, first.g)
	was, _ := backup.Scope()
	var refused *MembershipError
	if err := first.g.Restore(within(t), backup, 0); !errors.As(err, &refused) || !strings.Contains(err.Error(), "holds something already") {
		t.Errorf("over a directory: %v", err)
	}
	c2 := startCluster2(t, c)
	m := c2.members[0]
	if err := m.g.Restore(within(t), backupOf(t, first.g), 1); !errors.As(err, &refused) {
		t.Errorf("into a history that was: %v", err)
	}
	mine, _ := m.g.State().Scope()
	for range 2 * maxBatch { // more than one exchange with a new server
		c2.propose("", &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1}})
	}
	if err := m.g.Restore(within(t), backup, 0); err != nil {
		t.Fatal(err)
	}
	wantRecovering(t, m, 2)
	if now, _ := m.g.State().Scope(); now.Cluster != was.Cluster || now.Cluster == mine.Cluster {
		t.Errorf("cluster %s, of the backup %s", now.Cluster, was.Cluster)
	}
	c2.propose("", putRegion("changed"))
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m.start()
	wantRecovering(t, m, 2)
	if err := m.g.RaiseHistory(within(t), 1, 7); err == nil {
		t.Error("raised for another recovery")
	}
	if err := m.g.RaiseHistory(within(t), m.g.State().Recovery().ID, 7); err != nil {
		t.Fatal(err)
	}
	wantRecovering(t, m, 7)
	if r := m.g.State().Recovery(); r.Raised != 1 || r.Cause != fsm.RecoverRestored {
		t.Errorf("%+v", r)
	}
	c2.endRecovery(m.g)
	// A new server is sent the snapshot, and nothing of before: that is of another group.
	c2.newMember("s2").start()
	c2.awaitVoters(2)
	if !hasRegion(c2.members[1].g, "changed") {
		t.Error("the new server lacks what was changed since")
	}
	sameStates(t, c2)
	if err := m.g.Restore(within(t), backup, 8); !errors.As(err, &refused) {
		t.Errorf("a second time: %v", err)
	}
}

// TestO6ABackupIsRestoredInAServersFirstMoments, while it writes what the directory must say
// of itself: that is cut off, with an unknown outcome, and written again.
func TestO6ABackupIsRestoredInAServersFirstMoments(t *testing.T) {
	c := startCluster(t, 1, nil)
	c.propose("", putRegion("eu"))
	c.propose("", putRegion("us"))
	for i := range 24 { // which of the two Raft's loop takes first is by chance
		m := c.newMember(fmt.Sprintf("new%d", i+1))
		m.cfg.Bootstrap, m.cfg.Timing.Stall = true, patience // its log is held for as long as it takes
		held, goOn := make(chan struct{}), make(chan struct{})
		m.hooks.logs = func(inner raft.LogStore) raft.LogStore {
			return &heldLog{LogStore: inner, left: 1 + i%2, held: held, goOn: goOn}
		}
		if err := m.open(); err != nil {
			t.Fatal(err)
		}
		works := make(chan struct{})
		m.g.OnLead("works", func(ctx context.Context, _ uint64) error { close(works); <-ctx.Done(); return nil })
		m.run()
		<-held
		restored := make(chan error, 1)
		go func() { restored <- m.g.Restore(within(t), backupOf(t, c.members[0].g), 0) }()
		eventually(t, "the restore waits for Raft's loop", func() bool {
			stacks := make([]byte, 1<<20)
			return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("raft.(*Raft).Restore("))
		})
		close(goOn)
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		wantRecovering(t, m, 2)
		select {
		case <-works:
		case err := <-m.ran:
			m.ran <- err // for stop
			t.Fatalf("try %d: it ended: %v", i, err)
		}
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// heldLog stores the last of its first left commands only once goOn is closed.
type heldLog struct {
	raft.LogStore
	left       int
	held, goOn chan struct{}
}

func (h *heldLog) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		if h.left--; h.left == 0 {
			close(h.held)
			<-h.goOn
		}
	}
	return h.LogStore.StoreLogs(logs)
}

// TestO6ABackupIsNotRestoredOverWhatALogStillHolds: a server that was just started has not applied
// it yet, and looks empty.
func TestO6ABackupIsNotRestoredOverWhatALogStillHolds(t *testing.T) {
	c := startCluster(t, 1, nil)
	m := c.members[0]
	for range 2 * maxBatch { // of one batch nothing is seen before all of it
		c.propose("", &fsm.SetSettings{Settings: fsm.Settings{Replicas: 1}})
	}
	c.propose("", putRegion("kept"))
	backup := backupOf(t, m.g)
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	held, goOn := make(chan struct{}), make(chan struct{})
	m.cfg.Timing.Stall = patience
	m.told = func(inner Feed) Feed { return &heldFeed{Feed: inner, held: held, goOn: goOn} }
	m.start()
	<-held
	if hasRegion(m.g, "kept") {
		t.Fatal("the whole log is applied")
	}
	restored := make(chan error, 1)
	eventually(t, "it leads", m.g.leads)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.g.Restore(over, backup, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("who waits no more is told %v", err)
	}
	go func() { restored <- m.g.Restore(within(t), backup, 0) }()
	eventually(t, "the restore waits", func() bool {
		stacks := make([]byte, 1<<20)
		for one := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(one, []byte("(*Group).Restore(")) && bytes.Contains(one, []byte("group.await(")) {
				return true
			}
		}
		return false
	})
	close(goOn)
	if err := <-restored; err == nil || !strings.Contains(err.Error(), "holds something already") {
		t.Errorf("restored with %v", err)
	}
	if !hasRegion(m.g, "kept") || m.g.State().Recovery() != nil {
		t.Error("what it held is not what it holds")
	}
}

// heldFeed holds up the first change that it is told of until goOn is closed.
type heldFeed struct {
	Feed
	once       sync.Once
	held, goOn chan struct{}
}

func (h *heldFeed) Publish(prev fsm.Revision, events []fsm.Event, s *fsm.State) {
	h.once.Do(func() { close(h.held); <-h.goOn })
	h.Feed.Publish(prev, events, s)
}

// startCluster2 starts another group in the same test.
func startCluster2(t *testing.T, c *cluster) *cluster {
	t.Helper()
	c2 := &cluster{t: t, links: c.links, timing: c.timing}
	t.Cleanup(func() {
		for _, m := range c2.members {
			if err := m.stop(); err != nil {
				t.Errorf("%s: run: %v", m.cfg.ID, err)
			}
		}
	})
	m := c2.newMember("s1")
	m.cfg.Bootstrap = true
	m.start()
	c2.awaitVoters(1)
	return c2
}
