package netfault

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is a way through a link.
type Direction int

// Directions, as seen by whoever dials the link.
const (
	Forward  Direction = iota // from who dials to the target
	Backward                  // from the target to who dials
)

// Link carries connections to one target.
type Link struct {
	*Way     // of all connections; of a gate, of those that its pick leaves to it
	listener net.Listener
	target   string
	pick     func(net.Conn) *Way
	wait     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[*pair]struct{}
}

// pair is one connection through the link.
type pair struct {
	ends [2]net.Conn // who dialled, the target
	// number tells it from every other pair of the process
	number uint64
	way    *Way
	gone   chan struct{} // closed when the connection is
	mu     sync.Mutex    // guards the target's end, and closing
}

func (p *pair) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gone:
		return
	default:
	}
	close(p.gone)
	p.ends[0].Close()
	if p.ends[1] != nil {
		p.ends[1].Close()
	}
}

// reached gives the pair its target's end; false when it is closed already.
func (p *pair) reached(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gone:
		c.Close()
		return false
	default:
		p.ends[1] = c
		return true
	}
}

// pause waits for d, or a change; false when the connection is gone.
func (p *pair) pause(d time.Duration, change <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-change:
	case <-p.gone:
		return false
	}
	return true
}

// New starts a link to target (host:port) on a free loopback port.
func New(target string) (*Link, error) { return NewGate("127.0.0.1:0", target, nil) }

// NewGate starts a link that listens on listen, and asks pick, with the
// connection as it was accepted and from many goroutines, for each connection's
// way; nil is the link's own.
func NewGate(listen, target string, pick func(net.Conn) *Way) (*Link, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	l := &Link{Way: NewWay(), listener: listener, target: target, pick: pick, open: make(map[*pair]struct{})}
	l.wait.Go(l.accept)
	return l, nil
}

// Addr is where to dial instead of the target.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close breaks every connection and ends the link.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	for p := range l.open {
		p.close()
	}
	l.mu.Unlock()
	l.listener.Close()
	l.wait.Wait()
}

var pairs atomic.Uint64

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		p := &pair{ends: [2]net.Conn{c}, number: pairs.Add(1), gone: make(chan struct{})}
		l.mu.Lock()
		closed := l.closed
		if !closed {
			l.open[p] = struct{}{}
		}
		l.mu.Unlock()
		if closed {
			c.Close()
			continue
		}
		l.wait.Go(func() {
			l.serve(p)
			l.mu.Lock()
			delete(l.open, p)
			l.mu.Unlock()
		})
	}
}

// serve connects a pair to the target, once its way lets bytes through, and
// carries both directions.
func (l *Link) serve(p *pair) {
	defer p.close()
	if l.pick != nil {
		p.way = l.pick(p.ends[0])
	}
	if p.way == nil {
		p.way = l.Way
	}
	if !p.way.enter(p) {
		if t, ok := p.ends[0].(*net.TCPConn); ok {
			t.SetLinger(0) // so that the dialler sees a reset, not an end
		}
		return
	}
	defer p.way.leave(p)
	if !p.way.pass(p, Forward) {
		return
	}
	c, err := net.DialTimeout("tcp", l.target, 5*time.Second)
	if err != nil {
		return
	}
	if !p.reached(c) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(Forward) })
	both.Go(func() { p.carry(Backward) })
	both.Wait()
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	at    time.Time
}

// carry moves one direction until either end closes.
func (p *pair) carry(d Direction) {
	from, to := p.ends[d], p.ends[1-d]
	queue := make(chan chunk, 64)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{slices.Clone(buf[:n]), time.Now()}:
				case <-p.gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	chunks := 0
	for c := range queue {
		if !p.way.late(p, d, c.at) || !p.way.pass(p, d) {
			break
		}
		takes, garbled := p.way.due(d, chunks, len(c.bytes))
		chunks++
		p.way.seen(p, d, c.bytes)
		if garbled {
			c.bytes[len(c.bytes)/2] ^= 1 << 3
		}
		if takes > 0 && !p.pause(takes, nil) {
			break
		}
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	p.close()
	reader.Wait()
}
