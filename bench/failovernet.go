package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"domicile/internal/netfault"
)

// cuts are links in front of every listener of a deployment, by which a node is
// cut off from all others, in both directions, and from nothing else: a link
// tells who dialled by the process that owns the other end.
type cuts struct {
	mu    sync.Mutex
	pids  map[string]int
	ways  map[[2]string]*netfault.Way // who dials, "" where it is no node; who listens
	links []*netfault.Link
}

func newCuts() *cuts { return &cuts{pids: map[string]int{}, ways: map[[2]string]*netfault.Way{}} }

func (c *cuts) close() {
	for _, l := range c.links {
		l.Close()
	}
}

// listener gives a process an address to listen on and one to be reached at.
func (c *cuts) listener(process string) (listen, reach string, err error) {
	if listen, err = freePort(); err != nil {
		return "", "", err
	}
	if reach, err = freePort(); err != nil {
		return "", "", err
	}
	l, err := netfault.NewGate(reach, listen, func(conn net.Conn) *netfault.Way { return c.way(c.dialler(conn), process) })
	if err != nil {
		return "", "", err
	}
	c.links = append(c.links, l)
	return listen, reach, nil
}

func (c *cuts) started(process string, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[process] = pid
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

func (c *cuts) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.ways {
		w.Heal()
	}
}

// dialler names the node at the other end of a connection; "": none of them.
func (c *cuts) dialler(conn net.Conn) string {
	inode, err := socketInode(conn.RemoteAddr().String(), conn.LocalAddr().String())
	if err != nil {
		return "" // it has closed already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, pid := range c.pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, _ := os.ReadDir(dir) // gone with its process
		for _, fd := range fds {
			if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && to == "socket:["+inode+"]" {
				return name
			}
		}
	}
	return ""
}

// socketInode finds the connection from local to remote among the machine's.
func socketInode(local, remote string) (string, error) {
	from, err := procAddr(local)
	if err != nil {
		return "", err
	}
	to, err := procAddr(remote)
	if err != nil {
		return "", err
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		// Number, local, remote, state, queues, timers, retransmits, uid, timeout, inode.
		if v := strings.Fields(s.Text()); len(v) > 9 && v[1] == from && v[2] == to {
			return v[9], nil
		}
	}
	return "", fmt.Errorf("no connection from %s to %s", local, remote)
}

// procAddr writes an IPv4 address as /proc/net/tcp does: the address in the
// machine's byte order, the port in the network's.
func procAddr(s string) (string, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return "", err
	}
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port()), nil
}
