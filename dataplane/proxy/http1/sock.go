package http1

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// errWouldBlock is what a read that may not wait gives when nothing is there.
var errWouldBlock = errors.New("http1: nothing to read yet")

// past is a deadline that has passed: setting it wakes whoever waits.
var past = time.Unix(1, 0)

// sock is a connection of either side. One goroutine reads and one writes at
// a time.
type sock struct {
	nc  net.Conn
	raw syscall.RawConn // of the TCP connection, under TLS too; nil: none
	tls bool

	// owned by the reader
	rb     *buffer
	rerr   error
	noWait bool
	readFn func(uintptr) bool

	// owned by the writer
	wb      []byte
	written int
	werr    error
	writeFn func(uintptr) bool
	asked   bool // ask has written
	askFn   func(uintptr) bool
	sent    atomic.Int64 // changes whenever a write that had to wait got on

	peeked peekResult
	peekFn func(uintptr)
}

// peekResult is what a look at a connection's input found.
type peekResult uint8

const (
	peekQuiet  peekResult = iota // open, nothing to read
	peekData                     // something to read
	peekClosed                   // the peer has closed, or an error
)

func (s *sock) init(nc net.Conn, secure bool) {
	s.nc, s.tls = nc, secure
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(syscall.Conn); ok {
		s.raw, _ = t.SyscallConn()
	}
	s.initRaw()
}

// fill reads into b, behind what it holds. Where nothing has arrived it waits,
// and an empty b gives its memory back for that time. b must have room.
func (s *sock) fill(b *buffer) error {
	if s.readFn != nil {
		s.rb, s.rerr = b, nil
		if err := s.raw.Read(s.readFn); err != nil {
			return err
		}
		return s.rerr
	}
	b.need()
	n, err := s.nc.Read(b.data[b.w:])
	b.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// tryFill is fill without waiting: errWouldBlock where nothing has arrived. b
// keeps its memory.
// Without raw access it always says so.
func (s *sock) tryFill(b *buffer) error {
	if s.readFn == nil {
		return errWouldBlock
	}
	s.noWait = true
	err := s.fill(b)
	s.noWait = false
	return err
}

// write sends all of p. On an error, written tells how much the kernel took
// (under TLS: 0, or more).
func (s *sock) write(p []byte) error {
	if s.writeFn != nil {
		s.wb, s.written, s.werr = p, 0, nil
		err := s.raw.Write(s.writeFn)
		s.wb = nil
		if err != nil {
			return err
		}
		return s.werr
	}
	s.written = 0
	for len(p) > 0 {
		n, err := s.nc.Write(p[:min(len(p), pieceBytes)])
		s.written += n
		if err != nil {
			if s.tls {
				s.written = max(s.written, 1) // who knows how much went out
			}
			return err
		}
		p = p[n:]
		s.sent.Add(1)
	}
	return nil
}

// pieceBytes is how much is written at a time without raw access, so that
// progress can be seen.
const pieceBytes = 64 << 10

// ask writes all of p and then reads into b what comes. The read is armed
// before the write, so that it need not be tried before there can be anything: one
// system call less for every request that the node has to think about. Where
// werr is nil, all was written and rerr is as from fill.
func (s *sock) ask(p []byte, b *buffer) (werr, rerr error) {
	if s.askFn != nil {
		s.wb, s.written, s.werr, s.asked = p, 0, nil, false
		s.rb, s.rerr = b, nil
		err := s.raw.Read(s.askFn)
		rest := p[s.written:]
		s.wb = nil
		switch {
		case s.werr != nil:
			return s.werr, nil
		case len(rest) == 0:
			if err == nil {
				err = s.rerr
			}
			return nil, err
		case err != nil && s.written == 0:
			return err, nil // ended before it began
		}
		before := s.written
		err = s.write(rest)
		s.written += before
		if err != nil {
			return err, nil
		}
		return nil, s.fill(b)
	}
	if err := s.write(p); err != nil {
		return err, nil
	}
	return nil, s.fill(b)
}

// peek looks at the input without taking from it or waiting.
func (s *sock) peek() peekResult {
	if s.peekFn == nil {
		return peekQuiet
	}
	s.peeked = peekClosed
	if s.raw.Control(s.peekFn) != nil {
		return peekClosed
	}
	return s.peeked
}

// closeWrite ends the output and leaves the input open.
func (s *sock) closeWrite() error {
	if c, ok := s.nc.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.nc.Close()
}

// reset closes at once, so that the peer sees an error and not an end.
func (s *sock) reset() {
	nc := s.nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close()
}
