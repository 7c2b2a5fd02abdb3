package proxy

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// cacheEvery is the least time between two writings of the cache, and
	// cacheShare the least ratio of that time to what a writing took: a large
	// directory is written less often.
	cacheEvery = time.Second
	cacheShare = 50
)

// readCache takes the directory of the cache file, if there is one that may be taken: one
// that cannot be used is logged and ignored.
func (d *directory) readCache(may func(*table) error) {
	if d.cache == "" {
		return
	}
	t, asOf, err := loadCache(d.cache, d.newEdit())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = may(t)
	}
	if err != nil {
		d.log.Warn("cached directory ignored", "file", d.cache, "err", err)
		return
	}
	d.cachedAt = asOf
	d.publish(t, nil, true)
	d.log.Info("cached directory loaded", "file", d.cache, "revision", t.position.Revision, "age", d.age(time.Now()))
}

// keepCache writes the directory to the cache file, which holds saved: the first one
// at once, then where it has changed, at most every cacheEvery, and once more at the end.
func (d *directory) keepCache(ctx context.Context, saved *table) {
	save := func() time.Duration {
		t := d.table()
		if t == saved {
			return 0
		}
		began := time.Now()
		if err := saveCache(d.cache, t, began.Add(-d.age(began))); err != nil {
			d.log.Warn("the directory was not written to the cache", "file", d.cache, "err", err)
		} else {
			saved = t
		}
		return max(cacheEvery, cacheShare*time.Since(began))
	}
	for {
		changed := d.next()
		wait := time.NewTimer(save())
		select {
		case <-ctx.Done():
			wait.Stop()
			save()
			return
		case <-wait.C:
		}
		select {
		case <-ctx.Done():
			save()
			return
		case <-changed:
		}
	}
}
