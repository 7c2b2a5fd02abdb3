package netfault

import (
	"net"
	"sync"
	"time"
)

// Direction is a way through a link.
type Direction int

// Directions, as seen by whoever dials the link.
const (
	Forward  Direction = iota // from who dials to the target
	Backward                  // from the target to who dials
)

// Link is one way from one process to another.
type Link struct {
	listener net.Listener
	target   string
	wait     sync.WaitGroup

	mu      sync.Mutex
	change  chan struct{} // closed when anything below changes
	cut     [2]bool
	delay   [2]time.Duration
	reset   bool
	closed  bool
	pairs   map[*pair]struct{}
	carried [2]int64
}

// pair is one connection through the link.
type pair struct {
	ends [2]net.Conn // who dialled, the target
	once sync.Once
	gone chan struct{}
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.gone)
		p.ends[0].Close()
		if p.ends[1] != nil {
			p.ends[1].Close()
		}
	})
}

// New starts a link to target (host:port) on a free loopback port.
func New(target string) (*Link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &Link{listener: l, target: target, change: make(chan struct{}), pairs: make(map[*pair]struct{})}
	k.wait.Go(k.accept)
	return k, nil
}

// Addr is where to dial instead of the target.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut stops both directions, silently.
func (l *Link) Cut() { l.set(func() { l.cut = [2]bool{true, true} }) }

// CutOne stops one direction, silently.
func (l *Link) CutOne(d Direction) { l.set(func() { l.cut[d] = true }) }

// Delay holds every byte of one direction up for d.
func (l *Link) Delay(dir Direction, d time.Duration) { l.set(func() { l.delay[dir] = d }) }

// Reset breaks every connection and refuses new ones.
func (l *Link) Reset() {
	l.set(func() {
		l.reset = true
		for p := range l.pairs {
			p.close()
		}
	})
}

// Heal undoes Cut, CutOne, Delay and Reset.
func (l *Link) Heal() {
	l.set(func() { l.cut, l.delay, l.reset = [2]bool{}, [2]time.Duration{}, false })
}

// Carried is the number of bytes that one direction let through so far.
func (l *Link) Carried(d Direction) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carried[d]
}

// Close breaks every connection and ends the link.
func (l *Link) Close() {
	l.set(func() {
		l.closed = true
		for p := range l.pairs {
			p.close()
		}
	})
	l.listener.Close()
	l.wait.Wait()
}

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.change)
	l.change = make(chan struct{})
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		p := &pair{ends: [2]net.Conn{c}, gone: make(chan struct{})}
		l.mu.Lock()
		refused := l.closed || l.reset
		if !refused {
			l.pairs[p] = struct{}{}
		}
		l.mu.Unlock()
		if refused {
			if t, ok := c.(*net.TCPConn); ok {
				t.SetLinger(0) // so that the dialler sees a reset, not an end
			}
			c.Close()
			continue
		}
		l.wait.Go(func() { l.serve(p) })
	}
}

// serve connects a pair to the target, once the link lets bytes through, and
// carries both directions.
func (l *Link) serve(p *pair) {
	defer func() {
		p.close()
		l.mu.Lock()
		delete(l.pairs, p)
		l.mu.Unlock()
	}()
	if !l.pass(p, Forward) {
		return
	}
	c, err := net.DialTimeout("tcp", l.target, 5*time.Second)
	if err != nil {
		return
	}
	l.mu.Lock()
	p.ends[1] = c
	l.mu.Unlock()
	select {
	case <-p.gone: // closed before it knew of c
		c.Close()
		return
	default:
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(p, Forward) })
	both.Go(func() { l.carry(p, Backward) })
	both.Wait()
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	at    time.Time
}

// carry moves one direction until either end closes.
func (l *Link) carry(p *pair, d Direction) {
	from, to := p.ends[d], p.ends[1-d]
	queue := make(chan chunk, 64)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{buf[:n], time.Now()}:
				case <-p.gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range queue {
		if !l.late(p, d, c.at) || !l.pass(p, d) {
			break
		}
		l.mu.Lock()
		l.carried[d] += int64(len(c.bytes))
		l.mu.Unlock()
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	p.close()
	reader.Wait()
}

// pass waits until a direction is not cut; false when the connection is gone.
func (l *Link) pass(p *pair, d Direction) bool {
	for {
		l.mu.Lock()
		open, change := !l.cut[d], l.change
		l.mu.Unlock()
		if open {
			select {
			case <-p.gone:
				return false
			default:
				return true
			}
		}
		select {
		case <-change:
		case <-p.gone:
			return false
		}
	}
}

// late waits until what was read at at is due.
func (l *Link) late(p *pair, d Direction, at time.Time) bool {
	for {
		l.mu.Lock()
		left, change := l.delay[d]-time.Since(at), l.change
		l.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-change:
			timer.Stop()
		case <-p.gone:
			timer.Stop()
			return false
		}
	}
}
