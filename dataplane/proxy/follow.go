package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"domicile/proto"
	"domicile/proto/follow"
)

const (
	// staleAfter is the age from which on the copy of the directory counts as
	// stale. Control servers send a heartbeat each second.
	staleAfter = 5 * time.Second
	// ageEvery is how often the age is looked at, to log when it passes that.
	ageEvery = time.Second
)

// newFollower follows the control servers for d: the proxy's own directory or, by name, the
// copy of the global one that they have.
func (p *Proxy) newFollower(d *directory, name string) (*follow.Client, error) {
	cfg := follow.Config{
		URLs: p.control.bases, Directory: name,
		Token: func() string { return p.secrets.Load().Token },
		HTTP:  p.control.client, Sink: d, Logger: d.log,
	}
	if t := d.table(); t != nil {
		cfg.From = t.position
	}
	return follow.New(cfg)
}

// follow follows both directories until ctx ends, and tells of staleness: the global one
// once the proxy's own is that of a region.
func (p *Proxy) follow(ctx context.Context) {
	own := p.dir.follower.Load()
	if own == nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.dir.follow(ctx, own) })
	if p.isRegions(ctx) {
		global, err := p.newFollower(p.global, proto.GlobalScope)
		if err != nil {
			panic("BUG: the addresses were taken before: " + err.Error())
		}
		p.global.follower.Store(global)
		wg.Go(func() { p.global.follow(ctx, global) })
	}
	wg.Wait()
}

// isRegions waits until the proxy's own directory says whose it is, and tells whether it
// is a region's.
func (p *Proxy) isRegions(ctx context.Context) bool {
	for {
		changed := p.dir.next()
		if t := p.dir.table(); t != nil {
			return t.own != ""
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (d *directory) follow(ctx context.Context, from *follow.Client) {
	var wg sync.WaitGroup
	wg.Go(func() { d.watchAge(ctx) })
	if err := from.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		d.log.Error("the directory is no longer followed", "err", err)
	}
	wg.Wait()
}

// heard is when a follower has last heard of the directory; zero before that.
func (d *directory) heard() time.Time {
	if f := d.follower.Load(); f != nil {
		return f.Heard()
	}
	return time.Time{}
}

// age is how long ago the table was known to be the newest: by the leader's word, which
// frames of the stream bring, or, before the first one, by the cache. 0 without a table.
func (d *directory) age(now time.Time) time.Duration {
	at := d.cachedAt
	if heard := d.heard(); heard.After(at) {
		at = heard
	}
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}

// isStale tells whether a copy of that age is worth a word, since it is followed for
// that long. A cached one is old by nature: only where no server is heard for a while it
// is news.
func (d *directory) isStale(age, followed time.Duration) bool {
	return age > staleAfter && (followed >= staleAfter || !d.heard().IsZero())
}

// outOfTouch tells whether t is a copy of a directory that was not heard of for staleAfter:
// no news of a failover is to be waited for.
func (p *Proxy) outOfTouch(t *table) bool {
	d := p.copyOf(t.position.Authority)
	return d != nil && d.age(time.Now()) > staleAfter
}

// watchAge logs when the copy becomes stale and when it is current again.
func (d *directory) watchAge(ctx context.Context) {
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	began := time.Now()
	for stale := false; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t := d.table()
			if t == nil {
				continue
			}
			switch age := d.age(now); {
			case d.isStale(age, now.Sub(began)) && !stale:
				stale = true
				d.log.Warn("directory is stale: requests are forwarded by it all the same", "revision", t.position.Revision, "age", age)
			case age <= staleAfter && stale:
				stale = false
				d.log.Info("directory is current again", "revision", t.position.Revision)
			}
		}
	}
}
