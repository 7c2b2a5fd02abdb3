package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

const (
	// probeTimeout bounds the TCP connect of a probe, so that probes start at
	// least twice a second.
	probeTimeout = 500 * time.Millisecond
	// probeWait is how long the request that starts a probe waits for what it finds, where
	// the last one was refused: whoever refuses a connection, or takes it, says so at once.
	probeWait = 50 * time.Millisecond
)

// connect makes a connection for which a place in open was taken, and keeps
// the node's state by its outcome.
func (u *Upstream) connect(probe bool) (*upConn, error) {
	c, err := u.dial(probe)
	u.settle(probe, err)
	if err != nil {
		u.leave()
		return nil, err
	}
	return c, nil
}

// getApart makes a connection for an upgrade, outside of the pool.
func (u *Upstream) getApart() (*upConn, error) {
	u.mu.Lock()
	switch {
	case u.closed:
		u.mu.Unlock()
		return nil, ErrClosed
	case u.down:
		if !u.probedLocked() {
			return nil, ErrDown
		}
	default:
		u.mu.Unlock()
	}
	c, err := u.dial(false)
	u.settle(false, err)
	if err != nil {
		return nil, err
	}
	c.apart = true
	return c, nil
}

// probedLocked has it found out for a request whether the upstream, which is down, is back,
// and tells whether it is known to be by now. The request that finds no probe under way
// starts one; it waits for its outcome only where that is to be expected in a moment, so
// that nobody waits for a node or a region that is silent (G9). It unlocks.
func (u *Upstream) probedLocked() bool {
	if u.probing {
		u.mu.Unlock()
		u.stats.RefusedDown.Add(1)
		return false
	}
	u.probing = true
	probed := make(chan struct{})
	u.probed = probed
	refuses := u.refuses
	u.mu.Unlock()
	u.wakeProber()
	if refuses {
		t := time.NewTimer(u.probeWait)
		defer t.Stop()
		select {
		case <-probed:
		case <-t.C:
		case <-u.stop:
		}
	}
	if u.Up() {
		return true
	}
	u.stats.RefusedDown.Add(1)
	return false
}

func (u *Upstream) wakeProber() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *Upstream) dial(probe bool) (*upConn, error) {
	u.stats.Dials.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), u.cfg.ConnectTimeout)
	defer cancel()
	d := net.Dialer{
		Timeout:         u.cfg.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 3 * time.Second, Count: 3},
	}
	if probe {
		d.Timeout = min(d.Timeout, probeTimeout)
	}
	nc, err := d.DialContext(ctx, "tcp", u.cfg.Addr)
	if err != nil {
		u.stats.DialErrors.Add(1)
		return nil, err
	}
	secure := u.cfg.TLS != nil
	if secure {
		if nc, err = u.handshake(ctx, nc); err != nil {
			u.stats.DialErrors.Add(1)
			return nil, err
		}
	}
	c := &upConn{up: u}
	c.init(nc, secure)
	c.boundUnacked(3 * u.cfg.ConnectTimeout)
	u.stats.Open.Add(1)
	return c, nil
}

func (u *Upstream) handshake(ctx context.Context, nc net.Conn) (net.Conn, error) {
	cfg := u.cfg.TLS
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(u.cfg.Addr) // checked by NewUpstream
	}
	t := tls.Client(nc, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return t, nil
}

// settle takes in how a connect ended.
func (u *Upstream) settle(probe bool, err error) {
	u.mu.Lock()
	if err == nil {
		wasDown := u.upLocked()
		u.mu.Unlock()
		if wasDown && u.cfg.OnUp != nil {
			u.cfg.OnUp(u)
		}
		return
	}
	if probe {
		u.endProbeLocked()
	}
	if ourFault(err) {
		u.mu.Unlock()
		return
	}
	u.refuses = errors.Is(err, syscall.ECONNREFUSED)
	u.downAndUnlock(err)
}

// endProbeLocked lets go whoever waits for the outcome of a probe.
func (u *Upstream) endProbeLocked() {
	u.probing = false
	if u.probed != nil {
		close(u.probed)
		u.probed = nil
	}
}

// ourFault tells errors that say nothing about the node.
func ourFault(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENOBUFS)
}

// broken takes in how a connection in use failed: where the kernel gave it up
// because nothing came through, the node is down until a connect succeeds.
func (u *Upstream) broken(err error) {
	u.stats.Errors.Add(1)
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		u.mu.Lock()
		u.refuses = false
		u.downAndUnlock(err)
	}
}

// upLocked marks the node as up and tells whether it was down. Any connect answers what
// a probe would.
func (u *Upstream) upLocked() bool {
	defer u.endProbeLocked()
	if !u.down {
		return false
	}
	u.down = false
	u.up.Store(true)
	u.log.Info("node reachable again", "node", u.cfg.Name, "addr", u.cfg.Addr)
	return true
}

// downAndUnlock marks the node as down and starts the prober. Whoever waits for
// a connection gets none.
func (u *Upstream) downAndUnlock(err error) {
	if u.down || u.closed {
		u.mu.Unlock()
		return
	}
	u.down = true
	u.up.Store(false)
	u.stats.Downs.Add(1)
	idle := u.takeIdleLocked()
	waiting := u.waiting
	u.waiting = nil
	switch {
	case u.watched.Load():
		u.wakeProber()
	case !u.prober:
		u.prober = true
		u.probers.Add(1)
		go u.probe()
	}
	u.mu.Unlock()
	u.log.Warn("node unreachable", "node", u.cfg.Name, "addr", u.cfg.Addr, "err", err)
	for _, w := range waiting {
		close(w)
	}
	closeAll(idle)
}

// probe is the prober of what is not watched: it tries to connect, every ProbeEvery and
// when a request asks for it, until the upstream is up again.
func (u *Upstream) probe() {
	defer u.probers.Done()
	tick := time.NewTicker(u.cfg.ProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-u.stop:
			return
		case <-tick.C:
		case <-u.wake:
		}
		u.mu.Lock()
		if !u.down || u.closed || u.watched.Load() {
			u.prober = false
			u.mu.Unlock()
			return
		}
		u.probing = true
		u.open++
		u.mu.Unlock()
		if c, err := u.connect(true); err == nil {
			u.put(c, 0)
		}
	}
}
