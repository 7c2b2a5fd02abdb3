package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// contender is one of the systems that a request goes through.
type contender struct {
	name string
	addr string
	proc *process // nil for the backend itself
	cpu  map[int]sample
	rate map[int]sample
	p50  map[int]sample
	ctx  sample // voluntary context switches a request at one connection
}

// benchProxy puts the same load through Domicile's proxy, nginx, HAProxy and a
// raw forwarder, in turns (quality figures §4.1).
func benchProxy(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("proxy", flag.ContinueOnError)
	rounds := fs.Int("rounds", 5, "rounds")
	length := fs.Duration("time", 3*time.Second, "length of one measurement")
	tenants := fs.Int("tenants", 100_000, "tenants in each routing table")
	bin := fs.String("domicile", "bin/domicile", "the program")
	procs := fs.String("gomaxprocs", "1", "GOMAXPROCS of Domicile's proxy")
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "domicile-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, stop, err := startContenders(ctx, dir, *bin, *procs, *tenants)
	defer stop()
	if err != nil {
		return err
	}
	connections := []int{1, 16, 64, 256}
	path := "/t/" + tenantName(*tenants/2) + "/db/query"
	for range *rounds {
		for _, c := range connections {
			for _, s := range all {
				if err := s.measure(ctx, path, c, *length); err != nil {
					return err
				}
			}
		}
	}
	reportProxy(all, connections)
	if err := bodies(ctx, all, path, min(*rounds, 3)); err != nil {
		return err
	}
	if err := events(ctx, all, path, min(*rounds, 3)); err != nil {
		return err
	}
	return idle(all, path, 5000)
}

// startContenders starts every system on a port of its own over one backend.
func startContenders(ctx context.Context, dir, bin, procs string, tenants int) (all []*contender, stop func(), err error) {
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
	for _, n := range []string{"backend", "stream", "domicile", "nginx", "haproxy", "forwarder"} {
		if addrs[n], err = freePort(); err != nil {
			return nil, stop, err
		}
	}
	one := []string{"GOMAXPROCS=1"}
	begin := []func() (*process, error){
		func() (*process, error) {
			return start(ctx, "backend", one, self, "backend", "-listen", addrs["backend"])
		},
		func() (*process, error) {
			return start(ctx, "stream", one, self, "stream", "-listen", addrs["stream"], "-node", addrs["backend"], "-tenants", fmt.Sprint(tenants))
		},
		func() (*process, error) {
			return start(ctx, "domicile", []string{"GOMAXPROCS=" + procs}, bin, "proxy", "--listen", addrs["domicile"], "--control", "http://"+addrs["stream"])
		},
		func() (*process, error) { return startNginx(ctx, dir, addrs["nginx"], addrs["backend"], tenants) },
		func() (*process, error) { return startHAProxy(ctx, dir, addrs["haproxy"], addrs["backend"], tenants) },
		func() (*process, error) {
			return start(ctx, "forwarder", one, self, "forwarder", "-listen", addrs["forwarder"], "-to", addrs["backend"])
		},
	}
	for _, b := range begin {
		p, err := b()
		if err != nil {
			return nil, stop, err
		}
		running = append(running, p)
		if err := awaitPort(ctx, addrs[p.name]); err != nil {
			return nil, stop, fmt.Errorf("%s did not come up: %w\n%s", p.name, err, p.out)
		}
		if p.name != "stream" && p.name != "backend" {
			all = append(all, newContender(p.name, addrs[p.name], p))
		}
	}
	if err := awaitRoute(ctx, addrs["domicile"]); err != nil {
		return nil, stop, err
	}
	return append(all, newContender("direct", addrs["backend"], nil)), stop, nil
}

func newContender(name, addr string, p *process) *contender {
	return &contender{name: name, addr: addr, proc: p, cpu: map[int]sample{}, rate: map[int]sample{}, p50: map[int]sample{}}
}

func (s *contender) measure(ctx context.Context, path string, connections int, d time.Duration) error {
	var before time.Duration
	var switched int64
	if s.proc != nil {
		var err error
		if before, err = s.proc.cpu(); err != nil {
			return err
		}
		switched = s.proc.switches()
	}
	r, err := wrk(ctx, "http://"+s.addr+path, connections, d)
	if err != nil {
		return err
	}
	s.rate[connections] = append(s.rate[connections], r.perSecond)
	s.p50[connections] = append(s.p50[connections], float64(r.p50.Microseconds()))
	if s.proc != nil {
		after, err := s.proc.cpu()
		if err != nil {
			return err
		}
		s.cpu[connections] = append(s.cpu[connections], float64((after-before).Microseconds())/r.requests)
		if connections == 1 {
			s.ctx = append(s.ctx, float64(s.proc.switches()-switched)/r.requests)
		}
	}
	return nil
}

func reportProxy(all []*contender, connections []int) {
	byName := map[string]*contender{}
	for _, s := range all {
		byName[s.name] = s
	}
	d := byName["domicile"]
	var rows [][]string
	for _, c := range connections {
		for _, other := range []string{"nginx", "haproxy", "forwarder"} {
			o := byName[other]
			rows = append(rows, []string{fmt.Sprint(c), other, ratio(d.cpu[c], o.cpu[c]).String(), ratio(d.rate[c], o.rate[c]).String()})
		}
	}
	fmt.Println("Domicile's proxy against each, round by round")
	table([]string{"connections", "against", "CPU a request, ratio", "requests a second, ratio"}, rows)
	rows = nil
	for _, s := range all {
		for _, c := range connections {
			row := []string{s.name, fmt.Sprint(c), s.cpu[c].String(), s.rate[c].String(), s.p50[c].String(), ""}
			if c == 1 {
				row[5] = s.ctx.String()
			}
			rows = append(rows, row)
		}
	}
	table([]string{"system", "connections", "CPU µs a request", "requests a second", "p50 µs", "context switches a request"}, rows)
	direct := byName["direct"].p50[1].median()
	rows = nil
	for _, s := range all {
		if s.proc != nil {
			rows = append(rows, []string{s.name, short(s.p50[1].median() - direct), short(float64(s.proc.rss()) / (1 << 20))})
		}
	}
	table([]string{"system", "added p50 µs at one connection", "memory MB"}, rows)
}

func findBinary(bin string) (string, error) {
	abs, err := filepath.Abs(bin)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(abs); err != nil {
		return "", fmt.Errorf("%w: run make build first", err)
	}
	return abs, nil
}
