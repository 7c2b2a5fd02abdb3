package main

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"time"
)

// tap stands in front of every node and notes when the control plane's calls pass. It
// costs each request of the node a hop, so that only the share of each part counts.
type tap struct {
	wg        sync.WaitGroup
	mu        sync.Mutex
	calls     []tapped
	listeners []net.Listener
	conns     map[net.Conn]bool
	closed    bool
}

// tapped is a call of the control plane to a node, or a write of a client's.
type tapped struct {
	node, path string // path: after /_admin/; "write"
	body       []byte // of a call: what came with the head
	begin, end time.Time
	ok         bool // the answer is 200
}

func newTap() *tap { return &tap{conns: map[net.Conn]bool{}} }

// front gives the address at which a node is reached through the tap.
func (t *tap) front(node, listen string) (reach string, err error) {
	if t == nil {
		return listen, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	t.listeners = append(t.listeners, l)
	t.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.wg.Go(func() { t.serve(node, listen, c) })
		}
	})
	return l.Addr().String(), nil
}

func (t *tap) close() {
	if t == nil {
		return
	}
	for _, l := range t.listeners {
		l.Close()
	}
	t.mu.Lock()
	t.closed = true
	for c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// keep has close end a connection; false: it was called.
func (t *tap) keep(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = true
	return !t.closed
}

func (t *tap) serve(node, target string, c net.Conn) {
	defer c.Close()
	up, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	if !t.keep(c) || !t.keep(up) {
		return
	}
	open := -1 // the call of this connection that is not answered; with mu
	var wg sync.WaitGroup
	wg.Go(func() {
		defer up.Close()
		t.carry(up, c, func(data []byte) {
			if call, ok := callOf(data); ok {
				open = len(t.calls)
				call.node, call.begin = node, time.Now()
				t.calls = append(t.calls, call)
			}
		})
	})
	t.carry(c, up, func(data []byte) {
		if open >= 0 {
			call := &t.calls[open]
			call.end, call.ok, open = time.Now(), bytes.HasPrefix(data, []byte("HTTP/1.1 200")), -1
		}
	})
	c.Close()
	wg.Wait()
}

// carry moves one direction and has look look at each piece.
func (t *tap) carry(to, from net.Conn, look func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			t.mu.Lock()
			look(buf[:n])
			t.mu.Unlock()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// callOf tells a call that is noted, if data begins with one.
func callOf(data []byte) (c tapped, ok bool) {
	if rest, ok := bytes.CutPrefix(data, []byte("POST /_admin/")); ok {
		name, _, _ := bytes.Cut(rest, []byte(" "))
		return tapped{path: string(name), body: slices.Clone(data)}, true
	}
	return tapped{path: pathWrite}, bytes.HasPrefix(data, []byte("POST /t/")) && bytes.Contains(data, []byte("insert "))
}

const pathWrite = "write"

// since gives the calls that began from then on and were answered.
func (t *tap) since(at time.Time) (calls []tapped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if !c.begin.Before(at) && !c.end.IsZero() {
			calls = append(calls, c)
		}
	}
	return calls
}
