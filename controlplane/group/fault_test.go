package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"domicile/internal/netfault"
)

// A follower that was cut off comes back without unseating the leader (pre-vote).
func TestRejoinAfterAPartitionDoesNotGrowTheTerm(t *testing.T) {
	c := newCluster3(t)
	leader, cut := c.leader(), c.follower()
	term := leader.g.Leader().Term
	c.cut(cut)
	eventually(t, "the follower misses its leader", func() bool { return !cut.g.Leader().Known })
	if ready, reason := cut.g.Ready(); ready || reason == "" {
		t.Errorf("without a leader it says that it is ready")
	}
	for i := range 10 {
		c.propose("", putRegion(fmt.Sprintf("r%d", i)))
	}
	eventually(t, "it has stood for election", func() bool { return cut.g.raft.State() == raft.Candidate })
	c.heal(cut)
	eventually(t, "it follows again", func() bool { return hasRegion(cut.g, "r9") })
	if l := cut.g.Leader(); l.Term != term || l.ID != leader.cfg.ID {
		t.Errorf("leader %s in term %d, before the partition %s in %d", l.ID, l.Term, leader.cfg.ID, term)
	}
}

// A leader that is cut off proves nothing and commits nothing, and the others
// go on; healed, it follows.
func TestACutLeaderAnswersNothing(t *testing.T) {
	c := newCluster3(t)
	old := c.leader()
	c.cut(old)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, _, err := old.g.Propose(ctx, Proposal{Cmd: putRegion("lost")}); !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) {
		t.Errorf("propose at a cut leader: %v", err)
	}
	if err := old.g.ReadIndex(ctx); err == nil {
		t.Error("a cut leader says that its reads are current")
	}
	next := c.leader(old)
	if next.g.Leader().Term <= old.g.Leader().Term && old.g.leads() {
		t.Errorf("two leaders in one term")
	}
	c.propose("", putRegion("kept"))
	c.heal(old)
	eventually(t, "the old leader follows", func() bool { return hasRegion(old.g, "kept") })
	if hasRegion(old.g, "lost") && !hasRegion(next.g, "lost") {
		t.Error("the old leader kept what was never committed")
	}
	sameStates(t, c)
}

// Answers that were under way, and non-voters, prove no leadership.
func TestConfirmCountsVotersThatAnsweredLater(t *testing.T) {
	c := newCluster3(t)
	leader := c.leader()
	if _, err := leader.g.Confirm(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.members {
		if m != leader {
			c.link(string(leader.cfg.ID), m.addr).CutOne(netfault.Backward)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := leader.g.Confirm(ctx); err == nil {
		t.Error("confirmed although no answer came after it was asked")
	}
	p := &peers{}
	sent := time.Now()
	p.answered("v", sent, 3, &raft.AppendEntriesResponse{Term: 3, Success: true})
	for _, test := range []struct {
		term  uint64
		since time.Time
		want  int
	}{{3, sent.Add(-1), 1}, {3, sent, 0}, {4, sent.Add(-1), 0}} {
		if n, _ := p.confirmed([]raft.ServerID{"v"}, test.term, test.since); n != test.want {
			t.Errorf("term %d, since %v before: %d, want %d", test.term, sent.Sub(test.since), n, test.want)
		}
	}
	if n, _ := p.confirmed([]raft.ServerID{"other"}, 3, sent.Add(-1)); n != 0 {
		t.Error("a server that is no voter counts")
	}
}

// Leadership is handed over to a server that answers only, and a hand-over that
// is cut leaves a group that takes changes (fault F5).
func TestTransferWhilePartitioned(t *testing.T) {
	c := newCluster3(t)
	leader := c.leader()
	var others []*member
	for _, m := range c.members {
		if m != leader {
			others = append(others, m)
		}
	}
	c.cut(others[0])
	eventually(t, "the leader misses a server", func() bool {
		s, _ := leader.g.server(others[0].cfg.ID)
		return !s.Healthy
	})
	var refused *MembershipError
	if err := leader.g.Transfer(within(t), others[0].cfg.ID); !errors.As(err, &refused) {
		t.Errorf("transfer to a server that is cut off: %v", err)
	}
	if err := leader.g.Transfer(within(t), ""); err != nil {
		t.Errorf("transfer: %v", err)
	}
	next := c.leader(leader)
	if next != others[1] {
		t.Errorf("%s leads, want the one that answers", next.cfg.ID)
	}
	// Cut the new leader while it hands over, under load.
	c.heal(others[0])
	stop := make(chan struct{})
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					c.proposeAs("", putRegion(fmt.Sprintf("t%d", (w+i)%30)))
				}
			}
		})
	}
	for range 3 {
		l := c.leader()
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		go func() { done <- l.g.Transfer(ctx, "") }()
		c.cut(l)
		<-done
		cancel()
		c.heal(l)
	}
	close(stop)
	load.Wait()
	c.propose("after", putRegion("after"))
	eventually(t, "all have it", func() bool {
		for _, m := range c.members {
			if !hasRegion(m.g, "after") {
				return false
			}
		}
		return true
	})
	sameStates(t, c)
}

// faulty starts three servers whose logs can fail.
func faulty(t *testing.T) (*cluster, map[*member]*faultyLog) {
	disks := make(map[*member]*faultyLog)
	c := startCluster(t, 3, func(m *member) {
		m.cfg.Timing.Stall = 2 * time.Second
		m.hooks.logs = func(inner raft.LogStore) raft.LogStore {
			f := &faultyLog{LogStore: inner}
			disks[m] = f
			return f
		}
	})
	return c, disks
}

// A full disk of the leader costs no acknowledged change, says what is wrong,
// and is over when there is space again (fault F7).
func TestFullDiskOfTheLeader(t *testing.T) {
	c, disks := faulty(t)
	leader := c.leader()
	disks[leader].set(syscall.ENOSPC, nil)
	_, _, err := leader.g.Propose(within(t), Proposal{Cmd: putRegion("a")})
	var storage *StorageError
	if !errors.As(err, &storage) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("propose on a full disk: %v", err)
	}
	c.propose("", putRegion("b")) // the others go on
	disks[leader].set(nil, nil)
	eventually(t, "it catches up once there is space", func() bool { return hasRegion(leader.g, "b") })
}

// A hung disk of the leader: heartbeats would go on for ever (fault F8).
func TestHungDiskOfTheLeader(t *testing.T) {
	c, disks := faulty(t)
	leader := c.leader()
	hang := make(chan struct{})
	disks[leader].set(nil, hang)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := leader.g.Propose(ctx, Proposal{Cmd: putRegion("a")}); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("propose on a hung disk: %v", err)
	}
	if err := <-leader.ran; !errors.Is(err, ErrStalled) {
		t.Errorf("run: %v, want a server that gives up", err)
	}
	leader.ran <- nil
	c.propose("", putRegion("b")) // the others go on
	close(hang)
	disks[leader].set(nil, nil)
	leader.stop()
	leader.start()
	eventually(t, "restarted, it follows", func() bool { return hasRegion(leader.g, "b") })
}

// A hand-over that never ends is seen by its refusals.
func TestRefusalsThatDoNotEnd(t *testing.T) {
	var r refusals
	now := time.Now()
	r.note(2, now)
	if r.lasted(2) != 0 {
		t.Error("one refusal lasted")
	}
	r.note(2, now.Add(time.Second))
	if r.lasted(2) != time.Second || r.lasted(3) != 0 {
		t.Errorf("lasted %v, %v", r.lasted(2), r.lasted(3))
	}
	r.clear()
	r.note(2, now.Add(2*time.Second))
	if r.lasted(2) != 0 {
		t.Error("what was in between is forgotten")
	}
}

// Whoever finds the port, and servers of another group, get nothing.
func TestStrangersAreRefusedAtTheRaftPort(t *testing.T) {
	c := startCluster(t, 1, nil)
	m := c.members[0]
	c.propose("", putRegion("eu"))
	term := m.g.Leader().Term
	for _, greeting := range []string{
		"GET / HTTP/1.1\r\n\r\n", "domicile-raft 1 another s9\n", "domicile-raft 2 - s9\n",
		strings.Repeat("x", 300), "\x00\x01\x02\x03\n",
	} {
		k, err := net.Dial("tcp", m.addr)
		if err != nil {
			t.Fatal(err)
		}
		k.Write([]byte(greeting))
		k.SetReadDeadline(time.Now().Add(patience))
		if n, err := k.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%.20q: an answer, %v", greeting, err)
		}
		k.Close()
	}
	if l := m.g.Leader(); l.Term != term || !l.Self {
		t.Errorf("leader %+v", l)
	}
}

// A server that is sent snapshots again and again is reported.
func TestSnapshotLoopIsSeen(t *testing.T) {
	p := &peers{}
	now := time.Now()
	for i := range snapshotLoop {
		p.snapshotSent("s2", uint64(100+i), now.Add(time.Duration(i)*time.Minute))
		p.answered("s2", now, 1, &raft.AppendEntriesResponse{LastLog: 50})
	}
	if _, looping := p.look("s2"); !looping {
		t.Error("not seen")
	}
	p.answered("s2", now, 1, &raft.AppendEntriesResponse{LastLog: 200})
	if _, looping := p.look("s2"); looping {
		t.Error("its log went on, and it is still reported")
	}
}
