package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

const (
	// staleAfter is the age from which on the copy counts as stale. Control
	// servers send a heartbeat each second.
	staleAfter = 5 * time.Second
	// silentAfter ends a stream that brings nothing.
	silentAfter = 4 * time.Second
	// firstRetry and lastRetry bound the wait before another server is tried,
	// doubled and jittered.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// follow follows the directory until ctx ends.
func (p *Proxy) follow(ctx context.Context) {
	for n, wait := 0, firstRetry; ctx.Err() == nil && len(p.control.servers) > 0; n++ {
		began := time.Now()
		err := p.followServer(ctx, p.control.servers[n%len(p.control.servers)].base)
		if time.Since(began) > lastRetry {
			wait = firstRetry
		}
		if ctx.Err() == nil {
			p.cfg.Logger.Debug("the directory's stream ended", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, lastRetry)
	}
}

func (p *Proxy) followServer(ctx context.Context, base string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silentAfter, cancel)
	defer watchdog.Stop()
	since := fsm.Revision(0)
	if t := p.dir.table(); t != nil {
		since = t.revision
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/_shard/subscribe?since="+strconv.FormatUint(uint64(since), 10), nil)
	if err != nil {
		return err
	}
	if token := p.secrets.Load().Token; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.control.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", base, resp.StatusCode)
	}
	return p.readStream(resp.Body, func() { watchdog.Reset(silentAfter) })
}

func (p *Proxy) readStream(r io.Reader, alive func()) error {
	fr, err := proto.NewFrameReader(r)
	if err != nil {
		return err
	}
	defer fr.Close()
	var from source
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return err
		}
		alive()
		switch f := f.(type) {
		case *proto.Hello:
			from = source{f.Authority, f.History}
			if t := p.dir.table(); t != nil && (t.source.authority != from.authority || t.source.history > from.history) {
				return errors.New("the server keeps another directory, or an older history of it")
			}
		case *proto.Begin:
			if t := p.dir.table(); t != nil && t.source == from && f.Revision < t.revision {
				return errors.New("the server's directory is older than this copy")
			}
			p.dir.begin(f.Revision)
		case *proto.Chunk:
			if err := p.dir.load(f.Events); err != nil {
				return err
			}
		case *proto.End:
			p.dir.end(from)
			p.dir.fresh(time.Now())
		case *proto.Delta:
			if err := p.dir.apply(f.Prev, f.Revision, f.Events); err != nil {
				return err
			}
			p.dir.fresh(time.Now())
		case *proto.Heartbeat:
			if t := p.dir.table(); t != nil && t.revision >= f.Revision {
				p.dir.fresh(time.Now())
			}
		}
	}
}
