package http1

import "golang.org/x/sys/unix"

// hangups tells which of the connections that were added have been closed by
// their peers. Owned by the reaper.
type hangups struct {
	fd     int
	events [64]unix.EpollEvent
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &hangups{fd: fd}, nil
}

// add begins to watch s under the number id, until it is closed.
func (h *hangups) add(s *sock, id int32) bool {
	if s.raw == nil {
		return false
	}
	var err error
	ctl := s.raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(h.fd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: id})
	})
	return ctl == nil && err == nil
}

// gone calls f with the number of each connection whose peer has closed since
// the last call.
func (h *hangups) gone(f func(id int32)) {
	for {
		n, err := unix.EpollWait(h.fd, h.events[:], 0)
		for i := range max(n, 0) {
			f(h.events[i].Fd)
		}
		if err != nil || n < len(h.events) {
			return
		}
	}
}

func (h *hangups) close() { _ = unix.Close(h.fd) }
