package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// benchNode asks a node over HTTP, beside an empty handler of the same HTTP
// library and the same statements in process (quality figures §4.3).
func benchNode(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
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
	dir, err := os.MkdirTemp(".", "bench-node-") // on the disk that the project is on, not on a tmpfs
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := startNodes(ctx, path, dir)
	defer b.stop()
	if err != nil {
		return err
	}
	for range *rounds {
		for _, c := range []int{8, 64} {
			for _, l := range b.loads {
				if err := l.measure(ctx, c, *length); err != nil {
					return err
				}
			}
		}
		if err := b.inProcess(dir, *length); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// nodeBench is what is measured: loads over HTTP, and figures in process.
type nodeBench struct {
	procs  []*process
	loads  []*nodeLoad
	local  map[string]sample // operations or rows a second in process
	normal string
}

// nodeLoad is one kind of request against one process.
type nodeLoad struct {
	name   string
	url    string
	script string // of wrk
	rows   float64
	proc   *process
	rate   map[int]sample
	cpu    map[int]sample
	p50    map[int]sample
}

func (b *nodeBench) stop() {
	for _, p := range b.procs {
		p.stop()
	}
}

func startNodes(ctx context.Context, bin, dir string) (*nodeBench, error) {
	b := &nodeBench{local: map[string]sample{}}
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	addrs := map[string]string{}
	for _, n := range []string{"empty", "normal", "full"} {
		addr, err := freePort()
		if err != nil {
			return b, err
		}
		addrs[n] = addr
		var p *process
		if n == "empty" {
			p, err = start(ctx, n, nil, self, "backend", "-listen", addr)
		} else {
			p, err = start(ctx, n, nil, bin, "node", "--listen", addr, "--data", filepath.Join(dir, n), "--admin-token", "bench", "--sync", n, "--log-level", "error")
		}
		if err != nil {
			return b, err
		}
		b.procs = append(b.procs, p)
		if err := awaitPort(ctx, addr); err != nil {
			return b, fmt.Errorf("%w\n%s", err, p.out)
		}
		if n == "empty" {
			continue
		}
		if err := prepareTenant("http://" + addr); err != nil {
			return b, err
		}
	}
	empty, normal, full := b.procs[0], b.procs[1], b.procs[2]
	add := func(name string, p *process, addr, body string, rows float64) error {
		script := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".lua")
		lua := fmt.Sprintf("wrk.method = \"POST\"\nwrk.body = [==[%s]==]\nwrk.headers[\"Content-Type\"] = \"application/json\"\n", body)
		if err := os.WriteFile(script, []byte(lua), 0o600); err != nil {
			return err
		}
		b.loads = append(b.loads, &nodeLoad{name: name, url: "http://" + addr + "/t/bench/query", script: script, rows: rows, proc: p,
			rate: map[int]sample{}, cpu: map[int]sample{}, p50: map[int]sample{}})
		return nil
	}
	read := `{"sql":"select id, body from notes where id = ?","args":[500]}`
	insert := `{"sql":"insert into log (body) values (?)","args":["a row of a tenant, as long as one is"]}`
	for _, l := range []struct {
		name string
		p    *process
		addr string
		body string
	}{
		{"empty handler", empty, addrs["empty"], read},
		{"point read", normal, addrs["normal"], read},
		{"insert normal", normal, addrs["normal"], insert},
		{"insert durable", full, addrs["full"], insert},
	} {
		if err := add(l.name, l.p, l.addr, l.body, 1); err != nil {
			return b, err
		}
	}
	stmt := `{"sql":"insert into log (body) values (?)","args":["a row of a tenant, as long as one is"]}`
	batch := `{"statements":[` + strings.Repeat(stmt+",", 99) + stmt + `]}`
	if err := add("batch of 100", normal, addrs["normal"], batch, 100); err != nil {
		return b, err
	}
	b.loads[len(b.loads)-1].url = "http://" + addrs["normal"] + "/t/bench/batch"
	b.normal = addrs["normal"]
	return b, nil
}

// prepareTenant makes the tenant that is asked, with a thousand rows.
func prepareTenant(node string) error {
	holder := `"authority":"bench/global","history":1,"term":1`
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPut, "/_admin/tenants/bench", `{"id":1,` + holder + `}`},
		{http.MethodPost, "/t/bench/query", `{"sql":"create table notes (id integer primary key, body text)"}`},
		{http.MethodPost, "/t/bench/query", `{"sql":"create table log (id integer primary key, body text)"}`},
		{http.MethodPost, "/t/bench/query", `{"sql":"with recursive c(n) as (select 1 union all select n+1 from c where n < 1000) insert into notes select n, 'a row of a tenant, long enough to be like one' from c"}`},
	} {
		req, err := http.NewRequest(c.method, node+c.path, strings.NewReader(c.body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer bench")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s %s: %s", c.method, c.path, resp.Status)
		}
	}
	return nil
}

func (l *nodeLoad) measure(ctx context.Context, connections int, d time.Duration) error {
	before, err := l.proc.cpu()
	if err != nil {
		return err
	}
	r, err := wrk(ctx, l.url, connections, d, "-s", l.script)
	if err != nil {
		return err
	}
	after, err := l.proc.cpu()
	if err != nil {
		return err
	}
	l.rate[connections] = append(l.rate[connections], r.perSecond*l.rows)
	l.p50[connections] = append(l.p50[connections], float64(r.p50.Microseconds()))
	l.cpu[connections] = append(l.cpu[connections], float64((after-before).Microseconds())/r.requests)
	return nil
}

func (b *nodeBench) report() {
	by := map[string]*nodeLoad{}
	for _, l := range b.loads {
		by[l.name] = l
	}
	var rows [][]string
	for _, c := range []int{8, 64} {
		n := fmt.Sprint(c)
		empty := by["empty handler"].rate[c]
		rows = append(rows,
			[]string{"point read / empty handler", n, ratio(by["point read"].rate[c], empty).String(), "≥ 0.6"},
			[]string{"insert NORMAL, capture on / empty handler", n, ratio(by["insert normal"].rate[c], empty).String(), "≥ 0.45 at 64"},
			[]string{"durable insert / insert NORMAL", n, ratio(by["insert durable"].rate[c], by["insert normal"].rate[c]).String(), "≥ 0.8 at 64"},
			[]string{"durable insert / a sync per commit in process", n, ratio(by["insert durable"].rate[c], b.local["insert, a sync per commit"]).String(), "≥ 6 at 64"},
			[]string{"rows of batches of 100 / C's rows in one transaction", n, ratio(by["batch of 100"].rate[c], b.local["C, rows in one transaction"]).String(), "≥ 0.15"},
		)
	}
	fmt.Println("Ratios, round by round")
	table([]string{"figure", "connections", "ratio", "reach"}, rows)
	rows = nil
	for _, l := range b.loads {
		for _, c := range []int{8, 64} {
			rows = append(rows, []string{l.name, fmt.Sprint(c), l.rate[c].String(), l.p50[c].String(), l.cpu[c].String()})
		}
	}
	table([]string{"over HTTP", "connections", "rows or requests a second", "p50 µs", "CPU µs a request"}, rows)
	rows = nil
	for _, n := range []string{"insert, a sync per commit", "insert NORMAL", "C, rows in one transaction"} {
		rows = append(rows, []string{n, b.local[n].String()})
	}
	table([]string{"in process", "a second"}, rows)
}
