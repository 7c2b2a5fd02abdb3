package node

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// TestStopEndsAlthoughTheFolderCannotBeClosed: a statement that nothing interrupts (instr
// of millions of bytes in millions), or a disk that hangs, does not keep the process.
func TestStopEndsAlthoughTheFolderCannotBeClosed(t *testing.T) {
	hangs := make(chan struct{})
	release := sync.OnceFunc(func() { close(hangs) })
	defer release()
	dir := t.TempDir()
	n := startNode(t, func(c *Config) {
		c.CloseTimeout = time.Millisecond
		c.Store.Dir = dir
		c.Store.Fault = func(op store.FileOp, _ string) error {
			if op == store.OpCheckpoint {
				<-hangs
			}
			return nil
		}
	})
	n.tenantWithTable("acme")
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	wait.For(t, "the node to stop", func() error {
		select {
		case err := <-stopped:
			stopped <- err
			return nil
		default:
			return errors.New("it closes its data folder")
		}
	})
	if err := <-stopped; !errors.Is(err, errNotClosed) {
		t.Errorf("%v", err)
	}
	n.stop = func() error { return nil }
	release()
	wait.For(t, "the folder to be free", func() error {
		s, err := store.Open(store.Config{Dir: dir})
		if err == nil {
			err = s.Close()
		}
		return err
	})
}

// halfClosing counts the connections of which it closed one half to linger.
type halfClosing struct {
	net.Listener
	count atomic.Int64
}

func (l *halfClosing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &halfClosingConn{c.(*net.TCPConn), l}, nil
}

type halfClosingConn struct {
	*net.TCPConn
	l *halfClosing
}

func (c *halfClosingConn) CloseWrite() error {
	c.l.count.Add(1)
	return c.TCPConn.CloseWrite()
}

// TestL11AStopDoesNotLingerForIdleConnections: a connection on which a request was refused
// goes on, and a stop closes it at once. It waited a second for each, one after another:
// a proxy has many of them once its units were handed over.
func TestL11AStopDoesNotLingerForIdleConnections(t *testing.T) {
	var l *halfClosing
	n := startNode(t, func(c *Config) {
		l = &halfClosing{Listener: c.Listener}
		c.Listener = l
	})
	c, err := net.Dial("tcp", n.s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("POST /t/nobody/query HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if count := l.count.Load(); count != 0 {
		t.Errorf("it lingered for %d idle connections", count)
	}
}

// TestL11GrantsDoNotKeepAStoppingNodeBusy: they come until it is gone.
func TestL11GrantsDoNotKeepAStoppingNodeBusy(t *testing.T) {
	n := startLeased(t, nil)
	n.create("acme", 1)
	n.s.draining.Store(true)
	n.grant(200, 0, `,"primaries":[]`)
	n.want(200, "GET", "/_health", "")
	if n.s.served.Load() != 0 {
		t.Error("a grant counts as a request of a client")
	}
	n.want(200, "GET", "/t/acme", "")
	if n.s.served.Load() == 0 {
		t.Error("a request for a tenant does not count")
	}
}
