package netfault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dialler names the process at the other end of a connection that came over IPv4
// loopback: the one of pids, by name, that has its socket open. "" for none of them, and
// where the connection has closed already. It asks the kernel and /proc, so it works
// on Linux alone.
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
