package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"domicile/proto/follow"
)

const (
	// staleAfter is the age from which on the copy of the directory counts as
	// stale. Control servers send a heartbeat each second.
	staleAfter = 5 * time.Second
	// ageEvery is how often the age is looked at, to log when it passes that.
	ageEvery = time.Second
)

// newFollower follows the control servers; nil without any.
func (p *Proxy) newFollower() (*follow.Client, error) {
	if len(p.control.servers) == 0 {
		return nil, nil
	}
	cfg := follow.Config{
		Token: func() string { return p.secrets.Load().Token },
		HTTP:  p.control.client, Sink: p.dir, Logger: p.cfg.Logger,
	}
	for _, s := range p.control.servers {
		cfg.URLs = append(cfg.URLs, s.base)
	}
	if t := p.dir.table(); t != nil {
		cfg.From = t.position
	}
	return follow.New(cfg)
}

// follow follows the directory until ctx ends, and tells of staleness.
func (p *Proxy) follow(ctx context.Context) {
	if p.follower == nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.watchAge(ctx) })
	if err := p.follower.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.cfg.Logger.Error("the directory is no longer followed", "err", err)
	}
	wg.Wait()
}

// age is how long ago the table was known to be the newest: by the leader's word, which
// frames of the stream bring, or, before the first one, by the cache. 0 without a table.
func (p *Proxy) age(now time.Time) time.Duration {
	at := p.cachedAt
	if p.follower != nil {
		if heard := p.follower.Heard(); heard.After(at) {
			at = heard
		}
	}
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}

// isStale tells whether a copy of that age is worth a word, since it is followed for
// that long. A cached one is old by nature: only where no server is heard for a while it
// is news.
func (p *Proxy) isStale(age, followed time.Duration) bool {
	return age > staleAfter && (followed >= staleAfter || !p.follower.Heard().IsZero())
}

// watchAge logs when the copy becomes stale and when it is current again.
func (p *Proxy) watchAge(ctx context.Context) {
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	began := time.Now()
	for stale := false; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t := p.dir.table()
			if t == nil {
				continue
			}
			switch age := p.age(now); {
			case p.isStale(age, now.Sub(began)) && !stale:
				stale = true
				p.cfg.Logger.Warn("directory is stale: requests are forwarded by it all the same", "revision", t.position.Revision, "age", age)
			case age <= staleAfter && stale:
				stale = false
				p.cfg.Logger.Info("directory is current again", "revision", t.position.Revision)
			}
		}
	}
}
