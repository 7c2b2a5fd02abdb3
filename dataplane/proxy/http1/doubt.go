package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"syscall"
	"time"
)

const (
	// maxWell bounds the answer to a watcher's question.
	maxWell = 4 << 10
	// askHost is the host that it names: one that no tenant has (it is within no domain).
	askHost = "router"
)

// Doubt has it found out, in the background, whether whoever is at u answers at all
// (UpstreamConfig.AskWell): a connection may be taken, or have been, by what stands before a
// place that cannot be reached. The first one starts the watcher, which asks from then on,
// every ConnectTimeout and when there is doubt, but not where it was answered within
// AskAfter. Without an answer within three quarters of ConnectTimeout u is lost (SetLost), and
// is asked every ProbeEvery until it answers. It does not block.
func (u *Upstream) Doubt() {
	if u.cfg.AskWell == "" || u.sinceWell() < u.cfg.AskAfter {
		return
	}
	if u.watched.Load() {
		u.wakeProber()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.watched.Swap(true) {
		return
	}
	u.probers.Add(1)
	go u.watch()
}

// Well tells whether whoever is at u has answered the watcher just now.
func (u *Upstream) Well() bool { return u.sinceWell() < 2*u.cfg.AskAfter }

// sinceWell is the time since that, by a clock that nobody sets.
func (u *Upstream) sinceWell() time.Duration {
	well := u.well.Load()
	if well == 0 {
		return math.MaxInt64
	}
	return time.Since(u.made) - time.Duration(well)
}

// watch is the watcher.
func (u *Upstream) watch() {
	defer u.probers.Done()
	for {
		began, every := time.Now(), u.cfg.ProbeEvery
		switch err := u.ask(); {
		case err == nil:
			u.well.Store(max(1, int64(time.Since(u.made))))
			every = u.cfg.ConnectTimeout
			if u.SetLost(false) {
				u.log.Info("node answers again", "node", u.cfg.Name, "addr", u.cfg.Addr)
			}
		case errors.Is(err, syscall.ECONNREFUSED) || ourFault(err):
			u.SetLost(false) // it is not silent; what it has begun may be answered
		default:
			u.silent(err)
		}
		t := time.NewTimer(every - time.Since(began))
		select {
		case <-t.C:
		case <-u.wake:
			t.Stop()
		case <-u.stop:
			t.Stop()
			u.hangUp()
			return
		}
	}
}

// silent takes in that whoever is at u does not answer.
func (u *Upstream) silent(err error) {
	select {
	case <-u.stop:
		return
	default:
	}
	if !u.SetLost(true) {
		return
	}
	if u.Up() { // else it is told of already
		u.log.Warn("node does not answer", "node", u.cfg.Name, "addr", u.cfg.Addr, "err", err)
	}
	u.CloseIdle()
	if u.cfg.OnLost != nil {
		u.cfg.OnLost(u)
	}
}

// ask asks once, over the connection that was answered on last, else over a new one, which
// is a probe.
func (u *Upstream) ask() error {
	u.mu.Lock()
	kept := u.asked != nil && !u.down
	u.mu.Unlock()
	if kept {
		err := u.question()
		if err == nil || isTimeout(err) {
			return err
		}
	}
	u.hangUp() // one of before it was down, or that its end has closed
	u.mu.Lock()
	u.probing = true
	u.mu.Unlock()
	c, err := u.dial(true)
	if err != nil {
		u.settle(true, err)
		return err
	}
	c.apart = true
	u.mu.Lock()
	u.asked = c
	closed := u.closed
	u.mu.Unlock()
	if closed {
		u.hangUp()
		return ErrClosed
	}
	u.settle(true, nil)
	return u.question()
}

// hangUp closes the watcher's connection.
func (u *Upstream) hangUp() {
	u.mu.Lock()
	c := u.asked
	u.asked = nil
	u.mu.Unlock()
	if c != nil {
		u.discard(c)
	}
}

// question puts the question on the watcher's connection, which is closed unless it can be
// used again.
func (u *Upstream) question() (err error) {
	u.mu.Lock()
	nc := u.asked.nc
	u.mu.Unlock()
	again := false
	defer func() {
		if !again {
			u.hangUp()
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(u.cfg.ConnectTimeout * 3 / 4)); err != nil {
		return err
	}
	if _, err := io.WriteString(nc, "GET "+u.cfg.AskWell+" HTTP/1.1\r\nHost: "+askHost+"\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(nc, maxWell)), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("http1: it answers %s to %s", answer.Status, u.cfg.AskWell)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	again = err == nil && !answer.Close
	return nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
