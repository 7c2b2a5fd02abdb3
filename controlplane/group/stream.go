package group

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"domicile/fsm"
)

const (
	greetingWait = 5 * time.Second
	maxConns     = 512
)

// errCut is what a connection of a closed layer answers.
var errCut = fmt.Errorf("raft connections of this server are closed: %w", net.ErrClosed)

// streams are the connections between the servers of a group. Each begins with
// one line, "domicile-raft 1 <cluster> <id>", by which a server of another
// group (a restored machine, a mistyped address) and anything else that finds
// the port are refused before they can vote or append. It authenticates
// nobody: that is for mutual TLS below.
type streams struct {
	net.Listener
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	id      fsm.MemberID
	cluster func() string // "" while not known
	addr    net.Addr

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// advertised is the address that the others are given.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

func (s *streams) Addr() net.Addr { return s.addr }

// Accept admits a connection; its greeting is read with its first bytes, by
// whoever reads it.
func (s *streams) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k := &conn{Conn: c, owner: s, greeted: false, r: bufio.NewReader(c)}
		if s.admit(k) {
			return k, nil
		}
		c.Close()
	}
}

// open connects to another server and greets it.
func (s *streams) open(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	k := &conn{Conn: c, owner: s, greeted: true, r: bufio.NewReader(c)}
	if !s.admit(k) {
		c.Close()
		return nil, errCut
	}
	cluster := s.cluster()
	if cluster == "" {
		cluster = "-"
	}
	c.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := fmt.Fprintf(c, "domicile-raft 1 %s %s\n", cluster, s.id); err != nil {
		k.Close()
		return nil, err
	}
	c.SetWriteDeadline(time.Time{})
	return k, nil
}

func (s *streams) admit(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	if s.conns == nil {
		s.conns = make(map[net.Conn]struct{})
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *streams) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// cut closes every connection and opens no more: a server that hangs must not
// go on sending heartbeats, which need no disk.
func (s *streams) cut() {
	s.mu.Lock()
	s.closed = true
	conns := make([]net.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.Listener.Close()
	for _, c := range conns {
		c.Close()
	}
}

func (s *streams) Close() error {
	s.cut()
	return nil
}

// conn is a connection that is refused when its greeting is wrong.
type conn struct {
	net.Conn
	owner   *streams
	r       *bufio.Reader
	greeted bool
}

func (c *conn) Read(p []byte) (int, error) {
	if !c.greeted {
		if err := c.greeting(); err != nil {
			c.Close()
			return 0, err
		}
		c.greeted = true
	}
	return c.r.Read(p)
}

func (c *conn) greeting() error {
	c.Conn.SetReadDeadline(time.Now().Add(greetingWait))
	line, err := readLine(c.r, 200)
	if err != nil {
		return err
	}
	c.Conn.SetReadDeadline(time.Time{})
	words := strings.Split(line, " ")
	if len(words) != 4 || words[0] != "domicile-raft" {
		return errors.New("not a server of a group")
	}
	if words[1] != "1" {
		return fmt.Errorf("server %s speaks version %s of the Raft connection, this one speaks 1", words[3], words[1])
	}
	if ours := c.owner.cluster(); ours != "" && words[2] != "-" && words[2] != ours {
		return fmt.Errorf("server %s belongs to group %s, this one to %s", words[3], words[2], ours)
	}
	return nil
}

// readLine reads up to a newline, which it takes off; limit bounds it.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for len(line) < limit {
		b, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if b == '\n' {
			return string(line), nil
		}
		line = append(line, b)
	}
	return "", errors.New("the greeting is too long")
}

func (c *conn) Close() error {
	c.owner.forget(c)
	return c.Conn.Close()
}

// dialTCP opens a plain connection.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}
