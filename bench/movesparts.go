package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// partNames are what a pause consists of, one after another.
var partNames = []string{
	"the last write is acknowledged → the source is asked to give the tenant up",
	"the source freezes, waits for the target, records it, answers",
	"→ the target is asked to promote (the entry that flips)",
	"the target promotes and answers",
	"→ the target is sent its grant (the entry that confirms)",
	"the target takes the grant and answers",
	"→ a write reaches it (the grant is answered after it counts: less than 0 is possible)",
	"the target writes, waits for its copy and answers",
	"→ the client has the answer",
}

// parts takes the pause of moves apart, by when calls pass in front of nodes.
func (b *movesBench) parts(ctx context.Context) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: 3, lease: 3 * time.Second, tap: newTap()})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.create(ctx, 1, 0); err != nil {
		return err
	}
	if err := c.fill(ctx, 0, 1<<20); err != nil {
		return err
	}
	writes, reads := c.startLoad(ctx, 0, "w", b.rate, true), c.startLoad(ctx, 0, "r", readsPerSecond, false)
	defer writes.stop()
	defer reads.stop()
	parts := make([]sample, len(partNames))
	var pause, across sample
	for range b.runs {
		to, err := c.other(ctx, 0, false)
		if err != nil {
			return err
		}
		begin := time.Now()
		r, err := c.pauseOnce(ctx, writes, reads, to, "")
		if err != nil {
			return err
		}
		at, err := c.partsOf(writes.since(begin), begin, to)
		if err != nil {
			return err
		}
		pause = append(pause, r.pause)
		across = append(across, millis(at[len(partNames)].Sub(at[0])))
		for i := range partNames {
			parts[i] = append(parts[i], millis(at[i+1].Sub(at[i])))
		}
	}
	b.row(fmt.Sprintf("%d moves of 1 MB to a node without a copy, a hop in front of each node: pause, ms", b.runs), pause.spread(), "")
	b.row("between the last write at the source and the first at the target, the sum of:", across.spread(), "")
	for i, name := range partNames {
		b.row(name, parts[i].spread(), "")
	}
	what, err := b.tally(ctx, writes, reads)
	b.row("failed / lost / doubled", what, "0 / 0 / 0")
	return err
}

// partsOf gives the instants between which the parts of a move's pause lie.
func (c *copyCluster) partsOf(all []answered, begin time.Time, to int) (at []time.Time, err error) {
	flip, ok := flipIn(all)
	if !ok {
		return nil, fmt.Errorf("no write was acknowledged on both sides of the move")
	}
	calls := c.tap.since(begin)
	find := func(what string, last bool, f func(tapped) bool) (call tapped) {
		search := slices.IndexFunc[[]tapped]
		if last {
			search = lastIndexFunc
		}
		if i := search(calls, f); i >= 0 {
			return calls[i]
		}
		if err == nil {
			err = fmt.Errorf("no call %s was seen", what)
		}
		return call
	}
	handover := find("handover", true, func(t tapped) bool { return t.path == "handover" && t.ok })
	promote := find("promote", false, func(t tapped) bool {
		return t.path == "promote" && t.node == nodeID(to) && !t.begin.Before(handover.begin)
	})
	grant := find("lease", false, func(t tapped) bool {
		return t.path == "lease" && t.node == nodeID(to) && t.ok && !t.begin.Before(promote.begin) &&
			(bytes.Contains(t.body, []byte(`"add":`)) || bytes.Contains(t.body, []byte(`"primaries":`)))
	})
	write := find("write", true, func(t tapped) bool {
		return t.path == pathWrite && t.node == nodeID(to) && t.ok && !t.end.After(flip)
	})
	last := all[max(0, slices.IndexFunc(all, func(a answered) bool { return a.at.Equal(flip) })-1)].at
	return []time.Time{last, handover.begin, handover.end, promote.begin, promote.end, grant.begin, grant.end, write.begin, write.end, flip}, err
}

func lastIndexFunc(calls []tapped, f func(tapped) bool) int {
	for i, c := range slices.Backward(calls) {
		if f(c) {
			return i
		}
	}
	return -1
}
