package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
)

// runForwarder copies bytes between each client and a connection of its own to
// the backend, in one epoll loop on one thread, and reads no HTTP: what any
// proxy must cost at the least.
func runForwarder(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("forwarder", flag.ContinueOnError)
	addr, to := fs.String("listen", "127.0.0.1:0", "address"), fs.String("to", "", "backend")
	if err := fs.Parse(args); err != nil {
		return err
	}
	backend, err := net.ResolveTCPAddr("tcp4", *to)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", *addr)
	if err != nil {
		return err
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	sa := &syscall.SockaddrInet4{Port: backend.Port}
	copy(sa.Addr[:], backend.IP.To4())
	return forward(int(f.Fd()), sa, f)
}

func forward(listener int, to *syscall.SockaddrInet4, keep *os.File) error {
	runtime.LockOSThread()
	defer keep.Close()
	ep, err := syscall.EpollCreate1(0)
	if err != nil {
		return err
	}
	watch := func(fd int) error {
		return syscall.EpollCtl(ep, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
	}
	if err := watch(listener); err != nil {
		return err
	}
	peers, events, buf := map[int32]int32{}, make([]syscall.EpollEvent, 256), make([]byte, 64<<10)
	for {
		n, err := syscall.EpollWait(ep, events, -1)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, ev := range events[:n] {
			if int(ev.Fd) == listener {
				if err := pair(listener, to, peers, watch); err != nil {
					return err
				}
				continue
			}
			relay(ev.Fd, peers, buf)
		}
	}
}

func pair(listener int, to *syscall.SockaddrInet4, peers map[int32]int32, watch func(int) error) error {
	c, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	b, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Connect(b, to); err != nil {
		return fmt.Errorf("connect to the backend: %w", err)
	}
	for _, fd := range []int{c, b} {
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
		if err := watch(fd); err != nil {
			return err
		}
	}
	peers[int32(c)], peers[int32(b)] = int32(b), int32(c)
	return nil
}

func relay(fd int32, peers map[int32]int32, buf []byte) {
	peer, ok := peers[fd]
	if !ok {
		return
	}
	n, err := syscall.Read(int(fd), buf)
	if n <= 0 || err != nil {
		delete(peers, fd)
		delete(peers, peer)
		_ = syscall.Close(int(fd))
		_ = syscall.Close(int(peer))
		return
	}
	for out := buf[:n]; len(out) > 0; {
		w, err := syscall.Write(int(peer), out)
		if err != nil {
			return
		}
		out = out[w:]
	}
}
