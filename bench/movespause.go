package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	readsPerSecond = 200
	// around is how much of the time before and after a flip its pause is looked for in.
	around = 100 * time.Millisecond
)

// pauseRun is what a client of a tenant sees of one move.
type pauseRun struct {
	pause, told   float64 // ms: between two acknowledged writes around the flip; as the job says
	write, read   float64 // ms: the slowest around the flip, from when it was due
	copying, took float64 // ms: the longest time between two acknowledged writes before the flip; the move
}

type pauseRuns []pauseRun

func (p pauseRuns) of(f func(pauseRun) float64) (s sample) {
	for _, r := range p {
		s = append(s, f(r))
	}
	return s
}

// pauses moves one tenant of each size to and fro under load.
func (b *movesBench) pauses(ctx context.Context) error {
	dir := b.dir
	for _, mb := range b.sizes {
		b.dir = filepath.Join(dir, fmt.Sprint(mb))
		if err := b.pauseOf(ctx, mb); err != nil {
			return fmt.Errorf("%d MB: %w", mb, err)
		}
		_ = os.RemoveAll(b.dir)
	}
	return nil
}

// pauseOf moves a tenant to nodes that hold nothing of it, and then to its copy.
func (b *movesBench) pauseOf(ctx context.Context, mb int64) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: 3, lease: 3 * time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.create(ctx, 1, 0); err != nil {
		return err
	}
	if err := c.fill(ctx, 0, mb<<20); err != nil {
		return err
	}
	if err := c.awaitReplicated(ctx); err != nil {
		return err
	}
	writes, reads := c.startLoad(ctx, 0, "w", b.rate, true), c.startLoad(ctx, 0, "r", readsPerSecond, false)
	defer writes.stop()
	defer reads.stop()
	quiet, err := quietGaps(ctx, writes, 10)
	if err != nil {
		return err
	}
	for _, kind := range []string{"to a node without a copy", "to the copy"} {
		var all pauseRuns
		for run := range b.runs {
			to, err := c.other(ctx, 0, kind == "to the copy")
			if err != nil {
				return err
			}
			r, err := c.pauseOnce(ctx, writes, reads, to, "")
			if err != nil {
				return fmt.Errorf("move %d %s: %w", run, kind, err)
			}
			all = append(all, r)
		}
		b.pauseRows(fmt.Sprintf("%d MB %s", mb, kind), all, "≤ 15 / ≤ 50 / –")
	}
	b.row(fmt.Sprintf("%d MB: between two acknowledged writes with no move, ms", mb), quiet.spread(), "")
	what, err := b.tally(ctx, writes, reads)
	b.row(fmt.Sprintf("%d MB: failed / lost / doubled", mb), what, "0 / 0 / 0")
	return err
}

func (b *movesBench) pauseRows(name string, all pauseRuns, reach string) {
	b.row(fmt.Sprintf("%s, %d moves: between two acknowledged writes, ms", name, len(all)), all.of(func(r pauseRun) float64 { return r.pause }).spread(), reach)
	b.row("the job's own pause_ms", all.of(func(r pauseRun) float64 { return r.told }).spread(), "")
	b.row("the slowest write / read meanwhile, ms",
		all.of(func(r pauseRun) float64 { return r.write }).spread()+" and "+all.of(func(r pauseRun) float64 { return r.read }).spread(), "")
	b.row("between two acknowledged writes before that, while it copies, ms", all.of(func(r pauseRun) float64 { return r.copying }).spread(), "")
	b.row("the move until it is written at its new node, ms", all.of(func(r pauseRun) float64 { return r.took }).spread(), "")
}

// quietGaps are the longest times between two acknowledged writes in spans as long as
// those in which pauses are looked for.
func quietGaps(ctx context.Context, writes *openLoad, count int) (s sample, err error) {
	begin := time.Now()
	const span = 2 * around
	select {
	case <-time.After(span * time.Duration(count+1)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	all := writes.since(begin)
	for i := range count {
		from := begin.Add(span/2 + time.Duration(i)*span)
		s = append(s, millis(longestGap(between(all, from, from.Add(span)))))
	}
	return s, nil
}

// pauseOnce moves the tenant of a load to a node of the cluster and looks at what its
// clients saw.
func (c *copyCluster) pauseOnce(ctx context.Context, writes, reads *openLoad, to int, region string) (r pauseRun, err error) {
	move := func() (moved, error) { return c.move(ctx, writes.tenant, to, region) }
	return pauseOf(ctx, writes, reads, move, func(m moved) error { return c.awaitMoved(ctx, m) })
}

// pauseOf does so with any move; done waits until nothing is left of it.
func pauseOf(ctx context.Context, writes, reads *openLoad, move func() (moved, error), done func(moved) error) (r pauseRun, err error) {
	time.Sleep(around)
	begin := time.Now()
	m, err := move()
	if err != nil {
		return r, err
	}
	var all []answered
	var flip time.Time
	err = await(ctx, "no write is acknowledged on both sides of the move", 20*time.Second, func() error {
		all = writes.since(begin.Add(-around))
		var ok bool
		if flip, ok = flipIn(all); !ok || time.Since(flip) < 4*around {
			return fmt.Errorf("%d writes were acknowledged", len(all))
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	last := all[slices.IndexFunc(all, func(a answered) bool { return a.at.Equal(flip) })-1].at
	near := between(all, minTime(last, flip.Add(-around)), flip.Add(around))
	met := func(all []answered) float64 { return millis(slowest(overlapping(all, near[0].at, flip.Add(around)))) }
	r = pauseRun{pause: millis(longestGap(near)), told: m.PauseMS, took: float64(m.MS),
		write: met(all), read: met(reads.since(begin.Add(-around))),
		copying: millis(longestGap(between(all, begin, flip.Add(-around))))}
	return r, done(m)
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
