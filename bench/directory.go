package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// trio is three processes that agree, and how they are loaded.
type trio struct {
	name  string
	procs []*process
	load  func(ctx context.Context, clients int, d time.Duration) (puts, error)
	rate  map[int]sample
	p50   map[int]sample
	p99   map[int]sample
	cpu   map[int]sample
}

type puts struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Count     float64 `json:"count"`
}

// benchDirectory puts changes through three control servers and, in turns,
// values through three etcd members on the same disk (quality figures §4.2).
func benchDirectory(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("directory", flag.ContinueOnError)
	rounds := fs.Int("rounds", 5, "rounds")
	length := fs.Duration("time", 3*time.Second, "length of one measurement")
	bin := fs.String("domicile", "bin/domicile", "the program")
	if err := fs.Parse(args); err != nil {
		return err
	}
	path, err := findBinary(*bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", "bench-directory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, err := startControl(ctx, path, dir)
	defer ours.stop()
	if err != nil {
		return err
	}
	theirs, err := startEtcd(ctx, dir)
	defer theirs.stop()
	if err != nil {
		return err
	}
	clients := []int{1, 64}
	for range *rounds {
		for _, c := range clients {
			for _, t := range []*trio{ours, theirs} {
				if err := t.measure(ctx, c, *length); err != nil {
					return err
				}
			}
		}
	}
	reportDirectory(ours, theirs, clients)
	return nil
}

func newTrio(name string) *trio {
	return &trio{name: name, rate: map[int]sample{}, p50: map[int]sample{}, p99: map[int]sample{}, cpu: map[int]sample{}}
}

func (t *trio) stop() {
	for _, p := range t.procs {
		p.stop()
	}
}

func (t *trio) cpuAll() (sum time.Duration, err error) {
	for _, p := range t.procs {
		d, err := p.cpu()
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

func (t *trio) measure(ctx context.Context, clients int, d time.Duration) error {
	before, err := t.cpuAll()
	if err != nil {
		return err
	}
	r, err := t.load(ctx, clients, d)
	if err != nil {
		return fmt.Errorf("%s, %d clients: %w", t.name, clients, err)
	}
	after, err := t.cpuAll()
	if err != nil {
		return err
	}
	t.rate[clients] = append(t.rate[clients], r.PerSecond)
	t.p50[clients] = append(t.p50[clients], r.P50/1000)
	t.p99[clients] = append(t.p99[clients], r.P99/1000)
	t.cpu[clients] = append(t.cpu[clients], float64((after-before).Microseconds())/r.Count)
	return nil
}

func startControl(ctx context.Context, bin, dir string) (*trio, error) {
	t := newTrio("domicile")
	var apis []string
	for i := range 3 {
		api, err := freePort()
		if err != nil {
			return t, err
		}
		raft, err := freePort()
		if err != nil {
			return t, err
		}
		args := []string{"control", "--id", fmt.Sprintf("c%d", i+1), "--data", filepath.Join(dir, fmt.Sprintf("c%d", i+1)), "--listen", api, "--raft-listen", raft, "--log-level", "error"}
		if i == 0 {
			args = append(args, "--bootstrap")
		} else {
			args = append(args, "--join", "http://"+apis[0])
		}
		p, err := start(ctx, "control", nil, bin, args...)
		if err != nil {
			return t, err
		}
		t.procs, apis = append(t.procs, p), append(apis, api)
		if err := awaitReady(ctx, "http://"+api); err != nil {
			return t, fmt.Errorf("%w\n%s", err, p.out)
		}
	}
	leader := "http://" + apis[0]
	t.load = func(ctx context.Context, clients int, d time.Duration) (puts, error) {
		return putRegions(ctx, leader, clients, d)
	}
	return t, nil
}

// putRegions makes changes of one entry each, from clients of one connection.
func putRegions(ctx context.Context, server string, clients int, d time.Duration) (puts, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	end := time.Now().Add(d)
	for i := range clients {
		wg.Go(func() {
			hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer hc.CloseIdleConnections()
			var mine []time.Duration
			for n := 0; time.Now().Before(end); n++ {
				t := time.Now()
				if err := putRegion(ctx, hc, fmt.Sprintf("%s/_shard/regions/r%d-%d", server, i, n%100)); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if failed != nil {
		return puts{}, failed
	}
	slices.Sort(all)
	return puts{
		PerSecond: float64(len(all)) / d.Seconds(),
		P50:       float64(all[len(all)/2].Microseconds()),
		P99:       float64(all[len(all)*99/100].Microseconds()),
		Count:     float64(len(all)),
	}, nil
}

func putRegion(ctx context.Context, hc *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader([]byte(`{"routers":["http://10.0.0.1:8090"]}`)))
	if err != nil {
		return err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}

func startEtcd(ctx context.Context, dir string) (*trio, error) {
	t := newTrio("etcd")
	var clientURLs, peers [3]string
	cluster := ""
	for i := range 3 {
		c, err := freePort()
		if err != nil {
			return t, err
		}
		p, err := freePort()
		if err != nil {
			return t, err
		}
		clientURLs[i], peers[i] = "http://"+c, "http://"+p
		cluster += fmt.Sprintf(",e%d=%s", i, peers[i])
	}
	for i := range 3 {
		p, err := start(ctx, "etcd", nil, "etcd", "--name", fmt.Sprintf("e%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("e%d", i)),
			"--listen-client-urls", clientURLs[i], "--advertise-client-urls", clientURLs[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", cluster[1:], "--initial-cluster-state", "new", "--log-level", "error")
		if err != nil {
			return t, err
		}
		t.procs = append(t.procs, p)
	}
	for _, u := range clientURLs {
		if err := awaitPort(ctx, u[len("http://"):]); err != nil {
			return t, err
		}
	}
	tool := filepath.Join(dir, "etcdput")
	build := exec.CommandContext(ctx, "go", "build", "-C", "bench/etcdput", "-o", mustAbs(tool), ".")
	if out, err := build.CombinedOutput(); err != nil {
		return t, fmt.Errorf("build etcdput: %w: %s", err, out)
	}
	t.load = func(ctx context.Context, clients int, d time.Duration) (p puts, err error) {
		out, err := exec.CommandContext(ctx, mustAbs(tool), "-endpoints", clientURLs[0], "-clients", fmt.Sprint(clients), "-time", d.String()).Output()
		if err != nil {
			return p, err
		}
		return p, json.Unmarshal(out, &p)
	}
	return t, nil
}

func mustAbs(p string) string {
	a, err := filepath.Abs(p)
	if err != nil {
		panic(err)
	}
	return a
}

func reportDirectory(ours, theirs *trio, clients []int) {
	var rows [][]string
	for _, c := range clients {
		rows = append(rows, []string{fmt.Sprint(c), ratio(ours.p50[c], theirs.p50[c]).String(), ratio(ours.rate[c], theirs.rate[c]).String(), ratio(ours.cpu[c], theirs.cpu[c]).String()})
	}
	fmt.Println("Changes of the directory against etcd's puts, round by round")
	table([]string{"clients", "p50, ratio", "a second, ratio", "CPU of the three, ratio"}, rows)
	rows = nil
	for _, t := range []*trio{ours, theirs} {
		for _, c := range clients {
			rows = append(rows, []string{t.name, fmt.Sprint(c), t.rate[c].String(), t.p50[c].String(), t.p99[c].String(), t.cpu[c].String()})
		}
	}
	table([]string{"system", "clients", "a second", "p50 ms", "p99 ms", "CPU µs a change, three servers"}, rows)
}
