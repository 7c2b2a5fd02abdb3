package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// probeTimeout bounds the TCP connect of a probe, so that probes start at
// least twice a second.
const probeTimeout = 500 * time.Millisecond

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
	probe := u.down
	switch {
	case u.closed:
		u.mu.Unlock()
		return nil, ErrClosed
	case u.down && u.probing:
		u.mu.Unlock()
		u.stats.RefusedDown.Add(1)
		return nil, ErrDown
	case u.down:
		u.probing = true
	}
	u.mu.Unlock()
	c, err := u.dial(probe)
	u.settle(probe, err)
	if err != nil {
		return nil, err
	}
	c.apart = true
	return c, nil
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
	if probe {
		u.probing = false
	}
	if err == nil {
		wasDown := u.upLocked()
		u.mu.Unlock()
		if wasDown && u.cfg.OnUp != nil {
			u.cfg.OnUp(u)
		}
		return
	}
	if ourFault(err) {
		u.mu.Unlock()
		return
	}
	u.downAndUnlock(err)
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
		u.downAndUnlock(err)
	}
}

// upLocked marks the node as up and tells whether it was down.
func (u *Upstream) upLocked() bool {
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
	if !u.prober {
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

// probe is the prober: it tries to connect until the node is up again. A
// request may be the probe in its place.
func (u *Upstream) probe() {
	defer u.probers.Done()
	tick := time.NewTicker(u.cfg.ProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-u.stop:
			return
		case <-tick.C:
		}
		u.mu.Lock()
		if !u.down || u.closed {
			u.prober = false
			u.mu.Unlock()
			return
		}
		if u.probing {
			u.mu.Unlock()
			continue
		}
		u.probing = true
		u.open++
		u.mu.Unlock()
		if c, err := u.connect(true); err == nil {
			u.put(c, 0)
		}
	}
}
