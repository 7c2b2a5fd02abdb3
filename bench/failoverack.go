package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ack measures writes that wait for the copy beside writes that do not.
func (b *failoverBench) ack(ctx context.Context) error {
	type variant struct {
		sync, ack string
		c         *copyCluster
		rate, cpu map[int]sample
		p50       map[int]sample
	}
	var all []*variant
	for _, s := range []string{"full", "normal"} {
		for _, a := range []string{"primary", "replica"} {
			v := &variant{sync: s, ack: a, rate: map[int]sample{}, cpu: map[int]sample{}, p50: map[int]sample{}}
			var err error
			v.c, err = startCopies(ctx, b.bin, filepath.Join(b.dir, s+a), copyOptions{controls: 1, lease: 3 * time.Second, nodeArgs: []string{"--ack", a, "--sync", s}})
			defer v.c.stop()
			if err != nil {
				return err
			}
			if err := v.c.createInSync(ctx, 1, 0); err != nil {
				return err
			}
			all = append(all, v)
		}
	}
	script := filepath.Join(b.dir, "insert.lua")
	if err := os.WriteFile(script, []byte("wrk.method = \"POST\"\nwrk.body = [==[{\"sql\":\"insert into log (body) values ('a row of a tenant, as long as one is')\"}]==]\n"), 0o600); err != nil {
		return err
	}
	for range 3 {
		for _, clients := range []int{1, 64} {
			for _, v := range all {
				before := cpuOf(v.c.nodes...)
				r, err := wrk(ctx, v.c.direct[0]+"/t/"+tenantName(0)+"/query", clients, b.length, "-s", script)
				if err != nil {
					return err
				}
				v.rate[clients] = append(v.rate[clients], r.perSecond)
				v.p50[clients] = append(v.p50[clients], float64(r.p50.Microseconds()))
				v.cpu[clients] = append(v.cpu[clients], float64((cpuOf(v.c.nodes...)-before).Microseconds())/r.requests)
			}
		}
	}
	var rows [][]string
	for _, clients := range []int{1, 64} {
		for i, v := range all {
			beside := "–"
			if v.ack == "replica" {
				beside = ratio(v.rate[clients], all[i-1].rate[clients]).String()
			}
			rows = append(rows, []string{v.sync, v.ack, fmt.Sprint(clients), v.rate[clients].String(), beside, v.p50[clients].String(), v.cpu[clients].String()})
		}
	}
	syncs, err := diskSync(b.dir)
	if err != nil {
		return err
	}
	b.row("one fdatasync of this disk after 4 KiB, ms", syncs.String(), "")
	table([]string{"--sync", "--ack", "clients", "writes a second", "beside --ack primary", "p50 µs", "CPU µs a write, both nodes"}, rows)
	return nil
}

func cpuOf(procs ...*process) (sum time.Duration) {
	for _, p := range procs {
		d, err := p.cpu()
		if err == nil {
			sum += d
		}
	}
	return sum
}

// lag writes 1,000 times a second with --ack primary and takes, from the nodes'
// streams of changes, when each commit could be seen on the copy, beside when
// the client had the answer and when it could be seen on the primary.
func (b *failoverBench) lag(ctx context.Context) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 1, lease: 3 * time.Second, nodeArgs: []string{"--ack", "primary"}})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.createInSync(ctx, 1, 0); err != nil {
		return err
	}
	if _, err := c.write(ctx, c.direct[0], 0, ""); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var seen [2]map[string]time.Time
	var wg sync.WaitGroup
	for i := range seen {
		seen[i] = map[string]time.Time{}
		wg.Go(func() { c.watch(watching, i, seen[i]) })
	}
	time.Sleep(200 * time.Millisecond) // both streams are open
	writes, took, err := c.paced(ctx, 1000, 2*b.length)
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond) // the last ones arrive
	stop()
	wg.Wait()
	var lags []time.Duration
	for p, at := range seen[0] {
		if there, ok := seen[1][p]; ok {
			lags = append(lags, max(0, there.Sub(at)))
		}
	}
	if len(lags) == 0 {
		return fmt.Errorf("no change was seen on both nodes (%d, %d)", len(seen[0]), len(seen[1]))
	}
	slices.Sort(lags)
	b.row(fmt.Sprintf("seen on the copy after it was on the primary, %.0f transactions a second, p50 / p99, ms (%d seen)", float64(writes)/took.Seconds(), len(lags)),
		short(millis(lags[len(lags)/2]))+" / "+short(millis(lags[len(lags)*99/100])), "≤ 0.3 / ≤ 2 ms")
	return nil
}

// paced has eight clients write together that many times a second.
func (c *copyCluster) paced(ctx context.Context, perSecond int, length time.Duration) (writes int64, took time.Duration, err error) {
	const clients = 8
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var n atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			pace := time.NewTicker(clients * time.Second / time.Duration(perSecond))
			defer pace.Stop()
			for time.Since(begin) < length {
				<-pace.C
				if _, err := c.write(ctx, c.direct[0], 0, ""); err != nil {
					cancel(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return n.Load(), time.Since(begin), context.Cause(ctx)
}

func (c *copyCluster) watch(ctx context.Context, node int, seen map[string]time.Time) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.direct[node]+"/t/"+tenantName(0)+"/changes", nil)
	if err != nil {
		return
	}
	req.Header.Set("Domicile-Mode", "read")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if p, ok := strings.CutPrefix(s.Text(), "id: "); ok {
			seen[p] = time.Now()
		}
	}
}

// keepUp has 100 transactions in each request written as fast as they go, with
// --sync normal so that the disk does not bound it, and times the copy's arrival at
// the last.
func (b *failoverBench) keepUp(ctx context.Context) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 1, lease: 3 * time.Second, nodeArgs: []string{"--ack", "primary", "--sync", "normal"}})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.createInSync(ctx, 1, 0); err != nil {
		return err
	}
	stmt := `{"type":"execute","stmt":{"sql":"insert into log (body) values ('a row of a tenant, as long as one is')"}}`
	body := `{"requests":[` + strings.Repeat(stmt+",", 99) + stmt + `]}`
	var n atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	var failed atomic.Pointer[error]
	for range 4 {
		wg.Go(func() {
			for time.Since(begin) < b.length {
				if _, err := c.ask(ctx, http.MethodPost, c.direct[0]+"/t/"+tenantName(0)+"/v3/pipeline", body); err != nil {
					failed.Store(&err)
					return
				}
				n.Add(100)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if e := failed.Load(); e != nil {
		return *e
	}
	end := time.Now()
	position := func(i int) string {
		data, err := c.ask(ctx, http.MethodGet, c.direct[i]+"/t/"+tenantName(0), "", "Domicile-Mode", "read") // a copy answers reads alone
		if err != nil {
			return err.Error()
		}
		_, rest, _ := strings.Cut(string(data), `"position":"`)
		p, _, _ := strings.Cut(rest, `"`)
		return p
	}
	last := position(0)
	for position(1) != last {
		if time.Since(end) > time.Minute {
			return fmt.Errorf("the copy is at %s, not at %s", position(1), last)
		}
		time.Sleep(time.Millisecond)
	}
	b.row(fmt.Sprintf("%.0f transactions a second for %v: the copy has the last one after, ms", float64(n.Load())/took.Seconds(), b.length), short(millis(time.Since(end))), "keeps up with 15,000")
	return nil
}

// manyNodes has a group lease that many nodes, which this process plays.
func (b *failoverBench) manyNodes(ctx context.Context, count int) error {
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, lease: time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return err
	}
	var grants atomic.Int64
	srv := &http.Server{Handler: fakeNode(&grants)}
	go func() { _ = srv.Serve(l) }() // ends with Close
	defer srv.Close()
	port := l.Addr().(*net.TCPAddr).Port
	addr := netip.MustParseAddr("127.1.0.1")
	for i := range count {
		body := fmt.Sprintf(`{"addr":"http://%s:%d","token":"bench"}`, addr, port)
		if _, err := c.ask(ctx, http.MethodPut, fmt.Sprintf("%s/_shard/nodes/f%04d", c.apis[0], i), body); err != nil {
			return err
		}
		addr = addr.Next()
	}
	time.Sleep(2 * time.Second) // all have a lease
	at, _, err := c.leader(ctx)
	if err != nil {
		return err
	}
	from, before, leader := grants.Load(), cpuOf(c.controls...), cpuOf(c.controls[at])
	begin := time.Now()
	time.Sleep(2 * b.length)
	took := time.Since(begin).Seconds()
	b.row(fmt.Sprintf("%d nodes leased at 1 s (%.0f grants a second): cores of the leader", count, float64(grants.Load()-from)/took), short((cpuOf(c.controls[at])-leader).Seconds()/took), "≤ 0.3")
	b.row("cores of the three control servers", short((cpuOf(c.controls...)-before).Seconds()/took), "")
	return nil
}
