package testcluster

import (
	"bufio"
	bin "encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"domicile/internal/netfault"
)

// gates is a network on loopback: a link stands in front of each listener, and
// is what the directory records. It tells who dialled by the process that owns
// the other end of the connection.
type gates struct {
	t testing.TB

	mu   sync.Mutex
	ways map[[2]string]*netfault.Way // who dials, who listens
	pids map[string]int              // of the processes that run
}

func newGates(t testing.TB) *gates {
	return &gates{t: t, ways: map[[2]string]*netfault.Way{}, pids: map[string]int{}}
}

func (g *gates) listener(process string) (listen, reach string) {
	listen, reach = FreeAddr(g.t), FreeAddr(g.t)
	l, err := netfault.NewGate(reach, listen, func(c net.Conn) *netfault.Way { return g.way(g.dialler(c), process) })
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(l.Close)
	return listen, reach
}

func (g *gates) command(_ string, args []string) *exec.Cmd { return exec.Command(binary, args...) }

func (g *gates) flags() []string { return nil }

// started tells the process that a name stands for from now on.
func (g *gates) started(process string, pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pids[process] = pid
}

func (g *gates) way(from, to string) *netfault.Way {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.ways[[2]string{from, to}]
	if w == nil {
		w = netfault.NewWay()
		g.ways[[2]string{from, to}] = w
	}
	return w
}

func (g *gates) cut(from, to string) {
	g.way(from, to).CutOne(netfault.Forward)
	g.way(to, from).CutOne(netfault.Backward)
}

func (g *gates) heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.ways {
		w.Heal()
	}
}

// dialler names the process at the other end of a connection, or is "" for the
// test.
func (g *gates) dialler(c net.Conn) string {
	inode, err := socketOf(c.RemoteAddr().String(), c.LocalAddr().String())
	if err != nil {
		return "" // it has closed already
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, pid := range g.pids {
		if owns(pid, inode) {
			return name
		}
	}
	return ""
}

// owns reports whether a process has a socket open.
func owns(pid int, inode string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir) // gone with its process
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// socketOf finds the inode of the connection from local to remote among the
// machine's.
func socketOf(local, remote string) (string, error) {
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
		// Fields: number, local, remote, state, queues, timers, retransmits, uid, timeout, inode.
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
	var swapped [4]byte
	bin.BigEndian.PutUint32(swapped[:], bin.NativeEndian.Uint32(b[:]))
	return strings.ToUpper(hex.EncodeToString(swapped[:])) + fmt.Sprintf(":%04X", a.Port()), nil
}
