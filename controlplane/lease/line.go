package lease

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"domicile/fsm"
)

// maxAnswer bounds what is read of a node's answer, head and body: a report of
// 100,000 units and their copies fits.
const maxAnswer = 16 << 20

// errStale says that a kept connection ended without a byte of the answer: the
// node was restarted, or closed it, and a new one may do.
var errStale = errors.New("the node closed the connection")

// reply is what a node answered.
type reply struct {
	status int
	body   []byte // until the next call
}

// line makes calls to one node, one at a time, over one connection that is
// kept. A call that fails or runs out of time ends the connection, so that a
// late answer is never taken for that of a later call. It follows no redirect
// and asks no proxy of the environment.
type line interface {
	// call returns errStale, wrapped or not, only where a kept connection failed
	// before any of the answer came.
	call(method, path string, body []byte, timeout time.Duration) (reply, error)
	close()
}

// httpLine speaks HTTP/1.1. It is used by one goroutine.
type httpLine struct {
	ctx   context.Context // ends every call
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	addr  string
	head  string // what every request has behind its target
	conn  net.Conn
	free  func() bool // ends the watch of ctx
	limit io.LimitedReader
	in    *bufio.Reader
	out   []byte
	body  bytes.Buffer
}

// dialer chooses how a node's connections are opened.
func (c *Config) dialer(addr string) (dial func(context.Context, string, string) (net.Conn, error), host string) {
	if host, ok := strings.CutPrefix(addr, "https://"); ok {
		if c.DialTLS != nil {
			return c.DialTLS, host
		}
		return (&tls.Dialer{}).DialContext, host
	}
	host = strings.TrimPrefix(addr, "http://")
	if c.Dial != nil {
		return c.Dial, host
	}
	return (&net.Dialer{}).DialContext, host
}

func newHTTPLine(ctx context.Context, c *Config, n *fsm.Node) *httpLine {
	dial, host := c.dialer(n.Addr)
	l := &httpLine{ctx: ctx, dial: dial, addr: host,
		head: " HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + n.Token + "\r\n"}
	l.in = bufio.NewReaderSize(&l.limit, 4096)
	return l
}

func (l *httpLine) close() {
	if l.conn != nil {
		l.free()
		l.conn.Close()
		l.conn = nil
	}
}

func (l *httpLine) call(method, path string, body []byte, timeout time.Duration) (reply, error) {
	deadline := time.Now().Add(timeout)
	kept := l.conn != nil
	if !kept {
		if err := l.connect(deadline); err != nil {
			return reply{}, err
		}
	}
	r, err := l.exchange(method, path, body, deadline)
	if err != nil {
		l.close()
		var timedOut net.Error
		if kept && l.limit.N == maxAnswer && !(errors.As(err, &timedOut) && timedOut.Timeout()) {
			return reply{}, fmt.Errorf("%w: %w", errStale, err)
		}
		return reply{}, err
	}
	return r, nil
}

func (l *httpLine) connect(deadline time.Time) error {
	ctx, cancel := context.WithDeadline(l.ctx, deadline)
	defer cancel()
	conn, err := l.dial(ctx, "tcp", l.addr)
	if err != nil {
		return err
	}
	l.conn = conn
	l.free = context.AfterFunc(l.ctx, func() { conn.Close() })
	l.limit.R = conn
	l.in.Reset(&l.limit)
	return nil
}

func (l *httpLine) exchange(method, path string, body []byte, deadline time.Time) (reply, error) {
	if err := l.conn.SetDeadline(deadline); err != nil {
		return reply{}, err
	}
	l.limit.N = maxAnswer
	l.out = append(append(append(append(l.out[:0], method...), ' '), path...), l.head...)
	if body != nil {
		l.out = append(l.out, "Content-Type: application/json\r\nContent-Length: "...)
		l.out = strconv.AppendInt(l.out, int64(len(body)), 10)
		l.out = append(l.out, "\r\n"...)
	}
	l.out = append(append(l.out, "\r\n"...), body...)
	if _, err := l.conn.Write(l.out); err != nil {
		return reply{}, err
	}
	if cap(l.out) > 64<<10 {
		l.out = nil // a whole list; the next ones are small
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	if l.body.Cap() > 64<<10 {
		l.body = bytes.Buffer{}
	}
	l.body.Reset()
	if _, err := l.body.ReadFrom(resp.Body); err != nil {
		return reply{}, err
	}
	if resp.Close || l.in.Buffered() > 0 {
		l.close() // it said so, or sent what was not asked for
	}
	return reply{resp.StatusCode, l.body.Bytes()}, nil
}
