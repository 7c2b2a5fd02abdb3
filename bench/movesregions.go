package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// oneWay is how long bytes take from one region to the other.
const oneWay = 25 * time.Millisecond

// regions moves a tenant between two regions of one directory. Control servers, proxy
// and clients are in the first: once links delay what passes between the regions' nodes
// alone, and once everything that passes between the regions.
func (b *movesBench) regions(ctx context.Context) error {
	dir := b.dir
	for _, all := range []bool{false, true} {
		b.dir = filepath.Join(dir, fmt.Sprint(all))
		if err := b.regionsOnce(ctx, all); err != nil {
			return err
		}
	}
	return nil
}

func (b *movesBench) regionsOnce(ctx context.Context, all bool) error {
	const mb = 64
	regions := []string{"eu", "eu", "us", "us"}
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: len(regions), regions: regions, cuts: true, lease: 3 * time.Second})
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
	for i := range regions {
		for j := range regions {
			if regions[i] != regions[j] {
				c.cuts.delay(nodeID(i), nodeID(j), oneWay)
			}
		}
		if all && regions[i] != regions[0] {
			c.cuts.delay("", nodeID(i), oneWay)
			for n := range c.controls {
				c.cuts.delay(nodeID(i), controlID(n), oneWay)
			}
		}
	}
	writes, reads := c.startLoad(ctx, 0, "w", b.rate, true), c.startLoad(ctx, 0, "r", readsPerSecond, false)
	defer writes.stop()
	defer reads.stop()
	var out, back pauseRuns
	for range max(1, b.runs/2) {
		for _, way := range []struct {
			to     int
			region string
			runs   *pauseRuns
		}{{2, "us", &out}, {0, "eu", &back}} {
			r, err := c.pauseOnce(ctx, writes, reads, way.to, way.region)
			if err != nil {
				return fmt.Errorf("to %s: %w", way.region, err)
			}
			*way.runs = append(*way.runs, r)
		}
	}
	what := "between the regions' nodes"
	if all {
		what = "between the regions; control servers and proxy in the first"
	}
	b.row(fmt.Sprintf("%v each way, one round trip %v ms, %s", oneWay, millis(2*oneWay), what), "", "")
	b.pauseRows("64 MB to the other region", out, "")
	b.pauseRows("64 MB and back", back, "")
	lost, err := b.tally(ctx, writes, reads)
	b.row("failed / lost / doubled", lost, "0 / 0 / 0")
	return err
}
