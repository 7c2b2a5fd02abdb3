package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// cutOff cuts the node of all tenants off, again and again, while one client
// writes to it directly and one client of each of some tenants through the proxy. With
// --ack primary, so that nothing but the lease stops the node.
func (b *failoverBench) cutOff(ctx context.Context, o copyOptions, tenants, clients, runs int, reach string) error {
	paused := tenants > 100 // links for so many connections would cost more than what is measured
	o.controls, o.cuts, o.nodeArgs = 3, !paused, []string{"--ack", "primary"}
	lease := o.lease
	c, err := startCopies(ctx, b.bin, b.dir, o)
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.createInSync(ctx, tenants, 0); err != nil {
		return err
	}
	c.leaveGlobal()
	var stopped, again, first, margin sample
	inOrder := 0
	for run := range runs {
		r, err := c.cutOnce(ctx, run%2, tenants, clients, run)
		if err != nil {
			return fmt.Errorf("run %d: %w", run, err)
		}
		stopped = append(stopped, seconds(r.lastOld))
		again, first = append(again, seconds(r.lastNew)), append(first, seconds(r.firstNew))
		margin = append(margin, millis(r.margin))
		if r.margin > 0 {
			inOrder++
		}
		if err := c.awaitSync(ctx, tenants, 1-run%2); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("lease %v, %d tenants: ", lease, tenants)
	if paused {
		b.row(name+fmt.Sprintf("of a node that is paused %d write again, all at once, after, s", clients), again.String(), reach)
		return nil
	}
	b.row(name+"the node that is cut off acknowledges its last write after, s", stopped.String(), "")
	b.row(name+"it stopped before any other started", fmt.Sprintf("%d of %d (%s ms before)", inOrder, runs, margin), "all")
	b.row(name+"the first tenant writes again after, s", first.String(), "")
	b.row(name+"all tenants write again after, s", again.String(), reach)
	return nil
}

// cutRun are times since the cut. Margin is between the last write that the old
// node acknowledged and the first of the same tenant that the new one did, the
// least of all tenants.
type cutRun struct {
	lastOld, firstNew, lastNew, margin time.Duration
}

func (c *copyCluster) cutOnce(ctx context.Context, node, tenants, writers, run int) (r cutRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	old := make([]ack, tenants)
	for t := range tenants {
		if old[t], err = c.writeAtLast(ctx, t); err != nil {
			return r, err
		}
	}
	epochs := make([]string, tenants)
	for t := range old {
		epochs[t] = old[t].epoch
	}
	stopDirect := c.writeDirect(ctx, node, epochs, old)
	time.Sleep(100 * time.Millisecond) // load is under way
	cut := time.Now()
	c.isolate(node)
	renewed := make([]ack, tenants)
	var missing atomic.Int64
	var clients sync.WaitGroup
	for i := range writers {
		t := i * tenants / writers
		clients.Go(func() {
			a, ok := c.firstNew(ctx, t, epochs[t], fmt.Sprintf("r%d-%d", run, t))
			if ok {
				renewed[t] = a
				return
			}
			missing.Add(1)
		})
	}
	clients.Wait()
	stopDirect()
	c.heal(node)
	if n := missing.Load(); n > 0 {
		return r, fmt.Errorf("%d of %d tenants were not written again within 30 s", n, tenants)
	}
	r.margin, r.firstNew = time.Hour, time.Hour
	for i := range writers {
		t := i * tenants / writers
		r.lastOld = max(r.lastOld, old[t].at.Sub(cut))
		r.firstNew = min(r.firstNew, renewed[t].at.Sub(cut))
		r.lastNew = max(r.lastNew, renewed[t].at.Sub(cut))
		r.margin = min(r.margin, renewed[t].at.Sub(old[t].at))
	}
	return r, nil
}

// writeAtLast writes until a write is acknowledged: a short lease may run out by itself
// on a machine that others use too.
func (c *copyCluster) writeAtLast(ctx context.Context, tenant int) (a ack, err error) {
	err = await(ctx, "no write is acknowledged", 10*time.Second, func() (err error) {
		a, err = c.write(ctx, c.proxyURL, tenant, "")
		return err
	})
	return a, err
}

// writeDirect has a client write to the node itself, tenant after tenant, and note what
// is acknowledged in the epochs given, until stop is called. A node that is paused
// (copyCluster without cuts) answers nobody.
func (c *copyCluster) writeDirect(ctx context.Context, node int, epochs []string, acked []ack) (stop func()) {
	if c.cuts == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for t := 0; ctx.Err() == nil; t = (t + 1) % len(epochs) {
			if a, err := c.write(ctx, c.direct[node], t, ""); err == nil && a.epoch == epochs[t] {
				acked[t] = a
			}
			<-pace.C
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// firstNew is a client of one tenant: it writes through the proxy, the next when the
// last was answered, until one is acknowledged in a newer epoch: by another primary.
func (c *copyCluster) firstNew(ctx context.Context, tenant int, epoch, key string) (a ack, ok bool) {
	for n := 0; ctx.Err() == nil; n++ {
		a, err := c.write(ctx, c.proxyURL, tenant, fmt.Sprintf("%s-%d", key, n))
		if err == nil && a.epoch != epoch {
			return a, true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return a, false
}

// byHand fails a node that answers over, there and back.
func (b *failoverBench) byHand(ctx context.Context, tenants int) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, lease: time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.createInSync(ctx, tenants, 0); err != nil {
		return err
	}
	_, api, err := c.leader(ctx)
	if err != nil {
		return err
	}
	var took, entries sample
	for run := range b.runs {
		before, err := c.index(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if _, err := c.ask(ctx, http.MethodPost, api+"/_shard/nodes/"+nodeID(run%2)+"/failover", ""); err != nil {
			return err
		}
		took = append(took, millis(time.Since(begin)))
		after, err := c.index(ctx)
		if err != nil {
			return err
		}
		entries = append(entries, float64(after-before))
		if err := c.awaitSync(ctx, tenants, 1-run%2); err != nil {
			return err
		}
	}
	syncs, err := diskSync(b.dir)
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("failover by hand of a node that answers, %d tenants, ms", tenants), took.String(), "≤ 20 ms")
	b.row("entries of the log meanwhile", entries.String(), "")
	b.row("one fdatasync of this disk, ms", syncs.String(), "")
	return nil
}

// cleanStop ends a node with SIGTERM under load through the proxy.
func (b *failoverBench) cleanStop(ctx context.Context, tenants int) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, lease: time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.createInSync(ctx, tenants, 0); err != nil {
		return err
	}
	var requests, failed atomic.Int64
	var worst atomic.Int64
	var stops sample
	times := min(b.runs, 4)
	for run := range times {
		load, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for client := range 16 {
			wg.Go(func() {
				for n := client; load.Err() == nil; n += 7 {
					time.Sleep(20 * time.Millisecond) // a paced client
					begin := time.Now()
					_, err := c.write(ctx, c.proxyURL, n%tenants, "")
					requests.Add(1)
					if err != nil && failed.Add(1) <= 3 {
						fmt.Fprintln(os.Stderr, "failed:", err)
					}
					for d := int64(time.Since(begin)); d > worst.Load(); {
						worst.Store(d)
					}
				}
			})
		}
		time.Sleep(500 * time.Millisecond) // load is under way
		begin := time.Now()
		c.nodes[run%2].stop()
		stops = append(stops, millis(time.Since(begin)))
		time.Sleep(500 * time.Millisecond)
		end()
		wg.Wait()
		if err := c.startNode(ctx, run%2); err != nil {
			return err
		}
		if err := c.awaitSync(ctx, tenants, 1-run%2); err != nil {
			return err
		}
	}
	b.row(fmt.Sprintf("clean stop of a node, %d tenants, 16 clients: requests that failed", tenants), fmt.Sprintf("%d of %d, %d stops", failed.Load(), requests.Load(), times), "0")
	b.row("the stop took, ms", stops.String(), "")
	b.row("the longest request, ms", short(millis(time.Duration(worst.Load()))), "")
	if failed.Load() > 0 {
		return fmt.Errorf("%d requests failed", failed.Load())
	}
	return nil
}
