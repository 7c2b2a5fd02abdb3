package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"
)

// drains empties a node of many tenants, with copies and without.
func (b *movesBench) drains(ctx context.Context) error {
	dir := b.dir
	for _, replicas := range []int{1, 0} {
		b.dir = filepath.Join(dir, fmt.Sprint(replicas))
		if err := b.drain(ctx, replicas); err != nil {
			return fmt.Errorf("%d replicas: %w", replicas, err)
		}
	}
	return nil
}

func (b *movesBench) drain(ctx context.Context, replicas int) error {
	const clients, perSecond = 50, 10
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: 3, lease: 3 * time.Second, controlArgs: []string{"--replicas", fmt.Sprint(replicas)}})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.create(ctx, b.tenants, 0); err != nil {
		return err
	}
	if err := c.awaitReplicated(ctx); err != nil {
		return err
	}
	loads := c.loads(ctx, min(clients, b.tenants), b.tenants, perSecond)
	defer loads.stop()
	time.Sleep(time.Second) // each is under way
	_, api, err := c.leader(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := c.ask(ctx, http.MethodPost, api+"/_shard/nodes/"+nodeID(0)+"/drain", ""); err != nil {
		return err
	}
	var primaries time.Duration
	err = await(ctx, "the node is not drained", 10*time.Minute, func() error {
		data, err := c.ask(ctx, http.MethodGet, api+"/_shard/nodes/"+nodeID(0)+"/drain", "")
		var d struct {
			State           string
			Primaries, Left int
		}
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err == nil && d.Primaries == 0 && primaries == 0 {
			primaries = time.Since(begin)
		}
		if err == nil && d.State != "drained" {
			err = fmt.Errorf("%s", data)
		}
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	if primaries == 0 {
		primaries = took
	}
	b.row(fmt.Sprintf("drain of a node with %d tenants, replicas %d: no primary is left after / drained after, s", b.tenants, replicas),
		short(primaries.Seconds())+" / "+short(took.Seconds()), "")
	what, worst, err := b.tallyAll(ctx, loads, begin)
	b.row(fmt.Sprintf("%d tenants written %d times a second each meanwhile: the longest write, ms", len(loads), perSecond), worst, "")
	b.row("failed / lost / doubled", what, "0 / 0 / 0")
	return err
}

// many moves a hundred tenants at once.
func (b *movesBench) many(ctx context.Context) error {
	const tenants, perSecond = 100, 5
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: 3, lease: 3 * time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.create(ctx, tenants, 0); err != nil {
		return err
	}
	if err := c.awaitReplicated(ctx); err != nil {
		return err
	}
	loads := c.loads(ctx, tenants, tenants, perSecond)
	defer loads.stop()
	time.Sleep(time.Second)
	_, api, err := c.leader(ctx)
	if err != nil {
		return err
	}
	ids, errs := make([]string, tenants), make([]error, tenants)
	begin := time.Now()
	var wg sync.WaitGroup
	for t := range tenants {
		wg.Go(func() { ids[t], errs[t] = c.beginMove(ctx, api, t) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var last time.Duration
	for t := range tenants {
		err := await(ctx, "a move is not done", 5*time.Minute, func() error {
			data, err := c.ask(ctx, http.MethodGet, api+"/_shard/moves/"+ids[t], "")
			var job struct{ Step, Outcome string }
			if err == nil {
				err = json.Unmarshal(data, &job)
			}
			switch {
			case err != nil:
				return err
			case job.Outcome != "" && job.Outcome != "done":
				return fmt.Errorf("it is %s: %s", job.Outcome, data)
			case job.Step == "cleaning" || job.Step == "done":
				return nil
			}
			return fmt.Errorf("it is at %s", job.Step)
		})
		if err != nil {
			return err
		}
		last = time.Since(begin)
	}
	b.row(fmt.Sprintf("%d moves at once to nodes without a copy: all tenants are written at their new nodes after, s", tenants), short(last.Seconds()), "")
	what, worst, err := b.tallyAll(ctx, loads, begin)
	b.row(fmt.Sprintf("each is written %d times a second meanwhile: the longest write, ms", perSecond), worst, "")
	b.row("failed / lost / doubled", what, "0 / 0 / 0")
	return err
}

// beginMove moves a tenant to a node that holds nothing of it, and does not wait.
func (c *copyCluster) beginMove(ctx context.Context, api string, tenant int) (id string, err error) {
	to, err := c.other(ctx, tenant, false)
	if err != nil {
		return "", err
	}
	data, err := c.ask(ctx, http.MethodPost, api+"/_shard/tenants/"+tenantName(tenant)+"/move", fmt.Sprintf(`{"to":%q,"wait":false}`, nodeID(to)))
	var job struct{ ID json.Number }
	if err == nil {
		err = json.Unmarshal(data, &job)
	}
	return job.ID.String(), err
}

type loads []*openLoad

// loads begins writes to some of the tenants, evenly chosen.
func (c *copyCluster) loads(ctx context.Context, some, tenants, perSecond int) (l loads) {
	for i := range some {
		l = append(l, c.startLoad(ctx, i*tenants/some, "w", perSecond, true))
	}
	return l
}

func (l loads) stop() {
	for _, one := range l {
		one.stopped()
	}
	for _, one := range l {
		one.wg.Wait()
	}
}

// tallyAll stops loads, adds up what went wrong, and gives the slowest write of each
// tenant since then: the median of all tenants, and the worst.
func (b *movesBench) tallyAll(ctx context.Context, l loads, since time.Time) (what, worst string, err error) {
	l.stop()
	var failed, lost, doubled, sent int
	var slow sample
	for _, one := range l {
		gone, twice, err := one.tally(ctx)
		if err != nil {
			return "", "", err
		}
		failed, lost, doubled, sent = failed+one.failed, lost+gone, doubled+twice, sent+one.sent
		slow = append(slow, millis(slowest(one.since(since))))
	}
	b.bad += failed + lost + doubled
	return fmt.Sprintf("%d / %d / %d of %d writes", failed, lost, doubled, sent), slow.spread() + " (p50 / p99 / worst of the tenants)", nil
}
