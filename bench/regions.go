package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// benchRegions measures what two levels of directories cost: a request that is relayed to
// another region (§4.1), a failover inside a region that is cut off (§4.4), and a move
// between two directories (§4.5).
func benchRegions(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("regions", flag.ContinueOnError)
	rounds := fs.Int("rounds", 5, "rounds of the section relay")
	length := fs.Duration("time", 3*time.Second, "length of one measurement of it")
	tenants := fs.Int("tenants", 100_000, "tenants of each routing table")
	runs := fs.Int("runs", 10, "failovers of the section failover, 1 to 100")
	moves := fs.Int("moves", 10, "moves there, and as many back, of the section moves, 1 to 1000")
	rate := fs.Int("rate", 300, "writes a second of it")
	only := fs.String("only", "", "sections, separated by commas: relay, failover, moves; none: all")
	bin := fs.String("domicile", "bin/domicile", "the program")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *runs > 100 || *rounds < 1 || *moves < 1 || *moves > 1000 || *rate < 1 || *rate > 20_000 {
		return errors.New("-rounds takes 1 or more, -runs 1 to 100, -moves 1 to 1000, -rate 1 to 20000")
	}
	path, err := findBinary(*bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", "bench-regions-") // on the disk that the project is on
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	wanted := func(section string) bool {
		return *only == "" || slices.Contains(strings.Split(*only, ","), section)
	}
	var failed error
	if wanted("relay") {
		failed = relayCost(ctx, dir, path, *tenants, *rounds, *length)
	}
	if wanted("failover") && ctx.Err() == nil {
		b := &failoverBench{bin: path, dir: filepath.Join(dir, "failover"), runs: *runs}
		err := b.cutOff(ctx, copyOptions{lease: time.Second, region: "us"}, 10, 10, b.runs, "≤ 1.15 s in the worst")
		fmt.Println("A node of a region that is cut off from the global group throughout")
		table([]string{"figure", "measured", "reach"}, b.rows)
		failed = errors.Join(failed, err)
	}
	if wanted("moves") && ctx.Err() == nil {
		b := &movesBench{bin: path, dir: filepath.Join(dir, "moves"), runs: *moves, rate: *rate}
		err := b.directories(ctx)
		fmt.Println("A tenant goes from the directory of one region to that of another, and back, while it is written and read")
		table([]string{"figure", "measured", "reach"}, b.rows)
		failed = errors.Join(failed, err, b.verdict())
	}
	return failed
}

// hops is a way for a request, through none, one or two proxies.
type hops struct {
	name  string
	addr  string
	procs []*process // the proxies that it goes through
	cpu   map[int]sample
	p50   map[int]sample
	rate  map[int]sample
}

func newHops(name, addr string, procs ...*process) *hops {
	return &hops{name: name, addr: addr, procs: procs, cpu: map[int]sample{}, p50: map[int]sample{}, rate: map[int]sample{}}
}

func (h *hops) used() (total time.Duration, err error) {
	for _, p := range h.procs {
		d, err := p.cpu()
		if err != nil {
			return 0, err
		}
		total += d
	}
	return total, nil
}

func (h *hops) measure(ctx context.Context, path string, connections int, d time.Duration) error {
	before, err := h.used()
	if err != nil {
		return err
	}
	r, err := wrk(ctx, "http://"+h.addr+path, connections, d)
	if err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	after, err := h.used()
	if err != nil {
		return err
	}
	h.cpu[connections] = append(h.cpu[connections], float64((after-before).Microseconds())/r.requests)
	h.p50[connections] = append(h.p50[connections], float64(r.p50.Microseconds()))
	h.rate[connections] = append(h.rate[connections], r.perSecond)
	return nil
}

// The ways of relayCost.
const (
	wayDirect  = "direct to the node"
	wayOwn     = "the region's own proxy"
	wayRelay   = "relayed by the other region's proxy"
	wayNginx   = "nginx"
	wayNginxes = "nginx, then nginx"
)

// relayCost puts the same load on a tenant of region us directly, through a proxy of us, and
// through one of eu, which relays it; and through one nginx and two, in turns.
func relayCost(ctx context.Context, dir, bin string, tenants, rounds int, length time.Duration) error {
	ways, stop, err := startHops(ctx, dir, bin, tenants)
	defer stop()
	if err != nil {
		return err
	}
	connections := []int{1, 16, 64}
	path := "/t/" + tenantName(tenants/2) + "/db/query"
	for range rounds {
		for _, c := range connections {
			for _, w := range ways {
				if err := w.measure(ctx, path, c, length); err != nil {
					return err
				}
			}
		}
	}
	reportHops(ways, connections)
	return nil
}

// startHops starts the proxies of two regions over one backend, and two nginx.
func startHops(ctx context.Context, dir, bin string, tenants int) (ways []*hops, stop func(), err error) {
	var running []*process
	stop = func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	addrs := map[string]string{}
	for _, n := range []string{"backend", "directory-us", "directory-eu", "us", "eu", "nginx", "nginx-before"} {
		if addrs[n], err = freePort(); err != nil {
			return nil, stop, err
		}
	}
	one := []string{"GOMAXPROCS=1"}
	directory := func(region string) (*process, error) {
		return start(ctx, "directory-"+region, one, self, "stream", "-listen", addrs["directory-"+region], "-node", addrs["backend"], "-tenants", fmt.Sprint(tenants),
			"-region", region, "-home", "us", "-router", "http://"+addrs["us"])
	}
	proxy := func(region string) (*process, error) {
		return start(ctx, region, one, bin, "proxy", "--listen", addrs[region], "--control", "http://"+addrs["directory-"+region], "--region", region, "--shared-secret", "bench", "--log-level", "error")
	}
	nginx := func(name, to string) (*process, error) {
		dir := filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		p, err := startNginx(ctx, abs, addrs[name], to, tenants)
		if p != nil {
			p.name = name
		}
		return p, err
	}
	procs := map[string]*process{}
	for _, begin := range []func() (*process, error){
		func() (*process, error) {
			return start(ctx, "backend", one, self, "backend", "-listen", addrs["backend"])
		},
		func() (*process, error) { return directory("us") },
		func() (*process, error) { return directory("eu") },
		func() (*process, error) { return proxy("us") },
		func() (*process, error) { return proxy("eu") },
		func() (*process, error) { return nginx("nginx", addrs["backend"]) },
		func() (*process, error) { return nginx("nginx-before", addrs["nginx"]) },
	} {
		p, err := begin()
		if err != nil {
			return nil, stop, err
		}
		running = append(running, p)
		procs[p.name] = p
		if err := awaitPort(ctx, addrs[p.name]); err != nil {
			return nil, stop, fmt.Errorf("%s did not come up: %w\n%s", p.name, err, p.out)
		}
	}
	for _, region := range []string{"us", "eu"} {
		if err := awaitRoute(ctx, addrs[region]); err != nil {
			return nil, stop, fmt.Errorf("%w\n%s", err, procs[region].out)
		}
	}
	return []*hops{
		newHops(wayDirect, addrs["backend"]),
		newHops(wayOwn, addrs["us"], procs["us"]),
		newHops(wayRelay, addrs["eu"], procs["eu"], procs["us"]),
		newHops(wayNginx, addrs["nginx"], procs["nginx"]),
		newHops(wayNginxes, addrs["nginx-before"], procs["nginx-before"], procs["nginx"]),
	}, stop, nil
}

func reportHops(ways []*hops, connections []int) {
	by := map[string]*hops{}
	for _, w := range ways {
		by[w.name] = w
	}
	var rows [][]string
	for _, c := range connections {
		for _, two := range []struct{ name, one, both string }{{"Domicile", wayOwn, wayRelay}, {"nginx", wayNginx, wayNginxes}} {
			one, both := by[two.one], by[two.both]
			direct := by[wayDirect].p50[c]
			rows = append(rows, []string{fmt.Sprint(c), two.name,
				ratio(less(both.cpu[c], one.cpu[c]), one.cpu[c]).String(),
				ratio(less(both.p50[c], one.p50[c]), less(one.p50[c], direct)).String()})
		}
	}
	fmt.Println("What the second proxy adds, against what the first does, round by round (to reach: ≤ 1.1)")
	table([]string{"connections", "", "CPU a request, ratio", "p50, ratio"}, rows)
	rows = nil
	for _, w := range ways {
		for _, c := range connections {
			rows = append(rows, []string{w.name, fmt.Sprint(c), w.cpu[c].String(), w.p50[c].String(),
				less(w.p50[c], by[wayDirect].p50[c]).String(), w.rate[c].String()})
		}
	}
	table([]string{"way", "connections", "CPU µs a request, all proxies", "p50 µs", "added p50 µs", "requests a second"}, rows)
}

// less subtracts round by round.
func less(a, b sample) (r sample) {
	for i := range min(len(a), len(b)) {
		r = append(r, a[i]-b[i])
	}
	return r
}
