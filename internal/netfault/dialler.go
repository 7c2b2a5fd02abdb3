package netfault

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Dialler names the process at the other end of a connection that came over IPv4
// loopback: the one of pids, by name, that has its socket open. "" for none of them, and
// where the connection has closed already. It reads /proc, so it works on Linux alone.
func Dialler(c net.Conn, pids map[string]int) string {
	inode, err := socketOf(c.RemoteAddr().String(), c.LocalAddr().String())
	if err != nil {
		return ""
	}
	for name, pid := range pids {
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
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port()), nil
}
