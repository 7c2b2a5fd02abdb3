package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// directories moves a tenant to and fro between two regions of which each keeps its own
// directory: on one machine, and then with links that delay everything that passes between
// the two. The global group's server, the clients and the proxy that they ask are in the first.
func (b *movesBench) directories(ctx context.Context) error {
	dir := b.dir
	for _, delay := range []time.Duration{0, oneWay} {
		b.dir = filepath.Join(dir, delay.String())
		if err := b.directoriesOnce(ctx, delay); err != nil {
			return fmt.Errorf("%v each way: %w", delay, err)
		}
	}
	return nil
}

func (b *movesBench) directoriesOnce(ctx context.Context, delay time.Duration) error {
	const mb = 64
	options := func(region string, follows *copyCluster) copyOptions {
		return copyOptions{controls: 3, region: region, follows: follows, cuts: true, named: true, lease: 3 * time.Second}
	}
	eu, err := startCopies(ctx, b.bin, filepath.Join(b.dir, "eu"), options("eu", nil))
	defer eu.stop()
	if err != nil {
		return err
	}
	us, err := startCopies(ctx, b.bin, filepath.Join(b.dir, "us"), options("us", eu))
	defer us.stop()
	if err != nil {
		return err
	}
	if err := eu.create(ctx, 1, 0); err != nil {
		return err
	}
	if err := eu.fill(ctx, 0, mb<<20); err != nil {
		return err
	}
	eu.delayOutside(delay)
	us.delayOutside(delay)
	writes, reads := eu.startLoad(ctx, 0, "w", b.rate, true), eu.startLoad(ctx, 0, "r", readsPerSecond, false)
	defer writes.stop()
	defer reads.stop()
	var out, back pauseRuns
	for range b.runs {
		for _, way := range []struct {
			to     *copyCluster
			region string
			runs   *pauseRuns
		}{{us, "us", &out}, {eu, "eu", &back}} {
			move := func() (moved, error) { return eu.moveHome(ctx, 0, way.region) }
			r, err := pauseOf(ctx, writes, reads, move, func(m moved) error { return way.to.awaitMovedBy(ctx, eu.globalURL, m) })
			if err != nil {
				return fmt.Errorf("to %s: %w", way.region, err)
			}
			*way.runs = append(*way.runs, r)
		}
	}
	b.row(fmt.Sprintf("%v each way between the regions", delay), "", "")
	b.pauseRows("64 MB to the other region", out, "")
	b.pauseRows("64 MB and back", back, "")
	lost, err := b.tally(ctx, writes, reads)
	b.row("failed / lost / doubled", lost, "0 / 0 / 0")
	return err
}

// delayOutside delays everything that comes to the cluster's processes from outside, and what
// is answered.
func (c *copyCluster) delayOutside(oneWay time.Duration) {
	all := []string{globalID, proxyID}
	for i := range c.nodes {
		all = append(all, nodeID(i))
	}
	for i := range c.controls {
		all = append(all, controlID(i))
	}
	for _, process := range all {
		c.cuts.delay("", process, oneWay)
	}
}

// moveHome moves a tenant to another region and waits until it is written there.
func (c *copyCluster) moveHome(ctx context.Context, tenant int, region string) (m moved, err error) {
	data, err := c.ask(ctx, http.MethodPost, c.globalURL+"/_shard/tenants/"+tenantName(tenant)+"/move", fmt.Sprintf(`{"region":%q}`, region))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.To == "" {
		err = fmt.Errorf("the move was not awaited: %s", data)
	}
	return m, err
}
