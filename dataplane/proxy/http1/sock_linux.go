package http1

import (
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initRaw prepares the closures of the raw path. A raw call on a non-blocking
// descriptor spares the scheduler's hand-off around an ordinary system call; the
// poller is asked only when the kernel says "would block".
func (s *sock) initRaw() {
	if s.raw == nil {
		return
	}
	s.peekFn = s.onPeek
	if s.tls {
		return
	}
	s.readFn = s.onReadable
	s.writeFn = s.onWritable
	s.askFn = s.onAsk
}

// onAsk writes when it is called first and reads from then on. A write that
// would block is left to the caller.
func (s *sock) onAsk(fd uintptr) bool {
	if s.asked {
		return s.onReadable(fd)
	}
	s.asked = true
	return !s.onWritable(fd) || s.werr != nil
}

func (s *sock) onReadable(fd uintptr) bool {
	b := s.rb
	b.need()
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b.data[b.w])), uintptr(len(b.data)-b.w))
		switch errno {
		case 0:
			if n == 0 {
				s.rerr = io.EOF
			}
			b.w += int(n)
			return true
		case syscall.EAGAIN:
			if s.noWait { // what was read before is still in use
				s.rerr = errWouldBlock
				return true
			}
			if b.r == b.w {
				b.release()
			}
			return false
		case syscall.EINTR:
		default:
			s.rerr = os.NewSyscallError("read", errno)
			return true
		}
	}
}

func (s *sock) onWritable(fd uintptr) bool {
	for s.written < len(s.wb) {
		rest := s.wb[s.written:]
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)))
		switch errno {
		case 0:
			s.written += int(n)
		case syscall.EAGAIN:
			s.sent.Add(int64(s.written)) // grows unless nothing has moved
			return false
		case syscall.EINTR:
		default:
			s.werr = os.NewSyscallError("write", errno)
			return true
		}
	}
	return true
}

func (s *sock) onPeek(fd uintptr) {
	var one [1]byte
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&one[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		s.peeked = peekQuiet
	case errno == 0 && n > 0:
		s.peeked = peekData
	default:
		s.peeked = peekClosed
	}
}

// boundUnacked makes the kernel give a connection up when what was sent stays
// without acknowledgement for d: a peer behind a cut link is noticed although it
// says nothing.
func (s *sock) boundUnacked(d time.Duration) {
	if s.raw == nil {
		return
	}
	_ = s.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
