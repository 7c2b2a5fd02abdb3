package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// mover moves tenants, cancels moves, and drains nodes and ends that, one thing after
// another, whatever is answered.
type mover struct {
	t     *testing.T
	c     *testcluster.Cluster
	names []string
	r     *rand.Rand
	done  chan struct{}
	wait  sync.WaitGroup
	last  uint64         // of a move that was begun
	asked map[string]int // what was done, by what was answered
}

func startMover(t *testing.T, c *testcluster.Cluster, r *rand.Rand, names ...string) *mover {
	m := &mover{t: t, c: c, names: names, r: r, done: make(chan struct{}), asked: map[string]int{}}
	m.wait.Go(func() {
		for {
			select {
			case <-m.done:
				return
			case <-time.After(50*time.Millisecond + time.Duration(m.r.Int64N(int64(time.Second)))):
				m.act()
			}
		}
	})
	return m
}

func (m *mover) act() {
	proxy := m.c.Proxies[m.r.IntN(len(m.c.Proxies))].URL
	node := m.c.Nodes[m.r.IntN(len(m.c.Nodes))].ID
	name := m.names[m.r.IntN(len(m.names))]
	var what string
	var a testcluster.Answer
	switch n := m.r.IntN(20); {
	case n < 14:
		what = "move"
		a = m.c.Do(http.MethodPost, proxy+"/_shard/tenants/"+name+"/move", fmt.Sprintf(`{"to":%q,"wait":false}`, node))
		var j movedLine
		if a.Status == http.StatusAccepted && json.Unmarshal(a.Body, &j) == nil {
			m.last = j.ID
		}
	case n < 16:
		what = "cancel"
		a = m.c.Do(http.MethodDelete, fmt.Sprintf("%s/_shard/moves/%d", proxy, m.last), "")
	case n < 18:
		what = "drain"
		a = m.c.Do(http.MethodPost, proxy+"/_shard/nodes/"+node+"/drain", "")
	default:
		what = "undrain"
		a = m.c.Do(http.MethodDelete, proxy+"/_shard/nodes/"+node+"/drain", "")
	}
	m.asked[fmt.Sprintf("%s %d", what, a.Status)]++
}

// stop ends it, and the drains that it has begun, and waits until no move is under way.
func (m *mover) stop() {
	m.t.Helper()
	close(m.done)
	m.wait.Wait()
	for _, n := range m.c.Nodes {
		wait.For(m.t, "no drain of "+n.ID, func() error {
			a := m.c.Do(http.MethodDelete, m.c.AnyControl().URL+"/_shard/nodes/"+n.ID+"/drain", "")
			if a.Status >= 300 && a.Status != http.StatusNotFound {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	wait.For(m.t, "every move has ended", func() error {
		a := m.c.Do(http.MethodGet, m.c.AnyControl().URL+"/_shard/moves", "")
		var moves []movedLine
		if a.Status != http.StatusOK || json.Unmarshal(a.Body, &moves) != nil {
			return fmt.Errorf("%s", a)
		}
		for _, j := range moves {
			if j.Outcome == "" {
				return fmt.Errorf("%+v", j)
			}
		}
		return nil
	})
	m.t.Logf("moves: %v", m.asked)
}
