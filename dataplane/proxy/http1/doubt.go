package http1

import (
	"bytes"
	"errors"
	"io"
	"time"
)

var errNotWell = errors.New("http1: it does not answer 200")

// Doubt has it found out, in the background, whether whoever is at u answers at all
// (UpstreamConfig.AskWell): a connection may be taken, or have been, by what stands before a
// place that cannot be reached. Without an answer within ConnectTimeout u is lost
// (SetLost), and asked again and again until it answers. One question is under way at a
// time, and after an answer the next is put ConnectTimeout later at the earliest.
func (u *Upstream) Doubt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cfg.AskWell == "" || u.closed || u.doubted || time.Since(u.well) < u.cfg.ConnectTimeout {
		return
	}
	u.doubted = true
	u.probers.Add(1)
	go u.findOut()
}

func (u *Upstream) findOut() {
	defer u.probers.Done()
	for {
		err := u.ask()
		if err == nil {
			break
		}
		if u.SetLost(true) {
			u.log.Warn("node does not answer", "node", u.cfg.Name, "addr", u.cfg.Addr, "err", err)
			u.CloseIdle()
		}
		t := time.NewTimer(u.cfg.ProbeEvery)
		select {
		case <-t.C:
		case <-u.stop:
			t.Stop()
			return
		}
	}
	if u.SetLost(false) {
		u.log.Info("node answers again", "node", u.cfg.Name, "addr", u.cfg.Addr)
	}
	u.mu.Lock()
	u.doubted, u.well = false, time.Now()
	u.mu.Unlock()
}

// ask asks once, on a connection of its own.
func (u *Upstream) ask() error {
	deadline := time.Now().Add(u.cfg.ConnectTimeout)
	c, err := u.dial(false)
	if err != nil {
		return err
	}
	c.apart = true
	defer u.discard(c)
	if err := c.nc.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(c.nc, "GET "+u.cfg.AskWell+" HTTP/1.1\r\nHost: "+u.cfg.Addr+"\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	var status [len("HTTP/1.1 200 ")]byte
	if _, err := io.ReadFull(c.nc, status[:]); err != nil {
		return err
	}
	if !bytes.HasPrefix(status[:], []byte("HTTP/1.")) || !bytes.HasSuffix(status[:], []byte(" 200 ")) {
		return errNotWell
	}
	return nil
}
