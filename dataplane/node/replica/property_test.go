package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/netfault"
	"domicile/internal/wait"
)

// cluster is a unit on three nodes, and what a leader knows of it. Its steps
// are a leader's, a network's and a machine's; a writer works beside them.
type cluster struct {
	t     *testing.T
	rnd   *rand.Rand
	nodes []*member
	epoch uint64

	mu      sync.Mutex
	primary int
	acked   map[int]bool // keys of writes that were acknowledged
}

type member struct {
	*node
	way *netfault.Link // over which others follow it
	up  sync.RWMutex   // held for reading by who uses the node
	// promotable: in sync in the directory's sense.
	promotable bool
}

const property = "acme"

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), epoch: 1, acked: map[int]bool{}}
	for range 3 {
		n := newNode(t, Config{AckReplica: true, RingBytes: 200 << 10, Token: "secret"}, store.Config{Sync: store.SyncNormal, CheckpointBytes: 64 << 10})
		n.cfg.As = n.addr
		c.nodes = append(c.nodes, &member{node: n, way: n.link()})
	}
	p := c.nodes[0]
	p.create(property)
	p.must(property, "CREATE TABLE t(k INTEGER PRIMARY KEY, b BLOB)")
	c.count()
	c.point()
	return c
}

// point lets all others follow the primary.
func (c *cluster) point() {
	p := c.nodes[c.primary]
	for i, n := range c.nodes {
		if i != c.primary {
			n.follow(property, p.node, "http://"+p.way.Addr())
		}
	}
}

// count sends the primary a grant with those that are promotable, and with join
// (which only begins to count).
func (c *cluster) count(join ...int) {
	k := Copies{}
	for i, n := range c.nodes {
		if i == c.primary {
			continue
		}
		k.All = append(k.All, n.addr)
		if n.promotable || slices.Contains(join, i) {
			k.InSync = append(k.InSync, n.addr)
		}
	}
	c.nodes[c.primary].r.SetCopies(map[string]Copies{property: k}, 20*time.Millisecond)
}

// write is one write of the writer.
func (c *cluster) write(key int) {
	c.mu.Lock()
	p := c.nodes[c.primary]
	c.mu.Unlock()
	p.up.RLock()
	defer p.up.RUnlock()
	if !p.r.Compared(property) {
		return
	}
	_, err := p.node.write(property, fmt.Sprintf("INSERT INTO t VALUES(%d, randomblob(%d))", key, key*131%9000))
	if err == nil {
		c.mu.Lock()
		c.acked[key] = true
		c.mu.Unlock()
	}
}

// step is one thing that happens.
func (c *cluster) step() string {
	p := c.nodes[c.primary]
	i := c.rnd.IntN(3)
	n := c.nodes[i]
	switch c.rnd.IntN(8) {
	case 0:
		n.way.Reset()
		return fmt.Sprint("reset ", i)
	case 1:
		n.way.CutOne(netfault.Direction(c.rnd.IntN(2)))
		return fmt.Sprint("cut ", i)
	case 2, 3:
		n.way.Heal()
		return fmt.Sprint("heal ", i)
	case 4:
		c.restart(n)
		if i == c.primary {
			c.count()
		}
		return fmt.Sprint("restart ", i)
	case 5, 6: // what the leader makes of the primary's report
		lagging := lagging(p.node, property)
		for k, m := range c.nodes {
			if k == c.primary {
				continue
			}
			if slices.Contains(lagging, m.addr) {
				m.promotable = false // by an entry, and then by a grant
				c.count()
				continue
			}
			if !m.promotable { // it joins; in sync where the next report says so
				c.count(k)
				m.promotable = !slices.Contains(lagging2(p.node), m.addr)
				c.count()
			}
		}
		return fmt.Sprint("report ", lagging)
	default:
		if i == c.primary || !n.promotable {
			return "nothing"
		}
		c.fail(i)
		return fmt.Sprint("failover to ", i)
	}
}

func lagging2(n *node) []string { return lagging(n, property) }

// fail promotes a copy over the primary, which learns of it afterwards.
func (c *cluster) fail(to int) {
	c.epoch++
	n := c.nodes[to]
	n.promote(c.epoch, property)
	c.mu.Lock()
	c.primary = to
	c.mu.Unlock()
	for _, m := range c.nodes {
		m.promotable = false
	}
	c.count()
	c.point()
}

// restart stops a node and starts it again; its writes are given up.
func (c *cluster) restart(m *member) {
	locked := make(chan struct{})
	go func() { m.up.Lock(); close(locked) }()
	wait.For(c.t, "the node's write ends", func() error {
		select {
		case <-locked:
			return nil
		default:
			m.r.GiveUp(0)
			return errors.New("it waits")
		}
	})
	m.node.restart()
	if err := m.r.Resume(); err != nil {
		c.t.Fatal(err)
	}
	m.up.Unlock()
}

// I10 and I1 for what this package does: whatever is cut, restarted and
// promoted, what was acknowledged with in-sync copies is there in the end, and
// all copies are the same file.
func TestCopiesConverge(t *testing.T) {
	runs, steps := 3, 60
	if testing.Short() {
		runs, steps = 1, 40
	}
	for range runs {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { converge(t, seed, steps) })
	}
}

func converge(t *testing.T, seed uint64, steps int) {
	c := newCluster(t, seed)
	end := background(t, func(stop <-chan struct{}) {
		pace := time.NewTicker(300 * time.Microsecond)
		defer pace.Stop()
		for key := 1; ; key++ {
			select {
			case <-stop:
				return
			case <-pace.C:
				c.write(key)
			}
		}
	})
	var log []string
	tick := time.NewTicker(7 * time.Millisecond)
	defer tick.Stop()
	for range steps {
		for range c.rnd.IntN(12) {
			<-tick.C // lets the writer and the copies work
		}
		log = append(log, c.step())
		if c.rnd.IntN(4) == 0 {
			for _, n := range c.nodes {
				n.r.GiveUp(30 * time.Millisecond)
			}
		}
	}
	for _, n := range c.nodes {
		n.way.Heal()
		n.promotable = false
	}
	c.count() // nobody counts: the writer's last write ends
	for _, n := range c.nodes {
		n.r.GiveUp(0)
	}
	end()
	p := c.nodes[c.primary]
	p.must(property, "INSERT INTO t VALUES(0, x'')")
	identical(t, property, p.node, c.nodes[(c.primary+1)%3].node, c.nodes[(c.primary+2)%3].node)
	keys := map[int]bool{}
	p.rows("SELECT k FROM t", func(k int64) { keys[int(k)] = true })
	missing := 0
	for k := range c.acked {
		if !keys[k] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d acknowledged writes are missing; steps: %q", missing, len(c.acked), log)
	}
	if len(c.acked) == 0 {
		t.Log("nothing was acknowledged", log)
	}
}
