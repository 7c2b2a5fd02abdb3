package netfault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Diallers tells which processes dial. One look at what they have open serves all
// connections that came before it began: where the machine is slow and connections are
// given up and made anew, they would come faster than they are told apart one by one. The
// zero Diallers knows of no process.
type Diallers struct {
	mu   sync.Mutex // guards what is below
	pids map[string]int
	next *look // has not begun

	looking sync.Mutex // held by the look that is under way
}

// look finds the processes that have sockets open.
type look struct {
	names map[string]string // by the socket's inode; "": none has it
	done  bool              // guarded by Diallers.looking
}

// Runs says which process a name stands for from now on.
func (d *Diallers) Runs(name string, pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pids == nil {
		d.pids = map[string]int{}
	}
	d.pids[name] = pid
}

// Name names the process at the other end of a connection that came over IPv4 loopback:
// the one that has its socket open. "" for none that it was told of, and where the
// connection has closed already. It asks the kernel and /proc, so it works on Linux alone.
func (d *Diallers) Name(c net.Conn) string {
	inode, err := socketOf(c.RemoteAddr().String(), c.LocalAddr().String())
	if err != nil || inode == closedInode {
		return ""
	}
	d.mu.Lock()
	if d.next == nil {
		d.next = &look{names: map[string]string{}}
	}
	l := d.next
	l.names[inode] = ""
	d.mu.Unlock()

	d.looking.Lock()
	defer d.looking.Unlock()
	if !l.done {
		d.mu.Lock()
		d.next = nil
		pids := maps.Clone(d.pids)
		d.mu.Unlock()
		l.at(pids)
		l.done = true
	}
	return l.names[inode]
}

// at looks at what processes have open, until every socket is found.
func (l *look) at(pids map[string]int) {
	left := len(l.names)
	for name, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, _ := os.ReadDir(dir) // gone with its process
		for _, fd := range fds {
			to, _ := os.Readlink(dir + "/" + fd.Name())
			inode, ok := strings.CutPrefix(strings.TrimSuffix(to, "]"), "socket:[")
			if _, wanted := l.names[inode]; !ok || !wanted {
				continue
			}
			l.names[inode] = name
			if left--; left == 0 {
				return
			}
		}
	}
}

// closedInode is what the kernel tells of a socket that no process has open any more.
const closedInode = "0"

// socketOf finds the inode of the connection from local to remote. It asks for that
// one alone (sock_diag(7)): /proc/net/tcp takes milliseconds, in which a storm of
// connections grows faster than it is told apart.
func socketOf(local, remote string) (string, error) {
	ask, err := diagRequest(local, remote)
	if err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return "", err
	}
	// struct nlmsghdr, then struct inet_diag_msg, whose last field is the inode.
	const head, inodeAt = unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN + 68
	if kind := binary.NativeEndian.Uint16(answer[4:]); n < head || kind == unix.NLMSG_ERROR {
		return "", fmt.Errorf("no connection from %s to %s", local, remote)
	}
	if n < inodeAt+4 {
		return "", errors.New("the kernel's answer about a socket is too short")
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(answer[inodeAt:])), 10), nil
}

// sockDiagByFamily is SOCK_DIAG_BY_FAMILY of linux/sock_diag.h.
const sockDiagByFamily = 20

// diagRequest is a struct nlmsghdr and a struct inet_diag_req_v2 (linux/inet_diag.h)
// that ask for one TCP socket.
func diagRequest(local, remote string) ([]byte, error) {
	from, err := netip.ParseAddrPort(local)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(remote)
	if err != nil {
		return nil, err
	}
	const size = unix.NLMSG_HDRLEN + 56
	b := binary.NativeEndian.AppendUint32(nil, size)
	b = binary.NativeEndian.AppendUint16(b, sockDiagByFamily)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...)                   // sequence, sender
	b = append(b, unix.AF_INET, unix.IPPROTO_TCP, 0, 0) // nothing further is asked
	b = binary.NativeEndian.AppendUint32(b, 0xffffffff) // in any state
	b = binary.BigEndian.AppendUint16(b, from.Port())   // struct inet_diag_sockid
	b = binary.BigEndian.AppendUint16(b, to.Port())
	for _, a := range []netip.Addr{from.Addr(), to.Addr()} {
		four := a.Unmap().As4()
		b = append(append(b, four[:]...), make([]byte, 12)...)
	}
	b = append(b, 0, 0, 0, 0)                                             // any interface
	return append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), nil // any cookie
}
