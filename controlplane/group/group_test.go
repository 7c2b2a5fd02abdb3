package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestThreeServersFormAGroup(t *testing.T) {
	c := newCluster3(t)
	leader := c.leader()
	result, rev, err := leader.g.Propose(within(t), Proposal{Cmd: putRegion("eu")})
	if err != nil || result.Refusal != nil {
		t.Fatalf("propose: %v, %v", result.Refusal, err)
	}
	for _, m := range c.members {
		if err := m.g.WaitRevision(within(t), rev); err != nil {
			t.Fatal(err)
		}
		if !hasRegion(m.g, "eu") {
			t.Errorf("%s: revision %d without what it changed", m.cfg.ID, rev)
		}
		scope, ok := m.g.State().Scope()
		if !ok || scope.Cluster == "" || scope.History != 1 {
			t.Errorf("%s: scope %+v", m.cfg.ID, scope)
		}
		l := m.g.Leader()
		if l.ID != leader.cfg.ID || l.API != leader.cfg.API || l.Self != (m == leader) || !l.Known {
			t.Errorf("%s: leader %+v, want %s", m.cfg.ID, l, leader.cfg.ID)
		}
		if m != leader {
			_, _, err := m.g.Propose(within(t), Proposal{Cmd: putRegion("us")})
			var not *NotLeaderError
			if !errors.As(err, &not) || not.Leader.API != leader.cfg.API {
				t.Errorf("%s: propose: %v, want the leader's address", m.cfg.ID, err)
			}
			if err := m.g.ReadIndex(within(t)); !errors.As(err, &not) {
				t.Errorf("%s: read index: %v", m.cfg.ID, err)
			}
		}
		m.feed.check(t, m.g.State())
	}
	if err := leader.g.ReadIndex(within(t)); err != nil {
		t.Fatalf("read index: %v", err)
	}
}

// Every acknowledged change is there once, although leaders die under it (I3,
// pitfalls of unknown outcomes).
func TestI3AcknowledgedChangesSurviveTheirLeaders(t *testing.T) {
	c := newCluster3(t)
	const writers, kills = 8, 3
	stop := make(chan struct{})
	var wg sync.WaitGroup
	acked := make([]int, writers) // each by its writer alone
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", w, i)
				if r := c.proposeAs(name, putRegion(name)); r == nil {
					return
				} else if !r.Created {
					t.Errorf("%s: a repeated request was executed twice: %+v", name, r)
				}
				acked[w] = i + 1
			}
		})
	}
	for range kills {
		leader := c.leader()
		before := leader.g.State().Revision()
		eventually(t, "progress", func() bool { return leader.g.State().Revision() > before+50 || !leader.g.leads() })
		c.killAndRestart(leader)
	}
	close(stop)
	wg.Wait()
	leader := c.leader()
	if err := leader.g.ReadIndex(within(t)); err != nil {
		t.Fatal(err)
	}
	want := leader.g.State()
	for _, m := range c.members {
		if err := m.g.WaitRevision(within(t), want.Revision()); err != nil {
			t.Fatal(err)
		}
		for w := range writers {
			for i := range acked[w] {
				if name := fmt.Sprintf("w%d-%d", w, i); !hasRegion(m.g, name) {
					t.Fatalf("%s: acknowledged change %s is lost", m.cfg.ID, name)
				}
			}
		}
		m.feed.check(t, m.g.State())
	}
	sameStates(t, c)
}

// sameStates compares all servers' directories byte for byte.
func sameStates(t *testing.T, c *cluster) {
	t.Helper()
	hashes := make(map[[32]byte][]fsm.MemberID)
	eventually(t, "the servers are at one revision", func() bool {
		revs := make(map[fsm.Revision]bool)
		for _, m := range c.members {
			if m.g != nil {
				revs[m.g.State().Revision()] = true
			}
		}
		return len(revs) == 1
	})
	for _, m := range c.members {
		if m.g == nil {
			continue
		}
		h, err := proto.StateHash(m.g.State())
		if err != nil {
			t.Fatal(err)
		}
		hashes[h] = append(hashes[h], m.cfg.ID)
	}
	if len(hashes) != 1 {
		t.Errorf("the directories differ: %v", hashes)
	}
}

func TestProposeRefusesWhatCannotBe(t *testing.T) {
	c := startCluster(t, 1, nil)
	g := c.leader().g
	big := make([]string, 6000)
	for i := range big {
		big[i] = "http://a-rather-long-name-of-a-router.example.com:8090"
	}
	_, _, err := g.Propose(within(t), Proposal{Cmd: &fsm.PutRegion{Region: fsm.Region{Name: "eu", Routers: big}}})
	if !errors.Is(err, ErrTooBig) {
		t.Errorf("a command of %d bytes: %v", len(big)*50, err)
	}
	r, _, err := g.Propose(within(t), Proposal{Decided: 99, Cmd: putRegion("eu")})
	if err != nil || r.Refusal == nil || r.Refusal.Code != fsm.CodeStale {
		t.Errorf("a decision of another term: %+v, %v", r.Refusal, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := g.Propose(ctx, Proposal{Cmd: putRegion("eu")}); err != nil && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a caller that left: %v, want an unknown outcome", err)
	}
}

func TestDutiesRunForOneTermAndFailuresResign(t *testing.T) {
	type turn struct {
		id   fsm.MemberID
		term uint64
	}
	var mu sync.Mutex
	var begun []turn
	broken := errors.New("the duty fails")
	var bad fsm.MemberID
	cl := startCluster(t, 3, nil)
	// Restart everybody with a duty that fails on the server that leads next.
	for _, m := range cl.members {
		m.stop()
	}
	for _, m := range cl.members {
		if err := m.open(); err != nil {
			t.Fatal(err)
		}
		g, id := m.g, m.cfg.ID
		g.OnLead("test", func(ctx context.Context, term uint64) error {
			if g.barrier.Load() != term {
				t.Errorf("%s: a duty before the barrier of term %d", id, term)
			}
			mu.Lock()
			begun = append(begun, turn{id, term})
			if bad == "" {
				bad = id
			}
			fails := bad == id
			mu.Unlock()
			if fails {
				return broken
			}
			<-ctx.Done()
			return nil
		})
		m.run()
	}
	eventually(t, "another server leads after the duty failed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		l := cl.members[0].g.Leader()
		return bad != "" && l.Known && l.ID != bad && len(begun) >= 2
	})
	mu.Lock()
	defer mu.Unlock()
	seen := make(map[uint64]fsm.MemberID)
	for _, b := range begun {
		if other, ok := seen[b.term]; ok {
			t.Errorf("duties of term %d ran twice: %s and %s", b.term, other, b.id)
		}
		seen[b.term] = b.id
	}
}

func TestALeaderThatCannotLeadStopsWhereNobodyTakesOver(t *testing.T) {
	c := startCluster(t, 1, nil)
	m := c.members[0]
	m.stop()
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the duty fails")
	m.g.OnLead("test", func(context.Context, uint64) error { return broken })
	m.run()
	select {
	case err := <-m.ran:
		if !errors.Is(err, broken) {
			t.Errorf("run: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	m.ran <- nil
}

func TestRestartOfAllFromDisk(t *testing.T) {
	c := newCluster3(t)
	for i := range 20 {
		c.propose("", putRegion(fmt.Sprintf("r%d", i)))
	}
	rev := c.leader().g.State().Revision()
	for _, m := range c.members {
		if err := m.stop(); err != nil {
			t.Fatalf("%s: run: %v", m.cfg.ID, err)
		}
	}
	for _, m := range c.members {
		m.start()
	}
	c.awaitVoters(3)
	for _, m := range c.members {
		if got := m.g.State().Revision(); got < rev || !hasRegion(m.g, "r19") {
			t.Errorf("%s: ready at revision %d, before the stop it was %d", m.cfg.ID, got, rev)
		}
	}
	c.propose("", putRegion("later"))
	sameStates(t, c)
}
