package group

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"domicile/fsm"
)

func TestAddServerCatchesUpBeforeItVotes(t *testing.T) {
	c := startCluster(t, 1, nil)
	for i := range 100 {
		c.propose("", putRegion(fmt.Sprintf("r%d", i)))
	}
	m := c.newMember("s2")
	m.start()
	c.awaitVoters(2)
	if !hasRegion(m.g, "r99") {
		t.Error("it votes and lacks what was committed")
	}
	leader := c.leader()
	add := func(id, addr string, empty bool) error {
		_, err := leader.g.AddServer(within(t), AddRequest{JoinRequest: JoinRequest{ID: fsm.MemberID(id), Raft: addr, Empty: empty}})
		return err
	}
	if err := add("s2", m.addr, false); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for what, err := range map[string]error{
		"another id at its address":  add("s3", m.addr, false),
		"its id at another address":  add("s2", "127.0.0.1:1", false),
		"its id with an empty disk":  add("s2", m.addr, true),
		"a bad name":                 add("S 2", "127.0.0.1:1", false),
		"no address":                 add("s4", "", false),
		"a server of another region": wrongRegion(t, leader),
	} {
		var refused *MembershipError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(leader.g.servers()); n != 2 {
		t.Errorf("%d servers, want 2", n)
	}
}

func wrongRegion(t *testing.T, leader *member) error {
	_, err := leader.g.AddServer(within(t), AddRequest{CheckRegion: true, JoinRequest: JoinRequest{ID: "s5", Raft: "127.0.0.1:1", Region: "us"}})
	return err
}

func TestNonVoterFollowsAndDoesNotLead(t *testing.T) {
	c := startCluster(t, 1, nil)
	m := c.newMember("s2")
	l := c.leader()
	m.cfg.Join = nil
	if err := m.open(); err == nil {
		t.Fatal("an empty folder without --bootstrap or --join is taken")
	}
	m.cfg.Join = c.join
	m.start()
	c.awaitVoters(2)
	n := c.newMember("s3")
	// Added by an operator as a read copy before it starts.
	n.cfg.Join = c.joinAsReader
	n.start()
	eventually(t, "it follows", func() bool { return n.g.State().Revision() >= l.g.State().Revision() && n.g.HasDirectory() })
	var refused *MembershipError
	if err := c.leader().g.Transfer(within(t), "s3"); !errors.As(err, &refused) {
		t.Errorf("transfer to a non-voter: %v", err)
	}
	s, _ := c.leader().g.server("s3")
	if s.Voter {
		t.Error("it has a vote")
	}
}

func TestRemovedServerStopsAndRefusesToStart(t *testing.T) {
	c := newCluster3(t)
	leader, gone := c.leader(), c.follower()
	if err := leader.g.RemoveServer(within(t), RemoveRequest{ID: gone.cfg.ID}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone.ran:
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("run: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the removed server goes on")
	}
	gone.ran <- nil
	gone.stop()
	if err := gone.open(); !errors.Is(err, ErrRemoved) {
		t.Errorf("open: %v", err)
	}
	if n := len(leader.g.servers()); n != 2 {
		t.Errorf("%d servers left, want 2", n)
	}
	if _, ok := leader.g.State().Member(gone.cfg.ID); ok {
		t.Error("it is still recorded")
	}
	if err := leader.g.RemoveServer(within(t), RemoveRequest{ID: gone.cfg.ID}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	// With an empty folder the same id joins again, and reads of its former
	// removal in the log without following it.
	if err := os.RemoveAll(gone.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	gone.start()
	c.awaitVoters(3)
}

func TestRemoveServerKeepsAMajority(t *testing.T) {
	c := newCluster3(t)
	leader := c.leader()
	var others []*member
	for _, m := range c.members {
		if m != leader {
			others = append(others, m)
		}
	}
	others[0].stop()
	eventually(t, "the leader misses it", func() bool {
		s, _ := leader.g.server(others[0].cfg.ID)
		return !s.Healthy
	})
	var refused *MembershipError
	if err := leader.g.RemoveServer(within(t), RemoveRequest{ID: others[1].cfg.ID}); !errors.As(err, &refused) {
		t.Errorf("removing the only other that answers: %v", err)
	}
	if err := leader.g.RemoveServer(within(t), RemoveRequest{ID: others[0].cfg.ID}); err != nil {
		t.Errorf("removing the dead one: %v", err)
	}
	// It was down when it was removed; whoever starts it finds no group that
	// knows it, and cannot disturb this one.
	var not *NotLeaderError
	if err := leader.g.RemoveServer(within(t), RemoveRequest{ID: leader.cfg.ID}); !errors.As(err, &not) && !errors.Is(err, ErrNoLeader) {
		t.Errorf("removing the leader: %v, want a hand-over first", err)
	}
	c.leader(leader)
}

func TestLaggingFollowerCatchesUpFromASnapshot(t *testing.T) {
	c := startCluster(t, 3, func(m *member) {
		m.cfg.Timing.TrailingLogs = 10
		m.cfg.Timing.SnapshotEntries = 1 << 40 // by hand
	})
	lag := c.follower()
	c.cut(lag)
	for i := range 100 {
		c.propose("", putRegion(fmt.Sprintf("r%d", i)))
	}
	for _, m := range c.members {
		if m != lag {
			if err := m.g.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.heal(lag)
	eventually(t, "the follower has everything", func() bool { return hasRegion(lag.g, "r99") })
	if lag.feed.count() == 0 {
		t.Error("it came without a snapshot: the test tests nothing")
	}
	c.propose("", putRegion("later"))
	eventually(t, "it follows", func() bool { return hasRegion(lag.g, "later") })
	lag.feed.check(t, lag.g.State())
	sameStates(t, c)
	// From disk, too: snapshot and what follows it in the log.
	lag.stop()
	lag.start()
	eventually(t, "it is ready", func() bool { ok, _ := lag.g.Ready(); return ok })
	sameStates(t, c)
}

func TestRaftAddressOfALoneServerMayChange(t *testing.T) {
	c := startCluster(t, 1, nil)
	m := c.members[0]
	m.stop()
	m.addr = ""
	m.start()
	eventually(t, "it leads at its new address", func() bool {
		servers, _ := m.g.configuration()
		return len(servers) == 1 && servers[0].Address == raft.ServerAddress(m.addr) && m.g.recorded()
	})
}
