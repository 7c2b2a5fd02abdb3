package main

import (
	"net"
	"sync"
	"time"

	"domicile/internal/netfault"
)

// cuts are links in front of every listener of a deployment, by which a node is
// cut off from all others, in both directions, and from nothing else: a link
// tells who dialled by the process that owns the other end.
type cuts struct {
	diallers netfault.Diallers

	mu    sync.Mutex
	ways  map[[2]string]*netfault.Way // who dials, "" where it is no node; who listens
	links []*netfault.Link
}

func newCuts() *cuts { return &cuts{ways: map[[2]string]*netfault.Way{}} }

func (c *cuts) close() {
	if c == nil {
		return
	}
	for _, l := range c.links {
		l.Close()
	}
}

// listener gives a process an address to listen on and one to be reached at: the
// same where there are no cuts.
func (c *cuts) listener(process string) (listen, reach string, err error) {
	if listen, err = freePort(); err != nil || c == nil {
		return listen, listen, err
	}
	if reach, err = freePort(); err != nil {
		return "", "", err
	}
	l, err := netfault.NewGate(reach, listen, func(conn net.Conn) *netfault.Way { return c.way(c.diallers.Name(conn), process) })
	if err != nil {
		return "", "", err
	}
	c.links = append(c.links, l)
	return listen, reach, nil
}

func (c *cuts) started(process string, pid int) {
	if c == nil {
		return
	}
	c.diallers.Runs(process, pid)
}

func (c *cuts) way(from, to string) *netfault.Way {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.ways[[2]string{from, to}]
	if w == nil {
		w = netfault.NewWay()
		c.ways[[2]string{from, to}] = w
	}
	return w
}

// isolate cuts a node off from all of others and from whoever dials it.
func (c *cuts) isolate(node string, others []string) {
	c.way("", node).Cut()
	for _, o := range others {
		c.way(node, o).Cut()
		c.way(o, node).Cut()
	}
}

// delay has bytes from one to the other, and those back, take that long.
func (c *cuts) delay(from, to string, oneWay time.Duration) {
	w := c.way(from, to)
	w.Delay(netfault.Forward, oneWay)
	w.Delay(netfault.Backward, oneWay)
}

func (c *cuts) heal() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.ways {
		w.Heal()
	}
}
